"""The decision about a dead letter, row by row and over every combination."""

from __future__ import annotations

import itertools
import json
import shlex
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest

from idempotent_receiver import body_field, message_attribute, message_id
from idempotent_receiver.errors import Failure
from idempotent_receiver.operations.dead_letters.dead_letter import DeadLetter, Reader
from idempotent_receiver.operations.dead_letters.triage import Decision, Rules, Verdict, triage
from idempotent_receiver.payload import EVERYTHING, Document
from idempotent_receiver.protocol.record import Record
from idempotent_receiver.protocol.store import Unknown
from idempotent_receiver.sqs.dead_letter import STAMP, Stamp

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
    attributes: dict[str, Any] | None = None,
) -> DeadLetter:
    system = {"SentTimestamp": str(int(NOW_MS - age_days * DAY_MS))}
    system |= {"DeadLetterQueueSourceArn": source} if source else {}
    held = dict(attributes or {})
    if stamp is not None:
        held[STAMP] = {"DataType": "String", "StringValue": stamp.to_json()}
    raw = {"MessageId": "m-1", "ReceiptHandle": "r", "Body": body, "Attributes": system, "MessageAttributes": held}
    return Reader(queue_arn=QUEUE, key=key, record_id=str).read(raw, NOW_MS)


def record(status: str, **attributes: Any) -> Record:
    values = {"version": "v", "expiration": LASTING, "validation": RAW_FINGERPRINT, "attempts": 5, **attributes}
    return Record(id="m-1", status=status, **values)


COMPLETED = record("COMPLETED")
TRANSIENT = record("FAILED", error=Failure(type="ConnectionError", at="app.pay:1").to_json())
PERMANENT = record("FAILED", error=Failure(type="PermanentError", text="closed", permanent=True).to_json())
ORPHAN = record("INPROGRESS", in_progress_expiration=NOW_MS - 1, owner="w")
RELEASED = record("INPROGRESS", in_progress_expiration=NOW_MS - 1, validation=None, attempts=0)
HELD = record("INPROGRESS", in_progress_expiration=NOW_MS + 1, owner="w")
STRANGE = record("PAUSED")
OTHER_PAYLOAD = record("COMPLETED", validation="another")
EXPIRED = record("COMPLETED", expiration=GONE)
BARE = record("COMPLETED", validation=None, version=None)
UNREAD = Unknown("throttled")

DIED = Stamp(key="m-0", original_id="m-0", reason="closed", error_type="PermanentError", queue=QUEUE)
RETURNED = Stamp(key="m-0", original_id="m-0", queue=QUEUE)


@pytest.mark.parametrize(
    ("found", "verdict", "says"),
    [
        (None, Verdict.MOVE, "no record"),
        (EXPIRED, Verdict.MOVE, "expired"),
        (TRANSIENT, Verdict.MOVE, "failed at attempt 5"),
        (ORPHAN, Verdict.MOVE, "never settled"),
        (RELEASED, Verdict.MOVE, "released before its handler started"),
        (HELD, Verdict.MOVE, "another worker holds its claim"),
        (BARE, Verdict.MOVE, "no fingerprint to compare"),
        (COMPLETED, Verdict.DONE, "COMPLETED, with the same payload"),
        (OTHER_PAYLOAD, Verdict.CONFLICT, "fingerprint another there"),
        (PERMANENT._replace(validation="another"), Verdict.CONFLICT, "another payload"),
        (PERMANENT, Verdict.PERMANENT, "--include-permanent"),
        (STRANGE, Verdict.UNREADABLE, "unknown status 'PAUSED'"),
        (UNREAD, Verdict.UNREADABLE, "could not be read: throttled"),
    ],
)
def test_each_record_has_its_verdict(found: Record | Unknown | None, verdict: Verdict, says: str) -> None:
    decision = triage(dead_letter(), found, NOW_MS, RULES)
    assert decision.verdict is verdict
    assert says in decision.why


