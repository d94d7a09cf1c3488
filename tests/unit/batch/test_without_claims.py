"""Batches without claims: what is asked of the store, what a settlement may replace, and when nothing more starts."""

from __future__ import annotations

import json
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver import Message, Transaction
from idempotent_receiver.batch.turns import MOST_UNCOMMITTED
from idempotent_receiver.protocol.exchange import CLAIM_RETRIES
from idempotent_receiver.protocol.record import Record, Status, attributes
from idempotent_receiver.testing.worker import SILENT, failed_ids
from tests.consumers import controlled
from tests.contexts import Context
from tests.counting_store import CountingStore
from tests.manual_clock import START_MS, ManualClock
from tests.simulation.world import FIFO, sqs_record
from tests.unit.batch.at_once import AtOnce

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from idempotent_receiver.protocol.store import ActionFailed, Commit, Written

    Handle = Callable[[dict, Message, Transaction], object]

MONTH_SECONDS = 30 * 24 * 60 * 60


class Deliveries:
    """A consumer without claims over a store that counts: whose handlers ran, and as which attempts."""

    def __init__(self, store: CountingStore, handle: Handle, **options: Any) -> None:
        self.clock = ManualClock()
        self.ran: list[tuple[str, int]] = []

        def recorded(body: dict, message: Message, tx: Transaction) -> object:
            self.ran.append((message.id, message.attempt))
            return handle(body, message, tx)

        wrap = controlled(store, effects="transaction", clock=self.clock, metrics=SILENT, executor=AtOnce, **options)
        self._consumer = wrap(recorded)

    def __call__(self, *records: dict[str, Any], seconds: float = 30.0) -> list[str]:
        """The messages of one invocation that failed."""
        return failed_ids(self._consumer({"Records": list(records)}, Context(self.clock, seconds)))


def posting(body: dict, message: Message, tx: Transaction) -> str:
    tx.update(
        TableName="Accounts",
        Key={"id": body.get("account", message.id)},
        UpdateExpression="ADD balance :one",
        ExpressionAttributeValues={":one": 1},
    )
    return "posted"


def idle(body: dict, message: Message, tx: Transaction) -> None: ...


def failing(body: dict, message: Message, tx: Transaction) -> None:
    posting(body, message, tx)
    raise RuntimeError


def balances(store: CountingStore) -> dict[object, object]:
    accounts = store.tables.get("Accounts")
    return {} if accounts is None else {item["id"]: item["balance"] for item in accounts.items.values()}


@pytest.fixture
def store() -> CountingStore:
    return CountingStore(namespace=None)


def left_by_another(store: CountingStore, status: Status, *, attempts: int = 1, version: str = "theirs") -> None:
    """What another worker has left of message 1."""
    twin = CountingStore(namespace=None)
    Deliveries(twin, posting)(sqs_record("1"))
    fingerprint = twin.items["1"]["validation"]
    record = Record(
        id="1",
        status=status.value,
        version=version,
        expiration=START_MS // 1000 + MONTH_SECONDS,
        attempts=attempts,
        validation=fingerprint,
        owner="another",
        error=json.dumps({"type": "RuntimeError"}) if status is Status.FAILED else None,
    )
    store.items["1"] = attributes(record)


# What is asked.


def test_what_was_delivered_before_is_read_first_and_what_is_done_does_not_run(store: CountingStore) -> None:
    left_by_another(store, Status.COMPLETED)
    deliver = Deliveries(store, posting)

    assert deliver(sqs_record("1", receives=2)) == []

    assert store.asked == ["read"]
    assert deliver.ran == []


def test_an_empty_transaction_is_recorded_by_a_plain_insert(store: CountingStore) -> None:
    """Otherwise the message would run each time it is delivered, and would be acknowledged with no record."""
    deliver = Deliveries(store, idle)

    assert deliver(sqs_record("1")) == []
    assert deliver(sqs_record("1", receives=2)) == []

    assert store.asked == ["insert", "read"]
    assert store.items["1"]["status"] == "COMPLETED"
    assert deliver.ran == [("1", 1)]


def test_what_has_not_started_is_released_without_a_request(store: CountingStore) -> None:
    """There is no claim to release, and a record would make the next delivery wait for nothing."""

    def handle(body: dict, message: Message, tx: Transaction) -> None:
        deliver.clock.sleep(20.0)
        posting(body, message, tx)

    deliver = Deliveries(store, handle)

    assert deliver(sqs_record("1"), sqs_record("2")) == ["2"]

    assert store.asked == ["commit"]
    assert set(store.items) == {"1"}


@pytest.mark.parametrize("status", [Status.FAILED, Status.INPROGRESS])
def test_an_attempt_is_one_more_than_the_record_says_that_was_read(store: CountingStore, status: Status) -> None:
    left_by_another(store, status, attempts=3)
    store.items["1"] |= {"in_progress_expiration": START_MS - 1} if status is Status.INPROGRESS else {}
    deliver = Deliveries(store, posting)

    assert deliver(sqs_record("1", receives=2)) == []

    assert deliver.ran == [("1", 4)]
    assert store.items["1"]["attempts"] == 4


