"""Dead letters come back safely: what may be moved, and that no crash on the way loses or repeats anything."""

from __future__ import annotations

import itertools
import json
import threading
from collections import Counter
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from idempotent_receiver import MemoryStore, PermanentError, body_field, message_id, sqs_consumer
from idempotent_receiver.operations.dead_letters.dead_letter import Reader
from idempotent_receiver.operations.dead_letters.ends import End, redrive_ends
from idempotent_receiver.operations.dead_letters.following import Fate, Following
from idempotent_receiver.operations.dead_letters.history import History, NotKept, Verb
from idempotent_receiver.operations.dead_letters.journal import Journal
from idempotent_receiver.operations.dead_letters.queue import DeadLetterQueue, chunks
from idempotent_receiver.operations.dead_letters.run import BEYOND_LIMIT, Run, Summary
from idempotent_receiver.operations.dead_letters.selection import Planned, Selection
from idempotent_receiver.operations.dead_letters.session import Session
from idempotent_receiver.operations.dead_letters.triage import Decision, Rules, Verdict
from idempotent_receiver.operations.dead_letters.workers import WORKERS, Workers
from idempotent_receiver.protocol.record import record_id
from idempotent_receiver.sqs.dead_letter import STAMP, Stamp
from idempotent_receiver.sqs.visibility import Backoff
from tests.manual_clock import ManualClock
from tests.queues import DEDUPLICATION_SECONDS, Crash, Queue, Queues

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from idempotent_receiver.sqs.keys import KeyStrategy

HOLD_SECONDS = 30
START = "2027-01-15T08:00:00+00:00"
ONE_BY_ONE = 1.0
"""At a message a second, each has a send and a delete of its own."""
CONTEXT = SimpleNamespace(
    get_remaining_time_in_millis=lambda: 30_000, aws_request_id="request", function_name="consumer"
)


@dataclass
class Bank:
    """A consumer on queues in memory: what it did, and what it refuses until its cause is mended.

    `at_once`: whether it sends dead letters itself.
    """

    fifo: bool = False
    at_once: bool = True
    key: KeyStrategy = message_id
    clock: ManualClock = field(default_factory=ManualClock)
    done: Counter[str] = field(default_factory=Counter)
    mended: bool = False
    workers: int = 1
    """How many requests a session makes at a time. With one, their order is the same at each run."""

    def __post_init__(self) -> None:
        suffix = ".fifo" if self.fifo else ""
        self.sqs = Queues(self.clock)
        self.dead = self.sqs.create(f"dead{suffix}")
        self.queue = self.sqs.create(f"transfers{suffix}", self.dead)
        self.store = MemoryStore(namespace=None if self.key is message_id else "bank")
        self.handler = sqs_consumer(
            self.store,
            key=self.key,
            sqs=self.sqs,
            dead_letter_queue=self.dead.url if self.at_once else None,
            clock=self.clock,
            backoff=Backoff(first_seconds=1),
        )(self._post)

    def _post(self, body: dict[str, Any]) -> None:
        name = body["name"]
        if name.startswith("garbage") or (name.startswith("permanent") and not self.mended):
            raise PermanentError(f"{name} cannot be posted")
        if name.startswith("flaky") and not self.mended:
            raise ConnectionError
        self.done[name] += 1

    def send(self, name: str, *, attributes: dict[str, Any] | None = None, group: str | None = None) -> str:
        sent: dict[str, Any] = {"MessageBody": json.dumps({"name": name}), "MessageAttributes": attributes or {}}
        if self.fifo:
            sent |= {"MessageGroupId": group or name, "MessageDeduplicationId": f"{name}-{group}"}
        return str(self.sqs.send_message(QueueUrl=self.queue.url, **sent)["MessageId"])

    def deliver(self) -> None:
        """Let the consumer work until its queue is empty."""
        for _ in range(200):
            self.clock.sleep(31)
            received = self.sqs.receive_message(QueueUrl=self.queue.url, MaxNumberOfMessages=10).get("Messages", [])
            if received:
                self._acknowledge(received, self._handle(received))
            elif not self.queue.messages:
                return
        raise AssertionError("the queue did not become empty")

    def receive_once(self) -> None:
        """Let the consumer handle what it gets by one receive."""
        received = self.sqs.receive_message(QueueUrl=self.queue.url, MaxNumberOfMessages=10)["Messages"]
        self._acknowledge(received, self._handle(received))

    def kill_by_receives(self, *, handle: bool) -> None:
        """Receive everything until SQS moves it to the dead-letter queue; acknowledge nothing."""
        while self.queue.messages:
            received = self.sqs.receive_message(QueueUrl=self.queue.url, MaxNumberOfMessages=10).get("Messages", [])
            if received and handle:
                self._handle(received)
            self.clock.sleep(31)

    def _handle(self, received: list[dict[str, Any]]) -> Any:
        return self.handler({"Records": [_as_lambda(each, self.queue.arn) for each in received]}, CONTEXT)

    def _acknowledge(self, received: list[dict[str, Any]], answer: Any) -> None:
        failed = {each["itemIdentifier"] for each in answer["batchItemFailures"]}
        for each in received:
            if each["MessageId"] not in failed:
                entry = {"Id": "0", "ReceiptHandle": each["ReceiptHandle"]}
                self.sqs.delete_message_batch(QueueUrl=self.queue.url, Entries=[entry])

    def redrive(self, *, rules: dict[str, Any] | None = None, **options: Any) -> Summary:
        """One run of the redriver, from beginning to end."""
        with self.session(**(rules or {})) as session:
            run = self.run(session, **options)
            run.carry_out(run.plan())
        return run.summary

    def run(self, session: Session, **options: Any) -> Run:
        """A run that redrives, unless it is given other ends."""
        return Run(session, **{"ends": redrive_ends(self.sqs, self.queue.url), **options})  # type: ignore[arg-type]

    def session(self, **rules: Any) -> Session:
        return Session(
            queue=DeadLetterQueue(
                self.sqs,  # type: ignore[arg-type]
                self.dead.url,
                self.clock,
                hold_seconds=HOLD_SECONDS,
                workers=Workers(self.workers),
            ),
            reader=Reader(
                queue_arn=self.queue.arn, key=self.key, record_id=lambda key: record_id(self.store.namespace, key)
            ),
            store=self.store,
            rules=Rules(queue_arn=self.queue.arn, **rules),
        )

    def bodies(self, queue: Queue) -> Counter[str]:
        return Counter(json.loads(kept.sent["MessageBody"])["name"] for kept in queue.messages)


