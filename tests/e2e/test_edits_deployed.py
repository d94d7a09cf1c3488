"""The edits of the documents: those that go together on one stack, and a stack that continues where another one ended.

The local cloud passes over some of them (VPC, pollers, boundary, metrics, access log, the machine's log and key): what
those become is judged from the template, in tests/unit/templates.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from harness.beside import deploy_beside
from harness.caller import Caller, api_url
from harness.cloud import ACCOUNT, REGION
from harness.deploy import deploy
from harness.edits import edits
from idempotent_receiver.operations.doctor.checks import examine
from idempotent_receiver.operations.doctor.facts import consumer_of, gather
from tests.e2e.conftest import AT_ONCE, FIFO
from tests.e2e.deployed import Deployed, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.conftest import Deploy
    from tests.e2e.deployed import Aws

TOGETHER = (
    "Another runtime or architecture",
    AT_ONCE,
    "Longer time-outs",
    "Senders",
    "In a VPC",
    "Pollers that are kept ready",
    "Metrics of the mapping",
    "A permissions boundary",
)
TAKEN_UP = ("A queue that you already have", "A table of records that is already there")
ELSEWHERE = (FIFO, "Gradual deployments")
"""Deployed by test_fifo.py and others, and by test_gradual_deployed.py."""

OF_THE_WORKFLOW = {
    "Subnets": "subnet-0a1b2c3d",
    "SecurityGroups": "sg-0a1b2c3d",
    "PermissionsBoundary": f"arn:aws:iam::{ACCOUNT}:policy/boundary",
}
PARAMETERS = {"DeletionProtection": "true", "ApiAccessLog": "true"}


def test_every_edit_of_the_documents_is_deployed() -> None:
    assert {*TOGETHER, *TAKEN_UP, *ELSEWHERE} == set(edits())


@pytest.fixture(scope="module")
def bank(deployed: Deploy) -> Deployed:
    return deployed("edits", edits=TOGETHER, values={"Timeout": 900}, api=PARAMETERS, DeletionProtection="true")


@pytest.fixture(scope="module")
def topic(aws: Aws) -> Iterator[str]:
    """The topic that the edit names."""
    arn = aws.client("sns").create_topic(Name="orders")["TopicArn"]
    yield arn
    aws.client("sns").delete_topic(TopicArn=arn)


@pytest.fixture(scope="module")
def rule(aws: Aws) -> Iterator[str]:
    """The rule that the edit names."""
    events = aws.client("events")
    events.put_rule(Name="orders", EventPattern=json.dumps({"source": ["orders"]}))
    yield "orders"
    events.remove_targets(Rule="orders", Ids=["queue"])
    events.delete_rule(Name="orders")


def posted(bank: Deployed, transfer: dict[str, Any]) -> None:
    """Wait until a transfer has taken effect."""
    expected = {transfer["from_account"]: -10, transfer["to_account"]: 10}
    eventually(lambda: bank.entries(transfer), lambda seen: seen == expected, what="the transfer is posted")


def test_what_a_topic_sends_takes_effect(bank: Deployed, topic: str) -> None:
    assert topic in admitted(bank, "sns.amazonaws.com")
    sns = bank.aws.client("sns")
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=bank.stack.outputs["QueueArn"])
    transfer = bank.transfer(bank.new_account(10), bank.new_account(0), 10)
    sns.publish(TopicArn=topic, Message=json.dumps(transfer))
    posted(bank, transfer)


def test_what_a_rule_sends_takes_effect(bank: Deployed, rule: str) -> None:
    events = bank.aws.client("events")
    assert events.describe_rule(Name=rule)["Arn"] in admitted(bank, "events.amazonaws.com")
    events.put_targets(Rule=rule, Targets=[{"Id": "queue", "Arn": bank.stack.outputs["QueueArn"]}])
    transfer = bank.transfer(bank.new_account(10), bank.new_account(0), 10)
    sent = events.put_events(Entries=[{"Source": "orders", "DetailType": "transfer", "Detail": json.dumps(transfer)}])
    assert sent["FailedEntryCount"] == 0
    posted(bank, transfer)


def admitted(bank: Deployed, service: str) -> list[str]:
    """The sources from which the queue's policy lets a service send. The local cloud lets everybody."""
    given = {"QueueUrl": bank.stack.outputs["QueueUrl"], "AttributeNames": ["Policy"]}
    policy = json.loads(bank.aws.client("sqs").get_queue_attributes(**given)["Attributes"]["Policy"])
    return [
        source
        for each in policy["Statement"]
        if each["Effect"] == "Allow" and each["Principal"] == {"Service": service}
        for source in each["Condition"]["ArnEquals"]["aws:SourceArn"]
    ]


