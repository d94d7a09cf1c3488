"""What DynamoDB refuses of an action, every store refuses, in the same order; up to its limits, every store takes it.

Each case breaks a rule of AWS's documentation: "Quotas in Amazon DynamoDB", "Reserved words in DynamoDB", "DynamoDB
item sizes and formats", "Supported data types", the pages on expressions, and the API reference, TransactWriteItems.
"""

from __future__ import annotations

import os
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest

from idempotent_receiver import Transaction
from idempotent_receiver.local.cloud import is_ministack
from idempotent_receiver.protocol.record import Change
from idempotent_receiver.protocol.store import Applied, Conflict
from idempotent_receiver.transaction import operators
from tests.engines.sample_records import (
    claimed,
    committing,
    credit,
    failing,
    insert_all,
    refused_permanently,
    settled,
    settling,
)
from tests.many_operations import commit_one

if TYPE_CHECKING:
    from collections.abc import Callable

    from idempotent_receiver.protocol.record import Record
    from idempotent_receiver.transaction.action import Action
    from tests.engines.engine import Engine

    Add = Callable[[Transaction, str], None]
    """Adds an action on an engine's accounts, where `alice` has a balance of 5."""

KB = 1024


def put(item: dict[str, Any], **more: Any) -> Add:
    return lambda tx, table: tx.put(TableName=table, Item=item, **more)


def delete(key: dict[str, Any], **more: Any) -> Add:
    return lambda tx, table: tx.delete(TableName=table, Key=key, **more)


def check(condition: str, names: dict[str, str] | None = None, **values: Any) -> Add:
    """A condition of an item that is not there, with `a=1` for `:a`."""
    key = {"account": "nobody"}
    return lambda tx, table: tx.check(
        TableName=table, Key=key, ConditionExpression=condition, **substitutes(names, values)
    )


def update(expression: str, names: dict[str, str] | None = None, account: str = "bob", **values: Any) -> Add:
    key = {"account": account}
    return lambda tx, table: tx.update(
        TableName=table, Key=key, UpdateExpression=expression, **substitutes(names, values)
    )


def unchecked(add: Add) -> Add:
    """The same action, without the transaction's own count of operators."""

    def adds(tx: Transaction, table: str) -> None:
        with patch.object(operators, "MOST_OPERATORS", 10**6):
            add(tx, table)

    return adds


def substitutes(names: dict[str, str] | None, values: dict[str, Any]) -> dict[str, Any]:
    """Only those that there are: DynamoDB takes no empty mapping."""
    given = {":" + name: value for name, value in values.items()}
    return ({"ExpressionAttributeNames": names} if names else {}) | (
        {"ExpressionAttributeValues": given} if given else {}
    )


def of_size(size: int) -> dict[str, Any]:
    """An item of so many bytes, of all types, by the documented rule."""
    item = {"account": "bob", "list": ["é", {"n": 10}], "set": {"b", "cd"}, "none": None, "no": False, "numbers": {12}}
    return item | {"blob": b"x" * (size - 55)}


