"""The decision about a dead letter, row by row and over every combination."""

from __future__ import annotations

import itertools
import json
import shlex
from dataclasses import replace
from datetime import datetime
from hashlib import sha256
from typing import Any

import pytest

from idempotent_receiver import RetryLater, body_field, message_attribute, message_id
from idempotent_receiver.errors import Failure, failure_of
from idempotent_receiver.operations.dead_letters.dead_letter import DeadLetter, Reader
from idempotent_receiver.operations.dead_letters.triage import Decision, Rules, Verdict, triage
from idempotent_receiver.payload import EVERYTHING, Document
from idempotent_receiver.protocol.charges import Charged
from idempotent_receiver.protocol.record import Record
from idempotent_receiver.protocol.resend import Resend
from idempotent_receiver.protocol.store import Unknown
from idempotent_receiver.sqs.dead_letter import Stamp
from idempotent_receiver.transaction.outbox import STAMP

NOW_MS = 1_800_000_000_000
DAY_MS = 86_400_000
QUEUE = "arn:aws:sqs:us-east-1:123456789012:transfers"
OTHER = "arn:aws:sqs:us-east-1:123456789012:others"
BODY = '{"order": "o-1", "amount": 5}'
RAW_FINGERPRINT = sha256(BODY.encode()).hexdigest()
RULES = Rules(queue_arn=QUEUE)
ALL = Rules(queue_arn=QUEUE, include_permanent=True, force=True)
GONE = NOW_MS // 1000 - 1
LASTING = NOW_MS // 1000 + 86_400


def dead_letter(
    *,
    source: str | None = QUEUE,
    stamp: Stamp | None = None,
    age_days: float = 1,
    key: Any = message_id,
    body: str = BODY,
    attributes: int = 0,
) -> DeadLetter:
    system = {"SentTimestamp": str(int(NOW_MS - age_days * DAY_MS))}
    system |= {"DeadLetterQueueSourceArn": source} if source else {}
    texts = {f"a{number}": "v" for number in range(attributes)} | ({} if stamp is None else {STAMP: stamp.to_json()})
    held = {name: {"DataType": "String", "StringValue": text} for name, text in texts.items()}
    raw = {"MessageId": "m-1", "ReceiptHandle": "r", "Body": body, "Attributes": system, "MessageAttributes": held}
    return Reader(queue_arn=QUEUE, key=key, record_id=str).read(raw, NOW_MS)


def told(letter: DeadLetter, found: Record | Unknown | None = None, rules: Rules = RULES) -> Decision:
    return triage(letter, found, NOW_MS, rules)


def record(status: str, **attributes: Any) -> Record:
    values = {"version": "v", "expiration": LASTING, "validation": RAW_FINGERPRINT, "attempts": 5, **attributes}
    return Record(id="m-1", status=status, **values)


COMPLETED = record("COMPLETED")
TRANSIENT = record("FAILED", error=Failure(type="ConnectionError", at="app.pay:1").to_json())
DELAYED = record("FAILED", error=failure_of(RetryLater("the shop opens at nine", seconds=3600)).to_json())
PERMANENT = record("FAILED", error=Failure(type="PermanentError", text="closed", permanent=True).to_json())
ORPHAN = record("INPROGRESS", in_progress_expiration=NOW_MS - 1, owner="w")
RELEASED = record("INPROGRESS", in_progress_expiration=NOW_MS - 1, validation=None, attempts=0)
HELD = record("INPROGRESS", in_progress_expiration=NOW_MS + 1, owner="w")
UNSENT = record("SENDING", in_progress_expiration=NOW_MS - 1, owner="w", outbox="[]")
SENDING = record("SENDING", in_progress_expiration=NOW_MS + 1, owner="w", outbox="[]")
STRANGE = record("PAUSED")
OTHER_PAYLOAD = record("COMPLETED", validation="another")
EXPIRED = record("COMPLETED", expiration=GONE)
BARE = record("COMPLETED", validation=None, version=None)
UNREAD = Unknown("throttled")
RESEND = Resend(new_id="m-2", operator="alice", why="a typo", message_id="d", original_id="m-1").to_json()
BEGUN = record("SENDING", in_progress_expiration=NOW_MS, owner="alice", resent=RESEND, outbox="[]")
TAKEN = BEGUN._replace(in_progress_expiration=NOW_MS + 1, owner="w")
GONE_ON = record("COMPLETED", owner="w", resent=RESEND)
OF_BEFORE = Resend(old_id="m-1", new_id="m-2", fingerprint="f", operator="alice", why="a typo").to_json()
CLAIMED_BEFORE = record("INPROGRESS", in_progress_expiration=NOW_MS + 1, owner="alice", resent=OF_BEFORE)
DONE_BEFORE = record("COMPLETED", owner="alice", resent=OF_BEFORE)
TAKEN_BACK = DONE_BEFORE._replace(resent=OF_BEFORE.replace("m-2", "m-1"))

