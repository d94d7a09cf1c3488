"""Plain values as DynamoDB takes them: what boto3's TypeSerializer makes of them, and the JSON that botocore sends."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from boto3.dynamodb.types import TypeSerializer
from hypothesis import example, given
from hypothesis import strategies as st

from idempotent_receiver import Transaction
from idempotent_receiver.dynamodb.transactions import attribute_value, transact_items
from idempotent_receiver.transaction.values import plain_copy


def ends_in_zeros(number: int | Decimal) -> bool:
    """Whether it has more than 38 digits, of which only zeros are too many: boto3 refuses it, DynamoDB does not."""
    digits = Decimal(number).as_tuple().digits
    return len(digits) > 38 and not any(digits[38:])


# Within DynamoDB's range, which boto3 does not know: it sends what is refused there.
numbers = (st.integers() | st.decimals(allow_nan=False, allow_infinity=False)).filter(
    lambda number: (number == 0 or -129 < Decimal(number).adjusted() < 126) and not ends_in_zeros(number)
)
scalars = st.text() | st.binary() | numbers | st.booleans() | st.none()
sets = st.sets(st.text(), min_size=1) | st.sets(st.binary(), min_size=1) | st.sets(numbers, min_size=1)
values = st.recursive(
    scalars | sets, lambda held: st.lists(held, max_size=4) | st.dictionaries(st.text(), held, max_size=4)
)


def outcome(serialize: Any, value: object) -> Any:
    """What it makes of the value, or that it refuses it."""
    try:
        return serialize(value)
    except ArithmeticError:
        return ArithmeticError


@given(values)
@example(10**38 - 1)
@example(-(10**38) - 1)
@example(Decimal("1E+125"))
@example(Decimal("1E-128"))
@example(Decimal("-0"))
@example([{"a": {1, Decimal("1.5")}}, True, b""])
def test_a_value_is_typed_as_boto3_types_it(value: object) -> None:
    """Sets, numbers at the limits, and refusals included."""
    plain = plain_copy(value, "value")

    assert outcome(attribute_value, plain) == outcome(TypeSerializer().serialize, plain)


@pytest.mark.parametrize("number", ["1E+126", "-1E+126", "1E-131"])
def test_a_number_beyond_dynamodbs_range_is_refused(number: str) -> None:
    """boto3 would send it."""
    with pytest.raises(ArithmeticError):
        attribute_value(Decimal(number))

    assert attribute_value(Decimal("9.99E+125")) == {"N": "9.99E+125"}
    assert attribute_value(Decimal("1E-130")) == {"N": "1E-130"}


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (10**38, "1E+38"),
        (-(10**40), "-1E+40"),
        (10**125, "1E+125"),
        (Decimal("1.0e40"), "1E+40"),
        (15 * 10**40, "1.5E+41"),
    ],
)
def test_zeros_at_a_number_s_end_are_no_digits(number: int | Decimal, text: str) -> None:
    """Written out, 1E+40 has 41 digits."""
    for written in (number, Decimal(f"{Decimal(number):f}")):
        sent = outcome(attribute_value, written)
        assert isinstance(sent, dict)
        assert Decimal(sent["N"]) == Decimal(text)


def test_only_values_are_typed() -> None:
    """Names and expressions are sent as they are."""
    tx = Transaction()
    arguments: Any = {
        "TableName": "t",
        "UpdateExpression": "SET #a = :a",
        "ConditionExpression": "#a < :a",
        "ExpressionAttributeNames": {"#a": "a"},
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    tx.update(Key={"id": "k"}, ExpressionAttributeValues={":a": 1}, **arguments)

    (sent,) = transact_items(tx.actions)

    values = {"Key": {"id": {"S": "k"}}, "ExpressionAttributeValues": {":a": {"N": "1"}}}
    assert sent == {"Update": arguments | values}
