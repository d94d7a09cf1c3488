"""For tests: the store in memory. None of it is deployed."""

from idempotent_receiver.testing.memory import MemoryStore

__all__ = ["MemoryStore"]
