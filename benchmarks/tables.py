"""DynamoDB tables in memory: the operations that a consumer needs, with their conditions and their capacity units.

They keep real conditional semantics and are fast: an emulator answers some 6,000 statements a second, so it would
itself be what is measured. The store contract and a comparison with an emulator hold them to DynamoDB's behaviour. An
argument that is not known is refused, never ignored. Nothing here knows HTTP or time.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from botocore import xform_name

from benchmarks.partiql import BadStatement, Insert, parsed
from benchmarks.units import Item, Work, units
from benchmarks.writes import (
    CONDITION,
    CONDITION_FAILED,
    Refused,
    Stored,
    Table,
    Write,
    action_of,
    decided,
    inserted,
    replaced,
)
from idempotent_receiver.testing.expressions import ExpressionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.writes import Kind

    Request = Mapping[str, Any]

MOST_RESPONSE_BYTES = 16 * 1024 * 1024
MOST_TRANSACTION_BYTES = 4 * 1024 * 1024
MOST_ACTIONS = 100
LONGEST_TOKEN = 36

_IGNORED = {"ReturnConsumedCapacity"}
_OPERATIONS = {
    "CreateTable": {"TableName", "BillingMode", "AttributeDefinitions", "KeySchema"},
    "DeleteTable": {"TableName"},
    "PutItem": {"TableName", "Item"} | CONDITION,
    "UpdateItem": {"TableName", "Key", "UpdateExpression", "ReturnValues"} | CONDITION,
    "DeleteItem": {"TableName", "Key"} | CONDITION,
    "GetItem": {"TableName", "Key", "ConsistentRead"},
    "Scan": {"TableName", "ConsistentRead"},
    "BatchGetItem": {"RequestItems"},
    "BatchExecuteStatement": {"Statements"},
    "TransactWriteItems": {"TransactItems", "ClientRequestToken"},
}
"""The operations, each with the arguments that it takes here."""


@dataclass(slots=True)
class Bill:
    """The requests so far, and their capacity units."""

    requests: Counter[str] = field(default_factory=Counter)
    write_units: float = 0.0
    read_units: float = 0.0


class Tables:
    """All tables of one endpoint. Every request is atomic, because nothing in `execute` waits."""

    def __init__(self) -> None:
        self.tables: dict[str, Table] = {}
        self.bill = Bill()
        self._tokens: dict[str, Any] = {}

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
            write, code = inserted(table, meaning, values), "DuplicateItem"
        else:
            write, code = replaced(table, meaning, values), "ConditionalCheckFailed"
        self.bill.write_units += units(Work.WRITE, write.bytes)
        if write.allowed:
            write.apply()
            return {"TableName": table.name}
        error = {"Code": code, "Message": CONDITION_FAILED, **write.old_item(statement)}
        return {"TableName": table.name, "Error": error}

    def _transact_write_items(self, request: Request) -> dict[str, Any]:
        items, token = request["TransactItems"], request.get("ClientRequestToken")
        if not 1 <= len(items) <= MOST_ACTIONS:
            raise Refused("ValidationException", f"TransactWriteItems takes 1 to {MOST_ACTIONS} actions")
        if token is not None and not 1 <= len(token) <= LONGEST_TOKEN:
            raise Refused("ValidationException", f"A token has 1 to {LONGEST_TOKEN} characters")
        actions = [action_of(item) for item in items]
        writes = [self._write(kind, arguments) for kind, arguments in actions]
        if token in self._tokens:
            return self._replayed(self._tokens[token] == items, writes)
        _refuse_together(writes)
        self.bill.write_units += sum([units(Work.TRANSACTED_WRITE, write.bytes) for write in writes])
        if not all(write.allowed for write in writes):
            raise _cancelled([write.reason(each) for write, (_, each) in zip(writes, actions, strict=True)])
        for write in writes:
            write.apply()
        if token is not None:
            self._tokens[token] = items
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

    def _write_one(self, kind: Kind, request: Request) -> Write:
        write = self._write(kind, request)
        self.bill.write_units += units(Work.WRITE, write.bytes)
        if not write.allowed:
            raise Refused("ConditionalCheckFailedException", CONDITION_FAILED, **write.old_item(request))
        write.apply()
        return write

    def _write(self, kind: Kind, request: Request) -> Write:
        return decided(kind, self._table(request["TableName"]), request)

    def _bill_read(self, stored: Stored | None, request: Request) -> None:
        work = Work.CONSISTENT_READ if request.get("ConsistentRead") else Work.EVENTUAL_READ
        self.bill.read_units += units(work, stored.bytes if stored else 0)


def _refuse_together(writes: Sequence[Write]) -> None:
    """Refuse writes that may stand alone, and not in one transaction."""
    if len({(write.table.name, write.place) for write in writes}) < len(writes):
        raise Refused("ValidationException", "Transaction request cannot include multiple operations on one item")
    if sum([write.bytes for write in writes]) > MOST_TRANSACTION_BYTES:
        raise Refused("ValidationException", "Collection size has exceeded the maximum allowed size")


def _cancelled(reasons: Sequence[Mapping[str, Any]]) -> Refused:
    codes = ", ".join(reason["Code"] for reason in reasons)
    message = f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]"
    return Refused("TransactionCanceledException", message, CancellationReasons=reasons)
