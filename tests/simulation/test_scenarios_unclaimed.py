"""What happens to messages whose handlers run without a claim, by `effects="transaction"`: each takes effect once.

Two workers may run one message (S27 and the first rules of a scenario do not hold), and one of them commits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from typing_extensions import TypedDict

from idempotent_receiver import Message, PermanentError, Transaction, body_field
from idempotent_receiver.protocol.store import NotApplied
from idempotent_receiver.sqs.visibility import Backoff
from tests.simulation.faults import delivered_later, denied, lost_request, partly
from tests.simulation.scenario import Reported, Scenario, add_one, batch, ids, under
from tests.simulation.world import DEAD_LETTERS, FIFO, sqs_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.faults import Call

DAY = 24 * 60 * 60


def overdrawing(error: BaseException | None) -> Callable[..., None]:
    """A handler whose transaction finds its first message's account overdrawn."""

    def handle(body: dict, message: Message, tx: Transaction) -> None:
        add_one(tx, message.id)
        if message.id == "0":
            condition = "attribute_exists(id)"
            tx.check(TableName="Accounts", Key={"id": "none"}, ConditionExpression=condition, otherwise=error)

    return handle


@pytest.fixture
def scenario() -> Scenario:
    return Scenario(effects="transaction")


@pytest.fixture
def by_key() -> Scenario:
    return Scenario(namespace="n", effects="transaction", key=body_field("k"))


def once(count: int) -> dict[str, int]:
    return dict.fromkeys(ids(count), 1)


class Amount(TypedDict):
    k: str
    amount: int


class Always(Backoff):
    """A backoff that tells what it is for by its length."""

    def seconds(self, *facts: object) -> int:
        return 20

    def outage_seconds(self, *facts: object) -> int:
        return 30


# One worker, and what the store does.


def test_a_first_delivery_runs_without_a_request_before_it(scenario: Scenario) -> None:
    before: list[Any] = []

    def handle(body: dict, message: Message, tx: Transaction) -> None:
        before.append(scenario.requests())
        add_one(tx, message.id)

    assert scenario.answer(handle, *batch(3)) == []
    assert before == [[]] * 3
    assert scenario.requests() == [("commit", 3)]
    assert scenario.times == once(3)


def test_of_several_commits_in_a_call_each_has_its_own_answer(scenario: Scenario) -> None:
    """S24 and S32: what was throttled, or met another's transaction, goes again; the others are done."""
    in_the_way = NotApplied("another transaction is in the way", retry=True, contended=True)

    def some(call: Call) -> Any:
        return partly(*[number % 3 == 0 for number in range(call.size)], otherwise=in_the_way)(call)

    def none(call: Call) -> Any:
        return [in_the_way] * call.size

    scenario.store.next("commit", *[none] * 8, some)

    assert scenario.answer(scenario.taking(), *batch(6)) == []
    assert len(scenario.runs) == 6
    assert scenario.times == once(6)


# A store that stays away.


def test_after_a_commit_that_is_not_answered_nothing_more_starts_and_all_come_again_after_a_backoff(
    scenario: Scenario,
) -> None:
    """S28: of the second batch, only what had started before the first answer failed to come."""
    scenario.store.down()

    assert len(scenario.answer(scenario.taking(0.05), *batch(100), seconds=60, queue_client=True)) == 100
    assert 0 < len(scenario.runs) < 20
    assert scenario.world.now < 2
    assert len(scenario.sqs.visibilities) == 100
    assert sum(seconds > 0 for seconds in scenario.sqs.visibilities.values()) > 90
    assert scenario.times == {}


def test_what_turns_out_to_be_free_after_that_comes_again_after_a_backoff_too(by_key: Scenario) -> None:
    by_key.store.next("commit", *[lost_request] * 4)

    def handle(body: Amount, message: Message, tx: Transaction) -> None:
        add_one(tx, message.id)

    def slow(call: Call) -> Any:
        call.world.sleep(1.0)
        return call.act()

    by_key.store.next("read", slow, *[lost_request] * 4)

    records = [under("a", 1), under("a", 2, amount=1), under("b", 3, amount=1)]

    assert sorted(by_key.answer(handle, *records, queue_client=True, backoff=Always())) == ["m1", "m2", "m3"]
    assert by_key.keys_run == ["b"]
    assert by_key.sqs.visibilities["m2"] == 30


