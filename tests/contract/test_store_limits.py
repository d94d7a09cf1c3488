"""AWS's limits, and what a table refuses: who asks too much is told so, for good, and no neighbour suffers for it.

The engines are asked directly, too: a limit that none of them had would be tested nowhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from idempotent_receiver import DynamoDBStore, Transaction
from idempotent_receiver.dynamodb import transactions
from idempotent_receiver.protocol.record import Change
from idempotent_receiver.protocol.store import READS_A_CALL, WRITES_A_CALL, Applied, Unknown
from idempotent_receiver.protocol.transaction import MOST_ACTIONS
from tests.engines.sample_records import claimed, credit, insert_all, refused_permanently, settled, settling

if TYPE_CHECKING:
    from collections.abc import Callable

    from idempotent_receiver.protocol.record import Record
    from idempotent_receiver.protocol.store import Written
    from tests.engines.engine import DynamoDB, Engine

KB = 1024
TOO_LARGE = "x" * (400 * KB)
"""With its record, more than an item of DynamoDB's holds."""


def refusal(ask: Callable[[], object]) -> str:
    """The code with which an engine refuses."""
    with pytest.raises(ClientError) as caught:
        ask()
    return caught.value.response["Error"]["Code"]


# What the engines refuse


def test_25_statements_are_a_request(limited_engine: DynamoDB) -> None:
    """And 26 are none: the store's chunks are as large as they may be."""
    text = f"INSERT INTO \"{limited_engine.records}\" VALUE {{'id': ?}}"

    def execute(count: int) -> object:
        statements: Any = [{"Statement": text, "Parameters": [{"S": f"{count}/{number}"}]} for number in range(count)]
        return limited_engine.client.batch_execute_statement(Statements=statements)

    execute(WRITES_A_CALL)
    assert refusal(lambda: execute(WRITES_A_CALL + 1)) == "ValidationException"


def test_100_distinct_keys_are_a_request(limited_engine: DynamoDB) -> None:
    """And 101 are none, nor is one key twice."""

    def get(*ids: str) -> object:
        keys: Any = [{"id": {"S": id}} for id in ids]
        return limited_engine.client.batch_get_item(RequestItems={limited_engine.records: {"Keys": keys}})

    get(*map(str, range(READS_A_CALL)))
    assert refusal(lambda: get(*map(str, range(READS_A_CALL + 1)))) == "ValidationException"
    assert refusal(lambda: get("twice", "twice")) == "ValidationException"


@pytest.mark.parametrize(
    "item", [{"id": {"S": "k" * 2049}}, {"id": {"S": ""}}, {"id": {"S": "k"}, "n": {"N": "1" * 39}}]
)
def test_what_the_store_does_not_send_is_refused(limited_engine: DynamoDB, item: Any) -> None:
    """Keys of 2,049 bytes or none, and numbers of 39 digits."""
    assert refusal(lambda: limited_engine.client.put_item(TableName=limited_engine.records, Item=item)) == (
        "ValidationException"
    )


# What the store makes of that


@pytest.mark.parametrize("key", ["k" * 2049, "\N{GRINNING FACE}" * 513, ""])
@pytest.mark.parametrize("neighbours", [0, 3])
def test_a_key_that_does_not_fit_is_refused_alone(limited_engine: DynamoDB, key: str, neighbours: int) -> None:
    """It is not there either, and its neighbours are as if it had not been asked."""
    store = limited_engine.store
    others = [claimed(f"key-{number}") for number in range(neighbours)]

    *applied, written = store.insert([*others, claimed(key)])

    assert refused_permanently(written)
    assert applied == [Applied()] * neighbours
    assert list(store.read([*(other.id for other in others), key])) == [*others, None]
    assert refused_permanently(store.replace([settling(claimed(key))])[0])


@pytest.mark.parametrize("neighbours", [0, 3])
def test_a_record_that_is_too_large_is_refused_alone(limited_engine: DynamoDB, neighbours: int) -> None:
    """An item holds 400 KB: what is larger is neither inserted nor replaced, and what was there stands."""
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


