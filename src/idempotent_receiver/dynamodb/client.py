"""A store's default client, and workarounds for moto."""

import sys
import threading
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from idempotent_receiver.raw_requests import raw_config

if TYPE_CHECKING:
    from botocore.config import Config
    from mypy_boto3_dynamodb import DynamoDBClient


def default_client() -> "DynamoDBClient":
    """A client with the default configuration. It has its own session, because boto3's default session is not
    thread-safe.
    """
    # Imported here because a user who passes a client does not need it.
    from boto3.session import Session  # noqa: PLC0415

    return Session().client("dynamodb", config=client_config())


def client_config() -> "Config":
    """The default client's configuration, for a client that you create from your own session."""
    return raw_config(
        connect_timeout=1,
        read_timeout=3,
        retries={"mode": "standard", "total_max_attempts": 2},
        max_pool_connections=32,
    )


_one_at_a_time = threading.Lock()


def answered_by_moto() -> bool:
    """Whether moto's `mock_aws` currently answers this process's requests. moto does not support statement batches."""
    stubber = getattr(sys.modules.get("moto.core.models"), "botocore_stubber", None)
    return getattr(stubber, "enabled", False)


def turn() -> AbstractContextManager[object]:
    """The context manager for a request: under moto, one request at a time. In moto, a failed transaction restores
    whole tables and so overwrites what other threads have written.
    """
    return _one_at_a_time if answered_by_moto() else nullcontext()
