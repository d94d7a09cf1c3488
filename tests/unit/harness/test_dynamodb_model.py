"""What the model of DynamoDB does and DynamoDB Local never: it conflicts, throttles, and forgets tokens."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from harness.dynamodb.in_process import answered, client_of
from harness.dynamodb.tables import Surroundings, Tables

if TYPE_CHECKING:
    from collections.abc import Callable

TOKEN = "t" * 36
KEY = {"TableName": "records", "Key": {"id": {"S": "a"}}}
ADD: dict[str, Any] = {"UpdateExpression": "ADD n :one", "ExpressionAttributeValues": {":one": {"N": "1"}}}
INSERT = {"Statement": "INSERT INTO \"records\" VALUE {'id': ?}", "Parameters": [{"S": "a"}]}


class Service(Surroundings):
    """A service with a clock, too little capacity for some ids, and something that happens between two items."""

    def __init__(self) -> None:
        self.now = 0.0
        self.throttled: set[str] = set()
        self.meanwhile: list[Callable[[], object]] = []
        tables = Tables(self)
        tables.execute("CreateTable", {"TableName": "records", "KeySchema": [{"AttributeName": "id"}]})
        self.client: Any = client_of(partial(answered, tables), Config(retries={"total_max_attempts": 1}))

    def seconds(self) -> float:
        return self.now

    def between(self) -> None:
        while self.meanwhile:
            self.meanwhile.pop()()

    def refusal(self, table: str, place: tuple[str, ...]) -> str | None:
        return "ThrottlingError" if place[0] in self.throttled else None

    def transact(self, *ids: str, token: str = TOKEN) -> object:
        updates = [{"Update": {"TableName": "records", "Key": {"id": {"S": id}}} | ADD} for id in ids]
        return self.client.transact_write_items(TransactItems=updates, ClientRequestToken=token)

    def count(self, id: str = "a") -> int:
        item = self.client.get_item(TableName="records", Key={"id": {"S": id}}).get("Item", {"n": {"N": "0"}})
        return int(item["n"]["N"])


def told(ask: Callable[[], object]) -> tuple[str, list[str]]:
    """The code of a refusal, and those of its reasons."""
    with pytest.raises(ClientError) as caught:
        ask()
    response: Any = caught.value.response
    return response["Error"]["Code"], [reason["Code"] for reason in response.get("CancellationReasons", ())]


@pytest.mark.parametrize(("after", "times"), [(599, 0), (601, 1)])
def test_a_token_makes_two_transactions_one_for_ten_minutes(after: float, times: int) -> None:
    """Even if the item was deleted in between; then it is forgotten."""
    service = Service()
    service.transact("a")
    service.client.delete_item(**KEY)
    service.now += after

    service.transact("a")

    assert service.count() == times


def test_whatever_meets_a_transaction_under_way_is_refused_but_for_a_read() -> None:
    """Each in its own words, and nothing of it takes effect; the same transaction is in progress."""
    service, told_there = Service(), []
    batch = partial(service.client.batch_execute_statement, Statements=[INSERT])

    def meanwhile() -> None:
        told_there.append(told(lambda: service.transact("b", "a", token="another")))
        told_there.append(told(lambda: service.transact("a")))
        told_there.append(told(partial(service.client.update_item, **KEY, **ADD)))
        told_there.append((batch()["Responses"][0]["Error"]["Code"], []))
        assert service.count() == 0

    service.meanwhile.append(meanwhile)
    service.transact("a")

    assert told_there == [
        ("TransactionCanceledException", ["None", "TransactionConflict"]),
        ("TransactionInProgressException", []),
        ("TransactionConflictException", []),
        ("TransactionConflict", []),
    ]
    assert (service.count("a"), service.count("b")) == (1, 0)
    service.transact("b", "a", token="another")
    assert (service.count("a"), service.count("b")) == (2, 1)


def test_what_is_throttled_is_told_item_by_item() -> None:
    """A key is left unprocessed, a statement and an action have the code. If nothing is served, the request fails."""
    service = Service()
    service.throttled = {"a"}

    def read(*ids: str) -> Any:
        keys = [{"id": {"S": id}} for id in ids]
        return service.client.batch_get_item(RequestItems={"records": {"Keys": keys, "ConsistentRead": True}})

    assert read("a", "b")["UnprocessedKeys"] == {"records": {"Keys": [KEY["Key"]], "ConsistentRead": True}}
    assert told(lambda: read("a")) == ("ProvisionedThroughputExceededException", [])
    other = INSERT | {"Parameters": [{"S": "b"}]}
    responses = service.client.batch_execute_statement(Statements=[INSERT, other])["Responses"]
    assert [one.get("Error", {}).get("Code") for one in responses] == ["ThrottlingError", None]
    assert told(lambda: service.transact("a", "b")) == ("TransactionCanceledException", ["ThrottlingError", "None"])
    assert told(partial(service.client.update_item, **KEY, **ADD)) == ("ThrottlingException", [])


def test_between_two_statements_others_are_served() -> None:
    """A batch is no transaction: what somebody else writes in between is there for the next statement."""
    service = Service()
    service.meanwhile.append(partial(service.client.update_item, **KEY, **ADD))
    first = INSERT | {"Parameters": [{"S": "b"}]}

    responses = service.client.batch_execute_statement(Statements=[first, INSERT])["Responses"]

    assert [one.get("Error", {}).get("Code") for one in responses] == [None, "DuplicateItem"]
