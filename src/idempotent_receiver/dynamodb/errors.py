"""What an error of DynamoDB's, or of the way to it, says about a write: one table, for all requests alike.

The texts are for whoever is woken up by them: they name the table, AWS's code and the remedy, and never what an item
holds.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from traceback import walk_tb
from typing import Final, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from idempotent_receiver.protocol.store import NotApplied, Unknown

Answer = TypeVar("Answer")


class UnreadableAnswer(BotoCoreError):
    """The answer that came back did not come from DynamoDB, or is incomplete."""

    fmt = "an answer could not be read"


class Effect(Enum):
    """What is known of a write that met a trouble."""

    REFUSED = "it took no effect, and never will"
    DELAYED = "it took no effect, and may when tried again"
    DOUBTFUL = "it may or may not have taken effect"


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked of DynamoDB: the operation, the tables it touches, and the permission that it needs.

    `partial`: a refusal of the request as a whole may come after a part of it was written. AWS's engine does so to a
    BatchExecuteStatement that it finds invalid at a later statement.
    """

    operation: str
    table: str
    permission: str
    partial: bool = False


_CAPACITY: Final = "is over its capacity: lower the consumer's concurrency, or raise the table's or account's limits"
_CREDENTIALS: Final = "was asked without valid credentials: see to the function's role, and to the clock if run by hand"
_CONNECTION: Final = "was not reached, or did not answer in time: see to the network, the VPC endpoint and the region"
_CONTENTION: Final = "was being written by another transaction at the same time; nothing to do unless it lasts"

# By AWS's code or the exception's name, without "Exception" and "Error": batches say `ThrottlingError` where whole
# calls say `ThrottlingException`. What is not here is doubtful, 5xx above all.
_TROUBLES: Final[dict[str, tuple[Effect, str]]] = {
    "ProvisionedThroughputExceeded": (Effect.DELAYED, _CAPACITY),
    "RequestLimitExceeded": (Effect.DELAYED, _CAPACITY),
    "Throttling": (Effect.DELAYED, _CAPACITY),
    "TransactionConflict": (Effect.DELAYED, _CONTENTION),
    "ReplicatedWriteConflict": (Effect.DELAYED, "was being written in another region; nothing to do unless it lasts"),
    "TransactionInProgress": (Effect.DOUBTFUL, "is still at this very transaction; nothing to do unless it lasts"),
    "IdempotentParameterMismatch": (Effect.DOUBTFUL, "has seen another transaction of this claim; the record tells"),
    "Validation": (
        Effect.REFUSED,
        "refuses such a request: look at keys (the records' is the string `id`), expressions, sizes (at most 400 KB)",
    ),
    "ItemCollectionSizeLimitExceeded": (Effect.REFUSED, "has 10 GB under one key: drop its local secondary index"),
    "ResourceNotFound": (
        Effect.REFUSED,
        "does not exist in this account and region: create it, or correct the table's name",
    ),
    "AccessDenied": (Effect.REFUSED, "does not let this role do that: allow {permission} on it"),
    "UnrecognizedClient": (Effect.REFUSED, _CREDENTIALS),
    "InvalidSignature": (Effect.REFUSED, _CREDENTIALS),
    "IncompleteSignature": (Effect.REFUSED, _CREDENTIALS),
    "MissingAuthenticationToken": (Effect.REFUSED, _CREDENTIALS),
    "ExpiredToken": (Effect.REFUSED, _CREDENTIALS),
    "NoCredentials": (Effect.REFUSED, _CREDENTIALS),
    "PartialCredentials": (Effect.REFUSED, _CREDENTIALS),
    "NoRegion": (Effect.REFUSED, "is in no region that was named: set AWS_DEFAULT_REGION, or pass a client with one"),
    "ParamValidation": (Effect.REFUSED, "was not asked: an argument is not what boto3 takes for this operation"),
    # A connection refused now says nothing about the request's earlier copy: botocore sends again by itself.
    "EndpointConnection": (Effect.DOUBTFUL, _CONNECTION),
    "ConnectTimeout": (Effect.DOUBTFUL, _CONNECTION),
    "ReadTimeout": (Effect.DOUBTFUL, _CONNECTION),
    "ConnectionClosed": (Effect.DOUBTFUL, _CONNECTION),
    "UnreadableAnswer": (
        Effect.DOUBTFUL,
        "did not send the answer that came back: look at proxies and endpoints in between",
    ),
}
_OTHERWISE: Final = (Effect.DOUBTFUL, "did not say what became of the request; if this lasts, look up AWS's health")

