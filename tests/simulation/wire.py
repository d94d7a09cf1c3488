"""DynamoDB's wire in a world of virtual time: the shipped `DynamoDBStore` behind a real client, and DynamoDB's model.

Below the client is a network whose faults are in `wire_faults.py`. A request is served in a greenlet of its own, so it
goes on when its sender is dead or has stopped waiting; others may be served between two of its items. botocore's own
retries wait in the world's time.
"""

from __future__ import annotations

import json
from contextvars import ContextVar
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from botocore.exceptions import ReadTimeoutError
from botocore.retries.standard import RetryHandler
from greenlet import getcurrent

from harness.dynamodb.in_process import answered, client_of
from harness.dynamodb.tables import Surroundings, Tables
from harness.dynamodb.values import plain
from harness.dynamodb.writes import Stored
from idempotent_receiver import DynamoDBStore, raw_requests
from idempotent_receiver.dynamodb import client_config
from tests.chaos.wire import writes_of
from tests.simulation import wire_faults
from tests.simulation.reached import mark
from tests.simulation.simulation import Simulation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from botocore.retries.standard import ExponentialBackoff
    from mypy_boto3_dynamodb import DynamoDBClient

    from harness.dynamodb.writes import Write
    from idempotent_receiver.testing.world import World
    from tests.simulation.process import Invocation, Process

RECORDS = "records"
TABLES = (RECORDS, "Entries", "Accounts", "Open")
READ_TIMEOUT_SECONDS = 3.0

Answer = tuple[int, bytes]


@dataclass
class Sent:
    """A request on its way, and its answer once there is one. `refuse` says why an item is not served."""

    operation: str
    body: bytes
    process: Process
    sender: Invocation
    ids: list[str]
    """The records that it writes."""
    keys: list[str]
    """Those that it reads."""
    pauses: list[float]
    """How long others are served between its items."""
    refuse: Callable[[], str | None] = lambda: None
    answer: Answer | None = None


_sender: ContextVar[tuple[Process, Invocation]] = ContextVar("_sender")
_served: ContextVar[Sent] = ContextVar("_served")
"""The request that the current greenlet serves."""


