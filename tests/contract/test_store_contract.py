"""What every store promises, checked on every engine.

A refused write may or may not return the record that is there; after `Conflict(None)` the protocol reads. No store may
answer for another record, or answer wrongly.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver import Transaction, sqs_consumer
from idempotent_receiver.protocol.record import Change, Record, from_attributes
from idempotent_receiver.protocol.store import ActionFailed, Applied, Conflict, NotApplied, TransactionalStore
from tests.contexts import Context
from tests.engines.sample_records import claimed, credit, insert_all, refused, settled, settling, single_winner
from tests.manual_clock import ManualClock
from tests.many_operations import commit_one
from tests.simulation.world import sqs_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from idempotent_receiver.protocol.store import Written
    from tests.engines.engine import Engine, Item

AWKWARD_KEYS = {
    "quotes": """'single' "double" `back` ?; --""",
    "unicode": "größe-\N{GRINNING FACE}-\N{CJK UNIFIED IDEOGRAPH-65E5}",
    "decomposed": "gro\N{COMBINING DIAERESIS}ße",
    "NUL": "a\x00b",
    "blanks": " a ",
    "number": "100",
    "longest": "k" * 2048,
}

POWERTOOLS: dict[str, Item] = {
    "lease": {"status": "INPROGRESS", "expiration": 1_900_000_000, "in_progress_expiration": 1_800_000_000_000},
    "no lease": {"status": "INPROGRESS", "expiration": 1_900_000_000},
    "completed": {"status": "COMPLETED", "expiration": 1_900_000_000, "data": '{"paid": 1}', "validation": "f"},
    "no expiration": {"status": "COMPLETED"},
}
"""Records as Powertools writes them: without a version."""


OTHERWISE: Item = {
    "version": "appeared",
    "status": "FAILED",
    "expiration": 1_900_000_001,
    "in_progress_expiration": 1_800_000_000_001,
}
"""Each attribute by which a record without a version is recognised, with a value that it did not have."""


def changes_to_powertools_records() -> Iterator[Any]:
    """Each of Powertools' records, and what it becomes when one attribute is added, changed or removed."""
    for kind, attributes in POWERTOOLS.items():
        for name, value in OTHERWISE.items():
            yield pytest.param(attributes, attributes | {name: value}, id=f"{kind}, other {name}")
        for name in ("expiration", "in_progress_expiration"):
            if name in attributes:
                without = {other: value for other, value in attributes.items() if other != name}
                yield pytest.param(attributes, without, id=f"{kind}, no {name}")


# One record


def test_a_record_is_inserted_where_there_is_none(engine: Engine) -> None:
    """An insert into an empty table is applied, and a read returns every attribute as it was."""
    record = claimed(data='{"a": "\\u0000"}', error="{}")

    written = engine.store.insert([record])

    assert written == [Applied()]
    assert engine.store.read([record.id]) == [record]


def test_an_insert_leaves_what_is_there(engine: Engine) -> None:
    """The second of two inserts under one id is refused, returns the first's record, and changes nothing."""
    first = claimed()
    insert_all(engine, first)

    written = engine.store.insert([claimed()])

    assert written == [Conflict(first)]
    assert engine.store.read([first.id]) == [first]


def test_an_expired_record_is_still_there(engine: Engine) -> None:
    """TTL is not the clock: an insert does not overwrite a record whose expiration is past."""
    old = claimed(expiration=1)
    insert_all(engine, old)

    assert engine.store.insert([claimed()]) == [Conflict(old)]


def test_what_is_absent_is_read_as_none(engine: Engine) -> None:
    """A read of an id without a record is None."""
    assert engine.store.read(["nobody"]) == [None]


def test_a_record_is_replaced_whole(engine: Engine) -> None:
    """A replace sets what the new record has, and removes what it has not."""
    old = claimed(error="{}")
    insert_all(engine, old)
    new = settled(old, error=None, owner=None, expiration=0, attempts=0)

    written = engine.store.replace([Change(new, old)])

    assert written == [Applied()]
    assert engine.store.read([old.id]) == [new]
    item = engine.item(old.id)
    assert item is not None
    assert not {"error", "owner", "in_progress_expiration"} & item.keys()


