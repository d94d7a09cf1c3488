"""Every verb: what it acts on, what only a name lets it act on, and what stays whatever is asked."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver.operations.dead_letters.dead_letter import DeadLetter, Reader
from idempotent_receiver.operations.dead_letters.history import Verb
from idempotent_receiver.operations.dead_letters.selection import PlannedLetter, Selection
from idempotent_receiver.operations.dead_letters.triage import Verdict
from idempotent_receiver.operations.dead_letters.verbs import (
    Dispositions,
    archive_dispositions,
    delete_dispositions,
    redrive_dispositions,
    resend_dispositions,
    restore_dispositions,
)
from idempotent_receiver.transaction.outbox import STAMP
from tests.unit.operations.dead_letters.bank import Bank, both_kinds, leftovers, throttled
from tests.unit.operations.dead_letters.bucket import Bucket, archived, from_archive, gone_through

if TYPE_CHECKING:
    from collections.abc import Callable

NEVER: Any = object()
"""What would resend, where nothing is done."""
ENDS: dict[str, Dispositions] = {
    "redrive": redrive_dispositions("q", NEVER),
    "redrive --to-dlq": restore_dispositions("d"),
    "resend": resend_dispositions(NEVER),
    "archive": archive_dispositions(lambda decision: None),
    "delete": delete_dispositions(),
}
RUNNABLE = {
    *(Verdict.MOVE, Verdict.PERMANENT, Verdict.CONFLICT, Verdict.NO_ROOM, Verdict.UNKEYED, Verdict.UNSENT),
}
OURS = set(Verdict) - {Verdict.OTHER_QUEUE}


@pytest.mark.parametrize(
    ("command", "acts_on", "returns"),
    [
        ("redrive", {Verdict.MOVE, Verdict.DONE, Verdict.RESENT, Verdict.UNSENT}, {Verb.MOVED, Verb.RESENT}),
        ("redrive --to-dlq", OURS - {Verdict.MALFORMED}, {Verb.RESTORED}),
        ("resend", RUNNABLE, {Verb.RESENT}),
        ("archive", set(Verdict), set()),
        ("delete", set(Verdict) - {Verdict.RESENDING, Verdict.UNSENT}, set()),
    ],
)
def test_a_verb_acts_on_these_verdicts_and_on_no_other(command: str, acts_on: set[Verdict], returns: set[Verb]) -> None:
    dispositions = ENDS[command]
    assert set(dispositions) == acts_on
    assert {each.verb for each in dispositions.values() if each.returns} == returns
    assert all(each.becomes for each in dispositions.values())
    unique = list({id(each): each for each in dispositions.values()}.values())
    named = [bool(each.undeleted) for each in unique]
    assert named == [each.copy is not None or each.keep is not None or each.verb == Verb.RESENT for each in unique]


# What is not known to be ours.


OTHERS = "arn:aws:sqs:us-east-1:123456789012:others"


def strangers() -> Bank:
    """A bank with one message that nothing says anything of, one of another queue, and one of its own."""
    bank = throttled(1)
    for name in ("foreign", "other"):
        bank.sqs.send_message(QueueUrl=bank.dead.url, MessageBody=json.dumps({"name": name}))
    bank.dead.messages[-1].source = OTHERS
    return bank


def everything(bank: Bank) -> Selection:
    """A saved plan of all that is there."""
    return Selection.of_plan(map(PlannedLetter.of, taken(bank).values()))


def taken(bank: Bank) -> dict[str, Any]:
    with bank.session() as session:
        return {each.dead_letter.id: each for each in session.take()}


def ids(bank: Bank) -> frozenset[str]:
    return frozenset(each.id for each in bank.dead.messages)


@pytest.mark.parametrize("verb", ["archive", "delete"])
@pytest.mark.parametrize(
    ("selection", "left"),
    [
        (lambda bank: Selection(), {"foreign", "other"}),
        (lambda bank: Selection(limit=9), {"foreign", "other"}),
        (lambda bank: Selection(since_ms=0), {"foreign", "other"}),
        (lambda bank: Selection(matching="received too many times"), {"foreign", "other"}),
        (lambda bank: Selection(keys=ids(bank)), {"foreign", "other"}),
        (lambda bank: Selection(ids=ids(bank)), {"other"}),
        (lambda bank: Selection(groups=frozenset(["foreign", "other-queue", "no-record"])), {"other"}),
        (everything, {"other"}),
    ],
    ids=["all", "limit", "time", "matching", "key", "message id", "group", "a saved plan that names it"],
)
def test_what_may_be_anybodys_goes_only_if_it_is_named_and_another_queues_never(
    verb: str, selection: Callable[[Bank], Selection], left: set[str]
) -> None:
    bank = strangers()
    dispositions = delete_dispositions() if verb == "delete" else archive_dispositions(Bucket(bank).archive().put)

    summary = gone_through(bank, dispositions, selection(bank)).summary

    assert (set(bank.bodies(bank.dead)), summary.acted) == (left, 3 - len(left))
    foreign = [each.why for each in summary.left if each.verdict == Verdict.FOREIGN]
    assert all("select it with --message-id or --group foreign" in why for why in foreign)


@pytest.mark.parametrize("verb", ["archive", "delete"])
@pytest.mark.parametrize(
    ("selection", "left"),
    [
        (lambda bank: Selection(), {"foreign", "other"}),
        (lambda bank: Selection(keys=ids(bank)), {"foreign", "other"}),
        (lambda bank: Selection(ids=ids(bank)), set()),
        (lambda bank: Selection(groups=frozenset(["other-queue"])), {"foreign", "throttled-00"}),
        (everything, set()),
    ],
    ids=["all", "key", "message id", "group", "a saved plan that names it"],
)
def test_what_came_from_a_queue_that_is_gone_goes_if_it_is_named(
    verb: str, selection: Callable[[Bank], Selection], left: set[str]
) -> None:
    """Nobody else can end it: its consumer's commands need that queue."""
    bank = strangers()
    bank.gone = {OTHERS}
    dispositions = delete_dispositions() if verb == "delete" else archive_dispositions(Bucket(bank).archive().put)

    summary = gone_through(bank, dispositions, selection(bank)).summary

    assert set(bank.bodies(bank.dead)) == left
    others = [each.why for each in summary.left if each.verdict == Verdict.OTHER_QUEUE]
    assert all("which no longer exists; select it with --message-id or --group other-queue" in why for why in others)


