"""Faults between a worker and its store, at calls that a test chooses.

A fault is a function of the call that it affects. It may let the call take effect, before or long after the worker gets
its answer, and returns that answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from idempotent_receiver.protocol.store import Conflict, NotApplied, Unknown
from tests.simulation.store_calls import StoreCalls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from idempotent_receiver.protocol.store import TransactionalStore
    from idempotent_receiver.testing.world import World
    from idempotent_receiver.transaction.reads import PlainItem


@dataclass(frozen=True)
class Call:
    """One call of a store: its name, the number of its records, and the function that applies it."""

    name: str
    size: int
    act: Callable[[], Any]
    world: World


Fault = Callable[[Call], Any]
"""Returns the answer of the call that it affects."""


class FaultyStore(StoreCalls):
    """A store behind a network. It records its calls, and they meet the faults that a test has queued, in order."""

    def __init__(self, store: TransactionalStore, world: World, round_trip_seconds: float = 0.005) -> None:
        self.namespace = store.namespace
        self.store = store
        self.world = world
        self.half = round_trip_seconds / 2
        self.calls: list[tuple[str, int]] = []
        self._faults: dict[str, list[Fault]] = {}
        self._down: Callable[[str], bool] = lambda name: False

    def next(self, name: str, *faults: Fault) -> None:
        """The next calls of this name meet these faults, one each."""
        self._faults.setdefault(name, []).extend(faults)

    def mended(self) -> None:
        self._faults.clear()

    def down(self, *names: str) -> None:
        """From now on calls of these names (of all, if none is given) are lost, with an unknown result."""
        self._down = lambda name: not names or name in names

    def up(self) -> None:
        self._down = lambda name: False

    def get(self, table: str, key: PlainItem) -> PlainItem | Unknown | None:
        return self.store.get(table, key)

    def send(self, kind: str, parts: Sequence[Any]) -> Any:
        self.calls.append((kind, len(parts)))
        self.world.sleep(self.half)
        answer = self._answer(Call(kind, len(parts), lambda: getattr(self.store, kind)(parts), self.world))
        self.world.sleep(self.half)
        return answer

    def _answer(self, call: Call) -> Any:
        if self._down(call.name):
            return lost_request(call)
        faults = self._faults.get(call.name)
        return faults.pop(0)(call) if faults else call.act()


def each(call: Call, answer: object) -> Any:
    return [answer] * call.size


def works(call: Call) -> Any:
    return call.act()


def lost_answer(call: Call) -> Any:
    """The call takes effect, but its answer is lost."""
    call.act()
    return each(call, Unknown("the answer was lost"))


def lost_request(call: Call) -> Any:
    """The call is lost, and its result is unknown."""
    return each(call, Unknown("the request was lost"))


def throttled(call: Call) -> Any:
    """Every record is throttled."""
    return each(call, Unknown("throttled") if call.name == "read" else NotApplied("throttled", retry=True))


def denied(call: Call) -> Any:
    """Every record is denied for good."""
    return each(call, NotApplied("access denied", retry=False))


def raises(call: Call) -> Any:
    """The store has a defect and raises; the call has no effect."""
    raise AttributeError("secret")


def raises_late(call: Call) -> Any:
    """The store has a defect and raises after the call has taken effect."""
    call.act()
    raise AttributeError("secret")


def sent_twice(call: Call) -> Any:
    """The answer is lost, and the client resends: the second request meets the effect of the first."""
    call.act()
    return [Conflict(None) if isinstance(one, Conflict) else one for one in call.act()]


def delivered_later(seconds: float, then: Fault = lost_request) -> Fault:
    """The request arrives that much later, whatever has happened in the meantime."""

    def fault(call: Call) -> Any:
        call.world.spawn(call.act, after=seconds)
        return then(call)

    return fault


def partly(*applied: bool, otherwise: object) -> Fault:
    """Of a batch, only the records whose `applied` is true are written; the others get the answer `otherwise`."""

    def fault(call: Call) -> Any:
        answers = call.act()
        return [one if ok else otherwise for one, ok in zip(answers, applied, strict=True)]

    return fault


def crash(kill: Callable[[], None], *, applied: bool) -> Fault:
    """The worker dies at this call, before or after it takes effect, and never sees an answer."""

    def fault(call: Call) -> Any:
        if applied:
            call.act()
        kill()
        return call.world.stop()

    return fault
