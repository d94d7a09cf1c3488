"""What happens to messages whose handlers run without a claim, by `effects="transaction"`: each takes effect once.

Two workers may run one message (S27 and the first rules of a scenario do not hold), and one of them commits.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from typing_extensions import TypedDict

from idempotent_receiver import Message, PermanentError, Transaction, body_field
from idempotent_receiver.protocol.store import NotApplied
from idempotent_receiver.sqs.dead_letter import STAMP
from idempotent_receiver.sqs.visibility import Backoff
from tests.simulation.faults import (
    delivered_later,
    denied,
    lost_answer,
    lost_request,
    partly,
    sent_twice,
    throttled,
)
from tests.simulation.scenario import Scenario
from tests.simulation.world import DEAD_LETTERS, FIFO, sqs_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.faults import Call, Fault
    from tests.simulation.world import Worker

DAY = 24 * 60 * 60


def add_one(tx: Transaction, id: str, table: str = "Entries", **options: Any) -> None:
    tx.update(
        TableName=table,
        Key={"id": id},
        UpdateExpression="ADD times :one",
        ExpressionAttributeValues={":one": 1},
        **options,
    )


def post(body: dict, message: Message, tx: Transaction) -> str:
    add_one(tx, message.id)
    return "posted"


def taking(scenario: Scenario, seconds: float, error: Exception | None = None) -> Callable[..., None]:
    """A handler that takes its time, and then fails if it is to."""

    def handle(body: dict, message: Message, tx: Transaction) -> None:
        add_one(tx, message.id)
        scenario.world.sleep(seconds)
        if error is not None:
            raise error

    return handle


def overdrawing(error: BaseException | None) -> Callable[..., None]:
    """A handler whose transaction finds its first message's account overdrawn."""

    def handle(body: dict, message: Message, tx: Transaction) -> None:
        add_one(tx, message.id)
        if message.id == "0":
            condition = "attribute_exists(id)"
            tx.check(TableName="Accounts", Key={"id": "none"}, ConditionExpression=condition, otherwise=error)

    return handle


def unclaimed(scenario: Scenario, function: Callable[..., Any], **options: Any) -> Worker:
    return scenario.worker(function, effects="transaction", **options)


def times(scenario: Scenario) -> dict[str, int]:
    """How often each message's effect is there."""
    table = scenario.memory.tables.get("Entries")
    return {} if table is None else {item["id"]: int(item["times"]) for item in table.items.values()}


def once(count: int) -> dict[str, int]:
    return {str(number): 1 for number in range(count)}


class Amount(TypedDict):
    k: str
    amount: int


class Always(Backoff):
    """A backoff that tells what it is for by its length."""

    def seconds(self, *facts: object) -> int:
        return 20

    def outage_seconds(self, *facts: object) -> int:
        return 30


def batch(count: int, **options: Any) -> list[dict[str, Any]]:
    return [sqs_record(str(number), **options) for number in range(count)]


# One worker, and what the store does.


def test_a_first_delivery_runs_without_a_request_before_it() -> None:
    """And its commit is the only one."""
    scenario = Scenario()
    before: list[Any] = []

    def handle(body: dict, message: Message, tx: Transaction) -> None:
        before.append(scenario.requests())
        add_one(tx, message.id)

    worker = unclaimed(scenario, handle)
    worker.deliver(*batch(3))

    scenario.run()

    assert worker.answers == [[]]
    assert before == [[]] * 3
    assert scenario.requests() == [("commit", 3)]
    assert times(scenario) == once(3)


@pytest.mark.parametrize("fault", [lost_answer, lost_request, throttled, sent_twice])
@pytest.mark.parametrize("count", [1, 5, 60])
@pytest.mark.parametrize("receives", [1, 2])
def test_one_transient_fault_of_a_commit_is_overcome_within_the_invocation(
    fault: Fault, count: int, receives: int
) -> None:
    """S13 to S15 and S30: each handler runs once, and its effect is there once."""
    scenario = Scenario()
    scenario.store.next("commit", fault)
    worker = unclaimed(scenario, post)
    worker.deliver(*batch(count, receives=receives))

    scenario.run()

    assert worker.answers == [[]]
    assert len(scenario.runs) == count
    assert times(scenario) == once(count)


