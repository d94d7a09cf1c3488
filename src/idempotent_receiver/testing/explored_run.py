"""One run of a consumer under one schedule, with all its events. Every run starts from the same tables."""

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

ItemsByTable = dict[str, list[Any]]


@dataclass
class ExploredRun:
    """A run's events so far, in its own world. With `alone`, one worker receives each message once, without faults."""

    setup: Setup
    schedule: Schedule
    alone: bool = False
    story: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    ends: dict[str, str] = field(default_factory=dict)
    """How each message ended, by messageId: `completed`, `dead letter` or `failed for good`."""
    early: list[str] = field(default_factory=list)
    """Messages acknowledged before they were completed or dead-lettered."""
    refused: list[Call] = field(default_factory=list)
    """Calls refused without effect."""
    in_vain: list[Call] = field(default_factory=list)
    """Calls in runs of the handler whose transactions were then refused for good."""
    unawaited: list[Call] = field(default_factory=list)
    """Calls whose coroutines had not finished when the handler returned."""
    faked: set[tuple[str, str]] = field(default_factory=set)
    """Tables and state containers that fakes changed in the fault-free run."""
    repeated: set[str] = field(default_factory=set)
    """Fakes that a different worker called again for the same message, with a key."""
    why: dict[str, str] = field(default_factory=dict)
    """The reason for each message's latest failure, by messageId."""
    touched: bool = False
    """Whether the handler wrote to a table or the state, or called a fake."""
    handled: int = 0
    """How many times the handler was started."""
    tables: ItemsByTable = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)
    """The handler's result for each completed message, by messageId."""

    first_calls: dict[tuple[str, str], int] = field(default_factory=dict)
    """How many calls came before the handler's latest run, by worker and key."""
    workers: dict[str, Worker] = field(default_factory=dict)
    """The workers invoked, by name."""
    redriven: bool = False
    """Whether messages that failed for good have been redriven."""
    redriven_records: dict[str, TableItem] = field(default_factory=dict)
    """The record with which each message was redriven, by messageId."""
    failing: set[str] = field(default_factory=set)
    """Keys of messages for which the handler raises each time until their redrive."""
    refusing: Counter[tuple[str, str | None]] = field(default_factory=Counter)
    """How many more calls each fake will refuse, by fake and message."""
    promises: list[tuple[Call, str, Coroutine[Any, Any, Any]]] = field(default_factory=list)
    """Coroutines that fakes created, each with its call and its worker's name."""
    interrupt: KeyboardInterrupt | None = None
    """A handler's exception that must end the whole exploration, not just one attempt."""

    def __post_init__(self) -> None:
        self.world = World()
        self.memory: MemoryStore = self.setup.new_store()
        self.decisions = Decisions(self.schedule, quiet=self.alone)
        self.network = Network(self.world, self.decisions, self.story)

    def observed(self) -> tuple[ItemsByTable, dict[str, Any]]:
        """The current tables and state."""
        tables = {name: deepcopy([*one.items.values()]) for name, one in self.memory.tables.items()}
        return tables | self.setup.rows(), self.setup.snapshot()

    def conclude(self, before: tuple[ItemsByTable, dict[str, Any]]) -> None:
        """Keep the run's results for comparison. `before` is what `observed` returned at the start."""
        for id in self.setup.record_ids:
            # SQS moves a permanent failure to the dead-letter queue if the library did not send it there.
            if _permanent(self.record_of(id)):
                self.ends.setdefault(id, "failed for good")
        self.before = before
        self.tables, self.state = self.observed()
        self.touched = self.touched or bool(self.calls) or (self.tables, self.state) != before
        self.results = {id: parsed(self.record_of(id).get("data")) for id in self.setup.record_ids}

    def refused_for_good(self, worker: Worker, key: str) -> None:
        """Note that the transaction of a worker's run of the handler was refused by a condition meant as permanent."""
        made = self.calls[self.first_calls.get((worker.name, key), 0) :]
        self.in_vain += [call for call in made if call.message == key]

    def end(self) -> None:
        """End everything that is running or waiting."""
        self.world.end()
        for *_, promise in self.promises:
            if getcoroutinestate(promise) == CORO_CREATED:
                promise.close()

    def require_live(self) -> None:
        """Raise if the run has ended: what a handler does while it unwinds does not count."""
        if self.world.ended:
            self.world.leave()

    def record_of(self, id: str) -> TableItem:
        """The record for a messageId; empty if there is none."""
        return self.memory.items.get(self.setup.record_ids[id] or "", {})

    def awaits_delivery(self, id: str) -> bool:
        """Whether SQS is to deliver a message, by its first messageId, again before its redrive.

        A message that failed for good is left to its redrive, which runs the handler again just as another delivery
        would. A consumer with a dead-letter queue may still have to send it there.
        """
        record = self.record_of(id)
        failed = _permanent(record) and record != self.redriven_records.get(id)
        return id not in self.ends and not (failed and self.setup.consumer.options.dead_letter_queue is None)

    def first_id(self, id: str) -> str:
        """The messageId under which a message was first delivered."""
        return self.setup.originals.get(id, id)

    def received(self, worker: Worker, records: Sequence[TableItem]) -> None:
        """Note that a worker was invoked."""
        self.story.append(f"worker {worker.name} receives {_listed([record['messageId'] for record in records])}")

    def answered(self, worker: Worker, records: Sequence[TableItem], answer: list[str] | Exception) -> None:
        """Note a worker's answer. Messages that it does not report as failed are deleted."""
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
            self.story.append(f"{worker.name} leaves {_listed(answer)} for redelivery")

    def failed(self, id: str, why: str) -> None:
        """Note that a message failed."""
        self.why[self.first_id(id)] = why

    def timed_out(self, worker: Worker) -> None:
        """Note that Lambda killed a worker at its deadline."""
        self.network.gone(worker)
        self.story.append(f"{worker.name} is killed at its deadline")


def _permanent(record: TableItem) -> bool:
    return bool(json.loads(record.get("error") or "{}").get("permanent"))


def _listed(ids: Sequence[str]) -> str:
    shown = list(dict.fromkeys(ids))
    return ", ".join(shown[:3]) + (f" and {len(shown) - 3} more" if len(shown) > 3 else "")
