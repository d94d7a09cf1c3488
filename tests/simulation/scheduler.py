"""The moves that are possible next in the explored world.

These cost no fault:
- A worker starts.
- A statement is applied; after a call's last statement, the call's answer is delivered.
- A handler returns, or a pause ends.
- The coordinating thread wakes, or its short wait is over.
- A worker outside Lambda renews its leases.
- Time passes to the next moment that matters, which kills the workers that are past their deadlines. Outside Lambda it
  kills those whose timers fire, and no fault prevents that.
- TTL deletes a record that has expired.
- A request arrives late, after its worker has died or given up on it.
- An execution writes its outcome, and then ends.

These cost a fault:
- A worker crashes, or outlives its deadline.
- An answer is lost, whether its request was applied, will be, or never is; or it is so slow that time may pass first.
- A worker without claims, which soon gives up, gets no answer to this write nor to any call that follows.
- A statement is throttled, or the store cannot say whether it was applied.
- The client sends a request twice, or the network delivers it again.
- A handler raises, with or without PermanentError; or a condition of its transaction fails.
- A wall clock is off from the start, or steps.
- Somebody stops an execution.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from idempotent_receiver.testing.world import START_EPOCH_SECONDS
from tests.simulation import step_functions_model
from tests.simulation.adapters import BUDGET_SECONDS, EXECUTION_SECONDS
from tests.simulation.invariants import Violation
from tests.simulation.state import ON_THE_WAY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.setups import Setup
    from tests.simulation.state import State
    from tests.simulation.worker_state import WorkerState

Move = tuple[Any, ...]

FAULT_KINDS = frozenset(
    {
        "crash",
        "clock_step",
        "lose",
        "cut_off",
        "slow",
        "throttle",
        "applied_unknown",
        "unapplied_unknown",
        "copy",
        "resend",
        "raise",
        "refuse",
        "cancel",
        "abort",
    }
)
WRITES = ("insert", "replace", "commit")
TOLD = ("send", "post", "put", "get")
"""Calls whose client raises if it gets no answer."""
TOO_LATE = 9.8
STOPS = (9.1, TOO_LATE, 10.3)
"""Moments of an invocation: within the stop margin, too late to settle, and past the deadline."""
STOPS_SENDING = 9.6
"""Too late to wait for SQS, and not too late to record what it has confirmed."""
RENEWED_BEFORE_SECONDS = 1.0
"""A third of a lease after its writing, leases are renewed: so long before the timer fires."""
SHORT_WAIT_SECONDS = 0.1
CLOCK_OFF_SECONDS = 1.4
"""Two clocks with this error, in opposite directions, still differ by less than the lease margin."""


def possible_moves(state: State) -> Iterator[Move]:
    """All possible moves, always in the same order, those without a fault first."""
    if state.clock_stepped is not None:
        yield from _moves_after_clock_step(state)
        return
    live = [worker for worker in state.workers if worker.live]
    not_started = _startable(state)
    moment = next_moment(state)
    for worker in live:
        yield from moves_of_worker(worker, state.now)
    for name in not_started:
        yield ("start", name, 0.0)
    if moment is not None:
        yield ("time", False)
    for place in range(len(state.wire)):
        yield ("arrive", place)
    yield from step_functions_model.moves_of(state.executions)
    if state.setup.retention_seconds:
        yield from (("delete", id) for id, item in state.items.items() if item["expiration"] * 1000 <= state.now_ms)
    if state.faults:
        yield from (("abort", name) for name in step_functions_model.running(state.executions))
        yield from (("start", name, off) for name in not_started for off in (-CLOCK_OFF_SECONDS, CLOCK_OFF_SECONDS))
        if moment is not None and not state.setup.renewals and dying(state, moment):
            yield ("time", True)
        for worker in live:
            yield from _faults_of(worker, state.now, state.setup)


def _startable(state: State) -> list[str]:
    """The next worker, as they are alike; of what is redriven, whenever there is a dead letter."""
    waiting = [worker for worker in state.workers if worker.history is None]
    plain = [worker.name for worker in waiting if not worker.unreceived][:1]
    return plain + [worker.name for worker in waiting if worker.unreceived and state.dead_lettered]


def moves_of_worker(worker: WorkerState, now: float) -> Iterator[Move]:
    for number, call, answers in worker.waits():
        if call.kind == "run":
            yield ("return", worker.name, number)
        elif call.kind == "sleep":
            yield ("slept", worker.name, number)
        elif ON_THE_WAY not in answers:
            yield ("answer", worker.name, number)
        else:
            yield from (("apply", worker.name, number, place) for place, one in enumerate(answers) if one is ON_THE_WAY)
    history = worker.history
    assert history is not None
    if history.woken or overdue(worker, now):
        yield ("wake", worker.name)
    elif history.timeout is not None and history.timeout - worker.since(now) - history.local < SHORT_WAIT_SECONDS:
        yield ("timer", worker.name)
    if history.may_renew:
        yield ("renew", worker.name)


def first_move_of(worker: WorkerState, now: float) -> Move:
    """The move of a worker that is alone and meets no fault. Raises Violation if there is none."""
    for move in moves_of_worker(worker, now):
        return move
    raise Violation("I6", f"{worker.name} waits for ever")


def _moves_after_clock_step(state: State) -> Iterator[Move]:
    """The moves that resume the worker whose clock has stepped. Nobody else sees the step, so nothing comes between."""
    for worker in state.workers:
        if worker.name == state.clock_stepped:
            yield from (move for move in moves_of_worker(worker, state.now) if _resumes(worker, move))
            if state.faults:
                faults = _faults_of(worker, state.now, state.setup)
                yield from (move for move in faults if _resumes(worker, move))


def _resumes(worker: WorkerState, move: Move) -> bool:
    """Whether the worker runs on with this move."""
    kind, _, *where = move
    if kind in ("crash", "clock_step", "slow", "copy", "resend"):
        return False
    if kind not in ("apply", "throttle", "applied_unknown", "unapplied_unknown", "cancel"):
        return True
    number = where[0]
    answers = dict(worker.answers)[number]
    return number not in worker.slow and sum(answer is ON_THE_WAY for answer in answers) == 1


def _faults_of(worker: WorkerState, now: float, setup: Setup) -> Iterator[Move]:
    yield ("crash", worker.name)
    if worker.wall == 0 and any(_resumes(worker, move) for move in moves_of_worker(worker, now)):
        yield ("clock_step", worker.name)
    for number, call, answers in worker.waits():
        if call.kind == "run":
            yield ("raise", worker.name, number)
            if setup.refuses:
                yield ("refuse", worker.name, number)
            continue
        if call.kind == "sleep":
            continue
        yield ("lose", worker.name, number)
        if worker.receives in setup.unclaimed and call.kind in WRITES:
            yield ("cut_off", worker.name, number)
        if number not in worker.slow:
            yield ("slow", worker.name, number)
        for place in [place for place, answer in enumerate(answers) if answer is ON_THE_WAY]:
            for kind in _faults_of_statement(call.kind, alone=len(answers) == 1):
                yield (kind, worker.name, number, place)


def _faults_of_statement(kind: str, *, alone: bool) -> tuple[str, ...]:
    if kind in ("read", "fetch", "describe"):
        return () if alone else ("unapplied_unknown",)
    if kind in TOLD:
        return ("applied_unknown", *["throttle"] * (kind == "post")) if kind != "get" else ()
    cancel = ("cancel",) if kind == "commit" else ()
    return ("throttle", "applied_unknown", "copy", "resend", *cancel, *(() if alone else ("unapplied_unknown",)))


def next_moment(state: State) -> float | None:
    """The next moment at which time alone changes what is possible.

    None if no worker is left, or while a worker waits for an answer that is not slow: that answer comes first.
    """
    awake = [worker for worker in state.workers if worker.live and not worker.overran]
    if any(_busy(worker, state.now) for worker in awake) or state.over:
        return None
    stops = (*STOPS, STOPS_SENDING) if state.setup.sends else STOPS
    moments = [round(worker.started + stop, 3) for worker in awake for stop in stops]
    for worker in awake:
        if (killed_at := _killed_at(worker)) is not None:
            moments += [round(worker.started + killed_at - before, 3) for before in (RENEWED_BEFORE_SECONDS, 0)]
    off = (0.1, CLOCK_OFF_SECONDS + 0.1) if state.faults or any(worker.wall for worker in state.workers) else (0.1,)
    for item in state.items.values():
        if item["status"] in ("INPROGRESS", "SENDING") and item.get("owner") is not None:
            ends = item["in_progress_expiration"] / 1000 - START_EPOCH_SECONDS
            moments += [round(ends + more, 3) for more in off]
    if state.setup.retention_seconds:
        expirations = {item["expiration"] for item in state.items.values()} | {result[3] for result in state.results}
        moments += [round(at - START_EPOCH_SECONDS + more, 3) for at in expirations for more in (*off, 4.0)]
    moments += [
        state.executions[name].began + EXECUTION_SECONDS for name in step_functions_model.running(state.executions)
    ]
    return min((moment for moment in moments if moment > state.now), default=None)


def _busy(worker: WorkerState, now: float) -> bool:
    """Whether the worker can run on, or waits for an answer that is not slow."""
    history = worker.history
    assert history is not None
    waiting = any(
        call.kind not in ("run", "sleep") and number not in worker.slow for number, call in history.calls.items()
    )
    return waiting or history.woken or overdue(worker, now)


def overdue(worker: WorkerState, now: float) -> bool:
    history = worker.history
    return history is not None and history.timeout is not None and history.timeout <= worker.since(now) + history.local


def dying(state: State, moment: float) -> list[WorkerState]:
    live = [worker for worker in state.workers if worker.live and not worker.overran]
    return [worker for worker in live if worker.since(moment) > BUDGET_SECONDS or _killed(worker, moment)]


def _killed(worker: WorkerState, moment: float) -> bool:
    killed_at = _killed_at(worker)
    return killed_at is not None and worker.since(moment) >= round(killed_at, 3)


def _killed_at(worker: WorkerState) -> float | None:
    return None if worker.history is None else worker.history.killed_at
