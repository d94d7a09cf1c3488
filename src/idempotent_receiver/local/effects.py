"""Determines the effects of messages on tables by comparison with fault-free runs. Pure.

What else a stack holds has a table's form here: see content.py.

Two fault-free runs show what can be compared. Differences between them, such as times, random values or order, say
nothing about faults. Everything else must be the same after a run with faults.
"""

import re
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import pairwise
from operator import itemgetter
from typing import Any, NamedTuple

TypedItem = Mapping[str, Mapping[str, Any]]
"""An item in DynamoDB's form: `{"cents": {"N": "5"}}`."""


class TableContent(NamedTuple):
    """A table's items, and its key attributes. Without a key, equal items are told apart only by their number."""

    key: tuple[str, ...]
    items: Sequence[TypedItem]


ContentByTable = Mapping[str, TableContent]
"""The content of each table, by logical id."""


class Attribute(NamedTuple):
    """A table's attribute, with its path inside documents. An empty path stands for the table's number of items."""

    table: str
    path: str = ""

    def __str__(self) -> str:
        return f"{self.table}.{self.path}" if self.path else f"{self.table} (number of items)"


ItemKey = tuple[tuple[str, Hashable], ...]


class ItemPlace(NamedTuple):
    """The table's item with this key; without a key, all items whose keys only one run created."""

    table: str
    key: ItemKey

    def __str__(self) -> str:
        return " ".join([self.table, *(f"{name}={value}" for name, value in self.key)])


Content = frozenset[tuple[str, Hashable]]
"""An item's comparable content."""


class Difference(NamedTuple):
    """A difference from the fault-free run: in a value at a path or, without a path, in the number of items."""

    place: ItemPlace
    path: str
    expected: Hashable
    found: Hashable

    def __str__(self) -> str:
        was, is_now = ("none" if each is None else each for each in (self.expected, self.found))
        what = f"{self.path} is {is_now}" if self.path else f"{is_now} {'item' if is_now == 1 else 'items'}"
        return f"{self.place}: {what}, but {was} in fault-free runs"


Changes = Mapping[ItemPlace, Mapping[str, Decimal]]
"""A message's changes, by place and path: the amount added to a number, and 1 for anything else."""


class Step(NamedTuple):
    """The tables before and after the messages with these names were handled."""

    names: Sequence[str]
    before: ContentByTable
    after: ContentByTable


@dataclass(frozen=True)
class Reference:
    """The tables after a fault-free run, what cannot be compared in them, and each message's changes."""

    tables: ContentByTable
    incomparable: frozenset[Attribute]
    places: frozenset[ItemPlace]
    """The places whose keys every run creates."""
    changes: Mapping[str, Changes] = field(default_factory=dict)

    def differences(self, found: ContentByTable) -> list[Difference]:
        """The differences between `found` and the reference."""
        expected, present = self._contents(self.tables), self._contents(found)
        both = dict.fromkeys([*expected, *present])
        return [each for place in both for each in _differences(place, expected.get(place), present.get(place))]

    def changes_of(self, step: Step) -> Changes:
        """The changes made in a step."""
        return _changes(self._contents(step.before), self._contents(step.after))

    def _contents(self, tables: ContentByTable) -> dict[ItemPlace, Counter[Content]]:
        """The comparable content of each item, by place."""
        found: dict[ItemPlace, Counter[Content]] = {}
        for name, table in tables.items():
            for item in () if Attribute(name) in self.incomparable else table.items:
                content = _comparable(name, item, self.incomparable)
                place = _place(name, table, item, self.incomparable)
                found.setdefault(place if place in self.places else ItemPlace(name, ()), Counter())[content] += 1
        return found


def referred(steps: Sequence[Step], again: ContentByTable) -> Reference:
    """The reference, built from one run's steps and another run's result."""
    last = steps[-1].after
    one, other = _values(last), _values(again)
    differing = {
        each for each in {*one, *other} if one.get(each) != other.get(each) or any(map(_is_time, one.get(each, ())))
    }
    both = {inner for path in {*one} & {*other} for inner in _inner(path)}
    incomparable = frozenset(_general(each, both) for each in differing)

    def compared(incomparable: frozenset[Attribute]) -> Reference:
        return Reference(last, incomparable, frozenset(_places(last, incomparable) & _places(again, incomparable)))

    reference = compared(incomparable)
    # The same values may end up in different items: for example, running balances depend on the order.
    while swapped := {_general(Attribute(each.place.table, each.path), both) for each in reference.differences(again)}:
        reference = compared(reference.incomparable | swapped)
    changes: dict[str, dict[ItemPlace, Mapping[str, Decimal]]] = {}
    for step in steps:
        for name in step.names:
            changes.setdefault(name, {}).update(reference.changes_of(step))
    return replace(reference, changes=changes)


def added(expected: Hashable, found: Hashable) -> Decimal:
    """The growth of a number, and 1 for anything else."""
    if isinstance(expected, Decimal | None) and isinstance(found, Decimal | None):
        return (found or Decimal(0)) - (expected or Decimal(0))
    return Decimal(1)