DIED = Stamp(key="m-0", original_id="m-0", reason="closed", error_type="PermanentError", queue=QUEUE)
RETURNED = Stamp(key="m-0", original_id="m-0", queue=QUEUE)


@pytest.mark.parametrize(
    ("found", "verdict", "says"),
    [
        (None, Verdict.MOVE, "no record"),
        (EXPIRED, Verdict.MOVE, "expired"),
        (TRANSIENT, Verdict.MOVE, "failed on attempt 5"),
        (DELAYED, Verdict.MOVE, "failed on attempt 5"),
        (TRANSIENT._replace(attempts=None), Verdict.MOVE, "failed on attempt 1 "),
        (ORPHAN, Verdict.MOVE, "never settled"),
        (RELEASED, Verdict.MOVE, "released before its handler started"),
        (HELD, Verdict.MOVE, "another worker holds its claim"),
        (UNSENT, Verdict.MOVE, "its messages and calls may not be done: the consumer will do what is left"),
        (SENDING, Verdict.MOVE, "another worker holds its claim"),
        (UNSENT._replace(validation="another"), Verdict.CONFLICT, "fingerprint another there"),
        (BARE, Verdict.MOVE, "no fingerprint to compare"),
        (COMPLETED, Verdict.DONE, "COMPLETED, with the same payload"),
        (BEGUN, Verdict.UNSENT, "alice began to resend it as m-2: a typo"),
        (TAKEN, Verdict.RESENDING, "alice began to resend it as m-2: a typo; w is sending it until"),
        (BEGUN._replace(validation="another"), Verdict.CONFLICT, "fingerprint another there"),
        (BEGUN._replace(expiration=GONE), Verdict.MOVE, "expired"),
        (CLAIMED_BEFORE, Verdict.UNSENT, "a version before began it: finish it by `dlq resend` with the same --body"),
        (CLAIMED_BEFORE._replace(in_progress_expiration=NOW_MS), Verdict.MOVE, "its claim was never settled"),
        (GONE_ON._replace(outbox="[{}]"), Verdict.CONFLICT, "its resend as m-2 was given up, so neither body runs"),
        (DONE_BEFORE, Verdict.RESENT, "alice resent it as m-2: a typo"),
        (TAKEN_BACK, Verdict.CONFLICT, "a resend that was taken back completed its key"),
        (GONE_ON, Verdict.RESENT, "alice resent it as m-2: a typo"),
        # A worker without this attribute has claimed the key, or completed it, since.
        (CLAIMED_BEFORE._replace(owner="w"), Verdict.MOVE, "another worker holds its claim"),
        (DONE_BEFORE._replace(owner="w"), Verdict.DONE, "COMPLETED, with the same payload"),
        (OTHER_PAYLOAD, Verdict.CONFLICT, "fingerprint another there"),
        (PERMANENT._replace(validation="another"), Verdict.CONFLICT, "another payload"),
        (PERMANENT, Verdict.PERMANENT, "it failed for good: closed; use --include-permanent"),
        (STRANGE, Verdict.UNREADABLE, "unknown status 'PAUSED'"),
        (UNREAD, Verdict.UNREADABLE, "could not be read: throttled"),
        # An error that cannot be read is not permanent.
        *(
            (record("FAILED", error=error), Verdict.MOVE, "failed on attempt 5")
            for error in (None, "", "no JSON", "[]", '"x"', '{"permanent": "yes"}', "{" * 100_000)
        ),
    ],
)
def test_each_record_has_its_verdict(found: Record | Unknown | None, verdict: Verdict, says: str) -> None:
    decision = told(dead_letter(), found)
    assert (decision.verdict, says in decision.why) == (verdict, True)


