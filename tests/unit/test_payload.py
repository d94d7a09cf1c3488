"""Which part of a payload counts, and which payloads are equal."""

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


def test_integers_that_json_cannot_hold_exactly_count_by_their_bytes() -> None:
    """As doubles the two would be equal."""
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
def test_a_payload_with_a_name_twice_counts_by_its_bytes(body: str) -> None:
    """Parsers differ in which of the two they take, so it equals no other payload."""
    twice, taken = Document.of_text(body), Document.of_text(json.dumps(json.loads(body)))

    assert Payload().fingerprint(twice) == sha256(body.encode()).hexdigest() != Payload().fingerprint(taken)
    assert Payload(without=["c"]).fingerprint(twice) == Payload().fingerprint(twice)
    assert Payload().fingerprint(Document.of_text(f"{body} ")) != Payload().fingerprint(twice)


@pytest.mark.parametrize("body", TWICE)
@pytest.mark.parametrize("fields", ["amount", "lines[].amount", "a.b.amount", "c", "`1`"])
def test_no_field_is_found_in_a_payload_that_says_something_twice(fields: str, body: str) -> None:
    with pytest.raises(UnusableKey, match="an object in it repeats a name"):
        payload_key(fields)(Message(id="1", body=body, raw_body=body))


def test_the_same_name_in_two_objects_is_nothing_said_twice() -> None:
    one, other = (
        '{"a":{"id":1},"b":{"id":1},"c":[{"id":1},{"id":1}]}',
        '{"c":[{"id":1},{"id":1}],"b":{"id":1},"a":{"id":1}}',
    )
    assert Payload().fingerprint(Document.of_text(one)) == Payload().fingerprint(Document.of_text(other))


def test_a_text_is_not_the_json_string_of_it() -> None:
    assert Payload().fingerprint(Document.of_text("a")) != Payload().fingerprint(Document.of_text('"a"'))


@pytest.mark.parametrize("depth", [300, 700, 950, 5_000, 100_000])
def test_a_payload_that_is_nested_too_deep_for_exclusions_counts_by_its_bytes(depth: int) -> None:
    """A client may send one; it must not end the invocation."""
    body = '{"sent_at": 1, "a": ' + "[" * depth + "]" * depth + "}"
    payload = Payload(without=["sent_at"])

    assert payload.fingerprint(Document.of_text(body)) == payload.fingerprint(Document.of_text(body))
    assert payload.fingerprint(Document.of_text(body)) != payload.fingerprint(Document.of_text(body[:-1] + ', "b": 1}'))


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
    """Otherwise all payloads without them would be equal."""
    with pytest.raises(UnusableKey, match="the payload has no"):
        payload_key(fields)(Message(id="1", body=body, raw_body=body))


def test_a_context_counts_and_none_runs_into_the_next() -> None:
    one = document({})
    contexts: list[tuple[str, ...]] = [(), ("POST",), ("POST", "/a"), ("POST/a",), ("POST", "", "/a"), ("/a", "POST")]

    assert len({Payload().fingerprint(one, *context) for context in contexts}) == len(contexts)


@pytest.mark.parametrize(
    ("payload", "body", "context", "fingerprint"),
    [
        (
            Payload(),
            b'{"amount": 5}',
            ("POST", "/transfers"),
            "c4b77a97d73c9c35f47ab971e3f82956ea62f9d6882ab0427cd6f8ca54324ec1",
        ),
        (Payload(), b"", ("GET", "/x"), "d42794169113943717e588cbf682a5363a45f600efab4f496ecab8c1ac8b0ebe"),
        (
            Payload(),
            b"?1:a",
            ("POST", "/transfers"),
            "f8889a136a0429591a43921906e259d3b694ef2b0746f097e0bc1229b1aea54e",
        ),
        (Payload(), b'{"amount": 5}', (), "7e84cbf0f7a7c92c037058665d66152f8eb8580ab2534e52c877bccceb9cc7bf"),
        (
            Payload("amount"),
            b'{"amount": 5}',
            ("POST", "/transfers"),
            "dbd60ba7cb9ff9818797bb78ac5cd6668fb93b6c2688da2d9bb7890a642546f4",
        ),
    ],
)
def test_a_fingerprint_without_a_query_is_for_ever(
    payload: Payload, body: bytes, context: tuple[str, ...], fingerprint: str
) -> None:
    """Stored records have it: a different one would refuse every retry after an upgrade."""
    assert payload.fingerprint(Document.of_bytes(body), *context) == fingerprint
    assert payload.fingerprint(Document.of_bytes(body), *context, query=()) == fingerprint