def _as_lambda(received: dict[str, Any], arn: str) -> dict[str, Any]:
    attributes = {
        name: {"dataType": held["DataType"], "stringValue": held["StringValue"]}
        for name, held in received["MessageAttributes"].items()
    }
    return {
        "messageId": received["MessageId"],
        "receiptHandle": received["ReceiptHandle"],
        "body": received["Body"],
        "attributes": received["Attributes"],
        "messageAttributes": attributes,
        "eventSourceARN": arn,
    }


def leftovers(*, fifo: bool = False, key: KeyStrategy = message_id) -> Bank:
    """A bank with one or more dead letters of every kind, each come by in the way that it comes by in life."""
    bank = Bank(fifo=fifo, key=key)
    done = bank.send("done")
    for number in range(3):
        bank.send(f"flaky-{number}", group="one")
    bank.kill_by_receives(handle=True)
    bank.send("throttled")
    bank.kill_by_receives(handle=False)
    bank.send("permanent")
    bank.send("garbage")
    forged = Stamp(key=done, original_id=done).to_json()
    bank.send("conflict", attributes={STAMP: {"DataType": "String", "StringValue": forged}})
    bank.deliver()
    bank.mended = True
    return bank


FIXABLE = {"flaky-0", "flaky-1", "flaky-2", "throttled", "permanent"}
ALL_DEAD = {*FIXABLE, "done", "garbage", "conflict"}


def settle(bank: Bank) -> None:
    """What an operator would do after a crash: redrive until there is nothing to be done."""
    bank.clock.sleep(HOLD_SECONDS + 1)
    for _ in range(2):
        bank.redrive(rules={"include_permanent": True})
        bank.deliver()


def in_balance(bank: Bank) -> None:
    """Everything that can be done was done once, and what cannot is still there."""
    assert bank.done == Counter(dict.fromkeys([*FIXABLE, "done"], 1))
    assert set(bank.bodies(bank.dead)) == {"garbage", "conflict"}
    assert bank.bodies(bank.queue) == Counter()


both_kinds = pytest.mark.parametrize("fifo", [False, True], ids=["standard", "fifo"])


@both_kinds
def test_what_can_succeed_comes_back_and_what_was_done_is_dropped(fifo: bool) -> None:
    bank = leftovers(fifo=fifo)
    assert bank.bodies(bank.dead) == Counter(dict.fromkeys(ALL_DEAD, 1))

    summary = bank.redrive(rules={"include_permanent": True})

    assert (summary.done["moved"], summary.done["dropped"]) == (6, 1)
    assert [left.verdict for left in summary.left] == [Verdict.CONFLICT]
    bank.deliver()
    in_balance(bank)


@both_kinds
def test_what_failed_for_good_stays_unless_it_is_included(fifo: bool) -> None:
    bank = leftovers(fifo=fifo)

    summary = bank.redrive()

    assert (summary.done["moved"], summary.done["dropped"]) == (4, 1)
    assert Counter(left.verdict for left in summary.left) == {Verdict.CONFLICT: 1, Verdict.PERMANENT: 2}
    assert bank.bodies(bank.dead) == Counter(["garbage", "conflict", "permanent"])


@both_kinds
@pytest.mark.parametrize("key", [message_id, body_field("name")], ids=["messageId", "a key of the business"])
def test_of_what_sqs_itself_has_moved_the_record_tells_the_reason_and_that_it_failed_for_good(
    fifo: bool, key: KeyStrategy
) -> None:
    """No letter says anything: the consumer sent none."""
    bank = Bank(fifo=fifo, key=key, at_once=False)
    bank.send("permanent")
    bank.send("flaky")
    bank.send("good")
    bank.deliver()

    assert bank.bodies(bank.dead) == Counter(["permanent", "flaky"])
    assert not any(kept.sent["MessageAttributes"] for kept in bank.dead.messages)
    session = bank.session()
    found = {json.loads(each.dead_letter.message.raw_body)["name"]: each for each in session.take()}
    session.queue.release()
    died_of = {name: (each.verdict, each.reason.partition(" at ")[0], each.error_type) for name, each in found.items()}
    assert died_of == {
        "permanent": (Verdict.PERMANENT, "permanent cannot be posted", "PermanentError"),
        "flaky": (Verdict.MOVE, "ConnectionError", "ConnectionError"),
    }

    bank.mended = True
    assert [left.verdict for left in bank.redrive().left] == [Verdict.PERMANENT]
    assert bank.redrive(rules={"include_permanent": True}).done["moved"] == 1
    bank.deliver()
    assert bank.done == Counter(["permanent", "flaky", "good"])