@pytest.mark.parametrize(
    ("source", "stamp", "verdict"),
    [
        (QUEUE, None, Verdict.DONE),
        (None, RETURNED, Verdict.DONE),
        (None, None, Verdict.FOREIGN),
        (None, replace(RETURNED, queue=None), Verdict.FOREIGN),
        (OTHER, None, Verdict.OTHER_QUEUE),
        (None, replace(RETURNED, queue=OTHER), Verdict.OTHER_QUEUE),
        (OTHER, RETURNED, Verdict.OTHER_QUEUE),
        (QUEUE, replace(RETURNED, queue=OTHER), Verdict.DONE),
    ],
)
def test_sqs_says_whose_it_is_or_else_our_stamp(source: str | None, stamp: Stamp | None, verdict: Verdict) -> None:
    """What says nothing may be a live message of anybody."""
    decision = told(dead_letter(source=source, stamp=stamp), COMPLETED, ALL)
    group = {Verdict.FOREIGN: "foreign", Verdict.OTHER_QUEUE: "other-queue", Verdict.DONE: "done"}[verdict]
    assert (decision.verdict, decision.group) == (verdict, group)


def test_an_archived_letter_of_another_queue_is_taken_in_with_force_alone() -> None:
    for archived, force in itertools.product([True, False], repeat=2):
        rules = Rules(queue_arn=QUEUE, archived=archived, force=force)
        verdict = Verdict.MOVE if archived and force else Verdict.OTHER_QUEUE
        assert told(dead_letter(source=OTHER), rules=rules).verdict is verdict


def test_what_failed_for_good_by_its_stamp_stays_whatever_its_record_says() -> None:
    died = dead_letter(stamp=DIED)
    for found in (None, EXPIRED, TRANSIENT, PERMANENT, ORPHAN, HELD):
        assert told(died, found).verdict is Verdict.PERMANENT
        assert told(died, found, ALL).verdict is Verdict.MOVE
    assert told(died, COMPLETED).verdict is Verdict.DONE
    for found in (UNSENT, SENDING):
        assert told(died, found).verdict is Verdict.MOVE, "only what is left to send is done then"
    assert told(died, UNSENT._replace(expiration=GONE)).verdict is Verdict.PERMANENT
    assert told(dead_letter(stamp=RETURNED), TRANSIENT).verdict is Verdict.MOVE, "it gives no reason"


@pytest.mark.parametrize(
    ("age_days", "first_received", "verdict"),
    [
        (29.99, None, Verdict.MOVE),
        (30, None, Verdict.TOO_OLD),
        (400, None, Verdict.TOO_OLD),
        # The age counts from before the message was sent again.
        (1, "2026-11-01T00:00:00+00:00", Verdict.TOO_OLD),
        (1, "2026-11-01T00:00:00", Verdict.TOO_OLD),
        (1, "yesterday", Verdict.MOVE),
        (1, "2026-13-01", Verdict.MOVE),
    ],
)
def test_what_is_older_than_records_last_is_refused_without_force(
    age_days: float, first_received: str | None, verdict: Verdict
) -> None:
    letter = dead_letter(age_days=age_days, stamp=replace(RETURNED, first_received=first_received))
    for found in (None, EXPIRED, TRANSIENT, HELD):
        assert told(letter, found).verdict is verdict
        assert told(letter, found, ALL).verdict is Verdict.MOVE
    assert told(letter, COMPLETED).verdict is Verdict.DONE
    assert age_days != 400 or told(letter).why.startswith("it is 400.0 days old and records last 30: ")
    assert verdict is Verdict.TOO_OLD or letter.since_ms == NOW_MS - int(age_days * DAY_MS)


