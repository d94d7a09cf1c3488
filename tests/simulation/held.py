"""One worker's process, held at every call until somebody says how the call ends.

The shipped consumer runs here, unmodified, on greenlets: each call of the store or of the queue, each run of a handler
and each wait of the coordinating thread stands still until it is told how it ends. Nothing else decides what happens
next, so a worker is a function of what it has been told: its history. Greenlets cannot be copied, so a worker comes
to a history by being told all of it from the start.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, get_type_hints

from greenlet import GreenletExit, getcurrent, greenlet

from idempotent_receiver import Message, PermanentError, Transaction, sqs_consumer
from idempotent_receiver.deadletter import STAMP
from tests.simulation.world import FIFO, QUEUE, START_EPOCH_SECONDS, failed_ids, sqs_record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from idempotent_receiver.record import Change, Record
    from idempotent_receiver.transaction import Action

DEAD_LETTERS = "https://sqs.us-east-1.amazonaws.com/123456789012/dead-letters"
BUDGET_SECONDS = 10.0
ME = "me"
"""What every worker calls itself: which one it is concerns nobody but the world."""
LOST = "lost"
"""The answer to a dead letter of which nobody knows whether it arrived."""


@dataclass(frozen=True)
class Setup:
    """How many workers get which messages, and what their consumer is."""

    name: str
    workers: int
    messages: int
    transactional: bool = False
    letters: bool = False
    fifo: bool = False
    concurrency: int = 1

    @property
    def batch(self) -> list[str]:
        """The messages' ids."""
        return [f"m{number}" for number in range(self.messages)]


@dataclass(frozen=True)
class Call:
    """What a worker waits for: a store call and its statements, a dead letter (`send`), or a handler (`run`)."""

    kind: str
    parts: tuple[Any, ...]
    sent: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)
    """What its statements are to the world, for whoever wants to know that again."""


Event = tuple[Any, ...]
"""What a worker is told: a kind, the true time, how far off its wall clock is, and for an answer which call and what.

`start`, `wake` (the coordinating thread takes in what has finished), `timer` (its wait is over) or `answer`.
"""


class Silent:
    """A logger and metrics that say nothing."""

    log_level = 100

    def info(self, *arguments: object, **fields: object) -> None:
        """Nothing."""

    debug = warning = error = append_keys = add_metric = flush_metrics = info


SILENT: Any = Silent()


