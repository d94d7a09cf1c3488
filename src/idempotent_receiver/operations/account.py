"""AWS clients for an operator's account, and clear errors for wrong names."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError, NoRegionError, ProfileNotFound

from idempotent_receiver.dynamodb.codes import code_of

Client = Callable[[str], Any]
"""Returns the boto3 client of a service."""


class UsageError(Exception):
    """The operator must change the command; the text says how."""


def client_of(service: str, *, region: str | None, profile: str | None, endpoint_url: str | None) -> Any:
    """A new client. Raises UsageError for an invalid region, profile or endpoint."""
    config = Config(connect_timeout=5, read_timeout=30, retries={"mode": "standard", "total_max_attempts": 5})
    try:
        session: Any = boto3.Session(region_name=region, profile_name=profile)
        return session.client(service, endpoint_url=endpoint_url, config=config)
    except ProfileNotFound as error:
        raise UsageError(f"{error}: correct --profile or AWS_PROFILE") from None
    except NoRegionError:
        raise UsageError("no AWS region: give --region or set AWS_DEFAULT_REGION") from None
    except ValueError as error:
        raise UsageError(f"--endpoint-url {endpoint_url}: {error}") from None


@contextmanager
def named(what: str, remedy: str, *codes: str) -> Iterator[None]:
    """Raise UsageError with the remedy if the error code ends with one of `codes`: the resource does not exist."""
    try:
        yield
    except ClientError as error:
        if code_of(error).endswith(codes):
            raise UsageError(
                f"there is no {what} in this account and region: {remedy} (see --region, --profile)"
            ) from None
        raise


NO_QUEUE = ("NonExistentQueue", "QueueDoesNotExist", "InvalidAddress")
"""Endings of SQS error codes for a queue that does not exist."""

_QUEUE_ARN = re.compile(r"arn:[\w-]+:sqs:[\w-]+:\d{12}:[\w-]{1,80}(?:\.fifo)?", re.ASCII)


def is_gone(client: Client, arn: str, *, beside: str) -> bool:
    """Whether SQS says that the queue with this ARN does not exist, or the text is no queue's ARN. False if SQS does
    not say, or if the queue is not in the account and region of the one `beside` it.
    """
    if not _QUEUE_ARN.fullmatch(arn):
        return True
    place, _, name = arn.rpartition(":")
    if place != beside.rpartition(":")[0]:
        return False
    try:
        client("sqs").get_queue_url(QueueName=name)
    except ClientError as error:
        return code_of(error).endswith(NO_QUEUE)
    return False


CONSUMER = "ConsumerName"
"""The output that identifies a stack's consumer. The outputs of each further consumer share a prefix:
`RefundsConsumerName`, `RefundsQueueUrl` ...
"""


def stack_outputs(client: Client, name: str) -> dict[str, str]:
    """A CloudFormation stack's outputs, without the consumer's prefix.

    A name such as orders/RefundsConsumer selects one of several consumers. Raises UsageError if the stack or the
    consumer does not exist, or if the name is ambiguous.
    """
    stack, consumer = split_stack(name)
    outputs = _outputs(client, stack)
    consumers = [each.removesuffix("Name") for each in outputs if each.endswith(CONSUMER)]
    if consumer is None and len(consumers) > 1:
        which = " or ".join(f"--stack {stack}/{each}" for each in consumers)
        raise UsageError(f"stack {stack} has {len(consumers)} consumers: give {which}")
    if consumer is not None and consumer not in consumers:
        raise UsageError(f"stack {stack} has no consumer {consumer}: it has {', '.join(consumers) or 'none'}")
    chosen = consumer or next(iter(consumers), "")
    prefix = chosen.removesuffix("Consumer")
    return {name.removeprefix(prefix): value for name, value in outputs.items() if name.startswith(prefix)}


def split_stack(name: str) -> tuple[str, str | None]:
    """A stack's name or ARN, and the consumer selected in it, if any."""
    stack, _, consumer = name.partition("/")
    return (name, None) if name.startswith("arn:") or not consumer else (stack, consumer)


def _outputs(client: Client, stack: str) -> dict[str, str]:
    with named(f"stack {stack}", "correct --stack", "ValidationError"):
        (found,) = client("cloudformation").describe_stacks(StackName=stack)["Stacks"]
    return {each["OutputKey"]: each["OutputValue"] for each in found.get("Outputs", [])}


def require_bucket(client: Client, name: str) -> None:
    """Raises UsageError if the S3 bucket does not exist. Other errors surface when the bucket is used."""
    with suppress(ClientError), named(f"bucket {name}", "correct --archive", "NoSuchBucket"):
        client("s3").list_objects_v2(Bucket=name, MaxKeys=1)


def require_table(client: Client, name: str) -> None:
    """Raises UsageError if the DynamoDB table does not exist. Other errors surface when the table is read."""
    with (
        suppress(ClientError),
        named(f"table {name}", "correct --table or create the table", "ResourceNotFoundException"),
    ):
        client("dynamodb").describe_table(TableName=name)
