"""Which permissions a call to AWS takes, and whether policies give them. Knows as much of IAM as our policies use."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tests.e2e.recorder import Call

STATEMENTS = {"INSERT": "Insert", "UPDATE": "Update", "DELETE": "Delete", "SELECT": "Select"}
TABLE_OF_STATEMENT = re.compile(r'\s*(INSERT\s+INTO|UPDATE|DELETE\s+FROM|SELECT\s.*?\sFROM)\s+"([^"]+)"', re.DOTALL)
ID_OF_STATEMENT = re.compile(r"""VALUE\s*\{.*?'id':\s*\?|WHERE\s+"id"\s*=\s*\?""", re.DOTALL)

# "Permissions for Put, Update, Delete, and Get actions are governed by the permissions used for the underlying
# PutItem, UpdateItem, DeleteItem, and GetItem operations." (DynamoDB Developer Guide, "Using IAM with transactions")
ACTIONS_OF_A_TRANSACTION = {
    "Put": "PutItem",
    "Update": "UpdateItem",
    "Delete": "DeleteItem",
    "ConditionCheck": "ConditionCheckItem",
}


@dataclass(frozen=True, order=True)
class Permission:
    """An action on a resource; of a table, on the items with these keys. None are given where one is not known."""

    action: str
    resource: str
    keys: tuple[str, ...] = ()


def needed(call: Call, account: str) -> set[Permission]:
    """The permissions that a call takes. Raises KeyError for an operation that nobody has looked up yet."""

    def on_table(action: str, name: str, *ids: str | None) -> Permission:
        arn = f"arn:aws:dynamodb:{call.region}:{account}:table/{name}"
        return Permission(f"dynamodb:{action}", arn, tuple(id for id in ids if id is not None and None not in ids))

    arguments = call.arguments
    match call.service, call.operation:
        case "dynamodb", "Query" if "IndexName" in arguments:
            return {on_table("Query", f"{arguments['TableName']}/index/{arguments['IndexName']}")}
        case "dynamodb", "PutItem" | "UpdateItem" | "DeleteItem" | "GetItem" | "Query":
            return {on_table(call.operation, arguments["TableName"], _id(arguments.get("Item", arguments.get("Key"))))}
        case "dynamodb", "BatchGetItem":
            wishes = arguments["RequestItems"].items()
            return {on_table("BatchGetItem", table, *map(_id, wish["Keys"])) for table, wish in wishes}
        case "dynamodb", "BatchExecuteStatement":
            # Each statement is answered for itself, and so is what it may.
            return {
                on_table(f"PartiQL{verb}", table, _id_in(statement))
                for statement in arguments["Statements"]
                for verb, table in [_verb_and_table(statement["Statement"])]
            }
        case "dynamodb", "TransactWriteItems":
            parts = [part for item in arguments["TransactItems"] for part in item.items()]
            return {
                on_table(ACTIONS_OF_A_TRANSACTION[kind], wish["TableName"], _id(wish.get("Item", wish.get("Key"))))
                for kind, wish in parts
            }
        case "sqs", (
            "SendMessage"
            | "SendMessageBatch"
            | "ChangeMessageVisibility"
            | "ChangeMessageVisibilityBatch"
            | "DeleteMessageBatch"
            | "GetQueueAttributes"
            | "ReceiveMessage"
        ):
            # A batch takes the permission of its one action: SQS has no other.
            queue = queue_arn(arguments["QueueUrl"], call.region)
            return {Permission(f"sqs:{call.operation.removesuffix('Batch')}", queue)}
        case "states", "StartExecution":
            return {Permission("states:StartExecution", arguments["stateMachineArn"])}
        case "states", "DescribeExecution":
            return {Permission("states:DescribeExecution", arguments["executionArn"])}
    raise KeyError(f"which permissions {call.service}:{call.operation} takes is to be looked up and added here")


def _id(item: Mapping[str, Any] | None) -> str | None:
    """The key of a record. The keys of other tables are not asked for in any condition."""
    found: str | None = (item or {}).get("id", {}).get("S")
    return found


def _id_in(statement: Mapping[str, Any]) -> str | None:
    """The key of the record that a statement inserts or updates."""
    found = ID_OF_STATEMENT.search(statement["Statement"])
    if found is None:
        return None
    place = statement["Statement"].count("?", 0, found.end()) - 1
    return _id({"id": statement["Parameters"][place]})


def queue_arn(url: str, region: str) -> str:
    """The ARN of the queue at a URL."""
    account, name = urlsplit(url).path.strip("/").split("/")
    return f"arn:aws:sqs:{region}:{account}:{name}"


def _verb_and_table(statement: str) -> tuple[str, str]:
    found = TABLE_OF_STATEMENT.match(statement)
    if found is None:
        raise KeyError(f"no quoted table was found in {statement!r}")
    return STATEMENTS[found[1].split()[0]], found[2]


def allowed(permission: Permission, statements: Iterable[Mapping[str, Any]]) -> bool:
    """IAM's verdict: something allows it, and nothing denies it."""
    effects = {statement["Effect"] for statement in statements if _covers(statement, permission)}
    return effects == {"Allow"}


def granted(statements: Iterable[Mapping[str, Any]]) -> set[Permission]:
    """Every action with every resource that the statements allow, as they are written."""
    return {
        Permission(action, resource)
        for statement in statements
        if statement["Effect"] == "Allow"
        for action in _listed(statement["Action"])
        for resource in _listed(statement["Resource"])
    }


def covers(grant: Permission, permission: Permission) -> bool:
    """Whether a grant is what allows this permission. Actions are the same in any case of letters, resources not."""
    return fnmatchcase(permission.action.lower(), _pattern(grant.action.lower())) and fnmatchcase(
        permission.resource, _pattern(grant.resource)
    )


def _covers(statement: Mapping[str, Any], permission: Permission) -> bool:
    unknown = set(statement) - {"Sid", "Effect", "Action", "Resource", "Condition"}
    if unknown:
        raise KeyError(f"this verdict knows nothing of {', '.join(sorted(unknown))} in a statement")
    return _fulfils(statement.get("Condition"), permission) and any(
        covers(Permission(action, resource), permission)
        for action in _listed(statement["Action"])
        for resource in _listed(statement["Resource"])
    )


def _fulfils(condition: Mapping[str, Any] | None, permission: Permission) -> bool:
    match condition:
        case None:
            return True
        case {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": patterns}} if len(condition) == 1:
            # IAM calls a condition on all of none fulfilled; here the keys must be known.
            return bool(permission.keys) and all(
                any(fnmatchcase(key, _pattern(pattern)) for pattern in _listed(patterns)) for key in permission.keys
            )
        case {"Null": {"lambda:SourceFunctionArn": "true"}} if len(condition) == 1:
            return False  # all calls that are judged here are a function's own
    raise KeyError(f"this verdict knows nothing of the Condition {condition}")


def _listed(value: str | Sequence[str]) -> Sequence[str]:
    return [value] if isinstance(value, str) else value


def _pattern(text: str) -> str:
    """IAM knows `*` and `?`; for fnmatch a bracket means something too."""
    return text.replace("[", "[[]")