def test_a_body_that_does_not_validate_and_that_sqs_has_moved_tells_its_reason_from_its_record() -> None:
    bank = Bank(at_once=False)
    bank.sqs.send_message(QueueUrl=bank.queue.url, MessageBody="{not JSON")
    bank.deliver()

    (judged,) = bank.session().take()

    assert (judged.verdict, judged.error_type) == (Verdict.PERMANENT, "InvalidBody")
    assert "json_invalid" in judged.reason


def test_what_was_received_behind_a_permanent_failure_of_its_group_is_moved_with_it_and_comes_back() -> None:
    """The price of leaving it to SQS on a FIFO queue: it was received as often, though it never ran."""
    bank = Bank(fifo=True, at_once=False)
    for name in ("permanent", "behind", "behind it"):
        bank.send(name, group="one")
    bank.send("beside", group="other")
    bank.deliver()

    assert (bank.done, bank.bodies(bank.dead)) == (
        Counter(["beside"]),
        Counter(["permanent", "behind", "behind it"]),
    )
    bank.redrive()
    bank.deliver()
    assert bank.done == Counter(["beside", "behind", "behind it"])
    assert bank.bodies(bank.dead) == Counter(["permanent"])


@dataclass
class Aside:
    """What a run writes to beside SQS: the history's table, and a bucket. A run may crash at each write."""

    bank: Bank
    acts: dict[str, dict[str, str]] = field(default_factory=dict)
    stored: set[str] = field(default_factory=set)

    def batch_write_item(self, *, RequestItems: dict[str, Any]) -> dict[str, Any]:  # noqa: N803  # boto3's name
        def put() -> dict[str, Any]:
            items = [each["PutRequest"]["Item"] for each in RequestItems["history"]]
            assert len(items) <= 25
            texts = [{name: str(value["S"]) for name, value in item.items() if "S" in value} for item in items]
            self.acts |= {each["act"]: each for each in texts}
            return {}

        return dict(self.bank.sqs.request("batch_write_item", {}, put))

    def journal(self) -> Journal:
        return Journal(
            history=History(self, "history", self.bank.clock),  # type: ignore[arg-type]
            queue=self.bank.queue.arn,
            dead_letter_queue=self.bank.dead.arn,
            operator="arn:aws:iam::123456789012:user/operator",
            plan="plan-1",
        )

    def told(self, *outcomes: str | None) -> set[str]:
        """The messageIds of the acts with one of these outcomes; an act that was only begun has none."""
        return {each["message_id"] for each in self.acts.values() if each.get("outcome") in outcomes}

    def store(self, decisions: Sequence[Decision]) -> dict[str, str]:
        self.bank.sqs.request("store", {}, lambda: self.stored.update(each.dead_letter.id for each in decisions))
        return {}

    def archive(self) -> dict[Verdict, End]:
        """The end by which every dead letter is stored here, one at a time."""
        end = End(
            verb=Verb.ARCHIVED,
            becomes="stored",
            perform=self.store,
            split=lambda them: chunks(them, 1),
            undeleted="it is stored",
        )
        return dict.fromkeys(Verdict, end)


def requests(fifo: bool, archive: bool) -> int:
    """How many requests a whole run makes."""
    bank = leftovers(fifo=fifo)
    before = len(bank.sqs.calls)
    killable(bank, Aside(bank), archive=archive)()
    return len(bank.sqs.calls) - before


def killable(bank: Bank, aside: Aside, *, archive: bool) -> Callable[[], None]:
    """A run that redrives or archives everything, one by one, and keeps a history of it."""
    ends = {"ends": aside.archive()} if archive else {}
    session = bank.session(include_permanent=True)
    run = bank.run(session, rate=ONE_BY_ONE, journal=aside.journal(), **ends)

    def go() -> None:
        run.carry_out(run.plan())
        session.queue.release()

    return go


def crashed(bank: Bank, aside: Aside, number: int, side: str, *, archive: bool) -> None:
    """Run something that dies at this request; nothing of it runs afterwards."""
    bank.sqs.crash_at = (len(bank.sqs.calls) + number, side)
    with pytest.raises(Crash):
        killable(bank, aside, archive=archive)()
    bank.sqs.crash_at = None


def points_of(fifo: bool, *, archive: bool = False) -> list[tuple[int, str]]:
    """Before and after each receive, send, delete, change of visibility and write."""
    points = [(number, side) for number in range(requests(fifo, archive)) for side in ("before", "after")]
    assert len(points) >= 4 * len(FIXABLE | {"garbage"}), "each is begun, sent or stored, deleted, and confirmed"
    return points


@both_kinds
@pytest.mark.parametrize("meanwhile", [False, True], ids=["redriven again", "handled, then redriven again"])
def test_no_crash_at_any_request_loses_or_repeats_anything(fifo: bool, meanwhile: bool) -> None:
    for number, side in points_of(fifo):
        bank = leftovers(fifo=fifo)
        aside = Aside(bank)
        begun = bank.clock.seconds
        ids = {each.id for each in bank.dead.messages}
        crashed(bank, aside, number, side, archive=False)
        assert set(bank.bodies(bank.dead) + bank.bodies(bank.queue)) >= ALL_DEAD - {"done"}, (number, side)
        gone = ids - {each.id for each in bank.dead.messages}
        assert aside.told("done") <= gone <= aside.told("done", None), (number, side)
        assert len(aside.told("done", None) - gone) <= 1, "begun, and perhaps done"
        if meanwhile:
            bank.deliver()
        assert bank.clock.seconds - begun + HOLD_SECONDS < DEDUPLICATION_SECONDS, "twice within five minutes"
        settle(bank)
        in_balance(bank)


