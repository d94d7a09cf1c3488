"""`make aws`, where there is no account: its parts on the local cloud, and on one that is made as slow as AWS."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from harness.aws import places, steps
from harness.aws.disturbances import disturbing, stopped
from harness.aws.places import LocalCloud
from harness.aws.results import Results
from harness.aws.steps import Trial
from harness.cloud import MINISTACK, ROOT, Cloud
from harness.cloud import embedded_cloud as embedded
from harness.deploy import deploy
from harness.removal import left_of
from harness.workload.deployment import EDITS
from harness.workload.stack_client import StackClient
from idempotent_receiver.local.cloud import Ministack, embedded_cloud
from idempotent_receiver.local.deployment import describe_function
from tests.e2e.recorder import send_by
from tests.e2e.slow_cloud import SlowCloud, metadata_service

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from idempotent_receiver.local.deployment import Stack
    from tests.e2e.deployed import Aws

NAME = "receiver-proof-000000"
SESSION = "ASIA0000000000000000"
MAPPING_SECONDS = 4.0
QUICK = {"N": "20"}
NOT_TOLD_APART = {"concurrency", "account-limit", "permissions", "alarms"}
"""Checks of `receiver doctor` whose requests the local cloud refuses, although AWS's policies allow them: it compares
the ARN of another resource.
"""


@pytest.fixture
def account(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> Aws:
    """The local cloud in place of an account, for whoever asks as if it were AWS."""
    for name, value in _caller(aws.endpoint_url).items():
        monkeypatch.setenv(name, value)
    return aws


def _caller(endpoint_url: str, **more: str) -> dict[str, str]:
    """The environment of somebody who asks a cloud as if it were AWS."""
    return {
        "AWS_ENDPOINT_URL": endpoint_url,
        "AWS_ACCESS_KEY_ID": "000000000000",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        **more,
    }


@pytest.fixture(scope="module")
def slow(build: Path) -> Iterator[SlowCloud]:
    """A local cloud as slow as AWS, with the trial's stack."""
    with embedded() as cloud, SlowCloud(cloud.endpoint_url, mapping_seconds=MAPPING_SECONDS) as slow:
        LocalCloud(cloud).deploy(NAME)
        yield slow


@pytest.fixture
def tried(slow: SlowCloud) -> Trial:
    """A trial of that stack, of which nothing was tried yet."""
    return Trial(results=Results(), place=LocalCloud(Cloud(slow.endpoint_url, "slow")), name=NAME, soak={})


def made_by(environment: dict[str, str]) -> tuple[int, str]:
    """The status of `make aws`, and what it said, without anybody to answer."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_") and name != "ACCOUNT"}
    command = [sys.executable, "-m", "harness.aws"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=kept | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, " ".join(done.stdout.split())


# Before anything is made.


@pytest.mark.parametrize("given", [{}, {"ACCOUNT": ""}, {"ACCOUNT": "123456789012"}])
def test_without_the_accounts_own_number_nothing_is_made(aws: Aws, given: dict[str, str]) -> None:
    status, said = made_by(_caller(aws.endpoint_url, **given))
    assert status == 2
    assert "it costs at most about $" in said
    assert "these credentials do not expire" in said
    assert "set ACCOUNT=000000000000 to confirm" in said
    assert not list(left_of(aws, "receiver-proof-"))


def test_credentials_that_end_too_soon_are_refused_although_it_is_agreed(aws: Aws) -> None:
    ends = datetime.now(UTC) + timedelta(minutes=60)
    given = {"AWS_SESSION_TOKEN": "a-session", "AWS_CREDENTIAL_EXPIRATION": ends.isoformat()}
    status, said = made_by(_caller(aws.endpoint_url, ACCOUNT="000000000000", **given))
    assert (status, "these credentials end in 59 minutes, and this takes about" in said) == (2, True), said
    assert not list(left_of(aws, "receiver-proof-"))


def test_a_machines_role_is_found_and_its_credentials_are_renewed(aws: Aws) -> None:
    with metadata_service(SESSION) as (url, asked):
        status, said = made_by(_of_a_machine(aws.endpoint_url, url))
    assert (status, "and botocore renews them" in said) == (2, True), said
    assert asked


def _of_a_machine(endpoint_url: str, metadata_url: str) -> dict[str, str]:
    """The environment of a machine that has no credentials but those of its role."""
    environment = _caller(endpoint_url, AWS_EC2_METADATA_SERVICE_ENDPOINT=metadata_url)
    nowhere = {"AWS_CONFIG_FILE": "/nowhere", "AWS_SHARED_CREDENTIALS_FILE": "/nowhere"}
    kept = {name: value for name, value in environment.items() if "KEY" not in name}
    return kept | nowhere


# The steps, on a cloud that takes its time.


def test_the_contract_is_run_with_the_credentials_of_a_machines_role(
    slow: SlowCloud, tried: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "--ignore-glob=*/test_[!t]*")  # those of transactions will do
    with metadata_service(SESSION) as (url, asked), monkeypatch.context() as patched:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patched.delenv(name)
        place: Any = _Found(_of_a_machine(slow.endpoint_url, url))
        steps._contract(Trial(results=tried.results, place=place, name=NAME, soak={}))
    assert tried.results.failures == {}
    assert tried.results.checks["contract"] == "passed"
    assert asked


class _Found:
    """A place of which only the environment counts."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment


