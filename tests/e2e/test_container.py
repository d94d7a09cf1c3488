"""The worker as a container runs it, on the local cloud: what it asks of AWS and of ECS, and how a job ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.cloud import ROOT
from tests.e2e.permissions import allowed, covers, granted, needed
from tests.e2e.recorder import Call, Recorder
from tests.e2e.test_work import LEASE_SECONDS, Place
from tests.template import load, rendering, text_of
from tests.unit.operations.starter.test_kubernetes import worker
from tests.unit.templates.test_container_template import GIVEN, TEMPLATE
from tests.unit.worker.test_scale_in import OFF, ON, Agent, agent  # noqa: F401  # a fixture

if TYPE_CHECKING:
    from tests.e2e.deployed import Aws

KNOWN = {"AWS::Partition": "aws", "AWS::Region": "us-east-1", "AWS::AccountId": "000000000000"}


class Container(Place):
    """A place whose worker has further variables."""

    def __init__(self, aws: Aws, folder: Path) -> None:
        super().__init__(aws, folder)
        self.variables: dict[str, str] = {}

    @property
    def environment(self) -> dict[str, str]:
        return super().environment | self.variables


READS = ("dynamodb:GetItem", "dynamodb:ConditionCheckItem")


@pytest.fixture
def place(aws: Aws, tmp_path: Path) -> Container:
    return Container(aws, tmp_path)


def resource_of(node: Any) -> str:
    """An ARN as it is in this account."""
    return re.sub("|".join(KNOWN), lambda found: KNOWN[found[0]], text_of(node))


def statements_of_the_task(place: Place) -> list[dict[str, Any]]:
    queue = place.aws.client("sqs").get_queue_attributes(QueueUrl=place.url, AttributeNames=["QueueArn"])
    parameters = {
        **GIVEN,
        "QueueArn": queue["Attributes"]["QueueArn"],
        "RecordsTable": place.records,
        "AccountsTable": place.entries,  # whose item the tests' handler updates
    }
    role = rendering(load(TEMPLATE), **parameters).rendered()["Resources"]["TaskRole"]["Properties"]
    found = role["Policies"][0]["PolicyDocument"]["Statement"]
    return [{**each, "Resource": resource_of(each["Resource"])} for each in found]


def test_what_a_worker_asks_of_aws_is_what_its_task_may_do(place: Container) -> None:
    """Of many messages and of one, with renewals, and after a process has died."""
    calls: list[Call] = []
    with Recorder(place.aws.endpoint_url, calls) as recorder:
        place.variables["AWS_ENDPOINT_URL"] = recorder.endpoint_url
        for number in range(8):
            place.send(f"long-{number}", seconds=LEASE_SECONDS / 2)
        with place.worker("--concurrency", "8"):
            place.wait_for(lambda: len(place.runs) >= 8)
            os.kill(place.runs[0].pid, signal.SIGKILL)
            place.wait_for(place.settled)
            place.send("alone", seconds=LEASE_SECONDS / 2)
            place.wait_for(place.settled)
    place.once()

    may = statements_of_the_task(place)
    asked = {permission for call in calls for permission in needed(call, KNOWN["AWS::AccountId"])}
    assert {permission for permission in asked if not allowed(permission, may)} == set()
    unused = {grant for grant in granted(may) if not any(covers(grant, each) for each in asked)}
    (of_ecs,) = [each for each in unused if each.action == "ecs:UpdateTaskProtection"]
    ledgers = {each for each in unused if each.resource.endswith("table/entries") or each.action in READS}
    assert {each.action for each in ledgers} == {"dynamodb:PutItem", *READS}, "what only the ledger's handler asks"
    assert unused == {of_ecs, *ledgers}


def test_a_task_is_protected_while_its_handler_runs(place: Container, agent: Agent) -> None:  # noqa: F811
    place.variables["ECS_AGENT_URI"] = agent.uri
    place.send("long", seconds=5)

    with place.worker():
        place.wait_for(lambda: place.of("long", "end"))
        assert agent.states == [ON]
        place.wait_for(lambda: OFF in agent.states)


SLOW_START = """
import os, time
from pathlib import Path
place = Path(os.environ["RUNS"]).parent
(place / "loading").touch()
while not (place / "loaded").exists():
    time.sleep(0.05)
from worker_handlers import handle
"""


def test_a_slow_start_is_no_death(place: Container) -> None:
    """Neither of a worker, though another one has left its file there, nor of a process that replaces another."""
    (place.folder / "slow_start.py").write_text(SLOW_START)
    place.variables["PYTHONPATH"] = str(place.folder)
    healthy, loading, loaded = (place.folder / name for name in ("healthy", "loading", "loaded"))
    healthy.touch()
    place.send("first")

    with place.worker("--health-file", str(healthy), handler="slow_start:handle"):
        place.wait_for(loading.exists)
        time.sleep(3)
        assert not succeeds("startupProbe", healthy), "it has yet to load its handler"
        assert place.runs == []
        loaded.touch()
        place.wait_for(lambda: succeeds("startupProbe", healthy))
        place.wait_for(place.settled)
        assert succeeds("livenessProbe", healthy)

        loading.unlink()
        loaded.unlink()
        os.kill(place.of("first")[0].pid, signal.SIGKILL)
        place.wait_for(loading.exists)
        os.utime(healthy, (0, 0))
        place.wait_for(lambda: succeeds("livenessProbe", healthy))
        loaded.touch()
        place.send("second")
        place.wait_for(place.settled)
    place.once()


def succeeds(probe: str, health_file: Path) -> bool:
    """Whether a probe of the manifest that `receiver init --container` writes finds the worker of this file well."""
    _, *arguments = [each.replace("/tmp/healthy", str(health_file)) for each in worker()[probe]["exec"]["command"]]
    return subprocess.run([sys.executable, *arguments], capture_output=True, check=False).returncode == 0


def test_a_job_takes_what_comes_for_a_while_and_ends_with_its_last_handler(place: Container) -> None:
    """As the documented ScaledJob does."""
    document = (ROOT / "docs" / "containers.md").read_text()
    (documented,) = re.findall(r"command: \[(timeout, .*), '60', receiver, work\]", document)
    place.send("long", seconds=8)

    command = [*documented.split(", "), "4", *place.command("--drain-seconds", "60")]
    done = subprocess.run(
        command, cwd=ROOT / "tests" / "e2e", env=place.environment, capture_output=True, timeout=60, check=False
    )

    assert done.returncode == 0, done.stderr
    place.once()
    assert len(place.runs) == 2


def as_first_process(command: list[str]) -> list[str]:
    """The command as the process with the id 1, as in a container."""
    return ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc", *command]


@pytest.mark.skipif(
    subprocess.run(as_first_process(["true"]), capture_output=True, check=False).returncode != 0,
    reason="this machine lets nobody make a namespace of processes",
)
def test_a_worker_with_the_process_id_1_replaces_processes_and_drains(place: Container) -> None:
    place.send("killed", seconds=3)
    command = as_first_process(place.command())

    with subprocess.Popen(command, cwd=ROOT / "tests" / "e2e", env=place.environment) as outside:
        try:
            place.wait_for(lambda: place.runs)
            (worker,) = children(outside.pid)
            (process,) = children(worker)
            os.kill(process, signal.SIGKILL)
            place.wait_for(lambda: len(place.of("killed")) == 2)
            os.kill(worker, signal.SIGTERM)
            assert outside.wait(25) == 0
        finally:
            outside.kill()
    place.once()


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
