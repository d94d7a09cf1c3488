"""One worker's process under the scheduler's control: it stops at every call until the explorer says how the call ends.

The shipped code runs here, unmodified, on greenlets. Each call of the store or of the queue, each run of a handler and
each wait of the coordinating thread stops until an event resumes it. Nothing else decides what happens next, so a
worker is a function of its history: the events that it has received. Greenlets cannot be copied, so a worker reaches a
history by replaying it from the start.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from greenlet import GreenletExit, getcurrent, greenlet

from idempotent_receiver.testing.world import START_EPOCH_SECONDS
from tests.simulation.adapters import ADAPTERS, ME, HttpReply, WorkflowReply
from tests.simulation.explored_table import CONFIRMED
from tests.simulation.handlers import CANCELLED
from tests.simulation.setups import SWEEP

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from idempotent_receiver.worker.leases import Leases
    from tests.simulation.setups import Setup


@dataclass(frozen=True, slots=True)
class Call:
    """A call that a worker waits for.

    It is a store call and its statements, a dead letter (`send`), an execution's `start` or `describe`, a handler
    (`run`), or the end of a pause (`sleep`).
    """

    kind: str
    parts: tuple[Any, ...]
    sent: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)
    """A cache: its statements with the names and times that all workers share."""


Event = tuple[Any, ...]
"""What resumes a worker: a kind, the true time, its wall clock's error, and for an answer the call and the answer.

The kinds are `start`, `wake` (the coordinating thread processes what has finished), `timer` (its wait is over),
`renew` (it renews its leases) and `answer`.
"""


@dataclass
class ControlledWorker:
    setup: Setup
    receives: int
    variant: int = 0
    calls: dict[int, Call] = field(default_factory=dict)
    """The calls that it waits for, by number."""
    woken: bool = False
    """Whether something has finished that the coordinating thread has not processed yet."""
    timeout: float | None = None
    """The local time at which the coordinating thread stops waiting; None while it has no time limit."""
    response: list[str] | BaseException | None = None
    """The answer to Lambda: the ids to deliver again, or the exception that was raised."""
    replies: dict[str, HttpReply | WorkflowReply] = field(default_factory=dict)
    """HTTP and workflow only: the reply to each request."""
    leases: Leases | None = None
    """Outside Lambda only: what it renews."""
    killed_at: float | None = None
    """The local time at which its kernel timer kills it, if it is armed."""
    lost: str | None = None
    """Why it has ended itself: it has lost this record's lease."""
    shared: dict[str, Any] = field(default_factory=dict)
    """What its handler has at hand, from one action and message to the next."""
    renewals: int = 0
    renewing: bool = False
    cut_off: bool = False
    """Whether its store gives no answers any more."""
    now: float = 0.0
    wall: float = 0.0
    local: float = 0.0

    def __post_init__(self) -> None:
        self._hub = getcurrent()
        self._waiting: dict[int, greenlet] = {}
        self._ready: deque[Callable[[], object]] = deque()
        self._all: list[greenlet] = []
        self._finished: list[tuple[Callable[[Any], None], Any]] = []
        self._drawn = self._asked = 0
        self._main: greenlet | None = None
        self._closed = False

    @property
    def sweeps(self) -> bool:
        return self.receives == SWEEP

    @property
    def before_sends(self) -> bool:
        return self.receives in self.setup.before_sends

    def announce(self, id: str, *, idempotency_key: str) -> None:
        """What its handler calls through its transaction: like a message, it is there once it is taken."""
        (answer,) = self.ask("post", (id, idempotency_key))
        if answer != CONFIRMED:
            raise ConnectionError("it was refused, or the answer was lost")

    def resume(self, event: Event) -> None:
        """Let it go on with this event until it stops again."""
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
            case "renew":
                self.spawn(self._renew)
        self._run_ready()
        # Nothing else can come first, so it wakes at once.
        while self.woken and not self.calls and self.lost is None:
            self._wake()
            self._run_ready()

    def close(self) -> None:
        self._closed, self._hub = True, getcurrent()
        for one in self._all:
            while not one.dead:
                one.throw(GreenletExit)

    def _run_ready(self) -> None:
        while self._ready:
            self._ready.popleft()()

    def _wake(self) -> None:
        main, self._main, self.woken, self.timeout = self._main, None, False, None
        assert main is not None, "the coordinating thread is not waiting"
        main.switch()

    def _pause(self) -> Any:
        if self._closed:
            raise GreenletExit
        return self._hub.switch()

    def ask(self, kind: str, *parts: object) -> Any:
        """Stop until an event says how this call ends."""
        number = self._asked
        self._asked += 1
        self.calls[number] = Call(kind, parts)
        self._waiting[number] = getcurrent()
        return self._pause()

    def wait(self, timeout_seconds: float | None) -> None:
        """Let the coordinating thread wait, then process what has finished."""
        if not self._finished:
            self._main = getcurrent()
            if timeout_seconds is not None:
                # A microsecond more, so that a rounding error does not end the wait early.
                self.timeout = self.monotonic_seconds() + max(0.0, timeout_seconds) + 1e-6
            self._pause()
        finished, self._finished = self._finished, []
        for then, result in finished:
            then(result)

    def finish(self, then: Callable[[Any], None], result: object) -> None:
        self._finished.append((then, result))
        self.woken = self._main is not None

    def spawn(self, job: Callable[[], object]) -> None:
        new = greenlet(job, parent=self._hub)
        self._all.append(new)
        self._ready.append(new.switch)

    def cancel_runs(self) -> None:
        for number in [number for number, call in self.calls.items() if call.kind == "run"]:
            del self.calls[number]
            self._ready.append(partial(self._waiting.pop(number).switch, (CANCELLED,)))

    def _invoke(self) -> None:
        try:
            self.response = ADAPTERS[self.setup.adapter](self)
        except GreenletExit:
            raise
        except BaseException as error:  # noqa: BLE001  # the oracle checks it
            self.response = error

    def _renew(self) -> None:
        assert self.leases is not None, "it is outside Lambda"
        self.renewals, self.renewing = self.renewals + 1, True
        self.leases.renew()
        self.renewing = False

    @property
    def may_renew(self) -> bool:
        runs = any(call.kind in ("run", "post") for call in self.calls.values())
        may = self.receives in self.setup.renewing and self.renewals < self.setup.renewals
        return runs and may and not self.renewing

    # The worker is its own kernel timer, and ends itself.

    def arm(self, seconds: float) -> None:
        self.killed_at = self.monotonic_seconds() + seconds

    def disarm(self) -> None:
        self.killed_at = None

    def lose(self, id: str, why: str) -> None:
        self.lost = f"{id}: {why}"
        raise GreenletExit

    # The worker is its own clock.

    def epoch_ms(self) -> int:
        return round((START_EPOCH_SECONDS + self.now + self.local + self.wall) * 1000)

    def monotonic_seconds(self) -> float:
        return self.now + self.local

    def sleep(self, seconds: float) -> None:
        """Stop until the pause is over. A pause of no length cannot be told from a call that is not sent yet."""
        if seconds > 0:
            self.ask("sleep")
            self.local += seconds

    def fraction(self) -> float:
        return 0.0

    def versions(self, count: int) -> Sequence[str]:
        before, self._drawn = self._drawn, self._drawn + count
        return [f"{ME}-{number}" for number in range(before + 1, self._drawn + 1)]
