"""What a handler may ask to be committed with its completion."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from types import MappingProxyType
from typing import Any

import pytest
from boto3.dynamodb.types import Binary
from pydantic import BaseModel

from idempotent_receiver import PermanentError, Transaction
from idempotent_receiver.errors import failure_of
from idempotent_receiver.transaction.action import Action, ConditionFailed
from idempotent_receiver.transaction.transaction import MOST_ACTIONS
from idempotent_receiver.transaction.values import MOST_LEVELS

T: dict[str, Any] = {"TableName": "T"}
GOOD: dict[str, Any] = {
    **T,
    "Key": {"id": "1"},
    "UpdateExpression": "SET #a = :a",
    "ConditionExpression": "attribute_exists(id)",
    "ExpressionAttributeNames": {"#a": "a"},
    "ExpressionAttributeValues": {":a": 1},
    "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
}
"""All that an update takes."""

NAMES, VALUES, RETURNED = "ExpressionAttributeNames", "ExpressionAttributeValues", "ReturnValuesOnConditionCheckFailure"
DELETE: dict[str, Any] = {**T, "Key": {"id": "3"}}
ACTIONS: dict[str, Action] = {
    "put": Action("Put", {**T, "Item": {"id": "1"}, "ConditionExpression": "attribute_not_exists(id)"}),
    "update": Action("Update", GOOD),
    "delete": Action("Delete", DELETE),
    "check": Action("ConditionCheck", {**DELETE, "ConditionExpression": "attribute_exists(id)"}),
}
"""An action for each method."""


def test_each_method_asks_for_one_action_in_order() -> None:
    """With the arguments of TransactWriteItems, unchanged. What was taken before does not grow."""
    tx, error = Transaction(), PermanentError("overdrawn")
    taken = tx.actions
    for method, action in ACTIONS.items():
        getattr(tx, method)(**action.arguments, otherwise=error)
    assert (taken, tx.actions) == ((), tuple(replace(action, otherwise=error) for action in ACTIONS.values()))


@pytest.mark.parametrize("method", ACTIONS)
def test_a_missing_argument_is_refused_at_once(method: str) -> None:
    """At the call, where the handler's author sees it."""
    needed = {"put": "Item", "update": "Key, UpdateExpression", "delete": "Key", "check": "Key, ConditionExpression"}
    for missing, given in ((f"TableName, {needed[method]}", {}), (needed[method], {"TableName": "T"})):
        with pytest.raises(TypeError, match=f"needs {missing}, as TransactWriteItems does"):
            getattr(Transaction(), method)(**given)


def test_the_hundredth_action_is_refused() -> None:
    """DynamoDB allows a hundred, and one is the record's own."""
    tx = Transaction()
    for number in range(MOST_ACTIONS):
        tx.delete(**T, Key={"id": str(number)})
    with pytest.raises(ValueError, match="at most 99 actions"):
        tx.delete(**T, Key={"id": "one more"})
    assert len(tx.actions) == 99


def test_a_failed_condition_is_what_the_handler_says_or_a_retryable_failure() -> None:
    """It names action and table, also where texts are not kept, and none of its values."""
    tx, said = Transaction(), PermanentError("overdrawn")
    for otherwise in (said, None):
        tx.delete(**T, Key={"id": "secret"}, otherwise=otherwise)
    assert tx.actions[0].error(1) is said
    failed = tx.actions[1].error(2)
    assert isinstance(failed, ConditionFailed)
    assert "action 2 (Delete on T)" in str(failed) == failure_of(failed).reason
    assert "secret" not in str(failed)


@pytest.mark.parametrize("otherwise", [PermanentError, "overdrawn", 7])
def test_otherwise_must_be_an_error(otherwise: Any) -> None:
    """A class or a string would silently be retried for ever."""
    with pytest.raises(TypeError, match=r"`otherwise` must be an error, like .*; it is an? (type|str|int)$"):
        Transaction().delete(**DELETE, otherwise=otherwise)


# What is given is copied at the call.


def put(**item: Any) -> Any:
    """The item as a transaction keeps it."""
    tx = Transaction()
    tx.put(**T, Item=item)
    return tx.actions[0].arguments["Item"]


def test_a_dict_that_is_filled_anew_for_each_action_is_as_many_values() -> None:
    """Changing a dict after the call has no effect on the keys, items, names or values of the action."""
    tx, key, names, values, item = Transaction(), {"id": ""}, {"#a": ""}, {":a": 0}, {"id": "", "lines": [{"n": 0}]}
    for number, name in enumerate("xy"):
        key["id"], names["#a"], values[":a"], item["id"] = name, name, number, name
        item["lines"][0]["n"] = number  # type: ignore[index]  # a list of dicts
        tx.update(**T, Key=key, UpdateExpression="SET #a = :a", **{NAMES: names, VALUES: values})
        tx.put(TableName="U", Item=item)

    assert [action.arguments for action in tx.actions] == [
        arguments
        for number, name in enumerate("xy")
        for arguments in (
            {**T, "Key": {"id": name}, "UpdateExpression": "SET #a = :a", NAMES: {"#a": name}, VALUES: {":a": number}},
            {"TableName": "U", "Item": {"id": name, "lines": [{"n": number}]}},
        )
    ]