@pytest.mark.parametrize("down", [(), ("commit", "insert", "replace")])
def test_a_quarter_of_an_hour_without_a_table_uses_up_nobodys_five_receives(
    scenario: Scenario, down: tuple[str, ...]
) -> None:
    """S70: whether nothing answers, or only no writes. Each wait is as long as the consumer asks SQS for."""
    scenario.store.down(*down)
    waited = 0.0
    for receive in range(1, 5):
        assert scenario.answer(scenario.taking(), *batch(1, receives=receive), queue_client=True) == ["0"]
        waited += scenario.sqs.visibilities["0"]

    assert waited > 15 * 60


def test_the_failure_of_a_commit_in_doubt_keeps_its_late_request_out(scenario: Scenario) -> None:
    """S64: it may still arrive when the message has failed for good, and is then refused."""
    scenario.store.next("commit", delivered_later(20.0))
    overdrawn = overdrawing(PermanentError("overdrawn"))

    def opens(call: Call) -> Any:
        # By then the account is there: the request that was delayed would succeed.
        answers = call.act()
        scenario.memory.tables["Accounts"].items[("none",)] = {"id": "none"}
        return answers

    scenario.store.next("commit", opens)

    assert scenario.answer(overdrawn, *batch(1), dead_letter_queue=DEAD_LETTERS) == []
    assert list(scenario.dead_letters()) == ["0"]
    assert scenario.status("0") == "FAILED"
    assert scenario.times == {}


def test_a_permission_that_is_missing_stops_the_batch(scenario: Scenario) -> None:
    """S29: it is refused of several at once, and the next would be, too."""
    scenario.store.next("commit", *[denied] * 99)
    scenario.store.next("insert", *[denied] * 99)

    assert len(scenario.answer(scenario.taking(), *batch(1_000))) == 1_000
    assert len(scenario.runs) < 500


# Several workers.


@pytest.mark.parametrize(("seconds", "refusing_seconds"), [(5, 1), (1, 5)])
def test_of_a_commit_and_a_dead_letter_of_one_message_only_the_first_counts(
    scenario: Scenario, seconds: float, refusing_seconds: float
) -> None:
    other = scenario.deliver(scenario.taking(seconds), *batch(1))
    refusing = scenario.taking(refusing_seconds, PermanentError("closed"))

    assert scenario.answer(refusing, *batch(1), dead_letter_queue=DEAD_LETTERS) == []
    refused = ["0"] if refusing_seconds < seconds else []
    assert other.answers == [refused]
    assert list(scenario.dead_letters()) == refused
    assert scenario.status("0") == ("FAILED" if refused else "COMPLETED")
    assert scenario.times == ({} if refused else once(1))


# Keys.


@pytest.mark.parametrize("where", ["in one batch", "later", "later, read first", "at the same time"])
@pytest.mark.parametrize("error", [None, RuntimeError()])
def test_another_body_under_a_key_is_never_done(by_key: Scenario, where: str, error: Exception | None) -> None:
    """S49, S65 and S66: what was run unread commits nothing, and is a mismatch at its redelivery."""

    def handle(body: dict, message: Message, tx: Transaction) -> None:
        add_one(tx, message.id)
        by_key.world.sleep(1 if message.id == "m1" else 2)
        if message.id == "m1" and error is not None:
            raise error

    worker = by_key.worker(handle)
    first, second = under("a", 1, amount=1), under("a", 2, amount=2, receives=2 if where == "later, read first" else 1)
    if where == "in one batch":
        worker.deliver(first, second)
    else:
        worker.deliver(first)
        by_key.worker(handle).deliver(second, after=0 if "same" in where else 5)
    by_key.deliver(handle, under("a", 2, amount=2, receives=2), after=20, dead_letter_queue=DEAD_LETTERS)

    by_key.run()

    named = [id for other in by_key.workers[:-1] for answer in other.answers for id in answer]
    assert named == (["m2"] if error is None else ["m1", "m2"])
    assert by_key.times == ({"m1": 1} if error is None else {})
    assert "fingerprint" in by_key.dead_letters()["m2"]["reason"]