_TELLING_STARTS: Final = (
    "User: ",
    "Invalid UpdateExpression",
    "Invalid ConditionExpression",
    "ExpressionAttribute",
    "Value provided in ExpressionAttribute",
)
"""How AWS's messages begin that are made of names alone (who, which action, which expression): they may be shown."""


def answered(ask: Callable[[], Answer]) -> Answer:
    """What a client answers. Once a request has left, only ClientError and BotoCoreError are raised.

    For an answer that a proxy has made botocore's parsers raise AttributeError, UnicodeDecodeError and others. A web
    page with status 200 they take for an empty answer, which would say that a write took effect. The request may have
    been applied or not, so these become `UnreadableAnswer`.
    """
    try:
        answer = ask()
    except (ClientError, BotoCoreError):
        raise
    except Exception as error:
        if any(frame.f_globals.get("__name__") == "botocore.parsers" for frame, _ in walk_tb(error.__traceback__)):
            raise UnreadableAnswer from error
        raise
    metadata = answer.get("ResponseMetadata", {}) if isinstance(answer, dict) else {}
    # A stubbed client's answers may tell no type.
    kind = metadata.get("HTTPHeaders", {}).get("content-type", _DYNAMODBS[0])
    if not kind.startswith(_DYNAMODBS):
        raise UnreadableAnswer
    return answer


_DYNAMODBS: Final = ("application/x-amz-json", "application/cbor")
"""In what DynamoDB answers, by the protocols that botocore knows for it."""


def written(code: str, request: Request, message: str = "", *, where: str = "") -> NotApplied | Unknown:
    """What a write answers to a definite `code`: of a statement, of a transaction's action, or of a whole request."""
    effect, _ = _trouble(code)
    why = explained(code, request, message, where=where)
    return Unknown(why) if effect is Effect.DOUBTFUL else NotApplied(why, retry=effect is Effect.DELAYED)


def request_failed(error: ClientError | BotoCoreError, request: Request) -> NotApplied | Unknown:
    """What every write of a request answers when the request as a whole came to nothing."""
    code, message = code_of(error), _message_of(error)
    answer = written(code, request, message)
    if isinstance(answer, NotApplied) and (_was_resent(error) or (request.partial and _short(code) == "Validation")):
        return Unknown(answer.why)
    return answer


def code_of(error: ClientError | BotoCoreError) -> str:
    """AWS's code, or the name of botocore's own exception."""
    return error.response["Error"]["Code"] if isinstance(error, ClientError) else type(error).__name__


def explained(code: str, request: Request, message: str = "", *, where: str = "") -> str:
    """A trouble in words: where, what code, which remedy."""
    _, remedy = _trouble(code)
    told = f" ({message})" if message.startswith(_TELLING_STARTS) else ""
    text = remedy.format(permission=request.permission)
    return f"{code} from {request.operation}{where}: table {request.table} {text}{told}"


def _trouble(code: str) -> tuple[Effect, str]:
    return _TROUBLES.get(_short(code), _OTHERWISE)


def _short(code: str) -> str:
    return code.removesuffix("Exception").removesuffix("Error")


def _message_of(error: ClientError | BotoCoreError) -> str:
    return error.response["Error"].get("Message", "") if isinstance(error, ClientError) else ""


def _was_resent(error: ClientError | BotoCoreError) -> bool:
    """Whether this answers botocore's second copy or a later one: of the first, nobody knows."""
    return isinstance(error, ClientError) and error.response.get("ResponseMetadata", {}).get("RetryAttempts", 0) > 0
