"""What a request to DynamoDB would write to records, and what the answer says came of it. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from local.workload.evidence import Move


@dataclass(frozen=True, slots=True)
class RecordWrite:
    key: str
    move: Move


@dataclass(frozen=True, slots=True)
class Applied:
    """It was made."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Its condition did not hold; `owner` is the invocation that had claimed what was there, where the answer tells."""

    owner: str | None


@dataclass(frozen=True, slots=True)
class Failed:
    """It was not made, for another reason."""


Fate = Applied | Refused | Failed


def writes_of(operation: str, request: Mapping[str, Any], table: str) -> list[RecordWrite]:
    """The writes of records that a request asks for: all of its statements, or the one that it is about."""
    match operation:
        case "PutItem" if request["TableName"] == table:
            return [_write(request["Item"]["id"]["S"], request["Item"])]
        case "UpdateItem" if request["TableName"] == table:
            return [_updated(request)]
        case "TransactWriteItems" if request["TransactItems"][0].get("Update", {}).get("TableName") == table:
            return [_updated(request["TransactItems"][0]["Update"])]
        case "BatchExecuteStatement":
            return [_stated(statement) for statement in request["Statements"]]
        case _:
            return []


def fates_of(operation: str, status: int, answer: Mapping[str, Any], number: int) -> Sequence[Fate]:
    """What became of a request's `number` writes."""
    if operation == "BatchExecuteStatement" and status == 200:
        return [_fate(response.get("Error"), response) for response in answer["Responses"]]
    if status == 200:
        return [Applied()] * number
    reasons = answer.get("CancellationReasons")
    if reasons is not None:
        return [_fate(reasons[0], {})]
    code = str(answer.get("__type", "")).rpartition("#")[2]
    return [_fate({"Code": code.removesuffix("Exception")}, answer)] * number


def _updated(update: Mapping[str, Any]) -> RecordWrite:
    # By this consumer's custom, an expression's `:name` is the new value of the attribute `name`.
    values = update["ExpressionAttributeValues"]
    return _write(update["Key"]["id"]["S"], {name.removeprefix(":"): value for name, value in values.items()})


def _stated(statement: Mapping[str, Any]) -> RecordWrite:
    text, parameters = statement["Statement"], statement["Parameters"]
    if text.startswith("INSERT"):
        names = re.findall(r"'(\w+)': \?", text)
        put = dict(zip(names, parameters, strict=True))
        return _write(put["id"]["S"], put)
    names = re.findall(r'SET "(\w+)"=\?', text)
    # The values that are set come first; the next is the key.
    return _write(parameters[len(names)]["S"], dict(zip(names, parameters, strict=False)))


def _write(key: str, put: Mapping[str, Mapping[str, str]]) -> RecordWrite:
    """What a write is for, by what it puts: only a claim has an owner to put, and a release changes no status."""
    if "owner" in put:
        return RecordWrite(key, "claim")
    return RecordWrite(key, _SETTLING.get(put.get("status", {}).get("S", ""), "release"))


_SETTLING: dict[str, Move] = {"COMPLETED": "complete", "FAILED": "fail"}


def _fate(error: Mapping[str, Any] | None, beside: Mapping[str, Any]) -> Fate:
    if error is None:
        return Applied()
    if error["Code"] not in ("ConditionalCheckFailed", "DuplicateItem"):
        return Failed()
    item = error.get("Item") or beside.get("Item") or {}
    return Refused(item.get("owner", {}).get("S"))
