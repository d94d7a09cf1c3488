"""The network between workers and their store and queue: applies the schedule's decision to each request."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from idempotent_receiver.protocol.store import ActionFailed, Conflict, NotApplied, Unknown
from idempotent_receiver.testing import schedule as options
from idempotent_receiver.testing.schedule import Decisions
from idempotent_receiver.testing.worker import Worker
from idempotent_receiver.testing.world import World

ROUND_TRIP_SECONDS = 0.001
UNKNOWN = Unknown("the answer was lost")
THROTTLED = NotApplied("throttled", retry=True)

RequestEffect = Callable[[], Sequence[Any]]


@dataclass
class LateWrite:
    """A write in transit: how many requests until it arrives, its worker, its description and its effect."""

    after: int
    worker: str
    what: str
    effect: RequestEffect


@dataclass
class Network:
    """One run's requests. `story` records what happens. Each `what` completes a sentence: `claims order-1`."""

    world: World
    decisions: Decisions
    story: list[str]
    under_way: set[str] = field(default_factory=set)
    """Workers that were or will soon be invoked, and have neither answered nor died."""
    round_trip_seconds: float = ROUND_TRIP_SECONDS
    running: Counter[tuple[str, str]] = field(default_factory=Counter)
    """The number of running handlers, by worker and key."""
    dead_letters: set[str] = field(default_factory=set)
    """The messageIds sent to the dead-letter queue."""

    def __post_init__(self) -> None:
        self._late: list[LateWrite] = []

    def offered(self, *offered: str) -> Sequence[str]:
        """The options in `offered`, plus `slow` if another worker could go first."""
        others = len(self.under_way) > 1 or self.running.total() > 1
        return (*offered, options.SLOW) if others else offered

    def crash(self, worker: Worker, how: str) -> None:
        """Kill the calling worker."""
        self.story.append(how)
        self.gone(worker)
        worker.kill()
        self.world.stop()

    def gone(self, worker: Worker) -> None:
        """Note that the worker has died."""
        self.under_way.discard(worker.name)
        self.running = Counter({who: count for who, count in self.running.items() if who[0] != worker.name})

    def write(self, worker: Worker, kind: str, what: str, count: int, effect: RequestEffect) -> Sequence[Any]:
        """Send a write."""
        chosen = self._request(worker, kind, what, options.WRITE)
        name = worker.name
        match chosen:
            case "crash-before":
                self.crash(worker, f"{name} crashes before it {what}")
            case "crash-after":
                self._tell(name, what, effect())
                self.crash(worker, f"{name} crashes before the answer arrives")
            case "lost":
                self._tell(name, what, effect())
                self.story.append(f"{name} does not get the answer")
                return [UNKNOWN] * count
            case "refused":
                self.story.append(f"{name} {what}: throttled, so nothing is written")
                return [THROTTLED] * count
            case "timeout":
                self.story.append(f"{name} {what}: the request never arrives, and there is no answer")
                return [UNKNOWN] * count
            case str() if "late" in chosen:
                self._late.append(LateWrite(int(chosen.rpartition("-")[2]), name, what, effect))
                if chosen.startswith("crash"):
                    self.crash(worker, f"{name} crashes while its request is in transit: it {what}")
                self.story.append(f"{name} gets no answer, and its request is still in transit: it {what}")
                return [UNKNOWN] * count
        answers = effect()
        self._tell(name, what, answers)
        return answers

    def read(self, worker: Worker, what: str, count: int, effect: RequestEffect) -> Sequence[Any]:
        """Send a consistent read."""
        match self._request(worker, "read", what, options.READ):
            case "crash-before":
                self.crash(worker, f"{worker.name} crashes before it {what}")
            case "timeout":
                self.story.append(f"{worker.name} {what}: there is no answer")
                return [UNKNOWN] * count
        return effect()

    def send(self, worker: Worker, what: str, effect: Callable[[], None]) -> None:
        """Send messages to a queue. Raises ConnectionError if SQS does not confirm."""
        chosen = self.begin(worker, "send", what)
        effect()
        self.end(worker, what, chosen)

    def begin(self, worker: Worker, kind: str, what: str) -> str | None:
        """Begin what a service is asked to do, and return what happens at its end. Raises ConnectionError if the
        service refuses.
        """
        chosen = self._request(worker, kind, what, options.SEND)
        if chosen == "crash-before":
            self.crash(worker, f"{worker.name} crashes before it {what}")
        if chosen == "refused":
            self.story.append(f"{worker.name} {what}: refused")
            raise ConnectionError("refused")
        return chosen

    def end(self, worker: Worker, what: str, chosen: str | None) -> None:
        """End it, now that it has taken effect. Raises ConnectionError if the answer is lost."""
        self.story.append(f"{worker.name} {what}")
        if chosen == "crash-after":
            self.crash(worker, f"{worker.name} crashes before the answer arrives")
        if chosen == "lost":
            self.story.append(f"{worker.name} does not get the answer")
            raise ConnectionError("the answer was lost")

    def _request(self, worker: Worker, kind: str, what: str, offered: Sequence[str]) -> str | None:
        self.world.sleep(self.round_trip_seconds)
        label = f"{worker.name} {what}"
        chosen = self.decisions.choose(kind, label, self.offered(*offered))
        if chosen == options.SLOW:
            self.story.append(f"{label}: slowly, so others go first")
            self.world.sleep(self.decisions.delay())
        self.arrive()
        return chosen

    def arrive(self, *, everything: bool = False) -> None:
        """Deliver the late writes that are due or, with `everything`, all of them."""
        for one in tuple(self._late):
            one.after -= 1
            if one.after <= 0 or everything:
                self._late.remove(one)
                self._tell(f"{one.worker}'s late request arrives and", one.what, one.effect())

    def _tell(self, worker: str, what: str, answers: Sequence[Any]) -> None:
        how = ""
        for answer in answers:
            match answer:
                case Conflict():
                    how = ": refused, because the record has changed"
                case ActionFailed():
                    how = ": refused, because a condition failed"
                case NotApplied(why):
                    how = f": {why}"
        self.story.append(f"{worker} {what}{how}")
