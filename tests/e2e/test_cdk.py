"""The CDK app of docs/component.md takes the component in as it is shipped.

aws-cdk-lib is large and of no use without Node.js: `make test` installs it where Node.js is, `make setup` does not.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from harness.cloud import ROOT
from tests.template import COMPONENT, load

if TYPE_CHECKING:
    from pathlib import Path

CDK = ROOT / ".tools" / "cdk" / "bin" / "python"
DOCUMENT = ROOT / "docs" / "component.md"


@pytest.fixture(scope="module")
def synthesised(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The template that the app makes, in a project that has been built."""
    if shutil.which("node") is None:
        pytest.skip("there is no Node.js here, so the CDK cannot run")
    if not CDK.exists():
        pytest.skip("aws-cdk-lib is not installed: run `make .tools/cdk/.complete`")
    folder = tmp_path_factory.mktemp("app")
    (code,) = re.findall(r"(?ms)^```py\n(.*?)^```", DOCUMENT.read_text())
    (folder / "app.py").write_text(code)
    (folder / ".build" / "src" / "orders").mkdir(parents=True)
    (folder / ".build" / "src" / "orders" / "handler.py").touch()
    shutil.copy(COMPONENT, folder)
    return synthesise(folder)


def synthesise(folder: Path) -> dict[str, Any]:
    environment = {**os.environ, "CDK_OUTDIR": "out", "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "true"}
    done = subprocess.run(
        [CDK, "app.py"], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads((folder / "out" / "orders.template.json").read_text()))


def of_type(template: dict[str, Any], type: str) -> list[dict[str, Any]]:
    return [each["Properties"] for each in template["Resources"].values() if each["Type"] == type]


def test_all_of_the_component_is_in_it(synthesised: dict[str, Any]) -> None:
    shipped = load(COMPONENT)
    assert {name: each["Type"] for name, each in shipped["Resources"].items()}.items() <= {
        name: each["Type"] for name, each in synthesised["Resources"].items()
    }.items()
    assert set(shipped["Outputs"]) <= set(synthesised["Outputs"]), "what `receiver` reads"
    for name in ("Queue", "DeadLetterQueue", "Records"):
        assert synthesised["Resources"][name]["DeletionPolicy"] == "Retain"


def test_the_function_has_what_the_component_made_for_it(synthesised: dict[str, Any]) -> None:
    (function,) = of_type(synthesised, "AWS::Lambda::Function")
    assert function["FunctionName"] == synthesised["Outputs"]["ConsumerName"]["Value"] == "orders"
    assert {"Ref": "ConsumerRole"} in function["Role"]["Fn::Join"][1]
    assert function["LoggingConfig"] == {"LogGroup": {"Ref": "ConsumerLogGroup"}}
    variables = function["Environment"]["Variables"]
    assert variables["RECORDS_TABLE"] == {"Fn::If": ["MakeTable", {"Ref": "Records"}, {"Ref": "RecordsTable"}]}
    assert str(function["Timeout"]) == load(COMPONENT)["Parameters"]["FunctionTimeout"]["Default"]


def test_lambda_takes_its_answer_message_by_message(synthesised: dict[str, Any]) -> None:
    (mapping,) = of_type(synthesised, "AWS::Lambda::EventSourceMapping")
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert mapping["EventSourceArn"]["Fn::If"][:2] == ["MakeQueue", {"Fn::GetAtt": "Queue.Arn"}]


def test_the_mapping_waits_for_the_policies_that_are_granted(synthesised: dict[str, Any]) -> None:
    """It refers to the function, so it is enough that the function waits."""
    granted = [name for name, each in synthesised["Resources"].items() if each["Type"] == "AWS::IAM::Policy"]
    (function,) = [each for each in synthesised["Resources"].values() if each["Type"] == "AWS::Lambda::Function"]
    assert granted
    assert set(granted) <= set(function["DependsOn"])


def test_no_condition_of_it_depends_on_a_resource(synthesised: dict[str, Any]) -> None:
    """CloudFormation would refuse the template."""
    for condition in synthesised["Conditions"].values():
        assert "Fn::GetAtt" not in json.dumps(condition)
        assert set(re.findall(r'"Ref": "([^"]+)"', json.dumps(condition))) <= {
            *synthesised["Parameters"],
            "AWS::Region",
        }
