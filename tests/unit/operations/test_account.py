"""The account that an operator works in: its clients, and what is not there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from idempotent_receiver.operations.account import (
    UsageError,
    client_of,
    require_bucket,
    require_table,
    split_stack,
    stack_outputs,
)
from tests.unit.operations.cli.stack import CloudFormation

if TYPE_CHECKING:
    from collections.abc import Callable

ENDPOINT = "http://127.0.0.1:4566"


def test_a_client_is_of_the_region_and_place_that_are_given_and_gives_up_in_time() -> None:
    meta = client_of("sqs", region="eu-west-1", profile=None, endpoint_url=ENDPOINT).meta
    assert (meta.service_model.service_name, meta.region_name, meta.endpoint_url) == ("sqs", "eu-west-1", ENDPOINT)
    assert (meta.config.connect_timeout, meta.config.read_timeout) == (5, 30)
    assert meta.config.retries == {"mode": "standard", "total_max_attempts": 5}


CONSUMER, REFUNDS = {"ConsumerName": "orders", "QueueUrl": "q"}, {"ConsumerName": "refunds"}
NESTED = {"Receiver": CONSUMER, "Network": {"Vpc": "vpc-1"}}


@pytest.mark.parametrize(
    ("outputs", "nested", "name", "found"),
    [
        (CONSUMER, {"Refunds": REFUNDS}, "transfers", CONSUMER),  # one that is a consumer itself is meant itself
        ({"QueueUrl": "own"}, NESTED, "transfers", {**CONSUMER, "QueueUrl": "own"}),
        ({"QueueUrl": "own"}, NESTED, "transfers/Receiver", CONSUMER),
        ({"Vpc": "vpc-1"}, {}, "transfers", {"Vpc": "vpc-1"}),
        (CONSUMER, {"Refunds": REFUNDS}, "transfers/Refunds", REFUNDS),
        ({}, {**NESTED, "Refunds": REFUNDS}, "transfers", "2 consumers: give --stack transfers/Receiver or --stack "),
        ({}, {**NESTED, "Refunds": REFUNDS}, "transfers/No", "has no consumer No: it has Receiver, Refunds$"),
        ({}, {}, "transfers/No", "has no consumer No: it has none$"),
        ({}, {}, "another", r"there is no stack another .*: correct --stack \("),
    ],
)
def test_a_stack_has_its_own_outputs_and_those_of_its_one_consumer(
    outputs: dict[str, str], nested: dict[str, dict[str, str]], name: str, found: dict[str, str] | str
) -> None:
    clients = {"cloudformation": CloudFormation(outputs, nested)}
    if isinstance(found, str):
        with pytest.raises(UsageError, match=found):
            stack_outputs(clients.__getitem__, name)
    else:
        assert stack_outputs(clients.__getitem__, name) == found


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("orders", ("orders", None)),
        ("orders/Receiver", ("orders", "Receiver")),
        ("orders/", ("orders/", None)),
        ("arn:aws:cloudformation:us-east-1:123456789012:stack/orders/1", (..., None)),
    ],
)
def test_a_stacks_name_may_name_one_that_is_nested_in_it_and_its_arn_does_not(name: str, parts: Any) -> None:
    assert split_stack(name) == (name if parts[0] is ... else parts[0], parts[1])


@pytest.mark.parametrize(
    ("require", "asks", "given", "code", "says"),
    [
        (
            require_bucket,
            "s3.list_objects_v2",
            {"Bucket": "x", "MaxKeys": 1},
            "NoSuchBucket",
            r"no bucket x in this account and region: correct --archive \(",
        ),
        (
            require_table,
            "dynamodb.describe_table",
            {"TableName": "x"},
            "ResourceNotFoundException",
            r"no table x in this account and region: correct --table, or create it \(",
        ),
    ],
)
def test_what_is_not_there_is_a_mistake_of_usage_and_what_may_not_be_looked_at_is_not(
    require: Callable[..., None], asks: str, given: dict[str, Any], code: str, says: str
) -> None:
    service, _, operation = asks.partition(".")
    asked, codes = [], iter(["AccessDenied", code])

    def refuse(**given: Any) -> None:
        asked.append(given)
        raise ClientError({"Error": {"Code": next(codes)}}, operation)

    clients = {service: SimpleNamespace(**{operation: refuse})}
    require(clients.__getitem__, "x")
    with pytest.raises(UsageError, match=says):
        require(clients.__getitem__, "x")
    assert asked == [given] * 2
