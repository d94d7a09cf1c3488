"""The switches of the template, all on at once: it deploys, and what topics and rules send takes effect.

The local cloud passes over some of them (VPC, pollers, boundary, metrics, access log, the machine's log and key): what
those become is judged in tests/unit/test_template_switches.py, from the template.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from harness.caller import Caller, api_url
from harness.cloud import ACCOUNT, REGION
from tests.e2e.deployed import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.conftest import Deploy
    from tests.e2e.deployed import Aws, Deployed


EVERYWHERE = {
    "Subnets": "subnet-0a1b2c3d",
    "SecurityGroups": "sg-0a1b2c3d",
    "PermissionsBoundary": f"arn:aws:iam::{ACCOUNT}:policy/boundary",
    "DeletionProtection": "true",
    "ApiAccessLog": "true",
}
"""The switches that both templates have."""


@pytest.fixture(scope="module")
def topic(aws: Aws) -> str:
    return str(aws.client("sns").create_topic(Name=f"orders-{uuid4().hex[:8]}")["TopicArn"])


@pytest.fixture(scope="module")
def rule(aws: Aws) -> str:
    pattern = json.dumps({"source": ["orders"]})
    return str(aws.client("events").put_rule(Name=f"orders-{uuid4().hex[:8]}", EventPattern=pattern)["RuleArn"])


@pytest.fixture(scope="module")
def bank(deployed: Deploy, topic: str, rule: str) -> Deployed:
    return deployed(
        "switches",
        SenderTopicArns=topic,
        SenderRuleArns=rule,
        ProvisionedPollers="20",
        MappingMetrics="true",
        **EVERYWHERE,
    )


def posted(bank: Deployed, transfer: dict[str, Any]) -> None:
    """Wait until a transfer has taken effect."""
    expected = {transfer["from_account"]: -10, transfer["to_account"]: 10}
    eventually(lambda: bank.entries(transfer), lambda seen: seen == expected, what="the transfer is posted")


def test_what_a_topic_sends_takes_effect(bank: Deployed, topic: str) -> None:
    sns = bank.aws.client("sns")
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=bank.stack.outputs["QueueArn"])
    transfer = bank.transfer(bank.new_account(10), bank.new_account(0), 10)
    sns.publish(TopicArn=topic, Message=json.dumps(transfer))
    posted(bank, transfer)


def test_what_a_rule_sends_takes_effect(bank: Deployed, rule: str) -> None:
    events, name = bank.aws.client("events"), rule.rpartition("/")[2]
    events.put_targets(Rule=name, Targets=[{"Id": "queue", "Arn": bank.stack.outputs["QueueArn"]}])
    transfer = bank.transfer(bank.new_account(10), bank.new_account(0), 10)
    sent = events.put_events(Entries=[{"Source": "orders", "DetailType": "transfer", "Detail": json.dumps(transfer)}])
    assert sent["FailedEntryCount"] == 0
    posted(bank, transfer)


def test_the_workflow_runs_with_all_of_its_switches_on(bank: Deployed, build: Path) -> None:
    """Its machine encrypted and logged, its functions in a VPC, its API with an access log."""
    key = bank.aws.client("kms").create_key()["KeyMetadata"]["Arn"]
    stack = deploy_workflow(
        bank.aws,  # type: ignore[arg-type]  # it has the clients
        bank.stack,
        name=f"switches-{uuid4().hex[:8]}",
        code=build,
        parameters={**EVERYWHERE, "MachineKmsKeyArn": key, "MachineLogLevel": "ALL"},
    )
    payer, payee = bank.new_account(10), bank.new_account(0)
    url = api_url(stack, bank.aws.endpoint_url)
    credentials = bank.aws.client("sqs")._request_signer._credentials
    caller = Caller(url=f"{url}/workflows", credentials=credentials, region=REGION)
    asked = bank.transfer(payer, payee, 10)
    answer = eventually(
        lambda: caller.post(asked, "switches-1"), lambda seen: seen.status == 200, what="it is done", seconds=60
    )
    assert (bank.balance(payer), bank.balance(payee)) == (0, 10), answer.body
    bank.aws.client("cloudformation").delete_stack(StackName=stack.name)