def test_a_replaced_version_fences(engine: Engine) -> None:
    """A replace that names a version which is gone is refused, returns what is there, and changes nothing."""
    old = claimed()
    insert_all(engine, old)
    taken_over = claimed(attempts=2)
    engine.store.replace([Change(taken_over, old)])

    late = engine.store.replace([settling(old)])

    assert late == [Conflict(taken_over)]
    assert engine.store.read([old.id]) == [taken_over]


def test_the_same_replace_twice_is_recognisable(engine: Engine) -> None:
    """A replace that is sent again finds its own version, which distinguishes a lost answer from a lost claim."""
    old = claimed()
    insert_all(engine, old)
    change = settling(old)

    assert engine.store.replace([change]) == [Applied()]
    assert engine.store.replace([change]) == [Conflict(change.new)]


def test_a_vanished_record_is_not_resurrected(engine: Engine) -> None:
    """A replace of a record that is gone is refused, and creates nothing."""
    old = claimed()
    insert_all(engine, old)
    engine.vanish(old.id)

    written = engine.store.replace([settling(old)])

    assert written == [Conflict(None)]
    assert engine.item(old.id) is None


def test_foreign_attributes_are_kept(engine: Engine) -> None:
    """Other attributes of an item survive a replace."""
    old = claimed()
    insert_all(engine, old)
    item = engine.item(old.id)
    assert item is not None
    engine.put(item | {"tenant": "blue", "tags": ["a", {"b": None}]})

    assert engine.store.replace([settling(old)]) == [Applied()]

    kept = engine.item(old.id)
    assert kept is not None
    assert (kept["tenant"], kept["tags"]) == ("blue", ["a", {"b": None}])
    assert kept["status"] == "COMPLETED"


@pytest.mark.parametrize("attributes", POWERTOOLS.values(), ids=POWERTOOLS)
def test_a_record_without_a_version_is_replaced_while_unchanged(engine: Engine, attributes: Item) -> None:
    """A record that Powertools wrote is replaced if nothing has changed since it was seen."""
    engine.put({"id": "key"} | attributes)
    (seen,) = engine.store.read(["key"])
    assert isinstance(seen, Record)
    assert seen == from_attributes({"id": "key"} | attributes)
    new = claimed()

    assert engine.store.replace([Change(new, seen)]) == [Applied()]
    assert engine.store.read(["key"]) == [new]


@pytest.mark.parametrize(("attributes", "changed"), [*changes_to_powertools_records()])
def test_a_record_without_a_version_is_fenced_by_what_it_says(engine: Engine, attributes: Item, changed: Item) -> None:
    """A record without a version has changed if a version has appeared, or its status, lease or expiration differs."""
    seen = from_attributes({"id": "key"} | attributes)
    engine.put({"id": "key"} | changed)

    written = engine.store.replace([Change(claimed(), seen)])

    assert written == [Conflict(from_attributes({"id": "key"} | changed))]
    assert engine.item("key") == {"id": "key"} | changed


def test_attributes_of_other_types_are_unreadable(engine: Engine) -> None:
    """A read and a refused write report an item whose attributes are not a record's."""
    engine.put({"id": "key", "status": "COMPLETED", "expiration": "tomorrow", "version": 7, "data": {"paid": True}})

    (found,) = engine.store.read(["key"])
    (written,) = engine.store.insert([claimed()])

    assert isinstance(found, Record)
    assert found.unreadable is not None
    assert all(name in found.unreadable for name in ("expiration", "version", "data"))
    assert written == Conflict(found)


@pytest.mark.parametrize("key", AWKWARD_KEYS.values(), ids=AWKWARD_KEYS)
def test_a_key_is_taken_as_it_is(engine: Engine, key: str) -> None:
    """Quotes, NUL, blanks and any alphabet in keys and values are data, and are not interpreted."""
    record = claimed(key, data=key, owner=key, validation=key)
    insert_all(engine, record)
    change = settling(record)

    assert engine.store.replace([change]) == [Applied()]
    assert engine.store.read([key]) == [change.new]
    assert engine.store.insert([claimed(key)]) == [Conflict(change.new)]


def test_large_numbers_are_exact(engine: Engine) -> None:
    """Times in milliseconds come back as the same integers."""
    record = claimed(in_progress_expiration=2**53 + 1, expiration=10**30)
    insert_all(engine, record)

    assert engine.store.read([record.id]) == [record]


# Many records


