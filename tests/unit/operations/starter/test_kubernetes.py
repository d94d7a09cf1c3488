"""What kubernetes.yaml of a project with an image promises, and that the documentation shows the same."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import kubernetes_validate
import pytest
import yaml
from typer.main import get_command

from harness.cloud import ROOT
from idempotent_receiver.operations.cli import receiver
from idempotent_receiver.operations.starter.project import Project, contents

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KUBERNETES = "1.37"
OF_KEDA = {"TriggerAuthentication", "ScaledObject"}
"""Kubernetes has no schema of these. Their fields are those of KEDA's documentation, "AWS SQS Queue"."""
FIVE_MINUTES = 300
CHOICES: dict[str, dict[str, Any]] = {
    "its own queue": {},
    "a fifo queue": {"fifo": True},
    "another's queue": {"queue_arn": "arn:aws:sqs:eu-west-1:210987654321:refunds"},
    "a name with an underscore": {"name": "all_orders"},
}
every_choice = pytest.mark.parametrize("choice", CHOICES)


def made(choice: str = "its own queue") -> dict[str, str]:
    project = Project(container=True, **{"name": "orders", **CHOICES[choice]})
    return contents(project, requirement="x", requirement_dev="x[cli]")


def objects(choice: str = "its own queue") -> dict[str, dict[str, Any]]:
    """The manifest's objects by their kinds."""
    found = list(yaml.safe_load_all(made(choice)["kubernetes.yaml"]))
    assert len({each["kind"] for each in found}) == len(found)
    return {each["kind"]: each for each in found}


def pod(choice: str = "its own queue") -> dict[str, Any]:
    spec: dict[str, Any] = objects(choice)["Deployment"]["spec"]["template"]["spec"]
    return spec


def worker(choice: str = "its own queue") -> dict[str, Any]:
    (container,) = pod(choice)["containers"]
    return dict(container)


def given(choice: str = "its own queue") -> dict[str, Any]:
    """What `receiver work` takes its arguments for."""
    work: Any = get_command(receiver.app).commands["work"]  # type: ignore[attr-defined]  # it is a group
    taken: dict[str, Any] = work.make_context("work", list(worker(choice)["args"])).params
    return taken


# Kubernetes takes it.


@every_choice
def test_each_object_has_the_form_that_kubernetes_demands(choice: str) -> None:
    for kind, each in objects(choice).items():
        if kind not in OF_KEDA:
            kubernetes_validate.validate(each, KUBERNETES, strict=True)


@pytest.mark.parametrize(
    ("right", "wrong", "why"),
    [
        ("failureThreshold", "failureTreshold", "'failureTreshold' was unexpected"),
        ("periodSeconds: 30", "periodSeconds: thirty", "'thirty' is not of type 'integer'"),
        ("selector: {matchLabels: {app: orders}}", "minReadySeconds: 1", "'selector' is a required property"),
        ("emptyDir: {}", "emptyDirectory: {}", "'emptyDirectory' was unexpected"),
        ("- name: worker\n          image", "- image", "'name' is a required property"),
    ],
)
def test_another_form_would_be_refused(right: str, wrong: str, why: str) -> None:
    text = made()["kubernetes.yaml"]
    assert text.count(right) == 1
    (changed,) = [each for each in yaml.safe_load_all(text.replace(right, wrong)) if each["kind"] == "Deployment"]
    with pytest.raises(kubernetes_validate.ValidationError) as refused:
        kubernetes_validate.validate(changed, KUBERNETES, strict=True)
    assert why in refused.value.message


@every_choice
def test_each_object_refers_to_those_that_are_there(choice: str) -> None:
    found = objects(choice)
    names = {kind: each["metadata"]["name"] for kind, each in found.items()}
    assert (
        found["Deployment"]["spec"]["selector"]["matchLabels"]
        == (found["Deployment"]["spec"]["template"]["metadata"]["labels"])
    )
    assert pod(choice)["serviceAccountName"] == names["ServiceAccount"]
    assert found["ScaledObject"]["spec"]["scaleTargetRef"] == {"name": names["Deployment"]}
    (trigger,) = found["ScaledObject"]["spec"]["triggers"]
    assert trigger["authenticationRef"] == {"name": names["TriggerAuthentication"]}
    assert all(re.fullmatch(r"[a-z0-9-]+", name) for name in names.values()), "Kubernetes takes no other names"
    (variables,) = [each["configMapRef"]["name"] for each in worker(choice)["envFrom"]]
    assert f"kubectl create configmap {variables} --from-env-file variables.env" in made(choice)["README.md"]


# The worker starts, works and ends as it should.


