"""`effects="transaction"`: no claim, and each record is put together with its handler's effects."""

from __future__ import annotations

import json
import logging
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver import MemoryStore, Message, PermanentError, Transaction, current_claim, sqs_consumer
from idempotent_receiver.clock import SystemClock
from idempotent_receiver.protocol.record import Record, attributes
from idempotent_receiver.protocol.store import NotApplied, Unknown
from idempotent_receiver.testing.worker import SILENT, failed_ids
from tests.consumers import controlled
from tests.contexts import Context
from tests.counting_store import CountingStore
from tests.engines.faulty import faulty_dynamodb
from tests.simulation.world import FIFO, QUEUE, sqs_record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from idempotent_receiver.protocol.store import ActionFailed, Commit, Written

LATER = int(time.time()) + 86_400


@pytest.fixture
def store() -> CountingStore:
    return CountingStore(namespace=None)


def posted(store: MemoryStore) -> list[str]:
    return [item["id"] for item in store.tables["entries"].items.values()] if "entries" in store.tables else []


def post(body: dict, message: Message, tx: Transaction) -> str:
    tx.put(TableName="entries", Item={"id": message.id}, ConditionExpression="attribute_not_exists(id)")
    return "posted"


def deliver(store: Any, function: Callable[..., Any], *records: dict[str, Any], **options: Any) -> list[str]:
    """The ids that must be delivered again."""
    consumer = controlled(store, effects="transaction", logger=SILENT, metrics=SILENT, **options)(function)
    return failed_ids(consumer({"Records": list(records)}, Context()))


def there(store: MemoryStore, **fields: Any) -> Record:
    """A record that is in the table."""
    record = Record(**{"id": "m", "version": "theirs", "attempts": 1, "expiration": LATER, **fields})
    store.items["m"] = dict(attributes(record))
    return record


