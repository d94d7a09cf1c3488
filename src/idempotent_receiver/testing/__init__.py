"""For tests: the store in memory, and events. None of it is deployed."""

from idempotent_receiver.testing.events import lambda_context, sqs_event
from idempotent_receiver.testing.expression_grammar import ExpressionError
from idempotent_receiver.testing.memory import MemoryStore, Table

__all__ = [
    "ExpressionError",
    "MemoryStore",
    "Table",
    "lambda_context",
    "sqs_event",
]
