"""One worker's process, held at every call until somebody says how the call ends.

The shipped code runs here, unmodified, on greenlets: each call of the store or of the queue, each run of a handler
and each wait of the coordinating thread stands still until it is told how it ends. Nothing else decides what happens
next, so a worker is a function of what it has been told: its history. Greenlets cannot be copied, so a worker comes
to a history by being told all of it from the start.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from greenlet import GreenletExit, getcurrent, greenlet

from tests.simulation.ways import ME, WAYS, Reply, Told
from tests.simulation.world import START_EPOCH_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


FIRST, AGAIN, LAST, SWEEP = 1, 2, 3, 4
"""Which receive of its messages a worker is: the last one comes after all faults, and of a workflow a sweep too."""


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
    way: str = "queue"
    """The way in: one of `ways.WAYS`."""
    sweeps: int = 0
    """Of a workflow: how many of the workers, the last ones, are sweeps."""
    replay: bool = False
    """Over HTTP: whether a handler's exception is the last word."""
    wait_seconds: float = 0
    """Over HTTP: how long a request waits for another one."""
    faults: int = 2
    """How many a schedule may have at most, where nobody says otherwise."""

    @property
    def failures(self) -> bool:
        """Whether failures are answers, and so the last word."""
        return self.replay or self.way == "workflow"

    def receives(self, number: int) -> int:
        """Which receive of its messages the worker of this number is."""
        if number >= self.workers - self.sweeps:
            return SWEEP
        return AGAIN if number else FIRST

    @property
    def refuses(self) -> bool:
        """Whether a handler may refuse: for good where there are dead letters, and over HTTP for now."""
        return self.letters or self.way == "http"

    @property
    def batch(self) -> list[str]:
        """The messages' ids, which are their records' too."""
        return [f"{WAYS[self.way].prefix}{number}" for number in range(self.messages)]


@dataclass(frozen=True, slots=True)
class Call:
    """What a worker waits for: a store call and its statements, a dead letter (`send`), an execution's `start` or
    `describe`, a handler (`run`), or that some time has passed (`sleep`).
    """

    kind: str
    parts: tuple[Any, ...]
    sent: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)
    """What its statements are to the world, for whoever wants to know that again."""


Event = tuple[Any, ...]
"""What a worker is told: a kind, the true time, how far off its wall clock is, and for an answer which call and what.

`start`, `wake` (the coordinating thread takes in what has finished), `timer` (its wait is over) or `answer`.
"""


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
    replies: dict[str, Reply | Told] = field(default_factory=dict)
    """Over HTTP, and of a workflow: what was answered."""
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

    @property
    def sweeps(self) -> bool:
        """Of a workflow: whether it is a sweep."""
        return self.receives == SWEEP

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

    def _invoke(self) -> None:
        try:
            self.response = WAYS[self.setup.way].invoke(self)
        except GreenletExit:
            raise
        except BaseException as error:  # noqa: BLE001  # judged by whoever looks at the answer
            self.response = error

    # The clock.

    def epoch_ms(self) -> int:
        return round((START_EPOCH_SECONDS + self.now + self.local + self.wall) * 1000)

    def monotonic_seconds(self) -> float:
        return self.now + self.local

    def sleep(self, seconds: float) -> None:
        """Let the world say when it is over. A pause of no length looks to the others like a call not yet sent."""
        if seconds > 0:
            self.ask("sleep")
            self.local += seconds

    def fraction(self) -> float:
        return 0.0

    def versions(self, count: int) -> Sequence[str]:
        before, self._drawn = self._drawn, self._drawn + count
        return [f"{ME}-{number}" for number in range(before + 1, self._drawn + 1)]