@pytest.mark.parametrize("fault", [lost_answer, lost_request, throttled, sent_twice])
@pytest.mark.parametrize("count", [1, 60])
def test_one_transient_fault_of_a_plain_insert_is_overcome(fault: Fault, count: int) -> None:
    """An empty transaction is recorded by it, under a version that is drawn once."""
    scenario = Scenario()
    scenario.store.next("insert", fault)

    def nothing(body: dict, tx: Transaction) -> None: ...

    worker = unclaimed(scenario, nothing)
    worker.deliver(*batch(count))

    scenario.run()

    assert worker.answers == [[]]
    assert len(scenario.runs) == count
    assert {name for name, _ in scenario.requests()} <= {"insert", "read"}


def test_a_throttled_commit_is_sent_again_and_the_handler_is_not() -> None:
    """S16: three times, within the invocation."""
    scenario = Scenario()
    scenario.store.next("commit", *[throttled] * 3)
    worker = unclaimed(scenario, post)
    worker.deliver(*batch(2))

    scenario.run()

    assert worker.answers == [[]]
    assert scenario.keys_run == ["0", "1"]
    assert times(scenario) == once(2)


def test_of_several_commits_in_a_call_each_has_its_own_answer() -> None:
    """S24 and S32: what was throttled, or met another's transaction, goes again; the others are done."""
    scenario = Scenario()
    in_the_way = NotApplied("another transaction is in the way", retry=True, contended=True)

    def some(call: Call) -> Any:
        applied = partly(*[number % 3 == 0 for number in range(call.size)], otherwise=in_the_way)
        return applied(call)

    def none(call: Call) -> Any:
        return [in_the_way] * call.size

    scenario.store.next("commit", *[none] * 8, some)
    worker = unclaimed(scenario, post)
    worker.deliver(*batch(6))

    scenario.run()

    assert worker.answers == [[]]
    assert len(scenario.runs) == 6
    assert times(scenario) == once(6)


# A store that stays away.


def test_after_a_commit_that_is_not_answered_nothing_more_starts_and_all_come_again_after_a_backoff() -> None:
    """S28: of the second batch, only what had started before the first answer failed to come."""
    scenario = Scenario()
    scenario.store.down()
    worker = unclaimed(scenario, taking(scenario, 0.05), queue_client=True)
    worker.deliver(*batch(100), seconds=60)

    scenario.run()

    assert [len(answer) for answer in worker.answers] == [100]
    assert 0 < len(scenario.runs) < 20
    assert scenario.world.now < 2
    assert len(scenario.sqs.visibilities) == 100
    assert sum(seconds > 0 for seconds in scenario.sqs.visibilities.values()) > 90
    assert times(scenario) == {}


def test_what_turns_out_to_be_free_after_that_comes_again_after_a_backoff_too() -> None:
    """Its read was under way when a commit was not answered."""
    scenario = Scenario(namespace="n")
    under_keys(scenario, "invalid", "again")
    scenario.store.next("commit", *[lost_request] * 4)

    def handle(body: Amount, message: Message, tx: Transaction) -> None:
        add_one(tx, message.id)

    def slow(call: Call) -> Any:
        call.world.sleep(1.0)
        return call.act()

    scenario.store.next("read", slow, *[lost_request] * 4)
    worker = unclaimed(scenario, handle, key=body_field("k"), queue_client=True, backoff=Always())
    worker.deliver(
        sqs_record("invalid", '{"k": "a"}'),
        keyed("again", 1),
        sqs_record("other", '{"k": "b", "amount": 1}'),
    )

    scenario.run()

    assert sorted(worker.answers[0]) == ["again", "invalid", "other"]
    assert scenario.keys_run == ["b"]
    assert scenario.sqs.visibilities["again"] == 30


def test_what_was_not_answered_is_done_once_when_the_store_is_back() -> None:
    """The next delivery reads first; a request of the first that arrives after it is refused."""
    scenario = Scenario()
    scenario.store.next("commit", delivered_later(30.0), *[lost_request] * 3)
    scenario.store.next("read", *[lost_request] * 9)
    scenario.store.next("insert", *[lost_request] * 9)
    unclaimed(scenario, post).deliver(*batch(3))
    again = unclaimed(scenario, post)
    again.deliver(*batch(3, receives=2), after=10)
    scenario.world.spawn(scenario.store.mended, after=9)

    scenario.run()

    assert scenario.workers[0].answers == [["0", "1", "2"]]
    assert again.answers == [[]]
    assert times(scenario) == once(3)


