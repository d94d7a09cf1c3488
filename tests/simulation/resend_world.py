"""The world of operators: they resend and redrive the copies of one dead letter, or two, beside their consumer.

Workers of the consumer, and operators, run the shipped code. Each write is one step, and between two steps anybody else
may act. A fault is a crash before a step, an answer that is lost (after the write, before it, or while it is still on
its way), or a handler that raises.

BODIES  At most one body of a letter takes effect; while one runs under a claim, no other one starts. (Of two crossed
        letters, two bodies may.)
I3      A COMPLETED record never changes.
EFFECT  What a handler writes through its transaction is there once if its body took effect, and else not at all.
LOST    However it ended, an operator who goes on as triage says gets each letter's message done, and both queues empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from idempotent_receiver import MemoryStore
from idempotent_receiver.protocol.record import from_attributes
from idempotent_receiver.protocol.resend import resending
from idempotent_receiver.protocol.store import Unknown
from idempotent_receiver.testing.memory import Table
from tests.simulation.explored_clients import LOST
from tests.simulation.history import Histories
from tests.simulation.invariants import Violation, shown
from tests.simulation.operators import RECORDS, id_of, variant_of
from tests.simulation.resend_state import ResendState, begun, failed, far_items, written_to
from tests.simulation.setups import AGAIN, OPERATES, Act
from tests.simulation.state import ON_THE_WAY, WireRequest
from tests.simulation.worker_state import WorkerState

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.simulation.controlled_worker import Call
    from tests.simulation.scheduler import Move
    from tests.simulation.setups import Setup

WRITES = ("insert", "replace", "commit")
LEASE_SECONDS = 20.0
"""Longer than a worker's lease, by every clock."""
MOST_ROUNDS = 6
"""Enough for triage and deliveries to get everything done."""
NOBODY_KNOWS = Unknown("nobody knows")


