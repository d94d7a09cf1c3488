"""The sizes by which DynamoDB limits items and keys."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.dynamodb import units
from harness.dynamodb.values import typed
from idempotent_receiver.protocol.limits import bytes_of, item_bytes, key_refusal


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ("", 0),
        *((value, 1) for value in (True, None, 0)),
        *((value, 2) for value in ("é", 12, -12, 100, Decimal("0.0120"), Decimal("1E+125"))),
        *((value, 3) for value in (b"abc", 123, [], {}, {"a", "bc"})),
        (10**38 - 1, 20),
        (["a", "b"], 7),
        ({"n": "a", "m": [1]}, 14),
        ({1, 23}, 4),
    ],
)
def test_the_size_of_a_value_is_the_documented_one(value: object, size: int) -> None:
    """A number's is the least that DynamoDB counts: a sign, or an odd exponent, takes it one more."""
    assert bytes_of(value) == size


_scalars = st.text(max_size=5) | st.binary(max_size=5) | st.integers(0, 10**38 - 1) | st.booleans() | st.none()
_values = st.recursive(
    _scalars | st.sets(st.text(max_size=5), min_size=1) | st.sets(st.integers(0, 999), min_size=1),
    lambda held: st.lists(held, max_size=4) | st.dictionaries(st.text(max_size=5), held, max_size=4),
)


@given(st.dictionaries(st.text(max_size=5), _values, max_size=4))
def test_it_is_what_the_model_of_dynamodb_bills(item: dict[str, object]) -> None:
    """Which counts the values as they go over the wire."""
    assert item_bytes(item) == units.item_bytes(typed(item))


@pytest.mark.parametrize(("value", "size"), [("", 0), (b"", 0), ("é" * 1024 + "x", 2049), (b"x" * 2049, 2049)])
def test_a_key_has_1_to_2048_bytes(value: str | bytes, size: int) -> None:
    """The text names the attribute and its size, never the value."""
    assert str(key_refusal("id", value)).startswith(f"its key 'id' has {size} bytes: DynamoDB allows 1 to 2048")
    assert key_refusal("id", value[1:] or "x") is None
    assert key_refusal("id", 10**38 - 1) is None, "a number is always short enough"