Colour, Size = StrEnum("Colour", {"RED": "red"}), IntEnum("Size", {"LARGE": 3})
Shade = Enum("Shade", {"DARK": "dark"}, type=str)  # what people still write: its str() is not its value


class Money(Decimal):
    """A user's subclass."""


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        *((plain, plain) for plain in ("a", 1, True, None, Decimal("1.50"), b"raw")),
        *((raw, b"raw") for raw in (bytearray(b"raw"), Binary(b"raw"))),
        ((1, (2,)), [1, [2]]),
        (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (MappingProxyType({"a": [1]}), {"a": [1]}),
        *((strs, {"a", "b"}) for strs in (frozenset({"a", "b"}), {"a": 1, "b": 2}.keys())),
        ({1, Decimal("2.5")}, {1, Decimal("2.5")}),
        ({b"raw", Binary(b"more")}, {b"raw", b"more"}),
        ({"a": {"b": [{"c"}]}}, {"a": {"b": [{"c"}]}}),
        *zip((Colour.RED, Shade.DARK, Size.LARGE, Money("7")), ("red", "dark", 3, Decimal(7)), strict=True),
    ],
    ids=lambda value: f"{type(value).__name__}",
)
def test_every_plain_value_is_kept_as_the_plain_value_that_it_is(given: object, kept: object) -> None:
    """And of exactly that type, so that the store in memory returns what DynamoDB would."""
    held = put(id="1", value=given)["value"]
    assert (held, types_in(held)) == (kept, types_in(kept))


def types_in(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: types_in(held) for name, held in value.items()}
    if isinstance(value, list):
        return [types_in(held) for held in value]
    return sorted(type(held).__name__ for held in value) if isinstance(value, set) else type(value)


class Other:
    """A user's object that shows a secret when it is printed."""

    def __repr__(self) -> str:
        return "4111-1111"


class Order(BaseModel):
    id: str


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (0.5, r" is a float: write Decimal\(str\(x\)\)"),
        ([{"price": 0.5}], r"\[0\]\.price is a float"),
        ({"a": (1, [0.5])}, r"\.a\[1\]\[0\] is a float"),
        (Other(), " is an Other: plain values are "),
        (datetime(2026, 11, 28, tzinfo=UTC), r" is a datetime: write x\.isoformat\(\)$"),
        (date(2026, 11, 28), r" is a date: write x\.isoformat\(\)$"),
        (Order(id="4111-1111"), r" is an Order: write x\.model_dump\(\)$"),
        ({0.5}, r" holds a float: write Decimal\(str\(x\)\)$"),
        *((value, f" is a {type(value).__name__}") for value in (memoryview(b"raw"), iter([1]), complex(1))),
        *((Decimal(text), " is a Decimal that is not finite") for text in ("NaN", "sNaN", "-Infinity")),
        ({1: "a"}, " has a name that is an int: names are str"),
        ({"a": {None: 1}}, r"\.a has a name that is None"),
        (set(), " is an empty set, which DynamoDB cannot store: leave the attribute out"),
        ({"a", 1}, " mixes numbers and str"),
        ({True}, " holds a bool: a set holds only "),
        *(({held}, f" holds a {type(held).__name__}") for held in (0.5, ("a",))),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_a_value_that_is_not_plain_is_refused_at_the_call_with_its_place(value: object, told: str) -> None:
    """With the action, the argument and the path, but never the value."""
    tx = Transaction()
    with pytest.raises(TypeError, match=rf"a transaction's Put: Item\.value{told}") as caught:
        tx.put(**T, Item={"id": "1", "value": value})
    assert "4111" not in str(caught.value)
    assert tx.actions == ()


def test_a_wrong_argument_is_placed_in_the_handlers_own_line() -> None:
    """Not in the library's, where it was noticed."""
    with pytest.raises(TypeError) as caught:
        put(id="1", value=[0.5])
    assert (failure_of(caught.value).at or "").startswith(f"{__name__}.put:")


class Spelt(str):
    """A name that counts how often it was formatted."""

    __slots__ = ("times",)
    times: int

    def __format__(self, spec: str) -> str:
        self.times += 1
        return str.__str__(self)


def test_a_values_place_is_formatted_only_if_it_is_refused() -> None:
    """Otherwise a long name over a long list, in a stored body, would cost their product."""
    name = Spelt("n" * 1000)
    name.times = 0

    put(id="1", value={name: [{"a": 1}] * 1000})
    assert name.times == 0
    with pytest.raises(TypeError, match=r"Item\.value\.n+\[1\]\.a is a float"):
        put(id="1", value={name: [{"a": 1}, {"a": 0.5}]})
    assert name.times == 1


def nested(levels: int, innermost: object = "x") -> Any:
    value = innermost
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


CYCLE: list[Any] = []
CYCLE.append({"a": CYCLE})