@pytest.mark.parametrize("receives", [1, 2])
def test_an_expired_record_counts_as_absent(scenario: Scenario, receives: int) -> None:
    """S61: a first delivery runs once more, over what it had not read; the effect of each retention is there once."""
    scenario.worker(scenario.taking(), retention_seconds=DAY).deliver(*batch(1))
    worker = scenario.deliver(scenario.taking(), *batch(1, receives=receives), after=DAY + 60)
    worker.deliver(*batch(1, receives=receives + 1), after=DAY + 120)

    assert scenario.answers_of(worker) == [[], []]
    assert scenario.times == {"0": 2}
    assert len(scenario.runs) == (3 if receives == 1 else 2)


def test_to_lose_to_other_transactions_again_and_again_is_a_failure_and_no_outage(scenario: Scenario) -> None:
    """The alarm on `Unsettled` means a store that cannot be reached."""
    in_the_way = NotApplied("another transaction is in the way", retry=True, contended=True)
    scenario.store.next("commit", *[lambda call: [in_the_way] * call.size] * 20)
    reported = Reported()

    assert scenario.answer(scenario.taking(), *batch(1), metrics=reported, queue_client=True, backoff=Always()) == ["0"]

    assert (reported.counts["Failed"], reported.counts["Unsettled"]) == (1, 0)
    assert scenario.sqs.visibilities["0"] == 20


def test_a_first_delivery_that_met_another_payload_is_dead_lettered_at_once(by_key: Scenario) -> None:
    def handle(body: Amount, message: Message, tx: Transaction) -> None:
        add_one(tx, message.id)

    by_key.deliver(handle, under("a", 1, amount=1))

    assert by_key.answer(handle, under("a", 2, amount=2), after=5, dead_letter_queue=DEAD_LETTERS) == []
    assert "fingerprint" in by_key.dead_letters()["m2"]["reason"]
    assert by_key.times == {"m1": 1}


# FIFO groups, and the deadline.


def grouped(*ids: str) -> list[dict[str, Any]]:
    return [sqs_record(id, queue=FIFO, group=id[0]) for id in ids]


@pytest.mark.parametrize("concurrency", [1, 4])
def test_the_effects_of_a_group_commit_in_order_and_never_share_a_request(scenario: Scenario, concurrency: int) -> None:
    seen: list[dict[str, int]] = []

    def handle(body: dict, message: Message, tx: Transaction) -> None:
        if message.group_id == "g":
            seen.append({id: count for id, count in scenario.times.items() if id.startswith("g")})
        add_one(tx, message.id)

    assert scenario.answer(handle, *grouped("g1", "h1", "g2", "h2", "g3"), concurrency=concurrency) == []
    assert seen == [{}, {"g1": 1}, {"g1": 1, "g2": 1}]
    assert max(size for _, size in scenario.requests()) <= 2


def test_what_is_not_started_in_time_asks_nothing_and_is_visible_again_at_once(scenario: Scenario) -> None:
    """S70: five times in a row, without a record, and it is the first to run then."""
    worker = scenario.worker(scenario.taking(3), queue_client=True)
    for receive in range(1, 6):
        worker.deliver(*batch(3, receives=1), sqs_record("late", receives=1), seconds=6, after=receive * 20)
    worker.deliver(sqs_record("late", receives=5), after=200)

    scenario.run()

    assert worker.answers[-1] == []
    assert all("late" in answer for answer in worker.answers[:-1])
    assert scenario.keys_run.count("late") == 1
    assert set(scenario.request_names()) == {"commit", "read"}
    assert scenario.sqs.visibilities["late"] <= 1
