"""The steps of a trial, the same on AWS and on the local cloud: each one deploys, or runs a command that users also
have.

A step produces checks with verdicts, and figures. Only a verdict that starts with `failed` is bad. A step that fails or
is stopped keeps its results so far; the later steps run anyway.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from harness.aws.places import FIFO
from harness.aws.results import FAILED, PASSED
from harness.cloud import ROOT

if TYPE_CHECKING:
    from harness.aws.places import Place
    from harness.aws.results import Results
    from harness.workload.report import Report

UNDONE_SECONDS = 120.0
"""The time for a stopped step to undo its changes to the stack."""
ENGINE = "[named"
"""Part of the names of contract tests that run against the endpoint given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What the steps share."""

    results: Results
    place: Place
    name: str
    """The outputs of the stack."""
    soak: Mapping[str, str]
    """The length of the soak, as environment variables."""

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a step's program: ours, plus what it needs to find the place."""
        return {**os.environ, **self.place.environment}


def take(trial: Trial, report: Report, keep: Callable[[], None]) -> None:
    """Run every step and keep the results after each, however it ended."""
    results = trial.results
    for what, step in STEPS.items():
        said, before = report.step(what), len(results.failures)
        try:
            step(trial)
        except Exception as error:  # noqa: BLE001  # any error belongs in the report, and later steps still run
            results.checks[what] = f"{FAILED}: {type(error).__name__}: {error}"
        finally:
            keep()
        failed = len(results.failures) - before
        said("passed" if not failed else f"{failed} failed")
        if failed and what == "deploy":
            return


def _deploy(trial: Trial) -> None:
    """Deploy the consumer, with its API next to it."""
    trial.place.deploy(trial.name)
    trial.place.deploy_api(trial.name)
    trial.results.checks["deploy"] = PASSED


def _contract(trial: Trial) -> None:
    """Run the store's contract against the region's own DynamoDB."""
    results, environment = trial.results, trial.environment
    endpoint = environment.get("AWS_ENDPOINT_URL") or f"https://dynamodb.{environment['AWS_REGION']}.amazonaws.com"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "contract.xml")
        command = ["pytest", "tests/contract", "--quiet", "-k", "named", f"--junitxml={path}"]
        # Tests never ask the metadata service for credentials unless told to, and these may be a machine's.
        metadata = {"AWS_EC2_METADATA_DISABLED": environment.get("AWS_EC2_METADATA_DISABLED", "false")}
        _run(results, "contract", *command, environment={**environment, **metadata, "CONTRACT_ENDPOINT": endpoint})
        cases = list(ET.parse(path).iter("testcase")) if path.exists() else []
    results.figures["contract: tests"] = len(cases)
    if all(case.find("skipped") is not None for case in cases):
        results.checks["contract"] = f"{FAILED}: no test ran"
    for case in cases:
        if ENGINE in (name := case.attrib["name"]):
            kinds = {each.tag for each in case}
            bad = kinds & {"failure", "error"}
            results.checks[f"contract: {name}"] = FAILED if bad else "skipped" if "skipped" in kinds else PASSED


def _doctor(trial: Trial) -> None:
    results = trial.results
    command = ["receiver", "doctor", "--stack", trial.name, "--json"]
    said = _run(results, "doctor", *command, environment=trial.environment)
    told = json.loads(said or "{}")
    bad, unknown = ({each["check"]: each for each in told.get(kind, ())} for kind in ("findings", "unchecked"))
    for check in told.get("checks", ()):
        verdict = f"{FAILED}: {bad[check]}" if check in bad else "unchecked" if check in unknown else PASSED
        results.checks[f"doctor: {check}"] = verdict


def _story(trial: Trial) -> None:
    """Send the same messages as `make run`."""
    _program(trial, "story", "harness.run", trial.results.figures)


def _commands(trial: Trial) -> None:
    """Run the operator's commands with a role that has only the stack's operator policy."""
    _program(trial, "commands", "harness.aws.commands", trial.results.checks)


def _soak(trial: Trial) -> None:
    """Send the same messages for a while, with every disturbance that an operator can cause."""
    _program(trial, "soak", "harness.aws.soak", trial.results.figures, **trial.soak)


def _update(trial: Trial) -> None:
    """Deploy the stack again with another parameter: its consumer continues, now without claims."""
    trial.place.deploy(trial.name, Effects="transaction")
    _program(trial, "update", "harness.run", trial.results.figures)


def _fifo(trial: Trial) -> None:
    """Deploy another stack, with the documented edit for a FIFO queue."""
    name = f"{trial.name}{FIFO}"
    trial.place.deploy(name, "FIFO")
    _program(trial, "fifo", "harness.run", trial.results.figures, STACK=name)


def _program(trial: Trial, what: str, module: str, told: dict[str, Any], **variables: str) -> None:
    environment = {**trial.environment, "STACK": trial.name, **variables}
    _run(trial.results, what, "python", "-m", module, environment=environment, told=told)


def _run(
    results: Results,
    what: str,
    program: str,
    *arguments: str,
    environment: Mapping[str, str],
    told: dict[str, Any] | None = None,
) -> str:
    """Run a program in this environment, show its output and judge it; returns the output.

    Ctrl-C reaches this process only, and is passed on once: a second one would keep the program from undoing its
    changes to the stack, which is then removed. Its output until it ends still counts.
    """
    command = [str(Path(sys.executable).with_name(program)), *arguments]
    apart: Any = {"cwd": ROOT, "env": dict(environment), "start_new_session": True}
    said = list[str]()
    with subprocess.Popen(command, **apart, stdout=subprocess.PIPE, text=True) as process:
        try:
            _show(process, said)
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            impatience = threading.Timer(UNDONE_SECONDS, process.kill)
            impatience.start()
            try:
                _show(process, said)
            finally:
                impatience.cancel()
            raise
        finally:
            results.judge(what, process.poll(), "".join(said), told)
    return "".join(said)


def _show(process: subprocess.Popen[str], said: list[str]) -> None:
    """Show a program's output until it ends."""
    assert process.stdout is not None, "it is a pipe"
    for line in process.stdout:
        said.append(line)
        sys.stdout.write(f"    {line}")
        sys.stdout.flush()
    process.wait()


STEPS: Mapping[str, Callable[[Trial], None]] = {
    "deploy": _deploy,
    "contract": _contract,
    "doctor": _doctor,
    "story": _story,
    "commands": _commands,
    "soak": _soak,
    "update": _update,
    "fifo": _fifo,
}
"""In this order: `update` leaves the stack in a state that no other step can use."""