ANYWAY = "attribute_not_exists(balance)"
LIMITS: dict[str, tuple[Add, Add]] = {
    "an item of 400 KB": (put(of_size(400 * KB)), put(of_size(400 * KB + 1))),
    "a key of 2 KB": (delete({"account": "é" * 1024}), delete({"account": "é" * 1024 + "x"})),
    "a number of 38 digits": (put({"account": "bob", "n": 10**38 - 1}), put({"account": "bob", "n": 10**38 + 1})),
    "a large number": (
        put({"account": "bob", "n": Decimal("9.9E+125")}),
        put({"account": "bob", "n": [Decimal("1E+126")]}),
    ),
    "a small number": (check("n <> :n", n=Decimal("1E-130")), check("n <> :n", n=Decimal("1E-131"))),
    "a long name": (put({"account": "bob", "n" * 65_535: 1}), put({"account": "bob", "n" * 65_536: 1})),
    "a name of no characters": (put({"account": "bob", "m": {" ": 1}}), put({"account": "bob", "m": {"": 1}})),
    "operators": (check(" OR ".join(["n <> :n"] * 150), n=1), unchecked(check(" OR ".join(["n <> :n"] * 151), n=1))),
    "operators in lower case": (
        check(" or ".join(["not n=:n"] * 100), n=1),
        unchecked(check(" or ".join(["not n=:n"] * 101), n=1)),
    ),
    "ranges": (
        check(" OR ".join([ANYWAY, *["n between :n and :n"] * 149]), n=1),
        unchecked(check(" OR ".join([ANYWAY, *["n between :n and :n"] * 151]), n=1)),
    ),
    "functions": (
        check(" OR ".join(["size(n) <> :n"] * 100), n=1),
        unchecked(check(" OR ".join(["size(n) <> :n"] * 101), n=1)),
    ),
    "sums": (
        update(f"SET {','.join(f'n{number}=:n+:n' for number in range(300))}", n=1),
        unchecked(update(f"SET {','.join(f'n{number}=:n+:n' for number in range(301))}", n=1)),
    ),
    "operands of IN": (
        check(f"NOT n IN ({', '.join([':n'] * 100)})", n=1),
        check(f"NOT n IN ({', '.join([':n'] * 101)})", n=1),
    ),
    "an expression of 4 KB": (
        check(f"attribute_not_exists({'n' * 4074})"),
        check(f"attribute_not_exists({'n' * 4075})"),
    ),
    "a path of 32 levels": (
        check(f"attribute_not_exists(n{'.n' * 31})"),
        check(f"attribute_not_exists(n{'.n' * 32})"),
    ),
    "a placeholder of 255 characters": (
        update(f"SET {'#n':n<255} = :{'v':v<254}", {f"{'#n':n<255}": "n"}, **{"v" * 254: 1}),
        update(f"SET {'#n':n<256} = :v", {f"{'#n':n<256}": "n"}, v=1),
    ),
    "the bounds of BETWEEN": (
        check(f"n BETWEEN :a AND :b OR {ANYWAY}", a=1, b=Decimal("1.0")),
        check(f"n BETWEEN :a AND :b OR {ANYWAY}", a=2, b=1),
    ),
    "parentheses around a value": (update("SET n = (:n), m = (:n) + (:n)", n=1), update("SET n = ((:n))", n=1)),
    "parentheses around a sum": (
        update("SET n = (if_not_exists(n, :n) + :n)", n=1),
        update("SET n = (:n + :n) + :n", n=1),
    ),
    "a list's index": (
        check(f"attribute_not_exists(n[{2**31 - 1}])"),
        check(f"attribute_not_exists(n[{2**31}])"),
    ),
}
"""What DynamoDB takes, and a little more, which it refuses."""

REFUSED: dict[str, Add] = {
    "a reserved word in a condition": check("status <> :n", n=1),
    "a reserved word in an update": update("SET Data = :n", n=1),
    "a reserved word in a path": update("REMOVE n.#m, n.count", {"#m": "n"}),
    "another attribute in a key": delete({"account": "alice", "balance": 5}),
    "a key that is not the table's": delete({"name": "alice"}),
    "a key's value of no type for keys": put({"account": True}),
    "names without an expression": put({"account": "bob"}, ExpressionAttributeNames={"#n": "n"}),
    "values without an expression": delete({"account": "bob"}, ExpressionAttributeValues={":n": 1}),
    "an unused value": update("SET n = :n", n=1, unused=2),
    "an undefined value": update("SET n = :n"),
    "a name of none": update("SET #n = :n", {"#n": ""}, n=1),
    "one attribute on both sides": check(f"n = n OR {ANYWAY}"),
    "one attribute twice in if_not_exists": update("SET n = if_not_exists(balance, balance)"),
    "an order of lists": check(f"n < :n OR {ANYWAY}", n=[1]),
    "the beginning of a number": check(f"begins_with(n, :n) OR {ANYWAY}", n=1),
    "the beginning of a size": check(f"begins_with(size(n), :n) OR {ANYWAY}", n="1"),
    "a type that does not exist": check(f"attribute_type(n, :n) OR {ANYWAY}", n="STRING"),
    "the size of a number": check(f"size(:n) = :n OR {ANYWAY}", n=1),
    "bounds of two types": check(f"n BETWEEN :a AND :b OR {ANYWAY}", a=1, b="2"),
    "a text added": update("SET n = if_not_exists(n, :zero) + :n", zero=0, n="1"),
    "a list added": update("ADD n :n", n=[1]),
    "a number deleted": update("DELETE n :n", n=1),
    "2 MB of values": check(f"n <> :a OR {ANYWAY}", a="x" * (2 * KB * KB)),
} | {name: above for name, (_, above) in LIMITS.items()}
"""What DynamoDB refuses whatever is there: before the record, or any condition, is looked at."""

WRONG_TYPE = {"a key of another type": delete({"account": 1}), "an item's key of another type": put({"account": b"a"})}

_NAMES = {"a long name", "a name of no characters"}
_BOTH = _NAMES | {
    *("another attribute in a key", "a name of none", "one attribute on both sides", "an order of lists"),
    *("the beginning of a number", "a type that does not exist", "bounds of two types", "2 MB of values", "operators"),
    *("operators in lower case", "ranges", "sums"),
    *("parentheses around a value", "parentheses around a sum"),
    *("functions", "operands of IN", "a path of 32 levels", "a placeholder of 255 characters", "a list's index"),
}
LENIENT: dict[str, set[str]] = {
    "moto": _BOTH
    | {"values without an expression", "an unused value", "an undefined value", "the beginning of a size"}
    | {"the size of a number", "an expression of 4 KB", "the bounds of BETWEEN"},
    "ministack": _BOTH
    | {"a reserved word in an update", "a reserved word in a path", "a key that is not the table's", "a text added"}
    | {"one attribute twice in if_not_exists", "a list added", "a number deleted", "an item of 400 KB"},
    "model": _NAMES,
    "loopback": _NAMES,
}
"""What an emulator takes."""

