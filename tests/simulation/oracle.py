"""Checks what a worker of the explored world does against the invariants."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from idempotent_receiver.handler.attempt import marked
from idempotent_receiver.protocol.charges import charged_of
from idempotent_receiver.protocol.record import from_attributes
from tests.simulation import adapters, invariants
from tests.simulation.adapters import BUDGET_SECONDS, HttpReply, WorkflowReply
from tests.simulation.handlers import Failed
from tests.simulation.invariants import Violation
from tests.simulation.scheduler import STOPS
from tests.simulation.setups import FIRST, HOT, REDRIVEN, WAIVED
from tests.simulation.step_functions_model import MACHINE, RUNNING

if TYPE_CHECKING:
    from tests.simulation.controlled_worker import Call
    from tests.simulation.history import History
    from tests.simulation.state import Item, State
    from tests.simulation.step_functions_model import Execution
    from tests.simulation.worker_state import WorkerState


def started(state: State, worker: WorkerState, id: str) -> None:
    running = [
        other.name
        for other in state.workers
        if other.live
        and other is not worker
        and not state.setup.waives("I1", other.receives)
        and other.since(state.now) < BUDGET_SECONDS
        and _runs(other, id)
    ]
    item, failures = state.items.get(id), state.setup.failures
    waived = _waived(state, worker)
    invariants.check_start(id, worker.name, item, state.latest_ms, running, failures=failures, waived=waived)
    if worker.receives in state.setup.unclaimed:
        state.starts |= {(worker.name, id, state.there(id))}
    if state.setup.dead_letters:
        state.runs |= {(worker.name, id)}
    if state.setup.fifo:
        _in_order(state, worker, id)


def ended(state: State, after: Item, writer: str) -> None:
    """BOTH: check an end that was recorded against the dead letters that were sent, and note a failure."""
    id = after["id"]
    if after["status"] == "FAILED":
        state.recorded |= {(writer, id)}
        state.before |= {(name, id, writer) for name, of in state.runs if of == id}
    if after["status"] == "COMPLETED":
        invariants.check_both(id, writer, overruled=(writer, id) in state.overruled)


def dead_lettered(state: State, worker: WorkerState, id: str) -> None:
    state.overruled |= {(name, of) for name, of, by in state.before if (of, by) == (id, worker.name)}
    item = state.items.get(id)
    if item is not None and item["status"] == "COMPLETED":
        invariants.check_both(id, item["owner"], overruled=(item["owner"], id) in state.overruled)


def attempts_written(state: State, before: Item | None, after: Item, writer: str) -> None:
    """ATTEMPTS: a message is claimed only below its limit, and never again once it has failed for good."""
    redriven = any(one.name == writer and one.receives == REDRIVEN for one in state.workers)
    ended = before is not None and before["status"] == "FAILED" and charged_of(from_attributes(before)).message
    if redriven:
        return
    if ended and after["status"] != "FAILED":
        raise Violation("ATTEMPTS", f"{writer} replaced {invariants.shown(before)}, which has ended")
    attempts = charged_of(from_attributes(after)).attempts
    if after["status"] == "INPROGRESS" and attempts >= state.setup.attempts:
        raise Violation("ATTEMPTS", f"{writer} claims {after['id']} after {attempts} charged attempts")


def last_dead_letter(state: State, worker: WorkerState, id: str) -> None:
    """LETTER, where attempts are limited: whoever finds what has failed for good may send its dead letter. Meanwhile, a
    redriven copy may have begun anew.
    """
    item = state.items.get(id)
    ended = item is not None and item["status"] == "FAILED" and charged_of(from_attributes(item)).message is not None
    if not ended and not state.setup.redriven:
        raise Violation("LETTER", f"{worker.name} sends a dead letter of {id}: {invariants.shown(item)}")
    dead_lettered(state, worker, id)


def sent(state: State, id: str, key: str, worker: str) -> None:
    """SENT: check a message that SQS takes of a handler's."""
    state.sent |= {(id, key)}
    item, keys = state.items.get(id), [sent for of, sent in state.sent if of == id]
    if item is None or item["status"] not in ("SENDING", "COMPLETED") or len(keys) > state.setup.sent:
        raise Violation("SENT", f"{worker} sends for {id}, under {keys}: {invariants.shown(item)}")


