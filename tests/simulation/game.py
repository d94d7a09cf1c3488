"""Plays the moves of the explored world, and holds each against the invariants."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from idempotent_receiver import MemoryStore
from idempotent_receiver.protocol.store import Conflict, NotApplied, Unknown
from idempotent_receiver.testing.memory import Table
from tests.simulation import invariants, judge, machines, moves
from tests.simulation.held import LAST, SWEEP
from tests.simulation.invariants import Violation
from tests.simulation.past import Pasts
from tests.simulation.state import ON_THE_WAY, State, Wired, Worker
from tests.simulation.ways import LOST
from tests.simulation.world import START_EPOCH_SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.simulation.held import Call, Event, Setup
    from tests.simulation.moves import Move
    from tests.simulation.past import Past

CONFIRMED = "confirmed"
STEP_SECONDS = 3600.0
THROTTLED = NotApplied("throttled", retry=True)
NOBODY_KNOWS = Unknown("nobody knows")
ONCE_MORE = "q"
"""The worker of the last delivery, without faults, that must acknowledge everything."""


class Game:
    """Plays moves of a setup. `pasts` remembers what its workers do."""

    def __init__(self, setup: Setup, pasts: Pasts | None = None) -> None:
        self.setup = setup
        self.pasts = Pasts(setup) if pasts is None else pasts
        self._memory = MemoryStore()

    def beginning(self, faults: int) -> State:
        """Nothing has happened; only the first worker gets its messages for the first time."""
        workers = [Worker(f"w{number}", self.setup.receives(number)) for number in range(self.setup.workers)]
        return State(self.setup, workers, faults)

    def play(self, before: State, move: Move) -> State:
        """The state after a move. Raises Violation."""
        state = before.copy()
        kind, *where = move
        if kind in moves.FAULTS or (kind == "start" and where[1]) or (kind == "time" and where[0]):
            state.faults -= 1
        getattr(self, f"_{kind}")(state, *where)
        return state

    def once_more(self, before: State) -> None:
        """After all faults and leases, deliver everything once more: it must be acknowledged. Raises Violation.

        Of a workflow, two sweeps must do (the first may only find out that an execution has died), or a request with a
        sweep after it.
        """
        if self.setup.way != "workflow":
            self._delivered(before, LAST)
            return
        for last in ((SWEEP, SWEEP), (LAST, SWEEP)):
            state = before
            for receives in last:
                state = self._delivered(state, receives)
            for id in self.setup.batch:
                judge.healed(state, id)

    def _delivered(self, before: State, receives: int) -> State:
        state = before.copy()
        leases = [item.get("in_progress_expiration", 0) / 1000 - START_EPOCH_SECONDS for item in state.items.values()]
        state.now = round(max([state.now, *leases]) + 5, 3)
        state.wire, state.faults = (), 0
        state.executions = machines.timed_out(state.executions, state.now)
        name = f"{ONCE_MORE}{len(state.workers)}"
        state.workers.append(Worker(name, receives))
        try:
            self._start(state, name, 0.0)
            while state.workers[-1].live:
                state = self.play(state, _first_move(state.workers[-1], state.now))
        except Violation as violation:
            raise Violation("I6", f"after all faults, at {state.now} s, {violation}") from None
        return state

    # Without a fault.

    def _start(self, state: State, name: str, off: float) -> None:
        worker = _named(state, name)
        worker.started, worker.wall, worker.off = state.now, off, off
        # A lease that is only just over may not be over by this worker's clock.
        held = any(
            invariants.live(item, state.now_ms - moves.CLOCK_OFF_SECONDS * 4000) for item in state.items.values()
        )
        others = [other for other in state.workers if other.live]
        for other in others:
            other.contended = True
        worker.contended = bool(others) or held or bool(state.wire)
        past = self.pasts.begun(worker.receives, ("start", 0.0, off))
        self._stands(state, worker, past)

    def _apply(self, state: State, name: str, number: int, place: int) -> None:
        worker = _named(state, name)
        call = worker.call(number)
        answer = self._effect(state, call.kind, worker.sent(call, place), name)
        if call.kind == "insert" and len(call.parts) > 1 and isinstance(answer, Conflict):
            # Of an insert among several, DynamoDB says no more than that there is something: `DuplicateItem`.
            answer = Conflict()
        self._put(state, worker, number, place, answer)

    def _answer(self, state: State, name: str, number: int) -> None:
        worker = _named(state, name)
        answers = dict(worker.answers)[number]
        call = worker.call(number)
        if call.kind == "send" and answers == (CONFIRMED,):
            state.buried |= {call.parts[0]}
        sure = number not in worker.slow and not any(isinstance(answer, (Unknown, NotApplied)) for answer in answers)
        told = tuple(worker.own(answer, state.now) for answer in answers)
        self._tell(state, worker, "answer", number, told, sure=sure)

    def _return(self, state: State, name: str, number: int) -> None:
        worker = _named(state, name)
        (id,) = worker.call(number).parts
        state.succeeded |= {(name, id)}
        self._tell(state, worker, "answer", number, ("returns",))

    def _slept(self, state: State, name: str, number: int) -> None:
        self._tell(state, _named(state, name), "answer", number, ())

    def _wake(self, state: State, name: str) -> None:
        self._tell(state, _named(state, name), "wake")

    def _timer(self, state: State, name: str) -> None:
        self._tell(state, _named(state, name), "timer")

    def _time(self, state: State, overrun: bool) -> None:
        moment = moves.next_moment(state)
        assert moment is not None, "nothing changes with time"
        for worker in moves.dying(state, moment):
            if overrun:
                worker.overran = True
            else:
                self._die(state, worker)
        for worker in [worker for worker in state.workers if worker.live]:
            worker.contended = True
            # Who is still at it then has run out of time, be it for its store or for its handler.
            worker.troubled |= worker.since(moment) >= moves.TOO_LATE
        state.now = moment
        state.executions = machines.timed_out(state.executions, moment)
        for worker in [worker for worker in state.workers if worker.live and not worker.overran]:
            if moves.overdue(worker, moment):
                self._wake(state, worker.name)

    def _arrive(self, state: State, place: int) -> None:
        wired = state.wire[place]
        state.wire = state.wire[:place] + state.wire[place + 1 :]
        self._effect(state, wired.kind, wired.part, wired.writer)

    def _outcome(self, state: State, name: str, status: str) -> None:
        (id,) = [id for id in self.setup.batch if id.endswith(f"#{name}")]
        change = machines.outcome_of(name, id, state.items.get(id), status, state.now_ms)
        if change is None:
            shown = invariants.shown(state.items.get(id))
            raise Violation("WORKFLOW", f"the outcome {status} of the execution that runs is refused: {shown}")
        state.executions = {**state.executions, name: replace(state.executions[name], word=status)}
        self._effect(state, "replace", change, machines.MACHINE)

    def _finish(self, state: State, name: str) -> None:
        state.executions = machines.ended(state.executions, name)

    # With a fault.

    def _abort(self, state: State, name: str) -> None:
        state.executions = machines.ended(state.executions, name, "ABORTED")

    def _crash(self, state: State, name: str) -> None:
        self._die(state, _named(state, name))

    def _step(self, state: State, name: str) -> None:
        worker = _named(state, name)
        worker.wall += STEP_SECONDS
        # By that clock its deadline is over, so that it begins nothing more.
        worker.contended = True
        state.stepped = name

    def _lose(self, state: State, name: str, number: int) -> None:
        worker = _named(state, name)
        worker.troubled = True
        call, answers = worker.call(number), dict(worker.answers)[number]
        self._leave_on_wire(state, worker, call, answers)
        lost = LOST if call.kind == "send" else NOBODY_KNOWS
        self._tell(state, worker, "answer", number, (lost,) * len(answers))

    def _throttle(self, state: State, name: str, number: int, place: int) -> None:
        worker = _named(state, name)
        worker.troubled = True
        self._put(state, worker, number, place, THROTTLED)

    def _unsure(self, state: State, name: str, number: int, place: int) -> None:
        worker = _named(state, name)
        worker.troubled = True
        call = worker.call(number)
        self._effect(state, call.kind, worker.sent(call, place), name)
        self._put(state, worker, number, place, LOST if call.kind == "send" else NOBODY_KNOWS)

    def _doubt(self, state: State, name: str, number: int, place: int) -> None:
        worker = _named(state, name)
        worker.troubled = True
        self._put(state, worker, number, place, NOBODY_KNOWS)

    def _slow(self, state: State, name: str, number: int) -> None:
        worker = _named(state, name)
        worker.troubled = True
        worker.slow += (number,)

    def _copy(self, state: State, name: str, number: int, place: int) -> None:
        worker = _named(state, name)
        worker.troubled = True
        call = worker.call(number)
        self._leave_on_wire(state, worker, call, [ON_THE_WAY if at == place else None for at in range(len(call.parts))])

    def _resend(self, state: State, name: str, number: int, place: int) -> None:
        worker = _named(state, name)
        worker.troubled = True
        call = worker.call(number)
        self._effect(state, call.kind, worker.sent(call, place), name)

    def _raise(self, state: State, name: str, number: int) -> None:
        worker = _named(state, name)
        worker.contended = True
        self._tell(state, worker, "answer", number, ("raises",))

    def _refuse(self, state: State, name: str, number: int) -> None:
        worker = _named(state, name)
        worker.contended = True
        self._tell(state, worker, "answer", number, ("refuses",))

    # What follows.

    def _die(self, state: State, worker: Worker) -> None:
        for _, call, answers in worker.waits():
            self._leave_on_wire(state, worker, call, answers)
        worker.end()

    def _leave_on_wire(self, state: State, worker: Worker, call: Call, answers: Sequence[Any]) -> None:
        if call.kind not in ("insert", "replace", "commit", "start"):
            return
        before = len(state.wire)
        sent = [worker.sent(call, place) for place, answer in enumerate(answers) if answer is ON_THE_WAY]
        state.wire += tuple(Wired(call.kind, part, worker.name) for part in sent)
        state.forget_hopeless()
        for other in state.workers:
            other.contended |= other.live and other is not worker and len(state.wire) > before

    def _effect(self, state: State, kind: str, part: Any, writer: str) -> Any:
        """Let a statement take effect, and hold the change against the invariants."""
        if kind == "send":
            return CONFIRMED
        if kind == "start":
            return self._begun(state, *part)
        if kind == "describe":
            return machines.described(state.executions, part)
        memory = self._memory
        if kind == "read":
            memory.items = state.items
            return memory.read([part])[0]
        memory.items = dict(state.items)
        id = part[0].new.id if kind == "commit" else part.new.id if kind == "replace" else part.id
        before = memory.items.get(id)
        if kind == "commit":
            answer = self._committed(state, *part)
        else:
            answer = (memory.insert if kind == "insert" else memory.replace)([part])[0]
        after = memory.items.get(id)
        if after is before:
            return answer
        state.items = memory.items
        if before is not None and "version" in before:
            state.gone |= {before["version"]}
        state.forget_hopeless()
        if self.setup.way == "workflow":
            judge.written(state, before, after, writer)
        else:
            invariants.check_write(before, after, writer, state.now_ms, state.succeeded, failures=self.setup.failures)
        if self.setup.transactional:
            invariants.check_effect(id, after, state.entries.get(id, 0))
        return answer

    def _begun(self, state: State, name: str, input: str) -> str:
        before = state.executions
        state.executions, answer = machines.asked_to_start(before, name, input, state.now)
        if state.executions is not before:
            judge.begun(state, name)
            state.forget_hopeless()
        return answer

    def _committed(self, state: State, change: Any, actions: Any) -> Any:
        table = self._memory.tables["Entries"] = Table(("id",))
        table.items = {(id,): {"id": id, "times": times} for id, times in state.entries.items()}
        answer = self._memory.commit(change, actions)
        state.entries = {item["id"]: item["times"] for item in table.items.values()}
        return answer

    def _put(self, state: State, worker: Worker, number: int, place: int, answer: Any) -> None:
        """Note a statement's answer; the last of a call's answers is delivered at once, unless the call is slow."""
        changed = {at: (*some[:place], answer, *some[place + 1 :]) for at, some in worker.answers if at == number}
        worker.answers = tuple((at, changed.get(at, some)) for at, some in worker.answers)
        if ON_THE_WAY not in changed[number] and number not in worker.slow:
            self._answer(state, worker.name, number)

    def _tell(self, state: State, worker: Worker, kind: str, *rest: Any, sure: bool = False) -> None:
        """Let a worker go on. `sure`: with what the store has just said for certain."""
        assert worker.past is not None, "it runs"
        event: Event = (kind, worker.since(state.now), worker.wall, *rest)
        state.stepped = None
        if kind == "answer":
            worker.answers = tuple(one for one in worker.answers if one[0] != rest[0])
            worker.slow = tuple(number for number in worker.slow if number != rest[0])
        self._stands(state, worker, self.pasts.told(worker.past, event), sure=sure)

    def _stands(self, state: State, worker: Worker, past: Past, *, sure: bool = False) -> None:
        """Take over what a worker has come to, and hold it against the invariants."""
        worker.past = past
        for number in past.opened:
            call = past.calls[number]
            worker.answers += ((number, (ON_THE_WAY,) * len(call.parts)),)
            if call.kind == "run":
                judge.started(state, worker, call.parts[0])
        if past.response is not None:
            judge.answered(state, worker, past.response)
            for id, reply in past.replies.items():
                judge.replied(state, worker, id, reply, sure=sure)
            worker.end()


def _first_move(worker: Worker, now: float) -> Move:
    for move in moves.of_worker(worker, now):
        return move
    raise Violation("I6", f"{worker.name} waits, and nothing can come")


def _named(state: State, name: str) -> Worker:
    return next(worker for worker in state.workers if worker.name == name)
