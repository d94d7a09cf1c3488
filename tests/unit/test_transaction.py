"""What a handler may ask to be committed with its completion."""

from __future__ import annotations

from typing import Any

import pytest

from idempotent_receiver import PermanentError, Transaction
from idempotent_receiver.transaction import MOST_ACTIONS, ConditionFailed


def test_each_method_asks_for_one_action_in_order() -> None:
    """With the arguments of TransactWriteItems, as they are."""
    tx = Transaction()
    tx.put(TableName="T", Item={"id": "1"}, ConditionExpression="attribute_not_exists(id)")
    tx.update(TableName="T", Key={"id": "2"}, UpdateExpression="SET a = :a", ExpressionAttributeValues={":a": 1})
    tx.delete(TableName="T", Key={"id": "3"})
    tx.check(TableName="T", Key={"id": "4"}, ConditionExpression="attribute_exists(id)")

    assert [action.kind for action in tx.actions] == ["Put", "Update", "Delete", "ConditionCheck"]
    assert tx.actions[0].arguments["Item"] == {"id": "1"}


@pytest.mark.parametrize(
    ("method", "arguments", "missing"),
    [
        ("put", {"TableName": "T"}, "Item"),
        ("put", {"Item": {}}, "TableName"),
        ("update", {"TableName": "T", "Key": {}}, "UpdateExpression"),
        ("delete", {"TableName": "T"}, "Key"),
        ("check", {"TableName": "T", "Key": {}}, "ConditionExpression"),
    ],
)
def test_what_an_action_needs_is_asked_for_at_once(method: str, arguments: dict[str, Any], missing: str) -> None:
    """Where the handler's author sees it."""
    with pytest.raises(TypeError, match=missing):
        getattr(Transaction(), method)(**arguments)


def test_the_hundredth_action_is_refused() -> None:
    """DynamoDB takes a hundred, and one is the record's own."""
    tx = Transaction()
    for number in range(MOST_ACTIONS):
        tx.delete(TableName="T", Key={"id": str(number)})

    with pytest.raises(ValueError, match="at most 99 actions"):
        tx.delete(TableName="T", Key={"id": "one more"})
    assert len(tx.actions) == 99


def test_a_failed_condition_is_what_the_handler_says_or_a_retryable_failure() -> None:
    """It names its table and nothing of its values."""
    said = PermanentError("overdrawn")
    tx = Transaction()
    tx.delete(TableName="T", Key={"id": "secret"}, otherwise=said)
    tx.delete(TableName="T", Key={"id": "secret"})

    assert tx.actions[0].error is said
    assert isinstance(tx.actions[1].error, ConditionFailed)
    assert str(tx.actions[1].error) == "Delete on T: its condition did not hold"


@pytest.mark.parametrize("otherwise", [PermanentError, "overdrawn", 7])
def test_otherwise_must_be_an_error(otherwise: Any) -> None:
    """A class or a text would silently be tried again for ever."""
    with pytest.raises(TypeError, match="otherwise"):
        Transaction().delete(TableName="T", Key={"id": "1"}, otherwise=otherwise)


def test_what_is_added_after_the_actions_were_taken_does_not_count() -> None:
    """A handler that has returned may still hold its transaction."""
    tx = Transaction()
    taken = tx.actions
    tx.delete(TableName="T", Key={"id": "1"})

    assert taken == ()


def test_an_argument_that_dynamodb_does_not_know_is_refused_at_once() -> None:
    """A misspelt condition would otherwise be sent as no condition at all."""
    with pytest.raises(TypeError, match="Put takes no ConditionExpresion"):
        Transaction().put(TableName="t", Item={"id": "1"}, ConditionExpresion="attribute_not_exists(id)")