def note_result(state: State, after: Item | None) -> None:
    """A record that will expire was completed."""
    if after is not None and after["status"] == "COMPLETED":
        id = after["id"]
        state.results |= {(id, after["owner"], _stored(state, after), after["expiration"])}
        state.completions = {**state.completions, id: state.completions.get(id, 0) + 1}


DONE = ("SENDING", "COMPLETED")
"""The statuses that say that an effect is there."""


def check_effect(state: State, entry: str, id: str, after: Item | None) -> None:
    """EFFECT: once, or once for each completion that may have expired since. All messages add to what is hot."""
    times = state.entries.get(entry, 0)
    if entry == HOT:
        done = sum(item["status"] in DONE for item in state.items.values() if item["id"] != id)
        invariants.check_effect(entry, after, times - done)
    elif state.setup.retention_seconds is None:
        invariants.check_effect(entry, after, times)
    elif times != state.completions.get(id, 0):
        raise Violation("EFFECT", f"{id} was completed {state.completions.get(id, 0)} times, {entry} is there {times}")


def check_reads(state: State, after: Item | None) -> None:
    """READS: what is there follows from the completions, in whatever order: no update is lost, and none has skew."""
    others = [item for item in state.items.values() if after is None or item["id"] != after["id"]]
    done = sum(item["status"] in DONE for item in [*others, *([] if after is None else [after])])
    wanted = done if state.setup.reads == "count" else min(done, 1)
    there = sum(state.entries.get(entry, 0) for entry in (HOT, "odd", "even"))
    if there != wanted:
        raise Violation("READS", f"{done} are done, and what they have written by what they read is {there}")


_payloads: dict[str, int] = {}
"""Which payload each fingerprint is of. It is the same in all worlds."""


def note_payload(state: State, after: Item, writer: str) -> None:
    if after.get("validation") is not None and after.get("owner") == writer:
        _payloads.setdefault(after["validation"], state.named(writer).variant)


def _is_refused(state: State, worker: WorkerState, id: str) -> bool:
    """Whether the record is another payload's, which refuses this worker's message for good."""
    found = state.items.get(id, {}).get("validation")
    return state.setup.payloads > 1 and found is not None and _payloads[found] != worker.variant


def holds(worker: WorkerState, history: History) -> None:
    """Check that a worker outside Lambda has lost no lease: by then it would be dead."""
    if history.lost is not None:
        raise Violation("LEASE", f"{worker.name} still runs, and has lost the lease of {history.lost}")


def _waived(state: State, worker: WorkerState) -> list[str]:
    """The rules that do not hold of a worker that starts a handler. What it has read it knows, while nobody else is at
    work.
    """
    waived = [rule for rule in WAIVED if state.setup.waives(rule, worker.receives)]
    return [rule for rule in waived if rule != "I2" or worker.receives == FIRST or worker.contended]


def runs_unread(state: State, worker: WorkerState) -> bool:
    """Whether a worker runs a first receive without a look at records that refuse its commit for now: behind a failure
    for good there may be a dead letter, and a group may have gone on. Their messages are read at their redelivery.
    """
    if worker.receives != FIRST or FIRST not in state.setup.unclaimed:
        return False
    items = state.items.values()
    refusing = state.setup.fifo or any(invariants.live(item, state.now_ms) or for_good(item) for item in items)
    return bool(items) and refusing


def for_good(item: Item) -> bool:
    return '"permanent": true' in item.get("error", "")


def unclaimed_written(state: State, before: Item | None, after: Item, writer: str) -> None:
    """Check a write of a worker without claims; of a FIFO group's completion, that effects are in order."""
    worker = next((worker for worker in state.workers if worker.name == writer), None)
    if worker is None or worker.receives not in state.setup.unclaimed:
        return
    if before is None or before["status"] != "SENDING":
        invariants.check_seen(before, after, writer, state.starts)
    if state.setup.fifo and after["status"] in DONE:
        _in_order(state, worker, after["id"], "commits")


def begun(call: Call) -> str | None:
    """The message whose handler makes this call, or runs meanwhile."""
    match call.kind:
        case "run":
            return str(call.parts[0])
        case "fetch":
            return str(call.parts[0][1])
    return None


def _runs(worker: WorkerState, id: str) -> bool:
    return any(begun(call) == id for _, call, _ in worker.waits())


