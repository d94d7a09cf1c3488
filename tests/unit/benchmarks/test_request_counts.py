"""What a batch costs in DynamoDB, exactly: requests, write units and read units, on the virtual clock.

The shipped store and a real client run against the benchmark's tables, which bill by AWS's rule; half a round trip
passes before each request takes effect, and half after.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.idempotency import (
    DynamoDBPersistenceLayer,
    IdempotencyConfig,
    idempotent_function,
)
from botocore.config import Config

from benchmarks.settings import Context, event, redelivered
from idempotent_receiver import DynamoDBStore, Transaction
from idempotent_receiver.testing.world import World
from local.dynamodb.in_process import answered, client_of
from local.dynamodb.tables import Tables
from local.dynamodb.units import Work, item_bytes, units
from tests.simulation.world import Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.settings import Event
    from local.dynamodb.tables import Bill

HALF_A_ROUND_TRIP_SECONDS = 0.0025


class Network:
    """A real client whose requests go to tables in this process; `wait` is called before one takes effect and after."""

    def __init__(self, wait: Callable[[], None] = lambda: None) -> None:
        self.tables = Tables()
        self._wait = wait
        self.client = client_of(self._answer, Config(retries={"total_max_attempts": 1}))
        for name, key in (("records", "id"), ("entries", "account")):
            self.tables.execute("CreateTable", {"TableName": name, "KeySchema": [{"AttributeName": key}]})
        self.forget()

    @property
    def bill(self) -> Bill:
        return self.tables.bill

    @property
    def asked(self) -> tuple[int, float, float]:
        """Requests, write units, read units."""
        return sum(self.bill.requests.values()), self.bill.write_units, self.bill.read_units

    def forget(self) -> None:
        """Reset the counts."""
        self.tables.bill = type(self.tables.bill)()

    def _answer(self, operation: str, body: bytes) -> tuple[int, bytes]:
        self._wait()
        answer = answered(self.tables, operation, body)
        self._wait()
        return answer


class Consumer:
    """The library's consumer, in a world of virtual time."""

    def __init__(self, function: Callable[..., Any] | None = None, **options: Any) -> None:
        self.world = World()
        self.network = Network(lambda: self.world.sleep(HALF_A_ROUND_TRIP_SECONDS))
        self.worker = Worker(
            self.world, DynamoDBStore("records", client=self.network.client), function or post, **options
        )

    def receive(self, batch: Event) -> tuple[int, float, float]:
        """Handle a batch to its end, and return its requests and units."""
        self.network.forget()
        self.worker.deliver(*batch["Records"], seconds=900.0)
        self.world.run()
        assert self.worker.answers.pop() == []
        return self.network.asked


def post(transfer: dict) -> dict[str, str]:  # type: ignore[type-arg]  # the library asks for `dict` as such
    return {"posted": transfer["transfer_id"]}


def post_with_entry(transfer: dict, tx: Transaction) -> dict[str, str]:  # type: ignore[type-arg]  # likewise
    tx.put(TableName="entries", Item={"account": transfer["transfer_id"], "amount": transfer["amount"]})
    return {"posted": transfer["transfer_id"]}


for _function in (post, post_with_entry):
    _function.__annotations__ |= {"transfer": dict}
post_with_entry.__annotations__["tx"] = Transaction


class Powertools:
    """Powertools, with tables of its own."""

    def __init__(self) -> None:
        self.network = Network()
        self._processor = BatchProcessor(event_type=EventType.SQS)
        self._config = IdempotencyConfig(event_key_jmespath="messageId")
        layer = DynamoDBPersistenceLayer(table_name="records", boto3_client=self.network.client)

        def handle(record: Any) -> dict[str, str]:
            return {"posted": record.json_body["transfer_id"]}

        self._handle = idempotent_function(
            handle, data_keyword_argument="record", config=self._config, persistence_store=layer
        )

    def receive(self, batch: Event) -> tuple[int, float, float]:
        self.network.forget()
        self._config.register_lambda_context(Context())  # type: ignore[arg-type]  # as much of it as is asked for
        answer = process_partial_response(
            event=batch,
            record_handler=lambda record: self._handle(record=record),
            processor=self._processor,
            context=Context(),  # type: ignore[arg-type]  # likewise
        )
        assert answer == {"batchItemFailures": []}
        return self.network.asked


