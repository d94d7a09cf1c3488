"""The client that a store builds if it was given none, and its configuration."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from botocore.config import Config
    from mypy_boto3_dynamodb import DynamoDBClient


def default_client() -> "DynamoDBClient":
    """A client with the default configuration. It belongs to a session of its own: boto3's default session may not be
    used from several threads at once.
    """
    # Imported here, because a user who brings a client may have paid for this import already, or may not need it.
    from boto3.session import Session  # noqa: PLC0415

    return Session().client("dynamodb", config=client_config())


def client_config() -> "Config":
    """The configuration of the default client, for a client that you create from a session of your own."""
    from boto3 import __version__ as boto3_version  # noqa: PLC0415
    from botocore.config import Config  # noqa: PLC0415

    return Config(
        # Names this library in CloudTrail. boto3 builds its own value anew for each request: 5 % of a batch's CPU.
        user_agent=f"idempotent-receiver Boto3/{boto3_version}",
        connect_timeout=1,
        read_timeout=3,
        retries={"mode": "standard", "total_max_attempts": 2},
        max_pool_connections=32,
        tcp_keepalive=True,
        # A quarter of a batch's CPU. Our requests hold checked values, and `Transaction` checks its arguments.
        parameter_validation=False,
    )
