"""One trial: a consumer plays one schedule in a world of its own, from the same tables each time."""

import json
import threading
from collections import Counter
from collections.abc import Coroutine, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from inspect import CORO_CLOSED, CORO_CREATED, getcoroutinestate
from typing import Any, Protocol

from idempotent_receiver.clock import SystemClock
from idempotent_receiver.handler.attempt import current_attempt
from idempotent_receiver.testing import schedule as options
from idempotent_receiver.testing.calls import Call, watched_by
from idempotent_receiver.testing.memory import Item, MemoryStore
from idempotent_receiver.testing.network import ROUND_TRIP_SECONDS, Network
from idempotent_receiver.testing.schedule import Decisions, Schedule
from idempotent_receiver.testing.setup import Setup, received
from idempotent_receiver.testing.stuck import Stuck, goes_on
from idempotent_receiver.testing.varying import parsed
from idempotent_receiver.testing.virtual_loop import in_a_real_loop
from idempotent_receiver.testing.worker import Worker
from idempotent_receiver.testing.world import START_EPOCH_SECONDS, World

NEXT_WORKER_SECONDS = 0.5
MOST_REFUSALS = 30
"""How often at most a call is refused for one message: a handler may repeat it for as long as it is."""
MOST_RECEIVES = 3
"""How often a message is received before it is redriven, and again after that."""


class Workers(Protocol):
    """Those who play it."""

    def worker(self, number: int) -> Worker:
        """The worker with that number, from 0."""

    def named(self, name: str) -> Worker | None:
        """The worker of that name."""


