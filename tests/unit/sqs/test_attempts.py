"""`max_attempts`: a message pays for its own failures and crashes, and for nobody else's."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver import (
    MemoryStore,
    Message,
    PermanentError,
    RetryLater,
    StoreUnavailable,
    Transaction,
    sqs_consumer,
)
from idempotent_receiver.protocol.charges import charged_of
from idempotent_receiver.protocol.record import error_of, from_attributes
from idempotent_receiver.protocol.store import Unknown
from idempotent_receiver.sqs.dead_letter import stamp_of
from idempotent_receiver.sqs.keys import body_field
from idempotent_receiver.sqs.received import raw_attribute
from idempotent_receiver.transaction.outbox import STAMP
from tests.pipeline import Pipeline
from tests.simulation.world import FIFO, sqs_record
from tests.unit.batch.at_once import AtOnce
from tests.unit.sqs.test_sends import SHIPMENTS, Orders, Sqs, deliver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def pipeline() -> Iterator[Callable[..., Pipeline]]:
    made: list[Pipeline] = []

    def new(handle: Callable[..., None], **options: Any) -> Pipeline:
        made.append(Pipeline(handle, **{"max_attempts": 3, "executor": AtOnce, **options}))
        return made[-1]

    yield new
    for each in made:
        each.close()


def bad_fails(body: str, pipeline: Pipeline) -> None:
    if "bad" in body:
        raise ValueError(body)


def killer_kills(body: str, pipeline: Pipeline) -> None:
    if "killer" in body:
        pipeline.kill()


def stamp_in(pipeline: Pipeline, place: int = 0) -> Any:
    attribute = pipeline.dead_letters.messages[place].sent["MessageAttributes"][STAMP]
    return stamp_of({STAMP: {"stringValue": attribute["StringValue"]}})


both_modes = pytest.mark.parametrize("effects", ["any", "transaction"])


# Set-up.


def test_without_a_queue_and_a_client_for_what_has_failed_so_often_it_is_refused() -> None:
    for options in ({}, {"sqs": Any}):
        with pytest.raises((ValueError, TypeError), match=r"max_attempts|sqs"):
            sqs_consumer(MemoryStore(), max_attempts=10, **options)
    for wrong in (0, -1, True, 2.0):
        with pytest.raises(ValueError, match="max_attempts"):
            sqs_consumer(MemoryStore(), max_attempts=wrong)  # type: ignore[arg-type]


# Failures.


def test_the_failure_that_ends_the_last_charged_attempt_is_final_and_becomes_a_dead_letter(
    pipeline: Callable[..., Pipeline],
) -> None:
    """With its own error and the count, and a reason of its own: it is not permanent."""
    place = pipeline(bad_fails)
    place.send("bad", "ok")
    place.run()

    assert (Counter(place.runs), place.dead) == (Counter(bad=3, ok=1), ["bad"])
    stamp = stamp_in(place)
    record = place.record(stamp.key)
    error = {"type": "ValueError", "exhausted": True}
    assert record.status == "FAILED"
    assert error.items() <= error_of(record).items()
    assert "permanent" not in error_of(record)
    assert (stamp.charged, stamp.exhausted, stamp.error_type) == (3, True, "ValueError")


def test_ten_bad_messages_in_five_groups_of_sixty_cost_no_other_message_anything(
    pipeline: Callable[..., Pipeline],
) -> None:
    """SQS would have moved those behind them: a group waits for its failing message, and each wait is a receive."""
    place = pipeline(bad_fails, fifo=True)
    bad = {7, 8, 63, 64, 130, 131, 200, 201, 270, 271}
    for number in range(300):
        place.send(f"{number}{'-bad' if number in bad else ''}", group=f"group-{number // 60}")
    place.run()

    assert {*place.dead} == {f"{number}-bad" for number in bad}
    assert Counter(place.runs) == {
        f"{number}{'-bad' if number in bad else ''}": 3 if number in bad else 1 for number in range(300)
    }
    for group in range(5):
        done = [int(body) for body in place.done if int(body) // 60 == group]
        assert done == sorted(done)
        assert len(done) == 58


@both_modes
def test_a_dead_letter_that_is_refused_costs_no_further_run(pipeline: Callable[..., Pipeline], effects: str) -> None:
    place = pipeline(bad_fails, dead_letter_queue="https://sqs.us-east-1.amazonaws.com/123456789012/gone")
    place.send("bad")
    place.run(until=lambda: len(place.answers) == 8)
    assert (len(place.runs), place.answers) == (3, [["bad"]] * 8)

    place.queues.create("gone")
    place.run()
    assert (len(place.runs), len(place.queues.queues)) == (3, 3)


def test_a_permanent_failure_whose_dead_letter_is_refused_is_not_run_again(pipeline: Callable[..., Pipeline]) -> None:
    def refuses(body: str, pipeline: Pipeline) -> None:
        raise PermanentError("closed")

    place = pipeline(refuses, dead_letter_queue="https://sqs.us-east-1.amazonaws.com/123456789012/gone")
    place.send("a")
    place.run(until=lambda: len(place.answers) == 5)
    gone = place.queues.create("gone")
    place.run()

    assert place.runs == ["a"]
    place.dead_letters = gone
    stamp = stamp_in(place)
    assert (stamp.reason, stamp.charged, stamp.exhausted) == ("closed", 1, None)


def test_what_is_not_the_messages_own_is_not_charged(pipeline: Callable[..., Pipeline]) -> None:
    failures = iter([RetryLater(seconds=1), StoreUnavailable("k", "down", ran=True)] * 15)

    def later(body: str, pipeline: Pipeline) -> None:
        if (error := next(failures, None)) is not None:
            raise error

    place = pipeline(later)
    place.send("a")
    place.run()
    assert (len(place.runs), place.done, place.dead) == (31, ["a"], [])


def test_a_backoff_counts_charged_attempts_not_receives(pipeline: Callable[..., Pipeline]) -> None:
    """A message that was received twenty times behind others waits seconds at its own first failure."""
    failures = iter([RetryLater(seconds=0)] * 20)

    def later(body: str, pipeline: Pipeline) -> None:
        raise next(failures, ValueError())

    place = pipeline(later)
    place.send("a")
    place.run(until=lambda: len(place.runs) == 21)
    assert place.kept("a").visible_seconds - place.clock.seconds <= 4


def test_receives_without_an_invocation_are_free(pipeline: Callable[..., Pipeline]) -> None:
    """Lambda has received and was throttled."""
    place = pipeline(bad_fails)
    place.send("bad", "ok")
    for _ in range(20):
        place.queues.receive_message(QueueUrl=place.queue.url, MaxNumberOfMessages=10, VisibilityTimeout=60)
        place.pass_time(61)
    place.run()
    assert (Counter(place.runs), place.dead) == (Counter(bad=3, ok=1), ["bad"])


# A delay ends by age.


@pytest.mark.parametrize("days", [3, 1])
def test_a_delay_that_would_end_too_long_after_the_first_send_is_final(
    pipeline: Callable[..., Pipeline], days: int
) -> None:
    """Receives are free, so else SQS would delete the message silently once its queue's retention ends."""

    def later(body: str, pipeline: Pipeline) -> None:
        raise RetryLater("the bank is closed", seconds=10 * 60 * 60)

    place = pipeline(later, max_age_seconds=days * 24 * 60 * 60)
    place.send("a")
    place.run()

    assert place.dead == ["a"]
    assert place.clock.seconds < days * 24 * 60 * 60
    assert len(place.runs) == days * 24 // 10 + 1
    assert (stamp_in(place).reason, stamp_in(place).exhausted) == ("the bank is closed", True)