@pytest.mark.parametrize("count", [0, 1, 2, 25, 26, 60, 101])
def test_any_number_of_records(batching_engine: Engine, count: int) -> None:
    """Inserts, reads and replaces of any number are answered one by one, in order, and all take effect."""
    store = batching_engine.store
    records = [claimed(f"key-{number}", attempts=number) for number in range(count)]
    ids = [record.id for record in records]
    changes = [settling(record) for record in records]

    assert list(store.insert(records)) == [Applied()] * count
    assert list(store.read(ids)) == records
    assert list(store.replace(changes)) == [Applied()] * count
    assert list(store.read(ids)) == [change.new for change in changes]


def test_each_insert_has_its_own_answer(batching_engine: Engine) -> None:
    """Of 60 inserts, those with existing ids are refused in their places, and the others are applied."""
    there = [claimed(f"key-{number}") for number in range(0, 60, 7)]
    insert_all(batching_engine, *there)
    taken = {record.id: record for record in there}
    records = [claimed(f"key-{number}") for number in range(60)]

    written = batching_engine.store.insert(records)

    for record, answer in zip(records, written, strict=True):
        assert refused(answer, taken[record.id]) if record.id in taken else answer == Applied()
    expected = [taken.get(record.id, record) for record in records]
    assert list(batching_engine.store.read([record.id for record in records])) == expected


def test_each_replace_has_its_own_answer(batching_engine: Engine) -> None:
    """Of 60 replaces, some of them fenced or of deleted records, each answer is at its change's place."""
    store = batching_engine.store
    records = [claimed(f"key-{number}") for number in range(60)]
    insert_all(batching_engine, *records)
    fenced = {record.id: settled(record) for record in records[::7]}
    assert set(store.replace([Change(fenced[record.id], record) for record in records[::7]])) == {Applied()}
    vanished = {record.id for record in records[3::11] if record.id not in fenced}
    for id in vanished:
        batching_engine.vanish(id)
    changes = [settling(record) for record in records]

    written = store.replace(changes)

    for change, answer in zip(changes, written, strict=True):
        id = change.new.id
        if id in vanished:
            assert answer == Conflict(None)
        else:
            assert answer == (Conflict(fenced[id]) if id in fenced else Applied())
    expected = [None if change.new.id in vanished else fenced.get(change.new.id, change.new) for change in changes]
    assert list(store.read([change.new.id for change in changes])) == expected


def test_a_batch_holds_records_of_every_shape(batching_engine: Engine) -> None:
    """Records with and without optional attributes, Powertools' included, are replaced in one batch."""
    store = batching_engine.store
    written_by_us = [claimed("a"), claimed("b", owner=None, data="{}"), claimed("c", error="{}", validation=None)]
    insert_all(batching_engine, *written_by_us)
    for id, attributes in POWERTOOLS.items():
        batching_engine.put({"id": id, "tenant": "blue"} | attributes)
    seen = store.read([*"abc", *POWERTOOLS])
    changes = [Change(claimed(old.id, owner=None), old) for old in seen if isinstance(old, Record)]

    assert list(store.replace(changes)) == [Applied()] * (3 + len(POWERTOOLS))

    assert list(store.read([change.new.id for change in changes])) == [change.new for change in changes]
    kept = [batching_engine.item(id) for id in POWERTOOLS]
    assert all(item is not None and item["tenant"] == "blue" for item in kept)


def test_a_batch_fences_records_without_a_version(batching_engine: Engine) -> None:
    """In a batch too, a record that Powertools wrote is not replaced once anything about it has changed."""
    fenced = [case.values for case in changes_to_powertools_records()]
    for number, (_, changed) in enumerate(fenced):
        batching_engine.put({"id": f"key-{number}"} | changed)
    seen = [from_attributes({"id": f"key-{number}"} | attributes) for number, (attributes, _) in enumerate(fenced)]

    written = batching_engine.store.replace([Change(claimed(old.id), old) for old in seen])

    there = [from_attributes({"id": f"key-{number}"} | changed) for number, (_, changed) in enumerate(fenced)]
    assert list(written) == [Conflict(record) for record in there]


def test_awkward_keys_in_one_batch(batching_engine: Engine) -> None:
    """Keys that differ only in normal form, case or blanks are different records."""
    keys = [*AWKWARD_KEYS.values(), "größe", "GRÖSSE", "a", "a ", "a\x00", "?", "\ufffd"]
    records = [claimed(key, data=key) for key in keys]

    assert list(batching_engine.store.insert(records)) == [Applied()] * len(keys)
    assert list(batching_engine.store.read(keys)) == records