STRICT = {"moto": {"an item of 400 KB", "functions", "sums", "parentheses around a value", "parentheses around a sum"}}
"""What an emulator refuses."""

NAMES_NOBODY = ("moto", "ministack")
"""The emulators that refuse the whole transaction for a key of a wrong type."""


@pytest.fixture
def emulator(engine: Engine, request: pytest.FixtureRequest) -> str:
    """The engine's name in these lists."""
    name = str(request.node.callspec.params["engine"])
    return "ministack" if name == "named" and is_ministack(os.environ["CONTRACT_ENDPOINT"]) else name


@pytest.fixture
def claim(engine: Engine) -> Record:
    """A record that is claimed, for a transaction to complete."""
    record = claimed()
    insert_all(engine, record)
    return record


def acting(engine: Engine, *adds: Add) -> tuple[Action, ...]:
    tx = Transaction()
    for add in adds:
        add(tx, engine.accounts)
    return tx.actions


def unlike(engine: Engine) -> tuple[Action, ...]:
    """An action whose condition fails."""
    tx = Transaction()
    failing(engine, tx, "nobody-else")
    return tx.actions


@pytest.mark.parametrize("case", REFUSED)
def test_what_dynamodb_refuses_is_refused_for_good(engine: Engine, emulator: str, claim: Record, case: str) -> None:
    """Nothing is written, not even what the other actions write. A failed condition of theirs changes nothing, and
    neither does a claim that was lost: DynamoDB validates a transaction before it looks at any item.
    """
    if case in LENIENT.get(emulator, ()):
        pytest.skip("this engine takes it")
    wrong = acting(engine, REFUSED[case])

    assert refused_permanently(commit_one(engine.store, settling(claim), [*credit(engine).actions, *wrong]))
    assert refused_permanently(commit_one(engine.store, settling(claim), [*unlike(engine), *wrong]))
    assert engine.store.read([claim.id]) == [claim]
    taken_over = settled(claim)
    engine.store.replace([Change(taken_over, claim)])
    assert refused_permanently(commit_one(engine.store, settling(claim), wrong))

    assert engine.store.read([claim.id]) == [taken_over]
    assert [engine.account(name) for name in ("alice", "bob")] == [None, None]


@pytest.mark.parametrize("case", LIMITS)
def test_what_dynamodb_just_takes_is_taken(engine: Engine, emulator: str, claim: Record, case: str) -> None:
    """A store that refused it would refuse what works."""
    if case in STRICT.get(emulator, ()):
        pytest.skip("this engine refuses it")
    assert commit_one(engine.store, settling(claim), acting(engine, LIMITS[case][0])) == Applied()


@pytest.mark.parametrize("case", WRONG_TYPE)
def test_a_key_has_the_tables_type(engine: Engine, emulator: str, claim: Record, case: str) -> None:
    """Only the table can tell. A claim that was lost goes before it; another action's failed condition does not: it
    counts only if conditions are all that failed.
    """
    if emulator in NAMES_NOBODY:
        pytest.skip("this engine does not say which action it is")
    engine.store.commit([committing(engine, 1)])
    wrong = acting(engine, WRONG_TYPE[case])

    assert refused_permanently(commit_one(engine.store, settling(claim), wrong))
    assert refused_permanently(commit_one(engine.store, settling(claim), [*wrong, *unlike(engine)]))
    taken_over = settled(claim)
    engine.store.replace([Change(taken_over, claim)])
    assert isinstance(commit_one(engine.store, settling(claim), wrong), Conflict)

    assert engine.store.read([claim.id]) == [taken_over]


@pytest.mark.parametrize("there", [True, False])
def test_an_item_does_not_grow_over_400_kb(engine: Engine, claim: Record, there: bool) -> None:
    """By an update, whether it grows in one step or two."""
    if there:
        tx = Transaction()
        put({"account": "bob", "b": "x" * 300_000})(tx, engine.accounts)
        assert engine.store.commit([committing(engine, 1, tx)]) == [Applied()]
    growing = acting(engine, update("SET a = :a" if there else "SET a = :a, b = :a", a="x" * 300_000))

    assert refused_permanently(commit_one(engine.store, settling(claim), growing))

    assert "a" not in (engine.account("bob") or {})