@dataclass
class Trial:
    """What has happened so far. `alone` is the undisturbed course: one worker, each message once. Where it is played
    `slowly`, a second of real time begins before a message comes again.
    """

    setup: Setup
    cast: Workers
    schedule: Schedule
    alone: bool = False
    slowly: bool = False
    story: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    ends: dict[str, str] = field(default_factory=dict)
    """How each message ended, by its messageId: completed, a dead letter, or failed for good."""
    early: list[str] = field(default_factory=list)
    """The messages that were acknowledged although they were neither."""
    refused: list[Call] = field(default_factory=list)
    """The calls that were refused, without an effect."""
    unawaited: list[Call] = field(default_factory=list)
    """The calls whose coroutines had not ended when their handler returned."""
    faked: set[tuple[str, str]] = field(default_factory=set)
    """The tables and containers of the state that fakes have changed, where the trial is the undisturbed course."""
    repeated: set[str] = field(default_factory=set)
    """The fakes that were called again for a message by another worker, with a key."""
    why: dict[str, str] = field(default_factory=dict)
    """What the last failure of a message was, by its messageId."""
    touched: bool = False
    """Whether the handler has written to a table or to the state, or called a fake."""
    handled: int = 0
    """How often the handler was started."""
    tables: dict[str, list[Item]] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)
    """What the handler returned for each message that is done, by its messageId."""

    def __post_init__(self) -> None:
        self.world = World()
        self.memory: MemoryStore = self.setup.new_store()
        self.decisions = Decisions(self.schedule, quiet=self.alone)
        self.network = Network(self.world, self.decisions, self.story)
        self._choose = self.decisions.choose
        self._workers = 0
        self._interrupt: KeyboardInterrupt | None = None
        self._thread = threading.get_ident()
        self._callers: dict[tuple[str, str | None], str] = {}
        self._failing: set[str] = set()
        self._promises: list[tuple[Call, str, Coroutine[Any, Any, Any]]] = []
        self._refusing: Counter[tuple[str, str | None]] = Counter()
        """How often each fake still refuses each message's calls."""
        self._redriven = False

    def play(self) -> None:
        """Play it to its end."""
        before = self._observed()
        with watched_by(self):
            try:
                if self.alone:
                    self._deliver_one_by_one()
                else:
                    self._deliver_first()
                    self._deliver_again(self.setup.records, MOST_RECEIVES)
                copies = self._redrive()
                self.network.arrive(everything=True)
                self.decisions.quiet = True
                self._deliver_again(copies, MOST_RECEIVES)
                if not self.alone:
                    self._deliver_copies()
                self._end_failed()
                self.tables, self.state = self._observed()
                self.touched = self.touched or bool(self.calls) or (self.tables, self.state) != before
                self.results = {id: parsed(self._item(id).get("data")) for id in self.setup.record_ids}
            finally:
                self.world.end()
                for *_, promise in self._promises:
                    if getcoroutinestate(promise) == CORO_CREATED:
                        promise.close()
        if self._interrupt is not None:
            raise self._interrupt

    def _deliver_one_by_one(self) -> None:
        """Each message in an invocation of its own, once the one before has ended: in a batch they may overlap."""
        for record in self.setup.records:
            self._deliver([record], 1)
            self.world.run()
            self._deliver_again([record], MOST_RECEIVES)

    def _deliver_first(self) -> None:
        """To all workers at once, or to each its own."""
        records = self.setup.records
        parts = [(records, receive) for receive in range(1, self.setup.workers + 1)]
        dealt = self.setup.dealt()
        if len(dealt) > 1 and self._choose("delivery", "the delivery", (options.DEALT,)) is not None:
            parts = [(part, 1) for part in dealt]
        for number, (part, receive) in enumerate(parts):
            self._deliver(part, receive, after=number * NEXT_WORKER_SECONDS)
        self.world.run()

    def _deliver_again(self, records: Sequence[Item], receives: int) -> None:
        for receive in range(2, receives + 1):
            left = [record for record in records if self._name(record) not in self.ends]
            if not left:
                return
            self._end_leases()
            self._deliver(left, receive + self.setup.workers - 1)
            self.world.run()

    def _redrive(self) -> list[Item]:
        """Send what has failed for good back under its key, as `receiver dlq redrive` does. Returns what was sent."""
        ended = {id for id, end in self.ends.items() if end == "completed"}
        failed = [record for record in self.setup.records if self._name(record) not in ended]
        copies = [self.setup.redriven(record) for record in failed]
        self._failing, self._redriven = set(), True
        self._refusing.clear()
        for record in failed:
            self.story.append(f"{record['messageId']} failed for good, and is redriven under its key")
            self.ends.pop(record["messageId"], None)
            self.network.dead_letters.discard(record["messageId"])
        if copies:
            self._end_leases()
            self._deliver(copies, 1)
            self.world.run()
        return copies

    def _deliver_copies(self) -> None:
        """Once more, with the same messageIds and with new ones: what is done stays done."""
        done = [record for record in self.setup.records if self.ends.get(record["messageId"]) == "completed"]
        if done:
            told = len(self.story)
            self._end_leases()
            self._deliver([*done, *map(self.setup.redriven, done)], MOST_RECEIVES + 1)
            self.world.run()
            if not any("runs the handler" in line for line in self.story[told:]):
                del self.story[told:]

    def _end_failed(self) -> None:
        """What has failed for good, and was not sent to a dead-letter queue by us, SQS moves there."""
        for id in self.setup.record_ids:
            error = self._item(id).get("error")
            if error is not None and json.loads(error).get("permanent"):
                self.ends.setdefault(id, "failed for good")

    def _deliver(self, records: Sequence[Item], receive: int, after: float = 0.0) -> None:
        if self._interrupt is not None:
            return
        worker = self.cast.worker(self._workers)
        self._workers += 1
        worker.begin(self.world)
        self.network.under_way.add(worker.name)
        worker.deliver(*(received(record, receive) for record in records), after=after, seconds=self.setup.seconds)

    def _end_leases(self) -> None:
        if self.slowly:
            self.slowly = False  # once is enough
            clock = SystemClock()
            clock.sleep(1.001 - clock.epoch_ms() % 1000 / 1000)
        leases = {id: item.get("in_progress_expiration", 0) / 1000 for id, item in self.memory.items.items()}
        live = [id for id, end in leases.items() if end - START_EPOCH_SECONDS > self.world.now]
        if any(self.memory.items[id]["status"] == "INPROGRESS" for id in live):
            self.story.append("the lease ends")
        self.world.now = max([self.world.now, *(end - START_EPOCH_SECONDS for end in leases.values())]) + 1

    def received(self, worker: Worker, records: Sequence[Item]) -> None:
        """A worker was invoked."""
        self.story.append(f"worker {worker.name} receives {_listed([record['messageId'] for record in records])}")

    def answered(self, worker: Worker, records: Sequence[Item], answer: list[str] | Exception) -> None:
        """A worker has answered: what it did not name is deleted."""
        self.network.under_way.discard(worker.name)
        if isinstance(answer, Exception):
            self.story.append(f"{worker.name} raises {answer!r}")
            return
        done = [record for record in records if record["messageId"] not in answer]
        for record in done:
            id = self._name(record)
            item = self._item(id)
            if id in self.network.dead_letters:
                self.ends.setdefault(id, "dead letter")
            else:
                self.ends[id] = "completed"
                if item.get("status") != "COMPLETED":
                    self.early.append(id)
        if done:
            self.story.append(f"{worker.name} acknowledges {_listed([record['messageId'] for record in done])}")
        else:
            self.story.append(f"{worker.name} leaves {_listed(answer)} to be delivered again")

    def _observed(self) -> tuple[dict[str, list[Item]], dict[str, Any]]:
        """The tables and the state, as they are now."""
        tables = {name: deepcopy([*one.items.values()]) for name, one in self.memory.tables.items()}
        return tables, self.setup.snapshot()

    def _item(self, id: str) -> Item:
        """The record of a messageId, or nothing."""
        return self.memory.items.get(self.setup.record_ids[id] or "", {})

    def failed(self, id: str, why: str) -> None:
        """A message has failed."""
        self.why[self.setup.originals.get(id, id)] = why

    def _name(self, record: Item) -> str:
        """The messageId under which it was first delivered."""
        id: str = record["messageId"]
        return self.setup.originals.get(id, id)

    def timed_out(self, worker: Worker) -> None:
        """Lambda has killed a worker at its deadline."""
        self.network.gone(worker)
        self.story.append(f"{worker.name} is killed at its deadline")

    def started(self, worker: Worker) -> None:
        """The handler starts."""
        goes_on()
        self._require_live()
        self.handled += 1
        key, attempt = _running()
        running = self.network.running
        others = [name for (name, same), count in running.items() if count and same == key and name != worker.name]
        running[worker.name, key] += 1
        again = f", attempt {attempt}" if attempt > 1 else ""
        beside = f", while {' and '.join(others)} runs it, too: nothing claims it" if others else ""
        self.story.append(f"{worker.name} runs the handler for {key}{again}{beside}")

    def raised(self, worker: Worker, error: BaseException) -> None:
        """It has raised."""
        self.network.running[worker.name, _running()[0]] -= 1
        if isinstance(error, KeyboardInterrupt):
            self._interrupt = error  # somebody wants all of this to end, not only a message
        if not self.world.ended:
            what = "does not go on" if isinstance(error, Stuck) else f"raises {error!r:.100}"
            self.story.append(f"the handler of {worker.name} {what}")

    def returned(self, worker: Worker) -> None:
        """It returns, or raises after all."""
        key, _ = _running()
        self.network.running[worker.name, key] -= 1
        for call, name, promise in self._promises:
            if (name, call.message) == (worker.name, key) and getcoroutinestate(promise) != CORO_CLOSED:
                self.unawaited.append(call)
        how = " again"
        if key not in self._failing:
            offered = options.RAISES if self._redriven else options.HANDLER
            chosen = self._choose("handler", f"{worker.name} returns", offered)
            if chosen is None:
                return
            how = " each time" if chosen == "fails" else ""
            self._failing |= {key} if chosen == "fails" else set()
        self.story.append(f"the handler of {worker.name} has done its work, and then raises{how}")
        raise RuntimeError("explore: the handler fails at its end")

    def promised(self, call: Call, promise: Coroutine[Any, Any, Any]) -> None:
        """A fake has made a coroutine."""
        worker = self._caller()
        if worker is not None:
            self.touched = True
            self._promises.append((call, worker.name, promise))

    def before(self, call: Call) -> float:
        """A fake is to be called."""
        goes_on()
        self._require_live()
        worker = self._caller()
        if worker is None:
            return 0.0
        chosen = self._choose(f"before {call.name}", f"{worker.name} calls {call.name}", self.network.offered())
        seconds = ROUND_TRIP_SECONDS
        if chosen is not None:
            self.story.append(f"{worker.name} waits before it calls {call.name}, so others go first")
            seconds = self.decisions.delay()
        if not in_a_real_loop():
            return seconds
        self.world.sleep(seconds)  # to await it would take real time, and nobody would go first
        return 0.0

    def sleep(self, seconds: float) -> None:
        """Let the others go on."""
        if seconds:
            self.world.sleep(seconds)

    def arrives(self, call: Call, refuses: BaseException | None) -> None:
        """A fake is called, and may refuse."""
        if self.alone:
            self._before_call = self._observed()
        worker = self._caller()
        if refuses is None or worker is None:
            return
        whose = (call.name, call.message)
        if not self._refusing[whose]:
            offered = options.REFUSED if self._redriven else options.REFUSABLE_CALL
            chosen = self._choose(f"call {call.name}", f"{worker.name} reaches {call.name}", offered)
            if chosen is None:
                return
            self._refusing[whose] = 1 if chosen in options.REFUSED else MOST_REFUSALS
        self._refusing[whose] -= 1
        self.refused.append(call)
        self.story.append(f"{worker.name} calls {call}, which refuses: {refuses!r}")
        raise refuses

    def after(self, call: Call, raises: BaseException | None) -> None:
        """A fake was called."""
        self.calls.append(call)
        if self.alone:
            for kind, before, now in zip(("table", "state"), self._before_call, self._observed(), strict=True):
                self.faked |= {(kind, name) for name in now if now[name] != before.get(name)}
        worker = self._caller()
        self.story.append(f"{worker.name if worker else 'a thread of the handler'} calls {call}")
        if worker is None:
            return
        if call.key is not None and self._callers.setdefault((call.name, call.message), worker.name) != worker.name:
            self.repeated.add(call.name)
        offered = options.CALL if raises is None else options.ANSWERED_CALL
        match self._choose(f"call {call.name}", f"{worker.name} has called {call.name}", offered):
            case "crash-after":
                self.network.crash(worker, f"{worker.name} crashes")
            case "lost":
                assert raises is not None, "it was offered"
                self.story.append(f"{worker.name} does not get the answer: {raises!r}")
                raise raises

    def _caller(self) -> Worker | None:
        """The worker whose handler calls; None in a thread that the handler has started."""
        attempt = current_attempt.get()
        if attempt is None or threading.get_ident() != self._thread:
            return None
        return self.cast.named(attempt.owner)

    def _require_live(self) -> None:
        """Whatever a handler still does on its way out of a trial that is over counts for nothing."""
        if self.world.ended:
            self.world.leave()


def _running() -> tuple[str, int]:
    """The key that the handler that calls this runs for, and which attempt it is."""
    attempt = current_attempt.get()
    assert attempt is not None, "a handler runs for a message"
    return attempt.key, attempt.attempt


def _listed(ids: Sequence[str]) -> str:
    shown = list(dict.fromkeys(ids))
    return ", ".join(shown[:3]) + (f" and {len(shown) - 3} more" if len(shown) > 3 else "")