def test_a_read_answers_in_the_order_asked(batching_engine: Engine) -> None:
    """Records and missing records come in the order of the ids, over several requests."""
    records = {f"key-{number}": claimed(f"key-{number}") for number in range(0, 220, 3)}
    insert_all(batching_engine, *records.values())
    ids = [f"key-{number}" for number in reversed(range(220))]

    assert list(batching_engine.store.read(ids)) == [records.get(id) for id in ids]


def test_a_read_of_large_records_is_complete(batching_engine: Engine) -> None:
    """What exceeds one answer's 16 MB is read again: large records are neither absent nor unknown."""
    records = [claimed(f"key-{number}", data="x" * 390_000) for number in range(50)]
    for start in range(0, 50, 10):
        insert_all(batching_engine, *records[start : start + 10])

    assert list(batching_engine.store.read([record.id for record in records])) == records


# Transactions


@pytest.fixture
def claimed_record(engine: Engine) -> Record:
    """A record that is claimed, for a transaction to complete."""
    record = claimed()
    insert_all(engine, record)
    return record


def failing(engine: Engine, tx: Transaction, account: str) -> None:
    """Add a condition that fails."""
    tx.check(TableName=engine.accounts, Key={"account": account}, ConditionExpression="attribute_exists(account)")


def test_a_commit_writes_the_record_and_the_actions(engine: Engine, claimed_record: Record) -> None:
    """Put, update, delete and check take effect together with the record."""
    commit_one(engine.store, settling_one(engine, "before"), credit(engine, "old").actions)
    change = settling(claimed_record)
    tx = credit(engine)
    tx.put(TableName=engine.accounts, Item={"account": "bob", "tags": {"a"}, "raw": b"\x00", "nested": [{"x": None}]})
    tx.delete(TableName=engine.accounts, Key={"account": "old"})
    tx.check(TableName=engine.accounts, Key={"account": "x"}, ConditionExpression="attribute_not_exists(account)")

    assert commit_one(engine.store, change, tx.actions) == Applied()

    assert engine.store.read([claimed_record.id]) == [change.new]
    assert engine.account("alice") == {"account": "alice", "balance": 5}
    bob = engine.account("bob")
    assert bob is not None
    assert (bob["tags"], bob["nested"]) == ({"a"}, [{"x": None}])
    assert engine.account("old") is None


def settling_one(engine: Engine, id: str) -> Change:
    """A change that completes a record just claimed."""
    record = claimed(id)
    insert_all(engine, record)
    return settling(record)


def test_a_commit_without_actions(engine: Engine, claimed_record: Record) -> None:
    """A transaction in which the handler wrote nothing still completes the record."""
    change = settling(claimed_record)

    assert commit_one(engine.store, change, ()) == Applied()
    assert engine.store.read([claimed_record.id]) == [change.new]


@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_failed_condition_names_its_action(engine: Engine, claimed_record: Record, position: int) -> None:
    """If action number i of a transaction is refused, the answer is i, and neither record nor actions are written."""
    tx = Transaction()
    for number in range(3):
        if number == position:
            failing(engine, tx, "nobody")
        else:
            tx.put(TableName=engine.accounts, Item={"account": f"account-{number}"})

    assert commit_one(engine.store, settling(claimed_record), tx.actions) == ActionFailed(position)

    assert engine.store.read([claimed_record.id]) == [claimed_record]
    assert all(engine.account(f"account-{number}") is None for number in range(3))


def test_the_first_of_two_failed_conditions_is_reported(engine: Engine, claimed_record: Record) -> None:
    """If several conditions fail, the first in the handler's order is the answer."""
    tx = credit(engine)
    failing(engine, tx, "nobody")
    failing(engine, tx, "nobody else")

    assert commit_one(engine.store, settling(claimed_record), tx.actions) == ActionFailed(1)


def test_the_same_commit_twice_takes_effect_once(engine: Engine, claimed_record: Record) -> None:
    """A commit that is sent again has its effects once, and is recognised as its sender's own."""
    change, tx = settling(claimed_record), credit(engine)

    first = commit_one(engine.store, change, tx.actions)
    second = commit_one(engine.store, change, tx.actions)

    assert first == Applied()
    assert second in (Applied(), Conflict(change.new))
    assert engine.account("alice") == {"account": "alice", "balance": 5}


