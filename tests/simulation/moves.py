"""What can happen next in the explored world.

Without a fault: a worker starts; a statement is applied, and with a call's last statement its answer is delivered; a
handler returns; the coordinating thread wakes, or its short wait is over; who sleeps wakes up, in time or late; time
passes to the next moment that matters, which kills whoever is past its deadline; a request of a dead worker arrives, or
of one that was told nothing.

Of a workflow, an execution writes its outcome, and then ends.

Each of these costs a fault: a crash; an answer that is lost, whether its request was applied or will yet be, or not;
one that is so slow that time may pass before it; a statement that is throttled, or of which the store cannot say
whether it was applied; a request that the client sends a second time, or that the network delivers again; a handler
that raises, or refuses for good; a clock that is off, or steps; a worker that outlives its deadline; an execution that
somebody stops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation import machines
from tests.simulation.state import ON_THE_WAY
from tests.simulation.ways import BUDGET_SECONDS, EXECUTION_SECONDS
from tests.simulation.world import START_EPOCH_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.state import State, Worker

Move = tuple[Any, ...]

FAULTS = frozenset(
    {"crash", "step", "lose", "slow", "throttle", "unsure", "doubt", "copy", "resend", "raise", "refuse", "abort"}
)
TOO_LATE = 9.8
STOPS = (9.1, TOO_LATE, 10.3)
"""Moments of an invocation: within the stop margin, too late to settle, and dead."""
SHORT_WAIT_SECONDS = 0.1
CLOCK_OFF_SECONDS = 1.4
"""Two clocks that are off by this, to either side, still differ by less than the lease margin."""


def moves(state: State) -> Iterator[Move]:
    """All that can happen next, always in the same order, what costs no fault first."""
    if state.stepped is not None:
        yield from _looks_at_its_clock(state)
        return
    live = [worker for worker in state.workers if worker.live]
    unbegun = [worker.name for worker in state.workers if worker.past is None]
    moment = next_moment(state)
    for worker in live:
        yield from of_worker(worker, state.now)
    if unbegun:
        yield ("start", unbegun[0], 0.0)
    if moment is not None:
        yield ("time", False)
    for place in range(len(state.wire)):
        yield ("arrive", place)
    yield from machines.moves_of(state.executions)
    if state.faults:
        yield from (("abort", name) for name in machines.running(state.executions))
        for off in (-CLOCK_OFF_SECONDS, CLOCK_OFF_SECONDS) if unbegun else ():
            yield ("start", unbegun[0], off)
        if moment is not None and dying(state, moment):
            yield ("time", True)
        for worker in live:
            yield from _faults_of(worker, state.now, refuses=state.setup.refuses)


def of_worker(worker: Worker, now: float) -> Iterator[Move]:
    for number, call, answers in worker.waits():
        if call.kind == "run":
            yield ("return", worker.name, number)
        elif call.kind == "sleep":
            yield ("slept", worker.name, number)
        elif ON_THE_WAY not in answers:
            yield ("answer", worker.name, number)
        else:
            yield from (("apply", worker.name, number, place) for place, one in enumerate(answers) if one is ON_THE_WAY)
    past = worker.past
    assert past is not None
    if past.woken or overdue(worker, now):
        yield ("wake", worker.name)
    elif past.timeout is not None and past.timeout - worker.since(now) - past.local < SHORT_WAIT_SECONDS:
        yield ("timer", worker.name)


def _looks_at_its_clock(state: State) -> Iterator[Move]:
    """What lets a worker whose wall clock has stepped go on: nothing else has to come between, since nobody sees it."""
    for worker in state.workers:
        if worker.name == state.stepped:
            yield from (move for move in of_worker(worker, state.now) if _tells(worker, move))
            if state.faults:
                faults = _faults_of(worker, state.now, refuses=state.setup.refuses)
                yield from (move for move in faults if _tells(worker, move))


def _tells(worker: Worker, move: Move) -> bool:
    """Whether the worker's process goes on with this move."""
    kind, _, *where = move
    if kind in ("crash", "step", "slow", "copy", "resend"):
        return False
    if kind not in ("apply", "throttle", "unsure", "doubt"):
        return True
    number = where[0]
    answers = dict(worker.answers)[number]
    return number not in worker.slow and sum(answer is ON_THE_WAY for answer in answers) == 1


def _faults_of(worker: Worker, now: float, *, refuses: bool) -> Iterator[Move]:
    yield ("crash", worker.name)
    if worker.wall == 0 and any(_tells(worker, move) for move in of_worker(worker, now)):
        yield ("step", worker.name)
    for number, call, answers in worker.waits():
        if call.kind == "run":
            yield ("raise", worker.name, number)
            if refuses:
                yield ("refuse", worker.name, number)
            continue
        if call.kind == "sleep":
            continue
        yield ("lose", worker.name, number)
        if number not in worker.slow:
            yield ("slow", worker.name, number)
        for place in [place for place, answer in enumerate(answers) if answer is ON_THE_WAY]:
            for kind in _faults_of_statement(call.kind, alone=len(answers) == 1):
                yield (kind, worker.name, number, place)


def _faults_of_statement(kind: str, *, alone: bool) -> tuple[str, ...]:
    if kind in ("read", "describe"):
        return () if alone else ("doubt",)
    if kind == "send":
        return ("unsure",)
    return ("throttle", "unsure", "copy", "resend", *(() if alone else ("doubt",)))


def next_moment(state: State) -> float | None:
    """The next moment at which the mere passing of time changes what can happen.

    None where nobody is left to see it, and while somebody waits for an answer that is not slow: that comes first.
    """
    awake = [worker for worker in state.workers if worker.live and not worker.overran]
    if any(_in_a_hurry(worker, state.now) for worker in awake) or all(worker.over for worker in state.workers):
        return None
    moments = [round(worker.started + stop, 3) for worker in awake for stop in STOPS]
    off = (0.1, CLOCK_OFF_SECONDS + 0.1) if state.faults or any(worker.wall for worker in state.workers) else (0.1,)
    for item in state.items.values():
        if item["status"] == "INPROGRESS" and item.get("owner") is not None:
            ends = item["in_progress_expiration"] / 1000 - START_EPOCH_SECONDS
            moments += [round(ends + more, 3) for more in off]
    moments += [state.executions[name].began + EXECUTION_SECONDS for name in machines.running(state.executions)]
    return min((moment for moment in moments if moment > state.now), default=None)


def _in_a_hurry(worker: Worker, now: float) -> bool:
    """Whether the worker has something to do, or waits for an answer that comes at once."""
    past = worker.past
    assert past is not None
    busy = any(call.kind not in ("run", "sleep") and number not in worker.slow for number, call in past.calls.items())
    return busy or past.woken or overdue(worker, now)


def overdue(worker: Worker, now: float) -> bool:
    past = worker.past
    return past is not None and past.timeout is not None and past.timeout <= worker.since(now) + past.local


def dying(state: State, moment: float) -> list[Worker]:
    """The workers that are past their deadline at that moment."""
    live = [worker for worker in state.workers if worker.live and not worker.overran]
    return [worker for worker in live if worker.since(moment) > BUDGET_SECONDS]