def test_a_record_may_be_as_large_as_an_item(limited_engine: DynamoDB) -> None:
    """Of 400 KB as we count them. DynamoDB trims zeros from its numbers, and so may count some bytes less."""
    empty = claimed(data="")
    largest = empty._replace(data="x" * (400 * KB - empty.size_bytes))
    too_large = largest._replace(id="too large", data=f"{largest.data}{'x' * 16}")

    assert largest.size_bytes == 400 * KB
    assert limited_engine.store.insert([largest]) == [Applied()]
    assert refused_permanently(limited_engine.store.insert([too_large])[0])
    assert limited_engine.store.read([largest.id]) == [largest]


def held(engine: Engine, id: str = "key") -> Record:
    record = claimed(id)
    insert_all(engine, record)
    return record


def test_a_transaction_has_a_hundred_actions(engine: Engine) -> None:
    """99 of the handler's, and the record's own."""
    tx = Transaction()
    for number in range(MOST_ACTIONS):
        tx.put(TableName=engine.accounts, Item={"account": str(number)})
    change = settling(held(engine))

    assert engine.store.commit(change, tx.actions) == Applied()
    assert engine.account(str(MOST_ACTIONS - 1)) is not None
    assert engine.store.read([change.new.id]) == [change.new]


def puts(engine: Engine, count: int, kilobytes: int) -> Transaction:
    tx = Transaction()
    for number in range(count):
        tx.put(TableName=engine.accounts, Item={"account": str(number), "data": "x" * kilobytes * KB})
    return tx


def test_a_transaction_of_4_mb_is_committed(limited_engine: DynamoDB) -> None:
    """Ten items of 400 KB, less what names and the record take."""
    assert (
        limited_engine.store.commit(settling(held(limited_engine)), puts(limited_engine, 10, 399).actions) == Applied()
    )


@pytest.mark.parametrize("checked", [True, False])
def test_a_transaction_over_4_mb_writes_nothing(
    limited_engine: DynamoDB, checked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not sent at all, and where it were sent, refused."""
    if not checked:
        monkeypatch.setattr(transactions, "MOST_BYTES", 10**9)
    record = held(limited_engine)

    written = limited_engine.store.commit(settling(record), puts(limited_engine, 11, 390).actions)

    assert refused_permanently(written)
    assert ("the transaction was not sent" in str(written)) == checked
    assert limited_engine.account("0") is None
    assert limited_engine.store.read([record.id]) == [record]


def test_an_item_that_is_too_large_refuses_its_transaction(limited_engine: DynamoDB) -> None:
    """For good, and whole."""
    record, tx = held(limited_engine), credit(limited_engine)
    tx.put(TableName=limited_engine.accounts, Item={"account": "bob", "data": TOO_LARGE})

    assert refused_permanently(limited_engine.store.commit(settling(record), tx.actions))
    assert limited_engine.account("alice") is None
    assert limited_engine.store.read([record.id]) == [record]


# A table that is not there


@pytest.fixture
def lost(wired_engine: DynamoDB) -> DynamoDBStore:
    """A store whose table nobody has made."""
    return DynamoDBStore(f"{wired_engine.records}-missing", client=wired_engine.client)


@pytest.mark.parametrize("count", [1, 3])
def test_without_a_table_every_write_is_refused_for_good(lost: DynamoDBStore, count: int) -> None:
    """Each by itself, with the table's name and the remedy."""
    records = [claimed(f"key-{number}") for number in range(count)]
    answers: list[Written] = [*lost.insert(records), *lost.replace([settling(record) for record in records])]

    assert len(answers) == 2 * count
    for answer in answers:
        assert refused_permanently(answer)
        assert f"table {lost.table_name} does not exist" in str(answer)


def test_without_a_table_nothing_is_known(lost: DynamoDBStore) -> None:
    """A key that could not be read is not free; and asking again would not help."""
    for answer in lost.read(["a", "b"]):
        assert isinstance(answer, Unknown)
        assert not answer.retry


def test_a_transaction_with_a_missing_table_writes_nothing(wired_engine: DynamoDB) -> None:
    """Neither the record nor what would have gone elsewhere."""
    record, tx = held(wired_engine), credit(wired_engine)
    tx.put(TableName=f"{wired_engine.accounts}-missing", Item={"account": "bob"})

    assert refused_permanently(wired_engine.store.commit(settling(record), tx.actions))
    assert wired_engine.account("alice") is None
    assert wired_engine.store.read([record.id]) == [record]
