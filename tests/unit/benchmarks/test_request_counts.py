"""What a batch costs in DynamoDB, exactly: requests, write units and read units, on the virtual clock.

The shipped store and a real client run against the benchmark's tables, which bill by AWS's rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.idempotency import DynamoDBPersistenceLayer, IdempotencyConfig, idempotent_function
from botocore.config import Config

from benchmarks.settings import Context, event, redelivered
from harness.dynamodb.in_process import answered, client_of
from harness.dynamodb.tables import Tables
from harness.dynamodb.units import Work, item_bytes, units
from idempotent_receiver import DynamoDBStore, Message, Transaction
from idempotent_receiver.testing.world import World
from tests.simulation.world import Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.settings import Event

HALF_A_ROUND_TRIP_SECONDS = 0.0025
"""It passes before a request takes effect, and again after."""


class Network:
    """A client whose requests go to tables in this process; `wait` is called before one takes effect and after."""

    def __init__(self, wait: Callable[[], None] = lambda: None) -> None:
        self.tables = Tables()
        self._wait = wait
        self.client = client_of(self._answer, Config(retries={"total_max_attempts": 1}))
        for name, key in (("records", "id"), ("entries", "account")):
            self.tables.execute("CreateTable", {"TableName": name, "KeySchema": [{"AttributeName": key}]})

    def asked(self) -> tuple[int, float, float]:
        """Requests, write units and read units since the last call."""
        bill, self.tables.bill = self.tables.bill, type(self.tables.bill)()
        return sum(bill.requests.values()), bill.write_units, bill.read_units

    def _answer(self, operation: str, body: bytes) -> tuple[int, bytes]:
        self._wait()
        answer = answered(self.tables, operation, body)
        self._wait()
        return answer


def post(transfer: dict) -> dict[str, str]:  # type: ignore[type-arg]  # what users write
    return {"posted": transfer["transfer_id"]}


def post_with_entry(transfer: dict, tx: Transaction) -> dict[str, str]:  # type: ignore[type-arg]  # likewise
    tx.put(TableName="entries", Item={"account": transfer["transfer_id"], "amount": transfer["amount"]})
    return {"posted": transfer["transfer_id"]}


def post_with_two(transfer: dict, tx: Transaction) -> dict[str, str]:  # type: ignore[type-arg]  # likewise
    tx.put(TableName="entries", Item={"account": f"{transfer['transfer_id']}-to", "amount": transfer["amount"]})
    return post_with_entry(transfer, tx)


class Consumer:
    """The library's consumer, in a world of virtual time."""

    def __init__(self, function: Callable[..., Any] = post, **options: Any) -> None:
        self.world = World()
        self.network = Network(lambda: self.world.sleep(HALF_A_ROUND_TRIP_SECONDS))
        store = DynamoDBStore("records", client=self.network.client)
        self.worker = Worker(self.world, store, function, **options)

    def receive(self, batch: Event, *, failed: int = 0) -> tuple[int, float, float]:
        """Handle a batch to its end, of which so many fail, and return its requests and units."""
        self.network.asked()
        self.worker.deliver(*batch["Records"], seconds=900.0)
        self.world.run()
        assert len(self.worker.answers.pop()) == failed
        return self.network.asked()


class Powertools:
    """Powertools, with tables of its own."""

    def __init__(self) -> None:
        self.network = Network()
        self._processor = BatchProcessor(event_type=EventType.SQS)
        self._config = IdempotencyConfig(event_key_jmespath="messageId")
        layer = DynamoDBPersistenceLayer(table_name="records", boto3_client=self.network.client)
        options: Any = {"data_keyword_argument": "record", "config": self._config, "persistence_store": layer}
        self._handle = idempotent_function(lambda record: post(record.json_body), **options)

    def receive(self, batch: Event) -> tuple[int, float, float]:
        self.network.asked()
        context: Any = Context()
        self._config.register_lambda_context(context)
        answer = process_partial_response(batch, lambda record: self._handle(record=record), self._processor, context)
        assert answer == {"batchItemFailures": []}
        return self.network.asked()