@both_kinds
def test_no_crash_at_any_request_deletes_what_is_not_stored(fifo: bool) -> None:
    """Whatever an end does before the deletion is done before the deletion."""
    for number, side in points_of(fifo, archive=True):
        bank = leftovers(fifo=fifo)
        aside = Aside(bank)
        ids = {each.id for each in bank.dead.messages}
        crashed(bank, aside, number, side, archive=True)
        gone = ids - {each.id for each in bank.dead.messages}
        assert aside.stored >= gone, (number, side)
        assert aside.told("done") <= aside.stored <= aside.told("done", None), (number, side)
        bank.clock.sleep(HOLD_SECONDS + 1)
        assert bank.redrive(ends=aside.archive()).left == []
        assert (aside.stored, bank.dead.messages, bank.queue.messages) == (ids, [], [])


def test_what_could_not_be_noted_in_the_history_is_not_done() -> None:
    bank = leftovers()
    bank.sqs.broken.add("batch_write_item")
    with pytest.raises(NotKept, match="dynamodb:BatchWriteItem"):
        killable(bank, Aside(bank), archive=False)()
    assert (set(bank.bodies(bank.dead)), bank.queue.messages) == (ALL_DEAD, [])


def test_where_one_of_several_requests_fails_the_others_are_deleted_and_confirmed_and_the_rest_is_counted() -> None:
    bank = throttled(45)
    aside = Aside(bank)
    send = bank.sqs.send_message_batch
    answers = itertools.count(1)

    def second_fails(**asked: Any) -> Any:
        if next(answers) == 2:
            raise ClientError({"Error": {"Code": "ServiceUnavailable"}}, "SendMessageBatch")
        return send(**asked)

    bank.sqs.send_message_batch = second_fails  # type: ignore[method-assign]
    session = bank.session()
    run = bank.run(session, rate=120, journal=aside.journal())
    with pytest.raises(ClientError):
        run.carry_out(run.plan())

    assert (len(bank.queue.messages), len(bank.dead.messages)) == (20, 25)
    assert [len(aside.told(outcome)) for outcome in ("done", "unconfirmed", None)] == [20, 10, 0]
    assert (run.summary.done, [each.why for each in run.summary.left]) == (
        {"moved": 20, "dropped": 0},
        ["the run ended before it"] * 25,
    )


@pytest.mark.scenario("S68", mutant="the second return within five minutes is swallowed")
@both_kinds
def test_what_dies_again_within_five_minutes_can_come_back_again(fifo: bool) -> None:
    """Each death has a messageId of its own, so no deduplication swallows the second return."""
    bank = leftovers(fifo=fifo)
    bank.mended = False
    begun = bank.clock.seconds
    bank.redrive(rules={"include_permanent": True})
    bank.kill_by_receives(handle=True)
    assert bank.clock.seconds - begun < DEDUPLICATION_SECONDS
    bank.mended = True

    settle(bank)

    in_balance(bank)


@both_kinds
def test_where_no_delete_succeeds_nothing_is_lost_and_nothing_runs_twice(fifo: bool) -> None:
    bank = leftovers(fifo=fifo)
    bank.sqs.undeletable.add(bank.dead.url)

    summary = bank.redrive(rules={"include_permanent": True})

    assert {left.verdict for left in summary.undeleted} == {Verdict.MOVE, Verdict.DONE}
    assert summary.done["dropped"] == 0
    bank.sqs.undeletable.clear()
    bank.deliver()
    settle(bank)
    in_balance(bank)


@pytest.mark.parametrize("done", [False, True], ids=["whose copy was sent", "which was done"])
def test_a_dead_letter_whose_deletion_is_refused_for_good_is_named_though_its_neighbours_succeeds_at_a_second_try(
    done: bool,
) -> None:
    bank = Bank()
    bank.mended = done
    bank.send("flaky-refused")
    bank.send("flaky-throttled")
    bank.kill_by_receives(handle=True)
    bank.mended = True
    refused, neighbour = (json.dumps({"name": f"flaky-{name}"}) for name in ("refused", "throttled"))
    bank.sqs.undeletable.add(refused)
    bank.sqs.throttled.add(neighbour)

    summary = bank.redrive()

    deletes = [len(asked["Entries"]) for name, asked in bank.sqs.calls if name == "delete_message_batch"]
    assert deletes[-2:] == [2, 1], "the neighbour alone is tried again"
    assert (summary.done["moved"], summary.done["dropped"]) == ((0, 1) if done else (2, 0))
    (left,) = summary.undeleted
    (kept,) = bank.dead.messages
    assert (left.dead_letter.id, kept.sent["MessageBody"]) == (kept.id, refused)
    assert "ReceiptHandleIsInvalid" in left.why
    assert ("its copy was sent" in left.why) is not done
    # The record protects: where its copy was sent it is there twice by now, and it runs once.
    bank.sqs.undeletable.clear()
    settle(bank)
    assert bank.done == Counter(["flaky-refused", "flaky-throttled"])


# Native redrive, reproduced as documented.


