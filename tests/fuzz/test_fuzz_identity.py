"""Two payloads with one fingerprint are equal to every parser that a handler may use, in every way in."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from math import isnan
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import from_json

from idempotent_receiver import MemoryStore, Message, Payload, UnusableKey, body_field, idempotent, payload_key
from idempotent_receiver.errors import FingerprintMismatch
from idempotent_receiver.http.request import request_of
from idempotent_receiver.payload import EVERYTHING
from idempotent_receiver.sqs.keys import envelope_opener, fingerprint_by

# Payloads, as texts.


@dataclass(frozen=True)
class Number:
    """A number as it is written."""

    text: str


digits = st.from_regex(r"-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
doubles = st.floats(allow_nan=False, allow_infinity=False).map(repr)
known = st.sampled_from(
    [
        *("0", "-0", "0.0", "1", "1.0", "10e-1", "0.1", "0.10", "1E23", "1e22", "5e-324", "Infinity", "NaN"),
        *("1e400", "-1e400", "1e-400", "1e999999999999999999999", "1.000000000000000001", "900719925474099.123"),
        *("9007199254740992", "9007199254740993", "9007199254740992.0", "9007199254740993.0"),
        *("123456789012345670000", "1.2345678901234567e20"),
    ]
)
numbers = (known | digits | doubles).map(Number)
leaves = st.none() | st.booleans() | st.text(max_size=3) | st.sampled_from(["1", "0.1", "\ud800", "\u2028"]) | numbers
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab\u00fc\U0001f600"), inner, max_size=3)
    ),
    max_leaves=6,
)
bodies = st.fixed_dictionaries({"id": leaves, "amount": values}, optional={"lines": values})


def written(value: Any, random: Random) -> Iterator[str]:
    """A value as JSON, with white space, the order of names, escapes and, rarely, a repeated name at random."""
    yield random.choice(["", "", " ", "\n\t"])
    if isinstance(value, Number):
        yield value.text
    elif isinstance(value, dict):
        members = random.sample(list(value.items()), len(value))
        if members and random.random() < 0.03:
            members.append((members[0][0], random.choice([None, members[-1][1]])))
        yield "{"
        for place, (name, each) in enumerate(members):
            yield f"{',' if place else ''}{json.dumps(name, ensure_ascii=random.random() < 0.5)}:"
            yield from written(each, random)
        yield "}"
    elif isinstance(value, list):
        yield "["
        for place, each in enumerate(value):
            yield "," if place else ""
            yield from written(each, random)
        yield "]"
    else:
        yield json.dumps(value, ensure_ascii=random.random() < 0.5)
    yield random.choice(["", " "])


def varied(value: Any, random: Random) -> Any:
    """The value, or one that a careless comparison takes for it."""
    if isinstance(value, dict | list) and value and random.random() < 0.9:
        place = random.choice(list(value) if isinstance(value, dict) else range(len(value)))
        copy = value.copy()
        copy[place] = varied(value[place], random)
        return copy
    match value:
        case Number(text):
            return random.choice([value, *_near(text)])
        case bool():
            return random.choice([value, Number(str(int(value))), str(value).lower()])
        case str():
            return random.choice([value, f"{value} ", Number(value) if value.isascii() and value.isdigit() else value])
        case None:
            return random.choice([None, "null", {}, []])
    return value


def _near(text: str) -> list[Any]:
    """Numbers that look alike, and other ways to write this one."""
    mantissa, _, exponent = text.lower().partition("e")
    whole, _, fraction = mantissa.partition(".")
    if not (whole.removeprefix("-").isdigit() and len(exponent) < 5):
        return [text, Number("1e400")]
    last = str((int(mantissa[-1]) + 1) % 10)
    tail = f"e{exponent}" if exponent else ""
    found = [
        f"{mantissa[:-1]}{last}{tail}" if mantissa.lstrip("-") not in "0123456789" else f"{last}{tail}",
        f"{whole}.{fraction}0{tail}",
        f"{whole}.{fraction}{'0' * 18}1{tail}",
        f"{whole}{fraction}e{int(exponent or 0) - len(fraction)}" if whole.lstrip("-") != "0" else text,
        repr(float(text)).replace("inf", "Infinity"),
    ]
    return [text, *map(Number, found)]


@st.composite
def pairs(draw: st.DrawFn) -> tuple[str, str]:
    """Two bodies: often one payload written twice, or nearly."""
    random = Random(draw(st.integers(0, 2**32)))
    one = draw(bodies)
    other = random.choice([one, varied(one, random), varied(varied(one, random), random), draw(bodies)])
    return "".join(written(one, random)), "".join(written(other, random))


# Readers.


class Repeated(list[tuple[str, Any]]):
    """An object with a repeated name, in order."""


def every_member(members: list[tuple[str, Any]]) -> Any:
    found = dict(members)
    return found if len(found) == len(members) else Repeated(members)


READERS: dict[str, Callable[[str], Any]] = {
    "json.loads": json.loads,
    "decimals": lambda text: json.loads(text, parse_float=Decimal),
    "every digit": lambda text: json.loads(text, parse_float=Decimal, parse_int=Decimal),
    "every member": lambda text: json.loads(text, object_pairs_hook=every_member, parse_float=Decimal),
    "the first of a repeated name": lambda text: json.loads(text, object_pairs_hook=lambda m: dict(reversed(m))),
    "pydantic": lambda text: from_json(text.encode("utf-8", "surrogatepass"), allow_inf_nan=True),
    "doubles": lambda text: json.loads(text, parse_int=float),
}


REFUSED = object()


def read(reader: Callable[[str], Any], text: str) -> Any:
    """What a handler gets; nothing of a body that its reader refuses."""
    try:
        return reader(text)
    except (ValueError, ArithmeticError):
        return REFUSED


def equal(one: Any, other: Any) -> bool:
    """Equal by kind and value. A whole number may come as an int or, written otherwise, as its double."""
    if one is REFUSED or other is REFUSED:
        return True
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float | Decimal) and isinstance(other, int | float | Decimal):
        if type(one) is not type(other) and not isinstance(one, Decimal) and not isinstance(other, Decimal):
            return float(one) == float(other)
        return bool(one == other) or (isnan(one) and isnan(other))
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other)


# The ways in: each the identity of a body, and what of a value it stands for.


def message(body: str) -> Message:
    return Message(id="id-1", body=body, raw_body=body)


def request(body: str, coding: str = "identity") -> Any:
    sent = body.encode("utf-8", "surrogatepass")
    sent = gzip.compress(sent) if coding == "gzip" else sent
    event = {"httpMethod": "POST", "path": "/", "headers": {"content-encoding": coding}}
    return request_of({**event, "body": base64.b64encode(sent).decode(), "isBase64Encoded": True})


def in_envelope(body: str) -> str:
    opened = envelope_opener("detail")(f'{{"detail": {body}, "id": "e-1"}}')
    return payload_key()(message(opened))


def of(*names: str) -> Callable[[Any], Any]:
    return lambda value: [value.get(name) for name in names] if isinstance(value, dict) else value


def all_but_the_id(value: Any) -> Any:
    return {name: each for name, each in value.items() if name != "id"} if isinstance(value, dict) else value


def all_of_it(value: Any) -> Any:
    return value


WAYS_IN: dict[str, tuple[Callable[[str], str], Callable[[Any], Any]]] = {
    "a message under another key": (lambda body: fingerprint_by(body_field("id"), message(body)), all_of_it),
    "a payload key": (lambda body: payload_key()(message(body)), all_of_it),
    "fields": (lambda body: payload_key("[id, amount]")(message(body)), of("id", "amount")),
    "fields as text": (lambda body: payload_key("to_string([id, amount])")(message(body)), of("id", "amount")),
    "exclusions": (lambda body: payload_key(without=["id"])(message(body)), all_but_the_id),
    "a request": (lambda body: request(body).fingerprint(EVERYTHING), all_of_it),
    "a compressed request": (lambda body: request(body, "gzip").fingerprint(EVERYTHING), all_of_it),
    "a request's fields": (lambda body: request(body).fingerprint(Payload("{a: amount}")), of("amount")),
    "an envelope": (in_envelope, all_of_it),
}


def identity(way_in: Callable[[str], str], body: str) -> str | None:
    try:
        return way_in(body)
    except UnusableKey:
        return None


@pytest.mark.parametrize(("way_in", "counting"), WAYS_IN.values(), ids=WAYS_IN)
@given(pair=pairs())
def test_payloads_with_one_fingerprint_are_equal_to_every_reader(
    way_in: Callable[[str], str], counting: Callable[[Any], Any], pair: tuple[str, str]
) -> None:
    one, other = (identity(way_in, body) for body in pair)

    if one is None or one != other:
        return
    for name, reader in READERS.items():
        first, second = (counting(read(reader, body)) for body in pair)
        assert equal(first, second), f"{name} reads {first!r} and {second!r}"


def as_key(value: Any) -> str:
    """What a string or whole number is as a key."""
    return value if isinstance(value, str) else f"{Decimal(value).to_integral_exact():f}" if value == value // 1 else ""


@given(pair=pairs())
def test_bodies_with_one_key_have_one_id_for_every_reader(pair: tuple[str, str]) -> None:
    """A whole number and the string of its digits are one id."""
    one, other = (identity(lambda body: body_field("id")(message(body)), body) for body in pair)

    if one is None or one != other:
        return
    for reader in (READERS["json.loads"], READERS["decimals"], READERS["every digit"]):
        first, second = (read(reader, body) for body in pair)
        assert REFUSED in (first, second) or as_key(first["id"]) == as_key(second["id"])


@given(pair=pairs())
def test_an_opened_body_is_equal_to_every_reader(pair: tuple[str, str]) -> None:
    """To what the envelope holds, but where nothing of it could be opened."""
    envelope = f'{{"detail": {pair[0]}}}'
    opened = envelope_opener("detail")(envelope)

    if opened == envelope:
        return
    for name, reader in READERS.items():
        assert equal(read(reader, opened), read(reader, pair[0])), name


def in_texts(value: Any) -> Any:
    """The value with a text for each Decimal, as which it counts."""
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        return [(place, in_texts(each)) for place, each in sorted(pairs)]
    return str(value) if isinstance(value, Decimal) else value


@pytest.mark.parametrize("reader", [READERS["json.loads"], READERS["decimals"]], ids=["json.loads", "decimals"])
@given(pair=pairs())
def test_calls_with_one_fingerprint_have_equal_arguments(reader: Callable[[str], Any], pair: tuple[str, str]) -> None:
    """As the caller has read them."""
    one, other = (read(reader, body) for body in pair)
    call = idempotent(MemoryStore("calls"), key=lambda value: "one", lease_seconds=60)(lambda value: None)

    try:
        call(one)
        call(other)
    except (FingerprintMismatch, UnusableKey):
        return
    assert equal(in_texts(one), in_texts(other))