@pytest.mark.parametrize("down", [(), ("commit", "insert", "replace")])
def test_a_quarter_of_an_hour_without_a_table_uses_up_nobodys_five_receives(down: tuple[str, ...]) -> None:
    """S70: whether nothing answers, or only no writes. Each wait is as long as the consumer asks SQS for."""
    scenario = Scenario()
    scenario.store.down(*down)
    worker = unclaimed(scenario, post, queue_client=True)
    waited = 0.0
    for receive in range(1, 5):
        worker.deliver(*batch(1, receives=receive))
        scenario.run()
        waited += scenario.sqs.visibilities["0"]

    assert worker.answers == [["0"]] * 4
    assert waited > 15 * 60


def test_the_failure_of_a_commit_in_doubt_keeps_its_late_request_out() -> None:
    """S64: it may still arrive when the message has failed for good, and is then refused."""
    scenario = Scenario()
    scenario.store.next("commit", delivered_later(20.0))
    overdrawn = overdrawing(PermanentError("overdrawn"))

    def handle(body: dict, message: Message, tx: Transaction) -> None:
        overdrawn(body, message, tx)

    def opens(call: Call) -> Any:
        # By then the account is there: the request that was delayed would succeed.
        answers = call.act()
        scenario.memory.tables["Accounts"].items[("none",)] = {"id": "none"}
        return answers

    scenario.store.next("commit", opens)
    worker = unclaimed(scenario, handle, dead_letter_queue=DEAD_LETTERS)
    worker.deliver(*batch(1))

    scenario.run()

    assert worker.answers == [[]]
    assert list(scenario.dead_letters()) == ["0"]
    assert scenario.status("0") == "FAILED"
    assert times(scenario) == {}


def test_a_permission_that_is_missing_stops_the_batch() -> None:
    """S29: it is refused of several at once, and the next would be, too."""
    scenario = Scenario()
    scenario.store.next("commit", *[denied] * 99)
    scenario.store.next("insert", *[denied] * 99)
    worker = unclaimed(scenario, post)
    worker.deliver(*batch(1_000))

    scenario.run()

    assert [len(answer) for answer in worker.answers] == [1_000]
    assert len(scenario.runs) < 500


# Several workers.


@pytest.mark.parametrize("workers", [2, 5])
@pytest.mark.parametrize("receives", [1, 2])
def test_of_many_that_run_a_message_at_once_one_commits_and_all_acknowledge(workers: int, receives: int) -> None:
    """S31: nothing that the others have written is visible."""
    scenario = Scenario()
    others = [unclaimed(scenario, taking(scenario, 1 + place / 10)) for place in range(workers)]
    for other in others:
        other.deliver(*batch(2, receives=receives))

    scenario.run()

    assert [other.answers for other in others] == [[[]]] * workers
    assert len(scenario.runs) == 2 * workers
    assert times(scenario) == once(2)
    assert scenario.memory.items["0"]["owner"] == "w0"


@pytest.mark.parametrize("first", ["claims", "does not"])
def test_the_option_may_be_turned_on_or_off_under_traffic(first: str) -> None:
    """A claim stands against a commit of a handler that started before or after it; the effect is there once."""
    scenario = Scenario()
    claiming = scenario.worker(taking(scenario, 4))
    other = unclaimed(scenario, taking(scenario, 2))
    for worker, receives in ((claiming, 1), (other, 1), (claiming, 2), (other, 2)):
        late = (worker is claiming) == (first != "claims")
        worker.deliver(*batch(2, receives=receives), after=receives * 40 + late)

    scenario.run()

    assert times(scenario) == once(2)
    assert claiming.answers[-1] == other.answers[-1] == []
    assert (claiming.answers[0], other.answers[0]) == ([], ["0", "1"])


def test_a_run_that_another_one_has_failed_beside_commits_nothing() -> None:
    """A dead letter is not done after all: the failure was recorded while the other handler ran."""
    scenario = Scenario()
    slow = unclaimed(scenario, taking(scenario, 5))
    slow.deliver(*batch(1))
    refusing = unclaimed(scenario, taking(scenario, 1, PermanentError("closed")), dead_letter_queue=DEAD_LETTERS)
    refusing.deliver(*batch(1))

    scenario.run()

    assert refusing.answers == [[]]
    assert slow.answers == [["0"]]
    assert scenario.status("0") == "FAILED"
    assert times(scenario) == {}


