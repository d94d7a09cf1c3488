"""What every store promises, checked on every engine.

A refused write may or may not return the record that is there; after `Conflict(None)` the protocol reads. No store may
answer for another record, or answer wrongly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver.protocol.record import Change, Record, from_attributes
from idempotent_receiver.protocol.store import Applied, Conflict
from tests.engines.engine import SQL
from tests.engines.sample_records import at_once, claimed, insert_all, refused, settled, settling, single_winner

if TYPE_CHECKING:
    from collections.abc import Iterator

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


@pytest.fixture
def engine(any_engine: Engine) -> Engine:
    return any_engine


@pytest.fixture
def shared_engine(any_shared_engine: Engine) -> Engine:
    return any_shared_engine


def require_storable(engine: Engine, value: str | int) -> None:
    """Skip what a relational database has no type for; its store refuses such a key, and no number gets so large."""
    if isinstance(engine, SQL) and (
        value == 10**30 or (engine.engine.dialect.name == "postgresql" and "\0" in str(value))
    ):
        pytest.skip("this database cannot hold that")


# One record


@pytest.mark.parametrize("expiration", [1, 10**30])
def test_a_record_is_inserted_only_where_there_is_none(engine: Engine, expiration: int) -> None:
    """A read returns every attribute as it was, large numbers too. A second insert under the id is refused, returns the
    first's record, and changes nothing, although the first has expired: TTL is not the clock.
    """
    require_storable(engine, expiration)
    record = claimed(data='{"a": "\\u0000"}', error="{}", in_progress_expiration=2**53 + 1, expiration=expiration)
    assert engine.store.read([record.id]) == [None]

    assert engine.store.insert([record]) == [Applied()]
    assert engine.store.insert([claimed()]) == [Conflict(record)]

    assert engine.store.read([record.id]) == [record]


def test_a_record_is_replaced_whole(item_engine: Engine) -> None:
    """A replace sets what the new record has, removes what it has not, and leaves the item's other attributes."""
    old, foreign = claimed(error="{}"), {"tenant": "blue", "tags": ["a", {"b": None}]}
    insert_all(item_engine, old)
    item_engine.put(item_engine.item(old.id) | foreign)  # type: ignore[operator]  # it is there
    new = settled(old, error=None, owner=None, expiration=0, attempts=0)

    assert item_engine.store.replace([Change(new, old)]) == [Applied()]

    assert item_engine.store.read([old.id]) == [new]
    item: Any = item_engine.item(old.id)
    assert item | foreign == item
    assert not {"error", "owner", "in_progress_expiration"} & item.keys()


def test_a_replaced_version_fences(engine: Engine) -> None:
    """A replace that names a version which is gone is refused, returns what is there, and changes nothing. One that is
    sent again finds its own version, which distinguishes a lost answer from a lost claim.
    """
    old = claimed()
    insert_all(engine, old)
    taking_over = Change(claimed(attempts=2), old)

    assert engine.store.replace([taking_over]) == [Applied()]
    for late in (settling(old), taking_over):
        assert engine.store.replace([late]) == [Conflict(taking_over.new)]
    assert engine.store.read([old.id]) == [taking_over.new]


def test_a_vanished_record_is_not_resurrected(engine: Engine) -> None:
    """A replace of a record that is gone is refused, and creates nothing."""
    assert engine.store.replace([settling(claimed())]) == [Conflict(None)]
    assert engine.item("key") is None


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


def test_attributes_of_other_types_are_unreadable(item_engine: Engine) -> None:
    """A read and a refused write report an item whose attributes are not a record's."""
    item_engine.put(
        {"id": "key", "status": "COMPLETED", "expiration": "tomorrow", "version": 7, "data": {"paid": True}}
    )

    (found,) = item_engine.store.read(["key"])
    (written,) = item_engine.store.insert([claimed()])

    assert isinstance(found, Record)
    assert found.unreadable is not None
    assert all(name in found.unreadable for name in ("expiration", "version", "data"))
    assert written == Conflict(found)


@pytest.mark.parametrize("key", AWKWARD_KEYS.values(), ids=AWKWARD_KEYS)
def test_a_key_is_taken_as_it_is(engine: Engine, key: str) -> None:
    """Quotes, NUL, blanks and any alphabet in keys and values are data, and are not interpreted."""
    require_storable(engine, key)
    record = claimed(key, data=key, owner=key, validation=key)
    insert_all(engine, record)
    change = settling(record)

    assert engine.store.replace([change]) == [Applied()]
    assert engine.store.read([key]) == [change.new]
    assert engine.store.insert([claimed(key)]) == [Conflict(change.new)]


# Many records


