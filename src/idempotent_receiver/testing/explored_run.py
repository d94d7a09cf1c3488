"""One run of a consumer under one schedule: everything that happened, starting from the same tables each time."""

import json
from collections import Counter
from collections.abc import Coroutine, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from inspect import CORO_CREATED, getcoroutinestate
from typing import Any

from idempotent_receiver.testing.calls import Call
from idempotent_receiver.testing.memory import MemoryStore, TableItem
from idempotent_receiver.testing.network import Network
from idempotent_receiver.testing.schedule import Decisions, Schedule
from idempotent_receiver.testing.setup import Setup
from idempotent_receiver.testing.varying import parsed
from idempotent_receiver.testing.worker import Worker
from idempotent_receiver.testing.world import World

ItemsByTable = dict[str, list[TableItem]]


@dataclass
class ExploredRun:
    """What has happened so far in a run, in its own world. With `alone`, one worker gets each message once,
    undisturbed.
    """

    setup: Setup
    schedule: Schedule
    alone: bool = False
    story: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    ends: dict[str, str] = field(default_factory=dict)
    """How each message ended, by messageId: completed, a dead letter, or failed for good."""
    early: list[str] = field(default_factory=list)
    """Messages acknowledged before they were completed or dead letters."""
    refused: list[Call] = field(default_factory=list)
    """Calls refused without effect."""
    unawaited: list[Call] = field(default_factory=list)
    """Calls whose coroutines had not ended when their handler returned."""
    faked: set[tuple[str, str]] = field(default_factory=set)
    """Tables and state containers that fakes changed in the undisturbed run."""
    repeated: set[str] = field(default_factory=set)
    """Fakes called again for a message by another worker, with a key."""
    why: dict[str, str] = field(default_factory=dict)
    """The reason of each message's latest failure, by messageId."""
    touched: bool = False
    """Whether the handler wrote to a table or the state, or called a fake."""
    handled: int = 0
    """How often the handler was started."""
    tables: ItemsByTable = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)
    """The handler's result for each completed message, by messageId."""

    workers: dict[str, Worker] = field(default_factory=dict)
    """The workers invoked, by name."""
    redriven: bool = False
    """Whether messages that failed for good have been redriven."""
    failing: set[str] = field(default_factory=set)
    """Keys whose handler raises every time until they are redriven."""
    refusing: Counter[tuple[str, str | None]] = field(default_factory=Counter)
    """How many more calls each fake refuses for each message."""
    promises: list[tuple[Call, str, Coroutine[Any, Any, Any]]] = field(default_factory=list)
    """Coroutines that fakes created, and the names of their workers."""
    interrupt: KeyboardInterrupt | None = None
    """An exception in a handler that must end the whole exploration, not only one message."""

    def __post_init__(self) -> None:
        self.world = World()
        self.memory: MemoryStore = self.setup.new_store()
        self.decisions = Decisions(self.schedule, quiet=self.alone)
        self.network = Network(self.world, self.decisions, self.story)

    def observed(self) -> tuple[ItemsByTable, dict[str, Any]]:
        """The current tables and state."""
        tables = {name: deepcopy([*one.items.values()]) for name, one in self.memory.tables.items()}
        return tables, self.setup.snapshot()

    def conclude(self, before: tuple[ItemsByTable, dict[str, Any]]) -> None:
        """Keep the result of the run for comparison; `before` is what was observed at its start."""
        for id in self.setup.record_ids:
            error = self.record_of(id).get("error")
            # SQS moves permanent failures that the library did not send to a dead-letter queue itself.
            if error is not None and json.loads(error).get("permanent"):
                self.ends.setdefault(id, "failed for good")
        self.tables, self.state = self.observed()
        self.touched = self.touched or bool(self.calls) or (self.tables, self.state) != before
        self.results = {id: parsed(self.record_of(id).get("data")) for id in self.setup.record_ids}

    def end(self) -> None:
        """End everything that is running or waiting."""
        self.world.end()
        for *_, promise in self.promises:
            if getcoroutinestate(promise) == CORO_CREATED:
                promise.close()

    def require_live(self) -> None:
        """Raise if the run is over: whatever a handler still does on its way out does not count."""
        if self.world.ended:
            self.world.leave()

    def record_of(self, id: str) -> TableItem:
        """The record of a messageId; empty if none."""
        return self.memory.items.get(self.setup.record_ids[id] or "", {})

    def first_id(self, id: str) -> str:
        """The messageId under which a message was first delivered."""
        return self.setup.originals.get(id, id)

    def received(self, worker: Worker, records: Sequence[TableItem]) -> None:
        """Note that a worker was invoked."""
        self.story.append(f"worker {worker.name} receives {_listed([record['messageId'] for record in records])}")

    def answered(self, worker: Worker, records: Sequence[TableItem], answer: list[str] | Exception) -> None:
        """Note a worker's answer: messages that it did not name are deleted."""
        self.network.under_way.discard(worker.name)
        if isinstance(answer, Exception):
            self.story.append(f"{worker.name} raises {answer!r}")
            return
        done = [record["messageId"] for record in records if record["messageId"] not in answer]
        for id in map(self.first_id, done):
            if id in self.network.dead_letters:
                self.ends.setdefault(id, "dead letter")
            else:
                self.ends[id] = "completed"
                if self.record_of(id).get("status") != "COMPLETED":
                    self.early.append(id)
        if done:
            self.story.append(f"{worker.name} acknowledges {_listed(done)}")
        else:
            self.story.append(f"{worker.name} leaves {_listed(answer)} to be delivered again")

    def failed(self, id: str, why: str) -> None:
        """Note that a message failed."""
        self.why[self.first_id(id)] = why

    def timed_out(self, worker: Worker) -> None:
        """Note that Lambda killed a worker at its deadline."""
        self.network.gone(worker)
        self.story.append(f"{worker.name} is killed at its deadline")


def _listed(ids: Sequence[str]) -> str:
    shown = list(dict.fromkeys(ids))
    return ", ".join(shown[:3]) + (f" and {len(shown) - 3} more" if len(shown) > 3 else "")
