"""Any body, key or stamp is read correctly or refused, and no other exception is raised."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from idempotent_receiver import body_field, message_id
from idempotent_receiver.errors import UnusableKey
from idempotent_receiver.protocol.record import MOST_KEY_BYTES, usable
from idempotent_receiver.sqs import dead_letter
from idempotent_receiver.sqs.dead_letter import Stamp, stamp_of
from idempotent_receiver.sqs.keys import envelope_opener, fingerprint_by
from idempotent_receiver.sqs.message import InvalidEvent, Message, messages_of
from idempotent_receiver.transaction.outbox import STAMP
from tests.fuzz import hostile
from tests.fuzz.consumers import FIXED_KEYS

ENVELOPES = [
    *("detail", "Message", "@", "detail || Message", "[0]", "*", "detail.*.id[]", "[?id == '1']"),
    *("ceil(amount)", "floor(amount)", "sum(detail)", "contains(name, id)", "to_string(@)", "to_number(id)"),
    *("sort_by(@, &id)", "max_by(detail, &amount)", "join(name, @)", "length(id)", "map(&id, @)", "merge(@, detail)"),
]


def parsed(part: dict[str, Any]) -> Message | None:
    try:
        return messages_of({"Records": [part]})[0]
    except InvalidEvent:
        return None


# Messages.


@given(hostile.deliverable)
def test_every_attribute_of_a_message_can_be_read(part: dict[str, Any]) -> None:
    """Invalid counts are one and invalid times are unknown; reading them never raises."""
    message = parsed(part)

    assert message is not None
    assert message.receive_count >= 0
    for moment in (message.sent_at, message.first_received_at):
        assert moment is None or moment.tzinfo is not None
    assert message.group_id is None or isinstance(message.group_id, str)
    assert message.fifo == part.get("eventSourceARN", "").endswith(".fifo")


# Keys.


@given(st.sampled_from(FIXED_KEYS), hostile.deliverable)
def test_a_key_is_usable_or_refused_as_unusable(strategy: Callable[[Message], str], part: dict[str, Any]) -> None:
    message = parsed(part)
    assert message is not None
    try:
        found = strategy(message)
    except Exception:  # noqa: BLE001  # a strategy may raise anything: its caller takes that for no key
        assert strategy is not message_id
        return
    try:
        key = usable(found, lambda key: f"namespace#{key}")
    except UnusableKey:
        return

    assert key
    assert len(f"namespace#{key}".encode()) <= MOST_KEY_BYTES
    assert len(fingerprint_by(strategy, message)) == 64


@given(hostile.values | hostile.texts)
def test_only_a_string_that_fits_is_a_key(found: object) -> None:
    """Everything else raises UnusableKey."""
    try:
        key = usable(found, lambda key: key)
    except UnusableKey:
        return

    assert key is found
    assert 0 < len(key.encode()) <= MOST_KEY_BYTES


# Fingerprints.

canonical_leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**53) + 1, 2**53 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=4),
)
canonical = st.recursive(
    canonical_leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=6,
)


def in_json(value: object) -> str:
    """The same text for values that are equal in JSON: numbers count by their value, names in any order."""
    numbers = json.loads(json.dumps(value), parse_int=float, parse_float=lambda text: float(text) + 0.0)
    return json.dumps(numbers, sort_keys=True)


def fingerprint(body: str) -> str:
    return fingerprint_by(body_field("id"), Message(id="1", body=body, raw_body=body))


@given(canonical, st.sampled_from([None, 1, "\t"]), st.booleans())
def test_a_fingerprint_does_not_depend_on_how_json_is_written(value: Any, indent: Any, escaped: bool) -> None:
    turned = dict(reversed(value.items())) if isinstance(value, dict) else value

    one, other = json.dumps(value), f" {json.dumps(turned, indent=indent, ensure_ascii=escaped)}\n"

    assert fingerprint(one) == fingerprint(other)


@given(canonical, canonical)
def test_fingerprints_are_equal_only_for_equal_payloads(one: Any, other: Any) -> None:
    """Two values have the same fingerprint if and only if they are equal in JSON."""
    assert (fingerprint(json.dumps(one)) == fingerprint(json.dumps(other))) == (in_json(one) == in_json(other))


@given(hostile.bodies, hostile.bodies)
def test_every_body_has_a_fingerprint_and_two_texts_that_are_not_json_have_two(one: str, other: str) -> None:
    """A body without a canonical form counts by its bytes."""
    assert len(fingerprint(one)) == 64
    if not is_json(one) and not is_json(other):
        assert (fingerprint(one) == fingerprint(other)) == (one == other)


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


# Envelopes.


@given(st.sampled_from(ENVELOPES), hostile.bodies)
def test_no_body_makes_an_envelope_raise(envelope: str, body: str) -> None:
    opened = envelope_opener(envelope)(body)

    assert isinstance(opened, str)
    assert opened == body or is_json(body)


# Stamps.

reasons = st.none() | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
own_stamps = st.builds(
    Stamp,
    **dict.fromkeys(("key", "original_id"), hostile.texts.filter(bool)),
    **dict.fromkeys(("reason", "error_type", "first_received", "function", "queue"), reasons),
)


@given(own_stamps)
def test_a_stamp_comes_back_as_it_was(stamp: Stamp) -> None:
    """A redriven message is identified by the stamp of its dead letter."""
    assert stamp_of({STAMP: {"stringValue": stamp.to_json(), "dataType": "String"}}) == stamp


@given(st.dictionaries(st.just(STAMP), hostile.values | hostile.attribute_values) | hostile.stamped)
def test_a_forged_stamp_is_read_or_ignored(attributes: dict[str, Any]) -> None:
    """Reading it never raises. Its key and its id are strings, and it has no values of another type."""
    stamp = stamp_of(attributes)

    if stamp is not None:
        assert stamp.key
        assert stamp.original_id
        assert all(value is None or isinstance(value, str) for value in asdict(stamp).values())


@given(hostile.deliverable, own_stamps, st.none() | st.just("deduplication"))
def test_a_dead_letter_is_within_sqss_limits_or_there_is_no_room(
    part: dict[str, Any], stamp: Stamp, deduplication_id: str | None
) -> None:
    """A dead letter is the message with one more attribute, within SQS's limits; otherwise none is sent."""
    message = parsed(part)
    assert message is not None
    try:
        copy = dead_letter.copy_of(message, stamp, deduplication_id)
    except dead_letter.NoRoom:
        return
    except (UnicodeEncodeError, ValueError):  # a lone surrogate, or invalid base64: SQS delivers neither
        return

    sent = copy["MessageAttributes"]
    assert copy["MessageBody"] == part["body"]
    assert sent.keys() == (part.get("messageAttributes") or {}).keys() | {STAMP}
    assert len(sent) <= dead_letter.MOST_ATTRIBUTES
    assert dead_letter.size_of(copy["MessageBody"], sent) <= dead_letter.MOST_BYTES
    assert copy.get("MessageDeduplicationId") == deduplication_id