@pytest.mark.parametrize(("lease_ms", "when"), [(-1, "lapsed"), (60_000, "live")])
def test_a_dead_letter_whose_messages_are_not_all_sent_is_not_deleted(lease_ms: int, when: str) -> None:
    """Without it, no delivery sends the rest. Redrive and archive take it as ever; what is done may be deleted."""
    bank = throttled(2)
    one, other = bank.dead.messages
    ended = {"status": "SENDING", "in_progress_expiration": bank.clock.epoch_ms() + lease_ms}
    bank.store.items[one.id] = {"id": one.id, "version": "v", "outbox": "[]", "expiration": 4_000_000_000, **ended}

    summary = gone_through(bank, delete_dispositions()).summary

    (left,) = summary.left
    assert (left.message_id, summary.done) == (one.id, Counter({"deleted": 1}))
    assert "receiver stuck --send KEY; what can never be sent, add --give-up N --because WHY" in left.why
    assert other.id not in ids(bank)
    bank.store.items[one.id]["expiration"] = 1
    assert gone_through(bank, delete_dispositions()).summary.acted == 1, "its record has expired"


def test_what_a_redrive_may_not_move_it_does_not_move_by_name_either() -> None:
    bank = strangers()
    bank.redrive(rules={"include_permanent": True, "force": True}, selection=Selection(ids=ids(bank)))
    assert bank.bodies(bank.dead) == Counter(["foreign", "other"])


@both_kinds
def test_what_is_deleted_is_gone(fifo: bool) -> None:
    bank = leftovers(fifo=fifo)
    assert gone_through(bank, delete_dispositions()).summary.done == {"deleted": 8}
    assert (bank.dead.messages, bank.queue.messages) == ([], [])


# What has no room.


FULL = {f"attribute-{number}": {"DataType": "String", "StringValue": "x"} for number in range(10)}


def test_what_has_no_room_for_its_stamp_is_planned_as_staying_in_the_archive() -> None:
    bank = Bank(at_once=False)
    bank.send("flaky-full", attributes=FULL)
    bank.send("flaky")
    bank.deliver()
    bucket = Bucket(bank)
    archived(bank, bucket)
    with replace(bank.session(), source=bucket.archive()) as session:
        plan = bank.run(session, dispositions=restore_dispositions(bank.dead.url)).plan()
    assert ([each.verdict for each in plan.acting], [each.verdict for each in plan.staying]) == (["MOVE"], ["NO_ROOM"])

    (left,) = from_archive(bank, bucket).summary.left

    assert (left.outcome, left.why) == (
        None,
        "it has no room for its key: it already has 10 attributes, which is SQS's limit",
    )
    assert (bank.bodies(bank.dead), len(bucket.objects)) == (Counter(["flaky"]), 1)


