"""What every store promises of a handler's reads: one consistent item, and commits that hold only while it stands."""

from __future__ import annotations

from decimal import Decimal
from secrets import token_hex
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver import Transaction
from idempotent_receiver.protocol.record import Record
from idempotent_receiver.protocol.store import ActionFailed, Applied, Commit, Unknown
from tests.engines.sample_records import claimed, committing, insert_all, settling
from tests.many_operations import commit_one

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from tests.engines.engine import Engine, Item

ALICE: dict[str, Any] = {
    "account": "alice",
    "text": "x",
    "empty": "",
    "number": Decimal(5),
    "fraction": Decimal("1.50"),
    "raw": b"\x00\xff",
    "true": True,
    "nothing": None,
    "nested": {"list": [Decimal(1), {"a": b"x"}, []]},
    "texts": {"a", "b"},
    "numbers": {Decimal(1), Decimal("2.5")},
    "raws": {b"a", b"b"},
}
"""An item with a value of every type."""


@pytest.fixture
def record(engine: Engine) -> Record:
    """A record that is claimed, for a transaction to complete."""
    found = claimed()
    insert_all(engine, found)
    return found


def put(engine: Engine, **changes: Any) -> None:
    """Somebody else writes the account."""
    write(engine, lambda tx: tx.put(TableName=engine.accounts, Item={**ALICE, **changes}))


def write(engine: Engine, action: Callable[[Transaction], None]) -> None:
    tx = Transaction()
    action(tx)
    other = claimed(id=f"other-{token_hex(8)}")
    insert_all(engine, other)
    assert commit_one(engine.store, settling(other), tx.actions) == Applied()


def reading(engine: Engine, attributes: Collection[str] = ALICE.keys()) -> tuple[Transaction, Any]:
    """A transaction, and what it has read of the account."""

    def fetch(table: str, key: Item) -> Any:
        found = engine.store.get(table, key)
        assert not isinstance(found, Unknown)
        return found

    tx = Transaction(fetch)
    return tx, tx.get(TableName=engine.accounts, Key={"account": "alice"}, attributes=attributes)


def test_an_item_comes_back_as_it_was_put_and_still_stands(engine: Engine, record: Record) -> None:
    put(engine)
    tx, alice = reading(engine)
    assert alice == ALICE
    assert type(alice["true"]) is bool
    assert [type(alice[name]) for name in ("number", "raw")] == [int, bytes]
    assert commit_one(engine.store, settling(record), tx.seal()) == Applied()


def test_nothing_is_read_of_an_item_that_is_not_there(engine: Engine, record: Record) -> None:
    tx, alice = reading(engine)
    assert alice is None
    put(engine)
    assert commit_one(engine.store, settling(record), tx.seal()) == ActionFailed(0, stale=True)


def test_a_map_that_looks_like_a_typed_value_is_stored_as_a_map(engine: Engine) -> None:
    """Where it is wrapped in an item, and where it is one of an expression's several values."""
    item = {"account": "alice", "map": MappingProxyType({"S": "x"})}
    write(engine, lambda tx: tx.put(TableName=engine.accounts, Item=item))
    assert reading(engine, attributes=["map"])[1] == {"map": {"S": "x"}}
    updating = {"UpdateExpression": "SET a = :a, b = :b", "ExpressionAttributeValues": {":a": {"S": "x"}, ":b": 1}}
    write(engine, lambda tx: tx.update(TableName=engine.accounts, Key={"account": "alice"}, **updating))
    assert reading(engine, attributes=["a", "map"])[1] == {"a": {"S": "x"}, "map": {"S": "x"}}


LARGE = (10**38, -(10**40), Decimal("1E+40"), Decimal("9.99E+125"), (10**38 - 1) * 10**80, Decimal("1." + "0" * 50))


@pytest.mark.parametrize("number", LARGE, ids=str)
def test_a_number_from_1e38_on_is_stored_read_and_committed(
    engine: Engine, record: Record, number: int | Decimal
) -> None:
    """It loses nothing but zeros, and comes back as an int, as every whole number does."""
    put(engine, number=number, nested=[{number}])
    tx, alice = reading(engine, attributes=["number", "nested"])
    assert (alice["number"], alice["nested"]) == (number, [{number}])
    assert (type(alice["number"]), type(*alice["nested"][0])) == (int, int)
    values = {":number": alice["number"]}
    tx.update(
        TableName=engine.accounts,
        Key={"account": "alice"},
        UpdateExpression="SET again = :number",
        ConditionExpression="#n = :number",
        ExpressionAttributeNames={"#n": "number"},
        ExpressionAttributeValues=values,
    )
    assert commit_one(engine.store, settling(record), tx.seal()) == Applied()
    assert reading(engine, attributes=["again"])[1] == {"again": number}


