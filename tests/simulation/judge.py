"""What a worker of the explored world does, held against the invariants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation import invariants
from tests.simulation.invariants import Violation
from tests.simulation.ways import BUDGET_SECONDS

if TYPE_CHECKING:
    from tests.simulation.state import State, Worker


def started(state: State, worker: Worker, id: str) -> None:
    """A handler has started."""
    running = [
        other.name
        for other in state.workers
        if other.live and other is not worker and other.since(state.now) < BUDGET_SECONDS and _runs(other, id)
    ]
    invariants.check_start(id, worker.name, state.items.get(id), state.now_ms, running)
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
            invariants.check_acknowledged(id, worker.name, state.items.get(id), state.now_ms, state.buried)
    if not (worker.troubled or worker.overran):
        invariants.check_left_behind(worker.name, state.items.values(), state.now_ms)
    if not worker.contended:
        invariants.check_progress(worker.name, response)
