"""An expression that takes nothing from a payload makes no key: all strangers would share it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from idempotent_receiver import (
    MemoryStore,
    Message,
    Payload,
    UnusableKey,
    body_field,
    http_endpoint,
    idempotent,
    payload,
    payload_key,
    sqs_consumer,
)
from idempotent_receiver.payload import Document
from idempotent_receiver.sqs.keys import envelope_opener, fingerprint_by
from idempotent_receiver.testing import lambda_context, sqs_event
from idempotent_receiver.testing.worker import failed_ids
from tests.unit.http.api import Api, problem, request

pytestmark = pytest.mark.quick

ORDER = {"order_id": "7", "a": "x", "b": 0, "items": [{"id": 1, "kind": "x"}, {"id": 2, "kind": "y"}], "none": None}

RIGHT = [
    *("order_id", "b", "[a, b]", "[order_id, missing]", "{a: a, b: b}", "{id: order_id, currency: missing || 'EUR'}"),
    *("join('-', [a, order_id])", "items[].id", "items[?kind=='x'].id | [0]", "items[0].id", "items[*].[id, missing]"),
    *("to_string(@)", "to_string(items)", "sort(keys(@))", "not_null(missing, a)", "a || 'none'", "length(items)"),
    *("sum(items[].id)", "max_by(items, &id).id", "['order', order_id]", "[[order_id], [missing]]", "@", "none || b"),
    *("[not_null(missing, 'none'), order_id]", "items[?kind=='z'].id || a", "b == `0`", "type(a)", "keys(@) | [0]"),
]
"""Expressions that take something from `ORDER`."""

WRONG = [
    "to_string(order)",
    "not_null(order, 'none')",
    "[[order], [line]]",
    "order || 'none'",
    "'order'",
    "[`1`, 'order']",
    "{order: order, line: {id: line}}",
    "join('-', [to_string(order), to_string(line)])",
    "[to_string(order), order == `true`, type(@)]",
    "items[*].[order, [line]]",
    "items[].order",
]
"""Expressions that take nothing from `ORDER`, nor from any other payload without their fields."""


def message(body: Any) -> Message:
    text = json.dumps(body)
    return Message(id="1", body=text, raw_body=text)


@pytest.mark.parametrize("expression", RIGHT)
def test_an_expression_that_takes_something_makes_a_key(expression: str) -> None:
    key = payload_key(expression)(message(ORDER))

    assert len(key) == 64
    assert key == Payload(expression).fingerprint(Document.of_text(json.dumps(ORDER)))


def has_key(expression: str, body: str) -> bool:
    try:
        return bool(payload_key(expression)(Message(id="1", body=body, raw_body=body)))
    except UnusableKey:
        return False


def test_by_type_and_value_the_same_is_not_merely_equal() -> None:
    """True is not 1, and a list is what its elements are."""
    for expression, missing, present in (
        ("not_null(a, `true`)", True, 1),
        ("not_null(a, `0`)", 0, False),
        ("[not_null(a, `[1]`)]", [1], [True]),
    ):
        assert [has_key(expression, f'{{"a": {json.dumps(each)}}}') for each in (missing, present)] == [False, True]
    assert has_key("not_null(a, `1`)", '{"a": 1.000000000000000001}')


def as_key(expression: str) -> Any:
    return payload_key(expression)(message(ORDER))


def as_fingerprint(expression: str) -> Any:
    return fingerprint_by(body_field("order_id"), message(ORDER), Payload(expression))


def as_call(expression: str) -> Any:
    call = idempotent(MemoryStore("calls"), key=payload_key(expression), lease_seconds=60)(lambda parcel: "done")
    return call(ORDER)


def as_call_of_several(expression: str) -> Any:
    def function(parcel: dict[str, Any], weight: int, express: bool = False) -> None: ...

    call = idempotent(MemoryStore("calls"), key=payload_key(expression), lease_seconds=60)(function)
    return call(ORDER, weight=5)


def as_fingerprint_of_a_call(expression: str) -> Any:
    compared = Payload(expression)
    call = idempotent(MemoryStore("calls"), key=lambda parcel: "1", payload=compared, lease_seconds=60)
    return call(lambda parcel: "done")(ORDER)


WAYS_IN = [as_key, as_fingerprint, as_call, as_call_of_several, as_fingerprint_of_a_call]


@pytest.mark.parametrize("way_in", WAYS_IN)
@pytest.mark.parametrize("expression", WRONG)
def test_an_expression_that_takes_nothing_is_refused_by_name_and_with_the_remedy(expression: str, way_in: Any) -> None:
    with pytest.raises(UnusableKey) as caught:
        way_in(expression)

    text = str(caught.value)
    assert repr(expression) in text
    assert "the payload has no" in text or "Name a field that every payload has" in text


@pytest.mark.parametrize("expression", WRONG)
def test_over_http_it_is_a_bad_request(expression: str) -> None:
    for options in ({"key": payload_key(expression), "scope": None}, {"payload": Payload(expression)}):
        api = Api(**options)
        assert repr(expression) in problem(api(request(body=ORDER)), 400)["detail"]
        assert api.untouched


@pytest.mark.parametrize("expression", WRONG)
def test_a_message_never_runs_under_it(expression: str) -> None:
    runs: list[Any] = []
    for key in (payload_key(expression), body_field(expression)):
        store = MemoryStore(namespace="orders")

        @sqs_consumer(store, key=key)
        def take(order: dict[str, Any]) -> None:
            runs.append(order)

        assert failed_ids(take(sqs_event(ORDER, ORDER), lambda_context())) == ["message-1", "message-2"]
        assert (runs, store.items) == ([], {})


@pytest.mark.parametrize("path", ["to_string(order)", "not_null(order, 'none')", "'order'", "join('-', ['a', 'b'])"])
def test_a_field_of_a_body_is_taken_from_it(path: str) -> None:
    told = r"takes nothing from the payload: .* Name a field that every payload has, and give it no default$"
    with pytest.raises(UnusableKey, match=told) as caught:
        body_field(path)(message(ORDER))
    assert repr(path) in str(caught.value)


@pytest.mark.parametrize("path", ["order_id", "to_string(order_id)", "join('-', [a, order_id])", "not_null(x, a)", "b"])
def test_a_field_of_a_body_that_is_there_is_the_key(path: str) -> None:
    assert body_field(path)(message(ORDER))


def test_a_default_of_an_argument_is_no_missing_field() -> None:
    """An expression finds all arguments by name, with their defaults."""

    def charge(order: dict[str, Any], currency: str = "EUR") -> int:
        return order["id"]

    call = idempotent(MemoryStore("charges"), key=payload_key("[order.id, currency]"), lease_seconds=60)(charge)
    assert [call({"id": 1}), call({"id": 1}, "EUR"), call({"id": 2}), call({"id": 2}, "USD")] == [1, 1, 2, 2]

    text = idempotent(MemoryStore("texts"), key=payload_key("to_string(order)"), lease_seconds=60)(charge)
    assert [text({"id": 1}), text({"id": 2})] == [1, 2], "a name is the argument's where the payload has no such field"


def test_an_expression_is_searched_for_in_nothing_once() -> None:
    """Not once a message."""
    key, before = payload_key("not_null(id, 'searched for once')"), payload._found_in_nothing.cache_info().misses
    for number in range(3):
        key(message({"id": number}))
    assert payload._found_in_nothing.cache_info().misses == before + 1


def test_an_envelope_of_which_an_expression_takes_nothing_does_not_match() -> None:
    """Its body stays as it is. Opened, all strangers would have one body."""
    for expression in ("to_string(detail)", "not_null(detail, 'none')", "{order: detail.order, at: time}"):
        assert envelope_opener(expression)('{"other": 1}') == '{"other": 1}'
    assert envelope_opener("detail")('{"detail": []}') == "[]"


def test_two_strangers_do_not_get_each_others_answer() -> None:
    """Where the payload is narrowed as the key is, the second would get the first's."""
    narrowed = "to_string(order)"
    store = MemoryStore(namespace="http")
    runs: list[Any] = []

    @http_endpoint(store, key=payload_key(narrowed), payload=Payload(narrowed), scope=None)
    def pay(event: dict[str, Any], context: object) -> dict[str, Any]:
        runs.append(event["body"])
        return {"statusCode": 201}

    answers = [pay(request(None, {"ordre": name}), lambda_context()) for name in ("alice", "bob")]
    assert [answer["statusCode"] for answer in answers] == [400, 400]
    answers = [pay(request(None, {"order": name}), lambda_context()) for name in ("alice", "bob")]
    assert ([answer["statusCode"] for answer in answers], len(runs)) == ([201, 201], 2)