@pytest.mark.parametrize(
    ("choice", "queue", "handler"),
    [
        ("its own queue", "us-east-1.amazonaws.com/123456789012/orders", "orders"),
        ("a fifo queue", "us-east-1.amazonaws.com/123456789012/orders.fifo", "orders"),
        ("another's queue", "eu-west-1.amazonaws.com/210987654321/refunds", "orders"),
        ("a name with an underscore", "us-east-1.amazonaws.com/123456789012/all-orders", "all_orders"),
    ],
)
def test_it_runs_the_handler_on_the_queue_whose_backlog_scales_it(choice: str, queue: str, handler: str) -> None:
    assert given(choice)["queue_url"] == f"https://sqs.{queue}"
    assert given(choice)["handler"] == f"{handler}.handler:lambda_handler"
    (trigger,) = objects(choice)["ScaledObject"]["spec"]["triggers"]
    assert trigger["type"] == "aws-sqs-queue"
    assert (trigger["metadata"]["queueURL"], trigger["metadata"]["awsRegion"]) == (
        f"https://sqs.{queue}",
        queue.partition(".")[0],
    )


def test_messages_in_flight_count_for_its_scaling() -> None:
    """Else the last pods would be ended while their handlers run. KEDA takes nothing but texts."""
    (trigger,) = objects()["ScaledObject"]["spec"]["triggers"]
    assert trigger["metadata"]["scaleOnInFlight"] == "true"
    assert {type(each) for each in trigger["metadata"].values()} == {str}
    assert "replicas" not in objects()["Deployment"]["spec"], "each `kubectl apply` would undo the scaling"


def test_what_drains_may_end_before_it_is_killed() -> None:
    assert given()["drain_seconds"] < pod()["terminationGracePeriodSeconds"]


def test_it_runs_without_rights_and_may_write_where_its_health_file_is() -> None:
    (user,) = re.findall(r"(?m)^USER (\d+):", made()["Dockerfile"])
    context = pod()["securityContext"]
    assert (context["runAsNonRoot"], context["runAsUser"]) == (True, int(user))
    assert worker()["securityContext"] == {
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    (mounted,) = worker()["volumeMounts"]
    assert mounted["mountPath"] == str(given()["health_file"].parent)
    assert {each["name"] for each in pod()["volumes"]} == {mounted["name"]}
    assert worker()["resources"]["limits"].keys() == {"memory"}
    assert worker()["resources"]["requests"].keys() == {"cpu", "memory"}


# Its probes.


@pytest.fixture
def probed(tmp_path: Path) -> Callable[[str], bool]:
    """Runs a probe's command where there is no shell, and nothing else than Python. Whether it succeeds."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)

    def run(probe: str) -> bool:
        (program, *arguments) = worker()[probe]["exec"]["command"]
        health_file = str(given()["health_file"])
        assert sum(each.count(health_file) for each in arguments) == 1
        command = [tmp_path / "bin" / program, *(each.replace(health_file, f"{tmp_path}/alive") for each in arguments)]
        environment = {"PATH": str(tmp_path / "bin"), "PYTHONOPTIMIZE": "1"}
        return subprocess.run(command, env=environment, capture_output=True, check=False).returncode == 0

    return run


@pytest.mark.parametrize(
    ("age_seconds", "succeed"),
    [
        (None, set()),
        (0, {"startupProbe", "livenessProbe", "readinessProbe"}),
        (30, {"startupProbe", "livenessProbe", "readinessProbe"}),  # no process is started for so long after deaths
        (90, {"startupProbe"}),
    ],
)
def test_a_worker_has_started_once_its_file_is_there_and_lives_while_it_is_young(
    probed: Callable[[str], bool], tmp_path: Path, age_seconds: float | None, succeed: set[str]
) -> None:
    if age_seconds is not None:
        (tmp_path / "alive").touch()
        os.utime(tmp_path / "alive", (time.time() - age_seconds,) * 2)

    assert {probe for probe in ("startupProbe", "livenessProbe", "readinessProbe") if probed(probe)} == succeed


def test_a_handler_may_load_for_five_minutes() -> None:
    """A worker that is killed while it loads would be killed for ever."""
    probe = worker()["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= FIVE_MINUTES
    assert probe["initialDelaySeconds"] >= 5, "the file of a container before it must be gone"


# The documentation.


def test_the_documentation_says_what_writes_the_file_and_shows_a_job_instead_of_it() -> None:
    page = (ROOT / "docs" / "containers.md").read_text()
    (section,) = re.findall(r"(?s)\n## On Kubernetes\n(.*)", page)
    (job,) = re.findall(r"(?s)```yaml\n(.*?)```", section)
    assert yaml.safe_load(job)["kind"] == "ScaledJob"
    (command,) = re.findall(r"receiver init [^`\n]*--container", section)
    assert shlex.split(command)[2] == "orders"
