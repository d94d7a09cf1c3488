"""What a worker of the explored world does, held against the invariants."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.simulation import invariants, ways
from tests.simulation.invariants import Violation
from tests.simulation.moves import STOPS
from tests.simulation.ways import BUDGET_SECONDS, Failed, Reply

if TYPE_CHECKING:
    from tests.simulation.state import Item, State, Worker


def started(state: State, worker: Worker, id: str) -> None:
    """A handler has started."""
    running = [
        other.name
        for other in state.workers
        if other.live and other is not worker and other.since(state.now) < BUDGET_SECONDS and _runs(other, id)
    ]
    item, failures = state.items.get(id), state.setup.replay
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
        if id not in response:
            item, failures = state.items.get(id), state.setup.replay
            invariants.check_acknowledged(id, worker.name, item, state.now_ms, state.buried, failures=failures)
    if not (worker.troubled or worker.overran):
        invariants.check_left_behind(worker.name, state.items.values(), state.now_ms)
    if not worker.contended:
        invariants.check_progress(worker.name, response)


def replied(state: State, worker: Worker, id: str, reply: Reply, *, sure: bool) -> None:
    """A client was answered over HTTP. `sure`: right after the store had said something for certain."""
    item = state.items.get(id)
    if not _fits(state, worker, item, reply, sure=sure):
        raise Violation("HTTP", f"{worker.name} answers {reply} to {id}: {invariants.shown(item)}")


def _fits(state: State, worker: Worker, item: Item | None, reply: Reply, *, sure: bool) -> bool:
    status, owner = (None, None) if item is None else (item["status"], item.get("owner"))
    mine, late = owner == worker.name, worker.since(state.now) >= STOPS[0]
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
