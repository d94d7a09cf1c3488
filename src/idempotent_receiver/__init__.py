"""An idempotent receiver: messages that are delivered at least once take effect once.

The library is `idempotent_receiver`; the consumer is the deployed function; a worker is one of its running processes.

The public names are in `__all__` here and in `dynamodb`, `http`, `protocol`, `sql`, `testing` and `workflow`.
Everything else is internal and may change in any version. The names in `_LAZY` are loaded on first use, because imports
slow a function's cold start and a function uses only one entry point.
"""

import importlib
import typing

from idempotent_receiver.dynamodb.store import DynamoDBStore
from idempotent_receiver.errors import (
    FingerprintMismatch,
    IdempotencyError,
    InProgress,
    InvalidBody,
    LostClaim,
    NotStarted,
    PermanentError,
    RecordUnreadable,
    ResultUnavailable,
    RetryLater,
    StoreUnavailable,
    UnusableKey,
    invalid_body,
)
from idempotent_receiver.handler.annotations import field_names
from idempotent_receiver.handler.attempt import current_claim
from idempotent_receiver.payload import Payload, payload_key
from idempotent_receiver.sqs.consumer import sqs_consumer
from idempotent_receiver.sqs.dead_letter import stamped
from idempotent_receiver.sqs.keys import body_field, event_id, message_attribute, message_id
from idempotent_receiver.sqs.message import InvalidEvent, Message
from idempotent_receiver.sqs.visibility import Backoff
from idempotent_receiver.transaction.action import ConditionFailed
from idempotent_receiver.transaction.transaction import Transaction

if typing.TYPE_CHECKING:
    from idempotent_receiver.function import idempotent
    from idempotent_receiver.handler.results import ResultGone, Results, S3Results
    from idempotent_receiver.http.endpoint import http_endpoint
    from idempotent_receiver.http.request import header
    from idempotent_receiver.powertools import powertools_key
    from idempotent_receiver.testing.memory import MemoryStore

_LAZY = {
    "MemoryStore": "testing.memory",
    "ResultGone": "handler.results",
    "Results": "handler.results",
    "S3Results": "handler.results",
    "header": "http.request",
    "http_endpoint": "http.endpoint",
    "idempotent": "function",
    "powertools_key": "powertools",
}

__all__ = [
    "Backoff",
    "ConditionFailed",
    "DynamoDBStore",
    "FingerprintMismatch",
    "IdempotencyError",
    "InProgress",
    "InvalidBody",
    "InvalidEvent",
    "LostClaim",
    "MemoryStore",
    "Message",
    "NotStarted",
    "Payload",
    "PermanentError",
    "RecordUnreadable",
    "ResultGone",
    "ResultUnavailable",
    "Results",
    "RetryLater",
    "S3Results",
    "StoreUnavailable",
    "Transaction",
    "UnusableKey",
    "body_field",
    "current_claim",
    "event_id",
    "field_names",
    "header",
    "http_endpoint",
    "idempotent",
    "invalid_body",
    "message_attribute",
    "message_id",
    "payload_key",
    "powertools_key",
    "sqs_consumer",
    "stamped",
]


def __getattr__(name: str) -> typing.Any:
    if name in _LAZY:
        try:
            module = importlib.import_module(f"idempotent_receiver.{_LAZY[name]}")
        except ModuleNotFoundError as error:
            if error.name != "idempotent_receiver.testing":
                raise
            raise ImportError(f"{name} is for tests and not in deployed packages: use DynamoDBStore there") from None
        return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
