"""Numbers that a double cannot hold count by their text, in every way in; all others count as they always did."""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from hashlib import sha256
from typing import Any

import jmespath
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import to_json

from idempotent_receiver import MemoryStore, Message, Payload, UnusableKey, body_field, idempotent, payload_key
from idempotent_receiver import event_id as by_event_id
from idempotent_receiver.errors import FingerprintMismatch
from idempotent_receiver.http.request import request_of
from idempotent_receiver.payload import EVERYTHING, Document, json_of
from idempotent_receiver.sqs.keys import envelope_opener, fingerprint_by
from tests.unit.http.api import request

pytestmark = pytest.mark.quick

PAIRS = [
    ("1.000000000000000001", "1.000000000000000002"),
    ("1.000000000000000001", "1"),
    ("9007199254740992.0", "9007199254740993.0"),
    ("900719925474099.123", "900719925474099.124"),
    ("0", "1e-400"),
    ("-1e-400", "1e-400"),
    ("1e400", "1e401"),
    ("1e400", "Infinity"),
    ("1e9999999999999999999999", "1e400"),
    ("0.1000000000000000055", "0.1"),
]
"""Numbers that differ and that one double stands for."""


def message(body: str) -> Message:
    return Message(id="id-1", body=body, raw_body=body)


def sent(body: str) -> dict[str, Any]:
    return {**request(), "body": base64.b64encode(body.encode()).decode(), "isBase64Encoded": True}


def opened(body: str) -> str:
    return EVERYTHING.fingerprint(Document.of_text(envelope_opener("detail")(f'{{"detail": {body}}}')))


WAYS_IN: dict[str, Any] = {
    "a message under a key of its own": lambda body: fingerprint_by(body_field("id"), message(body)),
    "an event's message": lambda body: fingerprint_by(by_event_id, message(body)),
    "a payload key": lambda body: payload_key()(message(body)),
    "fields": lambda body: payload_key("[id, amount]")(message(body)),
    "a list of them": lambda body: payload_key("lines[].amount")(message(f'{{"lines": [{body}]}}')),
    "text of them": lambda body: payload_key("join('-', [to_string(id), to_string(amount)])")(message(body)),
    "text of all": lambda body: payload_key("to_string(@)")(message(body)),
    "exclusions": lambda body: payload_key(without=["id"])(message(body)),
    "a request": lambda body: request_of(sent(body)).fingerprint(EVERYTHING),
    "a request's fields": lambda body: request_of(sent(body)).fingerprint(Payload("amount")),
    "an envelope": opened,
    "an envelope of text": lambda body: opened(json.dumps(body)),
}


@pytest.mark.parametrize("way_in", WAYS_IN.values(), ids=WAYS_IN)
@pytest.mark.parametrize("pair", PAIRS, ids=" ".join)
def test_numbers_that_one_double_stands_for_are_two_payloads(way_in: Any, pair: tuple[str, str]) -> None:
    """A different payment must not be acknowledged as a duplicate."""
    one, other = (f'{{"id": 7, "amount": {number}}}' for number in pair)

    assert way_in(one) == way_in(one) != way_in(other)


@pytest.mark.parametrize(
    "number", ["0.1", "1.50", "1E23", "1e23", "0", "-0.0", "0e5", "42.0000000000000000000000", "5e-324", "19.99"]
)
def test_a_number_that_a_double_holds_counts_as_it_always_did(number: str) -> None:
    """By its canonical form, however it is written."""
    plain = json.loads(number)

    assert type(json_of(number)) is type(plain)
    assert EVERYTHING.fingerprint(Document.of_text(number)) == EVERYTHING.fingerprint(Document.of_text(repr(plain)))


@pytest.mark.parametrize(
    ("body", "fingerprint"),
    [
        ('{"a": 0.1}', sha256(b'{"a":0.1}').hexdigest()),
        ('{"a": 1.50}', sha256(b'{"a":1.5}').hexdigest()),
        ('{"a": 1E23}', sha256(b'{"a":1e+23}').hexdigest()),
        ('{"a": 9007199254740992.0}', sha256(b'{"a":9007199254740992}').hexdigest()),
        ('{"a": 9007199254740993}', sha256(b'{"a": 9007199254740993}').hexdigest()),
        ('{"a": 1.000000000000000001}', sha256(b'{"a": 1.000000000000000001}').hexdigest()),
    ],
)
def test_the_bytes_that_count_are_the_canonical_form_or_where_there_is_none_the_body(
    body: str, fingerprint: str
) -> None:
    assert payload_key()(message(body)) == fingerprint


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_double_counts_by_its_canonical_form(number: float) -> None:
    """As Python writes it, and as pydantic writes a call's arguments."""
    assert {type(json_of(text)) for text in (repr(number), to_json(number).decode())} == {float}