def test_a_mapping_that_is_still_on_its_way_is_disabled_and_enabled_again(slow: SlowCloud) -> None:
    """Lambda refuses to change one that it is changing, and botocore does not ask again."""
    cloud = Cloud(slow.endpoint_url, "slow")
    client = StackClient(stack=describe_function(cloud, NAME), clients=cloud)
    mapping = client.stack.resources["ConsumerMessages"]
    client.functions.update_event_source_mapping(UUID=mapping, Enabled=True)  # somebody deploys

    def state() -> str:
        return str(client.functions.get_event_source_mapping(UUID=mapping)["State"])

    assert state() == "Enabling"
    with disturbing(stopped, client, 0.0) as disturbed:
        assert disturbed.wait(60)
        assert state() == "Disabled"
    assert state() == "Enabled"


def test_a_soak_whose_credentials_end_tells_what_it_saw(slow: SlowCloud) -> None:
    more = {"STACK": NAME, "MINUTES": "0", "HOLD": "1", "AWS_SESSION_TOKEN": "a-session", **QUICK}
    environment = {**os.environ, **_caller(slow.endpoint_url, **more), "AWS_ACCESS_KEY_ID": SESSION}
    command = [sys.executable, "-m", "harness.aws.soak"]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = []
        for line in process.stdout:
            if line.startswith("{"):
                told.append(json.loads(line))
                slow.expire(SESSION)
    assert (process.returncode, told[0]["rounds"], told[0]["complaints"]) == (1, 1, [])
    (complaint,) = told[-1]["complaints"]
    assert complaint.startswith("round 2, 2 s and 128 MB: ClientError: ")
    assert "ExpiredToken" in complaint
    assert (told[-1]["rounds"], told[-1]["sent"], told[-1]["lost"]) == (1, 20, 0)


def test_a_soak_disturbs_a_slow_stack_in_every_way_and_undoes_it(tried: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = Trial(results=tried.results, place=tried.place, name=NAME, soak={"MINUTES": "0", "HOLD": "2", **QUICK})
    steps._soak(tried)
    assert tried.results.failures == {}, tried.results.figures
    assert tried.results.figures["soak: rounds"] == 7
    assert tried.results.figures["soak: complaints"] == []
    assert describe_function(tried.place.clients, NAME).parameters["Effects"] == "any"  # type: ignore[attr-defined]


def test_a_stack_that_is_deployed_again_and_one_with_a_fifo_queue_are_tried(
    tried: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in QUICK.items():
        monkeypatch.setenv(name, value)
    steps._fifo(tried)
    steps._update(tried)
    assert tried.results.failures == {}
    for what in ("fifo", "update"):
        assert (tried.results.figures[f"{what}: sent"], tried.results.figures[f"{what}: lost"]) == (20, 0)
    for stack, effects in ((NAME, "transaction"), (f"{NAME}-fifo", "any")):
        assert describe_function(tried.place.clients, stack).parameters["Effects"] == effects  # type: ignore[attr-defined]


# The operator, where policies count.


class Enforcing(Ministack):
    """A local cloud that asks the policies of whoever calls."""

    def environment(self, port: int) -> dict[str, str]:
        return {**super().environment(port), "AUTH": "true"}


def _let_batches_pass(cloud: Cloud, stack: Stack) -> None:
    """A batch has no permission of its own on AWS; the local cloud asks for one. It is allowed where the action is."""
    iam, arn = cloud.client("iam"), stack.outputs["OperatorPolicyArn"]
    document = iam.get_policy_version(PolicyArn=arn, VersionId="v1")["PolicyVersion"]["Document"]
    for statement in document["Statement"]:
        actions = [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]
        statement["Action"] = [*actions, *(f"{each}Batch" for each in actions if each.startswith("sqs:"))]
    iam.create_policy_version(PolicyArn=arn, PolicyDocument=json.dumps(document), SetAsDefault=True)
    batches = {"Effect": "Allow", "Action": "dynamodb:BatchExecuteStatement", "Resource": "*"}
    iam.put_role_policy(
        RoleName=stack.resources["ConsumerRole"],
        PolicyName="Batches",
        PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [batches]}),
    )