def test_what_is_restored_stays_within_a_mebibyte_a_request() -> None:
    bank = throttled(6, attributes={"a": {"DataType": "String", "StringValue": "x" * 400_000}})
    bucket = Bucket(bank)
    archived(bank, bucket)
    with replace(bank.session(), source=bucket.archive()) as session:
        run = bank.run(session, dispositions=restore_dispositions(bank.dead.url))
        run.carry_out(run.plan())
    assert (run.summary.done, len(bank.dead.messages)) == ({"restored": 6}, 6)


# What cannot be read.


def stamped(text: str | None = None, **given: Any) -> dict[str, Any]:
    """The attributes of a message with this stamp, or with one that says this."""
    own = {"key": "k", "original_id": "k", "queue": "arn:aws:sqs:us-east-1:123456789012:transfers", **given}
    return {STAMP: {"DataType": "String", "StringValue": json.dumps(own) if text is None else text}}


POISON: dict[str, tuple[dict[str, Any], str, str]] = {
    "a reason that no text is": (stamped(reason="\ud800"), "{}", "PERMANENT"),
    "a type that no text is": (stamped(reason="r", error_type="\ud800", at="\ud800:1"), "{}", "PERMANENT"),
    "a key that no text is": (stamped(key="\ud800"), "{}", "UNKEYED"),
    "a first id that no text is": (stamped(original_id="\ud800"), "{}", "MOVE"),
    "a queue that no text is": (stamped(queue="\ud800"), "{}", "OTHER_QUEUE"),
    "an absurd time": (stamped(first_received="0001-01-01T00:00:00+23:59"), "{}", "MOVE"),
    "a time past all": (stamped(first_received="9999-12-31T23:59:59-23:59"), "{}", "MOVE"),
    "a stamp that is a list": (stamped("[1]"), "{}", "FOREIGN"),
    "a stamp of no end": (stamped("[" * 100_000), "{}", "FOREIGN"),
    "an attribute that no text is": (
        stamped() | {"a": {"DataType": "String", "StringValue": "\ud800"}},
        *("{}", "MOVE"),
    ),
    "a body that no text is": (stamped(), "\ud800", "MOVE"),
    "a body that spells half a character": (stamped(), '{"id": "\\ud800"}', "MOVE"),
}


@pytest.mark.parametrize("kind", POISON)
def test_a_poison_letter_stops_nothing(kind: str) -> None:
    """It is listed, archived as JSON in ASCII, brought back and deleted, and its neighbour is redriven."""
    attributes, body, verdict = POISON[kind]
    bank = throttled(1)
    bank.sqs.send_message(QueueUrl=bank.dead.url, MessageBody=body, MessageAttributes=attributes)
    (id,) = ids(bank) - {bank.dead.messages[0].id}
    bucket, named, stays = Bucket(bank), Selection(ids=frozenset([id])), verdict == "OTHER_QUEUE"
    assert taken(bank)[id].verdict == verdict

    gone_through(bank, archive_dispositions(bucket.archive().put), named)
    assert len(bucket.objects) == (not stays)
    with replace(bank.session(), source=bucket.archive()) as session:
        run = bank.run(session, dispositions=restore_dispositions(bank.dead.url), selection=named)
        run.carry_out(run.plan())
    assert (len(bank.dead.messages), bucket.objects) == (2, {})
    bank.redrive()
    assert '{"name": "throttled-00"}' in [each.sent["MessageBody"] for each in bank.queue.messages]
    gone_through(bank, delete_dispositions(), Selection(ids=ids(bank)))
    assert len(bank.dead.messages) == stays


def test_what_cannot_be_read_at_all_is_a_group_of_its_own_and_can_be_archived_and_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bank = throttled(2)
    (broken, _) = (each.id for each in bank.dead.messages)

    read = Reader._read

    def poisoned(self: Reader, raw: Any, now_ms: int) -> DeadLetter:
        assert raw["MessageId"] != broken, "a defect"
        return read(self, raw, now_ms)

    monkeypatch.setattr(Reader, "_read", poisoned)
    decision = taken(bank)[broken]
    why = "it cannot be read: AssertionError: a defect"
    assert (decision.verdict, decision.group) == (Verdict.MALFORMED, "malformed")
    assert why in decision.why
    assert bank.redrive().done["moved"] == 1
    bucket = Bucket(bank)
    gone_through(bank, archive_dispositions(bucket.archive().put), Selection(groups=frozenset(["malformed"])))
    assert [each["verdict"] for each in bucket.documents()] == ["MALFORMED"]
    bank.sqs.send_message(QueueUrl=bank.dead.url, MessageBody="{}")
    broken = bank.dead.messages[0].id
    bank.dead.messages[0].source = bank.queue.arn
    assert gone_through(bank, delete_dispositions()).summary.done == {"deleted": 1}