def test_a_failure_of_what_another_one_has_done_is_no_dead_letter() -> None:
    """It is a duplicate, and is acknowledged."""
    scenario = Scenario()
    unclaimed(scenario, taking(scenario, 1)).deliver(*batch(1))
    refusing = unclaimed(scenario, taking(scenario, 5, PermanentError("closed")), dead_letter_queue=DEAD_LETTERS)
    refusing.deliver(*batch(1))

    scenario.run()

    assert refusing.answers == [[]]
    assert scenario.dead_letters() == {}
    assert times(scenario) == once(1)


# Conditions.


@pytest.mark.parametrize(
    ("error", "answers", "reasons"),
    [
        (None, ["0"], {}),
        (RuntimeError("no"), ["0"], {}),
        (PermanentError("overdrawn"), [], {"0": "overdrawn"}),
    ],
)
def test_a_failed_condition_means_what_the_handler_said_and_is_that_message_s_alone(
    error: BaseException | None, answers: list[str], reasons: dict[str, str]
) -> None:
    """S32: those that shared its request are done."""
    scenario = Scenario()
    worker = unclaimed(scenario, overdrawing(error), dead_letter_queue=DEAD_LETTERS)
    worker.deliver(*batch(5))

    scenario.run()

    assert worker.answers == [answers]
    assert {id: stamp["reason"] for id, stamp in scenario.dead_letters().items()} == reasons
    assert scenario.status("0") == "FAILED"
    assert times(scenario) == {"1": 1, "2": 1, "3": 1, "4": 1}


# Keys.


def keyed(id: str, amount: int, **options: Any) -> dict[str, Any]:
    return sqs_record(id, json.dumps({"k": "a", "amount": amount}), **options)


def under_keys(scenario: Scenario, *ids: str) -> None:
    scenario.keys_of = dict.fromkeys(ids, ("n#a",))


@pytest.mark.parametrize(("error", "failed"), [(None, []), (RuntimeError(), ["0"])])
def test_one_message_twice_in_a_batch_runs_once_and_is_named_once(error: Exception | None, failed: list[str]) -> None:
    """S47."""
    scenario = Scenario()
    worker = unclaimed(scenario, taking(scenario, 0, error), concurrency=5)
    worker.deliver(*batch(1), *batch(1))

    scenario.run()

    assert worker.answers == [failed]
    assert scenario.keys_run == ["0"]


@pytest.mark.parametrize("concurrency", [1, 4])
def test_two_messages_of_one_key_and_body_run_once_and_both_are_acknowledged(concurrency: int) -> None:
    """S48: the second waits for the first."""
    scenario = Scenario(namespace="n")
    under_keys(scenario, "m1", "m2")
    worker = unclaimed(scenario, post, key=body_field("k"), concurrency=concurrency)
    worker.deliver(keyed("m1", 1), keyed("m2", 1))

    scenario.run()

    assert worker.answers == [[]]
    assert times(scenario) == {"m1": 1}


@pytest.mark.parametrize("where", ["in one batch", "later", "later, read first", "at the same time"])
@pytest.mark.parametrize("error", [None, RuntimeError()])
def test_another_body_under_a_key_is_never_done(where: str, error: Exception | None) -> None:
    """S49, S65 and S66: what was run unread commits nothing, and is a mismatch when it comes again."""
    scenario = Scenario(namespace="n")
    under_keys(scenario, "m1", "m2")

    def handle(body: dict, message: Message, tx: Transaction) -> None:
        add_one(tx, message.id)
        scenario.world.sleep(1 if message.id == "m1" else 2)
        if message.id == "m1" and error is not None:
            raise error

    worker = unclaimed(scenario, handle, key=body_field("k"))
    first, second = keyed("m1", 1), keyed("m2", 2, receives=2 if where == "later, read first" else 1)
    if where == "in one batch":
        worker.deliver(first, second)
    else:
        worker.deliver(first)
        unclaimed(scenario, handle, key=body_field("k")).deliver(second, after=0 if "same" in where else 5)
    last = unclaimed(scenario, handle, key=body_field("k"), dead_letter_queue=DEAD_LETTERS)
    last.deliver(keyed("m2", 2, receives=2), after=20)

    scenario.run()

    named = [id for other in scenario.workers[:-1] for answer in other.answers for id in answer]
    assert named == (["m2"] if error is None else ["m1", "m2"])
    assert times(scenario) == ({"m1": 1} if error is None else {})
    assert "fingerprint" in scenario.dead_letters()["m2"]["reason"]


