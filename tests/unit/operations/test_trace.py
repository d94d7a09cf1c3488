"""The events of one key's story."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from idempotent_receiver.errors import Failure
from idempotent_receiver.operations.dead_letters.history import ActOutcome
from idempotent_receiver.operations.records import EARLY
from idempotent_receiver.operations.trace import (
    TraceEvent,
    in_order,
    log_pattern,
    of_act,
    of_dead_letter,
    of_execution,
    of_hook,
    of_log,
    of_record,
)
from idempotent_receiver.protocol.record import Record
from idempotent_receiver.protocol.resend import Resend
from idempotent_receiver.transaction.outbox import GivenUp, with_reason
from tests.unit.operations.dead_letters.acts import OPERATOR, act
from tests.unit.operations.dead_letters.test_triage import DAY_MS, DIED, NOW_MS, dead_letter

SECRET = "4929-1234-5678-9012"


def texts(record: Record, now_ms: int = NOW_MS) -> list[tuple[int | None, str]]:
    events = list(of_record("record", record, now_ms, 30 * 86_400))
    assert {each.source for each in events} == {"record"}
    return [(each.at_ms, each.text) for each in events]


def written(status: str, **attributes: Any) -> Record:
    """A record that was written at NOW_MS."""
    return Record(id="k", status=status, version="v", expiration=NOW_MS // 1000 + 30 * 86_400, **attributes)


END = (NOW_MS + 30 * DAY_MS, "expiry of the record: the key is free afterwards")


def test_a_claim_is_told_with_its_owner_and_the_end_of_its_lease() -> None:
    claimed = written("INPROGRESS", owner="request-1", attempts=2, in_progress_expiration=NOW_MS + 5)
    assert texts(claimed) == [
        (NOW_MS, "INPROGRESS: claimed for attempt 2 by request-1"),
        (NOW_MS + 5, "end of its lease"),
        END,
    ]
    assert texts(claimed, NOW_MS + 5)[1] == (NOW_MS + 5, "end of its lease, never settled")


def test_what_has_messages_to_send_is_not_done() -> None:
    told = "SENDING since attempt 1: its effect took place, but its messages and calls may not be done"
    sending = written("SENDING", outbox=SECRET, in_progress_expiration=NOW_MS + 5)
    assert texts(sending) == [(NOW_MS, told), (NOW_MS + 5, "end of its lease"), END]
    assert texts(sending, NOW_MS + 5)[1] == (NOW_MS + 5, "end of its lease, never settled")


def test_a_message_that_was_given_up_is_told_with_its_operator_and_reason() -> None:
    kept = with_reason(
        '[{"QueueUrl": "q", "MessageBody": "sold"}]', 1, GivenUp("https://sqs/mail", OPERATOR, "it is gone")
    )
    told = f"message 1 to https://sqs/mail is never sent: {OPERATOR} gave it up: it is gone"
    assert (None, told) in texts(written("COMPLETED", outbox=kept))


def test_what_was_released_has_no_lease_to_end() -> None:
    released = written("INPROGRESS", in_progress_expiration=NOW_MS - 1)
    assert texts(released) == [(NOW_MS, "INPROGRESS: released before its handler started"), END]


def test_an_end_is_told_with_its_attempt_and_its_reason() -> None:
    failure = Failure(type="PermanentError", text="account closed", permanent=True).to_json()
    assert texts(written("FAILED", error=failure, attempts=3))[0][1] == "FAILED at attempt 3, for good: account closed"
    assert texts(written("FAILED"))[0][1] == f"FAILED at attempt 1, and may be tried again: {EARLY}"
    refused = written("FAILED", error=failure, attempts=0)
    assert texts(refused)[0][1] == "FAILED before its handler started, for good: account closed"
    assert texts(written("COMPLETED"))[0] == (NOW_MS, "COMPLETED at attempt 1")
    assert texts(written("INPROGRESS"))[0] == (NOW_MS, "INPROGRESS: claimed for attempt 1")
    assert texts(written("COMPLETED")._replace(expiration=None)) == [(None, "COMPLETED at attempt 1")]
    unreadable = written("COMPLETED")._replace(unreadable="unexpected type of data")
    assert texts(unreadable)[0][1] == "this version cannot read it: unexpected type of data"


def test_a_record_of_another_retention_is_not_dated() -> None:
    later = written("COMPLETED")._replace(expiration=NOW_MS // 1000 + 90 * 86_400)
    assert texts(later)[0] == (None, "COMPLETED at attempt 1")
    assert texts(later, NOW_MS + 60 * DAY_MS - 60_001)[0][0] is None
    assert texts(later, NOW_MS + 60 * DAY_MS - 60_000)[0][0] == NOW_MS + 60 * DAY_MS, "a worker's clock may be ahead"


RESEND = Resend(old_id="k", new_id="n", fingerprint="f", operator="o", why="mended")


@pytest.mark.parametrize(
    ("id", "status", "told"),
    [
        ("k", "INPROGRESS", "RESENDING as n, by o: mended"),
        ("k", "COMPLETED", "RESENT as n, by o: mended"),
        ("n", "COMPLETED", "TAKEN_BACK by o: mended (no handler ran; k can run again)"),
        ("k", "FAILED", f"FAILED at attempt 1, and may be tried again: {EARLY}"),
    ],
)
def test_a_resend_is_told_from_a_run_and_an_old_claim_has_no_lease_to_end(id: str, status: str, told: str) -> None:
    lasts = NOW_MS + 30 * DAY_MS
    record = written(status, resent=RESEND.to_json(), owner="o", in_progress_expiration=lasts)._replace(id=id)
    assert texts(record) == [(NOW_MS, told), END]


def test_an_execution_is_told_from_start_to_end_without_its_input() -> None:
    arn = "arn:aws:states:us-east-1:123456789012:execution:transfers:name-1"
    at = datetime(2026, 11, 22, 2, tzinfo=UTC)
    handed_over = written("INPROGRESS", execution=arn, in_progress_expiration=NOW_MS + 5)
    assert texts(handed_over)[0][1] == "INPROGRESS: handed over to execution name-1"
    described = {"executionArn": arn, "startDate": at, "status": "RUNNING", "input": SECRET}
    start = TraceEvent(int(at.timestamp() * 1000), "execution", "name-1 started")
    assert list(of_execution(described)) == [start, TraceEvent(None, "execution", "name-1 RUNNING")]
    ended = {**described, "status": "FAILED", "error": "States.Timeout", "cause": SECRET, "stopDate": at}
    assert list(of_execution(ended))[1] == replace(start, text="name-1 FAILED: States.Timeout")


def test_a_dead_letter_is_told_with_its_first_id_and_its_first_time() -> None:
    now = TraceEvent(None, "dead letter", "message m-1 is a dead letter: closed")
    sent = TraceEvent(NOW_MS - DAY_MS, "message", "message m-1 was sent")
    assert list(of_dead_letter(dead_letter(), "closed")) == [sent, now]
    assert list(of_dead_letter(dead_letter(stamp=DIED), "closed")) == [replace(sent, text="message m-0 was sent"), now]


def test_an_act_is_told_with_its_operator_its_reason_its_end_and_its_plan() -> None:
    begun = act(id="2027-01-15T08:00:00.250Z-1", message_id="m-1", why="mended")
    said = f"message m-1 moved by {OPERATOR}: mended; "
    done, refused = begun.ended(ActOutcome.DONE), replace(begun.ended(ActOutcome.REFUSED, "NoRoom"), plan="")
    assert of_act(done) == TraceEvent(NOW_MS + 250, "history", f"{said}done; plan p1")
    assert of_act(refused).text == f"{said}refused (NoRoom)"
    unconfirmed = f"{said}begun, not confirmed{{}}: it may have happened; plan p1"
    assert of_act(begun).text == unconfirmed.format("")
    assert of_act(begun.ended(ActOutcome.UNCONFIRMED, "Timeout")).text == unconfirmed.format(" (Timeout)")
    assert of_act(replace(done, verb="paused", message_id="")).text.startswith(f"paused by {OPERATOR}: ")


def test_a_filter_of_the_log_fits_cloudwatch_and_nothing_ends_its_texts() -> None:
    """It may let through too much; a line counts only if it is about a key to the letter."""
    keys = ["k-1", 'a"b\\c dé', "x" * 2000, "y" * 80, *map(str, range(9))]
    pattern = log_pattern(keys)
    assert pattern.startswith('{ ($.key = "k-1") || ($.message_id = "k-1") || ($.key = "a*b*c*d*") || ')
    assert f'"{"x" * 80}*"' in pattern
    assert f'"{"y" * 80}"' in pattern
    assert len(pattern) < 1024
    for message in ('{"key": "k-2"}', '{"key": ["k-1"]}', '{"key": null}', "[]", "k-1", '"k-1"', "[" * 10_000):
        assert list(of_log({"timestamp": 1, "message": message}, keys)) == []
    (event,) = of_log({"timestamp": 1, "message": '{"key": "k-1", "location": "charge:7"}'}, keys)
    assert event.at_ms == 1
    assert "charge:7" in event.text


@pytest.mark.usefixtures("elsewhere")
def test_a_time_of_the_applications_is_utc_unless_it_says_otherwise() -> None:
    zoneless, zoned = map(datetime.fromisoformat, ("2027-01-15T08:00:00", "2027-01-15T09:00:00+01:00"))
    assert list(of_hook("ledger", [(zoneless, "a"), (zoned, 7), (None, "b")])) == [  # type: ignore[list-item]
        TraceEvent(NOW_MS, "ledger", "a"),
        TraceEvent(NOW_MS, "ledger", "7"),
        TraceEvent(None, "ledger", "b"),
    ]


def test_what_is_so_now_stands_between_what_was_and_what_will_be() -> None:
    events = [
        TraceEvent(4, "d", "later"),
        TraceEvent(None, "a", "now"),
        TraceEvent(2, "b", "second"),
        TraceEvent(1, "c", "first"),
    ]
    assert [each.text for each in in_order(events, 3)] == ["first", "second", "now", "later"]