@pytest.mark.parametrize(
    ("first_received", "believed"),
    [("2005-12-31", False), ("2006-01-01", True), ("2999-12-31", True), ("3000-01-01", False)],
)
def test_a_time_before_there_was_sqs_or_in_another_millennium_is_not_believed(
    first_received: str, believed: bool
) -> None:
    letter = dead_letter(age_days=-400_000, stamp=replace(RETURNED, first_received=first_received))
    told_ms = datetime.fromisoformat(f"{first_received}T00:00:00Z").timestamp() * 1000
    assert letter.since_ms == (told_ms if believed else NOW_MS + 400_000 * DAY_MS)


def test_a_dead_letter_without_room_for_its_key_stays() -> None:
    for letter, says in ((dead_letter(attributes=10), "10 attributes"), (dead_letter(body="x" * 1024**2), "1 MiB")):
        decision = told(letter, rules=ALL)
        assert (decision.verdict, says in decision.why) == (Verdict.NO_ROOM, True)
    assert told(dead_letter(attributes=9, stamp=RETURNED), rules=ALL).verdict is Verdict.MOVE


@pytest.mark.parametrize(
    ("key", "body", "says"),
    [
        (body_field("order"), "{}", "the body has no 'order'"),
        (body_field("[amount]"), BODY, "finds a list"),
        (body_field("order"), "no JSON", "not JSON"),
        (message_attribute("order"), BODY, "no attribute 'order'"),
        (body_field("order"), json.dumps({"order": "x" * 3000}), "3000 bytes"),
        (body_field("order"), '{"order": "\\ud800"}', "lone surrogate"),
    ],
)
def test_a_dead_letter_without_a_usable_key_stays(key: Any, body: str, says: str) -> None:
    letter = dead_letter(key=key, body=body)
    decision = told(letter, rules=ALL)
    assert (decision.verdict, decision.group) == (Verdict.UNKEYED, "UnusableKey")
    assert (letter.key, letter.fingerprint) == ("", "")
    assert (says in decision.why, says in decision.reason) == (True, True)


def test_keys_and_fingerprints_are_the_consumers_own() -> None:
    by_order = EVERYTHING.fingerprint(Document.of_text(BODY))
    for letter, key, fingerprint in (
        (dead_letter(), "m-1", RAW_FINGERPRINT),
        (dead_letter(stamp=DIED), "m-0", RAW_FINGERPRINT),
        (dead_letter(key=body_field("order"), stamp=DIED), "o-1", by_order),
    ):
        assert (letter.message.key, letter.fingerprint) == (key, fingerprint)


# Every combination.

RECORDS = (None, EXPIRED, COMPLETED, TRANSIENT, PERMANENT, ORPHAN, HELD, STRANGE, OTHER_PAYLOAD, BARE, UNREAD)
RECORDS += (BEGUN, TAKEN, GONE_ON)
LETTERS = [
    dead_letter(source=source, stamp=stamp, age_days=age, key=key)
    for source in (QUEUE, OTHER, None)
    for stamp in (None, DIED, RETURNED, replace(RETURNED, queue=None))
    for age in (1, 31)
    for key in (message_id, message_attribute("missing"))
]
CHOICES = [
    Rules(queue_arn=QUEUE, include_permanent=permanent, force=force)
    for permanent, force in itertools.product([False, True], repeat=2)
]


