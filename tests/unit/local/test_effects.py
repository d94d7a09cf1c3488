"""What tables hold is compared with runs without faults: all that two of those agree on, and nothing else."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from idempotent_receiver.local.effects import ContentByTable, ItemPlace, Step, TableContent, referred


def entries(*items: dict[str, Any], key: tuple[str, ...] = ("id",)) -> ContentByTable:
    return {"Entries": TableContent(key, items)}


def entry(id: str, of: str, cents: int, **more: Any) -> dict[str, Any]:
    return {"id": {"S": id}, "of": {"S": of}, "cents": {"N": str(cents)}, **more}


def compared(one: ContentByTable, other: ContentByTable, found: ContentByTable) -> tuple[list[str], list[str]]:
    """What differs, and what is not comparable."""
    reference = referred([Step(["order.json"], entries(), one)], other)
    return [str(each) for each in reference.differences(found)], sorted(map(str, reference.incomparable))


def test_random_keys_are_named_and_the_rest_of_the_items_is_compared() -> None:
    one, other = (
        entries(entry("x1", "alice", 5), entry("x2", "bob", 7)),
        entries(entry("x3", "bob", 7), entry("x4", "alice", 5)),
    )
    assert compared(one, other, entries(entry("x5", "alice", 5), entry("x6", "bob", 7))) == ([], ["Entries.id"])
    doubled = entries(entry("x5", "alice", 5), entry("x6", "alice", 5), entry("x7", "bob", 7))
    assert compared(one, other, doubled)[0] == ["Entries: 3 items, but 2 in fault-free runs"]
    changed = entries(entry("x5", "alice", 10), entry("x6", "bob", 7))
    assert compared(one, other, changed)[0] == ["Entries: cents is 10, but 5 in fault-free runs"]


def test_keys_that_every_run_makes_are_compared_beside_random_ones() -> None:
    """As in one table for several kinds of items."""
    one, other = (entries(entry("total", "alice", 5), entry(each, "alice", 5)) for each in ("x1", "x2"))
    found = entries(entry("total", "alice", 10), entry("x3", "alice", 5))
    assert compared(one, other, found)[0] == ["Entries id=total: cents is 10, but 5 in fault-free runs"]


@pytest.mark.parametrize(
    "value",
    [{"N": "1795454924"}, {"N": "1795454924955"}, {"N": "1795454924.9"}, {"S": "2026-11-20T10:15:00Z"}],
    ids=["seconds", "milliseconds", "fractions", "text"],
)
def test_times_are_named_and_not_compared(value: dict[str, str]) -> None:
    """Even where two runs agree: in a third, the minute may be another."""
    one = entries(entry("a", "alice", 5, at=value, meta={"M": {"seen": value}}))
    later = entries(entry("a", "alice", 5, at={"S": "later"}, meta={"M": {"seen": {"S": "later"}}}))
    assert compared(one, one, later) == ([], ["Entries.at", "Entries.meta.seen"])


def test_what_depends_on_the_order_is_named_and_not_compared() -> None:
    one, other = (entries(entry("a", "alice", 5, last={"S": each})) for each in ("order", "other"))
    assert compared(one, other, entries(entry("a", "alice", 5, last={"S": "third"}))) == ([], ["Entries.last"])


def balances(*items: tuple[str, str, int]) -> ContentByTable:
    """Under these keys, the balance after each order."""
    return entries(*({"id": {"S": id}, "of": {"S": of}, "after": {"N": str(after)}} for id, of, after in items))


@pytest.mark.parametrize("random", [False, True])
def test_values_that_are_in_other_items_in_another_order_are_not_compared(*, random: bool) -> None:
    """As the balance after each of two orders of the same amount."""

    def keyed(run: str, first: int, second: int) -> ContentByTable:
        prefix = run if random else ""
        return balances((f"{prefix}a", "a", first), (f"{prefix}b", "b", second))

    one, other = keyed("x", 5, 10), keyed("y", 10, 5)
    for again in (keyed("z", 5, 10), keyed("z", 10, 5)):
        assert compared(one, other, again)[0] == []


def test_a_list_in_another_order_is_compared_by_its_length() -> None:
    """Though its middle is the same in both orders."""

    def listed(*orders: str) -> ContentByTable:
        return entries(entry("x", "alice", 5, orders={"L": [{"S": each} for each in orders]}))

    one, other = listed("a", "b", "c"), listed("c", "b", "a")
    assert compared(one, other, listed("b", "c", "a")) == ([], ["Entries.orders[*]"])
    longer = ["Entries id=x: orders[] is 4, but 3 in fault-free runs"]
    assert compared(one, other, listed("a", "b", "c", "a"))[0] == longer


def test_elements_are_compared_but_for_what_differs_in_them() -> None:
    def listed(id: str, sku: str) -> ContentByTable:
        return entries(entry("x", "alice", 5, lines={"L": [{"M": {"id": {"S": id}, "sku": {"S": sku}}}]}))

    differs, named = compared(listed("x1", "pen"), listed("x2", "pen"), listed("x3", "ink"))
    assert (differs, named) == (
        ["Entries id=x: lines[0].sku is ink, but pen in fault-free runs"],
        ["Entries.lines[*].id"],
    )


def test_random_names_in_a_document_are_not_compared() -> None:
    def logged(*names: str) -> ContentByTable:
        log = {"M": {name: {"M": {"by": {"S": "us"}}} for name in names}}
        return entries(entry("a", "alice", 5, log=log))

    assert compared(logged("x1", "x2"), logged("x3", "x4"), logged("x5", "x6")) == ([], ["Entries.log.*"])


def test_a_number_of_items_that_differs_without_faults_is_not_compared() -> None:
    one, other = entries(entry("x1", "alice", 5)), entries()
    differs, named = compared(one, other, entries(entry("x1", "alice", 5), entry("x2", "alice", 5)))
    assert (differs, named[0]) == ([], "Entries (number of items)")


def test_numbers_are_compared_by_value_and_documents_by_their_parts() -> None:
    def item(number: str, *lines: str) -> dict[str, Any]:
        listed = {"L": [{"M": {"sku": {"S": each}}} for each in lines]}
        return {**entry("a", "alice", 5), "sum": {"N": number}, "lines": listed, "tags": {"SS": ["x", "y"]}}

    one = entries(item("1.50", "pen"))
    assert compared(one, one, entries(item("1.5", "pen")))[0] == []
    assert compared(one, one, entries(item("1.5", "pen", "pen")))[0] == [
        "Entries id=a: lines[1].sku is pen, but none in fault-free runs",
        "Entries id=a: lines[] is 2, but 1 in fault-free runs",
    ]


def test_a_set_has_no_order() -> None:
    one, other = (entries(entry("a", "alice", 5, tags={"SS": each})) for each in (["x", "y"], ["y", "x"]))
    assert compared(one, one, other) == ([], [])
    assert compared(one, one, entries(entry("a", "alice", 5, tags={"SS": ["x"]})))[0] != []


def test_an_attribute_that_comes_with_faults_alone_differs() -> None:
    one = entries(entry("a", "alice", 5))
    retried = entries(entry("a", "alice", 5, retries={"N": "1"}))
    assert compared(one, one, retried)[0] == ["Entries id=a: retries is 1, but none in fault-free runs"]


def test_a_message_is_known_by_what_it_changes() -> None:
    """Not by what stands beside that."""
    before, after = entries(entry("a", "alice", 5)), entries(entry("a", "alice", 12), entry("b", "bob", 1))
    reference = referred([Step(["first.json"], entries(), before), Step(["second.json"], before, after)], after)
    a, b = (ItemPlace("Entries", (("id", id),)) for id in "ab")
    assert reference.changes["second.json"][a] == {"cents": Decimal(7), "": Decimal(0)}
    assert {*reference.changes["second.json"]} == {a, b}
    assert reference.changes["second.json"][b][""] == 1
    assert {*reference.changes["first.json"]} == {a}


def test_what_a_message_has_changed_in_two_steps_is_all_its_own() -> None:
    """As one that failed halfway, and came again."""
    empty, half = entries(), entries(entry("a", "alice", 5))
    whole = entries(entry("a", "alice", 5), entry("b", "bob", 1))
    reference = referred([Step(["one.json"], empty, half), Step(["one.json"], half, whole)], whole)
    assert {place.key for place in reference.changes["one.json"]} == {(("id", id),) for id in "ab"}
