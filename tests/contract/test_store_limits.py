"""AWS's limits: a record that exceeds them is refused for good, and the others of its request are not affected.

The engines are tested directly, too: a limit that none of them enforced would be tested nowhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from idempotent_receiver import DynamoDBStore, Transaction
from idempotent_receiver.protocol import limits
from idempotent_receiver.protocol.record import Change
from idempotent_receiver.protocol.store import READS_A_CALL, WRITES_A_CALL, Applied, Unknown
from idempotent_receiver.transaction.transaction import MOST_ACTIONS
from tests.engines.sample_records import claimed, credit, insert_all, refused_permanently, settled, settling
from tests.many_operations import commit_one

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.engines.engine import DynamoDB, Engine

KB = 1024
TOO_LARGE = "x" * (400 * KB)
"""With its record, more than an item of DynamoDB's holds."""


# The engines' limits


def insert(engine: DynamoDB, count: int) -> object:
    text = f"INSERT INTO \"{engine.records}\" VALUE {{'id': ?}}"
    statements: Any = [{"Statement": text, "Parameters": [{"S": f"{count}/{number}"}]} for number in range(count)]
    return engine.client.batch_execute_statement(Statements=statements)


def get(engine: DynamoDB, *ids: str) -> object:
    keys: Any = [{"id": {"S": id}} for id in ids]
    return engine.client.batch_get_item(RequestItems={engine.records: {"Keys": keys}})


def put(engine: DynamoDB, **item: Any) -> object:
    return engine.client.put_item(TableName=engine.records, Item=item)


@pytest.mark.parametrize(
    "ask",
    [
        lambda engine: insert(engine, WRITES_A_CALL + 1),
        lambda engine: get(engine, *map(str, range(READS_A_CALL + 1))),
        lambda engine: get(engine, "twice", "twice"),
        lambda engine: put(engine, id={"S": "k" * 2049}),
        lambda engine: put(engine, id={"S": ""}),
        lambda engine: put(engine, id={"S": "k"}, n={"N": "1" * 39}),
    ],
)
def test_what_the_store_does_not_send_is_refused(wired_engine: DynamoDB, ask: Callable[[DynamoDB], object]) -> None:
    """26 statements, 101 keys or one twice, keys of 2,049 bytes or of none, and numbers of 39 digits. The store's
    chunks have the largest size.
    """
    insert(wired_engine, WRITES_A_CALL)
    get(wired_engine, *map(str, range(READS_A_CALL)))
    with pytest.raises(ClientError) as caught:
        ask(wired_engine)
    assert caught.value.response["Error"]["Code"] == "ValidationException"


# The store's answers


@pytest.mark.parametrize("key", ["k" * 2049, "\N{GRINNING FACE}" * 513, ""])
@pytest.mark.parametrize("neighbours", [0, 3])
def test_a_key_that_does_not_fit_is_refused_alone(limited_engine: Engine, key: str, neighbours: int) -> None:
    """A read finds it absent, and the others of the request are not affected."""
    store = limited_engine.store
    others = [claimed(f"key-{number}") for number in range(neighbours)]

    *applied, written = store.insert([*others, claimed(key)])

    assert (refused_permanently(written), applied) == (True, [Applied()] * neighbours)
    assert list(store.read([*(other.id for other in others), key])) == [*others, None]
    assert refused_permanently(store.replace([settling(claimed(key))])[0])


@pytest.mark.parametrize("neighbours", [0, 3])
def test_a_record_that_is_too_large_is_refused_alone(limited_engine: Engine, neighbours: int) -> None:
    """An item has at most 400 KB: a larger one is neither inserted nor replaced, and the old one stays."""
    store = limited_engine.store
    others = [claimed(f"key-{number}") for number in range(neighbours)]
    there = claimed("there")
    insert_all(limited_engine, there)

    *inserted, too_large = store.insert([*others, claimed("large", data=TOO_LARGE)])
    larger = Change(settled(there, data=TOO_LARGE), there)
    *replaced, larger_still = store.replace([*map(settling, others), larger])

    assert refused_permanently(too_large)
    assert refused_permanently(larger_still)
    assert inserted == replaced == [Applied()] * neighbours
    assert list(store.read(["large", "there"])) == [None, there]