@pytest.mark.parametrize("messages", [1, 10, 25, 26, 100, 1_000])
def test_fresh_messages_cost_a_request_for_25_claims_and_one_for_25_settlements(messages: int) -> None:
    """And two write units each. A redelivered one that is completed costs a read unit, a hundred of them a request."""
    consumer, first = Consumer(), event(messages)

    assert consumer.receive(first) == (2 * -(-messages // 25), 2.0 * messages, 0.0)
    assert consumer.receive(redelivered(first, event(0))) == (-(-messages // 100), 0.0, float(messages))


@pytest.mark.parametrize(
    ("known", "looks_new", "asked"),
    [(0, False, (8, 200.0, 0.0)), (50, False, (5, 100.0, 50.0)), (100, False, (1, 0.0, 100.0)),
     (50, True, (8, 150.0, 50.0)), (100, True, (8, 100.0, 100.0))],
)  # fmt: skip
def test_no_more_writes_than_powertools(known: int, looks_new: bool, asked: tuple[int, float, float]) -> None:
    """At every share of completed messages. Where SQS counts a first receive, the refused insert is billed."""
    first, fresh = event(known), event(100 - known)
    batch = {"Records": first["Records"] + fresh["Records"]} if looks_new else redelivered(first, fresh)
    ours, theirs = Consumer(), Powertools()
    for one in (ours, theirs):
        if known:
            one.receive(first)

    assert ours.receive(batch) == asked
    assert asked[1] <= theirs.receive(batch)[1]


@pytest.mark.parametrize(
    ("post", "messages", "effects", "requests", "units"),
    [(post_with_entry, 100, "any", 4 + 2, 1 + 2 + 2), (post_with_entry, 100, "transaction", 2, 2 + 2),
     (post_with_two, 33, "any", 2 + 1, 1 + 2 + 4), (post_with_two, 34, "any", 2 + 2, 1 + 2 + 4),
     (post_with_two, 100, "transaction", 4, 2 + 4)],
)  # fmt: skip
def test_transactions_share_a_request_of_100_writes_and_cost_double_units(
    post: Callable[..., Any], messages: int, effects: str, requests: int, units: int
) -> None:
    """Handlers with writes of their own: a claim each, if asked for, then record and entries."""
    assert Consumer(post, effects=effects).receive(event(messages)) == (requests, float(units * messages), 0.0)


def test_a_failure_costs_what_a_success_does_and_its_next_attempt_a_read_more() -> None:
    def fail_at_first(transfer: dict, message: Message) -> None:  # type: ignore[type-arg]  # likewise
        if message.attempt == 1:
            raise ConnectionError

    consumer, first = Consumer(fail_at_first), event(10)

    assert consumer.receive(first, failed=10) == (2, 20.0, 0.0)
    assert consumer.receive(redelivered(first, event(0))) == (3, 20.0, 10.0)


def test_a_new_message_with_a_key_that_is_done_costs_its_refused_insert_alone() -> None:
    """DynamoDB says what a single one has met; of a batch it is read."""
    consumer, first = Consumer(), event(1)
    consumer.receive(first)

    assert consumer.receive(first) == (1, 1.0, 0.0)


def test_a_large_result_costs_no_more() -> None:
    """A result that would take the record past its first kilobyte is replaced by a marker and costs one unit."""

    def report(transfer: dict) -> str:  # type: ignore[type-arg]  # likewise
        return "x" * 5_000

    assert Consumer(report).receive(event(25)) == (2, 50.0, 0.0)


def test_slow_handlers_share_what_ends_together() -> None:
    """Eight handlers that end together are settled together: 40 messages take no more than 2 + 5 requests."""

    def wait(transfer: dict) -> None:  # type: ignore[type-arg]  # likewise
        consumer.world.sleep(0.02)

    consumer = Consumer(wait, concurrency=8)

    requests, *billed = consumer.receive(event(40))

    assert (requests <= 2 + 5, billed) == (True, [80.0, 0.0])


def test_units_and_sizes_by_the_rule() -> None:
    """A write is billed in steps of 1 KB, a read in steps of 4 KB; a number has a byte for two digits and one more."""
    assert [units(Work.WRITE, size) for size in (0, 1024, 1025)] == [1.0, 1.0, 2.0]
    assert (units(Work.TRANSACTED_WRITE, 1024), units(Work.TRANSACTED_READ, 4096)) == (2.0, 2.0)
    assert [units(Work.CONSISTENT_READ, size) for size in (0, 4097)] == [1.0, 2.0]
    assert item_bytes({"id": {"S": "größe"}, "n": {"N": "1800000000"}, "m": {"N": "-12.5"}}) == 2 + 7 + 1 + 2 + 1 + 4
    assert item_bytes({"b": {"B": "AAAA"}, "t": {"BOOL": True}, "s": {"SS": ["ab", "c"]}}) == 1 + 3 + 2 + 1 + 3
    assert item_bytes({"l": {"L": [{"S": "ab"}]}, "m": {"M": {"k": {"S": "ab"}}}}) == 1 + 3 + 1 + 2 + 1 + 3 + 1 + 1 + 2
