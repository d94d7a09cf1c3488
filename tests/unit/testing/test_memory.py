"""The store in memory: its transactions, beyond the contract that all stores share."""

from __future__ import annotations

import re
from typing import Any

import pytest

from idempotent_receiver import MemoryStore, Transaction
from idempotent_receiver.protocol.record import Change, Record, attributes
from idempotent_receiver.protocol.store import ActionFailed, Applied, Conflict, NotApplied
from idempotent_receiver.transaction.action import Action
from tests.many_operations import commit_one

HELD = Record(id="k", status="INPROGRESS", version="held")
DONE = Change(Record(id="k", status="COMPLETED", version="done"), HELD)


@pytest.fixture
def store() -> MemoryStore:
    """A store with a claim and two accounts."""
    made = MemoryStore(tables={"Accounts": "id", "Lines": ("order", "line")})
    made.items["k"] = dict(attributes(HELD))
    for id, balance in (("a", 10), ("b", 0)):
        made.tables["Accounts"].items[id,] = {"id": id, "balance": balance}
    return made


def balances(store: MemoryStore) -> dict[str, int]:
    return {item["id"]: item["balance"] for item in store.tables["Accounts"].items.values()}


def move(tx: Transaction, id: str, amount: int) -> None:
    tx.update(
        TableName="Accounts",
        Key={"id": id},
        UpdateExpression="SET balance = balance + :amount",
        ConditionExpression="balance >= :least",
        ExpressionAttributeValues={":amount": amount, ":least": max(0, -amount)},
    )


def test_what_was_read_is_the_readers_own(store: MemoryStore) -> None:
    store.tables["Accounts"].items["a",]["limits"] = {"day": [5]}
    found: Any = store.get("Accounts", {"id": "a"})
    found["limits"]["day"].append(7)

    assert store.get("Accounts", {"id": "a"}) == {"id": "a", "balance": 10, "limits": {"day": [5]}}


def test_a_claim_that_is_gone_goes_before_every_condition(store: MemoryStore) -> None:
    """Nothing is written."""
    other = Record(id="k", status="INPROGRESS", version="other")
    store.items["k"] = dict(attributes(other))
    tx = Transaction()
    move(tx, "a", -11)

    assert commit_one(store, DONE, tx.actions) == Conflict(other)
    assert balances(store) == {"a": 10, "b": 0}


def test_an_invalid_transaction_is_refused_before_anything_is_checked(store: MemoryStore) -> None:
    """As in DynamoDB, this comes before a claim that is gone or a condition that fails."""
    store.items["k"] = dict(attributes(Record(id="k", status="INPROGRESS", version="other")))
    tx = Transaction()
    move(tx, "a", -11)
    move(tx, "a", -11)

    assert isinstance(commit_one(store, DONE, tx.actions), NotApplied)
    store.items["k"] = dict(attributes(HELD))
    assert isinstance(commit_one(store, DONE, tx.actions), NotApplied)


def test_an_impossible_write_goes_before_a_failed_condition(store: MemoryStore) -> None:
    """DynamoDB reports both. The condition counts only if nothing else failed: the message is retried, whatever
    `otherwise` says.
    """
    tx = Transaction()
    tx.update(TableName="Accounts", Key={"id": "c"}, UpdateExpression="SET x = y")
    move(tx, "a", -11)

    answer = commit_one(store, DONE, tx.actions)

    assert isinstance(answer, NotApplied)
    assert (answer.retry, answer.own) == (False, True)


def test_a_read_that_has_changed_goes_before_an_impossible_write(store: MemoryStore) -> None:
    """With current data, the handler might not have requested that write."""
    tx = Transaction(store.get)  # type: ignore[arg-type]  # it answers
    tx.get(TableName="Accounts", Key={"id": "a"}, attributes=["balance"])
    tx.update(TableName="Accounts", Key={"id": "c"}, UpdateExpression="SET x = y")
    store.tables["Accounts"].items["a",]["balance"] = 11

    assert commit_one(store, DONE, tx.seal()) == ActionFailed(1, stale=True)


def wrong_actions() -> list[tuple[str, str, dict[str, Any]]]:
    return [
        ("two on one item", "put", {"TableName": "Accounts", "Item": {"id": "a"}}),
        ("no key", "put", {"TableName": "Lines", "Item": {"order": "o"}}),
        ("half a key", "delete", {"TableName": "Lines", "Key": {"order": "o"}}),
        ("bad syntax", "check", {"TableName": "Accounts", "Key": {"id": "b"}, "ConditionExpression": "balance >"}),
        ("its key", "update", {"TableName": "Accounts", "Key": {"id": "b"}, "UpdateExpression": "REMOVE id"}),
        ("undefined", "update", {"TableName": "Accounts", "Key": {"id": "b"}, "UpdateExpression": "SET x = :x"}),
    ]


@pytest.mark.parametrize(
    ("method", "arguments"), [(m, a) for _, m, a in wrong_actions()], ids=[w for w, *_ in wrong_actions()]
)
def test_an_invalid_transaction_is_refused_for_good_as_a_whole(
    store: MemoryStore, method: str, arguments: dict[str, Any]
) -> None:
    """So a test finds it before DynamoDB does."""
    tx = Transaction()
    move(tx, "a", -5)
    getattr(tx, method)(**arguments)

    answer = commit_one(store, DONE, tx.actions)

    assert isinstance(answer, NotApplied)
    assert not answer.retry
    assert balances(store) == {"a": 10, "b": 0}
    assert store.items["k"] == attributes(HELD)


