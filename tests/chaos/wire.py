"""What a request to DynamoDB would write to records, and what the answer says came of it. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from harness.workload.stack_client import STAMP
from tests.chaos.settings import PREFIXES, RECEIPTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from harness.workload.evidence import Move


@dataclass(frozen=True, slots=True)
class RecordWrite:
    """`version` is what it puts, and `place` where its answer is among those of its request."""

    key: str
    move: Move
    version: str | None = None
    place: int = 0
    marks: bool = False
    """Whether it only says that what a committed record has to send was sent."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Its condition did not hold; `owner` is the invocation that had claimed what was there, where the answer tells."""

    owner: str | None


Fate = Refused | bool
"""Otherwise, whether it was made."""


def writes_of(operation: str, request: Mapping[str, Any], table: str) -> list[RecordWrite]:
    """The writes of records that a request asks for: all of its statements, or the one that it is about."""
    match operation:
        case "PutItem" if request["TableName"] == table:
            return [_write(request["Item"]["id"]["S"], request["Item"])]
        case "UpdateItem" if request["TableName"] == table:
            return [_updated(request)]
        case "TransactWriteItems":
            return [
                replace(_acted(kind, argument), place=place)
                for place, action in enumerate(request["TransactItems"])
                for kind, argument in action.items()
                if argument["TableName"] == table
            ]
        case "BatchExecuteStatement":
            return [replace(_stated(statement), place=place) for place, statement in enumerate(request["Statements"])]
        case _:
            return []


def postings_of(operation: str, request: Mapping[str, Any], table: str) -> dict[str, tuple[tuple[str, int], ...]]:
    """What a request would add to the ledger's accounts, by its transfers."""
    found: dict[str, tuple[tuple[str, int], ...]] = {}
    for action in request["TransactItems"] if operation == "TransactWriteItems" else ():
        update = action.get("Update")
        if update is not None and update["TableName"] == table:
            values = update["ExpressionAttributeValues"]
            leg = values[":account"]["S"], int(values[":amount"]["N"])
            transfer = values[":transfer"]["S"]
            found[transfer] = (*found.get(transfer, ()), leg)
    return found


def stamps_of(operation: str, request: Mapping[str, Any], answer: Any) -> Iterator[tuple[str, str, str | None]]:
    """What SQS took that carries its key: its new id, its record's id, and why it is dead, if it is."""
    if not operation.startswith("SendMessage") or request["QueueUrl"].endswith(f"/{RECEIPTS}"):
        return
    prefix = next(each for queue, each in PREFIXES.items() if f"/{queue}" in request["QueueUrl"])
    taken = {each.get("Id"): each["MessageId"] for each in answer.get("Successful", [answer])}
    for entry in request.get("Entries", [request]):
        if entry.get("Id") in taken:
            stamp = json.loads(entry["MessageAttributes"][STAMP]["StringValue"])
            yield taken[entry.get("Id")], prefix + stamp["key"], stamp.get("reason")


def fates_of(operation: str, status: int, answer: Mapping[str, Any], writes: Sequence[RecordWrite]) -> Sequence[Fate]:
    """What became of a request's writes."""
    if operation == "BatchExecuteStatement" and status == 200:
        responses = answer["Responses"]
        return [_fate(responses[write.place].get("Error"), responses[write.place]) for write in writes]
    if status == 200:
        return [True] * len(writes)
    reasons = answer.get("CancellationReasons")
    if reasons is not None:
        return [_cancelled(reasons[write.place] if write.place < len(reasons) else {}) for write in writes]
    code = str(answer.get("__type", "")).rpartition("#")[2]
    return [_fate({"Code": code.removesuffix("Exception")}, answer)] * len(writes)


def _cancelled(reason: Mapping[str, Any]) -> Fate:
    """Of a transaction that was cancelled nothing is applied, whoever is to blame."""
    return _fate({"Code": "None", **reason}, {})


def _acted(kind: str, argument: Mapping[str, Any]) -> RecordWrite:
    return _write(argument["Item"]["id"]["S"], argument["Item"]) if kind == "Put" else _updated(argument)


def _updated(update: Mapping[str, Any]) -> RecordWrite:
    # By this consumer's custom, an expression's `:name` is the new value of the attribute `name`.
    values = update["ExpressionAttributeValues"]
    put = {name.removeprefix(":"): value for name, value in values.items()}
    removed = update["UpdateExpression"].partition("REMOVE")[2]
    return replace(_write(update["Key"]["id"]["S"], put), marks=_sends(put, removed))


def _stated(statement: Mapping[str, Any]) -> RecordWrite:
    text, parameters = statement["Statement"], statement["Parameters"]
    if text.startswith("INSERT"):
        names = re.findall(r"'(\w+)': \?", text)
        put = dict(zip(names, parameters, strict=True))
        return _write(put["id"]["S"], put)
    names = re.findall(r'SET "(\w+)"=\?', text)
    # The values that are set come first; the next is the key.
    put = dict(zip(names, parameters, strict=False))
    return replace(_write(parameters[len(names)]["S"], put), marks=_sends(put, text.partition("REMOVE")[2]))


def _sends(put: Mapping[str, Any], removed: str) -> bool:
    """Whether a replacement is about what the committed write has to send: a mark, a take-over, or what is left of it.
    Each of a claim's changes counts an attempt, ends it with a status or an error, or gives up its owner: a record that
    expired, after which attempts count from one again, is none of this world's. A delivery that did nothing gives up
    its owner, too, and counts as a release.
    """
    left = "outbox" in put and "status" not in put
    return left or "outbox" in removed or not ({"status", "attempts", "error"} & {*put} or "owner" in removed)


def _write(key: str, put: Mapping[str, Mapping[str, str]]) -> RecordWrite:
    return RecordWrite(key, _move(put), put.get("version", {}).get("S"))


def _move(put: Mapping[str, Mapping[str, str]]) -> Move:
    """What a write is for, by what it puts. A release and a failure after a failure change no status, a release has no
    owner, and only a claim has an owner and a lease.
    """
    # What has messages to send is settled, too: what its handler wrote is there.
    if "status" in put and (settled := _SETTLING.get(put["status"]["S"])) is not None:
        return settled
    if "owner" not in put:
        return "release"
    return "claim" if "in_progress_expiration" in put else "fail"


_SETTLING: dict[str, Move] = {"COMPLETED": "complete", "SENDING": "complete", "FAILED": "fail"}


def _fate(error: Mapping[str, Any] | None, beside: Mapping[str, Any]) -> Fate:
    if error is None:
        return True
    if error["Code"] not in ("ConditionalCheckFailed", "DuplicateItem"):
        return False
    item = error.get("Item") or beside.get("Item") or {}
    return Refused(item.get("owner", {}).get("S"))
