"""docs/deploying.md, "Into a template that you have": SAM, CDK and Terraform get the same settings and permissions."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

import pytest

from harness.cloud import ROOT
from idempotent_receiver.operations.doctor.roles import FROM_A_QUEUE, ON_RECORDS
from tests.template import parsed
from tests.unit.templates.test_edits import problems

if TYPE_CHECKING:
    from pathlib import Path

PAGE = (ROOT / "docs/deploying.md").read_text()
SECTION = PAGE.partition("\n## Into a template that you have\n")[2].partition("\n## ")[0]
SAM, CDK, TERRAFORM = (re.findall(rf"(?s)```{kind}\n(.*?)```", SECTION)[0] for kind in ("yaml", "py", "hcl"))
EACH = pytest.mark.parametrize("text", [SAM, CDK, TERRAFORM], ids=["SAM", "CDK", "Terraform"])


@EACH
def test_the_role_may_do_on_records_what_doctor_asks_for_and_no_more(text: str) -> None:
    on_records = set(re.findall(r"\b((?:Put|Update|Delete|Get|BatchGet|BatchWrite)Item|PartiQL\w+|Query|Scan)\b", text))
    assert on_records == set(ON_RECORDS)
    assert "ChangeMessageVisibility" in text


def test_only_terraform_has_to_allow_what_the_poller_does() -> None:
    assert set(re.findall(r"sqs:(\w+)", TERRAFORM)) == set(FROM_A_QUEUE)
    assert set(re.findall(r"sqs:(\w+)", SAM + CDK)) == {"ChangeMessageVisibility"}, "the rest is added by their tools"
    assert "policy = data.aws_iam_policy_document.orders.json" in TERRAFORM, "no tool attaches it to the role"


@EACH
def test_failures_are_reported_by_message_and_records_expire(text: str) -> None:
    assert re.search(r"ReportBatchItemFailures|report_batch_item_failures=True", text)
    assert re.search(r"(AttributeName: |attribute_name = |attribute=)\"?expiration", text)


def test_terraforms_lines_have_the_queues_and_the_functions_settings() -> None:
    """A dead-letter queue keeps a message for four days unless told; doctor wants longer than the queue's own."""
    visibility, receives, kept, timeout = (
        int(re.findall(rf"{name} *(?:=|of) (\d+)", TERRAFORM)[0])
        for name in ("visibility_timeout_seconds", "maxReceiveCount", "message_retention_seconds", "timeout")
    )
    window = int(re.findall(r"batching_window_in_seconds = (\d+)", TERRAFORM)[0])
    assert visibility >= 6 * timeout + window
    assert receives >= 5
    assert (
        kept
        == parsed(f"Transform: AWS::Serverless-2016-10-31\n{SAM}")["Resources"]["OrdersDead"]["Properties"][
            "MessageRetentionPeriod"
        ]
    )
    assert "RECORDS_TABLE = aws_dynamodb_table.records.name" in TERRAFORM


def test_what_is_zipped_for_terraform_is_built_for_lambda_and_not_for_this_machine() -> None:
    (runtime,) = re.findall(r"Runtime: python([\d.]+)", SAM)
    (install,) = re.findall(r"pip install .*", SECTION)
    assert f"--python-version {runtime} --only-binary=:all:" in install
    assert "--platform manylinux2014_x86_64" in install


def test_the_template_is_clean_and_its_queue_outwaits_its_function(tmp_path: Path) -> None:
    made: dict[str, Any] = parsed(f"Transform: AWS::Serverless-2016-10-31\n{SAM}")["Resources"]
    function, queue = made["OrdersFunction"]["Properties"], made["Orders"]["Properties"]
    window = function["Events"]["Orders"]["Properties"]["MaximumBatchingWindowInSeconds"]
    assert queue["VisibilityTimeout"] >= 6 * function["Timeout"] + window
    assert queue["RedrivePolicy"]["maxReceiveCount"] >= 5
    assert problems(f"Transform: AWS::Serverless-2016-10-31\n{SAM}", tmp_path, informational=False) == []


def test_the_cdks_lines_are_python_and_use_what_the_whole_app_imports() -> None:
    app = (ROOT / "deploy/cdk.py").read_text()
    known = {node.id for node in ast.walk(ast.parse(app)) if isinstance(node, ast.Name)}
    names = {node.id for node in ast.walk(ast.parse(CDK)) if isinstance(node, ast.Name)}
    assert names <= known
