"""The model of DynamoDB and DynamoDB Local under the same random requests: the same answers, and the same tables.

The store's own texts and values, through real clients: what is applied, the code of each error, each statement's and
each action's, and what was there. Beside what the store sends there is what it must never send.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from idempotent_receiver.dynamodb.statements import Replacement, Shape, insert, put_item, update, update_item
from local.dynamodb.in_process import answered, client_of
from local.dynamodb.tables import Tables
from tests.engines.engine import DynamoDB
from tests.engines.sample_records import version

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_dynamodb import DynamoDBClient

EXAMPLES = settings.default.max_examples // 8  # type: ignore[union-attr]  # there is one
STEPS = 25

ids = st.integers(0, 3).map(str)
bad_ids = st.sampled_from(["", "k" * 2049])
values = st.fixed_dictionaries(
    {"version": st.sampled_from(["v", "w"])},
    optional={
        "attempts": st.integers(0, 2),
        "owner": st.just("größe"),
        "data": st.sampled_from([0, 409_000]).map(lambda size: "x" * size),
    },
)
standing = st.dictionaries(st.sampled_from(["version", "owner"]), st.sampled_from(["v", "größe"]), max_size=2)
names = st.lists(st.sampled_from(["owner", "data", "error"]), max_size=2, unique=True).map(tuple)


@st.composite
def replacements(draw: st.DrawFn, ids: st.SearchStrategy[str] = ids) -> Replacement:
    """What replaces a record that stands so, where some attributes must be missing."""
    put, expected = draw(values), draw(standing)
    removed = tuple(name for name in draw(names) if name not in put)
    missing = tuple(name for name in draw(names) if name not in expected)
    return Replacement(draw(ids), Shape(tuple(put), removed, tuple(expected), missing), put, expected)


def _id(one: Any) -> str:
    return str(one.id if isinstance(one, Replacement) else one["id"])


items = st.builds(lambda name, put: {"id": name, **put}, ids, values)
writes = st.lists(items | replacements(), min_size=1, max_size=4, unique_by=_id) | st.lists(
    items | replacements() | replacements(ids | bad_ids), min_size=1, max_size=4
)
kinds = st.sampled_from(["put", "first", "credit", "debit", "delete", "check", "text"])
acts = st.lists(st.tuples(kinds, ids), min_size=1, max_size=4, unique_by=lambda one: one[1])
faulty = st.sampled_from(
    [
        "twice",
        "grown by a",
        "grown by b",
        "rekeyed",
        "key of another type",
        "no key",
        "empty key",
        "no table",
        "undefined",
        "operand",
    ]
)


class Twins(RuleBasedStateMachine):
    """The two engines, with the same requests to both."""

    def __init__(self, real: DynamoDBClient) -> None:
        super().__init__()
        self.local = DynamoDB(real)
        self.model = client_of(partial(answered, Tables()))
        _create(self.model, self.local)
        self.records, self.accounts = self.local.records, self.local.accounts
        self.sent: list[tuple[str, list[Any]]] = []

    @rule(writes=writes)
    def batch(self, writes: list[Any]) -> None:
        statements = [
            update(self.records, one) if isinstance(one, Replacement) else insert(self.records, one) for one in writes
        ]
        self._agree("batch_execute_statement", Statements=statements)

    @rule(one=writes)
    def single(self, one: list[Any]) -> None:
        if isinstance(one[0], Replacement):
            self._agree("update_item", **update_item(self.records, one[0]))
        else:
            self._agree("put_item", **put_item(self.records, one[0]))

    @rule(ids=st.lists(ids | bad_ids, min_size=1, max_size=4))
    def read(self, ids: list[str]) -> None:
        keys = [{"id": {"S": id}} for id in ids]
        self._agree("batch_get_item", RequestItems={self.records: {"Keys": keys, "ConsistentRead": True}})

    @rule(id=ids)
    def vanish(self, id: str) -> None:
        self._agree("delete_item", TableName=self.records, Key={"id": {"S": id}})

    @rule(record=items | replacements(), acts=acts)
    def transact(self, record: Any, acts: list[tuple[str, str]]) -> None:
        own = (
            {"Update": update_item(self.records, record)}
            if isinstance(record, Replacement)
            else {"Put": put_item(self.records, record)}
        )
        self._transact(version(), [own, *(self._action(*act) for act in acts)])

    @rule(data=st.data())
    def send_again(self, data: st.DataObject) -> None:
        """With the same content under its token, or with that of another."""
        if self.sent:
            token, actions = data.draw(st.sampled_from(self.sent))
            self._transact(token, data.draw(st.sampled_from([actions, actions, self.sent[-1][1]])))

    @rule(acts=acts, fault=faulty)
    def transact_badly(self, acts: list[tuple[str, str]], fault: str) -> None:
        self._transact(version(), [*(self._action("put", id) for _, id in acts), self._wrong(fault, acts[0][1])])

    def teardown(self) -> None:
        """The tables are equal."""
        for table, key in ((self.records, "id"), (self.accounts, "account")):
            keys = [{key: {"S": name}} for name in "0123x"]
            self._agree("batch_get_item", RequestItems={table: {"Keys": keys, "ConsistentRead": True}})

    def _transact(self, token: str, actions: list[Any]) -> None:
        self.sent = [*self.sent[-5:], (token, actions)]
        self._agree("transact_write_items", TransactItems=actions, ClientRequestToken=token)

    def _agree(self, operation: str, **request: Any) -> None:
        ours, theirs = (told(partial(getattr(one, operation), **request)) for one in (self.model, self.local.client))
        assert ours == theirs, f"{operation}: the model says {ours}, DynamoDB Local {theirs}: {request}"

    def _action(self, kind: str, account: str) -> dict[str, Any]:
        place = {"TableName": self.accounts, "Key": {"account": {"S": account}}}
        one = {"ExpressionAttributeValues": {":one": {"N": "1"}}, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
        item = {"TableName": self.accounts, "Item": {"account": {"S": account}, "n": {"N": "3"}, "raw": {"B": b"\0"}}}
        match kind:
            case "put":
                return {"Put": item}
            case "first":
                return {"Put": item | {"ConditionExpression": "attribute_not_exists(account)"}}
            case "credit":
                return {"Update": place | one | {"UpdateExpression": "ADD balance :one"}}
            case "debit":
                expressions = {"UpdateExpression": "SET n = n - :one", "ConditionExpression": "n >= :one"}
                return {"Update": place | one | expressions}
            case "delete":
                return {"Delete": place}
            case "check":
                return {"ConditionCheck": place | one | {"ConditionExpression": "n = :one"}}
        text = {"ExpressionAttributeValues": {":text": {"S": "none"}}}
        return {"Update": place | text | {"UpdateExpression": "SET label = :text"}}

    def _wrong(self, fault: str, taken: str) -> dict[str, Any]:
        place = {"TableName": self.accounts, "Key": {"account": {"S": "x"}}}
        put = {"TableName": self.accounts, "Item": {"account": {"S": "x"}}}
        text = {"ExpressionAttributeValues": {":a": {"S": "x" * 300_000}}}
        match fault:
            case "twice":
                return {"Delete": {"TableName": self.accounts, "Key": {"account": {"S": taken}}}}
            case "grown by a" | "grown by b":
                return {"Update": place | text | {"UpdateExpression": f"SET {fault[-1]} = :a"}}
            case "rekeyed":
                return {"Update": place | text | {"UpdateExpression": "SET account = :a"}}
            case "key of another type":
                return {"Put": put | {"Item": {"account": {"N": "1"}}}}
            case "no key":
                return {"Put": put | {"Item": {"b": {"N": "1"}}}}
            case "empty key":
                return {"Delete": {"TableName": self.accounts, "Key": {"account": {"S": ""}}}}
            case "no table":
                return {"Put": put | {"TableName": f"{self.accounts}-missing"}}
            case "undefined":
                return {"Put": put | {"ConditionExpression": "a = :undefined"}}
        operand = {"ExpressionAttributeValues": {":a": {"N": "1"}}, "UpdateExpression": "SET missing = missing + :a"}
        return {"Update": place | operand}


def _create(client: DynamoDBClient, engine: DynamoDB) -> None:
    for table, key in ((engine.records, "id"), (engine.accounts, "account")):
        client.create_table(
            TableName=table,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"}],
            KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
        )


def told(ask: Callable[[], Any]) -> Any:
    """An answer without what is for people: texts, and the order of items that were read."""
    try:
        answer = ask()
    except ClientError as error:
        reasons = [_reason(reason) for reason in error.response.get("CancellationReasons", [])]
        return error.response["Error"]["Code"], reasons, error.response.get("Item")
    if isinstance(answer.get("Responses"), list):
        return [_reason(response.get("Error", {})) for response in answer["Responses"]]
    found = answer.get("Items") or answer.get("Responses") or {}
    return sorted(str(sorted(item.items())) for item in (found if isinstance(found, list) else _all(found)))


def _all(found: dict[str, list[Any]]) -> list[Any]:
    return [item for items in found.values() for item in items]


def _reason(reason: dict[str, Any]) -> tuple[str | None, Any]:
    return reason.get("Code"), reason.get("Item")


def test_the_model_and_dynamodb_local_are_twins(dynamodb_local_client: DynamoDBClient) -> None:
    """Whatever the requests and their order."""
    few = settings(max_examples=EXAMPLES, stateful_step_count=STEPS)
    machine: Any = partial(Twins, dynamodb_local_client)
    run_state_machine_as_test(machine, settings=few)


def test_twins_that_differ_are_told_apart() -> None:
    """Another code, another reason or another item is a difference."""

    def failing(code: str, *reasons: dict[str, Any]) -> Any:
        def ask() -> None:
            raise ClientError({"Error": {"Code": code}, "CancellationReasons": [*reasons]}, "x")  # type: ignore[typeddict-unknown-key]

        return told(ask)

    none, failed = {"Code": "None"}, {"Code": "ConditionalCheckFailed", "Item": {"id": {"S": "k"}}}
    answers = [failing("X"), failing("Y"), failing("X", none), failing("X", none, none), failing("X", none, failed)]
    answers += [told(partial(dict, Responses=[{"Error": one}])) for one in (none, failed)]
    answers += [told(dict), told(lambda: {"Responses": {"t": [{"id": {"S": "k"}}]}})]
    assert all(one != other for at, one in enumerate(answers) for other in answers[:at])