ELEMENT, PATH_PART = re.compile(r"\[\d+\]"), re.compile(r"\.|\Z")


def _inner(attribute: Attribute) -> Iterator[Attribute]:
    """Each document that contains an attribute, then the attribute itself; all elements of a list count as one."""
    path = ELEMENT.sub("[*]", attribute.path)
    yield from (attribute._replace(path=path[: each.start()]) for each in PATH_PART.finditer(path))


def _covering(table: str, path: str) -> Iterator[Attribute]:
    """The attributes that must all be comparable for `path` to be compared."""
    *documents, whole = _inner(Attribute(table, path))
    yield from (whole, *(each._replace(path=f"{each.path}.*") for each in documents))


def _general(attribute: Attribute, both: AbstractSet[Attribute]) -> Attribute:
    """The attribute that represents this one in every run: a list's elements are unordered, and if a document's names
    vary, `*` covers them all.
    """
    *documents, whole = _inner(attribute)
    open_ones = (each for each, inner in pairwise([*documents, whole]) if inner not in both)
    document = next(open_ones, None)
    return whole if document is None else document._replace(path=f"{document.path}.*")


def _values(tables: ContentByTable) -> dict[Attribute, Counter[Hashable]]:
    found: dict[Attribute, Counter[Hashable]] = {}
    for name, table in tables.items():
        found[Attribute(name)] = Counter([Decimal(len(table.items))])
        for item in table.items:
            for path, value in _flat(item):
                found.setdefault(Attribute(name, path), Counter())[value] += 1
    return found


def _comparable(name: str, item: TypedItem, incomparable: AbstractSet[Attribute]) -> Content:
    return frozenset(each for each in _flat(item) if incomparable.isdisjoint(_covering(name, each[0])))


def _places(tables: ContentByTable, incomparable: AbstractSet[Attribute]) -> set[ItemPlace]:
    return {_place(name, table, item, incomparable) for name, table in tables.items() for item in table.items}


def _place(name: str, table: TableContent, item: TypedItem, incomparable: AbstractSet[Attribute]) -> ItemPlace:
    if not table.key:  # its content is its place, so that a second one is blamed on who wrote the first
        return ItemPlace(name, tuple(sorted(_comparable(name, item, incomparable), key=itemgetter(0))))
    values = dict(_flat(item))
    return ItemPlace(name, tuple((part, values[part]) for part in table.key))


def _differences(
    place: ItemPlace, expected: Counter[Content] | None, found: Counter[Content] | None
) -> Iterator[Difference]:
    was, is_now = expected or Counter(), found or Counter()
    if was.total() != is_now.total():
        yield Difference(place, "", Decimal(was.total()), Decimal(is_now.total()))
    elif was != is_now:
        # With several items, equal ones are matched first; the rest are compared in any order.
        for one, other in zip((was - is_now).elements(), (is_now - was).elements(), strict=True):
            left, right = dict(one), dict(other)
            for path in sorted({*left, *right}):
                if left.get(path) != right.get(path):
                    yield Difference(place, path, left.get(path), right.get(path))


def _changes(
    before: Mapping[ItemPlace, Counter[Content]], after: Mapping[ItemPlace, Counter[Content]]
) -> dict[ItemPlace, dict[str, Decimal]]:
    found: dict[ItemPlace, dict[str, Decimal]] = {}
    for place in {*before, *after}:
        was, is_now = before.get(place, Counter()), after.get(place, Counter())
        if was != is_now:
            left, right = (dict(next(iter(each), frozenset())) for each in (was - is_now, is_now - was))
            paths = [path for path in {*left, *right} if left.get(path) != right.get(path)]
            found[place] = {path: added(left.get(path), right.get(path)) for path in paths}
            found[place][""] = Decimal(is_now.total() - was.total())
    return found


def _flat(item: TypedItem) -> Iterator[tuple[str, Hashable]]:
    for name, value in item.items():
        yield from _leaves(name, value)


def _leaves(path: str, value: Mapping[str, Any]) -> Iterator[tuple[str, Hashable]]:
    ((kind, content),) = value.items()
    if kind == "M":
        for name, each in content.items():
            yield from _leaves(f"{path}.{name}", each)
    elif kind == "L":
        yield f"{path}[]", Decimal(len(content))
        for place, each in enumerate(content):
            yield from _leaves(f"{path}[{place}]", each)
    elif kind == "N":
        yield path, Decimal(content)
    elif kind in ("SS", "NS", "BS"):
        yield path, frozenset(content)
    else:
        yield path, content


# Seconds or milliseconds, from 2014 to 2052. Coarse times may be equal in two runs by chance.
EPOCH_SECONDS = range(1_400_000_000, 2_600_000_000)
WRITTEN_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d")


def _is_time(value: Hashable) -> bool:
    if isinstance(value, Decimal):
        return any(int(value / unit) in EPOCH_SECONDS for unit in (1, 1_000))
    return isinstance(value, str) and WRITTEN_TIME.match(value) is not None