def test_what_is_too_old_to_wait_does_not_wait_for_its_dead_letter_either(pipeline: Callable[..., Pipeline]) -> None:
    """Else it would be deleted while its dead-letter queue is mended."""

    def later(body: str, pipeline: Pipeline) -> None:
        raise RetryLater(seconds=10 * 60 * 60)

    gone = "https://sqs.us-east-1.amazonaws.com/123456789012/gone"
    place = pipeline(later, max_age_seconds=60 * 60, dead_letter_queue=gone)
    place.send("a")
    place.run(until=lambda: len(place.answers) == 3)
    assert (len(place.runs), place.clock.seconds < 60) == (1, True)


# Crashes.


@pytest.mark.parametrize("batch", [10, 100])
@pytest.mark.parametrize("concurrency", [1, 10])
@pytest.mark.parametrize("fifo", [False, True])
def test_a_message_that_kills_its_process_is_charged_alone(
    pipeline: Callable[..., Pipeline], batch: int, concurrency: int, fifo: bool
) -> None:
    """Its neighbours have been claimed with it, and some had started: they are done, and have cost nothing."""
    costs: list[dict[str, int]] = []

    def handle(body: str, pipeline: Pipeline) -> None:
        costs.append(pipeline.most_charged)
        killer_kills(body, pipeline)

    options = {} if concurrency > 1 else {"executor": AtOnce}
    place = pipeline(handle, batch=batch, concurrency=concurrency, fifo=fifo, **options)
    bodies = [*(f"ok-{number}" for number in range(batch - 1)), "killer"]
    bodies.insert(batch // 2, bodies.pop())
    place.send(*bodies)
    killer = place.kept("killer").id
    place.run()

    assert place.dead == ["killer"]
    assert {*place.done} == {*bodies} - {"killer"}
    assert place.runs.count("killer") == 4, "the first of them was charged to nobody"
    assert {id for each in costs for id in each} <= {killer}
    assert place.record(killer).status == "FAILED"
    assert error_of(place.record(killer))["type"] == "Crashed"
    assert (stamp_in(place).charged, stamp_in(place).exhausted) == (3, True)


def test_a_killer_does_not_hold_up_or_overtake_its_group(pipeline: Callable[..., Pipeline]) -> None:
    place = pipeline(killer_kills, fifo=True)
    for number in range(6):
        place.send(f"{number}{'-killer' if number == 2 else ''}", group="one")
        place.send(f"{10 + number}", group="two")
    place.run()

    assert place.dead == ["2-killer"]
    assert [body for body in place.done if len(body) == 1] == ["0", "1", "3", "4", "5"]
    assert place.most_charged == {stamp_in(place).key: 3}


def test_what_comes_behind_a_crash_in_its_group_is_claimed_after_it(pipeline: Callable[..., Pipeline]) -> None:
    """Claimed before, it would hold up what must run alone, and be charged to nobody with its next crash."""
    place = pipeline(killer_kills, fifo=True)
    place.send("killer", group="one")
    place.run(until=lambda: len(place.answers) == 1)
    place.send("behind", group="one")
    place.send("beside", group="two")
    behind = place.kept("behind").id
    place.run(until=lambda: len(place.answers) == 3)
    assert place.runs == ["killer", "beside", "killer"]
    assert behind not in place.store.items, "it was never claimed"
    place.run()
    assert (place.dead, place.done) == (["killer"], ["beside", "behind"])


@pytest.mark.parametrize("concurrency", [1, 10])
def test_what_was_claimed_with_a_message_whose_key_has_crashed_does_not_hold_it_up(
    pipeline: Callable[..., Pipeline], concurrency: int
) -> None:
    """Nothing told before the claims that the key had crashed: it was another message's, and this one is new."""

    def handle(body: str, pipeline: Pipeline) -> None:
        if len(pipeline.answers) == 0:
            pipeline.kill()

    place = pipeline(handle, fifo=True, key=body_field("order"), store=MemoryStore("orders"), concurrency=concurrency)
    bodies = [json.dumps({"order": order}) for order in "abc"]
    place.send(bodies[0], group="one")
    place.poll()
    place.queue.messages.clear()
    place.pass_time(60)
    place.send(*bodies, group="one")
    place.poll()
    assert (place.done, place.answers[-1]) == (bodies, [])


def test_two_messages_of_a_key_that_has_crashed_are_left_at_once_to_their_next_delivery(
    pipeline: Callable[..., Pipeline],
) -> None:
    """Beside a dead letter the first may not be claimed; the second, which waits for it, does not hold up the batch."""

    def handle(body: str, pipeline: Pipeline) -> None:
        if len(pipeline.answers) == 0:
            pipeline.kill()
        if "refused" in body:
            raise PermanentError("closed")

    place = pipeline(handle, key=body_field("order"), store=MemoryStore("orders"))
    crashed, refused = (json.dumps({"order": order}) for order in ("crashed", "refused"))
    place.send(crashed, crashed)
    place.poll()
    place.pass_time(60)
    place.send(refused)
    place.poll()
    assert (place.answers[-1], place.dead) == ([crashed] * 2, [refused])
    place.run()
    assert place.done == [crashed]


def test_a_cancellation_at_the_deadline_is_charged_to_a_message_that_was_alone(
    pipeline: Callable[..., Pipeline],
) -> None:
    """Of several that share an event loop, any may have blocked it."""

    def handle(body: str, pipeline: Pipeline) -> None:
        if body == "slow" or len(pipeline.answers) == 0:
            raise asyncio.CancelledError

    place = pipeline(handle)
    place.send("slow", "beside")
    place.poll()
    assert [charged_of(from_attributes(each)).attempts for each in place.store.items.values()] == [0, 0]
    place.run()
    assert (Counter(place.runs), place.dead) == (Counter(slow=4, beside=2), ["slow"])


def test_two_killers_in_a_batch_are_each_charged_for_their_own(pipeline: Callable[..., Pipeline]) -> None:
    place = pipeline(killer_kills)
    place.send("killer-a", *"bcdefgh", "killer-i")
    place.run()

    assert sorted(place.dead) == ["killer-a", "killer-i"]
    assert sorted(place.done) == [*"bcdefgh"]
    assert {*place.most_charged.values()} == {3}


def test_an_outage_that_begins_between_claim_and_settlement_is_told_apart_from_a_failure(
    pipeline: Callable[..., Pipeline],
) -> None:
    """What ran and could not be recorded looks like a crash, and a batch's first crash is charged to nobody."""
    down = []

    class Store(MemoryStore):
        def replace(self, changes: Any) -> Any:
            return [Unknown("down")] * len(changes) if down else super().replace(changes)

    def handle(body: str, pipeline: Pipeline) -> None:
        if len(pipeline.answers) == 0:
            down.append(True)

    place = pipeline(handle, store=Store())
    place.send(*"abc")
    for _ in range(20):
        place.poll()
        place.pass_time(60)
    assert place.runs == [*"abc"], "nothing runs while it cannot be claimed"
    down.clear()
    place.run()
    assert (sorted(place.done[3:]), place.dead, place.most_charged) == ([*"abc"], [], {})


# Whose count it is.


def test_another_message_under_the_key_begins_anew(pipeline: Callable[..., Pipeline]) -> None:
    """The producer sends order 17 again: it is not swallowed."""
    place = pipeline(bad_fails, key=body_field("order"), store=MemoryStore("orders"))
    body = json.dumps({"order": "17", "note": "bad"})
    for dead in (1, 2):
        place.send(body)
        place.run()
        assert (len(place.runs), len(place.dead)) == (3 * dead, dead)


def test_a_redrive_by_the_sqs_console_begins_anew(pipeline: Callable[..., Pipeline]) -> None:
    """It keeps the attributes, and so the stamp, but not the messageId."""
    place = pipeline(bad_fails)
    place.send("bad")
    place.run()
    for redrives in (1, 2):
        place.queues.move_natively(place.dead_letters, place.queue)
        place.run()
        assert (len(place.runs), place.dead) == (3 * (redrives + 1), ["bad"])
    assert stamp_in(place).charged == 9


def test_a_redrive_by_the_sqs_console_of_what_sqs_had_moved_goes_on_under_a_key_of_the_body(
    pipeline: Callable[..., Pipeline],
) -> None:
    """It has no stamp, and the record knows the key."""
    place = pipeline(bad_fails, most_receives=2, store=MemoryStore("orders"), key=body_field("order"))
    place.send(json.dumps({"order": "17", "note": "bad"}))
    place.run()
    assert len(place.runs) == 2
    place.queue.most_receives = 50
    place.queues.move_natively(place.dead_letters, place.queue)
    place.run()
    assert (len(place.runs), len(place.dead)) == (3, 1)
    assert stamp_in(place).charged == 3


def test_a_message_that_sqs_had_moved_begins_anew_at_its_stamp(pipeline: Callable[..., Pipeline]) -> None:
    place = pipeline(bad_fails, most_receives=2)
    place.send("bad")
    place.run()
    (moved,) = place.dead_letters.messages
    assert (len(place.runs), place.charged(moved.id)) == (2, 2)
    place.queue.most_receives = 50
    stamp = json.dumps({"key": moved.id, "original_id": moved.id, "charged": 2})
    attributes = {STAMP: raw_attribute({"stringValue": stamp, "dataType": "String"})}
    place.dead_letters.messages.clear()
    place.queues.send_message(QueueUrl=place.queue.url, MessageBody="bad", MessageAttributes=attributes)
    place.run()

    assert len(place.runs) == 2 + 3
    assert stamp_in(place).charged == 5


# Where it is not set, and until something has crashed.


@both_modes
@pytest.mark.parametrize("fifo", [False, True])
def test_until_something_has_crashed_it_costs_no_request(
    pipeline: Callable[..., Pipeline], fifo: bool, effects: str
) -> None:
    """Nor does a record of a success get larger."""

    def requests(max_attempts: int | None) -> Any:
        failures = Counter[str]()

        def handle(body: str, pipeline: Pipeline) -> None:
            failures[body] += 1
            if "bad" in body and failures[body] < 3:
                raise ValueError

        place = pipeline(handle, max_attempts=max_attempts, fifo=fifo)
        place.send("bad-1", *(f"ok-{number}" for number in range(30)), "bad-2")
        place.run()
        done = [{name for name in item if name != "charged"} for item in place.store.items.values()]
        assert not any("charged" in item for item in place.store.items.values())
        return place.store.requests, done, [call for call, _ in place.queues.calls]

    assert requests(9) == requests(None)


# What is sent after the commit.


def sends(body: dict, message: Message, tx: Transaction) -> None:
    tx.put(TableName="orders", Item={"order": message.id})
    tx.send(QueueUrl=SHIPMENTS, MessageBody=json.dumps(body))


def refused_where(refused: Callable[[str], bool]) -> Sqs:
    denied = {"Code": "AccessDenied", "SenderFault": True}
    return Sqs(lambda entry: denied if refused(entry["MessageBody"]) else None)


def delivered(store: Orders, sqs: Sqs, place: int, effects: str, *, others: bool = True) -> list[str]:
    """A delivery of the first message together with a new one, whose send passes."""
    records = [sqs_record("m0", '{"n": 0}', receives=place), sqs_record(f"other-{place}", '{"n": 1}')]
    dead = "https://sqs.us-east-1.amazonaws.com/123456789012/dead"
    return deliver(store, sqs, sends, *records[: 1 + others], effects=effects, dead_letter_queue=dead, max_attempts=3)


@both_modes
def test_a_send_that_is_refused_while_others_pass_is_charged_and_its_message_a_dead_letter_in_the_end(
    effects: str,
) -> None:
    """Its effect took place once, and its record stays SENDING: a redrive sends what is left."""
    store, sqs = Orders(), refused_where(lambda body: "0" in body)
    answers = [delivered(store, sqs, place, effects) for place in (1, 2, 3, 4, 5)]

    assert answers == [["m0"], ["m0"], [], [], []]
    assert (store.status(), store.orders.count("m0")) == ("SENDING", 1)
    assert len(sqs.dead) == 3, "the dead letter again, and nothing is sent"
    stamp = stamp_of({STAMP: {"stringValue": sqs.dead[0]["MessageAttributes"][STAMP]["StringValue"]}})
    assert stamp is not None
    assert (stamp.error_type, stamp.charged, stamp.exhausted) == ("MessagesNotSent", 3, True)
    assert sum("0" in entry["MessageBody"] for request in sqs.requests for entry in request) == 3

    attributes = {STAMP: {"stringValue": stamp.to_json(), "dataType": "String"}}
    sqs.refuses = lambda entry: None
    redriven = sqs_record("r0", '{"n": 0}', attributes=attributes)
    assert deliver(store, sqs, sends, redriven, effects=effects, max_attempts=3, dead_letter_queue=SHIPMENTS) == []
    assert store.status() == "COMPLETED"


def test_what_waits_behind_a_refused_send_in_its_group_does_not_hold_it_up() -> None:
    """It is known that no other send passes once nothing else is under way."""
    store, sqs = Orders(), refused_where(lambda body: True)
    group: Any = {"queue": FIFO, "group": "g"}
    records = [sqs_record(f"m{n}", f'{{"n": {n}}}', **group) for n in range(3)]
    assert deliver(store, sqs, sends, *records) == ["m0", "m1", "m2"]
    assert store.items["m0"].get("owner") is None, "it stopped in time"


@both_modes
def test_while_no_send_passes_none_is_charged(effects: str) -> None:
    """A missing permission must not make ten thousand dead letters."""
    store, sqs = Orders(), refused_where(lambda body: True)
    assert [delivered(store, sqs, place, effects)[0] for place in range(1, 31)] == ["m0"] * 30
    assert (store.status(), sqs.dead) == ("SENDING", [])
    alone = refused_where(lambda body: True)
    assert delivered(store, alone, 31, effects, others=False) == ["m0"]
    assert charged_of(from_attributes(store.items["m0"])).attempts == 0


@both_modes
def test_a_send_without_an_answer_is_not_charged(effects: str) -> None:
    store = Orders()
    sqs = Sqs(lambda entry: {"Code": "InternalError", "SenderFault": False} if "0" in entry["MessageBody"] else None)
    assert [delivered(store, sqs, place, effects) for place in range(1, 11)] == [["m0"]] * 10
    assert sqs.dead == []


@both_modes
def test_what_was_left_by_a_crash_is_sent_alone(effects: str) -> None:
    """By the time nothing else in the batch is under way, as a message that has crashed is handled."""
    store, sqs = Orders(), refused_where(lambda body: "0" in body)
    delivered(store, sqs, 1, effects)
    store.items["m0"] |= {"owner": "killed", "in_progress_expiration": 1}
    sqs.refuses = lambda entry: None
    sqs.requests.clear()

    assert delivered(store, sqs, 2, effects) == []
    assert [len(request) for request in sqs.requests] == [1, 1]
    assert "0" in sqs.requests[-1][0]["MessageBody"]


# A worker of the release before, beside it.


def test_a_release_that_knows_no_count_neither_counts_nor_is_misled(pipeline: Callable[..., Pipeline]) -> None:
    """It runs what is final again, as it always did. What it has written since then begins anew."""
    place = pipeline(bad_fails, dead_letter_queue="https://sqs.us-east-1.amazonaws.com/123456789012/gone")
    before = place.new.with_options(replace(place.new.options, store=TheReleaseBefore(place.store), max_attempts=None))
    place.send("bad")
    id = place.kept("bad").id
    runs = []
    for consumer in (place.new, place.new, place.new, place.new, before, place.new, place.new, place.new, place.new):
        while not place.poll(consumer):
            place.pass_time()
        runs.append((len(place.runs), place.charged(id)))
    assert runs == [(1, 1), (2, 2), (3, 3), (3, 3), (4, 0), (5, 1), (6, 2), (7, 3), (7, 3)]


class TheReleaseBefore:
    """The table as the release before sees it: it knows no count, and leaves the attribute in place."""

    def __init__(self, store: Any) -> None:
        self.store, self.namespace = store, store.namespace

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def read(self, ids: Any) -> Any:
        return [None if found is None else found._replace(charged=None) for found in self.store.read(ids)]

    def replace(self, changes: Any) -> Any:
        kept = {change.new.id: self.store.items.get(change.new.id, {}).get("charged") for change in changes}
        return self.store.replace(
            [change._replace(new=change.new._replace(charged=kept[change.new.id])) for change in changes]
        )


@both_modes
def test_a_read_that_failed_is_not_charged_whatever_the_handler_makes_of_it(effects: str) -> None:
    class Unreadable(Orders):
        def get(self, table: str, key: Any) -> Any:
            return Unknown("down")

    def handle(body: dict, tx: Transaction) -> None:
        try:
            tx.get(TableName="orders", Key={"order": "1"}, attributes=["order"])
        except StoreUnavailable:
            raise ValueError from None

    store, sqs = Unreadable(), Sqs()
    limit: dict[str, Any] = {"dead_letter_queue": SHIPMENTS, "max_attempts": 1, "effects": effects}
    for receives in (1, 2, 3):
        assert deliver(store, sqs, handle, sqs_record("m0", "{}", receives=receives), **limit) == ["m0"]
    assert sqs.dead == []


# What is called after the commit.


def calling(store: Orders, sqs: Sqs, place: int, called: Callable[..., None], **options: Any) -> list[str]:
    def handle(body: dict, message: Message, tx: Transaction) -> None:
        tx.call(called)

    dead = "https://sqs.us-east-1.amazonaws.com/123456789012/dead"
    given = {"calls": [called], "dead_letter_queue": dead, "max_attempts": 2, **options}
    record = sqs_record("m0", "{}", receives=place)
    record["attributes"]["SentTimestamp"] = "1"
    return deliver(store, sqs, handle, record, **given)


@both_modes
def test_a_call_that_raises_is_charged_and_its_message_a_dead_letter_in_the_end(effects: str) -> None:
    calls: list[None] = []

    def notify() -> None:
        calls.append(None)
        raise ValueError

    store, sqs = Orders(), Sqs()
    answers = [calling(store, sqs, place, notify, effects=effects) for place in (1, 2, 3)]
    assert (answers, len(calls), len(sqs.dead)) == ([["m0"], [], []], 2, 2)
    assert store.status() == "SENDING"
    reason = json.loads(sqs.dead[0]["MessageAttributes"][STAMP]["StringValue"])["reason"]
    assert "call 1 (notify): ValueError" in reason


@both_modes
def test_a_call_that_is_too_early_is_not_charged_but_ends_by_age(effects: str) -> None:
    def notify() -> None:
        raise RetryLater(seconds=60)

    store, sqs = Orders(), Sqs()
    young = {"max_age_seconds": 10**10, "effects": effects}
    assert [calling(store, sqs, place, notify, **young) for place in range(1, 10)] == [["m0"]] * 9
    assert sqs.dead == []
    assert calling(store, sqs, 10, notify, max_age_seconds=1, effects=effects) == []
    assert len(sqs.dead) == 1
