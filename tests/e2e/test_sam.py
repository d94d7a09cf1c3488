"""SAM's own commands, typed in a checkout: the build is what the template states, and the build is what is deployed."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from harness.cloud import ACCOUNT, REGION, ROOT
from harness.edits import edited
from idempotent_receiver.local.container import engine
from idempotent_receiver.local.deployment import describe_function
from tests.e2e.deployed import Deployed
from tests.e2e.making import UNAFFECTED, checkout, files, run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.deployed import Aws

SAM = ROOT / ".tools" / "sam" / "bin" / "sam"
FUNCTIONS = {
    "template.yaml": ["Consumer"],
    "deploy/api.yaml": ["Api"],
    "deploy/workflow.yaml": ["Start", "Sweep", "Reconcile", "Debit", "Credit", "Receipt", "Refund"],
}
AS_SHIPPED = "python3.13-arm64"
ANSWER = '{"posted": transfer.transfer_id}'
"""What the shipped handler returns."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of its own, which finds its tools installed."""
    folder = checkout(tmp_path_factory.mktemp("typed"))
    (folder / ".tools").symlink_to(ROOT / ".tools")
    return folder


def sam(folder: Path, *arguments: str, status: int = 0, **variables: str) -> str:
    """Type a command of SAM's; what it says."""
    told = {name: value for name, value in UNAFFECTED.items() if not name.startswith("AWS_")}
    environment = {**told, "AWS_DEFAULT_REGION": REGION, "SAM_CLI_TELEMETRY": "0", **variables}
    done = run(SAM, *arguments, cwd=folder, env=environment, status=status)
    return done.stdout + done.stderr


@pytest.mark.parametrize("template", FUNCTIONS)
def test_it_builds_the_functions_of_each_template_as_make_does(template: str, tmp_path: Path) -> None:
    """In this checkout: a build in another one differs from it by the checkout's name."""
    run("make", "--silent", f".build/{AS_SHIPPED}.complete")
    options = [] if template == "template.yaml" else ["--template", template]
    sam(ROOT, "build", *options, "--build-dir", str(tmp_path))
    assert sorted(path.parent.name for path in tmp_path.glob("*/app")) == sorted(FUNCTIONS[template])
    for function in FUNCTIONS[template]:
        assert files(tmp_path / function) == files(ROOT / ".build" / AS_SHIPPED)


def test_after_the_edit_it_builds_for_the_other_runtime_and_architecture(project: Path) -> None:
    template = project / "template.yaml"
    shipped = template.read_text()
    template.write_text(edited(shipped, "Another runtime or architecture"))
    sam(project, "build")
    template.write_text(shipped)

    other, built = "python3.14-x86_64", project / ".aws-sam" / "build" / "Consumer"
    run("make", "--silent", f".build/{other}.complete")
    assert (built / "app" / "built-for").read_text().strip() == other
    assert files(built).keys() == files(ROOT / ".build" / other).keys()
    binaries = [path.name for path in built.rglob("*.so*") if "abi3" not in path.name]
    assert binaries
    assert [name for name in binaries if "cpython-314-x86_64" not in name] == []


def test_the_code_that_was_edited_and_built_is_the_code_that_runs(project: Path, aws: Aws) -> None:
    """An edit alone deploys nothing: `sam deploy` ships the last `sam build`."""
    if not aws.functions_are_processes:
        pytest.skip("functions run in containers there, and these are built for this machine")
    name, handler = f"typed-{uuid4().hex[:8]}", project / "src" / "app" / "consumer.py"
    shipped, there = handler.read_text(), at(aws)
    assert ANSWER in shipped
    for edition, built, runs in ((1, True, 1), (2, False, 1), (3, True, 3)):
        handler.write_text(shipped.replace(ANSWER, f'{{"edition": "{edition}"}}'))
        if built:
            sam(project, "build", BUILD_FOR="host")
        options = ("--stack-name", name, "--no-confirm-changeset", "--no-fail-on-empty-changeset", "--no-progressbar")
        sam(project, "deploy", *options, "--parameter-overrides", "DeadLetterArrivals=false", **there)
        assert answer_of(Deployed(aws, describe_function(aws, name), [], [])) == {"edition": str(runs)}
    aws.client("cloudformation").delete_stack(StackName=name)


def at(aws: Aws) -> dict[str, str]:
    """The variables by which SAM finds the local cloud."""
    return {"AWS_ENDPOINT_URL": aws.endpoint_url, "AWS_ACCESS_KEY_ID": ACCOUNT, "AWS_SECRET_ACCESS_KEY": "test"}


def answer_of(bank: Deployed) -> Any:
    """What the deployed handler returns, as its record has it."""
    transfer = bank.transfer(bank.new_account(1), bank.new_account(0), 1)
    transfer["transfer_id"] += f"-{uuid4().hex[:8]}"
    assert bank.invoke({"Records": [bank.delivered(transfer)]}).failed == []
    return json.loads(bank.settled(transfer["transfer_id"])["data"])


def test_a_local_invocation_lacks_nothing_but_a_container_engine(project: Path) -> None:
    """As the README has it: no file, parameter or option is missing when SAM comes to look for its engine."""
    if engine() is not None:
        pytest.skip("an engine answers here, and would pull an image")
    told = sam(project, "local", "invoke", "Consumer", "-e", "events/fresh.json", status=1)
    (missing,) = re.findall(r"(?m)^Error: (.*)$", told)
    assert missing.startswith("Running AWS SAM projects locally requires a container runtime")
