"""The in-memory store: for tests and experiments, and as the reference for other stores."""

import threading
from collections.abc import Mapping, Sequence
from copy import copy, deepcopy
from decimal import Decimal
from typing import Any, Self

from idempotent_receiver.batch.settings import SendAnswer
from idempotent_receiver.protocol.limits import (
    MOST_ITEM_BYTES,
    MOST_NAME_BYTES,
    MOST_SORT_KEY_BYTES,
    UNSTORABLE,
    bytes_in,
    excess,
    key_refusal,
    too_large,
    unsendable,
)
from idempotent_receiver.protocol.namespaces import checked, joined
from idempotent_receiver.protocol.record import (
    ATTRIBUTES,
    MOST_KEY_BYTES,
    Change,
    Record,
    attributes,
    from_attributes,
)
from idempotent_receiver.protocol.store import (
    ActionFailed,
    Applied,
    Commit,
    Conflict,
    NotApplied,
    Unknown,
    Written,
    action_failed,
)
from idempotent_receiver.sqs.sends import sendable
from idempotent_receiver.testing.expressions import holds, updated, validate, written
from idempotent_receiver.transaction.action import Action
from idempotent_receiver.transaction.reads import PlainItem
from idempotent_receiver.transaction.transaction import MOST_ACTIONS
from idempotent_receiver.transaction.values import plain_copy

TableItem = dict[str, Any]


