"""What must be true of every answer, derived independently from the event, the table and the queues."""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from idempotent_receiver.sqs.dead_letter import MOST_ATTRIBUTES, MOST_BYTES, size_of
from idempotent_receiver.transaction.outbox import STAMP
from tests.fuzz.consumers import OWNER, PLENTY_MS, REFUSED, known_messages
from tests.fuzz.hostile import NOW, NOW_MS

if TYPE_CHECKING:
    from idempotent_receiver import Message
    from tests.fuzz.consumers import Received

STRINGS = ("id", "status", "version", "data", "validation", "error", "owner")
NUMBERS = ("expiration", "in_progress_expiration", "attempts")
FREE, DONE, HELD, UNUSABLE = "free", "done", "held", "unusable"


def check(seen: Received) -> None:
    """Everything that holds with a correct store."""
    check_safety(seen)
    check_items_met(seen)
    check_groups(seen)
    check_leftovers(seen)


def check_safety(seen: Received) -> None:
    """What holds whatever the store does."""
    assert seen.raised is None, seen.raised
    check_form(seen)
    check_acknowledgements(seen)
    check_requests(seen)
    assert "unexpected error in the receiver" not in seen.logs.texts
    check_effects(seen)
    # Without a claim, a run that has left no record does not keep another payload out, and a run that assumed no record
    # starts again on the one that it found.
    claiming = seen.setup.claiming
    runs = Counter(run.record_id if claiming else (run.record_id, run.body) for run in seen.runs)
    for key, times in runs.items():
        assert times <= (1 if claiming or key[0] not in seen.before else 2), "one run a key"


def check_effects(seen: Received) -> None:
    """Each credit is there once if its run's record is completed, and else not at all."""
    fingerprints = {
        (message.id, message.raw_body): found for message, _, found in known_messages(seen.setup, seen.event)
    }
    writes, credits = seen.setup.writes or [""], 0
    # The last run of a record commits, if one does.
    runs = {(run.record_id, run.body): (number, run) for number, run in enumerate(seen.runs)}
    for number, run in runs.values():
        item = seen.store.items.get(run.record_id, {})
        ours = item != seen.before.get(run.record_id) and item.get("status") == "COMPLETED"
        if ours and item["validation"] == fingerprints[run.message_id, run.body]:
            credits += writes[number % len(writes)] == "a credit"
    balance = seen.store.tables["Accounts"].items.get(("alice",), {"balance": 0})["balance"]
    assert balance == 5 * credits


def check_form(seen: Received) -> None:
    """The answer is a valid partial batch response: Lambda takes another for a failure, or success, of all."""
    assert seen.answer == json.loads(json.dumps(seen.answer))
    assert list(seen.answer) == ["batchItemFailures"]
    for failure in seen.answer["batchItemFailures"]:
        assert list(failure) == ["itemIdentifier"]
    failed = failed_ids(seen)
    assert len(failed) == len(set(failed))
    assert set(failed) <= {record["messageId"] for record in seen.event["Records"]}
    assert "" not in failed


def check_acknowledgements(seen: Received) -> None:
    """An acknowledged message is COMPLETED in the table, with the same payload, or SQS has its dead letter."""
    failed = set(failed_ids(seen))
    for message, id, fingerprint in known_messages(seen.setup, seen.event):
        if message.id not in failed:
            assert completed(seen, id, fingerprint) or dead_lettered(seen, message), message


def check_requests(seen: Received) -> None:
    """No request exceeds SQS's limits."""
    for name, asked in seen.queues.calls:
        if name == "change_message_visibility_batch":
            assert all(0 <= entry["VisibilityTimeout"] <= 43_200 for entry in asked["Entries"])
            assert 0 < len({entry["Id"] for entry in asked["Entries"]}) == len(asked["Entries"]) <= 10
        else:
            assert name == "send_message"
    for kept in seen.dead_letters:
        attributes = kept.sent["MessageAttributes"]
        assert len(attributes) <= MOST_ATTRIBUTES
        assert size_of(kept.sent["MessageBody"], attributes) <= MOST_BYTES


