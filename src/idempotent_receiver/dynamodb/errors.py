"""What an error from DynamoDB, or on the way to it, means for a write: one mapping for all requests.

The texts are for the person on call. They name the table, AWS's code and the remedy, but never an item's content.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from idempotent_receiver.dynamodb.codes import code_of
from idempotent_receiver.dynamodb.statements import record_in
from idempotent_receiver.protocol.store import Conflict, NotApplied, Unknown


@dataclass(frozen=True, slots=True)
class Misshapen(NotApplied):
    """The write was refused because of its tables or its expressions' text: any write that uses them would be, too."""


class Effect(Enum):
    """What is known about a write that failed."""

    REFUSED = "it had no effect, and never will"
    DELAYED = "it had no effect, and may succeed when retried"
    UNKNOWN = "it may or may not have taken effect"


@dataclass(frozen=True, slots=True)
class ApiCall:
    """A DynamoDB API call: the operation, the tables it touches, and the permission it needs.

    `partial`: DynamoDB may refuse the whole request after writing part of it. AWS's engine does so if a later statement
    of a BatchExecuteStatement is invalid.
    """

    operation: str
    table: str
    permission: str = "none"
    partial: bool = False


_CAPACITY: Final = "is over its capacity: lower the consumer's concurrency, or raise the table's or account's limits"
_CREDENTIALS: Final = "was called without valid credentials: check the function's role, and the clock if run by hand"
_CONNECTION: Final = (
    "could not be reached, or did not answer in time: check the network, the VPC endpoint and the region"
)
_MISSING: Final = "does not exist in this account and region: create it, or correct the table's name"
_INVALID: Final = "refused this request: check keys (records have the string `id`), expressions, sizes (at most 400 KB)"
_CONTENTION: Final = "was being written by another transaction at the same time; no action needed unless it persists"

# By AWS's code or the exception's name, without "Exception" and "Error", because batches say `ThrottlingError` where
# requests say `ThrottlingException`. The effect of any other error, above all a 5xx, is unknown.
_ERRORS: Final[dict[str, tuple[Effect, str]]] = {
    **dict.fromkeys(
        ("ProvisionedThroughputExceeded", "RequestLimitExceeded", "Throttling"), (Effect.DELAYED, _CAPACITY)
    ),
    "TransactionConflict": (Effect.DELAYED, _CONTENTION),
    "ReplicatedWriteConflict": (
        Effect.DELAYED,
        "was being written in another region; no action needed unless it persists",
    ),
    "TransactionInProgress": (
        Effect.UNKNOWN,
        "is still processing this transaction; no action needed unless it persists",
    ),
    "IdempotentParameterMismatch": (Effect.UNKNOWN, "has seen another transaction with this token; check the record"),
    "Validation": (Effect.REFUSED, _INVALID),
    "ItemCollectionSizeLimitExceeded": (
        Effect.REFUSED,
        "has reached 10 GB under one partition key: drop its local secondary index",
    ),
    "ResourceNotFound": (Effect.REFUSED, _MISSING),
    "UnknownOperation": (Effect.REFUSED, "is on an engine without this operation: it needs DynamoDB itself"),
    "AccessDenied": (Effect.REFUSED, "denies this role the operation: allow {permission} on it"),
    **dict.fromkeys(
        (
            *("UnrecognizedClient", "InvalidSignature", "IncompleteSignature", "MissingAuthenticationToken"),
            *("ExpiredToken", "NoCredentials", "PartialCredentials"),
        ),
        (Effect.REFUSED, _CREDENTIALS),
    ),
    "NoRegion": (Effect.REFUSED, "was called without a region: set AWS_DEFAULT_REGION, or pass a client that has one"),
    "ParamValidation": (Effect.REFUSED, "was not called: boto3 rejects one of the arguments for this operation"),
    # A refused connection says nothing about an earlier copy of the request: botocore resends by itself.
    **dict.fromkeys(
        ("EndpointConnection", "ConnectTimeout", "ReadTimeout", "ConnectionClosed"), (Effect.UNKNOWN, _CONNECTION)
    ),
    "UnreadableAnswer": (Effect.UNKNOWN, "did not send the response that was received: check proxies and endpoints"),
}
_OTHERWISE: Final = (Effect.UNKNOWN, "did not confirm the request; if this persists, check AWS Health")

_ENDPOINT: Final = "endpoint "
_EXPRESSIONS: Final = (
    "Invalid UpdateExpression",
    "Invalid ConditionExpression",
    "ExpressionAttribute",
    "Value provided in ExpressionAttribute",
)
"""Prefixes of messages about an expression."""