@pytest.mark.parametrize(
    ("method", "arguments", "why"),
    [
        (
            "delete",
            {"TableName": "Lines", "Key": {"order": "o", "line": 1, "x": 1}},
            "Key has 'x' besides the table's key",
        ),
        ("put", {"TableName": "Lines", "Item": {"order": "", "line": 1}}, "its key 'order' has 0 bytes: .* 1 to 2048"),
        (
            "put",
            {"TableName": "Lines", "Item": {"order": "o", "line": "x" * 1025}},
            "'line' has 1025 bytes: .* 1 to 1024",
        ),
        ("put", {"TableName": "Lines", "Item": {"order": "o", "line": None}}, "key 'line' must be a plain str, number"),
        (
            "put",
            {"TableName": "Accounts", "Item": {"id": "c", "x": "y" * 410_000}},
            "its item has 410004 bytes; .*400 KB",
        ),
        ("put", {"TableName": "Accounts", "Item": {"id": "c", "x": 10**38 + 1}}, "holds a value .* at most 38 digits"),
        ("put", {"TableName": "Accounts", "Item": {"id": "c", "x": ["\ud800"]}}, "holds a value .* no lone surrogates"),
        ("put", {"TableName": "Accounts", "Item": {"id": "c", "x": [{"": 1}]}}, "bytes; this one has 0 characters"),
        (
            "update",
            {"TableName": "Accounts", "Key": {"id": "b"}, "UpdateExpression": "REMOVE x.status"},
            "status is a DynamoDB reserved word: write #status, with ExpressionAttributeNames",
        ),
    ],
)
def test_a_refusal_names_the_action_and_the_remedy(
    store: MemoryStore, method: str, arguments: dict[str, Any], why: str
) -> None:
    """The second action, which is refused before the first one's condition fails."""
    tx = Transaction()
    move(tx, "a", -11)
    getattr(tx, method)(**arguments)

    answer = commit_one(store, DONE, tx.actions)

    assert isinstance(answer, NotApplied)
    assert (answer.retry, answer.own) == (False, True)
    assert re.search(rf"^the transaction was refused: action 2 \(\w+ on {arguments['TableName']}\).*{why}", answer.why)


def test_a_key_has_the_type_of_those_in_the_table(store: MemoryStore) -> None:
    """As its table in DynamoDB would have."""
    tx = Transaction()
    tx.delete(TableName="Accounts", Key={"id": 1})

    answer = commit_one(store, DONE, tx.actions)

    assert isinstance(answer, NotApplied)
    assert answer.why == "the transaction was refused: the key 'id' is a str in Accounts, but a number here"


def test_an_update_does_not_write_the_key(store: MemoryStore) -> None:
    """Not even with the same value."""
    tx = Transaction()
    same = {"ExpressionAttributeValues": {":same": "b"}}
    tx.update(TableName="Accounts", Key={"id": "b"}, UpdateExpression="SET id = :same", **same)

    answer = commit_one(store, DONE, tx.actions)

    assert isinstance(answer, NotApplied)
    assert "an update cannot write id, which is part of the table's key" in answer.why


def test_a_transaction_has_99_actions_beside_the_records_own(store: MemoryStore) -> None:
    """However they were collected."""
    puts = [Action("Put", {"TableName": "Accounts", "Item": {"id": str(number)}}) for number in range(100)]

    answer = commit_one(store, DONE, puts)

    assert isinstance(answer, NotApplied)
    assert "it has 100 actions; DynamoDB allows 99" in answer.why
    assert commit_one(store, DONE, puts[1:]) == Applied()


def test_without_names_a_table_takes_its_key_from_the_first_action_on_it() -> None:
    """Enough for most tests."""
    store = MemoryStore()
    assert store.insert([HELD]) == [Applied()]
    tx = Transaction()
    tx.put(TableName="New", Item={"id": "1", "x": 1})
    tx.put(TableName="New", Item={"id": "2", "x": 1})

    assert commit_one(store, DONE, tx.actions) == Applied()
    assert list(store.tables["New"].items) == [("1",), ("2",)]


def test_once_tables_are_named_another_name_is_refused(store: MemoryStore) -> None:
    """DynamoDB would refuse a misspelt one too."""
    tx = Transaction()
    tx.put(TableName="Acounts", Item={"id": "1"})

    answer = commit_one(store, DONE, tx.actions)

    assert isinstance(answer, NotApplied)
    assert "no table 'Acounts'" in answer.why


def test_a_check_writes_nothing(store: MemoryStore) -> None:
    tx = Transaction()
    tx.check(TableName="Accounts", Key={"id": "a"}, ConditionExpression="attribute_exists(id)")
    tx.check(TableName="Accounts", Key={"id": "z"}, ConditionExpression="attribute_not_exists(id)")

    assert commit_one(store, DONE, tx.actions) == Applied()
    assert set(store.tables["Accounts"].items) == {("a",), ("b",)}


def test_other_attributes_of_an_item_are_left_alone(store: MemoryStore) -> None:
    """By replacements and commits alike."""
    store.items["k"]["note"] = "an operator's"

    commit_one(store, DONE, ())

    assert store.items["k"] == {"id": "k", "status": "COMPLETED", "version": "done", "note": "an operator's"}
