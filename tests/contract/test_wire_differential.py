"""The model of DynamoDB and DynamoDB Local under the same random requests: the same answers, and the same tables.

The store's own texts and values, through real clients: what is applied, the code of each error, each statement's and
each action's, and what was there. Beside what the store sends there is what it must never send.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

from botocore.exceptions import ClientError
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from harness.dynamodb.in_process import answered, client_of
from harness.dynamodb.tables import Tables
from idempotent_receiver.dynamodb.statements import Replacement, Shape, insert, put_item, update, update_item
from tests.engines.engine import DynamoDB, create
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


LONG = {"ExpressionAttributeValues": {":a": {"S": "x" * 300_000}}}
ONE = {"ExpressionAttributeValues": {":a": {"N": "1"}}}
X = {"Key": {"account": {"S": "x"}}}
WRONG: dict[str, tuple[str, dict[str, Any]]] = {
    "twice": ("Delete", {}),
    "grown by a": ("Update", X | LONG | {"UpdateExpression": "SET a = :a"}),
    "grown by b": ("Update", X | LONG | {"UpdateExpression": "SET b = :a"}),
    "rekeyed": ("Update", X | LONG | {"UpdateExpression": "SET account = :a"}),
    "key of another type": ("Put", {"Item": {"account": {"N": "1"}}}),
    "no key": ("Put", {"Item": {"b": {"N": "1"}}}),
    "empty key": ("Delete", {"Key": {"account": {"S": ""}}}),
    "long key": ("Delete", {"Key": {"account": {"S": "k" * 2049}}}),
    "key of no type for keys": ("Put", {"Item": {"account": {"BOOL": True}}}),
    "another attribute in the key": ("Delete", {"Key": {"account": {"S": "x"}, "n": {"N": "1"}}}),
    "reserved word": ("Update", X | ONE | {"UpdateExpression": "SET status = :a"}),
    "operand of a failed update": (
        "Update",
        X | ONE | {"UpdateExpression": "SET a = list_append(a, :a)", "ConditionExpression": "a = :a"},
    ),
    "no table": ("Put", {}),
    "undefined": ("Put", {"ConditionExpression": "a = :undefined"}),
    "operand": ("Update", X | ONE | {"UpdateExpression": "SET missing = missing + :a"}),
}
"""What a transaction must never hold: the action's kind, and what is wrong with it."""
faulty = st.sampled_from(list(WRONG))


class Twins(RuleBasedStateMachine):
    """The two engines, with the same requests to both."""

    def __init__(self, real: DynamoDBClient) -> None:
        super().__init__()
        self.local = DynamoDB(real)
        self.model = client_of(partial(answered, Tables()))
        create(self.model, self.local.place)
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
        kind, wrong = WRONG[fault]
        usual = {"Put": {"Item": {"account": {"S": "x"}}}}.get(kind, {"Key": {"account": {"S": taken}}})
        table = self.accounts + ("-missing" if fault == "no table" else "")
        return {kind: {"TableName": table, **usual, **wrong}}


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
    failed = {"Code": "ConditionalCheckFailed", "Item": {"id": {"S": "k"}}}
    answers: list[Any] = [{"Responses": [{"Error": one}]} for one in ({"Code": "None"}, failed)]
    answers += [{}, {"Responses": {"t": [{"id": {"S": "k"}}]}}, ClientError({"Error": {"Code": "Y"}}, "x")]
    reasons = ([], [{"Code": "None"}], [{"Code": "None"}] * 2, [failed])
    answers += [ClientError({"Error": {"Code": "X"}, "CancellationReasons": some}, "x") for some in reasons]
    seen = [told(Mock(side_effect=[answer])) for answer in answers]
    assert all(one != other for at, one in enumerate(seen) for other in seen[:at])
