"""The store in memory: for tests, for trying things out, and as the reference that other stores are compared with."""

import threading
from collections.abc import Mapping, Sequence
from copy import copy, deepcopy
from typing import Any, Self

from idempotent_receiver.protocol.namespaces import checked, joined
from idempotent_receiver.protocol.record import ATTRIBUTES, Change, Record, attributes, from_attributes
from idempotent_receiver.protocol.store import ActionFailed, Applied, Commit, Conflict, NotApplied, Written
from idempotent_receiver.protocol.transaction import Action
from idempotent_receiver.testing.expressions import holds, updated

Item = dict[str, Any]


class MemoryStore:
    """A `RecordStore` in this process, atomic under threads. Its transactions work on in-memory tables.

    `tables` names the tables that a handler's `Transaction` may use, with their key attributes:
    `{"Accounts": "account_id", "Lines": ("order_id", "line")}`, or each as a `Table`, which may have items. Without it,
    a transaction may use any table, and the first action on a table defines the table's key: the action's `Key`, or the
    first attribute of its `Item`.
    """

    def __init__(
        self, namespace: str | None = None, tables: "Mapping[str, str | tuple[str, ...] | Table] | None" = None
    ) -> None:
        self.namespace = checked(namespace)
        self.items: dict[str, Item] = {}
        """The records' items by id, as a table would hold them: tests may look at them, and prepare them."""
        self.tables = {name: one if isinstance(one, Table) else Table(one) for name, one in (tables or {}).items()}
        """The tables of transactions, by name."""
        self._closed = tables is not None
        self._lock = threading.Lock()

    def named(self, name: str) -> Self:
        """The same table under a namespace of its own, for one more function: `orders` becomes `orders.{name}`."""
        other = copy(self)
        other.namespace = joined(self.namespace, name)
        return other

    @property
    def table_id(self) -> object:
        """What all stores of this table have in common."""
        return self._lock

    def insert(self, records: Sequence[Record]) -> Sequence[Written]:
        """Put each record where its id has none."""
        with self._lock:
            return [self._write(Change(record, None)) for record in records]

    def read(self, ids: Sequence[str]) -> Sequence[Record | None]:
        """What is there now."""
        with self._lock:
            return [self._found(id) for id in ids]

    def replace(self, changes: Sequence[Change]) -> Sequence[Written]:
        """Write each change whose expected attributes still stand."""
        with self._lock:
            return [self._write(change) for change in changes]

    def commit(self, commits: Sequence[Commit]) -> Sequence[Written | ActionFailed]:
        """Write each commit's change and all its actions, or nothing of it."""
        with self._lock:
            return [self._commit(change, actions) for change, actions in commits]

    def _commit(self, change: Change, actions: Sequence[Action]) -> Written | ActionFailed:
        try:
            places = self._places(actions)
            if not self._stands(change):
                return Conflict(self._found(change.new.id))
            befores = [self.tables[name].items.get(key) for name, key in places]
            for index, (action, before) in enumerate(zip(actions, befores, strict=True)):
                if not _allowed(action, before):
                    return ActionFailed(index)
            afters = [_outcome(action, before) for action, before in zip(actions, befores, strict=True)]
        except (KeyError, TypeError, ValueError) as error:
            return NotApplied(f"the transaction was refused: {error}", retry=False, own=True)
        for (name, key), item in zip(places, afters, strict=True):
            items = self.tables[name].items
            if item is None:
                items.pop(key, None)
            else:
                items[key] = item
        return self._write(change)

    def _found(self, id: str) -> Record | None:
        item = self.items.get(id)
        return None if item is None else from_attributes(item)

    def _stands(self, change: Change) -> bool:
        item = self.items.get(change.new.id, {})
        return all(item.get(name) == value for name, value in change.expected.items())

    def _write(self, change: Change) -> Written:
        if not self._stands(change):
            return Conflict(self._found(change.new.id))
        old = self.items.get(change.new.id, {})
        foreign = {name: value for name, value in old.items() if name not in ATTRIBUTES}
        self.items[change.new.id] = foreign | attributes(change.new)
        return Applied()

    def _places(self, actions: Sequence[Action]) -> "list[tuple[str, Key]]":
        """The table and the key of each action. Raises for actions that no transaction may hold, whatever is there."""
        places: list[tuple[str, Key]] = []
        for action in actions:
            name = action.arguments["TableName"]
            if self._closed and name not in self.tables:
                raise ValueError(f"there is no table {name!r}: MemoryStore(tables=...) names {sorted(self.tables)}")
            first = tuple(action.arguments["Item"])[:1] if action.kind == "Put" else tuple(action.arguments["Key"])
            key = self.tables.setdefault(name, Table(first)).key_of(action)
            if (name, key) in places:
                raise ValueError(f"two actions on one item of {name}: DynamoDB takes one action an item")
            places.append((name, key))
        return places


Key = tuple[object, ...]


class Table:
    """An in-memory table: its key's attribute names, and its items by the key's values.

    `Table("account", {"account": "alice", "balance": 100})` has an item. Raises KeyError for one without its key.
    """

    def __init__(self, key: str | tuple[str, ...], *items: Item) -> None:
        self.key = (key,) if isinstance(key, str) else tuple(key)
        self.items: dict[Key, Item] = {tuple(item[name] for name in self.key): dict(item) for item in items}

    def key_of(self, action: Action) -> Key:
        """The key that an action names; ValueError if an attribute is missing, TypeError if it cannot be a key."""
        part = "Item" if action.kind == "Put" else "Key"
        source = action.arguments[part]
        for name in self.key:
            if name not in source:
                raise ValueError(f"the {part} for {action.arguments['TableName']} lacks its key {name!r}")
            if isinstance(source[name], (dict, list, set)):
                raise TypeError(f"the key {name!r} must be a plain str, number or bytes: 'a', not {{'S': 'a'}}")
        return tuple(source[name] for name in self.key)


def _allowed(action: Action, before: Item | None) -> bool:
    condition, update = (action.arguments.get(name) for name in ("ConditionExpression", "UpdateExpression"))
    return condition is None or holds(condition, before, *_substitutes(action), shared_with=update)


def _outcome(action: Action, before: Item | None) -> Item | None:
    match action.kind:
        case "Put":
            # A copy: a test that changes the table's item does not change a commit that is sent again.
            return dict(deepcopy(action.arguments["Item"]))
        case "Update":
            return _updated(action, before)
        case "Delete":
            return None
        case "ConditionCheck":
            return before


def _updated(action: Action, before: Item | None) -> Item:
    key, condition = dict(action.arguments["Key"]), action.arguments.get("ConditionExpression")
    start = key if before is None else before
    after = updated(action.arguments["UpdateExpression"], start, *_substitutes(action), shared_with=condition)
    if any(after.get(name) != value for name, value in key.items()):
        raise ValueError("an update cannot change the key's attributes")
    return after


def _substitutes(action: Action) -> tuple[Mapping[str, str], Mapping[str, object]]:
    """What an action's #names and :values stand for."""
    given = action.arguments
    return given.get("ExpressionAttributeNames", {}), given.get("ExpressionAttributeValues", {})
