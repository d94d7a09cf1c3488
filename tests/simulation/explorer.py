"""Plays the moves of the explored world, and checks each against the invariants."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from idempotent_receiver.protocol.store import ActionFailed, Conflict, NotApplied, Unknown
from idempotent_receiver.testing.world import START_EPOCH_SECONDS
from tests.simulation import invariants, oracle, scheduler, step_functions_model
from tests.simulation.explored_clients import CUT_OFF, LOST
from tests.simulation.explored_table import CONFIRMED, ExploredTable
from tests.simulation.history import Histories
from tests.simulation.invariants import Violation
from tests.simulation.setups import LAST, REDRIVEN, SWEEP
from tests.simulation.state import ON_THE_WAY, State, WireRequest
from tests.simulation.worker_state import WorkerState

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.simulation.controlled_worker import Call, Event
    from tests.simulation.history import History
    from tests.simulation.scheduler import Move
    from tests.simulation.setups import Setup

STEP_SECONDS = 3600.0
THROTTLED = NotApplied("throttled", retry=True)
NOBODY_KNOWS = Unknown("nobody knows")
CANCELLED = ActionFailed(0)
LAST_WORKER = "q"
"""The name of the worker that gets the last delivery."""


class Explorer:
    """Plays the moves of a setup. Its `histories` cache what the workers do."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.histories = Histories(setup)
        self.table = ExploredTable(setup)

    def initial_state(self, faults: int) -> State:
        workers = [
            WorkerState(f"w{number}", self.setup.receives(number), self.setup.variant(number))
            for number in range(self.setup.workers)
        ]
        return State(self.setup, workers, faults)

    def moves(self, state: State) -> Iterator[Move]:
        return scheduler.possible_moves(state)

    def play(self, before: State, move: Move) -> State:
        """The state after a move. Raises Violation."""
        state = before.copy()
        kind, *where = move
        if kind in scheduler.FAULT_KINDS or (kind == "start" and where[1]) or (kind == "time" and where[0]):
            state.faults -= 1
        if kind in ("wake", "timer", "renew"):
            self._resume(state, state.named(*where), kind)
        else:
            getattr(self, f"_{kind}")(state, *where)
        return state

    def deliver_last(self, before: State) -> None:
        """After all faults and leases, deliver everything once more: it must be acknowledged. Raises Violation.

        A workflow must be reconciled by two sweeps (the first one may only find that an execution has died), or by a
        request and a sweep.
        """
        if self.setup.adapter != "workflow":
            # Once a batch has sent a dead letter, what has crashed waits for a delivery without that message.
            may_leave = self.setup.attempts > 0 and self.setup.messages > 1
            for variant in self.setup.variants:
                before = self._deliver(before, LAST, variant, may_leave=may_leave)
            return
        for last in ((SWEEP, SWEEP), (LAST, SWEEP)):
            state = before
            for receives in last:
                state = self._deliver(state, receives)
            for id in self.setup.batch:
                oracle.reconciled(state, id)

    def _deliver(self, before: State, receives: int, variant: int = 0, *, may_leave: bool = False) -> State:
        state = before.copy()
        leases = [item.get("in_progress_expiration", 0) / 1000 - START_EPOCH_SECONDS for item in state.items.values()]
        state.now = round(max([state.now, *leases]) + 5, 3)
        state.wire, state.faults = (), 0
        state.executions = step_functions_model.timed_out(state.executions, state.now)
        name = f"{LAST_WORKER}{len(state.workers)}"
        state.workers.append(WorkerState(name, receives, variant))
        try:
            self._start(state, name, 0.0)
            state.named(name).contended |= may_leave
            while (worker := state.workers[-1]).live:
                state = self.play(state, scheduler.first_move_of(worker, state.now))
        except Violation as violation:
            raise Violation("I6", f"after all faults, at {state.now} s, {violation}") from None
        return state

    # Moves that cost no fault.

    def _start(self, state: State, name: str, off: float) -> None:
        worker = state.named(name)
        worker.started, worker.wall, worker.off = state.now, off, off
        if worker.receives == REDRIVEN:
            state.dead_lettered = frozenset()
        # A lease that has just expired may still be live by this worker's clock.
        earliest_ms = state.now_ms - scheduler.CLOCK_OFF_SECONDS * 4000
        claimed = any(invariants.live(item, earliest_ms) for item in state.items.values())
        if worker.receives in state.setup.before_sends | state.setup.before_calls:
            # It cannot read what is left to send.
            claimed |= any(item["status"] == "SENDING" for item in state.items.values())
        others = [other for other in state.workers if other.live]
        if not others:
            # What has expired by all clocks may not be replayed any more.
            state.results = frozenset(one for one in state.results if one[3] * 1000 > earliest_ms)
        for other in others:
            other.contended = True
        worker.contended = bool(others) or claimed or bool(state.wire) or oracle.runs_unread(state, worker)
        history = self.histories.started(worker.receives, worker.variant, ("start", 0.0, off))
        self._advance(state, worker, history)

    def _apply(self, state: State, name: str, number: int, place: int) -> None:
        worker = state.named(name)
        call = worker.call(number)
        answer = self.table.apply(state, call.kind, worker.sent(call, place), name)
        if call.kind == "insert" and len(call.parts) > 1 and isinstance(answer, Conflict):
            # For one of several inserts DynamoDB answers `DuplicateItem`, without the record that is there.
            answer = Conflict()
        self._put(state, worker, number, place, answer)

    def _answer(self, state: State, name: str, number: int) -> None:
        worker = state.named(name)
        answers = dict(worker.answers)[number]
        call = worker.call(number)
        if call.kind == "send" and answers == (CONFIRMED,):
            state.dead_lettered |= {call.parts[0]}
        sure = number not in worker.slow and not any(isinstance(answer, (Unknown, NotApplied)) for answer in answers)
        own = tuple(worker.own(answer, state.now) for answer in answers)
        self._resume(state, worker, "answer", number, own, sure=sure)

    def _return(self, state: State, name: str, number: int) -> None:
        worker = state.named(name)
        (id,) = worker.call(number).parts
        state.succeeded |= {(name, id)}
        self._resume(state, worker, "answer", number, ("returns",))

    def _slept(self, state: State, name: str, number: int) -> None:
        self._resume(state, state.named(name), "answer", number, ())

    def _time(self, state: State, overrun: bool) -> None:
        moment = scheduler.next_moment(state)
        assert moment is not None, "nothing changes with time"
        for worker in scheduler.dying(state, moment):
            if overrun:
                worker.overran = True
                continue
            if self.setup.asynchronous and all(call.kind == "run" for _, call, _ in worker.waits()):
                raise Violation("ANSWER", f"{worker.name} waits for a coroutine beyond its deadline")
            self._die(state, worker)
        for worker in [worker for worker in state.workers if worker.live]:
            worker.contended = True
            # A worker that is still at work has run out of time, for its store or for its handler.
            worker.had_fault |= worker.since(moment) >= scheduler.TOO_LATE
        state.now = moment
        state.executions = step_functions_model.timed_out(state.executions, moment)
        for worker in [worker for worker in state.workers if worker.live and not worker.overran]:
            if scheduler.overdue(worker, moment):
                self._resume(state, worker, "wake")

    def _arrive(self, state: State, place: int) -> None:
        request = state.wire[place]
        state.wire = state.wire[:place] + state.wire[place + 1 :]
        self.table.apply(state, request.kind, request.part, request.writer)

    def _delete(self, state: State, id: str) -> None:
        state.items = {other: item for other, item in state.items.items() if other != id}

    def _outcome(self, state: State, name: str, status: str) -> None:
        (id,) = [id for id in self.setup.batch if id.endswith(f"#{name}")]
        change = step_functions_model.outcome_of(name, id, state.items.get(id), status, state.now_ms)
        if change is None:
            shown = invariants.shown(state.items.get(id))
            raise Violation("WORKFLOW", f"the outcome {status} of a running execution is refused: {shown}")
        state.executions = {**state.executions, name: replace(state.executions[name], outcome=status)}
        self.table.apply(state, "replace", change, step_functions_model.MACHINE)

    def _finish(self, state: State, name: str) -> None:
        state.executions = step_functions_model.ended(state.executions, name)

    # Moves that cost a fault.

    def _abort(self, state: State, name: str) -> None:
        state.executions = step_functions_model.ended(state.executions, name, "ABORTED")

    def _crash(self, state: State, name: str) -> None:
        self._die(state, state.named(name))

    def _clock_step(self, state: State, name: str) -> None:
        worker = state.named(name)
        worker.wall += STEP_SECONDS
        # By that clock its deadline is over, so it begins nothing more.
        worker.contended = True
        state.clock_stepped = name

    def _lose(self, state: State, name: str, number: int, lost: Any = None) -> None:
        worker = state.faulted(name)
        call, answers = worker.call(number), dict(worker.answers)[number]
        self._leave_on_wire(state, worker, call, answers)
        # Nothing retries the reading of a result: the client gets the error and asks again.
        worker.contended |= call.kind in ("get", "fetch", "post")
        lost = lost or (LOST if call.kind in scheduler.TOLD else NOBODY_KNOWS)
        self._resume(state, worker, "answer", number, (lost,) * len(answers))

    def _cut_off(self, state: State, name: str, number: int) -> None:
        state.named(name).contended = True
        self._lose(state, name, number, CUT_OFF)

    def _throttle(self, state: State, name: str, number: int, place: int) -> None:
        worker = state.faulted(name)
        # A call that raised is not repeated by its batch; a message is.
        worker.contended |= worker.call(number).kind == "post" and state.setup.calls > 0
        self._put(state, worker, number, place, THROTTLED)

    def _cancel(self, state: State, name: str, number: int, place: int) -> None:
        worker = state.named(name)
        worker.contended = True
        self._put(state, worker, number, place, CANCELLED)

    def _applied_unknown(self, state: State, name: str, number: int, place: int) -> None:
        worker = state.faulted(name)
        call = worker.call(number)
        worker.contended |= call.kind == "post"  # nothing retries it
        self.table.apply(state, call.kind, worker.sent(call, place), name)
        self._put(state, worker, number, place, LOST if call.kind in scheduler.TOLD else NOBODY_KNOWS)

    def _unapplied_unknown(self, state: State, name: str, number: int, place: int) -> None:
        self._put(state, state.faulted(name), number, place, NOBODY_KNOWS)

    def _slow(self, state: State, name: str, number: int) -> None:
        state.faulted(name).slow += (number,)

    def _copy(self, state: State, name: str, number: int, place: int) -> None:
        worker = state.faulted(name)
        call = worker.call(number)
        self._leave_on_wire(state, worker, call, [ON_THE_WAY if at == place else None for at in range(len(call.parts))])

    def _resend(self, state: State, name: str, number: int, place: int) -> None:
        worker = state.faulted(name)
        call = worker.call(number)
        self.table.apply(state, call.kind, worker.sent(call, place), name)

    def _raise(self, state: State, name: str, number: int, how: str = "raises") -> None:
        worker = state.named(name)
        worker.contended = True
        self._resume(state, worker, "answer", number, (how,))

    def _refuse(self, state: State, name: str, number: int) -> None:
        self._raise(state, name, number, "refuses")

    # Consequences of a move.

    def _die(self, state: State, worker: WorkerState) -> None:
        for _, call, answers in worker.waits():
            self._leave_on_wire(state, worker, call, answers)
        worker.end()

    def _leave_on_wire(self, state: State, worker: WorkerState, call: Call, answers: Sequence[Any]) -> None:
        if call.kind not in (*scheduler.WRITES, "start"):
            return
        before = len(state.wire)
        sent = [worker.sent(call, place) for place, answer in enumerate(answers) if answer is ON_THE_WAY]
        state.wire += tuple(WireRequest(call.kind, part, worker.name) for part in sent)
        state.forget_hopeless()
        for other in state.workers:
            other.contended |= other.live and other is not worker and len(state.wire) > before

    def _put(self, state: State, worker: WorkerState, number: int, place: int, answer: Any) -> None:
        """Record a statement's answer; a call's last answer is delivered at once, unless the call is slow."""
        changed = {at: (*some[:place], answer, *some[place + 1 :]) for at, some in worker.answers if at == number}
        worker.answers = tuple((at, changed.get(at, some)) for at, some in worker.answers)
        if ON_THE_WAY not in changed[number] and number not in worker.slow:
            self._answer(state, worker.name, number)

    def _resume(self, state: State, worker: WorkerState, kind: str, *rest: Any, sure: bool = False) -> None:
        assert worker.history is not None, "a live worker has a history"
        event: Event = (kind, worker.since(state.now), worker.wall, *rest)
        state.clock_stepped = None
        if kind == "answer":
            worker.answers = tuple(one for one in worker.answers if one[0] != rest[0])
            worker.slow = tuple(number for number in worker.slow if number != rest[0])
        self._advance(state, worker, self.histories.extended(worker.history, event), sure=sure)

    def _advance(self, state: State, worker: WorkerState, history: History, *, sure: bool = False) -> None:
        """Move a worker on to this history, and check what it did against the invariants."""
        worker.history = history
        if self.setup.asynchronous:
            # A coroutine that was cancelled waits for nothing any more.
            worker.answers = tuple(one for one in worker.answers if one[0] in history.calls)
        for number in history.opened:
            call = history.calls[number]
            worker.answers += ((number, (ON_THE_WAY,) * len(call.parts)),)
            if (id := oracle.begun(call)) is not None and not (call.kind == "run" and self.setup.reads):
                # A handler that reads has begun before its read, whose answer may come late.
                oracle.started(state, worker, id)
            elif call.kind == "send":
                if self.setup.attempts:
                    oracle.last_dead_letter(state, worker, call.parts[0])
                else:
                    invariants.check_dead_letter(call.parts[0], worker.name, state.recorded)
                    oracle.dead_lettered(state, worker, call.parts[0])
        oracle.holds(worker, history)
        if history.response is not None:
            oracle.answered(state, worker, history.response)
            for id, reply in history.replies.items():
                oracle.replied(state, worker, id, reply, sure=sure)
            if self.setup.renewals:  # one may still be on its way
                self._die(state, worker)
            worker.end()