def test_a_record_may_be_as_large_as_an_item(limited_engine: Engine) -> None:
    """Of 400 KB by the library's count. DynamoDB trims zeros from its numbers, so it may count fewer bytes."""
    empty = claimed(data="")
    largest = empty._replace(data="x" * (400 * KB - empty.size_bytes))
    too_large = largest._replace(id="too large", data=f"{largest.data}{'x' * 16}")

    assert largest.size_bytes == 400 * KB
    assert limited_engine.store.insert([largest]) == [Applied()]
    assert refused_permanently(limited_engine.store.insert([too_large])[0])
    assert limited_engine.store.read([largest.id]) == [largest]


def puts(table: str, count: int, kilobytes: int = 0) -> Transaction:
    tx = Transaction()
    for number in range(count):
        tx.put(TableName=table, Item={"account": str(number), "data": "x" * kilobytes * KB})
    return tx


def committed(engine: Engine, tx: Transaction) -> Any:
    """The answer to a transaction, all of which is written if it is applied, and else nothing."""
    record = claimed()
    insert_all(engine, record)
    change = settling(record)
    answer = commit_one(engine.store, change, tx.actions)
    applied = answer == Applied()
    assert engine.store.read([record.id]) == [change.new if applied else record]
    for account in {action.arguments.get("Item", action.arguments.get("Key"))["account"] for action in tx.actions}:  # type: ignore[index]
        assert (engine.account(account) is not None) == applied
    return answer


def test_a_transaction_has_a_hundred_actions(engine: Engine) -> None:
    """99 actions of the handler, and the record's own."""
    assert committed(engine, puts(engine.accounts, MOST_ACTIONS)) == Applied()


def test_a_transaction_of_4_mb_is_committed(limited_engine: Engine) -> None:
    """Ten items of 400 KB, less the names and the record."""
    assert committed(limited_engine, puts(limited_engine.accounts, 10, 399)) == Applied()


def test_a_transaction_over_4_mb_writes_nothing(limited_engine: Engine) -> None:
    """None of its items is over 400 KB."""
    assert refused_permanently(committed(limited_engine, puts(limited_engine.accounts, 11, 390)))


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize(("count", "kilobytes"), [(11, 390), (1, 400)])
def test_what_is_too_large_is_not_sent(
    wired_engine: DynamoDB, count: int, kilobytes: int, checked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction of more than 4 MB, and an item of more than 400 KB. DynamoDB would refuse them."""
    if not checked:
        for name in ("MOST_TRANSACTION_BYTES", "MOST_ITEM_BYTES"):
            monkeypatch.setattr(limits, name, 10**9)

    written = committed(wired_engine, puts(wired_engine.accounts, count, kilobytes))

    assert refused_permanently(written)
    assert ("the transaction was not sent" in str(written)) == checked


@pytest.mark.parametrize(("table", "data"), [("{}", TOO_LARGE), ("{}-missing", "")], ids=["too large", "no table"])
def test_an_item_that_cannot_be_put_refuses_its_transaction(limited_engine: Engine, table: str, data: str) -> None:
    """As a whole, and for good."""
    tx = credit(limited_engine)
    tx.put(TableName=table.format(limited_engine.accounts), Item={"account": "bob", "data": data})

    assert refused_permanently(committed(limited_engine, tx))


@pytest.mark.parametrize("count", [1, 3])
def test_without_a_table_every_write_is_refused_for_good_and_nothing_is_known(
    wired_engine: DynamoDB, count: int
) -> None:
    """Each record has its own answer, with the table's name and the remedy. What could not be read is not free."""
    lost = DynamoDBStore(f"{wired_engine.records}-missing", client=wired_engine.client)
    records = [claimed(f"key-{number}") for number in range(count)]

    written = [*lost.insert(records), *lost.replace([settling(record) for record in records])]
    read = lost.read([record.id for record in records])

    assert [refused_permanently(answer) for answer in written] == [True] * 2 * count
    assert all(f"table {lost.table_name} does not exist" in str(answer) for answer in written)
    assert [isinstance(answer, Unknown) and not answer.retry for answer in read] == [True] * count
