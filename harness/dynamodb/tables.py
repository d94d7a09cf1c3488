"""In-memory DynamoDB tables: the operations that a consumer needs, with conditions and capacity units.

They have real conditional semantics and are fast: an emulator answers some 6,000 statements per second, so it would be
the bottleneck being measured. The store contract and comparisons with DynamoDB Local verify them against DynamoDB. An
unknown argument is refused, never ignored. Nothing here knows HTTP. Time, and other conditions of a service (concurrent
requests, low capacity), come in through `Surroundings`.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from botocore import xform_name

from harness.dynamodb.partiql import BadStatement, parsed
from harness.dynamodb.units import Item, Work, units
from harness.dynamodb.writes import (
    CONDITION,
    CONDITION_FAILED,
    Asked,
    KeyChanged,
    Misfit,
    Refused,
    Stored,
    Table,
    Write,
    action_of,
    asked,
    decided,
)
from idempotent_receiver.testing.expressions import ExpressionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.dynamodb.writes import Kind

    Request = Mapping[str, Any]
    Place = tuple[str, ...]

MOST_RESPONSE_BYTES = 16 * 1024 * 1024
MOST_TRANSACTION_BYTES = 4 * 1024 * 1024
MOST_ACTIONS = 100
LONGEST_TOKEN = 36
TOKEN_SECONDS = 600
"""How long a token is remembered. Source: API reference, TransactWriteItems, ClientRequestToken."""

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
"""The operations, each with its supported arguments."""


@dataclass(slots=True)
class Bill:
    """The requests so far, and their capacity units."""

    requests: Counter[str] = field(default_factory=Counter)
    write_units: float = 0.0
    read_units: float = 0.0


class Surroundings:
    """Conditions of a service. By default there are none: every request is atomic, because nothing in `execute`
    waits.
    """

    def seconds(self) -> float:
        """The time, from an arbitrary start."""
        return time.monotonic()

    def between(self) -> None:
        """Called between two items of a request, and during a transaction: other requests may be served here."""

    def refusal(self, table: str, place: Place) -> str | None:
        """The error code that prevents this item from being read or written now, as in a batch's answer."""
        return None

    def written(self, writes: Sequence[Write]) -> None:
        """Called when these writes have taken effect, all at once."""


@dataclass(slots=True)
class Token:
    """A transaction sent with a token, and when it took effect; before that, it is in progress."""

    items: Any
    at: float | None = None