class ResendExplorer:
    """Plays the moves of a world of operators."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.histories = Histories(setup)
        self.most = 2 if self.crossed else 1

    @property
    def crossed(self) -> bool:
        """Whether there are two messages, and each is resent as the other."""
        return self.setup.letters == (0, 2)

    def initial_state(self, faults: int) -> ResendState:
        consumers = [WorkerState(f"c{number}", self.setup.receives(number)) for number in range(self.setup.workers)]
        operators = [WorkerState(f"o{number}", OPERATES, variant_of(act)) for number, act in enumerate(self.setup.acts)]
        letters = frozenset(enumerate(self.setup.letters))
        items = {id_of(body): failed(body) for body in set(self.setup.letters)}
        if 1 in self.setup.letters:
            items[id_of(0)] |= begun(fifo=self.setup.fifo)
        # The first deliveries of what has become a dead letter may still come late.
        ever = frozenset(self.setup.letters)
        return ResendState(self.setup, [*consumers, *operators], faults, items, letters, ever=ever)

    # Which moves there are.

    def moves(self, state: ResendState) -> Iterator[Move]:
        live = [worker for worker in state.workers if worker.live]
        for worker in live:
            ((number, call, _),) = worker.waits()
            yield ("return" if call.kind == "run" else "apply", worker.name, number)
        yield from self._starts(state)
        yield from (("arrive", place) for place in range(len(state.wire)))
        if self._time_matters(state, live):
            yield ("time",)
        for worker in live if state.faults else ():
            yield ("crash", worker.name)
            ((number, call, _),) = worker.waits()
            if call.kind == "run":
                yield ("raise", worker.name, number)
            elif call.kind in (*WRITES, "send"):
                yield from ((kind, worker.name, number) for kind in ("applied", "never"))
                if call.kind in WRITES:
                    yield ("late", worker.name, number)

    def _starts(self, state: ResendState) -> Iterator[Move]:
        waiting = [worker for worker in state.workers if state.may_start(worker)]
        yield from (("start", worker.name) for worker in waiting if worker.receives == OPERATES)
        for worker in [worker for worker in waiting if worker.receives != OPERATES][:1]:
            yield from (("deliver", worker.name, body) for body in state.deliverable)

    def _time_matters(self, state: ResendState, live: Sequence[WorkerState]) -> bool:
        """Whether a dead worker's lease is live."""
        leased = [item for item in state.items.values() if item["status"] in ("INPROGRESS", "SENDING")]
        leases = [item["in_progress_expiration"] for item in leased]
        dead = any(0 < lease - state.now_ms < LEASE_SECONDS * 1000 for lease in leases)
        return dead and not any(worker.receives != OPERATES for worker in live)

    # What they do.

    def play(self, before: ResendState, move: Move) -> ResendState:
        """The state after a move. Raises Violation."""
        state = before.copy()
        kind, *where = move
        state.faults -= kind in ("crash", "raise", "applied", "never", "late")
        getattr(self, f"_{kind}")(state, *where)
        return state

    def _start(self, state: ResendState, name: str) -> None:
        worker = state.named(name)
        worker.started = state.now
        self._advance(state, worker, self.histories.started(worker.receives, worker.variant, ("start", 0.0, 0.0)))

    def _deliver(self, state: ResendState, name: str, body: int) -> None:
        state.named(name).variant = body
        self._start(state, name)

    def _apply(self, state: ResendState, name: str, number: int) -> None:
        worker = state.named(name)
        answer = self._take(state, worker, worker.call(number))
        self._resume(state, worker, number, worker.own(answer, state.now))

    def _return(self, state: ResendState, name: str, number: int) -> None:
        self._resume(state, state.named(name), number, "returns")

    def _raise(self, state: ResendState, name: str, number: int) -> None:
        worker = state.named(name)
        self._resume(state, worker, number, "raises")
        if worker.variant in state.queued:
            self._dead_letter(state, worker.variant)

    def _applied(self, state: ResendState, name: str, number: int) -> None:
        self._take(state, state.named(name), state.named(name).call(number))
        self._never(state, name, number)

    def _never(self, state: ResendState, name: str, number: int) -> None:
        kind = state.named(name).call(number).kind
        self._resume(state, state.named(name), number, LOST if kind == "send" else NOBODY_KNOWS)

    def _late(self, state: ResendState, name: str, number: int) -> None:
        worker = state.named(name)
        call = worker.call(number)
        state.wire += (WireRequest(call.kind, worker.sent(call, 0), name),)
        self._never(state, name, number)

    def _crash(self, state: ResendState, name: str) -> None:
        state.named(name).end()

    def _arrive(self, state: ResendState, place: int) -> None:
        request = state.wire[place]
        state.wire = state.wire[:place] + state.wire[place + 1 :]
        self._write(state, request.kind, request.part, request.writer)

    def _time(self, state: ResendState) -> None:
        state.now += LEASE_SECONDS

    # Consequences of a move.

    def _take(self, state: ResendState, worker: WorkerState, call: Call) -> Any:
        """Apply a call."""
        if call.kind == "send":
            body, deduplication = call.parts[0]
            if not self.setup.fifo or deduplication not in state.sent:
                state.queued, state.ever = (*state.queued, body), state.ever | {body}
            state.sent |= {deduplication} if self.setup.fifo else frozenset()
            return None
        if call.kind == "delete":
            state.letters = frozenset(letter for letter in state.letters if letter[0] != call.parts[0])
            return None
        return self._write(state, call.kind, worker.sent(call, 0), worker.name)

    def _write(self, state: ResendState, kind: str, part: Any, writer: str) -> Any:
        memory = MemoryStore(tables={"Entries": Table("id"), RECORDS: Table("id")})
        if kind == "read":
            memory.items = state.items
            return memory.read([part])[0]
        memory.items = dict(state.items)
        entries, records = memory.tables["Entries"].items, memory.tables[RECORDS].items
        entries.update({(id,): {"id": id, "times": times} for id, times in state.entries.items()})
        records.update(far_items(state.items))
        (answer,) = getattr(memory, kind)([part])
        id = written_to(part)
        after = {str(key[0]): item for key, item in records.items()} | {id: memory.items.get(id)}
        self._changed(state, {id: item for id, item in after.items() if item is not None}, writer)
        state.entries = {item["id"]: item["times"] for item in entries.values()}
        for body in state.done if self.setup.transactional else ():
            if (times := state.entries.get(id_of(body), 0)) != 1:
                raise Violation("EFFECT", f"the effect of body {body} is there {times} times")
        if self.setup.transactional and len(state.entries) > len(state.done):
            raise Violation("EFFECT", f"an effect is there of what is not done: {sorted(state.entries)}")
        return answer

    def _changed(self, state: ResendState, after: dict[str, Any], writer: str) -> None:
        for id, item in after.items():
            before = state.items.get(id)
            if before == item:
                continue
            if before is not None and before["status"] == "COMPLETED":
                raise Violation("I3", f"{writer} changed a completed record from {shown(before)} to {shown(item)}")
            if item["status"] == "COMPLETED" and "resent" not in item:
                state.done |= {int(id.partition("#")[2])}
        state.items = after
        if len(state.done) > self.most:
            raise Violation("BODIES", f"{writer} completes another body: {sorted(state.done)} took effect")

    def _resume(self, state: ResendState, worker: WorkerState, number: int, answer: Any) -> None:
        assert worker.history is not None, "it is live"
        worker.answers = ()
        event = ("answer", worker.since(state.now), 0.0, number, (answer,))
        self._advance(state, worker, self.histories.extended(worker.history, event))

    def _advance(self, state: ResendState, worker: WorkerState, history: Any) -> None:
        """Let a worker go on until it asks for something that the world decides."""
        while history.response is None and (event := _unasked(history, worker.since(state.now))) is not None:
            history = self.histories.extended(history, event)
        worker.history = history
        if history.response is not None:
            self._answered(state, worker, history.response)
            worker.end()
            return
        ((number, call),) = history.calls.items()
        if call.kind == "run":
            self._check_start(state, worker)
        worker.answers = ((number, (ON_THE_WAY,) * len(call.parts)),)

    def _answered(self, state: ResendState, worker: WorkerState, response: list[str] | BaseException) -> None:
        if isinstance(response, BaseException):
            raise Violation("ANSWER", f"{worker.name} raised {response!r}")
        if worker.receives == OPERATES or response:
            return
        if worker.variant in state.queued:
            place = state.queued.index(worker.variant)
            state.queued = state.queued[:place] + state.queued[place + 1 :]
        item = state.items.get(id_of(worker.variant))
        if item is None or item["status"] != "COMPLETED":
            raise Violation("I4", f"{worker.name} acknowledged body {worker.variant}: {shown(item)}")

    def _check_start(self, state: ResendState, worker: WorkerState) -> None:
        if self.setup.unclaimed or self.crossed:
            return
        running = {
            other.variant
            for other in state.workers
            if other is not worker and other.live and any(call.kind == "run" for _, call, _ in other.waits())
        }
        if others := (running | state.done) - {worker.variant}:
            raise Violation("BODIES", f"{worker.name} starts body {worker.variant}, beside or after {sorted(others)}")

    # After all faults.

    def deliver_last(self, before: ResendState) -> frozenset[int]:
        """By whichever command the operator finishes a resend, triage and deliveries get it done.

        Returns the bodies that took effect. Raises Violation.
        """
        for verb in ("resend", "redrive"):
            state = before.copy()
            state.wire, state.faults = (), 0
            try:
                self._finish(state, verb)
            except Violation as violation:
                what = f"after all faults, where an operator would {verb}, {violation.what}"
                raise Violation(violation.rule, what) from None
        return state.done

    def _finish(self, state: ResendState, verb: str) -> None:
        for _ in range(MOST_ROUNDS):
            for letter in sorted(state.letters):
                self._triage(state, *letter, verb)
            for body in state.queued:
                state.now += LEASE_SECONDS
                undone = self._run(state, "c", AGAIN, body)
                if undone:
                    self._dead_letter(state, body)
            if not state.letters and not state.queued:
                break
        if state.letters or state.queued or not 1 <= len(state.done) <= self.most:
            left = f"letters {sorted(state.letters)}, queued {state.queued}"
            records = ", ".join(f"{id}: {shown(item)}" for id, item in sorted(state.items.items()))
            raise Violation("LOST", f"{sorted(state.done)} took effect, {left} stay; {records}")

    def _triage(self, state: ResendState, letter: int, body: int, verb: str) -> None:
        """Go on with a letter as its record says."""
        state.now += LEASE_SECONDS
        item = state.items.get(id_of(body))
        resend = None if item is None else resending(from_attributes(item))
        if resend is not None:
            new = int(resend.new_id.partition("#")[2])
            self._run(state, "o", OPERATES, variant_of(Act(verb, "carol", letter, body, new)))
        if (letter, body) in state.letters:
            self._run(state, "o", OPERATES, variant_of(Act("redrive", "carol", letter, body)))

    def _dead_letter(self, state: ResendState, body: int) -> None:
        place = state.queued.index(body)
        state.queued = state.queued[:place] + state.queued[place + 1 :]
        state.newest += 1
        state.letters |= {(state.newest, body)}

    def _run(self, state: ResendState, kind: str, receives: int, variant: int) -> bool:
        """Run one more worker to its end; returns whether it has not done what it should."""
        name = f"{kind}{100 + len(state.workers)}"
        state.workers.append(worker := WorkerState(name, receives, variant))
        self._start(state, name)
        while worker.live:
            ((number, call, _),) = worker.waits()
            (self._return if call.kind == "run" else self._apply)(state, name, number)
        assert worker.history is not None, "it has run"
        return bool(worker.history.response)

    def in_words(self, state: ResendState, move: Move) -> str:
        kind, *where = move
        if kind == "time":
            return "time passes: the leases of dead workers end"
        if kind == "arrive":
            return f"a delayed {state.wire[where[0]].kind} of {state.wire[where[0]].writer} arrives"
        worker = state.named(where[0])
        act = state.act_of(worker)
        what = f"{act.operator}'s {act.verb} of letter {act.letter}" if act else f"a delivery of body {worker.variant}"
        if kind == "deliver":
            return f"{where[0]}: body {where[1]} is delivered"
        call = f" {worker.call(where[1]).kind}" if len(where) > 1 else ""
        return f"{where[0]} ({what}): {kind}{call}"

    def changes(self, before: ResendState, after: ResendState) -> str:
        notes = [f"{id}: {shown(item)}" for id, item in after.items.items() if item != before.items.get(id)]
        for name in ("queued", "letters", "done"):
            old, new = (sorted(getattr(state, name)) for state in (before, after))
            notes += [f"{name}: {new}"] if old != new else []
        return f" → {'; '.join(notes)}" if notes else ""


def _unasked(history: Any, since: float) -> Any:
    """The event that comes before all others: what has finished is processed, and a short pause ends."""
    if history.woken:
        return ("wake", since, 0.0)
    for number, call in history.calls.items():
        if call.kind == "sleep":
            return ("answer", since, 0.0, number, ())
    return None if history.calls else ("timer", since, 0.0)