@pytest.mark.parametrize("queue", [QUEUE, FIFO])
def test_an_event_that_says_each_time_that_it_is_the_first_is_told_how_to_be_read(
    store: CountingStore, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As a test, the console or `sam local invoke` sends it, with a permanent failure behind it, or any in a group: it
    would fail for ever. SQS counts.
    """

    def refuse(body: dict, tx: Transaction) -> None:
        raise PermanentError("no")

    first, second = (sqs_record("m", receives=receives, queue=queue, group="g") for receives in (1, 2))
    assert deliver(store, refuse, first) == ["m"]

    consumer = sqs_consumer(store, effects="transaction", logger=logging.getLogger(), metrics=SILENT)(post)
    assert failed_ids(consumer({"Records": [first]}, Context())) == ["m"]
    (line,) = [line for line in caplog.records if vars(line).get("error_type") == "RecordChanged"]
    assert "in a handwritten event, set ApproximateReceiveCount to 2" in vars(line)["reason"]

    assert failed_ids(consumer({"Records": [second]}, Context())) == []
    assert posted(store) == ["m"]


class Hurried(SystemClock):
    """Pauses take no time."""

    def sleep(self, seconds: float) -> None: ...


# Set-up.


def test_a_function_without_a_transaction_is_refused_at_set_up() -> None:
    """What it does could not commit together with its record."""

    def charge(body: dict) -> None: ...

    with pytest.raises(TypeError, match=r"charge takes no Transaction, so effects='transaction' cannot apply"):
        sqs_consumer(MemoryStore(), effects="transaction")(charge)


@pytest.mark.parametrize("wrong", [None, "", "transactions", True])
def test_anything_else_is_refused_with_what_it_takes(wrong: Any) -> None:
    """As from a variable that is not set."""
    with pytest.raises(ValueError, match=r"effects must be 'any', or 'transaction'.*it is"):
        sqs_consumer(MemoryStore(), effects=wrong)


# What is asked of the store.


def test_first_deliveries_cost_one_request(store: CountingStore) -> None:
    """They run at once, and their records are put with their effects."""
    assert deliver(store, post, *[sqs_record(f"m{n}") for n in range(40)]) == []

    assert store.asked == ["commit"]
    assert len(posted(store)) == 40
    assert {item["status"] for item in store.items.values()} == {"COMPLETED"}
    assert store.items["m0"]["data"] == '"posted"'


def test_what_was_delivered_before_is_read_first(store: CountingStore) -> None:
    """What is done already costs one read."""
    deliver(store, post, sqs_record("m"))
    store.asked.clear()

    assert deliver(store, post, sqs_record("m", receives=2), sqs_record("new", receives=2)) == []

    assert store.asked == ["read", "commit"]
    assert posted(store) == ["m", "new"]


def test_what_is_not_started_asks_nothing(store: CountingStore) -> None:
    """There is no claim to release, and what is there stays."""
    before = there(store, status="FAILED")

    def work(body: dict, tx: Transaction) -> None:
        raise OSError

    failed = deliver(
        store,
        work,
        sqs_record("first", queue=FIFO, group="g"),
        sqs_record("m", receives=2, queue=FIFO, group="g"),
    )

    assert failed == ["first", "m"]
    assert store.asked == ["read", "insert"]
    assert store.items["m"] == attributes(before)


# What a commit meets.


@pytest.mark.parametrize(
    "fields",
    [
        {"status": "FAILED", "error": '{"permanent": true}'},
        {"status": "INPROGRESS", "in_progress_expiration": LATER * 1000},
        {"status": "COMPLETED", "validation": "another"},
        {"status": "UNKNOWN"},
    ],
)
def test_whatever_else_it_meets_stays_and_is_read_first_next_time(store: CountingStore, fields: dict[str, Any]) -> None:
    """What failed for good may have a dead letter, which must not be done after all."""
    before = there(store, **fields)

    assert deliver(store, post, sqs_record("m")) == ["m"]

    assert store.items["m"] == attributes(before)
    assert posted(store) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"status": "FAILED"},
        {"status": "INPROGRESS", "in_progress_expiration": 1},
        {"status": "INPROGRESS", "in_progress_expiration": 1, "version": None, "attempts": None},
        {"status": "COMPLETED", "expiration": 1},
    ],
)
def test_it_replaces_what_was_read_before(store: CountingStore, fields: dict[str, Any]) -> None:
    """Also what a worker with claims, or Powertools, has left."""
    there(store, **fields)

    assert deliver(store, post, sqs_record("m", receives=2)) == []

    assert store.items["m"]["status"] == "COMPLETED"
    assert "in_progress_expiration" not in store.items["m"]
    assert posted(store) == ["m"]


@pytest.mark.parametrize("meanwhile", [{"version": "newer"}, None])
def test_it_replaces_nothing_but_what_was_read(store: CountingStore, meanwhile: dict[str, Any] | None) -> None:
    """Nor does it bring back what has vanished."""
    there(store, status="FAILED")

    def change(name: str) -> None:
        if name == "commit" and meanwhile is None:
            del store.items["m"]
        elif name == "commit":
            store.items["m"] |= meanwhile or {}

    store.before = change

    assert deliver(store, post, sqs_record("m", receives=2)) == ["m"]

    assert store.items.get("m", {}).get("version") == (meanwhile or {}).get("version")
    assert posted(store) == []


def test_a_failure_never_replaces_what_is_done(store: CountingStore) -> None:
    """Nor is it dead-lettered: another worker has done it."""

    def refuse(body: dict, tx: Transaction) -> None:
        there(store, status="COMPLETED")
        raise PermanentError("no")

    assert deliver(store, refuse, sqs_record("m")) == []

    assert store.items["m"]["status"] == "COMPLETED"


def test_a_failure_is_put_or_replaces_what_was_read(store: CountingStore) -> None:
    """With one attempt more than the record that was read."""
    attempts: list[int] = []

    def fail(body: dict, tx: Transaction) -> None:
        attempts.append(current_claim().attempt)
        raise OSError

    for receives in (1, 2, 3):
        assert deliver(store, fail, sqs_record("m", receives=receives)) == ["m"]

    assert attempts == [1, 2, 3]
    assert (store.items["m"]["status"], store.items["m"]["attempts"]) == ("FAILED", 3)
    assert json.loads(store.items["m"]["error"])["type"] == "OSError"


def test_a_failed_condition_is_recorded_with_the_error_that_it_means(store: CountingStore) -> None:
    def overdraw(body: dict, tx: Transaction) -> None:
        condition = "attribute_exists(id)"
        error = PermanentError("overdrawn")
        tx.check(TableName="accounts", Key={"id": "none"}, ConditionExpression=condition, otherwise=error)

    assert deliver(store, overdraw, sqs_record("m")) == ["m"]

    assert json.loads(store.items["m"]["error"])["text"] == "overdrawn"
    assert store.asked == ["commit", "insert"]


# A store that does not answer.


def test_a_commit_whose_answer_was_lost_is_recognised_by_its_version(store: CountingStore) -> None:
    class Silent(CountingStore):
        def commit(self, commits: Sequence[Commit]) -> Sequence[Written | ActionFailed]:
            answers = super().commit(commits)
            return [Unknown("lost")] * len(commits) if self.asked.count("commit") == 1 else answers

    silent = Silent(namespace=None)

    assert deliver(silent, post, sqs_record("m")) == []

    assert silent.asked == ["commit", "read"]
    assert posted(silent) == ["m"]


@pytest.mark.parametrize(
    ("answer", "asked", "says"),
    [
        (Unknown("down"), 4, "the handler ran, but its outcome could not be recorded"),
        (NotApplied("throttled", True), 4, "the handler ran, but its outcome could not be recorded"),
        (NotApplied("conflict", True, True), 16, "failed, will be retried"),
    ],
)
def test_a_commit_that_is_never_answered_is_no_failure_of_the_message(
    answer: Any, asked: int, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing was done: it comes again, and no record says FAILED. Contention is no outage."""

    class Unanswering(CountingStore):
        def commit(self, commits: Sequence[Commit]) -> Sequence[Written | ActionFailed]:
            self.asked.append("commit")
            return [answer] * len(commits)

    store, log = Unanswering(namespace=None), logging.getLogger("test_effects")
    consumer = controlled(store, effects="transaction", logger=log, metrics=SILENT, clock=Hurried())(post)

    assert failed_ids(consumer({"Records": [sqs_record("m")]}, Context())) == ["m"]

    assert store.items == {}
    assert says in caplog.text
    assert store.asked.count("commit") == asked


@pytest.mark.parametrize(("size", "stops"), [(1_000, True), (1, False)])
def test_nothing_more_starts_either_if_the_failures_of_several_commits_cannot_be_recorded(
    size: int, stops: bool
) -> None:
    """As without a permission on the records. One alone may be at fault itself."""

    class Denied(CountingStore):
        def commit(self, commits: Sequence[Commit]) -> Sequence[Written | ActionFailed]:
            return self.insert([one.change.new for one in commits])

        def insert(self, records: Sequence[Record]) -> Sequence[Written]:
            return [NotApplied("access denied", retry=False)] * len(records)

    denied, started = Denied(namespace=None), []

    def count(body: dict, message: Message, tx: Transaction) -> None:
        started.append(message.id)
        time.sleep(0.001)
        post(body, message, tx)

    failed = deliver(denied, count, *[sqs_record(f"m{n}") for n in range(size)], sqs_record("last"))

    assert len(failed) == size + 1
    assert (len(started) < 400) is True if stops else started == ["m0", "last"]


@pytest.mark.slow
def test_messages_that_cannot_be_committed_stop_no_neighbour() -> None:
    """Two that write one item twice, which no transaction may, leave together: the store has not refused them."""

    def handle(body: dict, message: Message, tx: Transaction) -> None:
        if message.id == "m0":
            time.sleep(0.3)  # the first two do not wait so long for company
        for _ in range(2 if message.id.startswith("bad") else 1):
            post(body, message, tx)

    ids = ["bad-1", "bad-2", *(f"m{n}" for n in range(300))]

    assert deliver(CountingStore(namespace=None), handle, *[sqs_record(id) for id in ids]) == ["bad-1", "bad-2"]


def test_messages_whose_table_is_not_there_stop_no_neighbour() -> None:
    """They leave together and are refused without a word on whose fault it is; but their failures can be recorded. If
    they stopped those that begin later, a new kind of message without its table would take along the others.
    """

    class Missing(CountingStore):
        def commit(self, commits: Sequence[Commit]) -> Sequence[Written | ActionFailed]:
            bad = [one for one in commits if one.change.new.id.startswith("bad")]
            good = iter(super().commit([one for one in commits if one not in bad]))
            return [NotApplied("no such table", retry=False) if one in bad else next(good) for one in commits]

        def insert(self, records: Sequence[Record]) -> Sequence[Written]:
            refused.set()
            return super().insert(records)

    together, refused = threading.Barrier(2), threading.Event()

    def handle(body: dict, message: Message, tx: Transaction) -> None:
        post(body, message, tx)
        together.wait(10) if message.id.startswith("bad") else refused.wait(10)

    ids = ["bad-1", "bad-2", *(f"m{n}" for n in range(100))]
    failed = deliver(Missing(namespace=None), handle, *[sqs_record(id) for id in ids], concurrency=2)

    assert failed == ["bad-1", "bad-2"]


@pytest.mark.slow
def test_a_message_whose_item_is_throttled_stops_no_neighbour() -> None:
    with faulty_dynamodb() as (engine, faults):
        faults.answer = lambda sent: sent.naming({"of-busy": "ThrottlingError"})

        def handle(body: dict, message: Message, tx: Transaction) -> None:
            time.sleep(0.003)
            tx.put(TableName=engine.accounts, Item={"account": f"of-{message.id}"})

        records = [sqs_record("busy"), *[sqs_record(f"m{n}") for n in range(100)]]

        assert deliver(engine.store, handle, *records, clock=Hurried()) == ["busy"]
