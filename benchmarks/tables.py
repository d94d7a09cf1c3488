"""DynamoDB's tables in memory: the operations that a consumer's requests need, with their conditions, and their bill.

Real conditional semantics and nothing to spare: an emulator answers some 6,000 statements a second, so that a fast
client would be measured against the emulator. The store contract and a comparison with an emulator hold it to what
DynamoDB does; an argument that it does not know is refused, never passed over. Nothing here knows HTTP or time.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from benchmarks.partiql import BadStatement, Insert, Update, parsed
from benchmarks.units import Item, Work, item_bytes, units
from benchmarks.values import plain, typed
from idempotent_receiver.testing.expressions import ExpressionError, holds, updated

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

MOST_ITEM_BYTES = 400 * 1024
MOST_ANSWER_BYTES = 16 * 1024 * 1024
CONDITION_FAILED = "The conditional request failed"

_IGNORED = {"ReturnConsumedCapacity"}
_CONDITIONS = {"ConditionExpression", "ExpressionAttributeNames", "ExpressionAttributeValues"}
_TOLD = {"ReturnValuesOnConditionCheckFailure"}
_KNOWN = {
    "CreateTable": {"TableName", "BillingMode", "AttributeDefinitions", "KeySchema"},
    "DeleteTable": {"TableName"},
    "PutItem": {"TableName", "Item"} | _CONDITIONS | _TOLD,
    "UpdateItem": {"TableName", "Key", "UpdateExpression", "ReturnValues"} | _CONDITIONS | _TOLD,
    "DeleteItem": {"TableName", "Key"} | _CONDITIONS | _TOLD,
    "GetItem": {"TableName", "Key", "ConsistentRead"},
    "Scan": {"TableName", "ConsistentRead"},
    "BatchGetItem": {"RequestItems"},
    "BatchExecuteStatement": {"Statements"},
    "TransactWriteItems": {"TransactItems", "ClientRequestToken"},
}


class Refused(Exception):
    """An error that DynamoDB would answer: its code, and what its body holds besides."""

    def __init__(self, code: str, message: str, **beside: Any) -> None:
        super().__init__(message)
        self.code = code
        self.beside = beside


@dataclass(slots=True)
class Held:
    """An item that is there, and its size."""

    item: Item
    bytes: int


@dataclass(slots=True)
class Bill:
    """What was asked so far."""

    requests: Counter[str] = field(default_factory=Counter)
    write_units: float = 0.0
    read_units: float = 0.0


@dataclass(slots=True)
class Table:
    """One table: its key's attributes, and its items by their values."""

    name: str
    key: tuple[str, ...]
    held: dict[tuple[str, ...], Held] = field(default_factory=dict)

    def place(self, source: Mapping[str, Any]) -> tuple[str, ...]:
        """Where an item with this key is; a key of numbers or bytes is not among what is needed here."""
        try:
            return tuple(source[name]["S"] for name in self.key)
        except KeyError as missing:
            raise Refused("ValidationException", f"The key element {missing} does not match the schema") from None


@dataclass(frozen=True, slots=True)
class Write:
    """A write that has been decided: nothing has changed yet. `stands` says whether its condition held."""

    table: Table
    place: tuple[str, ...]
    before: Held | None
    after: Held | None
    stands: bool

    @property
    def bytes(self) -> int:
        """What it is billed by."""
        return max(self.before.bytes if self.before else 0, self.after.bytes if self.after else 0)

    def apply(self) -> None:
        """Let it take effect."""
        if self.after is None:
            self.table.held.pop(self.place, None)
        else:
            self.table.held[self.place] = self.after


