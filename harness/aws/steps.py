"""What is tried on a stack, on AWS as on the local cloud: each step is a command that users have too.

A step gives checks, each with its verdict, and figures. Only a verdict that begins with `failed` is bad.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from harness.cloud import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.workload.report import Report

PASSED, FAILED = "passed", "failed"
UNDONE_SECONDS = 120.0
"""Within which a step that is stopped has undone what it did to the stack."""
ENGINE = "[named"
"""What the contract's tests have in their names where they ask the endpoint that we name."""


@dataclass(frozen=True, slots=True)
class Results:
    """What was found at one place."""

    checks: dict[str, str] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)

    @property
    def failures(self) -> dict[str, str]:
        return {name: verdict for name, verdict in self.checks.items() if verdict.startswith(FAILED)}

    def judge(self, what: str, done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
        """Take the verdict of a command by its status, and its last line, which is for programs."""
        self.checks[what] = PASSED if done.returncode == 0 else f"{FAILED}: status {done.returncode}"
        lines = (done.stdout or "").splitlines()
        try:
            return dict(json.loads(lines[-1])) if lines else {}
        except ValueError:
            return {}


def take(results: Results, stack: str, environment: Mapping[str, str], soak: Mapping[str, str], report: Report) -> None:
    """Take every step on a stack, in the account or the cloud that the environment names."""
    mine = {**os.environ, **environment}
    for step in (_contract, _doctor, _story, _soak):
        said = report.step(step.__name__.strip("_"))
        before = len(results.failures)
        step(results, stack, {**mine, **(soak if step is _soak else {})})
        failed = len(results.failures) - before
        said("passed" if not failed else f"{failed} failed")


def _contract(results: Results, _stack: str, environment: Mapping[str, str]) -> None:
    """The store's contract, against the region's own DynamoDB."""
    endpoint = environment.get("AWS_ENDPOINT_URL") or f"https://dynamodb.{environment['AWS_REGION']}.amazonaws.com"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "contract.xml")
        command = ["pytest", "tests/contract", "--quiet", "-k", "named", f"--junitxml={path}"]
        results.judge("contract", _run(*command, environment={**environment, "CONTRACT_ENDPOINT": endpoint}))
        cases = list(ET.parse(path).iter("testcase")) if path.exists() else []
    results.figures["contract: tests"] = len(cases)
    if all(case.find("skipped") is not None for case in cases):
        results.checks["contract"] = f"{FAILED}: no test ran"
    for case in cases:
        if ENGINE in (name := case.attrib["name"]):
            kinds = {each.tag for each in case}
            bad = kinds & {"failure", "error"}
            results.checks[f"contract: {name}"] = FAILED if bad else "skipped" if "skipped" in kinds else PASSED


def _doctor(results: Results, stack: str, environment: Mapping[str, str]) -> None:
    found = _run("receiver", "doctor", "--stack", stack, "--json", environment=environment)
    results.judge("doctor", found)
    told = json.loads(found.stdout) if found.returncode in (0, 1) else {"checks": [], "findings": [], "unchecked": []}
    bad, unknown = ({each["check"]: each for each in told[kind]} for kind in ("findings", "unchecked"))
    for check in told["checks"]:
        verdict = f"{FAILED}: {bad[check]}" if check in bad else "unchecked" if check in unknown else PASSED
        results.checks[f"doctor: {check}"] = verdict


def _story(results: Results, stack: str, environment: Mapping[str, str]) -> None:
    """The same messages that `make run` sends."""
    line = results.judge("story", _run("python", "-m", "harness.run", environment={**environment, "STACK": stack}))
    results.figures.update({f"story: {name}": value for name, value in line.items()})


def _soak(results: Results, stack: str, environment: Mapping[str, str]) -> None:
    """The same for a while, with all that an operator can do to a stack."""
    line = results.judge("soak", _run("python", "-m", "harness.aws.soak", environment={**environment, "STACK": stack}))
    results.figures.update({f"soak: {name}": value for name, value in line.items()})


def _run(program: str, *arguments: str, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a program of this environment, and show what it says. Ctrl-C reaches us alone: it is passed on once, because
    a second one would keep the program from undoing what it has done to the stack, which is then removed.
    """
    command = [str(Path(sys.executable).with_name(program)), *arguments]
    apart: Any = {"cwd": ROOT, "env": dict(environment), "start_new_session": True}
    with subprocess.Popen(command, **apart, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None, "it is a pipe"
        said = []
        try:
            for line in process.stdout:
                said.append(line)
                sys.stdout.write(f"    {line}")
                sys.stdout.flush()
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(UNDONE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, "".join(said))