def test_no_option_moves_or_drops_what_is_not_safe_to_move_or_drop() -> None:
    """Dropped is only what is completed here with the same payload. What is foreign, in conflict, unread or without a
    key stays.
    """
    seen = set()
    for letter, found, rules in itertools.product(LETTERS, RECORDS, CHOICES):
        each = told(letter, found, rules)
        seen.add(each.verdict)
        assert "" not in (each.why, each.reason)
        if each.verdict in (Verdict.DONE, Verdict.RESENT):
            assert isinstance(found, Record)
            assert (found.status, found.expired(NOW_MS)) == ("COMPLETED", False)
            assert (found.validation, letter.source) == (letter.fingerprint, QUEUE)
        elif each.verdict is Verdict.MOVE:
            assert (letter.source, letter.unkeyed) == (QUEUE, None)
            assert found not in (UNREAD, STRANGE, OTHER_PAYLOAD, BEGUN, TAKEN)
        if letter.source != QUEUE:
            assert each.verdict is (Verdict.FOREIGN if letter.source is None else Verdict.OTHER_QUEUE)
        elif letter.unkeyed is None and found is OTHER_PAYLOAD:
            assert each.verdict is Verdict.CONFLICT
    assert seen == set(Verdict) - {Verdict.NO_ROOM, Verdict.MALFORMED}


def test_what_failed_for_good_by_its_body_names_what_ends_it() -> None:
    """The same body never validates."""
    invalid = failed(type="InvalidBody", text="the body is not a Transfer: amount: missing", permanent=True)
    for letter, found in (
        (dead_letter(), invalid),
        (dead_letter(stamp=replace(DIED, error_type="InvalidBody")), None),
    ):
        each = told(letter, found)
        assert each.verdict is Verdict.PERMANENT
        assert "; dlq resend it with a valid body, or dlq archive or dlq delete it; use --include-permanent" in each.why
    assert "dlq resend" not in told(dead_letter(), PERMANENT).why


# Reasons and groups.

GONE_WRONG = "app.ledger.charge:17"
DUPLICATE = "done: its acknowledgement was lost, or SQS delivered it again"
CLAIMED = "received too many times while claimed: its worker crashed, timed out or is still running"
WAITED = "received too many times but never started: no time was left, or it waited behind a failure in its FIFO group"
NO_REASON = "failed, with no reason recorded"


def test_the_cause_of_another_consumers_dead_letter_is_not_looked_for_here() -> None:
    """A record under the same key here is of another message. What its own stamp says is told."""
    for source, found in itertools.product((None, OTHER), RECORDS):
        each = told(dead_letter(source=source), found)
        assert each.reason == "unknown: it did not fail in this consumer's queue"
        assert (each.error_type, each.group) == (None, "foreign" if source is None else "other-queue")
    forced = Rules(queue_arn=QUEUE, archived=True, force=True)
    assert told(dead_letter(source=OTHER), TRANSIENT, forced).reason == each.reason
    assert told(dead_letter(source=None, stamp=replace(DIED, queue=OTHER))).reason == "closed"


def failed(**error: Any) -> Record:
    return record("FAILED", error=json.dumps(error))


@pytest.mark.parametrize(
    ("found", "stamp", "reason", "error_type", "group"),
    [
        (TRANSIENT, None, "ConnectionError at app.pay:1", "ConnectionError", "ConnectionError@app.pay"),
        (TRANSIENT, RETURNED, "ConnectionError at app.pay:1", "ConnectionError", "ConnectionError@app.pay"),
        (DELAYED, None, "the shop opens at nine", "RetryLater", "RetryLater"),
        (TRANSIENT, DIED, "closed", "PermanentError", "PermanentError"),
        (PERMANENT, None, "closed", "PermanentError", "PermanentError"),
        (COMPLETED, None, DUPLICATE, None, "done"),
        (ORPHAN, None, CLAIMED, None, "never-settled"),
        (RELEASED, None, WAITED, None, "never-started"),
        (BEGUN, None, ..., None, "resending"),
        (GONE_ON, None, ..., None, "resent"),
        (failed(type="E"), None, "E", "E", "E"),
        (failed(type="E", at=GONE_WRONG), None, f"E at {GONE_WRONG}", "E", "E@app.ledger.charge"),
        (failed(type="E", text=""), None, "E", "E", "E"),
        (failed(text="no type"), None, "no type", None, "error"),
        (failed(type=["E"], text="no type"), None, "no type", None, "error"),
        (failed(), None, NO_REASON, None, "error"),
        (None, replace(DIED, at=GONE_WRONG), "closed", "PermanentError", "PermanentError@app.ledger.charge"),
        (None, replace(DIED, error_type=None), "closed", None, "error"),
        (None, replace(DIED, error_type="''"), "closed", "''", "error"),
        (None, None, ..., None, "no-record"),
        (EXPIRED, None, ..., None, "no-record"),
        (OTHER_PAYLOAD, None, ..., None, "FingerprintMismatch"),
        (UNREAD, None, ..., None, "record-unreadable"),
        (STRANGE, None, ..., None, "record-unreadable"),
    ],
)
def test_the_reason_is_the_stamps_or_else_the_records_and_the_group_its_type_and_function(
    found: Record | Unknown | None, stamp: Stamp | None, reason: Any, error_type: str | None, group: str
) -> None:
    each = told(dead_letter(stamp=stamp), found)
    assert each.group == group
    assert reason is ... or (each.reason, each.error_type) == (reason, error_type)