def test_a_redriven_message_that_had_failed_runs_again_at_once() -> None:
    """S60: it carries its key, so it is read although SQS delivers it for the first time."""
    scenario = Scenario()
    scenario.keys_of = {"new": ("0",)}
    unclaimed(scenario, taking(scenario, 0, PermanentError("closed"))).deliver(*batch(1, receives=5))
    worker = unclaimed(scenario, post)
    stamp = {"stringValue": json.dumps({"key": "0", "original_id": "0"}), "dataType": "String"}
    worker.deliver(sqs_record("new", attributes={STAMP: stamp}), after=1)

    scenario.run()

    assert worker.answers == [[]]
    assert [run.attempt for run in scenario.runs] == [1, 2]
    assert times(scenario) == {"new": 1}


@pytest.mark.parametrize(("receives", "answers"), [(1, [["0"], []]), (2, [[], []])])
def test_an_expired_record_counts_as_absent_once_it_has_been_read(receives: int, answers: list[list[str]]) -> None:
    """S61: a first delivery runs unread, is refused and comes again; the effect of each retention is there once."""
    scenario = Scenario()
    unclaimed(scenario, post, retention_seconds=DAY).deliver(*batch(1))
    worker = unclaimed(scenario, post)
    worker.deliver(*batch(1, receives=receives), after=DAY + 60)
    worker.deliver(*batch(1, receives=receives + 1), after=DAY + 120)

    scenario.run()

    assert worker.answers == answers
    assert times(scenario) == {"0": 2}


# FIFO groups, and the deadline.


def test_a_group_stops_at_its_failure_and_other_groups_go_on() -> None:
    """S56: what is behind the failure asks nothing, and duplicates of what is done are acknowledged (S57)."""
    scenario = Scenario()

    def handle(body: dict, message: Message, tx: Transaction) -> None:
        add_one(tx, message.id)
        if message.id == "g2" and message.receive_count == 1:
            raise RuntimeError

    worker = unclaimed(scenario, handle)
    ids = ("g1", "g2", "g3", "h1", "h2")
    worker.deliver(*[sqs_record(id, queue=FIFO, group=id[0]) for id in ids])
    worker.deliver(*[sqs_record(id, queue=FIFO, group=id[0], receives=2) for id in ids], after=1)

    scenario.run()

    assert worker.answers == [["g2", "g3"], []]
    assert scenario.keys_run.count("g3") == 1
    assert sorted(scenario.keys_run) == ["g1", "g2", "g2", "g3", "h1", "h2"]
    assert times(scenario) == dict.fromkeys(ids, 1)


@pytest.mark.parametrize("concurrency", [1, 4])
def test_the_effects_of_a_group_commit_in_order_and_never_share_a_request(concurrency: int) -> None:
    """The next handler starts when the one before is committed, and sees its effect."""
    scenario = Scenario()
    seen: list[dict[str, int]] = []

    def handle(body: dict, message: Message, tx: Transaction) -> None:
        if message.group_id == "g":
            seen.append({id: count for id, count in times(scenario).items() if id.startswith("g")})
        add_one(tx, message.id)

    worker = unclaimed(scenario, handle, concurrency=concurrency)
    ids = ("g1", "h1", "g2", "h2", "g3")
    worker.deliver(*[sqs_record(id, queue=FIFO, group=id[0]) for id in ids])

    scenario.run()

    assert worker.answers == [[]]
    assert seen == [{}, {"g1": 1}, {"g1": 1, "g2": 1}]
    assert max(size for _, size in scenario.requests()) <= 2


def test_what_is_not_started_in_time_asks_nothing_and_is_visible_again_at_once() -> None:
    """S70: five times in a row, without a record, and it is the first to run then."""
    scenario = Scenario()
    worker = unclaimed(scenario, taking(scenario, 3), queue_client=True)
    for receive in range(1, 6):
        worker.deliver(*batch(3, receives=1), sqs_record("late", receives=1), seconds=6, after=receive * 20)
    worker.deliver(sqs_record("late", receives=5), after=200)

    scenario.run()

    assert worker.answers[-1] == []
    assert all("late" in answer for answer in worker.answers[:-1])
    assert scenario.keys_run.count("late") == 1
    assert {name for name, _ in scenario.requests()} == {"commit", "read"}
    assert scenario.sqs.visibilities["late"] <= 1