@pytest.mark.parametrize("count", [0, 1, 2, 25, 26, 60, 101])
def test_any_number_of_records(engine: Engine, count: int) -> None:
    """Inserts, reads and replaces of any number are answered one by one, in order, and all take effect."""
    store = engine.store
    records = [claimed(f"key-{number}", attempts=number) for number in range(count)]
    ids = [record.id for record in records]
    changes = [settling(record) for record in records]

    assert list(store.insert(records)) == [Applied()] * count
    assert list(store.read(ids)) == records
    assert list(store.replace(changes)) == [Applied()] * count
    assert list(store.read(ids)) == [change.new for change in changes]


def test_each_insert_has_its_own_answer(engine: Engine) -> None:
    """Of 60 inserts, those with existing ids are refused in their places, and the others are applied."""
    there = [claimed(f"key-{number}") for number in range(0, 60, 7)]
    insert_all(engine, *there)
    taken = {record.id: record for record in there}
    records = [claimed(f"key-{number}") for number in range(60)]

    written = engine.store.insert(records)

    for record, answer in zip(records, written, strict=True):
        assert refused(answer, taken[record.id]) if record.id in taken else answer == Applied()
    expected = [taken.get(record.id, record) for record in records]
    assert list(engine.store.read([record.id for record in records])) == expected


def test_each_replace_has_its_own_answer(engine: Engine) -> None:
    """Of 60 replaces, some of them fenced or of deleted records, each answer is at its change's place."""
    store = engine.store
    records = [claimed(f"key-{number}") for number in range(60)]
    insert_all(engine, *records)
    fenced = {record.id: settled(record) for record in records[::7]}
    assert set(store.replace([Change(fenced[record.id], record) for record in records[::7]])) == {Applied()}
    vanished = {record.id for record in records[3::11] if record.id not in fenced}
    for id in vanished:
        engine.vanish(id)
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


def test_a_batch_holds_records_of_every_shape(item_engine: Engine) -> None:
    """Records with and without optional attributes, Powertools' included, are replaced in one batch."""
    store = item_engine.store
    written_by_us = [claimed("a"), claimed("b", owner=None, data="{}"), claimed("c", error="{}", validation=None)]
    insert_all(item_engine, *written_by_us)
    for id, attributes in POWERTOOLS.items():
        item_engine.put({"id": id, "tenant": "blue"} | attributes)
    seen = store.read([*"abc", *POWERTOOLS])
    changes = [Change(claimed(old.id, owner=None), old) for old in seen if isinstance(old, Record)]

    assert list(store.replace(changes)) == [Applied()] * (3 + len(POWERTOOLS))

    assert list(store.read([change.new.id for change in changes])) == [change.new for change in changes]
    kept = [item_engine.item(id) for id in POWERTOOLS]
    assert all(item is not None and item["tenant"] == "blue" for item in kept)


def test_a_batch_fences_records_without_a_version(engine: Engine) -> None:
    """In a batch too, a record that Powertools wrote is not replaced once anything about it has changed."""
    fenced = [case.values for case in changes_to_powertools_records()]
    for number, (_, changed) in enumerate(fenced):
        engine.put({"id": f"key-{number}"} | changed)
    seen = [from_attributes({"id": f"key-{number}"} | attributes) for number, (attributes, _) in enumerate(fenced)]

    written = engine.store.replace([Change(claimed(old.id), old) for old in seen])

    there = [from_attributes({"id": f"key-{number}"} | changed) for number, (_, changed) in enumerate(fenced)]
    assert list(written) == [Conflict(record) for record in there]


def test_awkward_keys_in_one_batch(engine: Engine) -> None:
    """Keys that differ only in normal form, case or blanks are different records."""
    keys = [*AWKWARD_KEYS.values(), "größe", "GRÖSSE", "a", "a ", "A", "a\x00", "?", "\ufffd"]
    if isinstance(engine, SQL) and engine.engine.dialect.name == "postgresql":
        keys = [key for key in keys if "\0" not in key]
    records = [claimed(key, data=key) for key in keys]

    assert list(engine.store.insert(records)) == [Applied()] * len(keys)
    assert list(engine.store.read(keys)) == records


def test_a_read_answers_in_the_order_asked(engine: Engine) -> None:
    """Records and missing records come in the order of the ids, over several requests."""
    records = {f"key-{number}": claimed(f"key-{number}") for number in range(0, 220, 3)}
    insert_all(engine, *records.values())
    ids = [f"key-{number}" for number in reversed(range(220))]

    assert list(engine.store.read(ids)) == [records.get(id) for id in ids]


def test_a_read_of_large_records_is_complete(engine: Engine) -> None:
    """What exceeds one answer's 16 MB is read again: large records are neither absent nor unknown."""
    records = [claimed(f"key-{number}", data="x" * 390_000) for number in range(50)]
    for start in range(0, 50, 10):
        insert_all(engine, *records[start : start + 10])

    assert list(engine.store.read([record.id for record in records])) == records


# Several workers


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
