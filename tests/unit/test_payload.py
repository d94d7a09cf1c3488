"""Which part of a payload counts, and what is the same payload."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idempotent_receiver import Message, Payload, UnusableKey, payload_key
from idempotent_receiver.payload import Document

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


def document(value: Any) -> Document:
    return Document.of_text(json.dumps(value))


def same(one: Payload, first: Any, second: Any) -> bool:
    return one.fingerprint(document(first)) == one.fingerprint(document(second))


@given(value=JSON)
def test_white_space_and_the_order_of_names_do_not_count(value: Any) -> None:
    def reordered(part: Any) -> Any:
        if isinstance(part, dict):
            return {name: reordered(part[name]) for name in reversed(part)}
        return [reordered(each) for each in part] if isinstance(part, list) else part

    if any(isinstance(each, int) and abs(each) > 2**53 for each in _leaves(value)):
        return
    compact, wide = json.dumps(value, separators=(",", ":")), json.dumps(reordered(value), indent=3)
    assert Payload().fingerprint(Document.of_text(compact)) == Payload().fingerprint(Document.of_text(wide))


def _leaves(value: Any) -> list[Any]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [value, *(leaf for each in inner for leaf in _leaves(each))]


def test_integers_that_json_cannot_say_exactly_count_by_their_bytes() -> None:
    """As doubles these two would be one."""
    first, second = (Document.of_text(f'{{"amount": {2**53 + one}}}') for one in (0, 1))

    assert Payload().fingerprint(first) != Payload().fingerprint(second)
    assert Payload("amount").fingerprint(first) != Payload("amount").fingerprint(second)


TWICE = [
    '{"amount":1,"amount":9}',
    '{"amount":9,"amount":9}',
    '{"amount":1,"\\u0061mount":9}',
    '{"lines":[{"amount":1,"amount":9}]}',
    '{"a":{"b":{"amount":1,"amount":9}},"c":1}',
]


@pytest.mark.parametrize("body", TWICE)
def test_a_payload_that_says_something_twice_counts_by_its_bytes(body: str) -> None:
    """Which of the two counts is for each reader to say: it is the same payload as no other."""
    twice, taken = Document.of_text(body), Document.of_text(json.dumps(json.loads(body)))

    assert Payload().fingerprint(twice) == sha256(body.encode()).hexdigest() != Payload().fingerprint(taken)
    assert Payload(without=["c"]).fingerprint(twice) == Payload().fingerprint(twice)
    assert Payload().fingerprint(Document.of_text(f"{body} ")) != Payload().fingerprint(twice)


@pytest.mark.parametrize("body", TWICE)
@pytest.mark.parametrize("fields", ["amount", "lines[].amount", "a.b.amount", "c", "`1`"])
def test_no_field_is_found_in_a_payload_that_says_something_twice(fields: str, body: str) -> None:
    with pytest.raises(UnusableKey, match="has a name twice in one object"):
        payload_key(fields)(Message(id="1", body=body, raw_body=body))


def test_the_same_name_in_two_objects_is_nothing_said_twice() -> None:
    one, other = (
        '{"a":{"id":1},"b":{"id":1},"c":[{"id":1},{"id":1}]}',
        '{"c":[{"id":1},{"id":1}],"b":{"id":1},"a":{"id":1}}',
    )
    assert Payload().fingerprint(Document.of_text(one)) == Payload().fingerprint(Document.of_text(other))


def test_a_text_is_not_the_json_string_of_it() -> None:
    assert Payload().fingerprint(Document.of_text("a")) != Payload().fingerprint(Document.of_text('"a"'))


def test_fields_and_paths_that_are_left_out() -> None:
    whole = {"id": 1, "meta": {"trace": "x", "kind": "k"}, "sent_at": 5}
    other = {"id": 1, "meta": {"trace": "y", "kind": "k"}, "sent_at": 6}

    assert not same(Payload(), whole, other)
    assert same(Payload("[id, meta.kind]"), whole, other)
    assert same(Payload(without=["meta.trace", "sent_at"]), whole, other)
    assert not same(Payload(without=["meta.trace"]), whole, other)
    assert same(Payload("meta", without=["meta.trace"]), whole, other)
    assert same(Payload(without=["not.there", "id.deeper"]), whole, whole)
    assert whole["meta"] == {"trace": "x", "kind": "k"}, "nothing is taken out of the payload itself"


@pytest.mark.parametrize("body", ['{"b": 1}', "[]", "text", '"text"', "null"])
@pytest.mark.parametrize("fields", ["a", "[a, c]", "{x: a}", "lines[].a"])
def test_fields_that_are_not_there_make_no_key(fields: str, body: str) -> None:
    """Else all payloads without them would be one."""
    with pytest.raises(UnusableKey, match="the payload has no"):
        payload_key(fields)(Message(id="1", body=body, raw_body=body))


def test_a_context_counts_and_none_runs_into_the_next() -> None:
    one = document({})
    contexts: list[tuple[str, ...]] = [(), ("POST",), ("POST", "/a"), ("POST/a",), ("POST", "", "/a"), ("/a", "POST")]

    assert len({Payload().fingerprint(one, *context) for context in contexts}) == len(contexts)


def test_what_cannot_be_meant_is_said_at_set_up() -> None:
    with pytest.raises(ValueError, match="is not a JMESPath expression"):
        Payload("a-b")
    with pytest.raises(TypeError, match="several paths"):
        payload_key(without="sent_at")


@given(body=st.text())
def test_any_body_has_a_fingerprint(body: str) -> None:
    assert len(Payload().fingerprint(Document.of_text(body))) == 64
    assert len(Payload(without=["a"]).fingerprint(Document.of_text(body))) == 64