@dataclass
class Held:
    """A worker, and what it waits for."""

    setup: Setup
    receives: int
    calls: dict[int, Call] = field(default_factory=dict)
    """What it waits for, by the number of the call."""
    woken: bool = False
    """Whether something has finished that the coordinating thread has not taken in yet."""
    timeout: float | None = None
    """The local time at which the coordinating thread stops waiting; None while it is not waiting for a time."""
    response: list[str] | BaseException | None = None
    """The answer to Lambda: the ids that must come again; or what was raised."""
    now: float = 0.0
    wall: float = 0.0
    local: float = 0.0

    def __post_init__(self) -> None:
        self._hub = getcurrent()
        self._waiting: dict[int, greenlet] = {}
        self._ready: deque[greenlet] = deque()
        self._all: list[greenlet] = []
        self._finished: list[tuple[Callable[[Any], None], Any]] = []
        self._drawn = self._asked = 0
        self._main: greenlet | None = None
        self._closed = False

    # What the world does.

    def tell(self, event: Event) -> None:
        """Let it go on with this until it stands still again."""
        self._hub = getcurrent()
        kind, self.now, self.wall, *rest = event
        match kind:
            case "start":
                self.spawn(self._invoke)
            case "answer":
                number, answer = rest
                del self.calls[number]
                self._waiting.pop(number).switch(answer)
            case "timer":
                self.local = float(self.timeout or 0.0) - self.now
                self._wake()
            case "wake":
                self._wake()
        self._go_on()
        # Where nothing else could come first, it wakes at once.
        while self.woken and not self.calls:
            self._wake()
            self._go_on()

    def close(self) -> None:
        """End it where it stands."""
        self._closed, self._hub = True, getcurrent()
        for one in self._all:
            while not one.dead:
                one.throw(GreenletExit)

    def _go_on(self) -> None:
        while self._ready:
            self._ready.popleft().switch()

    def _wake(self) -> None:
        main, self._main, self.woken, self.timeout = self._main, None, False, None
        assert main is not None, "the coordinating thread is not waiting"
        main.switch()

    def _stand_still(self) -> Any:
        if self._closed:
            raise GreenletExit
        return self._hub.switch()

    def ask(self, kind: str, *parts: object) -> Any:
        """Stand still until somebody says how this call ends."""
        number = self._asked
        self._asked += 1
        self.calls[number] = Call(kind, parts)
        self._waiting[number] = getcurrent()
        return self._stand_still()

    def wait(self, timeout_seconds: float | None) -> None:
        """Let the coordinating thread wait, and take in what has finished."""
        if not self._finished:
            self._main = getcurrent()
            if timeout_seconds is not None:
                # A microsecond more, lest a rounding error leave it just short of what it waits for.
                self.timeout = self.monotonic_seconds() + max(0.0, timeout_seconds) + 1e-6
            self._stand_still()
        finished, self._finished = self._finished, []
        for then, result in finished:
            then(result)

    def finish(self, then: Callable[[Any], None], result: object) -> None:
        """Let the coordinating thread know that something has finished."""
        self._finished.append((then, result))
        self.woken = self._main is not None

    def spawn(self, job: Callable[[], object]) -> None:
        """Run a job beside the others."""
        new = greenlet(job, parent=self._hub)
        self._all.append(new)
        self._ready.append(new)

    # What its code runs on.

    def _invoke(self) -> None:
        consumer = sqs_consumer(
            _Store(self),
            clock=self,
            executor=lambda: _Executor(self),
            sqs=_Queue(self) if self.setup.letters else None,  # type: ignore[arg-type]
            dead_letter_queue=DEAD_LETTERS if self.setup.letters else None,
            concurrency=self.setup.concurrency,
            logger=SILENT,
            metrics=SILENT,
        )
        queue = FIFO if self.setup.fifo else QUEUE
        group = "g" if self.setup.fifo else None
        records = [sqs_record(id, receives=self.receives, queue=queue, group=group) for id in self.setup.batch]
        context = SimpleNamespace(
            get_remaining_time_in_millis=lambda: int(BUDGET_SECONDS * 1000),
            aws_request_id=ME,
            function_name="consumer",
        )
        handle = self._post if self.setup.transactional else self._handle
        try:
            self.response = failed_ids(consumer(handle)({"Records": records}, context))
        except GreenletExit:
            raise
        except BaseException as error:  # noqa: BLE001  # judged by whoever looks at the answer
            self.response = error

    def _handle(self, body: str, message: Message) -> str:
        (how,) = self.ask("run", message.id)
        if how == "returns":
            return "done"
        raise PermanentError("refused") if how == "refuses" else RuntimeError("failed")

    def _post(self, body: str, message: Message, tx: Transaction) -> str:
        tx.update(
            TableName="Entries",
            Key={"id": message.id},
            UpdateExpression="ADD times :one",
            ExpressionAttributeValues={":one": 1},
        )
        return self._handle(body, message)

    # The clock.

    def epoch_ms(self) -> int:
        return round((START_EPOCH_SECONDS + self.now + self.local + self.wall) * 1000)

    def monotonic_seconds(self) -> float:
        return self.now + self.local

    def sleep(self, seconds: float) -> None:
        """A pause between two calls looks to the others like a call that has not been sent yet."""

    def fraction(self) -> float:
        return 0.0

    def version(self) -> str:
        self._drawn += 1
        return f"{ME}-{self._drawn}"


for _handler in (Held._handle, Held._post):
    # Resolved once: each consumer that is made reads them, and there are millions.
    _handler.__annotations__ = get_type_hints(_handler)


@dataclass(frozen=True)
class _Executor:
    """The executor of a held worker: its jobs are greenlets."""

    held: Held

    def start(self, job: Callable[[], Any], then: Callable[[Any], None]) -> None:
        self.held.spawn(lambda: self.held.finish(then, job()))

    def start_async(self, job: Callable[[], Any], then: Callable[[Any], None]) -> None:
        raise NotImplementedError("plain handlers only")

    def tell(self, then: Callable[[Any], None], result: object) -> None:
        self.held.finish(then, result)

    def step(self, timeout_seconds: float | None) -> None:
        self.held.wait(timeout_seconds)

    def cancel_async(self) -> None:
        """There is nothing to cancel."""

    def close(self) -> None:
        """Nothing outlives an invocation here."""


@dataclass(frozen=True)
class _Store:
    """The store as a held worker sees it: each method is a call that somebody else answers."""

    held: Held
    namespace: None = None

    def insert(self, records: Sequence[Record]) -> list[Any]:
        return list(self.held.ask("insert", *records))

    def read(self, ids: Sequence[str]) -> list[Any]:
        return list(self.held.ask("read", *ids))

    def replace(self, changes: Sequence[Change]) -> list[Any]:
        return list(self.held.ask("replace", *changes))

    def commit(self, change: Change, actions: Sequence[Action]) -> Any:
        (answer,) = self.held.ask("commit", (change, tuple(actions)))
        return answer


@dataclass(frozen=True)
class _Queue:
    """The queue's client as a held worker sees it: dead letters are calls, visibilities concern no invariant."""

    held: Held
    meta = SimpleNamespace(endpoint_url="https://sqs.us-east-1.amazonaws.com")

    def change_message_visibility_batch(self, **arguments: object) -> None:
        """Granted."""

    def send_message(self, **arguments: Any) -> None:
        stamp = json.loads(arguments["MessageAttributes"][STAMP]["StringValue"])
        if self.held.ask("send", stamp["original_id"]) == (LOST,):
            raise ConnectionError("the answer was lost")
