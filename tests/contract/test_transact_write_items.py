"""What TransactWriteItems answers, asked without the library: the packing of commits rests on it.

Every server must agree, the benchmark's endpoint too: what it measures of a packed transaction, cancelled ones
included, means something only if it cancels as DynamoDB does.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.engines.engine import DynamoDB

MOST = 100


def put(engine: DynamoDB, account: str, **more: Any) -> dict[str, Any]:
    return {"Put": {"TableName": engine.accounts, "Item": {"account": {"S": account}, "n": {"N": "1"}}, **more}}


def first(engine: DynamoDB, account: str) -> dict[str, Any]:
    """A put that fails if the account is there, and then shows it."""
    condition = {"ConditionExpression": "attribute_not_exists(account)"}
    return put(engine, account, **condition, ReturnValuesOnConditionCheckFailure="ALL_OLD")


def credit(engine: DynamoDB, account: str) -> dict[str, Any]:
    """An update that fails unless the account is there."""
    update = {"UpdateExpression": "ADD n :n", "ExpressionAttributeValues": {":n": {"N": "1"}}}
    key = {"TableName": engine.accounts, "Key": {"account": {"S": account}}}
    return {"Update": key | update | {"ConditionExpression": "attribute_exists(account)"}}


def check(engine: DynamoDB, account: str) -> dict[str, Any]:
    """A check that fails unless the account is there."""
    key = {"TableName": engine.accounts, "Key": {"account": {"S": account}}}
    return {"ConditionCheck": key | {"ConditionExpression": "attribute_exists(account)"}}


def transact(engine: DynamoDB, actions: Sequence[Any], **more: Any) -> None:
    engine.client.transact_write_items(TransactItems=actions, **more)


def refused(engine: DynamoDB, actions: Sequence[Any], **more: Any) -> dict[str, Any]:
    """The error that a transaction gets."""
    with pytest.raises(ClientError) as raised:
        transact(engine, actions, **more)
    return dict(raised.value.response)


def test_a_transaction_takes_a_hundred_actions_and_no_more(wired_engine: DynamoDB) -> None:
    """101 are refused whole."""
    actions = [put(wired_engine, str(number)) for number in range(MOST + 1)]

    assert refused(wired_engine, actions)["Error"]["Code"] == "ValidationException"
    assert wired_engine.account("0") is None

    transact(wired_engine, actions[:MOST])
    assert wired_engine.account(str(MOST - 1)) is not None


@pytest.mark.parametrize("share", [1, 3, 10])
def test_all_failed_conditions_are_named_at_their_places(wired_engine: DynamoDB, share: int) -> None:
    """In one answer, an entry an action, "None" for the innocent; nothing takes effect."""
    failing = set(range(0, 50, 50 // share)[:share])
    actions = [
        check(wired_engine, f"{n}")
        if n in failing and n % 2
        else (credit if n in failing else put)(wired_engine, f"{n}")
        for n in range(50)
    ]

    response = refused(wired_engine, actions)

    assert response["Error"]["Code"] == "TransactionCanceledException"
    codes = [reason["Code"] for reason in response["CancellationReasons"]]
    assert codes == ["ConditionalCheckFailed" if n in failing else "None" for n in range(50)]
    assert all(wired_engine.account(f"{n}") is None for n in range(50))


def test_a_reason_shows_what_was_there_if_it_was_asked_to(wired_engine: DynamoDB) -> None:
    """The item beside the failed condition that asks for ALL_OLD, and beside no other."""
    transact(wired_engine, [put(wired_engine, "alice"), put(wired_engine, "bob")])
    silent = {"ConditionExpression": "attribute_not_exists(account)"}

    response = refused(wired_engine, [first(wired_engine, "alice"), put(wired_engine, "bob", **silent)])

    items = [reason.get("Item") for reason in response["CancellationReasons"]]
    assert items == [{"account": {"S": "alice"}, "n": {"N": "1"}}, None]


def test_an_item_twice_is_refused_and_nobody_is_named(wired_engine: DynamoDB) -> None:
    response = refused(wired_engine, [put(wired_engine, "alice"), check(wired_engine, "alice")])

    assert response["Error"]["Code"] == "ValidationException"
    assert not response.get("CancellationReasons")
    assert wired_engine.account("alice") is None


def test_bad_syntax_is_refused_and_nobody_is_named(wired_engine: DynamoDB) -> None:
    bad = put(wired_engine, "bob", ConditionExpression="attribute_not_exists(")

    response = refused(wired_engine, [put(wired_engine, "alice"), bad])

    assert response["Error"]["Code"] == "ValidationException"
    assert not response.get("CancellationReasons")
    assert wired_engine.account("alice") is None


def test_a_token_makes_one_transaction_of_two_requests(wired_engine: DynamoDB) -> None:
    """The same content is not applied again; other content is refused."""
    token = secrets.token_hex(18)
    transact(wired_engine, [put(wired_engine, "alice")])

    for _ in range(2):
        transact(wired_engine, [credit(wired_engine, "alice")], ClientRequestToken=token)

    assert wired_engine.account("alice") == {"account": "alice", "n": 2}
    other = refused(wired_engine, [put(wired_engine, "bob")], ClientRequestToken=token)
    assert other["Error"]["Code"] == "IdempotentParameterMismatchException"


def test_a_token_is_free_again_after_a_cancellation(wired_engine: DynamoDB) -> None:
    """The same request under the same token is judged anew."""
    token, actions = secrets.token_hex(18), [credit(wired_engine, "alice")]
    assert refused(wired_engine, actions, ClientRequestToken=token)["CancellationReasons"]
    transact(wired_engine, [put(wired_engine, "alice")])

    transact(wired_engine, actions, ClientRequestToken=token)

    assert wired_engine.account("alice") == {"account": "alice", "n": 2}


def test_a_token_has_at_most_36_characters(wired_engine: DynamoDB) -> None:
    response = refused(wired_engine, [put(wired_engine, "alice")], ClientRequestToken="x" * 37)

    assert response["Error"]["Code"] == "ValidationException"
    assert wired_engine.account("alice") is None


def test_over_4_mb_is_refused(wired_engine: DynamoDB) -> None:
    """Eleven items of 390 KB are."""
    actions = [put(wired_engine, f"{n}") for n in range(11)]
    for action in actions:
        action["Put"]["Item"]["data"] = {"S": "x" * 390 * 1024}

    assert refused(wired_engine, actions)["Error"]["Code"] == "ValidationException"
    assert wired_engine.account("0") is None

    transact(wired_engine, actions[:10])
    assert wired_engine.account("9") is not None