class Tables:
    """All tables of one endpoint. `execute` is the one way in; nothing in it waits, so every request is atomic."""

    def __init__(self) -> None:
        self.tables: dict[str, Table] = {}
        self.bill = Bill()
        self._tokens: dict[str, str] = {}
        self._operations: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "CreateTable": self._create_table,
            "DeleteTable": self._delete_table,
            "PutItem": self._put_item,
            "UpdateItem": self._update_item,
            "DeleteItem": self._delete_item,
            "GetItem": self._get_item,
            "Scan": self._scan,
            "BatchGetItem": self._batch_get_item,
            "BatchExecuteStatement": self._batch_execute_statement,
            "TransactWriteItems": self._transact_write_items,
        }

    def execute(self, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a request, or raise `Refused`."""
        if operation not in self._operations:
            raise Refused("UnknownOperationException", f"{operation} is not spoken here")
        self.bill.requests[operation] += 1
        if unknown := request.keys() - _KNOWN[operation] - _IGNORED:
            raise Refused("ValidationException", f"not known here: {', '.join(sorted(unknown))}")
        try:
            return self._operations[operation](request)
        except (ExpressionError, BadStatement) as error:
            raise Refused("ValidationException", str(error)) from error

    # Operations.

    def _create_table(self, request: Mapping[str, Any]) -> dict[str, Any]:
        name = request["TableName"]
        if name in self.tables:
            raise Refused("ResourceInUseException", f"Table already exists: {name}")
        self.tables[name] = Table(name, tuple(part["AttributeName"] for part in request["KeySchema"]))
        return {"TableDescription": {"TableName": name, "TableStatus": "ACTIVE"}}

    def _delete_table(self, request: Mapping[str, Any]) -> dict[str, Any]:
        name = self._table(request["TableName"]).name
        del self.tables[name]
        return {"TableDescription": {"TableName": name, "TableStatus": "DELETING"}}

    def _put_item(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self._write_one(self._put(request), request)
        return {}

    def _update_item(self, request: Mapping[str, Any]) -> dict[str, Any]:
        write = self._update(request)
        self._write_one(write, request)
        match request.get("ReturnValues", "NONE"):
            case "NONE":
                return {}
            case "ALL_OLD":
                return {"Attributes": write.before.item} if write.before else {}
        raise Refused("ValidationException", "ReturnValues: only NONE and ALL_OLD are known here")

    def _delete_item(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self._write_one(self._delete(request), request)
        return {}

    def _get_item(self, request: Mapping[str, Any]) -> dict[str, Any]:
        table = self._table(request["TableName"])
        held = table.held.get(table.place(request["Key"]))
        self._bill_read(held, consistent=bool(request.get("ConsistentRead")))
        return {} if held is None else {"Item": held.item}

    def _scan(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """All items at once and unbilled: for whoever checks what a run has left behind."""
        items = [held.item for held in self._table(request["TableName"]).held.values()]
        return {"Items": items, "Count": len(items), "ScannedCount": len(items)}

    def _batch_get_item(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if not 1 <= sum(len(asked["Keys"]) for asked in request["RequestItems"].values()) <= 100:
            raise Refused("ValidationException", "BatchGetItem takes 1 to 100 keys")
        responses: dict[str, list[Item]] = {}
        unprocessed: dict[str, Any] = {}
        size = 0
        for name, asked in request["RequestItems"].items():
            table, found, left = self._table(name), responses.setdefault(name, []), []
            for key in asked["Keys"]:
                held = table.held.get(table.place(key))
                size += held.bytes if held else 0
                if size > MOST_ANSWER_BYTES:
                    left.append(key)
                    continue
                self._bill_read(held, consistent=bool(asked.get("ConsistentRead")))
                found += [held.item] if held else []
            if left:
                unprocessed[name] = {**asked, "Keys": left}
        return {"Responses": responses, "UnprocessedKeys": unprocessed}

    def _batch_execute_statement(self, request: Mapping[str, Any]) -> dict[str, Any]:
        statements = request["Statements"]
        if not 1 <= len(statements) <= 25:
            raise Refused("ValidationException", "BatchExecuteStatement takes 1 to 25 statements")
        return {"Responses": [self._statement(statement) for statement in statements]}

    def _transact_write_items(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if not 1 <= len(request["TransactItems"]) <= 100:
            raise Refused("ValidationException", "TransactWriteItems takes 1 to 100 actions")
        token, text = request.get("ClientRequestToken"), json.dumps(request["TransactItems"], sort_keys=True)
        actions = [next(iter(action.items())) for action in request["TransactItems"]]
        writes = [self._action(kind, arguments) for kind, arguments in actions]
        if token is not None and token in self._tokens:
            return self._replayed(self._tokens[token] == text, writes)
        if len({(write.table.name, write.place) for write in writes}) < len(writes):
            raise Refused("ValidationException", "Transaction request cannot include multiple operations on one item")
        self.bill.write_units += sum(units(Work.TRANSACTED_WRITE, write.bytes) for write in writes)
        if not all(write.stands for write in writes):
            reasons = [_reason(write, arguments) for write, (_, arguments) in zip(writes, actions, strict=True)]
            raise Refused("TransactionCanceledException", "Transaction cancelled", CancellationReasons=reasons)
        for write in writes:
            write.apply()
        if token is not None:
            self._tokens[token] = text
        return {}

    # Their parts.

    def _table(self, name: str) -> Table:
        if name not in self.tables:
            raise Refused("ResourceNotFoundException", f"Requested resource not found: {name}")
        return self.tables[name]

    def _put(self, request: Mapping[str, Any]) -> Write:
        table, item = self._table(request["TableName"]), request["Item"]
        place = table.place(item)
        before = table.held.get(place)
        return Write(table, place, before, _held(item), _stands(request, before))

    def _update(self, request: Mapping[str, Any]) -> Write:
        table, key = self._table(request["TableName"]), request["Key"]
        place = table.place(key)
        before = table.held.get(place)
        if not _stands(request, before):
            return Write(table, place, before, before, stands=False)
        start = plain(before.item if before else key)
        condition = request.get("ConditionExpression")
        new = updated(request["UpdateExpression"], start, *_substitutions(request), shared_with=condition)
        return Write(table, place, before, _held(typed(new)), stands=True)

    def _delete(self, request: Mapping[str, Any]) -> Write:
        table = self._table(request["TableName"])
        place = table.place(request["Key"])
        before = table.held.get(place)
        return Write(table, place, before, None, _stands(request, before))

    def _check(self, request: Mapping[str, Any]) -> Write:
        table = self._table(request["TableName"])
        place = table.place(request["Key"])
        before = table.held.get(place)
        return Write(table, place, before, before, _stands(request, before))

    def _action(self, kind: str, arguments: Mapping[str, Any]) -> Write:
        decide = {"Put": self._put, "Update": self._update, "Delete": self._delete, "ConditionCheck": self._check}
        return decide[kind](arguments)

    def _write_one(self, write: Write, request: Mapping[str, Any]) -> None:
        self.bill.write_units += units(Work.WRITE, write.bytes)
        if not write.stands:
            tells = request.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD" and write.before is not None
            beside = {"Item": write.before.item} if tells and write.before else {}
            raise Refused("ConditionalCheckFailedException", CONDITION_FAILED, **beside)
        write.apply()

    def _statement(self, statement: Mapping[str, Any]) -> dict[str, Any]:
        meaning, values = parsed(statement["Statement"]), statement["Parameters"]
        table = self._table(meaning.table)
        if isinstance(meaning, Insert):
            write, error = _inserted(table, meaning, values), {"Code": "DuplicateItem"}
        else:
            write, error = _replaced(table, meaning, values), {"Code": "ConditionalCheckFailed"}
        self.bill.write_units += units(Work.WRITE, write.bytes)
        if write.stands:
            write.apply()
            return {"TableName": table.name}
        told: dict[str, Any] = {**error, "Message": CONDITION_FAILED}
        if statement.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD" and write.before is not None:
            told["Item"] = write.before.item
        return {"TableName": table.name, "Error": told}

    def _replayed(self, same: bool, writes: Sequence[Write]) -> dict[str, Any]:
        if not same:
            raise Refused("IdempotentParameterMismatchException", "The token was used for another transaction")
        self.bill.read_units += sum(units(Work.TRANSACTED_READ, write.bytes) for write in writes)
        return {}

    def _bill_read(self, held: Held | None, *, consistent: bool) -> None:
        work = Work.CONSISTENT_READ if consistent else Work.EVENTUAL_READ
        self.bill.read_units += units(work, held.bytes if held else 0)


def _held(item: Item) -> Held:
    size = item_bytes(item)
    if size > MOST_ITEM_BYTES:
        raise Refused("ValidationException", "Item size has exceeded the maximum allowed size")
    return Held(item, size)


def _inserted(table: Table, insert: Insert, values: Sequence[Any]) -> Write:
    item = dict(zip(insert.names, values, strict=True))
    place = table.place(item)
    before = table.held.get(place)
    return Write(table, place, before, _held(item), stands=before is None)


def _replaced(table: Table, update: Update, values: Sequence[Any]) -> Write:
    put = dict(zip(update.put, values, strict=False))
    expected = dict(zip(update.standing, values[len(update.put) :], strict=True))
    place = table.place(expected)
    before = table.held.get(place)
    there = before.item if before else {}
    stands = before is not None and not any(name in there for name in update.missing)
    if not stands or not all(name in there and _same(there[name], value) for name, value in expected.items()):
        return Write(table, place, before, before, stands=False)
    after = {name: value for name, value in there.items() if name not in update.removed}
    return Write(table, place, before, _held(after | put), stands=True)


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    if one == other:
        return True
    return bool("N" in one and "N" in other and plain({"": dict(one)}) == plain({"": dict(other)}))


def _stands(request: Mapping[str, Any], before: Held | None) -> bool:
    condition = request.get("ConditionExpression")
    if condition is None:
        return True
    item = None if before is None else plain(before.item)
    return holds(condition, item, *_substitutions(request), shared_with=request.get("UpdateExpression"))


def _substitutions(request: Mapping[str, Any]) -> tuple[Mapping[str, str], Mapping[str, object]]:
    return request.get("ExpressionAttributeNames", {}), plain(request.get("ExpressionAttributeValues", {}))


def _reason(write: Write, arguments: Mapping[str, Any]) -> dict[str, Any]:
    if write.stands:
        return {"Code": "None"}
    reason: dict[str, Any] = {"Code": "ConditionalCheckFailed", "Message": CONDITION_FAILED}
    if arguments.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD" and write.before is not None:
        reason["Item"] = write.before.item
    return reason