# What a settlement may replace.


def test_a_first_commit_that_finds_a_record_is_done_if_that_is() -> None:
    store = CountingStore(namespace=None)
    left_by_another(store, Status.COMPLETED)
    before = dict(store.items["1"])
    deliver = Deliveries(store, posting)

    assert deliver(sqs_record("1")) == []

    assert deliver.ran == [("1", 1)]
    assert store.items["1"] == before
    assert balances(store) == {}


EXPIRED = {"expiration": START_MS // 1000 - 1}


@pytest.mark.parametrize(
    ("status", "found", "attempt"),
    [
        (Status.FAILED, {}, 4),
        (Status.INPROGRESS, {"in_progress_expiration": START_MS - 1}, 4),
        (Status.COMPLETED, EXPIRED, 1),
        (Status.FAILED, {**EXPIRED, "error": json.dumps({"permanent": True})}, 1),
    ],
)
def test_a_first_delivery_that_meets_what_a_redelivery_might_replace_runs_once_more_over_it(
    store: CountingStore, status: Status, found: dict[str, Any], attempt: int
) -> None:
    """S61: `sam local invoke` and the console's button deliver the same event as a first delivery each time."""
    left_by_another(store, status, attempts=3)
    store.items["1"] |= found
    deliver = Deliveries(store, posting)

    assert deliver(sqs_record("1")) == []

    assert deliver.ran == [("1", 1), ("1", attempt)]
    assert (store.items["1"]["status"], store.items["1"]["attempts"]) == ("COMPLETED", attempt)
    assert balances(store) == {"1": 1}


def test_one_event_twice_as_a_first_delivery_takes_effect_once_its_cause_is_gone(store: CountingStore) -> None:
    assert Deliveries(store, failing)(sqs_record("1")) == ["1"]
    deliver = Deliveries(store, posting)

    assert deliver(sqs_record("1")) == []
    assert deliver(sqs_record("1")) == []

    assert balances(store) == {"1": 1}


def test_an_empty_transaction_that_meets_a_failure_runs_once_more_too(store: CountingStore) -> None:
    left_by_another(store, Status.FAILED)
    deliver = Deliveries(store, idle)

    assert deliver(sqs_record("1")) == []

    assert deliver.ran == [("1", 1), ("1", 2)]
    assert store.items["1"]["status"] == "COMPLETED"


LIVE = {"in_progress_expiration": START_MS + 9_000}
FOR_GOOD = {"error": json.dumps({"type": "PermanentError", "permanent": True})}


@pytest.mark.parametrize(
    ("status", "found"),
    [(Status.INPROGRESS, LIVE), (Status.FAILED, FOR_GOOD), (Status.FAILED, {"validation": "another payload's"})],
)
def test_over_what_a_redelivery_may_not_replace_and_a_failure_for_good_nothing_runs_again(
    store: CountingStore, status: Status, found: dict[str, Any]
) -> None:
    """Behind a failure for good there may be a dead letter, which must not be done after all."""
    left_by_another(store, status)
    store.items["1"] |= found
    before = dict(store.items["1"])
    deliver = Deliveries(store, posting)

    assert deliver(sqs_record("1")) == ["1"]

    assert deliver.ran == [("1", 1)]
    assert store.items["1"] == before
    assert balances(store) == {}


def test_in_a_group_nothing_runs_once_more(store: CountingStore) -> None:
    """What follows it may have gone on elsewhere, behind its failure."""
    left_by_another(store, Status.FAILED)
    deliver = Deliveries(store, posting)

    assert deliver(sqs_record("1", queue=FIFO, group="g")) == ["1"]

    assert deliver.ran == [("1", 1)]


def test_it_runs_once_more_and_no_more_than_once(store: CountingStore) -> None:
    left_by_another(store, Status.FAILED)

    def handle(body: dict, message: Message, tx: Transaction) -> None:
        posting(body, message, tx)
        left_by_another(store, Status.FAILED, version=f"newer than of {message.attempt}")

    deliver = Deliveries(store, handle)

    assert deliver(sqs_record("1")) == ["1"]

    assert deliver.ran == [("1", 1), ("1", 2)]
    assert balances(store) == {}


def test_a_commit_that_was_in_doubt_does_not_run_once_more(store: CountingStore) -> None:
    """Its request may be under way still: the next delivery decides."""

    def loses_a_commit(name: str) -> None:
        if name == "commit":
            left_by_another(store, Status.FAILED)
            store.down = {"commit"}
        else:
            store.down = set()

    store.before = loses_a_commit
    deliver = Deliveries(store, posting)

    assert deliver(sqs_record("1")) == ["1"]

    assert deliver.ran == [("1", 1)]
    assert balances(store) == {}


def test_without_time_for_it_a_message_does_not_run_once_more(store: CountingStore) -> None:
    left_by_another(store, Status.FAILED)

    def handle(body: dict, message: Message, tx: Transaction) -> None:
        deliver.clock.sleep(20.0)
        posting(body, message, tx)

    deliver = Deliveries(store, handle)

    assert deliver(sqs_record("1")) == ["1"]

    assert deliver.ran == [("1", 1)]


def test_what_meets_a_live_claim_comes_again_when_that_ends_and_another_payload_s_record_is_a_mismatch(
    store: CountingStore, caplog: pytest.LogCaptureFixture
) -> None:
    """As a redelivery is told, at once."""
    left_by_another(store, Status.INPROGRESS)
    store.items["1"] |= LIVE
    store.items["2"] = store.items["1"] | {"id": "2", "status": "FAILED", "validation": "another payload's"}
    log = logging.getLogger("consumer")
    log.setLevel(logging.DEBUG)

    Deliveries(store, posting, logger=log)(sqs_record("1"), sqs_record("2"))

    told = {record.message_id: record for record in caplog.records if hasattr(record, "message_id")}
    assert told["1"].lease_until_ms == START_MS + 9_000
    assert told["2"].error_type == "FingerprintMismatch"


@pytest.mark.parametrize("status", [Status.COMPLETED, Status.FAILED])
def test_a_commit_replaces_only_the_version_that_was_read(store: CountingStore, status: Status) -> None:
    """Another worker has settled while the handler ran."""
    left_by_another(store, Status.FAILED, version="read")

    def handle(body: dict, message: Message, tx: Transaction) -> None:
        posting(body, message, tx)
        left_by_another(store, status, version="newer")

    deliver = Deliveries(store, handle)

    assert deliver(sqs_record("1", receives=2)) == ([] if status is Status.COMPLETED else ["1"])

    assert (store.items["1"]["status"], store.items["1"]["version"]) == (status, "newer")
    assert balances(store) == {}


@pytest.mark.parametrize("receives", [1, 2])
def test_the_failure_of_a_run_leaves_what_another_has_completed_meanwhile(store: CountingStore, receives: int) -> None:
    """And the message is a success."""

    def handle(body: dict, message: Message, tx: Transaction) -> None:
        left_by_another(store, Status.COMPLETED)
        raise RuntimeError

    deliver = Deliveries(store, handle)

    assert deliver(sqs_record("1", receives=receives)) == []

    assert (store.items["1"]["status"], store.items["1"]["version"]) == ("COMPLETED", "theirs")


def test_a_failure_is_recorded_in_place_of_what_was_read(store: CountingStore) -> None:
    deliver = Deliveries(store, failing)

    assert deliver(sqs_record("1")) == ["1"]
    assert deliver(sqs_record("1", receives=2)) == ["1"]

    assert store.asked == ["insert", "read", "replace"]
    assert (store.items["1"]["status"], store.items["1"]["attempts"]) == ("FAILED", 2)


# When nothing leaves, and nothing starts.


class Busy(CountingStore):
    """A store that notes how many of the transactions on one account were under way at once."""

    def __init__(self) -> None:
        super().__init__(namespace=None)
        self.commits: list[int] = []

    def commit(self, commits: Sequence[Commit]) -> Sequence[Written | ActionFailed]:
        accounts = [action.arguments["Key"]["id"] for commit in commits for action in commit.actions]
        self.commits.append(len(accounts))
        assert len(set(accounts)) == len(accounts)
        return super().commit(commits)


def test_transactions_on_one_item_leave_one_after_the_other_and_all_others_together() -> None:
    """Two on one item would conflict; DynamoDB would refuse a request with both."""
    store = Busy()
    hot = partial(sqs_record, body='{"account":"hot"}')

    assert Deliveries(store, posting)(*[hot(f"h{n}") for n in range(4)], *[sqs_record(f"c{n}") for n in range(4)]) == []

    assert sorted(store.commits) == [1, 1, 1, 5]
    assert balances(store) == {"hot": 4, "c0": 1, "c1": 1, "c2": 1, "c3": 1}


def test_after_a_commit_that_the_store_did_not_answer_nothing_more_starts(store: CountingStore) -> None:
    """What has run would run again, and what has not had better wait until the store is back."""
    store.down = {"commit", "insert"}
    records = [sqs_record(str(number)) for number in range(MOST_UNCOMMITTED + 10)]
    deliver = Deliveries(store, posting)

    assert sorted(deliver(*records)) == sorted(record["messageId"] for record in records)

    assert len(deliver.ran) == MOST_UNCOMMITTED
    assert store.items == {}


def test_a_commit_is_sent_again_three_times_and_not_until_the_deadline(store: CountingStore) -> None:
    """Nothing is done yet that would have to be recorded: the message had better come again."""
    store.down = {"commit", "insert"}
    deliver = Deliveries(store, posting)

    assert deliver(sqs_record("1")) == ["1"]

    assert store.asked.count("commit") == 1 + CLAIM_RETRIES
    assert deliver.clock.seconds < 5