_NO_VALUES: Final = (
    "The provided expression refers to",
    "The document path provided",
    "An operand in the update expression",
    "Item size ",
    "Number overflow",
    "The provided key element",
    "One of the required keys",
    "Transaction request cannot include multiple operations",
    *(
        f"One or more parameter values were invalid: {what}"
        for what in ("Missing the key", "Type mismatch for key", "Cannot update attribute")
    ),
    "One or more parameter values are not valid. The AttributeValue for a key attribute cannot contain an empty",
)
"""Prefixes of messages about an item that name at most its key attributes."""

_NAMES_ONLY: Final = (_ENDPOINT, "User: ", *_EXPRESSIONS, *_NO_VALUES)
"""Prefixes of messages that contain only names (endpoint, caller, action, expression): safe to show, up to the first
value.
"""

_VALUE: Final = re.compile(r"[^;:]*:? ?AttributeValue: ?\{.*", re.DOTALL)
"""Matches the part of a message from its first quoted value on, as in the message about BETWEEN's bounds."""

_SHAPE: Final = frozenset({"ResourceNotFound", "UnknownOperation"})
"""The codes for a request refused because of its tables or operation. A permission may depend on an item's key."""

_SHAPE_MESSAGES: Final = (
    *(
        f"Invalid {kind}Expression: {what}"
        for kind in ("Update", "Condition")
        for what in ("Syntax error", "Attribute name is a reserved keyword", "An expression attribute ")
    ),
    *(f"ExpressionAttribute{kind} contains invalid key" for kind in ("Names", "Values")),
    "Value provided in ExpressionAttribute",
)
"""Prefixes of messages about an expression's syntax, names and placeholders: they are wrong with any values."""

CONFLICTS: Final = ("ConditionalCheckFailedException", "ConditionalCheckFailed", "DuplicateItem")
"""The codes for a failed condition: in a whole request, in a statement or action, and in an INSERT."""

NO_SUCH_OPERATION: Final = "UnknownOperationException"
"""The code from an engine that lacks a DynamoDB operation."""


def conflict(response: Mapping[str, Any]) -> Conflict:
    """The conflict in an error, with the current item if the error shows it."""
    item = response.get("Item")
    return Conflict(record_in(item) if item else None)


def write_failed(
    code: str, call: ApiCall, message: str | None = None, *, where: str = "", own: bool = False
) -> NotApplied | Unknown:
    """The result of a write that failed with `code`: a statement, a transaction's action, or a whole request.

    `own` says that the write was one of the handler's own actions. An invalid transaction also counts as `own`.
    """
    effect, remedy = _ERRORS.get(_short(code), _OTHERWISE)
    why = explained(code, call, where=where) + _shown(message)
    if effect is Effect.UNKNOWN:
        return Unknown(why)
    own = own or (remedy is _INVALID and call.operation == "TransactWriteItems")
    if _short(code) in _SHAPE or (remedy is _INVALID and (message or "").startswith(_SHAPE_MESSAGES)):
        return Misshapen(why, retry=False, own=own)
    return NotApplied(why, effect is Effect.DELAYED, contended=_short(code) == "TransactionConflict", own=own)


def request_failed(error: ClientError | BotoCoreError, call: ApiCall) -> NotApplied | Unknown:
    """The result of each write in a request that failed as a whole."""
    code, message, resent = code_of(error), None, None
    if isinstance(error, BotoCoreError):
        message = f"{_ENDPOINT}{error.kwargs.get('endpoint_url')}" if "endpoint_url" in error.kwargs else None
    else:
        message = error.response["Error"].get("Message")
        # If botocore sent the request again, this answers a later copy: the first copy's result is unknown.
        resent = error.response.get("ResponseMetadata", {}).get("RetryAttempts")
    failed = write_failed(code, call, message)
    if isinstance(failed, NotApplied) and (
        resent or (call.partial and _short(code) in ("Validation", "UnknownOperation"))
    ):
        return Unknown(failed.why)
    return failed


def explained(code: str, call: ApiCall, *, where: str = "") -> str:
    """An error as text: where it happened, AWS's code, and the remedy."""
    _, remedy = _ERRORS.get(_short(code), _OTHERWISE)
    return f"{code} from {call.operation}{where}: table {call.table} {remedy.format(permission=call.permission)}"


def _shown(message: str | None) -> str:
    if message is None or not message.startswith(_NAMES_ONLY):
        return ""
    return f" ({_VALUE.sub('', message).rstrip('; ')})"


def _short(code: str) -> str:
    return code.removesuffix("Exception").removesuffix("Error")
