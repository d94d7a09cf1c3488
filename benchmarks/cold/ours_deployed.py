"""Ours as it is deployed: a pydantic model for the body, a client for the queue and one for the table."""

from app import consumer


def start() -> None:
    """Make what the first invocation would make."""
    assert consumer.store.client is not None