@pytest.mark.parametrize("name", sorted(ALICE.keys() - {"account"}))
def test_a_change_of_any_type_refuses_the_commit(engine: Engine, record: Record, name: str) -> None:
    put(engine)
    tx, _ = reading(engine)
    put(engine, **{name: ALICE[name] == "x" or "other"})
    assert commit_one(engine.store, settling(record), tx.seal()) == ActionFailed(0, stale=True)
    assert engine.store.read(["key"]) == [record]


def test_a_write_over_what_was_read_tells_a_change_from_its_own_condition(engine: Engine, record: Record) -> None:
    """Also where the item is gone."""
    put(engine)
    updating = {
        "TableName": engine.accounts,
        "Key": {"account": "alice"},
        "UpdateExpression": "SET #n = :n",
        "ConditionExpression": "#n > :n OR #n = :n",
        "ExpressionAttributeNames": {"#n": "number"},
        "ExpressionAttributeValues": {":n": 7},
    }
    tx, _ = reading(engine, attributes=["number", "absent"])
    tx.update(**updating)
    assert commit_one(engine.store, settling(record), tx.seal()) == ActionFailed(0)

    put(engine, text="not read")
    assert commit_one(engine.store, settling(record), tx.seal()) == ActionFailed(0)
    put(engine, absent=True)
    assert commit_one(engine.store, settling(record), tx.seal()) == ActionFailed(0, stale=True)
    write(engine, lambda tx: tx.delete(TableName=engine.accounts, Key={"account": "alice"}))
    assert commit_one(engine.store, settling(record), tx.seal()) == ActionFailed(0, stale=True)

    put(engine, number=7)
    tx, _ = reading(engine, attributes=["number", "absent"])
    tx.update(**updating)
    assert commit_one(engine.store, settling(record), tx.seal()) == Applied()


def test_what_changed_comes_before_the_condition_of_another_action(engine: Engine, record: Record) -> None:
    put(engine)
    tx, _ = reading(engine)
    tx.check(TableName=engine.accounts, Key={"account": "bob"}, ConditionExpression="attribute_exists(account)")
    put(engine, number=6)
    assert commit_one(engine.store, settling(record), tx.seal()) == ActionFailed(1, stale=True)


def test_commits_that_share_a_check_all_take_effect_or_are_all_told(engine: Engine, record: Record) -> None:
    """In one call, beside one that has read something else."""
    put(engine)
    records = [claimed(id=f"key-{number}") for number in range(6)]
    insert_all(engine, *records)
    reads = [reading(engine)[0] for _ in records[:5]]
    for number, tx in enumerate(reads):
        tx.put(TableName=engine.accounts, Item={"account": f"account-{number}"})
    elsewhere = Transaction(lambda table, key: None)
    elsewhere.get(TableName=engine.accounts, Key={"account": "alice"}, attributes=["number"])
    commits = [Commit(settling(one), tx.seal()) for one, tx in zip(records, [*reads, elsewhere], strict=True)]

    assert engine.store.commit(commits) == [Applied()] * 5 + [ActionFailed(0, stale=True)]

    put(engine, number=6)
    again = [claimed(id=f"again-{number}") for number in range(5)]
    insert_all(engine, *again)
    commits = [Commit(settling(one), tx.seal()) for one, tx in zip(again, reads, strict=True)]
    assert engine.store.commit(commits) == [ActionFailed(1, stale=True)] * 5


@pytest.mark.parametrize("key", [{"account": 5}, {"wrong": "alice"}, {"account": "alice", "more": "x"}])
def test_a_key_that_no_item_can_have_is_refused_for_good(limited_engine: Engine, key: Item) -> None:
    limited_engine.store.commit([committing(limited_engine, 1)])
    found = limited_engine.store.get(limited_engine.accounts, key)
    assert isinstance(found, Unknown)
    assert not found.retry


def test_a_table_that_is_not_there_is_refused_for_good(engine: Engine) -> None:
    found = engine.store.get("nowhere-at-all", {"account": "alice"})
    if found is None:
        pytest.skip("this store makes tables as they are named")
    assert isinstance(found, Unknown)
    assert not found.retry
    assert "nowhere-at-all" in found.why