@pytest.mark.parametrize("value", [nested(MOST_LEVELS), nested(100_000), CYCLE], ids=["33", "many", "cycle"])
def test_what_nests_too_deep_is_refused_at_the_call(value: object) -> None:
    """DynamoDB allows 32 levels, the first of which is the attribute's; a value that contains itself has no end."""
    assert put(id="1", value=nested(MOST_LEVELS - 1))["value"] == nested(MOST_LEVELS - 1)
    with pytest.raises(ValueError, match=r"a transaction's Put: Item\.value.* nests more than 32 levels") as caught:
        put(id="1", value=value)
    assert len(str(caught.value)) < 500


# Every argument is what TransactWriteItems takes, at the call.


def ask(method: str = "update", **arguments: Any) -> None:
    getattr(Transaction(), method)(**{**ACTIONS[method].arguments, **arguments})


@pytest.mark.parametrize("argument", GOOD)
@pytest.mark.parametrize("given", [None, 7, ["#a"], b"T", Other()], ids=lambda given: type(given).__name__)
def test_an_argument_of_another_type_is_refused_at_the_call(argument: str, given: object) -> None:
    """None comes from a variable that is not set; it does not mean no table or no condition."""
    kind = "None" if given is None else type(given).__name__
    with pytest.raises(TypeError, match=rf"a transaction's Update: {argument} (is|takes) .*{kind}") as caught:
        ask(**{argument: given})
    assert "4111" not in str(caught.value)


@pytest.mark.parametrize(
    ("method", "given", "error", "told"),
    [
        *(("update", {name: type(given)()}, ValueError, f"Update: {name} takes ") for name, given in GOOD.items()),
        ("update", {RETURNED: "ALL_NEW"}, ValueError, f"Update: {RETURNED} takes "),
        ("update", {NAMES: {"#a": 1}}, TypeError, rf"Update: {NAMES}\.#a takes a str; it is an int"),
        ("update", {VALUES: {":a": 0.5}}, TypeError, rf"Update: {VALUES}\.:a is a float"),
        ("put", {"Item": {}}, ValueError, r"Put: Item takes a non-empty mapping$"),
        ("put", {"ConditionExpresion": "a = b", "Key": {}}, TypeError, "Put takes no ConditionExpresion, Key: see"),
    ],
)
def test_an_argument_that_is_empty_invalid_or_unknown_is_refused_at_the_call(
    method: str, given: dict[str, Any], error: type[Exception], told: str
) -> None:
    """An empty condition checks nothing, and an empty name comes from an empty variable. A misspelt condition would
    otherwise be sent as no condition at all.
    """
    with pytest.raises(error, match=rf"a transaction's {told}"):
        ask(method, **given)


@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("update", {}),
        ("update", {RETURNED: "NONE"}),
        *(("delete", {"Key": {"id": part}}) for part in ("1", 0, Decimal(7), b"1", Binary(b"1"), Colour.RED)),
    ],
    ids=repr,
)
def test_all_that_an_action_takes_is_taken(method: str, given: dict[str, Any]) -> None:
    """A key is a str, a number or bytes."""
    ask(method, **given)


@pytest.mark.parametrize("part", [None, True, {"S": "1"}, ["1"], {"1"}, "", b""], ids=repr)
@pytest.mark.parametrize("method", ["update", "delete", "check"])
def test_a_value_that_cannot_be_a_key_is_refused_at_the_call(method: str, part: object) -> None:
    """None comes from a variable that is not set; {"S": ...} is the form of boto3's client."""
    tx, error = Transaction(), ValueError if part in ("", b"") else TypeError
    with pytest.raises(error, match=r"Key\.id takes a non-empty plain str, number or bytes"):
        getattr(tx, method)(**{**ACTIONS[method].arguments, "Key": {"id": part}})
    assert tx.actions == ()


# Once the handler has returned.


@pytest.mark.parametrize("method", ACTIONS)
@pytest.mark.parametrize(("why", "told"), [((), "the handler has already returned"), (("no record",), "no record$")])
def test_a_sealed_transaction_takes_nothing_more_and_says_why(method: str, why: tuple[str, ...], told: str) -> None:
    """Each call raises, and what was committed does not change."""
    tx, action = Transaction(), ACTIONS[method]
    tx.delete(**DELETE)
    sealed = tx.seal(*why)
    with pytest.raises(RuntimeError, match=rf"^a transaction's {action.kind}: {told}"):
        getattr(tx, method)(**action.arguments)
    assert tx.seal() == tx.actions == sealed == (ACTIONS["delete"],)


def test_an_action_that_is_under_way_when_its_transaction_is_sealed_is_refused() -> None:
    """Either it is committed or its call raises."""
    tx = Transaction()

    class Late(dict[str, Any]):
        def items(self) -> Any:
            assert tx.seal() == ()
            return super().items()

    with pytest.raises(RuntimeError, match="the handler has already returned"):
        tx.put(**T, Item=Late(id="1"))
    assert tx.actions == ()