@pytest.mark.parametrize(
    ("source", "stamp", "verdict"),
    [
        (QUEUE, None, Verdict.DONE),
        (None, RETURNED, Verdict.DONE),
        (None, None, Verdict.FOREIGN),
        (None, replace(RETURNED, queue=None), Verdict.FOREIGN),
        (OTHER, None, Verdict.FOREIGN),
        (None, replace(RETURNED, queue=OTHER), Verdict.FOREIGN),
        (OTHER, RETURNED, Verdict.FOREIGN),
        (QUEUE, replace(RETURNED, queue=OTHER), Verdict.DONE),
    ],
)
def test_only_what_is_known_to_have_come_from_this_queue_is_acted_on(
    source: str | None, stamp: Stamp | None, verdict: Verdict
) -> None:
    """SQS's word about the source goes before our stamp's. What says nothing may be a live message of anybody."""
    assert triage(dead_letter(source=source, stamp=stamp), COMPLETED, NOW_MS, ALL).verdict is verdict
    moved = triage(dead_letter(source=source, stamp=stamp), None, NOW_MS, ALL).verdict is Verdict.MOVE
    assert moved is (verdict is Verdict.DONE)


def test_what_failed_for_good_by_its_stamp_stays_whatever_its_record_says() -> None:
    for found in (None, EXPIRED, TRANSIENT, PERMANENT, ORPHAN, HELD):
        assert triage(dead_letter(stamp=DIED), found, NOW_MS, RULES).verdict is Verdict.PERMANENT
        assert triage(dead_letter(stamp=DIED), found, NOW_MS, ALL).verdict is Verdict.MOVE
    assert triage(dead_letter(stamp=DIED), COMPLETED, NOW_MS, RULES).verdict is Verdict.DONE


def test_a_stamp_without_a_reason_is_a_way_back_and_says_nothing_of_permanence() -> None:
    assert triage(dead_letter(stamp=RETURNED), TRANSIENT, NOW_MS, RULES).verdict is Verdict.MOVE


@pytest.mark.parametrize("error", [None, "", "no JSON", "[]", '"x"', '{"permanent": "yes"}', "{" * 100_000])
def test_an_error_that_cannot_be_read_is_not_permanent(error: str | None) -> None:
    assert triage(dead_letter(), record("FAILED", error=error), NOW_MS, RULES).verdict is Verdict.MOVE


@pytest.mark.parametrize(
    ("age_days", "verdict"), [(29.99, Verdict.MOVE), (30, Verdict.TOO_OLD), (400, Verdict.TOO_OLD)]
)
def test_what_is_older_than_records_last_is_refused_without_force(age_days: float, verdict: Verdict) -> None:
    for found in (None, EXPIRED, TRANSIENT, HELD):
        decision = triage(dead_letter(age_days=age_days), found, NOW_MS, RULES)
        assert decision.verdict is verdict
        assert triage(dead_letter(age_days=age_days), found, NOW_MS, ALL).verdict is Verdict.MOVE
    assert triage(dead_letter(age_days=age_days), COMPLETED, NOW_MS, RULES).verdict is Verdict.DONE


@pytest.mark.parametrize("first_received", ["2026-11-01T00:00:00+00:00", "2026-11-01T00:00:00"])
def test_the_age_counts_from_before_the_message_was_sent_again(first_received: str) -> None:
    again = dead_letter(stamp=replace(RETURNED, first_received=first_received), age_days=1)
    assert triage(again, None, NOW_MS, RULES).verdict is Verdict.TOO_OLD


@pytest.mark.parametrize("first_received", ["yesterday", "2026-13-01"])
def test_a_time_that_cannot_be_read_leaves_the_time_of_sending(first_received: str) -> None:
    again = dead_letter(stamp=replace(RETURNED, first_received=first_received), age_days=1)
    assert again.since_ms == NOW_MS - DAY_MS


