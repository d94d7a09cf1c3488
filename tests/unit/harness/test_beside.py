"""`make deploy API=1` and `WORKFLOW=1` ask the consumer's stack for what they share with it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import boto3
import pytest
from botocore.stub import Stubber

from harness.beside import DEPLOY, SHARED, main
from harness.caller import Account
from tests.template import load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_cloudformation import CloudFormationClient

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TABLES = {"Accounts": "accounts", "Entries": "entries"}


@pytest.fixture
def cloudformation(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stubber]:
    """What CloudFormation is asked, and answers."""
    client: CloudFormationClient = boto3.client("cloudformation", region_name="us-east-1")
    monkeypatch.setattr(Account, "client", lambda self, service: client)
    with Stubber(client) as stubber:
        yield stubber
        stubber.assert_no_pending_responses()


def deployed(cloudformation: Stubber, name: str, tables: dict[str, str], **parameters: str) -> None:
    outputs = {
        "QueueUrl": "https://sqs.us-east-1.amazonaws.com/123456789012/transfers",
        "QueueArn": "arn:aws:sqs:us-east-1:123456789012:transfers",
        "RecordsTable": "records",
    }
    told = [{"OutputKey": key, "OutputValue": value} for key, value in outputs.items()]
    stack = {"StackName": name, "CreationTime": NOW, "StackStatus": "CREATE_COMPLETE", "Outputs": told}
    given = [{"ParameterKey": key, "ParameterValue": value} for key, value in parameters.items()]
    resources = [
        {
            "LogicalResourceId": id,
            "PhysicalResourceId": physical,
            "ResourceType": "AWS::DynamoDB::Table",
            "Timestamp": NOW,
            "ResourceStatus": "CREATE_COMPLETE",
        }
        for id, physical in tables.items()
    ]
    cloudformation.add_response("describe_stacks", {"Stacks": [stack | {"Parameters": given}]}, {"StackName": name})
    cloudformation.add_response("describe_stack_resources", {"StackResources": resources}, {"StackName": name})


QUEUE = [
    "QueueUrl=https://sqs.us-east-1.amazonaws.com/123456789012/transfers",
    "QueueArn=arn:aws:sqs:us-east-1:123456789012:transfers",
]
OF_STAGING = ["LogLevel=DEBUG", "LogRetentionDays=14", "Tracing=Active"]


@pytest.mark.parametrize(
    ("said", "stack", "told"),
    [
        (
            ("api", "staging"),
            "idempotent-receiver-staging",
            [*OF_STAGING, *QUEUE, "RecordsTable=records", "EntriesTable=entries"],
        ),
        (
            ("workflow", "default"),
            "idempotent-receiver",
            ["LogRetentionDays=7", *QUEUE, "AccountsTable=accounts", "EntriesTable=entries"],
        ),
    ],
)
def test_what_the_consumers_stack_has_is_added_to_samconfigs_parameters(
    cloudformation: Stubber, capsys: pytest.CaptureFixture[str], said: tuple[str, str], stack: str, told: list[str]
) -> None:
    """On their own they would replace them."""
    deployed(cloudformation, stack, TABLES)
    assert main(*said) == 0
    assert capsys.readouterr().out.split() == told


@pytest.mark.parametrize("what", ["api", "workflow"])
def test_a_key_of_ones_own_is_theirs_too(
    cloudformation: Stubber, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    key = "arn:aws:kms:us-east-1:123456789012:key/1"
    deployed(cloudformation, "idempotent-receiver", TABLES, KmsKeyArn=key)
    assert main(what, "default") == 0
    assert capsys.readouterr().out.split()[-1] == f"KmsKeyArn={key}"


def test_without_the_consumer_it_says_what_to_deploy_first(
    cloudformation: Stubber, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "Stack with id idempotent-receiver does not exist"
    cloudformation.add_client_error("describe_stacks", "ValidationError", said)
    assert main("api", "default") == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert said in told.err
    assert "make deploy" in told.err


def test_a_stack_without_a_ledger_is_refused(cloudformation: Stubber, capsys: pytest.CaptureFixture[str]) -> None:
    deployed(cloudformation, "idempotent-receiver", {"Entries": "entries"})
    assert main("workflow", "default") == 1
    assert "has no Accounts" in capsys.readouterr().err


@pytest.mark.parametrize("what", SHARED)
def test_what_is_shared_are_the_parameters_that_the_template_must_be_told(what: str) -> None:
    parameters = load(DEPLOY / f"{what}.yaml")["Parameters"]
    assert [*SHARED[what]] == [name for name, each in parameters.items() if "Default" not in each]