def test_a_commit_may_succeed_after_it_was_refused(engine: Engine, claimed_record: Record) -> None:
    """A refused transaction leaves no trace: once its condition holds, the same commit goes through."""
    change, tx = settling(claimed_record), credit(engine)
    failing(engine, tx, "bob")
    assert commit_one(engine.store, change, tx.actions) == ActionFailed(1)
    commit_one(engine.store, settling_one(engine, "another"), credit(engine, "bob").actions)

    assert commit_one(engine.store, change, tx.actions) == Applied()
    assert engine.account("alice") == {"account": "alice", "balance": 5}


def test_a_commit_after_a_take_over_is_refused(engine: Engine, claimed_record: Record) -> None:
    """A worker that has lost its claim writes nothing, and learns the new owner."""
    taken_over = claimed(attempts=2)
    engine.store.replace([Change(taken_over, claimed_record)])

    written = commit_one(engine.store, settling(claimed_record), credit(engine).actions)

    assert refused(written, taken_over)
    assert engine.store.read([claimed_record.id]) == [taken_over]
    assert engine.account("alice") is None


def test_a_lost_claim_goes_before_a_failed_condition(engine: Engine, claimed_record: Record) -> None:
    """If both the record and an action are refused, the answer is the record's, not the handler's failure."""
    taken_over = claimed(attempts=2)
    engine.store.replace([Change(taken_over, claimed_record)])
    tx = credit(engine)
    failing(engine, tx, "nobody")

    assert refused(commit_one(engine.store, settling(claimed_record), tx.actions), taken_over)


def test_a_commit_does_not_resurrect(engine: Engine, claimed_record: Record) -> None:
    """A commit whose record was deleted writes nothing."""
    engine.vanish(claimed_record.id)

    written = commit_one(engine.store, settling(claimed_record), credit(engine).actions)

    assert written == Conflict(None)
    assert engine.item(claimed_record.id) is None
    assert engine.account("alice") is None


def test_a_commit_keeps_foreign_attributes(engine: Engine, claimed_record: Record) -> None:
    """Other attributes of the record's item survive a commit."""
    item = engine.item(claimed_record.id)
    assert item is not None
    engine.put(item | {"tenant": "blue"})

    assert commit_one(engine.store, settling(claimed_record), credit(engine).actions) == Applied()

    kept = engine.item(claimed_record.id)
    assert kept is not None
    assert kept["tenant"] == "blue"
    assert "in_progress_expiration" not in kept


def test_two_actions_on_one_item_are_refused(engine: Engine, claimed_record: Record) -> None:
    """DynamoDB allows one action for an item: two are refused for good, and nothing is written."""
    tx = credit(engine)
    tx.put(TableName=engine.accounts, Item={"account": "alice", "balance": 0})

    written = commit_one(engine.store, settling(claimed_record), tx.actions)

    assert isinstance(written, NotApplied)
    assert not written.retry
    assert engine.store.read([claimed_record.id]) == [claimed_record]
    assert engine.account("alice") is None


def test_one_dict_filled_anew_for_debit_and_credit_is_a_debit_and_a_credit(
    engine: Engine, claimed_record: Record
) -> None:
    """The arguments are committed as they were at the call, although their dicts have changed since."""
    tx = Transaction()
    key: Item = {}
    values: Item = {}
    for account, amount in (("alice", -100), ("bob", 100)):
        key["account"], values[":amount"] = account, amount
        tx.update(
            TableName=engine.accounts,
            Key=key,
            UpdateExpression="ADD balance :amount",
            ExpressionAttributeValues=values,
        )
    key["account"], values[":amount"] = "eve", 1_000_000

    assert commit_one(engine.store, settling(claimed_record), tx.actions) == Applied()

    assert engine.account("alice") == {"account": "alice", "balance": -100}
    assert engine.account("bob") == {"account": "bob", "balance": 100}
    assert engine.account("eve") is None


BOOKING: Item = {"account": "", "balance": 0, "notes": [{"to": ""}]}
"""A template at module level, which every message's handler fills anew."""


