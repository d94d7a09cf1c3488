"""What a worker of the explored world does, held against the invariants."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.simulation import invariants, ways
from tests.simulation.invariants import Violation
from tests.simulation.machines import MACHINE, RUNNING
from tests.simulation.moves import STOPS
from tests.simulation.ways import BUDGET_SECONDS, Failed, Reply, Told

if TYPE_CHECKING:
    from tests.simulation.machines import Execution
    from tests.simulation.state import Item, State, Worker


def started(state: State, worker: Worker, id: str) -> None:
    """A handler has started."""
    running = [
        other.name
        for other in state.workers
        if other.live and other is not worker and other.since(state.now) < BUDGET_SECONDS and _runs(other, id)
    ]
    item, failures = state.items.get(id), state.setup.failures
    invariants.check_start(id, worker.name, item, state.now_ms, running, failures=failures)
    if state.setup.fifo:
        _in_order(state, worker, id)


def _runs(worker: Worker, id: str) -> bool:
    return any(call.kind == "run" and call.parts == (id,) for _, call, _ in worker.waits())


def _in_order(state: State, worker: Worker, id: str) -> None:
    batch = state.setup.batch
    for earlier in batch[: batch.index(id)]:
        if earlier not in state.buried and not invariants.completed(state.items.get(earlier), state.now_ms):
            raise Violation("FIFO", f"{worker.name} starts {id} although {earlier} of its group has not ended well")


def answered(state: State, worker: Worker, response: list[str] | BaseException) -> None:
    """An invocation has answered."""
    if isinstance(response, BaseException):
        raise Violation("ANSWER", f"{worker.name} raised {response!r}")
    batch = state.setup.batch
    invariants.check_answer(batch, response)
    for id in batch:
        # What a workflow's answer promises is said of each answer.
        if id not in response and state.setup.way != "workflow":
            item, failures = state.items.get(id), state.setup.failures
            invariants.check_acknowledged(id, worker.name, item, state.now_ms, state.buried, failures=failures)
    if not (worker.troubled or worker.overran):
        invariants.check_left_behind(worker.name, state.items.values(), state.now_ms)
    # Step Functions' troubles are told to the client, who asks again: none of it is tried again here.
    if not worker.contended and not (state.setup.way == "workflow" and worker.troubled):
        invariants.check_progress(worker.name, response)


def replied(state: State, worker: Worker, id: str, reply: Reply | Told, *, sure: bool) -> None:
    """A client was answered. `sure`: right after the store had said something for certain."""
    item = state.items.get(id)
    if isinstance(reply, Told):
        rule, fits = "WORKFLOW", _holds(state, worker, id, reply, sure=sure)
    else:
        rule, fits = "HTTP", _fits(state, worker, item, reply, sure=sure)
    if not fits:
        raise Violation(rule, f"{worker.name} answers {reply} to {id}: {invariants.shown(item)}")


# Of a workflow.


def begun(state: State, name: str) -> None:
    """An execution has begun."""
    for id, item in state.items.items():
        if id.endswith(f"#{name}") and invariants.completed(item, state.now_ms, failures=True):
            raise Violation("I2", f"an execution of {id} begins, which is over: {invariants.shown(item)}")


def written(state: State, before: Item | None, after: Item | None, writer: str) -> None:
    """A record of a workflow has changed."""
    assert after is not None, "records are never deleted"
    id, execution = after["id"], _execution(state, after["id"])
    handed = before is not None and before.get("execution") is not None
    over = execution is not None and execution.status != RUNNING and after["status"] != "INPROGRESS"
    if writer == MACHINE or over:
        # Who writes the outcome acts for whoever has the claim: an execution, or in its name who finds that it is over.
        writer = str((before or {}).get("owner"))
    elif handed and invariants.live(before, state.now_ms):
        raise Violation("I7", f"{writer} changed {invariants.shown(before)}, which is an execution's, to {after}")
    done = {(writer, id)} if execution is not None and execution.done else set()
    invariants.check_write(before, after, writer, state.now_ms, done, failures=True)
    if after["status"] == "FAILED" and (execution is None or not execution.dead):
        raise Violation("WORKFLOW", f"{writer} says that {id} has failed: {execution}")


def healed(state: State, id: str) -> None:
    """After all faults somebody has looked after a record: it is its execution's, or says how that has ended."""
    item, execution = state.items.get(id), _execution(state, id)
    match None if item is None else item["status"]:
        case None:
            fine = execution is None
        case "INPROGRESS":
            handed = (item or {}).get("execution") is not None
            fine = handed and execution is not None and execution.status == RUNNING
        case "COMPLETED":
            fine = execution is not None and execution.done
        case _:
            fine = execution is not None and execution.dead
    if not fine:
        raise Violation("I6", f"after all faults {id} is left as {invariants.shown(item)}: {execution}")


def _execution(state: State, id: str) -> Execution | None:
    return state.executions.get(id.rpartition("#")[2])


def _holds(state: State, worker: Worker, id: str, told: Told, *, sure: bool) -> bool:
    item, execution = state.items.get(id), _execution(state, id)
    status = None if item is None else item["status"]
    match told.answer:
        case "Started":
            return execution is not None and (status == "INPROGRESS" or not sure)
        case "Running":
            another = status == "INPROGRESS" and (execution is not None or (item or {})["owner"] != worker.name)
            return another or not sure
        case "AlreadyCompleted" | "AlreadyFailed" | "Settled":
            said = (item or {}).get("data") or (item or {}).get("error")
            return (told.status, told.said) == (status, said) and status != "INPROGRESS"
        case "NothingToDo" | "ClaimLost":
            return True
        case "Unavailable":
            return worker.troubled or _late(state, worker)
    return False


def _late(state: State, worker: Worker) -> bool:
    """Whether it may find that its time is over, by whichever of its clocks is later."""
    return worker.since(state.now) + worker.wall - worker.off >= STOPS[0]


# Over HTTP.


def _fits(state: State, worker: Worker, item: Item | None, reply: Reply, *, sure: bool) -> bool:
    status, owner = (None, None) if item is None else (item["status"], item.get("owner"))
    mine, late = owner == worker.name, _late(state, worker)
    failed_by_me = status == "FAILED" and mine
    match reply:
        case Reply(status=ways.CREATED):
            # Who does not know whether it was its own commit calls that a replay as well.
            marked = reply.replayed is not mine or (reply.replayed and worker.troubled)
            return status == "COMPLETED" and reply.told == _stored(item) and marked
        case Reply(status=ways.CONFLICT, replayed=False):
            return not sure or (status == "INPROGRESS" and not mine)
        case Reply(status=ways.FAILED_FOR_GOOD, attempt=None):
            return state.setup.replay and _raised(item) and reply.replayed is not mine
        case Reply(status=ways.RAISED):
            return not state.setup.replay and (not sure or (failed_by_me and _raised(item)))
        case Reply(status=ways.AGAIN, replayed=False, attempt=None):
            return late or worker.troubled
        case Reply(status=ways.AGAIN, replayed=False):
            # Who has lost its claim, and knows, answers with nothing of its own.
            return status != "COMPLETED" or not sure
    return False


def _stored(item: Item | None) -> str:
    return ways.reply_of(json.loads((item or {}).get("data", "null") or "null")).told


def _raised(item: Item | None) -> bool:
    return item is not None and item["status"] == "FAILED" and json.loads(item["error"])["type"] == Failed.__qualname__