@pytest.mark.parametrize(("body", "part"), [('{"a": 1e-400, "id": 7}', "7"), ('{"a": 1e-400, "id": 7.0}', "7")])
def test_such_a_number_in_a_part_that_does_not_count_changes_nothing(body: str, part: str) -> None:
    """The rest keeps its canonical form."""
    assert payload_key("id")(message(body)) == sha256(part.encode()).hexdigest()
    assert payload_key(without=["a"])(message(body)) == sha256(f'{{"id":{part}}}'.encode()).hexdigest()


NUMBERS = '{"a": 1.000000000000000001, "b": -3.000000000000000001, "ab": [2.000000000000000001, 1.5, 7], "s": "x"}'


@pytest.mark.parametrize(
    "expression",
    [
        *("sum(ab)", "avg(ab)", "max(ab)", "min(ab)", "sort(ab)", "abs(b)", "ceil(a)", "floor(a)", "type(a)"),
        *("a == `1`", "a != b", "a > b", "ab[?@ >= `2`]", "contains(ab, `2`)", "to_number(a)", "to_array(a)", "!a"),
        *("sort_by(ab[].{n: @}, &n)", "max_by(ab[].{n: @}, &n)", "not_null(c, a)", "length(ab)", "reverse(ab)"),
    ],
)
def test_the_functions_of_expressions_take_such_numbers_as_before(expression: str) -> None:
    """As doubles: an expression that fitted a payload still does."""
    found = Payload(expression).part(Document.of_text(NUMBERS))

    assert found == jmespath.search(expression, json.loads(NUMBERS))


def test_a_text_that_is_read_as_a_number_counts_by_it() -> None:
    key = payload_key("[id, to_number(amount)]")
    bodies = [f'{{"id": 7, "amount": {amount}}}' for amount in ('"1.000000000000000001"', '"1.0"', "1")]

    assert [key(message(body)) == key(message(bodies[-1])) for body in bodies] == [False, True, True]


@pytest.mark.parametrize("number", ["1.000000000000000001", "1e-400", "-0.999999999999999999999", "1e400"])
def test_such_a_number_is_no_key(number: str) -> None:
    """`1.000000000000000001` is not the order 1, and nobody sees the number in the reason."""
    with pytest.raises(UnusableKey, match="a number with a fraction, or too large") as caught:
        body_field("id")(message(f'{{"id": {number}}}'))

    assert number not in str(caught.value)


def test_an_envelope_is_opened_with_every_number_as_it_was_written() -> None:
    """The function reads the opened body, perhaps with `parse_float=Decimal`."""
    detail = (
        '{"z": 1.000000000000000001, "a": [1e-400, 123456789012345678901234567890, 1.5], "t": "\\u00fc\\"", "n": {}}'
    )
    body = envelope_opener("detail")(f'{{"detail": {detail}}}')

    assert json.loads(body, parse_float=Decimal) == json.loads(detail, parse_float=Decimal)
    assert list(json.loads(body)) == ["z", "a", "t", "n"]


def test_an_envelope_without_such_a_number_is_opened_as_before() -> None:
    detail = {"b": [1.5, 2**60], "a": {"x": None}}

    assert envelope_opener("detail")(json.dumps({"detail": detail})) == json.dumps(detail)


@pytest.mark.parametrize("depth", [100, 5_000])
def test_a_payload_with_such_a_number_may_be_nested_deeply(depth: int) -> None:
    """A client may send one; it must not end the invocation."""
    body, other = (f'{{"sent_at": 1, "a": {"[" * depth}{n}e-400{"]" * depth}}}' for n in (1, 2))
    for payload in (Payload(), Payload(without=["sent_at"])):
        assert payload.fingerprint(Document.of_text(body)) != payload.fingerprint(Document.of_text(other))
    assert envelope_opener("a")(body)


def test_a_call_with_a_number_that_differs_is_another_call() -> None:
    """Python's own numbers: a double has no more digits than it shows, and a Decimal counts by all of its own."""
    pay = idempotent(MemoryStore("numbers"), key=lambda amount: "one", lease_seconds=60)(lambda amount: "paid")
    body = json.loads('{"n": 1.000000000000000001}', parse_float=Decimal)

    assert [pay(body), pay(body)] == ["paid", "paid"]
    with pytest.raises(FingerprintMismatch):
        pay(json.loads('{"n": 1.000000000000000002}', parse_float=Decimal))