class Tables:
    """All tables of one endpoint."""

    def __init__(self, surroundings: Surroundings | None = None) -> None:
        self.tables: dict[str, Table] = {}
        self.bill = Bill()
        self.around = Surroundings() if surroundings is None else surroundings
        self._tokens: dict[str, Token] = {}
        self._under_way: set[tuple[str, Place]] = set()
        """The items of transactions in progress: other writes to them conflict."""

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
        place = table.place(request["Key"])
        if len(request["Key"]) != len(table.key):
            raise Refused("ValidationException", "The provided key element does not match the schema")
        stored = table.items.get(place)
        self._bill_read(stored, request)
        return {} if stored is None else {"Item": stored.item}

    def _scan(self, request: Request) -> dict[str, Any]:
        """All items on one page, without capacity units, for checks of a run's result."""
        items = [stored.item for stored in self._table(request["TableName"]).items.values()]
        return {"Items": items, "Count": len(items), "ScannedCount": len(items)}

    def _batch_get_item(self, request: Request) -> dict[str, Any]:
        """Keys that are refused now are left unprocessed; if all are, the request is refused."""
        wanted = [
            (self._table(name), keys, key) for name, keys in request["RequestItems"].items() for key in keys["Keys"]
        ]
        if not 1 <= len(wanted) <= 100:
            raise Refused("ValidationException", "BatchGetItem takes 1 to 100 keys")
        places = [table.place(key) for table, _, key in wanted]
        _refuse_duplicates([(table.name, place) for (table, _, _), place in zip(wanted, places, strict=True)])
        responses: dict[str, list[Item]] = {name: [] for name in request["RequestItems"]}
        unprocessed: dict[str, Any] = {}
        size = 0
        for number, ((table, keys, key), place) in enumerate(zip(wanted, places, strict=True)):
            if number:
                self.around.between()
            stored = table.items.get(place)
            size += stored.bytes if stored else 0
            if size > MOST_RESPONSE_BYTES or self.around.refusal(table.name, place) is not None:
                unprocessed.setdefault(table.name, {**keys, "Keys": []})["Keys"].append(key)
                continue
            self._bill_read(stored, keys)
            responses[table.name] += [stored.item] if stored else []
        if sum(len(left["Keys"]) for left in unprocessed.values()) == len(wanted):
            raise Refused("ProvisionedThroughputExceededException", "The level of configured throughput was exceeded")
        return {"Responses": responses, "UnprocessedKeys": unprocessed}

    def _batch_execute_statement(self, request: Request) -> dict[str, Any]:
        """Each statement on its own, in order; an error is its own answer.

        But the second statement on one item takes effect and then refuses the whole request, as in DynamoDB Local;
        later ones are not served.
        """
        statements = request["Statements"]
        if not 1 <= len(statements) <= 25:
            raise Refused("ValidationException", "BatchExecuteStatement takes 1 to 25 statements")
        responses = []
        items: list[tuple[str, Place]] = []
        for number, statement in enumerate(statements):
            if number:
                self.around.between()
            one = self._asked(statement)
            responses.append(_failed(one) if isinstance(one, Refused) else self._response(statement, one))
            items += [] if isinstance(one, Refused) else [(one.table.name, one.place)]
            _refuse_duplicates(items)
        return {"Responses": responses}

    def _asked(self, statement: Request) -> Asked | Refused:
        try:
            meaning = parsed(statement["Statement"])
            return asked(self._table(meaning.table), meaning, statement["Parameters"])
        except BadStatement as error:
            return Refused("ValidationException", str(error))
        except Refused as error:
            return error

    def _response(self, statement: Request, asked: Asked) -> dict[str, Any]:
        named = {"TableName": asked.table.name}
        if (code := self._refusal(asked.table.name, asked.place)) is not None:
            return named | {"Error": {"Code": code, "Message": code}}
        try:
            write = asked.decide()
        except Refused as error:
            return named | _failed(error)
        self.bill.write_units += units(Work.WRITE, write.bytes)
        if write.allowed:
            self._apply([write])
            return named
        return named | {"Error": {"Code": asked.conflict, "Message": CONDITION_FAILED, **write.old_item(statement)}}

    def _transact_write_items(self, request: Request) -> dict[str, Any]:
        items, token = request["TransactItems"], request.get("ClientRequestToken")
        if not 1 <= len(items) <= MOST_ACTIONS:
            raise Refused("ValidationException", f"TransactWriteItems takes 1 to {MOST_ACTIONS} actions")
        if token is not None and not 1 <= len(token) <= LONGEST_TOKEN:
            raise Refused("ValidationException", f"A token has 1 to {LONGEST_TOKEN} characters")
        actions = [action_of(item) for item in items]
        if (known := self._known(token)) is not None:
            return self._replayed(known, items, actions)
        decisions = [self._decided(kind, arguments) for kind, arguments in actions]
        writes = [write for write in decisions if isinstance(write, Write)]
        _refuse_together(writes)
        self.bill.write_units += sum([units(Work.TRANSACTED_WRITE, write.bytes) for write in writes])
        reasons = [self._reason(one, arguments) for one, (_, arguments) in zip(decisions, actions, strict=True)]
        if any(reason["Code"] != "None" for reason in reasons):
            raise _cancelled(reasons)
        under_way = {(write.table.name, write.place) for write in writes}
        begun = Token(items)
        if token is not None:
            self._tokens[token] = begun
        self._under_way |= under_way
        self.around.between()
        self._under_way -= under_way
        self._apply(writes)
        begun.at = self.around.seconds()
        return {}

    def _known(self, token: str | None) -> Token | None:
        """The transaction with this token, unless forgotten. A cancelled one is not remembered."""
        known = None if token is None else self._tokens.get(token)
        if known is None or known.at is None or self.around.seconds() <= known.at + TOKEN_SECONDS:
            return known
        return None

    def _replayed(self, known: Token, items: Any, actions: Sequence[tuple[Kind, Request]]) -> dict[str, Any]:
        """The answer to a repeated transaction; nothing takes effect, whatever the tables hold now."""
        if known.items != items:
            raise Refused("IdempotentParameterMismatchException", "The token was used for another transaction")
        if known.at is None:
            raise Refused("TransactionInProgressException", "The transaction with the token is already in progress")
        for kind, arguments in actions:
            table = self._table(arguments["TableName"])
            stored = table.items.get(table.place(arguments["Item" if kind == "Put" else "Key"]))
            self.bill.read_units += units(Work.TRANSACTED_READ, stored.bytes if stored else 0)
        return {}

    def _decided(self, kind: Kind, arguments: Request) -> Write | Misfit:
        try:
            return self._write(kind, arguments)
        except KeyChanged as error:
            raise _cancelled([_validation(error)]) from error
        except Misfit as error:
            return error

    def _reason(self, decided: Write | Misfit, arguments: Request) -> Mapping[str, Any]:
        """The cancellation reason of one action."""
        if isinstance(decided, Misfit):
            return _validation(decided)
        code = self._refusal(decided.table.name, decided.place)
        return decided.reason(arguments) if code is None else {"Code": code, "Message": code}

    def _table(self, name: str) -> Table:
        if name not in self.tables:
            raise Refused("ResourceNotFoundException", f"Requested resource not found: {name}")
        return self.tables[name]

    def _write_one(self, kind: Kind, request: Request) -> Write:
        write = self._write(kind, request)
        if (code := self._refusal(write.table.name, write.place)) is not None:
            raise Refused(code.removesuffix("Error") + "Exception", code)
        self.bill.write_units += units(Work.WRITE, write.bytes)
        if not write.allowed:
            raise Refused("ConditionalCheckFailedException", CONDITION_FAILED, **write.old_item(request))
        self._apply([write])
        return write

    def _refusal(self, table: str, place: Place) -> str | None:
        """The code for why an item cannot be written now."""
        return "TransactionConflict" if (table, place) in self._under_way else self.around.refusal(table, place)

    def _apply(self, writes: Sequence[Write]) -> None:
        for write in writes:
            write.apply()
        self.around.written(writes)

    def _write(self, kind: Kind, request: Request) -> Write:
        return decided(kind, self._table(request["TableName"]), request)

    def _bill_read(self, stored: Stored | None, request: Request) -> None:
        work = Work.CONSISTENT_READ if request.get("ConsistentRead") else Work.EVENTUAL_READ
        self.bill.read_units += units(work, stored.bytes if stored else 0)


def _refuse_together(writes: Sequence[Write]) -> None:
    """Refuse writes that are valid alone but not in one transaction."""
    if len({(write.table.name, write.place) for write in writes}) < len(writes):
        raise Refused("ValidationException", "Transaction request cannot include multiple operations on one item")
    if sum([write.bytes for write in writes]) > MOST_TRANSACTION_BYTES:
        raise Refused("ValidationException", "Collection size has exceeded the maximum allowed size")


def _refuse_duplicates(items: Sequence[tuple[str, Place]]) -> None:
    if len(set(items)) < len(items):
        raise Refused("ValidationException", "Provided list of item keys contains duplicates")


def _failed(error: Refused) -> dict[str, Any]:
    """The answer of a batch for a statement that it refuses."""
    code = error.code.removesuffix("Exception")
    return {"Error": {"Code": "ValidationError" if code == "Validation" else code, "Message": str(error)}}


def _validation(error: Refused) -> dict[str, Any]:
    return {"Code": "ValidationError", "Message": str(error)}


def _cancelled(reasons: Sequence[Mapping[str, Any]]) -> Refused:
    codes = ", ".join(reason["Code"] for reason in reasons)
    message = f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]"
    return Refused("TransactionCanceledException", message, CancellationReasons=reasons)
