"""The account that an operator works in: its clients, and what is not there."""

from __future__ import annotations

import os
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
from tests.unit.operations.cli.stack import ARN_OF_THE_STACK, CloudFormation

if TYPE_CHECKING:
    from collections.abc import Callable

ENDPOINT = "http://127.0.0.1:4566"


def test_a_client_is_of_the_region_and_place_that_are_given_and_gives_up_in_time() -> None:
    meta = client_of("sqs", region="eu-west-1", profile=None, endpoint_url=ENDPOINT).meta
    assert (meta.service_model.service_name, meta.region_name, meta.endpoint_url) == ("sqs", "eu-west-1", ENDPOINT)
    assert (meta.config.connect_timeout, meta.config.read_timeout) == (5, 30)
    assert meta.config.retries == {"mode": "standard", "total_max_attempts": 5}


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"profile": "nobody"}, r"\(nobody\) could not be found: correct --profile or AWS_PROFILE$"),
        ({"region": None}, "^no AWS region: give --region or set AWS_DEFAULT_REGION$"),
        ({"endpoint_url": "nonsense"}, "^--endpoint-url nonsense: .*nonsense"),
    ],
)
def test_what_no_client_can_be_made_of_is_named_with_its_remedy(
    wrong: dict[str, str | None], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    given: Any = {"region": "us-east-1", "profile": None, "endpoint_url": ENDPOINT, **wrong}
    with pytest.raises(UsageError, match=says):
        client_of("sqs", **given)


ONE = {"ConsumerName": "orders", "QueueUrl": "q", "Namespace": "shop"}
REFUNDS = {"RefundsConsumerName": "refunds", "RefundsQueueUrl": "r"}
RETURNS = {"ReturnsConsumerName": "returns", "ReturnsQueueUrl": "s"}
OF_REFUNDS = {"ConsumerName": "refunds", "QueueUrl": "r"}


@pytest.mark.parametrize(
    ("outputs", "name", "found"),
    [
        (ONE, "transfers", ONE),
        (ONE, "transfers/Consumer", ONE),
        (ONE, ARN_OF_THE_STACK, ONE),
        (REFUNDS, "transfers", OF_REFUNDS),
        ({**ONE, **REFUNDS}, "transfers/RefundsConsumer", OF_REFUNDS),
        ({**REFUNDS, **RETURNS, "Vpc": "vpc-1"}, "transfers/RefundsConsumer", OF_REFUNDS),
        ({**ONE, **REFUNDS}, "transfers/Consumer", {**ONE, **REFUNDS}),
        ({"Vpc": "vpc-1"}, "transfers", {"Vpc": "vpc-1"}),
        ({}, "transfers", {}),
    ],
)
def test_a_stack_has_the_outputs_of_its_one_consumer_or_of_the_one_that_is_named(
    outputs: dict[str, str], name: str, found: dict[str, str]
) -> None:
    clients = {"cloudformation": CloudFormation(outputs)}
    assert stack_outputs(clients.__getitem__, name) == found


@pytest.mark.parametrize(
    ("outputs", "name", "says"),
    [
        (
            {**ONE, **REFUNDS},
            "transfers",
            "^stack transfers has 2 consumers: give --stack transfers/Consumer or --stack transfers/RefundsConsumer$",
        ),
        ({**ONE, **REFUNDS, **RETURNS}, "transfers", "has 3 consumers: give .* or --stack transfers/ReturnsConsumer$"),
        ({**ONE, **REFUNDS}, "transfers/No", "^stack transfers has no consumer No: it has Consumer, RefundsConsumer$"),
        (ONE, "transfers/Refunds", "has no consumer Refunds: it has Consumer$"),
        ({}, "transfers/No", "has no consumer No: it has none$"),
        ({}, "another", r"^there is no stack another .*: correct --stack \("),
        ({}, "another/Consumer", r"^there is no stack another .*: correct --stack \("),
    ],
)
def test_which_of_several_is_meant_is_asked_and_not_guessed(outputs: dict[str, str], name: str, says: str) -> None:
    clients = {"cloudformation": CloudFormation(outputs)}
    with pytest.raises(UsageError, match=says):
        stack_outputs(clients.__getitem__, name)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("orders", ("orders", None)),
        ("orders/Consumer", ("orders", "Consumer")),
        ("orders/", ("orders/", None)),
        (ARN_OF_THE_STACK, (ARN_OF_THE_STACK, None)),
    ],
)
def test_a_stacks_name_may_name_one_of_its_consumers_and_its_arn_does_not(
    name: str, parts: tuple[str, str | None]
) -> None:
    assert split_stack(name) == parts


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
            r"no table x in this account and region: correct --table or create the table \(",
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