class MemoryStore:
    """A `RecordStore` in this process, atomic across threads. Its transactions use in-memory tables.

    `tables` names the tables that a handler's `Transaction` may use, with their key attributes:
    `{"Accounts": "account_id", "Lines": ("order_id", "line")}`, or each as a `Table`, which can contain items. Without
    `tables`, a transaction may use any table, and the first action on a table defines the table's key: the action's
    `Key`, or the first attribute of its `Item`.

    Requests that DynamoDB refuses regardless of its tables' content are refused here too, and at the same stage: before
    the record or any condition is checked. A key must have the same types as the keys of the table's items.
    """

    def __init__(
        self, namespace: str | None = None, tables: "Mapping[str, str | tuple[str, ...] | Table] | None" = None
    ) -> None:
        self.namespace = checked(namespace)
        self.items: dict[str, TableItem] = {}
        """Record items by id, as a table would hold them. Tests may read and change them."""
        self.tables = {name: one if isinstance(one, Table) else Table(one) for name, one in (tables or {}).items()}
        """The tables that transactions use, by name."""
        self.sent: list[dict[str, Any]] = []
        """SendMessage arguments of messages that handlers sent through their transactions. Nothing reaches SQS."""
        self._closed = tables is not None
        self._lock = threading.Lock()

    def named(self, name: str) -> Self:
        """A store of the same table with its own namespace, for another function: `orders` becomes `orders.{name}`."""
        other = copy(self)
        other.namespace = joined(self.namespace, name)
        return other

    @property
    def table_id(self) -> object:
        """Identifies the table: equal for all stores of this table."""
        return self._lock

    def insert(self, records: Sequence[Record]) -> Sequence[Written]:
        """Insert each record whose id is not in use."""
        with self._lock:
            return [self._write(Change(record, None)) for record in records]

    def read(self, ids: Sequence[str]) -> Sequence[Record | None]:
        """Read the current records."""
        with self._lock:
            return [self._found(id) for id in ids]

    def replace(self, changes: Sequence[Change]) -> Sequence[Written]:
        """Write each change whose expected attributes still match."""
        with self._lock:
            return [self._write(change) for change in changes]

    def get(self, table: str, key: PlainItem) -> PlainItem | Unknown | None:
        """Read the item with this key."""
        with self._lock:
            try:
                name, place = self._place(Action("ConditionCheck", {"TableName": table, "Key": key}))
                item, misfit = self.tables[name].items.get(place), self.tables[name].misfit(name, place)
                found = None if item is None else plain_copy(item, table)
            except (TypeError, ValueError) as error:
                found, misfit = None, str(error)
            return found if misfit is None else Unknown(f"get on {table}: {misfit}", retry=False)

    def send_messages(self, queue_url: str, messages: Sequence[tuple[str, Mapping[str, Any]]]) -> Sequence[SendAnswer]:
        """Keep the messages that handlers send, instead of sending them to SQS."""
        self.sent += [{"QueueUrl": queue_url, **sendable(queue_url, key, arguments)} for key, arguments in messages]
        return [SendAnswer(True)] * len(messages)

    def commit(self, commits: Sequence[Commit]) -> Sequence[Written | ActionFailed]:
        """For each commit, write its change and all its actions, or nothing."""
        with self._lock:
            return [self._commit(change, actions) for change, actions in commits]

    def _commit(self, change: Change, actions: Sequence[Action]) -> Written | ActionFailed:
        if (reason := _unstorable(change.new)) is not None:
            return NotApplied(reason, retry=False)
        try:
            places = self._places(actions)
            if not self._stands(change):
                return Conflict(self._found(change.new.id))
            befores = [self.tables[name].items.get(key) for name, key in places]
            misfits = [self.tables[name].misfit(name, key) for name, key in places]
            met = {
                index: before
                for index, (action, before) in enumerate(zip(actions, befores, strict=True))
                if misfits[index] is None and not _allowed(action, before)
            }
            failed = action_failed(actions, met) if met else None
            if failed is not None and failed.stale:
                return failed
            if misfit := next(filter(None, misfits), None):
                return _refused(misfit)
            afters = [
                before if index in met else _outcome(action, before)
                for index, (action, before) in enumerate(zip(actions, befores, strict=True))
            ]
            if failed is not None:
                return failed
        except (KeyError, TypeError, ValueError) as error:
            return _refused(error)
        for (name, key), item in zip(places, afters, strict=True):
            items = self.tables[name].items
            if item is None:
                items.pop(key, None)
            else:
                items[key] = item
        return self._applied(change)

    def _found(self, id: str) -> Record | None:
        item = self.items.get(id)
        return None if item is None else from_attributes(item)

    def _stands(self, change: Change) -> bool:
        item = self.items.get(change.new.id, {})
        return all(item.get(name) == value for name, value in change.expected.items())

    def _write(self, change: Change) -> Written:
        if (reason := _unstorable(change.new)) is not None:
            return NotApplied(reason, retry=False)
        if not self._stands(change):
            return Conflict(self._found(change.new.id))
        return self._applied(change)

    def _applied(self, change: Change) -> Applied:
        old = self.items.get(change.new.id, {})
        foreign = {name: value for name, value in old.items() if name not in ATTRIBUTES}
        self.items[change.new.id] = foreign | attributes(change.new)
        return Applied()

    def _places(self, actions: Sequence[Action]) -> "list[tuple[str, TableKey]]":
        """The table and key of each action. Raises for actions that no transaction may contain."""
        if len(actions) > MOST_ACTIONS:
            raise ValueError(f"it has {len(actions)} actions; DynamoDB allows {MOST_ACTIONS} besides the record's own")
        places: list[tuple[str, TableKey]] = []
        size = 0
        for number, action in enumerate(actions, 1):
            try:
                place = self._place(action)
                _validate(action)
                size += bytes_in(action)
            except (ArithmeticError, UnicodeEncodeError) as error:
                raise ValueError(f"{action.named(number)} {UNSTORABLE}") from error
            except (TypeError, ValueError) as error:
                raise ValueError(f"{action.named(number)}: {error}") from error
            if place in places:
                raise ValueError(f"two actions on one item in {place[0]}: DynamoDB allows one action per item")
            places.append(place)
        if size > MOST_ITEM_BYTES and (why := excess(actions)) is not None:
            raise ValueError(why)
        return places

    def _place(self, action: Action) -> "tuple[str, TableKey]":
        name = action.arguments["TableName"]
        if self._closed and name not in self.tables:
            raise ValueError(f"there is no table {name!r}: MemoryStore(tables=...) names {sorted(self.tables)}")
        first = tuple(action.arguments["Item"])[:1] if action.kind == "Put" else tuple(action.arguments["Key"])
        return name, self.tables.setdefault(name, Table(first)).key_of(action)


TableKey = tuple[object, ...]


