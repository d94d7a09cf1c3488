"""One run of a consumer under one schedule: what has happened in it, from the same tables each time."""

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
    """What has happened so far, in a world of its own. `alone`, one worker gets each message once, undisturbed."""

    setup: Setup
    schedule: Schedule
    alone: bool = False
    story: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    ends: dict[str, str] = field(default_factory=dict)
    """How each message ended, by its messageId: completed, a dead letter, or failed for good."""
    early: list[str] = field(default_factory=list)
    """The messages that were acknowledged although they were neither."""
    refused: list[Call] = field(default_factory=list)
    """The calls that were refused, without an effect."""
    unawaited: list[Call] = field(default_factory=list)
    """The calls whose coroutines had not ended when their handler returned."""
    faked: set[tuple[str, str]] = field(default_factory=set)
    """The tables and containers of the state that fakes have changed, in the undisturbed run."""
    repeated: set[str] = field(default_factory=set)
    """The fakes that were called again for a message by another worker, with a key."""
    why: dict[str, str] = field(default_factory=dict)
    """What the last failure of a message was, by its messageId."""
    touched: bool = False
    """Whether the handler has written to a table or to the state, or called a fake."""
    handled: int = 0
    """How often the handler was started."""
    tables: ItemsByTable = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)
    """What the handler returned for each message that is done, by its messageId."""

    workers: dict[str, Worker] = field(default_factory=dict)
    """Those that were invoked, by their names."""
    redriven: bool = False
    """Whether what had failed for good was sent back already."""
    failing: set[str] = field(default_factory=set)
    """The keys whose handler raises each time, until they are redriven."""
    refusing: Counter[tuple[str, str | None]] = field(default_factory=Counter)
    """How often each fake still refuses each message's calls."""
    promises: list[tuple[Call, str, Coroutine[Any, Any, Any]]] = field(default_factory=list)
    """The coroutines that fakes have made, and the names of their workers."""
    interrupt: KeyboardInterrupt | None = None
    """Raised in a handler by somebody who wants all of this to end, not only a message."""

    def __post_init__(self) -> None:
        self.world = World()
        self.memory: MemoryStore = self.setup.new_store()
        self.decisions = Decisions(self.schedule, quiet=self.alone)
        self.network = Network(self.world, self.decisions, self.story)

    def observed(self) -> tuple[ItemsByTable, dict[str, Any]]:
        """The tables and the state, as they are now."""
        tables = {name: deepcopy([*one.items.values()]) for name, one in self.memory.tables.items()}
        return tables, self.setup.snapshot()

    def conclude(self, before: tuple[ItemsByTable, dict[str, Any]]) -> None:
        """Keep what the run has left, to be compared; `before` is what was observed at its start."""
        for id in self.setup.record_ids:
            error = self.record_of(id).get("error")
            # What has failed for good, and was not sent to a dead-letter queue by us, SQS moves there.
            if error is not None and json.loads(error).get("permanent"):
                self.ends.setdefault(id, "failed for good")
        self.tables, self.state = self.observed()
        self.touched = self.touched or bool(self.calls) or (self.tables, self.state) != before
        self.results = {id: parsed(self.record_of(id).get("data")) for id in self.setup.record_ids}

    def end(self) -> None:
        """End everything that still runs or waits."""
        self.world.end()
        for *_, promise in self.promises:
            if getcoroutinestate(promise) == CORO_CREATED:
                promise.close()

    def require_live(self) -> None:
        """Whatever a handler still does on its way out of a run that is over counts for nothing."""
        if self.world.ended:
            self.world.leave()

    def record_of(self, id: str) -> TableItem:
        """The record of a messageId, or nothing."""
        return self.memory.items.get(self.setup.record_ids[id] or "", {})

    def first_id(self, id: str) -> str:
        """The messageId under which a message was first delivered."""
        return self.setup.originals.get(id, id)

    def received(self, worker: Worker, records: Sequence[TableItem]) -> None:
        """A worker was invoked."""
        self.story.append(f"worker {worker.name} receives {_listed([record['messageId'] for record in records])}")

    def answered(self, worker: Worker, records: Sequence[TableItem], answer: list[str] | Exception) -> None:
        """A worker has answered: what it did not name is deleted."""
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
        """A message has failed."""
        self.why[self.first_id(id)] = why

    def timed_out(self, worker: Worker) -> None:
        """Lambda has killed a worker at its deadline."""
        self.network.gone(worker)
        self.story.append(f"{worker.name} is killed at its deadline")


def _listed(ids: Sequence[str]) -> str:
    shown = list(dict.fromkeys(ids))
    return ", ".join(shown[:3]) + (f" and {len(shown) - 3} more" if len(shown) > 3 else "")