def test_a_dead_letter_without_room_for_its_key_stays() -> None:
    full = {f"a{n}": {"DataType": "String", "StringValue": "v"} for n in range(10)}
    decision = triage(dead_letter(attributes=full), None, NOW_MS, ALL)
    assert (decision.verdict, "10 attributes" in decision.why) == (Verdict.NO_ROOM, True)
    large = triage(dead_letter(body="x" * (1024 * 1024)), None, NOW_MS, ALL)
    assert (large.verdict, "1 MiB" in large.why) == (Verdict.NO_ROOM, True)
    stamped = {**dict(list(full.items())[:9])}
    assert triage(dead_letter(attributes=stamped, stamp=RETURNED), None, NOW_MS, ALL).verdict is Verdict.MOVE


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
    decision = triage(dead_letter(key=key, body=body), None, NOW_MS, ALL)
    assert decision.verdict is Verdict.UNKEYED
    assert says in decision.why
    assert says in decision.reason


def test_keys_and_fingerprints_are_the_consumers_own() -> None:
    by_id = dead_letter()
    assert (by_id.message.key, by_id.fingerprint) == ("m-1", RAW_FINGERPRINT)
    stamped = dead_letter(stamp=DIED)
    assert (stamped.message.key, stamped.fingerprint) == ("m-0", RAW_FINGERPRINT)
    by_order = dead_letter(key=body_field("order"), stamp=DIED)
    assert (by_order.message.key, by_order.fingerprint) == ("o-1", EVERYTHING.fingerprint(Document.of_text(BODY)))


# Every combination.

RECORDS = (None, EXPIRED, COMPLETED, TRANSIENT, PERMANENT, ORPHAN, HELD, STRANGE, OTHER_PAYLOAD, BARE, UNREAD)
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


def decision() -> list[tuple[Record | Unknown | None, Rules, Decision]]:
    every = itertools.product(LETTERS, RECORDS, CHOICES)
    return [(found, rules, triage(each, found, NOW_MS, rules)) for each, found, rules in every]


def test_nothing_is_dropped_but_what_is_completed_here_with_the_same_payload() -> None:
    dropped = [(found, each) for found, _, each in decision() if each.verdict is Verdict.DONE]
    assert dropped
    assert {found.status for found, _ in dropped if isinstance(found, Record)} == {"COMPLETED"}
    for found, each in dropped:
        assert isinstance(found, Record)
        assert found.validation == each.dead_letter.fingerprint
        assert not found.expired(NOW_MS)
        assert each.dead_letter.source == QUEUE


def test_nothing_is_moved_that_is_foreign_in_conflict_unread_or_without_a_key() -> None:
    moved = [(found, each) for found, _, each in decision() if each.verdict is Verdict.MOVE]
    assert moved
    for found, each in moved:
        assert each.dead_letter.source == QUEUE
        assert each.dead_letter.unkeyed is None
        assert found not in (UNREAD, STRANGE, OTHER_PAYLOAD)


def test_no_option_turns_a_conflict_or_a_foreign_dead_letter_into_a_move() -> None:
    for found, _, each in decision():
        if each.dead_letter.source != QUEUE:
            assert each.verdict is Verdict.FOREIGN
        elif each.dead_letter.unkeyed is None and found is OTHER_PAYLOAD:
            assert each.verdict is Verdict.CONFLICT


def test_every_verdict_says_why_and_what_the_dead_letter_failed_of() -> None:
    for _, _, each in decision():
        assert each.why
        assert each.reason


