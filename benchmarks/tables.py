"""DynamoDB tables in memory: the operations that a consumer needs, with their conditions and their capacity units.

They keep real conditional semantics and are fast: an emulator answers some 6,000 statements a second, so it would
itself be what is measured. The store contract and a comparison with an emulator hold them to DynamoDB's behaviour. An
argument that is not known is refused, never ignored. Nothing here knows HTTP or time.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from botocore import xform_name

from benchmarks.partiql import BadStatement, Insert, Update, parsed
from benchmarks.units import Item, Work, item_bytes, units
from benchmarks.values import plain, typed
from idempotent_receiver.testing.expressions import ExpressionError, holds, updated

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Request = Mapping[str, Any]

MOST_ITEM_BYTES = 400 * 1024
MOST_RESPONSE_BYTES = 16 * 1024 * 1024
CONDITION_FAILED = "The conditional request failed"

_IGNORED = {"ReturnConsumedCapacity"}
_CONDITION = {
    "ConditionExpression",
    "ExpressionAttributeNames",
    "ExpressionAttributeValues",
    "ReturnValuesOnConditionCheckFailure",
}
_OPERATIONS = {
    "CreateTable": {"TableName", "BillingMode", "AttributeDefinitions", "KeySchema"},
    "DeleteTable": {"TableName"},
    "PutItem": {"TableName", "Item"} | _CONDITION,
    "UpdateItem": {"TableName", "Key", "UpdateExpression", "ReturnValues"} | _CONDITION,
    "DeleteItem": {"TableName", "Key"} | _CONDITION,
    "GetItem": {"TableName", "Key", "ConsistentRead"},
    "Scan": {"TableName", "ConsistentRead"},
    "BatchGetItem": {"RequestItems"},
    "BatchExecuteStatement": {"Statements"},
    "TransactWriteItems": {"TransactItems", "ClientRequestToken"},
}
"""The operations, each with the arguments that it takes here."""


class Refused(Exception):
    """An error that DynamoDB would return: its code, its message, and the other fields of its body."""

    def __init__(self, code: str, message: str, **beside: Any) -> None:
        super().__init__(message)
        self.code = code
        self.beside = beside


@dataclass(frozen=True, slots=True)
class Stored:
    """An item in a table, and its size."""

    item: Item
    bytes: int


@dataclass(slots=True)
class Bill:
    """The requests so far, and their capacity units."""

    requests: Counter[str] = field(default_factory=Counter)
    write_units: float = 0.0
    read_units: float = 0.0


@dataclass(slots=True)
class Table:
    """One table: the names of its key's attributes, and its items by their values."""

    name: str
    key: tuple[str, ...]
    items: dict[tuple[str, ...], Stored] = field(default_factory=dict)

    def place(self, source: Request) -> tuple[str, ...]:
        """The key of an item. Only strings are supported as keys."""
        try:
            return tuple(source[name]["S"] for name in self.key)
        except KeyError as missing:
            raise Refused("ValidationException", f"The key element {missing} does not match the schema") from None


@dataclass(frozen=True, slots=True)
class Write:
    """A write that has been decided and not yet applied. `allowed` says whether its condition held."""

    table: Table
    place: tuple[str, ...]
    before: Stored | None
    after: Stored | None
    allowed: bool

    @property
    def bytes(self) -> int:
        """The size that is billed."""
        return max(self.before.bytes if self.before else 0, self.after.bytes if self.after else 0)

    def apply(self) -> None:
        """Let the write take effect."""
        if self.after is None:
            self.table.items.pop(self.place, None)
        else:
            self.table.items[self.place] = self.after

    def old_item(self, request: Request) -> dict[str, Any]:
        """What the error for a failed condition returns of the item, if the request asks for it."""
        wanted = request.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
        return {"Item": self.before.item} if wanted and self.before else {}