def test_one_template_filled_anew_for_ten_messages_of_a_batch_books_each(batching_engine: Engine) -> None:
    """Each message commits its own values, while other handlers run."""

    def book(body: dict, tx: Transaction) -> None:  # type: ignore[type-arg]  # what users write
        BOOKING["account"], BOOKING["balance"] = body["account"], body["amount"]
        BOOKING["notes"][0]["to"] = body["account"]
        tx.put(TableName=batching_engine.accounts, Item=BOOKING)

    bodies = [{"account": f"account-{number}", "amount": number} for number in range(10)]
    messages = [sqs_record(f"message-{number}", json.dumps(body)) for number, body in enumerate(bodies)]

    answer = sqs_consumer(batching_engine.store)(book)({"Records": messages}, Context(ManualClock()))

    assert answer == {"batchItemFailures": []}
    for body in bodies:
        account = body["account"]
        booked = {"account": account, "balance": body["amount"], "notes": [{"to": account}]}
        assert batching_engine.account(str(account)) == booked


def test_what_a_table_holds_is_not_what_its_action_holds(engine: Engine, claimed_record: Record) -> None:
    """Changing an item in the table does not change a transaction that is sent again."""
    tx = Transaction()
    tx.put(TableName=engine.accounts, Item={"account": "alice", "lines": [{"n": 1}]})
    set_values: Item = {":lines": [{"n": 1}]}
    update: Item = {"UpdateExpression": "SET #l = :lines", "ExpressionAttributeNames": {"#l": "lines"}}
    tx.update(TableName=engine.accounts, Key={"account": "bob"}, **update, ExpressionAttributeValues=set_values)
    assert commit_one(engine.store, settling(claimed_record), tx.actions) == Applied()

    for account in ("alice", "bob"):
        item = engine.account(account)
        assert item is not None
        item["lines"][0]["n"] = 2

    put, updated = tx.actions
    assert put.arguments["Item"]["lines"] == updated.arguments["ExpressionAttributeValues"][":lines"] == [{"n": 1}]


# Several workers


def at_once(work: Callable[[int], Sequence[Written]], workers: int = 8) -> list[Sequence[Written]]:
    """The answers to several threads that start at the same moment."""
    barrier = Barrier(workers)

    def started(worker: int) -> Sequence[Written]:
        barrier.wait()
        return work(worker)

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(started, range(workers)))


@pytest.mark.parametrize("count", [1, 25])
def test_of_many_inserts_one_wins(shared_engine: Engine, count: int) -> None:
    """When 8 workers insert under the same ids at once, each id has one winner, whose record stays."""
    ids = [f"key-{number}" for number in range(count)]
    wanted = [[claimed(id, owner=str(worker)) for id in ids] for worker in range(8)]

    answers = at_once(lambda worker: shared_engine.store.insert(wanted[worker]))

    expected = [wanted[single_winner(answers, position)][position] for position in range(count)]
    assert list(shared_engine.store.read(ids)) == expected


@pytest.mark.parametrize("count", [1, 25])
def test_of_many_replaces_one_wins(shared_engine: Engine, count: int) -> None:
    """When 8 workers take over the same records at once, each record has one winner, whose version stays."""
    old = [claimed(f"key-{number}") for number in range(count)]
    insert_all(shared_engine, *old)
    wanted = [[Change(settled(record, owner=str(worker)), record) for record in old] for worker in range(8)]

    answers = at_once(lambda worker: shared_engine.store.replace(wanted[worker]))

    expected = [wanted[single_winner(answers, position)][position].new for position in range(count)]
    assert list(shared_engine.store.read([record.id for record in old])) == expected


def test_a_commit_and_take_overs_exclude_each_other(shared_engine: Engine) -> None:
    """A commit and 7 take-overs at once: one wins, and the handler's writes are there if and only if it was the commit.

    A store may throttle a contending commit, but must not apply half of it.
    """
    old = claimed()
    insert_all(shared_engine, old)
    changes = [Change(settled(old, owner=str(worker)), old) for worker in range(8)]
    actions = credit(shared_engine).actions

    def write(worker: int) -> Sequence[Written]:
        if worker:
            return shared_engine.store.replace([changes[worker]])
        written = commit_one(shared_engine.store, changes[0], actions)
        assert not isinstance(written, ActionFailed)
        return [written]

    answers = at_once(write)

    winners = [worker for worker, written in enumerate(answers) if written == [Applied()]]
    assert len(winners) == 1
    assert shared_engine.store.read([old.id]) == [changes[winners[0]].new]
    assert (shared_engine.account("alice") is not None) == (winners == [0])


def test_every_engine_can_commit(engine: Engine) -> None:
    """The contract's engines all offer transactions, so none of the tests above passes by leaving them out."""
    assert isinstance(engine.store, TransactionalStore)
