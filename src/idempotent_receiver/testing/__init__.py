"""For tests: the store in memory. None of it is deployed."""

from idempotent_receiver.testing.expression_grammar import ExpressionError
from idempotent_receiver.testing.memory import MemoryStore

__all__ = ["ExpressionError", "MemoryStore"]
