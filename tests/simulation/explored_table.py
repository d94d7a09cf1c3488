"""The table of the explored world, and Step Functions: applies one statement, and checks what it changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from idempotent_receiver import MemoryStore
from idempotent_receiver.testing.memory import Table
from tests.simulation import invariants, oracle, step_functions_model

if TYPE_CHECKING:
    from tests.simulation.setups import Setup
    from tests.simulation.state import Item, State

CONFIRMED = "confirmed"


class ExploredTable:
    """The table of a setup. What it holds is in the state."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self._memory = MemoryStore()

    def apply(self, state: State, kind: str, part: Any, writer: str) -> Any:
        """Apply a statement, and check the change against the invariants."""
        if kind == "send":
            return CONFIRMED
        if kind == "post":
            oracle.sent(state, *part, writer)
            return CONFIRMED
        if kind == "put":
            state.bucket = {**state.bucket, part[0]: part[1]}
            return CONFIRMED
        if kind == "get":
            return state.bucket.get(part, "")
        if kind == "start":
            return self._start_execution(state, *part)
        if kind == "describe":
            return step_functions_model.describe(state.executions, part)
        if kind == "fetch":
            return state.entries.get(part[0])
        memory = self._memory
        if kind == "read":
            memory.items = state.items
            return memory.read([part])[0]
        return self._write(state, kind, part, writer)

    def _write(self, state: State, kind: str, part: Any, writer: str) -> Any:
        memory = self._memory
        memory.items = dict(state.items)
        id = part[0].new.id if kind == "commit" else part.new.id if kind == "replace" else part.id
        before = memory.items.get(id)
        if kind == "commit":
            answer = self._commit(state, part)
        else:
            answer = (memory.insert if kind == "insert" else memory.replace)([part])[0]
        after = memory.items.get(id)
        if after is not before and self.setup.retention_seconds:
            oracle.note_result(state, after)
        if self.setup.transactional:
            for entry in self.setup.entries_of(id):
                oracle.check_effect(state, entry, id, after)
        if self.setup.reads:
            oracle.check_reads(state, after)
        if after is before:
            return answer
        assert after is not None, "records are never deleted"
        oracle.unclaimed_written(state, before, after, writer)
        state.items = memory.items
        self._written(state, before, after, writer)
        return answer

    def _written(self, state: State, before: Item | None, after: Item, writer: str) -> None:
        if before is not None and "version" in before:
            state.gone |= {before["version"]}
        state.forget_hopeless()
        if self.setup.adapter == "workflow":
            oracle.workflow_written(state, before, after, writer)
        else:
            invariants.check_write(
                before, after, writer, state.latest_ms, state.succeeded, failures=self.setup.failures
            )
        if self.setup.large:
            oracle.leads_to_a_result(state, after)
        if self.setup.sends:
            keys = [key for id, key in state.sent if id == after["id"]]
            sends = any(self.setup.sent_by(each.receives) for each in state.workers if each.name == writer)
            invariants.check_sent(before, after, writer, keys, sends=sends, count=self.setup.sent)
        if not self.setup.unclaimed:
            invariants.check_settled(before, after, writer)
        if self.setup.payloads > 1:
            oracle.note_payload(state, after, writer)
        if self.setup.dead_letters:
            oracle.ended(state, after, writer)
        if self.setup.attempts:
            oracle.attempts_written(state, before, after, writer)

    def _start_execution(self, state: State, name: str, input: str) -> str:
        before = state.executions
        state.executions, answer = step_functions_model.start(before, name, input, state.now)
        if state.executions is not before:
            oracle.execution_started(state, name)
            state.forget_hopeless()
        return answer

    def _commit(self, state: State, part: Any) -> Any:
        table = self._memory.tables["Entries"] = Table(("id",))
        table.items = {(id,): {"id": id, "times": times} for id, times in state.entries.items()}
        (answer,) = self._memory.commit([part])
        state.entries = {item["id"]: item["times"] for item in table.items.values()}
        return answer