@pytest.mark.parametrize("messages", [1, 2, 10, 25, 26, 99, 100, 1_000])
def test_fresh_messages_cost_a_request_for_25_claims_and_one_for_25_settlements(messages: int) -> None:
    """Any n fresh messages with instant handlers take ceil(n/25) requests to claim and as many to settle, and two
    write units each.
    """
    chunks = -(-messages // 25)

    assert Consumer().receive(event(messages)) == (2 * chunks, 2.0 * messages, 0.0)


@pytest.mark.parametrize("messages", [1, 10, 100, 101, 1_000])
def test_redelivered_messages_cost_a_read_and_no_write(messages: int) -> None:
    """Any n redelivered messages that are completed take ceil(n/100) requests and a read unit each, and no write."""
    consumer, first = Consumer(), event(messages)
    consumer.receive(first)

    assert consumer.receive(redelivered(first, event(0))) == (-(-messages // 100), 0.0, float(messages))


@pytest.mark.parametrize(("known", "asked"), [(0, (8, 200.0, 0.0)), (50, (5, 100.0, 50.0)), (100, (1, 0.0, 100.0))])
def test_no_more_writes_than_powertools(known: int, asked: tuple[int, float, float]) -> None:
    """At every share of redelivered messages, a hundred cost exactly this, and no more write units than Powertools'."""
    first, fresh = event(known), event(100 - known)
    ours, theirs = Consumer(), Powertools()
    for one in (ours, theirs):
        if known:
            one.receive(first)

    assert ours.receive(redelivered(first, fresh)) == asked
    assert asked[1] <= theirs.receive(redelivered(first, fresh))[1]


@pytest.mark.parametrize("known", [50, 100])
def test_a_duplicate_that_looks_new_costs_no_more_writes_than_powertools(known: int) -> None:
    """A completed message that SQS counts as a first receive costs a refused insert, billed as a write."""
    first, fresh = event(known), event(100 - known)
    batch = {"Records": first["Records"] + fresh["Records"]}
    ours, theirs = Consumer(), Powertools()
    for one in (ours, theirs):
        one.receive(first)

    _, written, read = ours.receive(batch)

    assert (written, read) == (known + 2.0 * (100 - known), float(known))
    assert written <= theirs.receive(batch)[1]


@pytest.mark.parametrize(("effects", "requests", "units"), [("any", 4 + 2, 1 + 2 + 2), ("transaction", 2, 2 + 2)])
def test_fifty_transactions_share_a_request_and_cost_double_units(effects: str, requests: int, units: int) -> None:
    """A hundred handlers with a write of their own: a claim each, if asked for, then record and entry."""
    consumer = Consumer(post_with_entry, effects=effects)

    assert consumer.receive(event(100)) == (requests, 100.0 * units, 0.0)


def test_a_large_result_costs_no_more() -> None:
    """A result that would take the record past its first kilobyte is replaced by a marker and costs one unit."""

    def report(transfer: dict) -> str:  # type: ignore[type-arg]  # the library asks for `dict` as such
        return "x" * 5_000

    report.__annotations__["transfer"] = dict

    assert Consumer(report).receive(event(25)) == (2, 50.0, 0.0)


def test_slow_handlers_share_what_ends_together() -> None:
    """Eight handlers that end together are settled together: 40 messages take no more than 2 + 5 requests."""
    consumer: Consumer

    def wait(transfer: dict) -> None:  # type: ignore[type-arg]  # the library asks for `dict` as such
        consumer.world.sleep(0.02)

    wait.__annotations__["transfer"] = dict
    consumer = Consumer(wait, concurrency=8)

    requests, written, read = consumer.receive(event(40))

    assert (written, read) == (80.0, 0.0)
    assert requests <= 2 + 5


@pytest.mark.parametrize(
    ("work", "size", "billed"),
    [
        (Work.WRITE, 0, 1.0),
        (Work.WRITE, 1024, 1.0),
        (Work.WRITE, 1025, 2.0),
        (Work.TRANSACTED_WRITE, 1024, 2.0),
        (Work.CONSISTENT_READ, 0, 1.0),
        (Work.CONSISTENT_READ, 4097, 2.0),
        (Work.EVENTUAL_READ, 4096, 0.5),
        (Work.TRANSACTED_READ, 4096, 2.0),
    ],
)
def test_units_by_the_rule(work: Work, size: int, billed: float) -> None:
    """A write is billed in steps of 1 KB, a read in steps of 4 KB, and what is not there as the smallest item."""
    assert units(work, size) == billed


@pytest.mark.parametrize(
    ("item", "size"),
    [
        ({"id": {"S": "größe"}}, 2 + 7),
        ({"n": {"N": "1800000000"}}, 1 + 2),
        ({"n": {"N": "-12.5"}}, 1 + 4),
        ({"b": {"B": "AAAA"}}, 1 + 3),
        ({"t": {"BOOL": True}, "u": {"NULL": True}}, 2 + 2),
        ({"l": {"L": [{"S": "ab"}]}}, 1 + 3 + 1 + 2),
        ({"m": {"M": {"k": {"S": "ab"}}}}, 1 + 3 + 1 + 1 + 2),
        ({"s": {"SS": ["ab", "c"]}}, 1 + 3),
    ],
)
def test_sizes_by_the_rule(item: dict[str, dict[str, Any]], size: int) -> None:
    """An item's size is that of its names and values; a number takes a byte for two significant digits and one more."""
    assert item_bytes(item) == size