def completed_and_dead(key: KeyStrategy = message_id) -> Bank:
    bank = Bank(key=key)
    bank.send("paid")
    bank.kill_by_receives(handle=True)
    assert bank.done == Counter(["paid"])
    return bank


def test_a_native_redrive_reproduced_as_documented_runs_what_was_done_a_second_time() -> None:
    """The reason for this redriver: new messageIds, where the messageId was the key."""
    bank = completed_and_dead()
    bank.sqs.move_natively(bank.dead, bank.queue)
    bank.deliver()
    assert bank.done == Counter({"paid": 2})


def test_ours_drops_what_was_done_and_it_runs_no_second_time() -> None:
    bank = completed_and_dead()
    summary = bank.redrive()
    bank.deliver()
    assert (summary.done["dropped"], summary.done["moved"], summary.left) == (1, 0, [])
    assert bank.done == Counter(["paid"])
    assert bank.dead.messages == []


def test_a_business_key_survives_a_native_redrive() -> None:
    bank = completed_and_dead(key=body_field("name"))
    bank.sqs.move_natively(bank.dead, bank.queue)
    bank.deliver()
    assert bank.done == Counter(["paid"])


def test_two_copies_of_one_dead_letter_run_once() -> None:
    bank = Bank()
    bank.send("flaky")
    bank.kill_by_receives(handle=True)
    bank.mended = True
    bank.sqs.undeletable.add(bank.dead.url)
    bank.redrive()
    bank.sqs.undeletable.clear()
    bank.redrive()
    assert bank.bodies(bank.queue) == Counter({"flaky": 2})
    bank.deliver()
    assert bank.done == Counter(["flaky"])


# What is kept of a message.


def test_body_attributes_group_and_trace_are_kept_and_the_key_is_stamped() -> None:
    bank = Bank(fifo=True)
    attributes = {
        "tenant": {"DataType": "String.name", "StringValue": "t"},
        "amount": {"DataType": "Number", "StringValue": "1.50"},
        "raw": {"DataType": "Binary.bytes", "BinaryValue": b"\x00\xff"},
    }
    body = '{ "name":"flaky", "n": 1e2 }'
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1"}}
    sent = {"MessageBody": body, "MessageAttributes": attributes, "MessageSystemAttributes": trace}
    bank.sqs.send_message(QueueUrl=bank.dead.url, MessageGroupId="g", MessageDeduplicationId="d", **sent)
    letter = bank.dead.messages[0]
    letter.source = bank.queue.arn

    bank.redrive()

    (moved,) = bank.queue.messages
    stamp = json.loads(moved.sent["MessageAttributes"].pop(STAMP)["StringValue"])
    assert moved.sent["MessageAttributes"] == attributes
    assert moved.sent["MessageBody"] == body
    assert moved.sent["MessageGroupId"] == "g"
    assert moved.sent["MessageDeduplicationId"] == f"redrive-{letter.id}"
    assert moved.sent["MessageSystemAttributes"] == trace
    assert stamp == {"key": letter.id, "original_id": letter.id, "first_received": START, "queue": bank.queue.arn}


def test_the_first_id_and_the_first_time_are_kept_over_many_deaths() -> None:
    bank = Bank()
    id = bank.send("flaky")
    for _ in range(3):
        bank.kill_by_receives(handle=True)
        bank.redrive()
    (moved,) = bank.queue.messages
    stamp = json.loads(moved.sent["MessageAttributes"][STAMP]["StringValue"])
    assert moved.id != id
    assert (stamp["key"], stamp["original_id"], stamp["first_received"]) == (id, id, START)


# Filters, limits, rate, and stopping.


@pytest.mark.parametrize(
    ("reason", "moved"),
    [
        ("connectionerror", {"flaky-0", "flaky-1", "flaky-2"}),
        ("never claimed", {"throttled"}),
        ("PermanentError", {"permanent", "garbage"}),
        ("permanent cannot", {"permanent"}),
        ("no such reason", set()),
    ],
)
def test_a_filter_by_reason_moves_those_and_no_others(reason: str, moved: set[str]) -> None:
    bank = leftovers()
    summary = bank.redrive(rules={"include_permanent": True}, selection=Selection(reason=reason))
    assert set(bank.bodies(bank.queue)) == moved
    assert summary.done["moved"] == len(moved)
    assert summary.left == []


def test_a_filter_by_key_moves_that_one() -> None:
    bank = leftovers()
    key = next(kept.id for kept in bank.dead.messages if "flaky-1" in kept.sent["MessageBody"])
    bank.redrive(selection=Selection(keys=frozenset([key])))
    assert bank.bodies(bank.queue) == Counter(["flaky-1"])


def throttled(count: int, *, fifo: bool = False, groups: int = 1, **sent: Any) -> Bank:
    """A bank with so many dead letters that no handler ever saw."""
    bank = Bank(fifo=fifo)
    for number in range(count):
        bank.send(f"throttled-{number:02}", group=str(number % groups), **sent)
    bank.kill_by_receives(handle=False)
    return bank


@both_kinds
def test_a_limit_is_kept_and_said(fifo: bool) -> None:
    bank = throttled(25, fifo=fifo)
    summary = bank.redrive(selection=Selection(limit=12))
    assert (len(bank.queue.messages), len(bank.dead.messages)) == (12, 13)
    assert (summary.done["moved"], len(summary.left) + summary.unseen, summary.beyond_limit) == (12, 13, True)
    assert summary.unseen == (5 if fifo else 0), "of a FIFO group SQS gives out ten at most"
    assert {each.why for each in summary.left} == {BEYOND_LIMIT}