WHOLE = b'{"b": 1, "meta": {"trace": "x", "kind": "k"}}'
LARGE = b'{"b": 1, "meta": {"trace": "x", "kind": "k"}, "a": 1152921504606846976}'


@pytest.mark.parametrize(
    ("payload", "body", "fingerprint"),
    [
        (Payload(without=["meta.trace"]), LARGE, "df2d2837694749d5b4f9021b43b654132ffe777d349340237bfc92c0ab718ed6"),
        (Payload(without=["meta.trace"]), WHOLE, "2be1aacf62c47ea17dc822c7868d3415855949397e4ecd5d2e965e4ffbfa358e"),
        (
            Payload("meta", without=["meta.trace"]),
            WHOLE,
            "7f71ae8a6f888f93ef341db1f4ad4753f63980082424df51f96e69a2938f1714",
        ),
        (Payload(without=["a"]), b"text", "982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1"),
        (Payload(without=["a"]), b'{"a":1,"a":2}', "1c53ee0df7b12fd4d65b976120c7fa6b847dc41dffd7f0331c3237a1ceab1756"),
    ],
)
def test_a_fingerprint_of_a_part_is_for_ever(payload: Payload, body: bytes, fingerprint: str) -> None:
    """A message's key, too, where it is made of the body."""
    assert payload.fingerprint(Document.of_bytes(body)) == fingerprint
    assert payload(Message(id="1", body=body.decode(), raw_body=body.decode())) == fingerprint


METHOD = st.sampled_from(["POST", "", "?", "?2:", "1:a1:b"]) | st.text(max_size=6)
QUERY = st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3)), max_size=3).map(tuple)
RAW = st.binary(max_size=12) | st.sampled_from([b"", b"?", b"2:", b"1:a1:b", b"/1:a1:b"])
REQUEST = st.tuples(METHOD, METHOD, QUERY, RAW)


def hashed(method: str, path: str, query: tuple[tuple[str, str], ...], raw: bytes) -> list[bytes]:
    """The bytes that the hash of a request covers."""
    seen: list[bytes] = []

    class Hash:
        def update(self, part: bytes) -> None:
            seen.append(part)

        def hexdigest(self) -> str:
            return ""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("idempotent_receiver.payload.sha256", Hash)
        Payload().fingerprint(Document(raw), method, path, query=query)
    return [b"".join(seen)]


@given(one=REQUEST, other=REQUEST)
def test_no_two_requests_are_hashed_alike(one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    assert (hashed(*one) == hashed(*other)) is (one == other)


@given(query=QUERY.filter(bool), method=METHOD, path=METHOD, raw=RAW, other=METHOD)
def test_no_body_without_a_query_reads_like_a_request_with_one(
    query: tuple[tuple[str, str], ...], method: str, path: str, raw: bytes, other: str
) -> None:
    """Not even a body crafted for it: the hashed bytes of the request, cut anywhere, after any method and path."""
    (whole,) = hashed(method, path, query, raw)
    for place in range(len(whole) + 1):
        for start in ((method, path), (other, path), *query):
            assert hashed(*start, (), whole[place:]) != [whole]


def test_what_cannot_be_meant_is_said_at_set_up() -> None:
    for wrong in ("trace", None, [None]):
        with pytest.raises(TypeError, match="without_query takes several names"):
            Payload(without_query=wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="is not a JMESPath expression"):
        Payload("a-b")
    for wrong, why in (
        ("to_strng(id)", "no function 'to_strng'"),
        ("[a, join(id)]", "'join' takes 2 arguments, not 1"),
    ):
        with pytest.raises(ValueError, match=why):
            payload_key(wrong)
    assert payload_key("not_null(a, b, c)")
    with pytest.raises(TypeError, match="several paths"):
        payload_key(without="sent_at")


def test_a_list_that_changes_later_changes_nothing() -> None:
    """It is copied at set-up."""
    names = ["trace"]
    payload = Payload(without=names, without_query=names)
    names.append("amount")
    assert (payload.without, payload.without_query) == (("trace",), ("trace",))


@given(body=st.text())
def test_any_body_has_a_fingerprint(body: str) -> None:
    assert len(Payload().fingerprint(Document.of_text(body))) == 64
    assert len(Payload(without=["a"]).fingerprint(Document.of_text(body))) == 64