def test_neither_a_line_nor_a_text_makes_another_group() -> None:
    """A deployment moves lines; a text may name an account. Another type or function does."""

    def group(type: str, at: str, text: str) -> str:
        return told(dead_letter(), failed(type=type, at=at, text=text)).group

    assert group("E", "app.pay:1", "503") == group("E", "app.pay:92", "account alice is closed")
    assert len({group("E", "app.pay:1", ""), group("F", "app.pay:1", ""), group("E", "app.refund:1", "")}) == 3


@pytest.mark.parametrize("name", ["make.<locals>.Boom", "$(reboot)", "a b'c\"d", "--yes", "\x1b[2J", "''", "e;f|g&h>i"])
def test_a_shell_takes_a_groups_name_as_it_is(name: str) -> None:
    """Whoever may send to the dead-letter queue can write a stamp."""
    forged = dead_letter(stamp=replace(DIED, error_type=name, at=f"app.<lambda>{name}:7"))
    group = told(forged).group
    assert group == shlex.quote(group)
    assert not group.startswith("-")
    assert name != "make.<locals>.Boom" or group == "make.-locals-.Boom@app.-lambda-make.-locals-.Boom"


def test_on_its_way_back_a_dead_letter_carries_nothing_of_its_error() -> None:
    back = dead_letter(stamp=replace(DIED, at=GONE_WRONG)).returning
    assert (back.key, back.reason, back.error_type, back.at) == ("m-0", None, None, None)


# What has used up its charged attempts.

SPENT = record("FAILED", error=Failure(type="ValueError", at="app.pay:1", exhausted=True).to_json())
SPENT = SPENT._replace(charged=Charged(3, message="m-1").text("v"))


@pytest.mark.parametrize("stamped", [False, True])
def test_what_is_exhausted_is_moved_by_a_plain_redrive_and_begins_anew(stamped: bool) -> None:
    """It is not permanent: after a bad hour, nobody includes ten thousand healthy messages one by one."""
    spent = Stamp(key="m-0", original_id="m-0", reason="ValueError at app.pay:1", error_type="ValueError", queue=QUEUE)
    stamp = replace(spent, at="app.pay:1", charged=2, exhausted=True) if stamped else None
    decision = told(dead_letter(stamp=stamp), SPENT)

    assert decision.verdict is Verdict.MOVE
    assert "used up its charged attempts" in decision.why
    assert decision.reason == "EXHAUSTED: ValueError at app.pay:1"
    assert (decision.group, decision.error_type) == ("ValueError@app.pay", "ValueError")
    back = decision.dead_letter.returning
    assert (back.charged, back.exhausted, back.reason) == (3, None, None)


def test_what_sqs_had_moved_is_stamped_with_its_records_count_and_a_crash_that_it_means() -> None:
    for found, charged in (
        (TRANSIENT._replace(charged=Charged(2).text("v")), 2),
        (ORPHAN._replace(charged=Charged(2, True, "m-1").text("v")), 3),
        (TRANSIENT._replace(charged=Charged(2).text("before")), None),
        (TRANSIENT, None),
    ):
        assert told(dead_letter(), found).dead_letter.returning.charged == charged