def test_no_command_of_the_operators_needs_more_than_their_policy_allows(build: Path) -> None:
    with embedded_cloud(Enforcing(f"{MINISTACK}/bin/python")) as cloud, SlowCloud(cloud.endpoint_url) as slow:
        stack = deploy(cloud, name=NAME, edits=EDITS)
        send_by(slow.recorder, cloud, stack.resources["Consumer"])
        _let_batches_pass(cloud, stack)
        place: Any = _Found(_caller(slow.endpoint_url))
        tried = Trial(results=Results(), place=place, name=NAME, soak={})
        steps._commands(tried)
        left = [each for each in left_of(cloud, NAME) if "operator" in each]
    refused = tried.results.checks.pop("commands: doctor")
    assert {each for each in NOT_TOLD_APART if f"'{each}'" in refused} == NOT_TOLD_APART
    assert refused.count("'check'") == len(NOT_TOLD_APART)
    commands = {name: verdict for name, verdict in tried.results.checks.items() if name != "commands"}
    assert len(commands) == 14
    assert set(commands.values()) == {"passed"}
    assert left == []


# What is made, and removed.


def test_it_is_deployed_by_sam_and_removed_and_what_is_left_is_named(
    account: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, results = f"{NAME}-left", Results()
    monkeypatch.setattr(places, "LISTED_SECONDS", 1.0)
    # The local cloud refuses metric math.
    monkeypatch.setattr(places, "PARAMETERS", {**places.PARAMETERS, "DeadLetterArrivals": "false"})
    with pytest.raises(KeyboardInterrupt), places.on_aws(name, "us-east-1", results) as place:  # noqa: PT012  # likewise
        place.deploy(name)
        place.deploy_api(name)
        place.deploy(f"{name}-fifo", "FIFO")
        place.deploy(name, Effects="transaction")
        assert describe_function(account, name).parameters["Effects"] == "transaction"
        assert describe_function(account, f"{name}-fifo").outputs["QueueUrl"].endswith(".fifo")
        kinds = {each.partition(":")[0] for each in left_of(account, name)}
        key: Any = {"KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}], "BillingMode": "PAY_PER_REQUEST"}
        types = [{"AttributeName": "id", "AttributeType": "S"}]
        account.client("dynamodb").create_table(TableName=f"{name}-more", AttributeDefinitions=types, **key)
        raise KeyboardInterrupt
    assert len(kinds) == 9, f"the list of what may be left knows kinds that a stack has: {kinds}"
    remedy = f"`make aws REMOVE={name}` tries again"
    assert results.checks == {"removal": f"failed: left dynamodb tables: {name}-more. {remedy}"}
    assert not list(ROOT.glob(f".{name}*")), "the edited template is beside the original only while it is built"
    account.client("dynamodb").delete_table(TableName=f"{name}-more")


def test_what_is_left_where_credentials_have_ended_is_named_and_removed_later(
    aws: Aws, build: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, results = f"{NAME}-expired", Results()
    with ExitStack() as cleanup:
        slow = cleanup.enter_context(SlowCloud(aws.endpoint_url))
        monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # it keeps its credentials
        for variable, value in _caller(slow.endpoint_url, AWS_ACCESS_KEY_ID=SESSION).items():
            monkeypatch.setenv(variable, value)
        with places.on_aws(name, "us-east-1", results):
            deploy(Cloud(aws.endpoint_url, "fast"), name=name)
            slow.expire(SESSION)
        assert "ExpiredToken" in results.checks["removal"]
        assert f"`make aws REMOVE={name}` tries again" in results.checks["removal"]
    assert list(left_of(aws, name))
    status, _ = made_by(_caller(aws.endpoint_url, REMOVE=name))
    assert status == 0
    assert not list(left_of(aws, name))