def test_doctor_finds_nothing_on_the_edited_stack(bank: Deployed) -> None:
    """What belongs together was changed together."""
    configuration = bank.aws.client("lambda").get_function_configuration(FunctionName=bank.stack.resources["Consumer"])
    assert configuration["Timeout"] == 900
    assert examine(gather(bank.aws.client, consumer_of(bank.aws.client, bank.stack.name))) == []


def test_a_new_stack_goes_on_where_a_deleted_one_ended(deployed: Deploy, aws: Aws, build: Path) -> None:
    """It reuses the queue and the records: what was done is a duplicate, and what waited is done."""
    stack = deploy(aws, name=f"old-{uuid4().hex[:8]}", code=build)  # type: ignore[arg-type]  # it has the clients
    old = Deployed(aws, stack, [], [])
    done, waiting = (old.transfer(old.new_account(100), old.new_account(0), 10) for _ in range(2))
    (key,) = old.send(done)
    old.settled(key)
    aws.client("cloudformation").delete_stack(StackName=stack.name)
    aws.client("cloudformation").get_waiter("stack_delete_complete").wait(StackName=stack.name)
    (waited,) = old.send(waiting)

    dead = {"QueueUrl": stack.outputs["DeadLetterQueueUrl"], "AttributeNames": ["QueueArn"]}
    new = deployed(
        "new",
        edits=TAKEN_UP,
        api=None,
        QueueArn=stack.outputs["QueueArn"],
        DeadLetterQueueArn=aws.client("sqs").get_queue_attributes(**dead)["Attributes"]["QueueArn"],
        RecordsTable=stack.outputs["RecordsTable"],
    )
    for each in (done, waiting):
        new.open_account(each["from_account"], 100)
        new.open_account(each["to_account"], 0)

    assert new.invoke({"Records": [{**new.delivered(done), "messageId": key}]}).failed == []
    assert new.settled(key)["attempts"] == 1
    assert new.entries(done) == {}, "its tables are new, and nothing was written to them"
    new.settled(waited, seconds=60)
    posted(new, waiting)


def test_the_workflow_runs_with_all_of_its_switches_on(bank: Deployed, build: Path) -> None:
    """Its machine encrypted and logged, its functions in a VPC, its API with an access log."""
    key = bank.aws.client("kms").create_key()["KeyMetadata"]["Arn"]
    stack = deploy_beside(
        bank.aws,  # type: ignore[arg-type]  # it has the clients
        bank.stack,
        "workflow",
        name=f"edits-{uuid4().hex[:8]}",
        code=build,
        parameters={**OF_THE_WORKFLOW, **PARAMETERS, "MachineKmsKeyArn": key, "MachineLogLevel": "ALL"},
    )
    payer, payee = bank.new_account(10), bank.new_account(0)
    url = api_url(stack, bank.aws.endpoint_url)
    credentials = bank.aws.client("sqs")._request_signer._credentials
    caller = Caller(url=f"{url}/workflows", credentials=credentials, region=REGION)
    asked = bank.transfer(payer, payee, 10)
    answer = eventually(
        lambda: caller.post(asked, "edits-1"), lambda seen: seen.status == 200, what="it is done", seconds=60
    )
    assert (bank.balance(payer), bank.balance(payee)) == (0, 10), answer.body
    bank.aws.client("cloudformation").delete_stack(StackName=stack.name)
