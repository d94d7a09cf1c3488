"""Our deployed application: a pydantic model for the body, one client for the queue and one for the table."""

from app import consumer


def start() -> None:
    """Create what the first invocation would create."""
    assert consumer.store.client is not None