def _in_order(state: State, worker: WorkerState, id: str, does: str = "starts") -> None:
    batch = state.setup.batch
    for earlier in batch[: batch.index(id)]:
        if earlier not in state.dead_lettered and not invariants.completed(state.items.get(earlier), state.now_ms):
            raise Violation("FIFO", f"{worker.name} {does} {id} although {earlier} of its group has not ended well")


def answered(state: State, worker: WorkerState, response: list[str] | BaseException) -> None:
    if isinstance(response, BaseException):
        raise Violation("ANSWER", f"{worker.name} raised {response!r}")
    batch = state.setup.batch_of(worker.variant)
    invariants.check_answer(batch, response)
    for id in batch:
        # A workflow's replies are checked one by one, in `replied`.
        if id not in response and state.setup.adapter == "queue" and _is_refused(state, worker, id):
            raise Violation("I4", f"{worker.name} acknowledged {id}, which is another payload's")
        reply = worker.history.replies.get(id) if worker.history is not None else None
        refused = isinstance(reply, HttpReply) and reply.status == adapters.MISMATCH
        # A reply of what has expired since is checked in `replied`, too.
        expires = state.setup.retention_seconds is not None
        if id not in response and state.setup.adapter != "workflow" and not (refused or expires):
            item, failures = state.items.get(id), state.setup.failures
            invariants.check_acknowledged(id, worker.name, item, state.now_ms, state.dead_lettered, failures=failures)
    if not (worker.had_fault or worker.overran):
        invariants.check_left_behind(worker.name, state.items.values(), state.now_ms)
    # Nothing retries a request to Step Functions that failed: the client gets the error and asks again. A run that took
    # its key for free does not begin again once it is in doubt what became of its commit.
    # Nor is a dead letter sent again in one batch.
    unread = worker.receives == FIRST and FIRST in state.setup.unclaimed
    gives_up = state.setup.adapter == "workflow" or unread or state.setup.attempts > 0
    if not worker.contended and not (gives_up and worker.had_fault):
        invariants.check_progress(worker.name, [id for id in response if not _is_refused(state, worker, id)])


def replied(state: State, worker: WorkerState, id: str, reply: HttpReply | WorkflowReply, *, sure: bool) -> None:
    item = state.items.get(id)
    if isinstance(reply, WorkflowReply):
        rule, true = "WORKFLOW", _true_of_workflow(state, worker, id, reply, sure=sure)
    else:
        rule, true = "HTTP", _true_over_http(state, worker, id, reply, sure=sure)
    if not true:
        raise Violation(rule, f"{worker.name} answers {reply} to {id}: {invariants.shown(item)}")


def execution_started(state: State, name: str) -> None:
    for id, item in state.items.items():
        if id.endswith(f"#{name}") and invariants.completed(item, state.now_ms, failures=True):
            raise Violation("I2", f"an execution starts for {id}, which has ended: {invariants.shown(item)}")


def workflow_written(state: State, before: Item | None, after: Item | None, writer: str) -> None:
    assert after is not None, "records are never deleted"
    id, execution = after["id"], _execution(state, after["id"])
    handed_over = before is not None and before.get("execution") is not None
    over = execution is not None and execution.status != RUNNING and after["status"] != "INPROGRESS"
    if writer == MACHINE or over:
        # An execution, or a worker that finds it over, writes the outcome on behalf of the claim's owner.
        writer = str((before or {}).get("owner"))
    elif handed_over and invariants.live(before, state.now_ms):
        raise Violation("I7", f"{writer} changed {invariants.shown(before)}, which an execution holds, to {after}")
    done = {(writer, id)} if execution is not None and execution.done else set()
    invariants.check_write(before, after, writer, state.now_ms, done, failures=True)
    if after["status"] == "FAILED" and (execution is None or not execution.dead):
        raise Violation("WORKFLOW", f"{writer} records that {id} has failed: {execution}")


def reconciled(state: State, id: str) -> None:
    """Check a record after all faults: its execution holds it, or it says how its execution ended."""
    item, execution = state.items.get(id), _execution(state, id)
    match None if item is None else item["status"]:
        case None:
            agrees = execution is None
        case "INPROGRESS":
            handed_over = (item or {}).get("execution") is not None
            agrees = handed_over and execution is not None and execution.status == RUNNING
        case "COMPLETED":
            agrees = execution is not None and execution.done
        case _:
            agrees = execution is not None and execution.dead
    if not agrees:
        raise Violation("I6", f"after all faults {id} is left as {invariants.shown(item)}: {execution}")