class Tables:
    """All tables of one endpoint. Every request is atomic, because nothing in `execute` waits."""

    def __init__(self) -> None:
        self.tables: dict[str, Table] = {}
        self.bill = Bill()
        self._tokens: dict[str, str] = {}

    def execute(self, operation: str, request: Request) -> dict[str, Any]:
        """Answer a request, or raise `Refused`."""
        if operation not in _OPERATIONS:
            raise Refused("UnknownOperationException", f"{operation} is not supported here")
        self.bill.requests[operation] += 1
        if unknown := request.keys() - _OPERATIONS[operation] - _IGNORED:
            raise Refused("ValidationException", f"not supported here: {', '.join(sorted(unknown))}")
        try:
            answer: dict[str, Any] = getattr(self, f"_{xform_name(operation)}")(request)
        except (ExpressionError, BadStatement) as error:
            raise Refused("ValidationException", str(error)) from error
        return answer

    def _create_table(self, request: Request) -> dict[str, Any]:
        name = request["TableName"]
        if name in self.tables:
            raise Refused("ResourceInUseException", f"Table already exists: {name}")
        self.tables[name] = Table(name, tuple(part["AttributeName"] for part in request["KeySchema"]))
        return {"TableDescription": {"TableName": name, "TableStatus": "ACTIVE"}}

    def _delete_table(self, request: Request) -> dict[str, Any]:
        name = self._table(request["TableName"]).name
        del self.tables[name]
        return {"TableDescription": {"TableName": name, "TableStatus": "DELETING"}}

    def _put_item(self, request: Request) -> dict[str, Any]:
        self._write_one("Put", request)
        return {}

    def _update_item(self, request: Request) -> dict[str, Any]:
        write = self._write_one("Update", request)
        match request.get("ReturnValues", "NONE"):
            case "NONE":
                return {}
            case "ALL_OLD":
                return {"Attributes": write.before.item} if write.before else {}
        raise Refused("ValidationException", "ReturnValues: only NONE and ALL_OLD are supported here")

    def _delete_item(self, request: Request) -> dict[str, Any]:
        self._write_one("Delete", request)
        return {}

    def _get_item(self, request: Request) -> dict[str, Any]:
        table = self._table(request["TableName"])
        stored = table.items.get(table.place(request["Key"]))
        self._bill_read(stored, request)
        return {} if stored is None else {"Item": stored.item}

    def _scan(self, request: Request) -> dict[str, Any]:
        """All items on one page and without a bill, for checks of what a run has left behind."""
        items = [stored.item for stored in self._table(request["TableName"]).items.values()]
        return {"Items": items, "Count": len(items), "ScannedCount": len(items)}

    def _batch_get_item(self, request: Request) -> dict[str, Any]:
        if not 1 <= sum(len(keys["Keys"]) for keys in request["RequestItems"].values()) <= 100:
            raise Refused("ValidationException", "BatchGetItem takes 1 to 100 keys")
        responses: dict[str, list[Item]] = {}
        unprocessed: dict[str, Any] = {}
        size = 0
        for name, wanted in request["RequestItems"].items():
            table, found, left = self._table(name), responses.setdefault(name, []), []
            for key in wanted["Keys"]:
                stored = table.items.get(table.place(key))
                size += stored.bytes if stored else 0
                if size > MOST_RESPONSE_BYTES:
                    left.append(key)
                    continue
                self._bill_read(stored, wanted)
                found += [stored.item] if stored else []
            if left:
                unprocessed[name] = {**wanted, "Keys": left}
        return {"Responses": responses, "UnprocessedKeys": unprocessed}

    def _batch_execute_statement(self, request: Request) -> dict[str, Any]:
        if not 1 <= len(request["Statements"]) <= 25:
            raise Refused("ValidationException", "BatchExecuteStatement takes 1 to 25 statements")
        return {"Responses": [self._statement(statement) for statement in request["Statements"]]}

    def _statement(self, statement: Request) -> dict[str, Any]:
        meaning, values = parsed(statement["Statement"]), statement["Parameters"]
        table = self._table(meaning.table)
        if isinstance(meaning, Insert):
            write, code = _inserted(table, meaning, values), "DuplicateItem"
        else:
            write, code = _replaced(table, meaning, values), "ConditionalCheckFailed"
        self.bill.write_units += units(Work.WRITE, write.bytes)
        if write.allowed:
            write.apply()
            return {"TableName": table.name}
        error = {"Code": code, "Message": CONDITION_FAILED, **write.old_item(statement)}
        return {"TableName": table.name, "Error": error}

    def _transact_write_items(self, request: Request) -> dict[str, Any]:
        if not 1 <= len(request["TransactItems"]) <= 100:
            raise Refused("ValidationException", "TransactWriteItems takes 1 to 100 actions")
        token, text = request.get("ClientRequestToken"), json.dumps(request["TransactItems"], sort_keys=True)
        actions = [next(iter(action.items())) for action in request["TransactItems"]]
        writes = [self._write(kind, arguments) for kind, arguments in actions]
        if token is not None and token in self._tokens:
            return self._replayed(self._tokens[token] == text, writes)
        if len({(write.table.name, write.place) for write in writes}) < len(writes):
            raise Refused("ValidationException", "Transaction request cannot include multiple operations on one item")
        self.bill.write_units += sum(units(Work.TRANSACTED_WRITE, write.bytes) for write in writes)
        if not all(write.allowed for write in writes):
            reasons = [_reason(write, arguments) for write, (_, arguments) in zip(writes, actions, strict=True)]
            raise Refused("TransactionCanceledException", "Transaction cancelled", CancellationReasons=reasons)
        for write in writes:
            write.apply()
        if token is not None:
            self._tokens[token] = text
        return {}

    def _replayed(self, same: bool, writes: Sequence[Write]) -> dict[str, Any]:
        if not same:
            raise Refused("IdempotentParameterMismatchException", "The token was used for another transaction")
        self.bill.read_units += sum(units(Work.TRANSACTED_READ, write.bytes) for write in writes)
        return {}

    def _table(self, name: str) -> Table:
        if name not in self.tables:
            raise Refused("ResourceNotFoundException", f"Requested resource not found: {name}")
        return self.tables[name]

    def _write_one(self, kind: str, request: Request) -> Write:
        write = self._write(kind, request)
        self.bill.write_units += units(Work.WRITE, write.bytes)
        if not write.allowed:
            raise Refused("ConditionalCheckFailedException", CONDITION_FAILED, **write.old_item(request))
        write.apply()
        return write

    def _write(self, kind: str, request: Request) -> Write:
        table = self._table(request["TableName"])
        place = table.place(request["Item" if kind == "Put" else "Key"])
        before = table.items.get(place)
        allowed = _condition_holds(request, before)
        match kind:
            case "Put":
                after: Stored | None = _sized(request["Item"])
            case "Delete":
                after = None
            case "Update" if allowed:
                after = _updated(request, before)
            case _:
                after = before
        return Write(table, place, before, after, allowed)

    def _bill_read(self, stored: Stored | None, request: Request) -> None:
        work = Work.CONSISTENT_READ if request.get("ConsistentRead") else Work.EVENTUAL_READ
        self.bill.read_units += units(work, stored.bytes if stored else 0)