class GreenletLocal:
    """`threading.local`, for greenlets."""

    def __getattr__(self, name: str) -> Any:
        return getattr(getcurrent(), name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(getcurrent(), name, value)


class Wire(Surroundings):
    """What the processes of one simulation share: DynamoDB, the network to it, and the client's time."""

    def __init__(self, simulation: WireSimulation, seed: int) -> None:
        self.simulation = simulation
        self.world: World = simulation.world
        self.random = Random(f"wire {seed}")
        self.requests = 0
        self.tables = Tables(self)
        for name in TABLES:
            self.tables.execute("CreateTable", {"TableName": name, "KeySchema": [{"AttributeName": "id"}]})
        self.client = client_of(self._send, client_config())
        _wait_in(self.world, self.random, self.client)
        self._stores: dict[Process, DynamoDBStore] = {}
        self.hot: dict[str, float] = {}
        """Records whose partition is over its capacity, and until when."""

    def ask(self, process: Process, kind: str, parts: Sequence[Any]) -> list[Any]:
        return list(getattr(self._store_of(process), kind)(parts))

    def _store_of(self, process: Process) -> DynamoDBStore:
        if process not in self._stores:
            self._stores[process] = DynamoDBStore(RECORDS, client=self.client)
        return self._stores[process]

    def get(self, process: Process, table: str, key: dict[str, Any]) -> Any:
        return self._store_of(process).get(table, key)

    # Below the client.

    def _send(self, operation: str, body: bytes) -> Answer:
        self.requests += 1
        process, sender = _sender.get()
        request = json.loads(body)
        ids = [write.key for write in writes_of(operation, request, RECORDS)]
        keys = [key["id"]["S"] for key in _keys(request)]
        sent = Sent(operation, body, process, sender, ids, keys, self._pauses(request))
        what = wire_faults.SEVERAL if operation == "TransactWriteItems" and len(ids) > 1 else operation
        # That a handler's read may fail is in the worlds without a wire.
        fault = None if operation == "GetItem" else self.simulation.fault((what,)) or self._cancelled(what)
        if fault is None:
            return self.deliver(sent)
        mark(f"{what}: {fault}")
        sender.fault_count += 1
        self.simulation.log(f"{sender.name}: {operation} of {', '.join(sent.ids) or 'reads'} meets: {fault}")
        return wire_faults.FAULTS[fault](self, sent)

    def _cancelled(self, what: str) -> str | None:
        """The fault of a transaction of several, which is rare and meets others' on their items."""
        often = what == wire_faults.SEVERAL and not self.simulation.quiet and self.random.random() < 0.3
        return self.random.choice(wire_faults.CANCELLING) if often and self.simulation.plan.faults else None

    def deliver(self, sent: Sent) -> Answer:
        arrives, returns = self.latency(), self.latency()
        self.arrive(sent, arrives)
        self.world.sleep(arrives + sum(sent.pauses) + returns)
        assert sent.answer is not None, "a request is served within the sum of its pauses"
        return sent.answer

    def latency(self) -> float:
        """How long a request takes, or its answer."""
        return self.random.uniform(0.0005, 0.01)

    def arrive(self, sent: Sent, after: float) -> None:
        """Let a request arrive after that time, whatever becomes of its sender."""
        self.world.spawn(partial(self._serve, sent), after)

    def arrive_late(self, sent: Sent) -> None:
        """Let a request arrive when others may have gone first. Until then it contends with whoever begins."""
        late = replace(sent, pauses=self._pauses(json.loads(sent.body)))
        on_the_wire = self.simulation.monitor._on_the_wire
        for id in sent.ids:
            on_the_wire[id] = on_the_wire.get(id, 0) + 1

        def arrive() -> None:
            self._serve(late)
            for id in sent.ids:
                on_the_wire[id] -= 1

        seconds = self.random.choice([0.02, 0.5, 5.0, wire_faults.LONGEST_SECONDS]) * self.random.random()
        self.world.spawn(arrive, after=seconds)

    def time_out(self) -> Answer:
        """Wait for an answer that does not come."""
        self.world.sleep(READ_TIMEOUT_SECONDS)
        raise ReadTimeoutError(endpoint_url="https://dynamodb.us-east-1.amazonaws.com")

    def _pauses(self, request: dict[str, Any]) -> list[float]:
        if "TransactItems" in request:
            return [self.random.choice([0.0, 0.004, 0.02])]
        items = len(request.get("Statements", _keys(request)))
        return [self.random.choice([0.0, 0.001, 0.02]) if self.random.random() < 0.1 else 0.0 for _ in range(items)]

    def _serve(self, sent: Sent) -> None:
        _served.set(sent)
        self._follow_the_monitor(json.loads(sent.body))
        sent.answer = answered(self.tables, sent.operation, sent.body)

    def _follow_the_monitor(self, request: dict[str, Any]) -> None:
        """Let conditions hold or fail as the simulation wants, and records be deleted as it deletes them."""
        monitor, tables = self.simulation.monitor, self.tables.tables
        checked = [action.get("ConditionCheck", {}) for action in request.get("TransactItems", ())]
        ids = {one["Key"]["id"]["S"] for one in checked if one and one["TableName"] == "Open"} - monitor.closed
        tables["Open"].items = {(id,): Stored({"id": {"S": id}}, 0) for id in ids}
        for place in [place for place in tables[RECORDS].items if monitor.item(place[0]) is None]:
            del tables[RECORDS].items[place]

    # What the model asks.

    def seconds(self) -> float:
        return self.world.now

    def between(self) -> None:
        pauses = _served.get().pauses
        if pauses and (seconds := pauses.pop()):
            self.world.sleep(seconds)

    def refusal(self, table: str, place: tuple[str, ...]) -> str | None:
        sent = _served.get()
        if table == RECORDS and self.world.now < self.hot.get(place[0], 0.0):
            sent.sender.fault_count += 1
            return "ProvisionedThroughputExceeded"
        return sent.refuse()

    def written(self, writes: Sequence[Write]) -> None:
        monitor, sent = self.simulation.monitor, _served.get()
        befores = {write.place[0]: monitor.item(write.place[0]) for write in writes if write.table.name == RECORDS}
        for write in writes:
            if write.after is not write.before:
                self._mirror(write)
        for id, before in befores.items():
            monitor.applied(sent.operation, id, before, sent.sender.name)

    def _mirror(self, write: Write) -> None:
        """Let the monitor's tables have what the model's have."""
        memory, name = self.simulation.monitor.memory, write.table.name
        items: dict[Any, Any] = memory.items if name == RECORDS else memory.tables[name].items
        place = write.place[0] if name == RECORDS else write.place
        if write.after is None:
            items.pop(place, None)
        else:
            values = plain(write.after.item).items()
            items[place] = {name: int(value) if isinstance(value, Decimal) else value for name, value in values}


class WireSimulation(Simulation):
    def __init__(self, seed: int, *options: Any, **more: Any) -> None:
        super().__init__(seed, *options, **more)
        self.wire = Wire(self, seed)
        kinds = self.plan.source("wire")
        if kinds.random() < 0.5:
            # Messages that come together, and whose handlers end together, share requests.
            self.plan.concurrency, self.plan.takes_seconds = 8, [0.0]
            for message in self.messages:
                message.visible_at = message.sent_at = 0.0
            history = self.queues[0].history
            history[:] = [replace(sent, at=0.0) for sent in history]
        self.plan.kinds = kinds.sample(list(wire_faults.FAULTS), kinds.randint(1, len(wire_faults.FAULTS)))

    def run(self) -> None:
        with patch.object(raw_requests, "_thread", GreenletLocal()):
            super().run()

    def counts(self) -> dict[str, int]:
        return super().counts() | {"sent": self.wire.requests}

    def _run(self, process: Process, *rest: Any) -> None:
        _sender.set((process, process.invocation))
        super()._run(process, *rest)


def _keys(request: dict[str, Any]) -> Sequence[Any]:
    """The keys that a request reads."""
    keys: Sequence[Any] = request.get("RequestItems", {}).get(RECORDS, {}).get("Keys", ())
    return keys


def _wait_in(world: World, random: Random, client: DynamoDBClient) -> None:
    """Let botocore's retries wait in the world's time, with jitter from this source."""
    handlers: Any = client.meta.events._emitter._handlers.prefix_search("needs-retry.dynamodb")  # type: ignore[attr-defined]
    (handler,) = [one.__self__ for one in handlers if isinstance(getattr(one, "__self__", None), RetryHandler)]
    backoff: ExponentialBackoff = handler._retry_policy._retry_backoff
    backoff._random = random.random
    delay = backoff.delay_amount

    def wait(context: Any) -> float:
        world.sleep(delay(context))
        return 0.0

    backoff.delay_amount = wait
