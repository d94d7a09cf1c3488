"""The CDK app, deploy/cdk.py, in a project of `receiver init`: synthesised, and deployed on the local cloud.

aws-cdk-lib is large and of no use without Node.js: `make test` installs it where Node.js is, `make setup` does not.
"""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.cloud import ACCOUNT, REGION, ROOT
from harness.deploy import HOST_BUILD
from idempotent_receiver.local.deployment import ARRIVALS, create, zipped
from idempotent_receiver.operations.doctor.checks import examine
from idempotent_receiver.operations.doctor.facts import consumer_of, gather
from idempotent_receiver.operations.doctor.roles import ON_RECORDS
from tests.e2e.deployed import Deployed
from tests.e2e.making import files, run
from tests.template import load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.deployed import Aws

CDK = ROOT / ".tools" / "cdk" / "bin" / "python"
APP = ROOT / "deploy" / "cdk.py"
PROJECT = "orders"
NAME = "orders-by-cdk"
"""Of the stack; another test has a stack of the documents' name."""
ASSETS = f"cdk-hnb659fds-assets-{ACCOUNT}-{REGION}"
"""The bucket of the CDK's default bootstrap stack, and below its version."""
VERSION = "/cdk-bootstrap/hnb659fds/version"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the app in it, synthesised. Of its build, it has its own code."""
    if shutil.which("node") is None:
        pytest.skip("there is no Node.js here, so the CDK cannot run")
    if not CDK.exists():
        pytest.skip("aws-cdk-lib is not installed: run `make .tools/cdk/.complete`")
    folder = tmp_path_factory.mktemp("app")
    run(sys.executable, "-m", "idempotent_receiver", "init", PROJECT, cwd=folder)
    made = folder / PROJECT
    (made / "app.py").write_text(APP.read_text().replace(f'"{PROJECT}"', f'"{NAME}"'))
    shutil.copytree(made / "src", made / ".aws-sam" / "build" / "Consumer")
    synthesise(made)
    return made


def synthesise(folder: Path) -> None:
    environment = {**os.environ, "CDK_OUTDIR": "out", "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "true"}
    done = subprocess.run(
        [CDK, "app.py"], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def synthesised(project: Path) -> dict[str, Any]:
    """The template that the app makes."""
    return dict(json.loads((project / "out" / f"{NAME}.template.json").read_text()))


def of_type(template: dict[str, Any], type: str) -> list[dict[str, Any]]:
    return [each["Properties"] for each in template["Resources"].values() if each["Type"] == type]


def test_it_tells_what_receiver_reads(project: Path, synthesised: dict[str, Any]) -> None:
    """Whatever the project's own template tells, but the operators' policy."""
    assert set(load(project / "template.yaml")["Outputs"]) - {"OperatorPolicyArn"} == set(synthesised["Outputs"])


def test_it_watches_with_the_template_as_it_is(project: Path, synthesised: dict[str, Any]) -> None:
    (watch,) = of_type(synthesised, "AWS::CloudFormation::Stack")
    (asset,) = (project / "out").glob("asset.*.yaml")
    assert asset.read_bytes() == (project / "watch.yaml").read_bytes()
    wanted = load(project / "watch.yaml")["Parameters"]
    assert {name for name, each in wanted.items() if "Default" not in each} <= set(watch["Parameters"]) <= set(wanted)


def test_what_is_not_to_be_lost_is_kept_when_the_stack_is_deleted(synthesised: dict[str, Any]) -> None:
    tables = [each for each in synthesised["Resources"].values() if each["Type"] == "AWS::DynamoDB::Table"]
    assert [each["DeletionPolicy"] for each in tables] == ["Retain"] * 2


def test_it_has_what_the_projects_template_has(project: Path, synthesised: dict[str, Any]) -> None:
    """Queues, mapping and function agree in every number."""
    written = load(project / "template.yaml")["Resources"]
    queues = [written[name]["Properties"] for name in ("Queue", "DeadLetterQueue")]
    assert {times(each) for each in of_type(synthesised, "AWS::SQS::Queue")} == {times(each) for each in queues}
    (function,) = of_type(synthesised, "AWS::Lambda::Function")
    for property in ("Handler", "Runtime", "Architectures", "MemorySize", "Timeout"):
        assert function[property] == written["Consumer"]["Properties"][property]
    (mapping,) = of_type(synthesised, "AWS::Lambda::EventSourceMapping")
    for property in ("BatchSize", "MaximumBatchingWindowInSeconds", "ScalingConfig", "FunctionResponseTypes"):
        asked = written["Consumer"]["Properties"]["Events"]["Messages"]["Properties"][property]
        assert mapping[property] == asked


def times(queue: dict[str, Any]) -> tuple[int | None, int, int | None]:
    """A queue's visibility timeout, retention and receives, as far as they are stated; four days are SQS's default."""
    receives = queue.get("RedrivePolicy", {}).get("maxReceiveCount")
    return queue.get("VisibilityTimeout"), queue.get("MessageRetentionPeriod", 345600), receives


def test_the_mapping_waits_for_the_policies_that_are_granted(synthesised: dict[str, Any]) -> None:
    """It refers to the function, so it is enough that the function waits."""
    granted = [name for name, each in synthesised["Resources"].items() if each["Type"] == "AWS::IAM::Policy"]
    (function,) = [each for each in synthesised["Resources"].values() if each["Type"] == "AWS::Lambda::Function"]
    assert granted
    assert set(granted) <= set(function["DependsOn"])


def test_it_may_do_on_records_what_the_library_does(synthesised: dict[str, Any]) -> None:
    statements = [each for p in of_type(synthesised, "AWS::IAM::Policy") for each in p["PolicyDocument"]["Statement"]]
    records = [each["Action"] for each in statements if "Records" in json.dumps(each["Resource"])]
    assert set(records) == {f"dynamodb:{action}" for action in ON_RECORDS}


@pytest.fixture(scope="module")
def bank(aws: Aws, build: Path, project: Path, synthesised: dict[str, Any]) -> Iterator[Deployed]:
    """The app deployed, as the CDK's command line would do it: assets into the bucket, and then the stack."""
    if not aws.functions_are_processes:
        pytest.skip("functions run in containers there, and these are built for this machine")
    s3, ssm = aws.client("s3"), aws.client("ssm")
    s3.create_bucket(Bucket=ASSETS)
    ssm.put_parameter(Name=VERSION, Value="30", Type="String", Overwrite=True)
    for asset in json.loads((project / "out" / f"{NAME}.assets.json").read_text())["files"].values():
        (destination,) = asset["destinations"].values()
        s3.put_object(
            Bucket=ASSETS, Key=destination["objectKey"], Body=content_of(project / "out" / asset["source"]["path"])
        )
    template = copy.deepcopy(synthesised)
    template["Resources"]["Watch"]["Properties"]["Parameters"][ARRIVALS] = "false"
    stack = create(aws, NAME, json.dumps(template), {})
    aws.client("dynamodb").update_time_to_live(  # the local cloud passes over the template's
        TableName=stack.outputs["RecordsTable"],
        TimeToLiveSpecification={"Enabled": True, "AttributeName": "expiration"},
    )
    yield Deployed(aws, stack, [], [])
    aws.client("cloudformation").delete_stack(StackName=NAME)


def content_of(asset: Path) -> bytes:
    """A template, or the code with what it is built with."""
    return zipped(HOST_BUILD, files(asset)) if asset.is_dir() else asset.read_bytes()


def test_deployed_it_counts_an_order_once(bank: Deployed, project: Path) -> None:
    event = json.loads((project / "events" / "order.json").read_text())
    for _ in range(2):
        assert bank.invoke(event).failed == []
    (total,) = bank.aws.client("dynamodb").scan(TableName=table(bank, "Totals"))["Items"]
    assert total["cents"] == {"N": str(json.loads(event["Records"][0]["body"])["cents"])}


def table(bank: Deployed, name: str) -> str:
    """The physical name of a table; the CDK gives logical ids a hash."""
    (found,) = [each for id, each in bank.stack.resources.items() if re.fullmatch(f"{name}[0-9A-F]{{8}}", id)]
    return found


def test_doctor_finds_nothing_on_it(bank: Deployed) -> None:
    assert examine(gather(bank.aws.client, consumer_of(bank.aws.client, NAME))) == []
