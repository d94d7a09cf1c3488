"""An idempotent receiver: messages that are delivered at least once take effect once.

The library is `idempotent_receiver`; the consumer is the deployed function; a worker is one running process of it.
The names below are the public contract. `MemoryStore` is loaded when it is first asked for: a deployed function pays at
its start for what it imports, and has no use for it.
"""

import typing

from idempotent_receiver.attempt import current_claim
from idempotent_receiver.errors import PermanentError
from idempotent_receiver.keys import body_field, message_attribute, message_id
from idempotent_receiver.message import Message
from idempotent_receiver.sqs import sqs_consumer
from idempotent_receiver.stores.dynamodb import DynamoDBStore
from idempotent_receiver.transaction import Transaction
from idempotent_receiver.visibility import Backoff

if typing.TYPE_CHECKING:
    from idempotent_receiver.stores.memory import MemoryStore

__all__ = [
    "Backoff",
    "DynamoDBStore",
    "MemoryStore",
    "Message",
    "PermanentError",
    "Transaction",
    "body_field",
    "current_claim",
    "message_attribute",
    "message_id",
    "sqs_consumer",
]


def __getattr__(name: str) -> typing.Any:
    if name == "MemoryStore":
        from idempotent_receiver.stores.memory import MemoryStore  # noqa: PLC0415

        return MemoryStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