def check_items_met(seen: Received) -> None:
    """A completed, held or unusable item is not run and does not change; a completed one is acknowledged.

    Without claims, a first receive runs unread.
    """
    ran, failed = {(run.record_id, run.message_id, run.body) for run in seen.runs}, set(failed_ids(seen))
    claimable: set[str | None] = set()
    stops = not seen.setup.claiming and REFUSED & set(seen.setup.writes or ())
    not_stopped = seen.setup.left_ms >= PLENTY_MS and not stops
    for message, id, fingerprint in known_messages(seen.setup, seen.event):
        state = UNUSABLE if id is None else met(seen.before.get(id), fingerprint)
        if state != FREE and (seen.setup.claiming or message.receive_count > 1 or id is None):
            assert (id, message.id, message.raw_body) not in ran, state
        if state == DONE and not_stopped and not grouped(message) and alone(seen, message):
            assert message.id not in failed
        if state in (HELD, UNUSABLE) and not dead_lettered(seen, message):
            assert message.id in failed
        if state == FREE:
            claimable.add(id)
    for id, item in seen.before.items():
        assert id in claimable or seen.store.items[id] == item


def check_groups(seen: Received) -> None:
    """Nothing runs behind a failed message of a FIFO group. Only these are acknowledged: those completed before, copies
    of messages that this event has completed, and dead letters whose key was used for another payload: those never run.
    """
    failed, ran = set(failed_ids(seen)), {(run.message_id, run.body) for run in seen.runs}
    blocked: set[str | None] = set()
    known = known_messages(seen.setup, seen.event)
    run_here = {(id, fingerprint) for message, id, fingerprint in known if (message.id, message.raw_body) in ran}
    for message, id, fingerprint in known:
        if not grouped(message) or not alone(seen, message):
            continue
        if message.group_id in blocked:
            assert (message.id, message.raw_body) not in ran
            done = (id, fingerprint) in run_here or met(seen.before.get(str(id)), fingerprint) == DONE
            differs = id is not None and dead_lettered(seen, message)
            assert message.id in failed or done or differs
        if message.id in failed:
            blocked.add(message.group_id)


def check_leftovers(seen: Received) -> None:
    """The invocation leaves no live claim behind."""
    for id, item in seen.store.items.items():
        if item != seen.before.get(id) and item["status"] == "INPROGRESS":
            assert item.get("owner") != OWNER
            assert item["in_progress_expiration"] <= NOW_MS + 30_000


def failed_ids(seen: Received) -> list[str]:
    return [failure["itemIdentifier"] for failure in seen.answer["batchItemFailures"]]


def completed(seen: Received, id: str | None, fingerprint: str) -> bool:
    return id is not None and met(seen.store.items.get(id), fingerprint) == DONE


def dead_lettered(seen: Received, message: Message) -> bool:
    """Whether SQS has a dead letter of this message: its body, and a stamp that names it."""
    dead_letters = [kept.sent for kept in seen.dead_letters if kept.sent["MessageBody"] == message.raw_body]
    stamps = [json.loads(dead_letter["MessageAttributes"][STAMP]["StringValue"]) for dead_letter in dead_letters]
    return any(stamp["original_id"] in (message.id, original_id(message)) and stamp["reason"] for stamp in stamps)


def original_id(message: Message) -> str | None:
    """The original id in a message's stamp, if it has one."""
    try:
        return str(json.loads(message.message_attributes[STAMP]["stringValue"])["original_id"])
    except (KeyError, TypeError, ValueError, RecursionError):
        return None


def grouped(message: Message) -> bool:
    return message.queue_arn.endswith(".fifo") and message.group_id is not None


def alone(seen: Received, message: Message) -> bool:
    """Whether the event has no other message under this one's id."""
    return [record["messageId"] for record in seen.event["Records"]].count(message.id) == 1


def met(item: dict[str, Any] | None, fingerprint: str) -> str:
    """What a message with this fingerprint meets in this item."""
    if item is None:
        return FREE
    if not _well_typed(item):
        return UNUSABLE
    expiration, status = item.get("expiration"), item["status"]
    if expiration is not None and expiration <= NOW:
        return FREE
    lease = item.get("in_progress_expiration", None if expiration is None else expiration * 1000)
    if status not in ("INPROGRESS", "COMPLETED", "FAILED") or (status == "INPROGRESS" and lease is None):
        return UNUSABLE
    if item.get("validation", fingerprint) != fingerprint:
        return UNUSABLE
    if status == "COMPLETED":
        return DONE
    live = lease is not None and lease > NOW_MS
    return HELD if status == "INPROGRESS" and live else FREE


def _well_typed(item: dict[str, Any]) -> bool:
    texts = all(isinstance(item[name], str) for name in STRINGS if name in item)
    whole = all(_whole(item[name]) for name in NUMBERS if name in item)
    return texts and whole and "status" in item


def _whole(value: object) -> bool:
    if isinstance(value, Decimal):
        return value.is_finite() and value == value.to_integral_value()
    return isinstance(value, int) and not isinstance(value, bool)
