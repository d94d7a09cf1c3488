"""AWS's limits: a record that exceeds them is refused for good, and the others of its request are not affected.

The engines are tested directly, too: a limit that none of them enforced would be tested nowhere.
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
from tests.many_operations import commit_one

if TYPE_CHECKING:
    from collections.abc import Callable

    from idempotent_receiver.protocol.record import Record
    from idempotent_receiver.protocol.store import Written
    from tests.engines.engine import DynamoDB, Engine

KB = 1024
TOO_LARGE = "x" * (400 * KB)
"""With its record, more than an item of DynamoDB's holds."""


def refusal(ask: Callable[[], object]) -> str:
    """The error code with which an engine refuses."""
    with pytest.raises(ClientError) as caught:
        ask()
    return caught.value.response["Error"]["Code"]


# The engines' limits


def test_25_statements_are_a_request(limited_engine: DynamoDB) -> None:
    """26 are refused, so the store's chunks have the largest size."""
    text = f"INSERT INTO \"{limited_engine.records}\" VALUE {{'id': ?}}"

    def execute(count: int) -> object:
        statements: Any = [{"Statement": text, "Parameters": [{"S": f"{count}/{number}"}]} for number in range(count)]
        return limited_engine.client.batch_execute_statement(Statements=statements)

    execute(WRITES_A_CALL)
    assert refusal(lambda: execute(WRITES_A_CALL + 1)) == "ValidationException"


def test_100_distinct_keys_are_a_request(limited_engine: DynamoDB) -> None:
    """101 are refused, and so is one key twice."""

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
    """Keys of 2,049 bytes or of none, and numbers of 39 digits."""
    assert refusal(lambda: limited_engine.client.put_item(TableName=limited_engine.records, Item=item)) == (
        "ValidationException"
    )


# The store's answers


@pytest.mark.parametrize("key", ["k" * 2049, "\N{GRINNING FACE}" * 513, ""])
@pytest.mark.parametrize("neighbours", [0, 3])
def test_a_key_that_does_not_fit_is_refused_alone(limited_engine: DynamoDB, key: str, neighbours: int) -> None:
    """A read finds it absent, and the others of the request are not affected."""
    store = limited_engine.store
    others = [claimed(f"key-{number}") for number in range(neighbours)]

    *applied, written = store.insert([*others, claimed(key)])

    assert refused_permanently(written)
    assert applied == [Applied()] * neighbours
    assert list(store.read([*(other.id for other in others), key])) == [*others, None]
    assert refused_permanently(store.replace([settling(claimed(key))])[0])


@pytest.mark.parametrize("neighbours", [0, 3])
def test_a_record_that_is_too_large_is_refused_alone(limited_engine: DynamoDB, neighbours: int) -> None:
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


def test_a_record_may_be_as_large_as_an_item(limited_engine: DynamoDB) -> None:
    """Of 400 KB by the library's count. DynamoDB trims zeros from its numbers, so it may count fewer bytes."""
    empty = claimed(data="")
    largest = empty._replace(data="x" * (400 * KB - empty.size_bytes))
    too_large = largest._replace(id="too large", data=f"{largest.data}{'x' * 16}")

    assert largest.size_bytes == 400 * KB
    assert limited_engine.store.insert([largest]) == [Applied()]
    assert refused_permanently(limited_engine.store.insert([too_large])[0])
    assert limited_engine.store.read([largest.id]) == [largest]


def claimed_record(engine: Engine, id: str = "key") -> Record:
    record = claimed(id)
    insert_all(engine, record)
    return record


def test_a_transaction_has_a_hundred_actions(engine: Engine) -> None:
    """99 actions of the handler, and the record's own."""
    tx = Transaction()
    for number in range(MOST_ACTIONS):
        tx.put(TableName=engine.accounts, Item={"account": str(number)})
    change = settling(claimed_record(engine))

    assert commit_one(engine.store, change, tx.actions) == Applied()
    assert engine.account(str(MOST_ACTIONS - 1)) is not None
    assert engine.store.read([change.new.id]) == [change.new]


def puts(engine: Engine, count: int, kilobytes: int) -> Transaction:
    tx = Transaction()
    for number in range(count):
        tx.put(TableName=engine.accounts, Item={"account": str(number), "data": "x" * kilobytes * KB})
    return tx


def test_a_transaction_of_4_mb_is_committed(limited_engine: DynamoDB) -> None:
    """Ten items of 400 KB, less the names and the record."""
    assert (
        commit_one(
            limited_engine.store, settling(claimed_record(limited_engine)), puts(limited_engine, 10, 399).actions
        )
        == Applied()
    )


@pytest.mark.parametrize("checked", [True, False])
def test_a_transaction_over_4_mb_writes_nothing(
    limited_engine: DynamoDB, checked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not sent; DynamoDB would refuse it."""
    if not checked:
        monkeypatch.setattr(transactions, "MOST_BYTES", 10**9)
    record = claimed_record(limited_engine)

    written = commit_one(limited_engine.store, settling(record), puts(limited_engine, 11, 390).actions)

    assert refused_permanently(written)
    assert ("the transaction was not sent" in str(written)) == checked
    assert limited_engine.account("0") is None
    assert limited_engine.store.read([record.id]) == [record]


def test_an_item_that_is_too_large_refuses_its_transaction(limited_engine: DynamoDB) -> None:
    """As a whole, and for good."""
    record, tx = claimed_record(limited_engine), credit(limited_engine)
    tx.put(TableName=limited_engine.accounts, Item={"account": "bob", "data": TOO_LARGE})

    assert refused_permanently(commit_one(limited_engine.store, settling(record), tx.actions))
    assert limited_engine.account("alice") is None
    assert limited_engine.store.read([record.id]) == [record]


# A missing table


@pytest.fixture
def lost(wired_engine: DynamoDB) -> DynamoDBStore:
    """A store whose table does not exist."""
    return DynamoDBStore(f"{wired_engine.records}-missing", client=wired_engine.client)


@pytest.mark.parametrize("count", [1, 3])
def test_without_a_table_every_write_is_refused_for_good(lost: DynamoDBStore, count: int) -> None:
    """Each record has its own answer, with the table's name and the remedy."""
    records = [claimed(f"key-{number}") for number in range(count)]
    answers: list[Written] = [*lost.insert(records), *lost.replace([settling(record) for record in records])]

    assert len(answers) == 2 * count
    for answer in answers:
        assert refused_permanently(answer)
        assert f"table {lost.table_name} does not exist" in str(answer)


def test_without_a_table_nothing_is_known(lost: DynamoDBStore) -> None:
    """A key that could not be read is not free, and a retry would not help."""
    for answer in lost.read(["a", "b"]):
        assert isinstance(answer, Unknown)
        assert not answer.retry


def test_a_transaction_with_a_missing_table_writes_nothing(wired_engine: DynamoDB) -> None:
    """Neither the record nor the items of other tables."""
    record, tx = claimed_record(wired_engine), credit(wired_engine)
    tx.put(TableName=f"{wired_engine.accounts}-missing", Item={"account": "bob"})

    assert refused_permanently(commit_one(wired_engine.store, settling(record), tx.actions))
    assert wired_engine.account("alice") is None
    assert wired_engine.store.read([record.id]) == [record]
