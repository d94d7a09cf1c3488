"""Values typed as boto3's client types them are refused at the call, before they are stored as maps."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

from idempotent_receiver import Transaction

if TYPE_CHECKING:
    from collections.abc import Callable

SECRET = "4111-1111"
TYPED: list[dict[str, Any]] = [
    {"S": SECRET},
    {"S": ""},
    *({"N": number} for number in ("1", "-1.50", "1E+40")),
    {"B": b"raw"},
    *({"BOOL": flag} for flag in (True, False)),
    {"NULL": True},
    *({"M": held} for held in ({}, {"a": {"S": "x"}}, {"a": {"M": {"b": {"N": "1"}}}})),
    *({"L": held} for held in ([], [{"S": "x"}, {"L": [{"NULL": True}]}], ({"S": "x"},))),
    {"SS": ["a", "b"]},
    {"NS": ["1", "2.5"]},
    {"BS": [b"a"]},
]
MAPS: list[Any] = [
    "S",
    {},
    {"S": 5},
    {"S": None},
    {"S": "small", "M": "medium"},
    {"s": "x"},
    {"N": 5},
    *({"N": text} for text in ("five", "NaN", "Infinity", "")),
    {"B": "raw"},
    {"BOOL": "true"},
    {"BOOL": 1},
    {"NULL": False},
    {"M": {"a": "x"}},
    {"M": [{"S": "x"}]},
    {"L": ["x"]},
    {"L": {"S": "x"}},
    {"SS": []},
    {"SS": ["a", 1]},
    {"NS": ["five"]},
    {"BS": ["raw"]},
    {"X": "x"},
    {"name": {"S": "x"}},
    MappingProxyType({"S": "x"}),
]


def put(tx: Transaction, **item: Any) -> None:
    tx.put(TableName="jobs", Item=item)


def update(tx: Transaction, **values: Any) -> None:
    given = {f":{name}": value for name, value in values.items()}
    tx.update(TableName="jobs", Key={"id": "j1"}, UpdateExpression="SET a = :a", ExpressionAttributeValues=given)


def kept(action: Callable[..., None], **given: Any) -> Any:
    """What an action keeps of these values, or the error."""
    tx = Transaction()
    try:
        action(tx, **given)
    except TypeError as error:
        return error
    arguments = tx.actions[0].arguments
    return arguments.get("Item") or arguments["ExpressionAttributeValues"]


@pytest.mark.parametrize("value", TYPED, ids=repr)
@pytest.mark.parametrize("key", [{"id": "j1"}, {"id": "j1", "line": 2}, {}, {"id": {"S": "j1"}}], ids=repr)
def test_an_item_whose_values_are_typed_is_refused(value: dict[str, Any], key: dict[str, Any]) -> None:
    """By the attribute's name, with the plain form and the way for a true map, and without the value."""
    with pytest.raises(TypeError, match=r"^a transaction's Put: Item\.\w+ is \{'\w+': \.\.\.\}, as boto3's") as caught:
        put(Transaction(), **key, status=value)
    assert "write the plain value, 'x' for {'S': 'x'}; for a map" in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("value", TYPED, ids=repr)
def test_values_of_an_expression_that_are_all_typed_are_refused(value: dict[str, Any]) -> None:
    with pytest.raises(
        TypeError, match=r"^a transaction's Update: ExpressionAttributeValues\.:a is \{'\w+': \.\.\.\}, as"
    ):
        update(Transaction(), a=value, b={"N": "1"})


@pytest.mark.parametrize("value", MAPS, ids=repr)
def test_what_is_no_such_pair_is_kept(value: Any) -> None:
    """Also a map that is wrapped, because it looks like one."""
    plain = dict(value) if isinstance(value, MappingProxyType) else value
    assert kept(put, id="j1", status=value) == {"id": "j1", "status": plain}
    assert kept(update, a=value, b=value) == {":a": plain, ":b": plain}


def test_a_map_among_plain_values_is_kept() -> None:
    """Three plain values are more than a key; one value of an expression alone proves nothing."""
    item = {"id": "j1", "line": 1, "n": 2, "map": {"S": "x"}, "more": {"N": "1"}}
    assert kept(put, **item) == item
    assert kept(update, a={"S": "x"}) == {":a": {"S": "x"}}
    assert kept(update, a={"S": "x"}, b=1) == {":a": {"S": "x"}, ":b": 1}


class Order(BaseModel):
    id: str


def test_an_item_or_a_key_of_another_type_has_its_remedy() -> None:
    """A model's item is its dump; a float in a key is a Decimal."""
    tx, item, key = Transaction(), Order(id="a"), {"id": 0.5}
    with pytest.raises(TypeError, match=r"Item takes a non-empty mapping; it is an Order: write x\.model_dump\(\)$"):
        tx.put(TableName="orders", Item=item)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"Key\.id is a float: write Decimal\(str\(x\)\)$"):
        tx.delete(TableName="orders", Key=key)
    with pytest.raises(TypeError, match=r"TableName takes a non-empty str; it is a float$"):
        tx.delete(TableName=0.5, Key={"id": "a"})