class Table:
    """An in-memory table: the names of its key attributes, and its items by key values.

    `Table("account", {"account": "alice", "balance": 100})` has one item. Raises KeyError for an item without its key.
    """

    def __init__(self, key: str | tuple[str, ...], *items: TableItem) -> None:
        self.key = (key,) if isinstance(key, str) else tuple(key)
        self.items: dict[TableKey, TableItem] = {tuple(item[name] for name in self.key): dict(item) for item in items}

    def key_of(self, action: Action) -> TableKey:
        """The key that an action names. Raises TypeError or ValueError for a key that no item can have."""
        part = "Item" if action.kind == "Put" else "Key"
        source = action.arguments[part]
        for most, name in zip((MOST_KEY_BYTES, MOST_SORT_KEY_BYTES), self.key, strict=False):
            if name not in source:
                raise ValueError(f"the {part} lacks the table's key {name!r}")
            value = source[name]
            if isinstance(value, bool) or not isinstance(value, str | int | Decimal | bytes):
                raise TypeError(f"the key {name!r} must be a plain str, number or bytes: 'a', not {{'S': 'a'}}")
            if (why := key_refusal(name, value, most)) is not None:
                raise ValueError(why)
        if part == "Key" and (extra := sorted(source.keys() - set(self.key))):
            raise ValueError(
                f"the Key has {', '.join(map(repr, extra))} besides the table's key {', '.join(map(repr, self.key))}: "
                f"leave it out, or name the table's key in MemoryStore(tables=...)"
            )
        return tuple(source[name] for name in self.key)

    def misfit(self, name: str, key: TableKey) -> str | None:
        """How a key's types differ from the types in the table's items; None if they match. `name` names the table."""
        for attribute, value, other in zip(self.key, key, next(iter(self.items), key), strict=False):
            if _key_type(value) != _key_type(other):
                return f"the key {attribute!r} is {_key_type(other)} in {name}, but {_key_type(value)} here"
        return None


def _refused(why: object) -> NotApplied:
    return NotApplied(f"the transaction was refused: {why}", retry=False, own=True)


def _key_type(value: object) -> str:
    return "a str" if isinstance(value, str) else "bytes" if isinstance(value, bytes) else "a number"


def _unstorable(record: Record) -> str | None:
    """Why DynamoDB would not store a record."""
    item = attributes(record)
    (reason,) = unsendable([item.values()])
    # `size_bytes` counts zeros that DynamoDB trims.
    return reason or (too_large(item) if record.size_bytes > MOST_ITEM_BYTES else None)


def _validate(action: Action) -> None:
    """Refuse an action that DynamoDB always refuses, for reasons other than its key or size."""
    condition, update = _expressions(action)
    validate(condition, update, *_substitutes(action))
    _refuse_names(action.arguments.get("Item", {}))


def _refuse_names(value: object) -> None:
    match value:
        case dict():
            for name, held in value.items():
                if not 0 < len(name.encode()) <= MOST_NAME_BYTES:
                    raise ValueError(
                        f"an attribute name must have 1 to {MOST_NAME_BYTES} bytes; this one has {len(name)} characters"
                    )
                _refuse_names(held)
        case list():
            for held in value:
                _refuse_names(held)


def _allowed(action: Action, before: TableItem | None) -> bool:
    condition, _ = _expressions(action)
    return condition is None or holds(condition, before, *_substitutes(action))


def _outcome(action: Action, before: TableItem | None) -> TableItem | None:
    match action.kind:
        case "Put":
            # A copy, so that a test that changes the table's item does not change a retried commit.
            return dict(deepcopy(action.arguments["Item"]))
        case "Update":
            return _updated(action, before)
        case "Delete":
            return None
        case "ConditionCheck":
            return before


def _updated(action: Action, before: TableItem | None) -> TableItem:
    key = dict(action.arguments["Key"])
    update, (names, values) = action.arguments["UpdateExpression"], _substitutes(action)
    if rewritten := sorted(written(update, names) & key.keys()):
        raise ValueError(f"an update cannot write {', '.join(rewritten)}, which is part of the table's key")
    after = updated(update, key if before is None else before, names, values)
    if (why := too_large(after)) is not None:
        raise ValueError(f"Update on {action.arguments['TableName']}: {why}")
    return after


def _expressions(action: Action) -> tuple[str | None, str | None]:
    """An action's condition and update."""
    return action.arguments.get("ConditionExpression"), action.arguments.get("UpdateExpression")


def _substitutes(action: Action) -> tuple[Mapping[str, str], Mapping[str, object]]:
    """What an action's #names and :values stand for."""
    given = action.arguments
    return given.get("ExpressionAttributeNames", {}), given.get("ExpressionAttributeValues", {})