def test_a_rate_is_kept() -> None:
    bank = throttled(50)
    begun = bank.clock.seconds
    bank.redrive(rate=5)
    assert 9 <= bank.clock.seconds - begun <= 10


@both_kinds
def test_what_is_left_is_released_at_once(fifo: bool) -> None:
    bank = leftovers(fifo=fifo)
    bank.redrive()
    assert all(kept.visible_seconds <= bank.clock.seconds for kept in bank.dead.messages)


@both_kinds
def test_stopped_anywhere_it_gives_back_the_rest_and_can_be_started_again(fifo: bool) -> None:
    for asked in range(12):
        bank = leftovers(fifo=fifo)
        answers = iter([False] * asked)
        summary = bank.redrive(
            rules={"include_permanent": True}, rate=ONE_BY_ONE, stopped=lambda a=answers: next(a, True)
        )
        assert summary.acted + len(summary.left) + summary.unseen == len(ALL_DEAD), "each of them is counted"
        assert all(kept.visible_seconds <= bank.clock.seconds for kept in bank.dead.messages)
        bank.redrive(rules={"include_permanent": True})
        bank.deliver()
        in_balance(bank)


def counted(bank: Bank) -> Counter[str]:
    return Counter(name for name, _ in bank.sqs.calls)


def test_a_request_carries_ten_dead_letters_and_a_read_a_hundred(monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls are counted exactly: 1,005 dead letters are 101 tens, and 11 hundreds of records."""
    bank = throttled(1005)
    bank.workers = WORKERS
    reads: list[int] = []
    read = bank.store.read
    monkeypatch.setattr(bank.store, "read", lambda ids: [reads.append(len(ids)), read(ids)][1])
    before = counted(bank)

    summary = bank.redrive(rate=400, journal=Aside(bank).journal())

    made = counted(bank) - before
    assert (summary.done["moved"], len(bank.queue.messages), bank.dead.messages) == (1005, 1005, [])
    assert (made["send_message_batch"], made["delete_message_batch"]) == (101, 101)
    assert 101 < made["receive_message"] <= 101 + WORKERS, "and a few, at once, that find no more"
    assert made["batch_write_item"] == 2 * 41, "25 at a time, before and after"
    assert sorted(reads) == [5, *[100] * 10]
    assert made.keys() == {"receive_message", "send_message_batch", "delete_message_batch", "batch_write_item"}


@pytest.mark.parametrize("request_name", ["receive_message", "send_message_batch", "delete_message_batch"])
def test_several_requests_are_under_way_at_a_time(request_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bank = throttled(200)
    bank.workers = 2
    together = threading.Barrier(2)
    request, numbers = getattr(bank.sqs, request_name), itertools.count(1)

    def meets_another(**asked: Any) -> Any:
        # The first receive is alone: whether there is more is known only then.
        if request_name != "receive_message" or 1 < next(numbers) < 10:
            together.wait(timeout=10)
        return request(**asked)

    monkeypatch.setattr(bank.sqs, request_name, meets_another)
    assert bank.redrive(rate=80).done["moved"] == 200


def test_at_four_hundred_a_second_a_hundred_thousand_take_less_than_five_minutes() -> None:
    """What is paced is paced by the rate alone: the time of the clock is that of all waves together."""
    bank = throttled(1000)
    begun = bank.clock.seconds
    bank.redrive(rate=400)
    assert bank.clock.seconds - begun == pytest.approx((1000 - 100) / 400)


def test_a_filter_by_group_moves_those_groups_and_no_others() -> None:
    bank = leftovers()
    with bank.session() as session:
        groups = {json.loads(each.dead_letter.message.raw_body)["name"]: each.group for each in session.take()}
    assert groups["flaky-0"] == f"ConnectionError@{__name__}._post"
    selection = Selection(groups=frozenset([groups["flaky-0"], "never-claimed"]))
    bank.redrive(selection=selection)
    assert set(bank.bodies(bank.queue)) == {"flaky-0", "flaky-1", "flaky-2", "throttled"}


@pytest.mark.parametrize(("error_type", "moved"), [("ConnectionError", 3), ("connectionerror", 0), ("Connection", 0)])
def test_a_filter_by_type_wants_the_whole_type(error_type: str, moved: int) -> None:
    assert leftovers().redrive(selection=Selection(error_type=error_type)).done["moved"] == moved


@pytest.mark.parametrize(
    ("since", "until", "moved"),
    [
        (None, None, {"a", "b", "c"}),
        (60, None, {"b", "c"}),
        (61, None, {"c"}),
        (None, 60, {"a", "b"}),
        (None, 59, {"a"}),
        (60, 60, {"b"}),
        (60.9, 60.1, {"b"}),
        (121, None, set()),
    ],
)
def test_a_filter_by_time_includes_the_seconds_it_names(
    since: float | None, until: float | None, moved: set[str]
) -> None:
    """Times are listed without fractions of a second, and what was copied from there has to be found."""
    bank = Bank()
    begun = bank.clock.epoch_ms() // 1000 * 1000
    for name in ("a", "b", "c"):
        stamp = Stamp(key=name, original_id=name, queue=bank.queue.arn).to_json()
        attributes = {STAMP: {"DataType": "String", "StringValue": stamp}}
        bank.sqs.send_message(
            QueueUrl=bank.dead.url, MessageBody=json.dumps({"name": name}), MessageAttributes=attributes
        )
        bank.clock.sleep(60)

    def at(seconds: float | None) -> int | None:
        return None if seconds is None else begun + int(seconds * 1000)

    bank.redrive(selection=Selection(since_ms=at(since), until_ms=at(until)))

    assert set(bank.bodies(bank.queue)) == moved


# Plans that were saved.


def planned(bank: Bank, **rules: Any) -> list[Planned]:
    """What a redrive of everything would do now."""
    with bank.session(**rules) as session:
        return [Planned.of(each) for each in bank.run(session).plan().acting]


@both_kinds
def test_a_saved_plan_is_carried_out_exactly(fifo: bool) -> None:
    """What has become a dead letter since stays, and nobody is told that it is left."""
    bank = leftovers(fifo=fifo)
    letters = planned(bank)
    bank.send("throttled-later")
    bank.kill_by_receives(handle=False)

    summary = bank.redrive(selection=Selection.of_plan(letters))

    assert (summary.done["moved"], summary.done["dropped"], summary.left, summary.unseen) == (4, 1, [], 0)
    assert bank.bodies(bank.dead) == Counter(["garbage", "conflict", "permanent", "throttled-later"])


def test_what_was_taken_out_of_a_plan_stays() -> None:
    bank = throttled(3)
    first, *_ = letters = planned(bank)
    assert len(letters) == 3
    bank.redrive(selection=Selection.of_plan([first]))
    assert [kept.id for kept in bank.dead.messages] == [each.message_id for each in letters[1:]]


def test_a_plan_of_nothing_moves_nothing() -> None:
    bank = throttled(3)
    assert bank.redrive(selection=Selection.of_plan([])).acted == 0
    assert len(bank.dead.messages) == 3


def test_a_dead_letter_whose_verdict_is_no_longer_as_planned_stays_and_is_listed() -> None:
    bank = Bank()
    bank.send("flaky")
    bank.kill_by_receives(handle=True)
    letters = planned(bank)
    bank.mended = True
    # Meanwhile somebody else sends a copy, which completes, and cannot delete the dead letter.
    bank.sqs.undeletable.add(bank.dead.url)
    bank.redrive()
    bank.deliver()
    bank.sqs.undeletable.clear()

    summary = bank.redrive(selection=Selection.of_plan(letters))

    assert summary.acted == 0
    assert [each.why for each in summary.left] == [
        "its verdict was MOVE in the plan and is DONE now: its record is COMPLETED, with the same payload"
    ]
    assert bank.bodies(bank.dead) == Counter(["flaky"])


def test_a_dead_letter_whose_body_is_no_longer_as_planned_stays_and_is_listed() -> None:
    bank = throttled(2)
    letters = [replace(planned(bank)[0], body_sha256="another"), planned(bank)[1]]
    summary = bank.redrive(selection=Selection.of_plan(letters))
    assert summary.done["moved"] == 1
    assert [(each.dead_letter.id, each.why) for each in summary.left] == [
        (letters[0].message_id, "its body is not the one that was planned for")
    ]


def test_a_plan_names_what_is_gone() -> None:
    bank = throttled(2)
    selection = Selection.of_plan(planned(bank))
    gone = bank.dead.messages.pop()
    with bank.session() as session:
        run = bank.run(session, selection=selection)
        run.carry_out(run.plan())
        assert [each.message_id for each in selection.missing(session.queue.seen)] == [gone.id]
    assert run.summary.done["moved"] == 1


# FIFO.


def names_in(queue: Queue) -> list[str]:
    return [json.loads(kept.sent["MessageBody"])["name"] for kept in queue.messages]


def test_a_group_comes_back_in_its_order_though_sqs_shows_ten_of_it_at_a_time() -> None:
    bank = throttled(25, fifo=True)
    summary = bank.redrive()
    assert names_in(bank.queue) == [f"throttled-{number:02}" for number in range(25)]
    assert (summary.done["moved"], summary.unseen) == (25, 0)


def test_what_sqs_refuses_is_not_overtaken_by_its_group_and_other_groups_go_on() -> None:
    bank = throttled(6, fifo=True, groups=2)
    bank.sqs.refused.add('{"name": "throttled-02"}')

    summary = bank.redrive()

    assert names_in(bank.queue) == ["throttled-00", "throttled-01", "throttled-03", "throttled-05"]
    assert [left.why for left in summary.left] == [
        "SQS refused its copy: ReceiptHandleIsInvalid",
        "an earlier dead letter of its group stays",
    ]


def test_what_lies_behind_ten_that_stay_is_said_to_be_unseen() -> None:
    bank = Bank(fifo=True)
    for number in range(12):
        bank.send(f"permanent-{number}", group="one")
    bank.deliver()
    summary = bank.redrive()
    assert (len(summary.left), summary.unseen) == (10, 2)


# Holding.


def test_a_hold_that_runs_out_is_renewed_before_anything_is_sent() -> None:
    bank = throttled(40)
    bank.redrive(rate=2)
    assert len(bank.queue.messages) == 40
    assert bank.dead.messages == []


@both_kinds
def test_what_somebody_else_took_meanwhile_is_left_to_them(fifo: bool) -> None:
    bank = throttled(1, fifo=fifo)
    with bank.session() as session:
        redrive = bank.run(session)
        plan = redrive.plan()
        bank.clock.sleep(HOLD_SECONDS + 1)
        assert bank.sqs.receive_message(QueueUrl=bank.dead.url)["Messages"]

        redrive.carry_out(plan)

    assert redrive.summary.done["moved"] == 0
    assert [left.why for left in redrive.summary.left] == ["it is no longer held: somebody else may be handling it"]
    assert bank.queue.messages == []


def test_what_a_killed_run_holds_is_counted_and_comes_up_when_its_hold_ends() -> None:
    bank = throttled(100)
    killed = bank.session()
    assert len(killed.take(80)) == 80
    bank.clock.sleep(5)
    with bank.session() as session:
        assert (session.queue.held_elsewhere(), len(session.take()), session.queue.held_elsewhere()) == (80, 20, 80)
        begun = bank.clock.seconds
        assert session.queue.wait_for_others() == 0
        assert HOLD_SECONDS - 5 <= bank.clock.seconds - begun <= HOLD_SECONDS
    with bank.session() as session:
        assert len(session.take()) == 100


def test_a_wait_for_others_ends_although_one_of_them_goes_on_holding() -> None:
    bank = throttled(10)
    bank.sqs.receive_message(QueueUrl=bank.dead.url, MaxNumberOfMessages=10, VisibilityTimeout=3600)
    queue = bank.session().queue
    begun = bank.clock.seconds
    assert (queue.wait_for_others(), bank.clock.seconds - begun) == (10, HOLD_SECONDS)
    assert (queue.wait_for_others(lambda: True), bank.clock.seconds - begun) == (10, HOLD_SECONDS)


def test_what_dies_again_while_it_runs_does_not_go_round_and_round() -> None:
    bank = Bank(fifo=True)
    for number in range(5):
        bank.send(f"garbage-{number}")
    bank.deliver()

    def dies_again(summary: Summary) -> None:
        bank.deliver()

    with bank.session(include_permanent=True) as session:
        redrive = bank.run(session)
        redrive.carry_out(redrive.plan(), dies_again)

    assert redrive.summary.done["moved"] == 5
    assert {left.why for left in redrive.summary.left} == {"this run has moved it already, and it failed again"}
    assert len(bank.dead.messages) == 5


def test_batches_stay_within_a_mebibyte_and_each_message_comes_back() -> None:
    bank = throttled(6, attributes={"a": {"DataType": "String", "StringValue": "x" * 400_000}})
    assert bank.redrive().done["moved"] == 6
    sizes = [len(asked["Entries"]) for name, asked in bank.sqs.calls if name == "send_message_batch"]
    assert sizes == [2, 2, 2]


def test_trouble_with_aws_ends_the_run_and_what_is_held_is_released() -> None:
    bank = leftovers()
    bank.sqs.broken.add("send_message_batch")
    with pytest.raises(ClientError):
        bank.redrive()
    assert bank.queue.messages == []
    assert all(kept.visible_seconds <= bank.clock.seconds for kept in bank.dead.messages)


@pytest.mark.parametrize("source", ["arn:aws:sqs:us-east-1:123456789012:others", None])
def test_what_is_not_known_to_be_a_dead_letter_of_this_queue_stays_where_it_is(source: str | None) -> None:
    """A dead-letter queue may serve several queues; what is another's is neither run nor dropped here."""
    bank = completed_and_dead()
    bank.dead.messages[0].source = source
    summary = bank.redrive(rules={"include_permanent": True, "force": True})
    assert [left.verdict for left in summary.left] == [Verdict.FOREIGN]
    assert len(bank.dead.messages) == 1


# What becomes of what was moved.


def test_a_message_that_was_moved_is_followed_to_its_end() -> None:
    bank = Bank()
    for name in ("good", "flaky", "garbage", "throttled"):
        bank.send(name)
    bank.kill_by_receives(handle=False)
    with bank.session(include_permanent=True) as session:
        run = bank.run(session)
        run.carry_out(run.plan())
        following = Following(session, run.returned.values())
        looks = following.looks(600)

        assert next(looks) == {Fate.WAITING: 4}
        assert all(kept.visible_seconds <= bank.clock.seconds for kept in bank.dead.messages)
        bank.receive_once()
        assert next(looks) == {Fate.COMPLETED: 2, Fate.FAILED: 1, Fate.DEAD: 1}
        bank.mended = True
        bank.deliver()
        assert next(looks) == {Fate.COMPLETED: 3, Fate.DEAD: 1}
        assert list(looks) == [], "nothing is left to wait for"


@both_kinds
def test_what_fails_again_until_sqs_moves_it_is_dead_again(fifo: bool) -> None:
    """Its record tells of the failure before, and the first look does not take that for a new one."""
    bank = Bank(fifo=fifo)
    bank.send("flaky")
    bank.kill_by_receives(handle=True)
    with bank.session() as session:
        run = bank.run(session)
        run.carry_out(run.plan())
        looks = Following(session, run.returned.values()).looks(600)
        assert next(looks) == {Fate.WAITING: 1}
        bank.kill_by_receives(handle=True)
        assert list(looks) == [{Fate.DEAD: 1}]


def test_following_ends_with_its_time_and_tells_what_still_waits() -> None:
    bank = throttled(3)
    with bank.session() as session:
        run = bank.run(session)
        run.carry_out(run.plan())
        begun = bank.clock.seconds
        counts = list(Following(session, run.returned.values()).looks(30))
    assert (counts[-1], bank.clock.seconds - begun) == ({Fate.WAITING: 3}, 30)


def test_following_is_stopped_at_once() -> None:
    bank = throttled(3)
    with bank.session() as session:
        run = bank.run(session)
        run.carry_out(run.plan())
        assert list(Following(session, run.returned.values()).looks(600, lambda: True)) == [{Fate.WAITING: 3}]
