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
THERE, ABSENT = ({"ConditionExpression": f"attribute_{what}(account)"} for what in ("exists", "not_exists"))


class Table:
    """An engine's accounts, written in transactions."""

    def __init__(self, engine: DynamoDB) -> None:
        self.engine = engine

    def put(self, account: Any, size: int = 0, **more: Any) -> dict[str, Any]:
        item = {"account": {"S": str(account)}, "n": {"N": "1"}} | ({"data": {"S": "x" * size}} if size else {})
        return {"Put": {"TableName": self.engine.accounts, "Item": item, **more}}

    def credit(self, account: Any) -> dict[str, Any]:
        """It fails unless the account is there."""
        update = {"UpdateExpression": "ADD n :n", "ExpressionAttributeValues": {":n": {"N": "1"}}}
        return {"Update": self._at(account) | update | THERE}

    def check(self, account: Any) -> dict[str, Any]:
        """It fails unless the account is there."""
        return {"ConditionCheck": self._at(account) | THERE}

    def transact(self, *actions: Any, **more: Any) -> None:
        self.engine.client.transact_write_items(TransactItems=actions, **more)

    def refusal(self, *actions: Any, **more: Any) -> tuple[str, Sequence[Any]]:
        """The code of the error that a transaction gets, and its reasons."""
        with pytest.raises(ClientError) as raised:
            self.transact(*actions, **more)
        response: Any = raised.value.response
        return response["Error"]["Code"], response.get("CancellationReasons") or []

    def n(self, account: Any) -> int | None:
        found = self.engine.account(str(account))
        return None if found is None else int(found["n"])

    def _at(self, account: Any) -> dict[str, Any]:
        return {"TableName": self.engine.accounts, "Key": {"account": {"S": str(account)}}}


@pytest.fixture
def table(wired_engine: DynamoDB) -> Table:
    return Table(wired_engine)


@pytest.mark.parametrize(
    "actions",
    [
        lambda table: [table.put(number) for number in range(MOST + 1)],
        lambda table: [table.put(number, size=390 * 1024) for number in range(11)],
        lambda table: [table.put(0), table.check(0)],
        lambda table: [table.put(0), table.put(1, ConditionExpression="attribute_not_exists(")],
    ],
    ids=["101 actions", "over 4 MB", "an item twice", "bad syntax"],
)
def test_what_is_refused_whole_names_nobody(table: Table, actions: Any) -> None:
    assert table.refusal(*actions(table)) == ("ValidationException", [])
    assert table.n(0) is None


def test_a_transaction_takes_a_hundred_actions_or_nearly_4_mb(table: Table) -> None:
    for actions in ([table.put(n) for n in range(MOST)], [table.put(n, size=390 * 1024) for n in range(10)]):
        table.transact(*actions)
        assert table.n(len(actions) - 1) == 1


@pytest.mark.parametrize("share", [1, 3, 10])
def test_all_failed_conditions_are_named_at_their_places(table: Table, share: int) -> None:
    """In one answer, an entry an action, "None" for the innocent; nothing takes effect."""
    failing = set(range(0, 50, 50 // share)[:share])
    ways = (table.credit, table.check)
    actions = [ways[n % 2](n) if n in failing else table.put(n) for n in range(50)]

    code, reasons = table.refusal(*actions)

    assert code == "TransactionCanceledException"
    codes = [reason["Code"] for reason in reasons]
    assert codes == ["ConditionalCheckFailed" if n in failing else "None" for n in range(50)]
    assert all(table.n(n) is None for n in range(50))


def test_a_reason_shows_what_was_there_if_it_was_asked_to(table: Table) -> None:
    """The item beside the failed condition that asks for ALL_OLD, and beside no other."""
    table.transact(table.put("alice"), table.put("bob"))
    showing = table.put("alice", **ABSENT, ReturnValuesOnConditionCheckFailure="ALL_OLD")

    _, reasons = table.refusal(showing, table.put("bob", **ABSENT))

    assert [reason.get("Item") for reason in reasons] == [{"account": {"S": "alice"}, "n": {"N": "1"}}, None]


def test_a_token_makes_one_transaction_of_two_requests(table: Table) -> None:
    """The same content is not applied again, other content is refused; it has at most 36 characters."""
    token = secrets.token_hex(18)
    table.transact(table.put("alice"))

    for _ in range(2):
        table.transact(table.credit("alice"), ClientRequestToken=token)

    assert table.n("alice") == 2
    assert table.refusal(table.put("bob"), ClientRequestToken=token)[0] == "IdempotentParameterMismatchException"
    assert table.refusal(table.put("bob"), ClientRequestToken="x" * 37)[0] == "ValidationException"
    assert table.n("bob") is None


def test_a_token_is_free_again_after_a_cancellation(table: Table) -> None:
    """The same request under the same token is judged anew."""
    token = secrets.token_hex(18)
    assert table.refusal(table.credit("alice"), ClientRequestToken=token)[1]
    table.transact(table.put("alice"))

    table.transact(table.credit("alice"), ClientRequestToken=token)

    assert table.n("alice") == 2