def _execution(state: State, id: str) -> Execution | None:
    return state.executions.get(id.rpartition("#")[2])


def _true_of_workflow(state: State, worker: WorkerState, id: str, reply: WorkflowReply, *, sure: bool) -> bool:
    item, execution = state.items.get(id), _execution(state, id)
    status = None if item is None else item["status"]
    match reply.answer:
        case "Started":
            return execution is not None and (status == "INPROGRESS" or not sure)
        case "Running":
            another = status == "INPROGRESS" and (execution is not None or (item or {})["owner"] != worker.name)
            return another or not sure
        case "AlreadyCompleted" | "AlreadyFailed" | "Settled":
            recorded = (item or {}).get("data") or (item or {}).get("error")
            return (reply.status, reply.recorded) == (status, recorded) and status != "INPROGRESS"
        case "NothingToDo" | "ClaimLost":
            return True
        case "Unknown":
            return worker.had_fault or _late(state, worker)
    return False


def _late(state: State, worker: WorkerState) -> bool:
    """Whether its time may be over by whichever of its clocks is ahead."""
    return worker.since(state.now) + worker.wall - worker.off >= STOPS[0]


def _true_over_http(state: State, worker: WorkerState, id: str, reply: HttpReply, *, sure: bool) -> bool:
    item = state.items.get(id)
    status, owner = (None, None) if item is None else (item["status"], item.get("owner"))
    mine, late = owner == worker.name, _late(state, worker)
    failed_by_me = status == "FAILED" and mine
    match reply:
        case HttpReply(status=adapters.CREATED) if state.setup.retention_seconds:
            owners = {who for of, who, result, _ in state.results if (of, result) == (id, reply.content)}
            own = worker.name in owners and (not reply.replayed or worker.had_fault)
            return own or (reply.replayed and bool(owners - {worker.name}))
        case HttpReply(status=adapters.CREATED):
            # A worker that does not know whether the commit was its own marks it as a replay too.
            right = reply.replayed is not mine or (reply.replayed and worker.had_fault)
            own = not _is_refused(state, worker, id)
            # What its record could not keep is known to whoever made it.
            kept = reply.content == _stored(state, item) or (mine and _place(item).get("result") == "dropped")
            return status == "COMPLETED" and kept and right and own
        case HttpReply(status=adapters.GONE, replayed=False, attempt=None):
            return _place(item).get("result") == "dropped"
        case HttpReply(status=adapters.MISMATCH, replayed=False):
            return _is_refused(state, worker, id) or not sure
        case HttpReply(status=adapters.CONFLICT, replayed=False):
            # Beyond its deadline a worker may meet a late claim of its own, once TTL has deleted the one that it had.
            late_claim = worker.overran and state.setup.retention_seconds is not None
            return not sure or (status == "INPROGRESS" and (not mine or late_claim))
        case HttpReply(status=adapters.FAILED_FOR_GOOD, attempt=None):
            return state.setup.replay and _raised(item) and reply.replayed is not mine
        case HttpReply(status=adapters.RAISED):
            return not state.setup.replay and (not sure or (failed_by_me and _raised(item)))
        case HttpReply(status=adapters.AGAIN, replayed=False, attempt=None):
            return late or worker.had_fault
        case HttpReply(status=adapters.AGAIN, replayed=False):
            # A worker that knows that it has lost its claim never gives its own answer.
            return status != "COMPLETED" or not sure
    return False


def _stored(state: State, item: Item | None) -> str:
    data = (item or {}).get("data", "null") or "null"
    place = _place(item)
    if place:
        data = state.bucket.get(place.get("key", ""), "")
    return adapters.reply_of(json.loads(data)).content if data else ""


def _place(item: Item | None) -> dict[str, str]:
    """Where the result of a record is, or why it is gone, if it is not in the record."""
    return marked((item or {}).get("data") or "") or {}


def leads_to_a_result(state: State, after: Item) -> None:
    """RESULT: a record that says where its result is says so truly."""
    place = _place(after)
    if place.get("result") == "s3" and place["key"] not in state.bucket:
        raise Violation("RESULT", f"{after['id']} says that its result is in {place}, where nothing is")


def _raised(item: Item | None) -> bool:
    return item is not None and item["status"] == "FAILED" and json.loads(item["error"])["type"] == Failed.__qualname__