@pytest.mark.parametrize(
    ("found", "stamp", "reason", "error_type"),
    [
        (TRANSIENT, None, "ConnectionError at app.pay:1", "ConnectionError"),
        (PERMANENT, None, "closed", "PermanentError"),
        (TRANSIENT, DIED, "closed", "PermanentError"),
        (TRANSIENT, RETURNED, "ConnectionError at app.pay:1", "ConnectionError"),
        (COMPLETED, None, "done: its acknowledgement was lost, or it was delivered once more", None),
        (ORPHAN, None, "received too often while claimed: its worker crashed, timed out or is still at work", None),
        (
            RELEASED,
            None,
            "received too often and never started: no time was left, or it stood behind a failure of its FIFO group",
            None,
        ),
        (record("FAILED", error='{"type": "E"}'), None, "E", "E"),
        (record("FAILED", error="{}"), None, "failed, with no reason recorded", None),
    ],
)
def test_the_reason_is_the_stamps_or_else_the_records(
    found: Record, stamp: Stamp | None, reason: str, error_type: str | None
) -> None:
    each = triage(dead_letter(stamp=stamp), found, NOW_MS, RULES)
    assert (each.reason, each.error_type) == (reason, error_type)


GONE_WRONG = "app.ledger.charge:17"


@pytest.mark.parametrize(
    ("found", "stamp", "group"),
    [
        (
            record("FAILED", error=Failure(type="HTTPError", at=GONE_WRONG).to_json()),
            None,
            "HTTPError@app.ledger.charge",
        ),
        (record("FAILED", error='{"type": "E"}'), None, "E"),
        (record("FAILED", error='{"text": "no type"}'), None, "error"),
        (record("FAILED", error='{"type": ["E"], "text": "no type"}'), None, "error"),
        (record("FAILED", error="{}"), None, "error"),
        (TRANSIENT, DIED, "PermanentError"),
        (None, replace(DIED, at=GONE_WRONG), "PermanentError@app.ledger.charge"),
        (None, replace(DIED, error_type=None), "error"),
        (None, None, "never-claimed"),
        (EXPIRED, None, "never-claimed"),
        (RELEASED, None, "never-started"),
        (ORPHAN, None, "never-settled"),
        (COMPLETED, None, "done"),
        (OTHER_PAYLOAD, None, "FingerprintMismatch"),
        (UNREAD, None, "record-unreadable"),
        (STRANGE, None, "record-unreadable"),
    ],
)
def test_a_group_is_an_errors_type_and_the_function_that_raised_it(
    found: Record | Unknown | None, stamp: Stamp | None, group: str
) -> None:
    assert triage(dead_letter(stamp=stamp), found, NOW_MS, RULES).group == group


def test_neither_a_line_nor_a_text_makes_another_group() -> None:
    """A deployment moves lines; a text may name an account. Another type or function does."""

    def group(type: str, at: str, text: str) -> str:
        found = record("FAILED", error=Failure(type=type, at=at, text=text).to_json())
        return triage(dead_letter(), found, NOW_MS, RULES).group

    assert group("E", "app.pay:1", "503") == group("E", "app.pay:92", "account alice is closed")
    assert len({group("E", "app.pay:1", ""), group("F", "app.pay:1", ""), group("E", "app.refund:1", "")}) == 3


@pytest.mark.parametrize("name", ["make.<locals>.Boom", "$(reboot)", "a b'c\"d", "--yes", "\x1b[2J", "''", "e;f|g&h>i"])
def test_a_shell_takes_a_groups_name_as_it_is(name: str) -> None:
    """Whoever may send to the dead-letter queue can write a stamp."""
    forged = dead_letter(stamp=replace(DIED, error_type=name, at=f"app.<lambda>{name}:7"))
    group = triage(forged, None, NOW_MS, RULES).group
    assert group == shlex.quote(group)
    assert not group.startswith("-")


def test_a_dead_letter_without_a_key_is_in_the_group_of_such() -> None:
    assert triage(dead_letter(key=message_attribute("order")), None, NOW_MS, RULES).group == "UnusableKey"


def test_on_its_way_back_a_dead_letter_carries_nothing_of_its_error() -> None:
    back = dead_letter(stamp=replace(DIED, at=GONE_WRONG)).returning
    assert (back.key, back.reason, back.error_type, back.at) == ("m-0", None, None, None)