def _sized(item: Item) -> Stored:
    size = item_bytes(item)
    if size > MOST_ITEM_BYTES:
        raise Refused("ValidationException", "Item size has exceeded the maximum allowed size")
    return Stored(item, size)


def _inserted(table: Table, insert: Insert, values: Sequence[Any]) -> Write:
    item = dict(zip(insert.names, values, strict=True))
    place = table.place(item)
    before = table.items.get(place)
    return Write(table, place, before, _sized(item), allowed=before is None)


def _replaced(table: Table, update: Update, values: Sequence[Any]) -> Write:
    put = dict(zip(update.put, values, strict=False))
    expected = dict(zip(update.expected, values[len(update.put) :], strict=True))
    place = table.place(expected)
    before = table.items.get(place)
    old = before.item if before else {}
    allowed = before is not None and not any(name in old for name in update.missing)
    if not allowed or not all(name in old and _same(old[name], value) for name, value in expected.items()):
        return Write(table, place, before, before, allowed=False)
    kept = {name: value for name, value in old.items() if name not in update.removed}
    return Write(table, place, before, _sized(kept | put), allowed=True)


def _updated(request: Request, before: Stored | None) -> Stored:
    old = plain(before.item if before else request["Key"])
    condition = request.get("ConditionExpression")
    new = updated(request["UpdateExpression"], old, *_substitutions(request), shared_with=condition)
    return _sized(typed(new))


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one == other or ("N" in one and "N" in other and plain({"": one}) == plain({"": other}))


def _condition_holds(request: Request, before: Stored | None) -> bool:
    condition = request.get("ConditionExpression")
    if condition is None:
        return True
    item = None if before is None else plain(before.item)
    return holds(condition, item, *_substitutions(request), shared_with=request.get("UpdateExpression"))


def _substitutions(request: Request) -> tuple[Mapping[str, str], Mapping[str, object]]:
    return request.get("ExpressionAttributeNames", {}), plain(request.get("ExpressionAttributeValues", {}))


def _reason(write: Write, arguments: Request) -> dict[str, Any]:
    if write.allowed:
        return {"Code": "None"}
    return {"Code": "ConditionalCheckFailed", "Message": CONDITION_FAILED, **write.old_item(arguments)}
