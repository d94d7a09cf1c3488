"""`make run` keeps its promise, its control breaks it, and neither leaves anything behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from harness.beside import deploy_beside
from harness.cloud import ROOT, in_containers, running_cloud
from harness.deploy import deploy
from harness.workload.transfers import Kind
from tests import ctrl_c
from tests.e2e.test_cloud import nothing_left, on_linux
from tests.programs import Ended, ended

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

pytestmark = pytest.mark.skipif(in_containers(), reason="workers are killed that are processes of this machine")

PATIENCE_SECONDS = 175
NAMES = [
    "sent",
    "completed",
    "dead_lettered",
    "duplicates",
    "taken_over",
    "expected_completed",
    "expected_dead_lettered",
    "unaccounted",
    "overlaps",
    "lost",
    "doubled",
    "receipts_lost",
    "receipts_doubled",
    "balanced",
]


def begin(folder: Path, environment: Mapping[str, str]) -> subprocess.Popen[str]:
    """Start a run whose temporary files go to the folder, as a terminal would: in a process group of its own."""
    with ctrl_c.heeded():  # also while it has not yet said by itself what a Ctrl-C does
        return subprocess.Popen(
            [sys.executable, "-m", "harness.run"],
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(folder), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("run")


@pytest.fixture(scope="module", autouse=True)
def begun(folder: Path) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """A run, one without claims, and a control, under way beside the tests that come first: both mostly wait."""
    programs = {
        "on": begin(folder, {"N": "60", "SEED": "3"}),
        "without claims": begin(folder, {"N": "60", "SEED": "3", "EFFECTS": "transaction"}),
        "off": begin(folder, {"N": "20", "SEED": "3", "PROTECTION": "off"}),
    }
    yield programs
    for program in programs.values():
        program.terminate()
        program.communicate(timeout=PATIENCE_SECONDS)


@pytest.fixture(scope="module")
def runs(begun: dict[str, subprocess.Popen[str]]) -> dict[str, Ended]:
    """All of them, when they are over."""
    return {name: ended(program) for name, program in begun.items()}


@on_linux
@pytest.mark.parametrize(
    ("last_seen", "then_seconds"),
    [(None, 0.1), ("local cloud", 0.3), ("expected", 2)],
)
def test_a_ctrl_c_leaves_nothing(tmp_path: Path, last_seen: str | None, then_seconds: float) -> None:
    with begin(tmp_path, {"N": "40"}) as program:
        assert program.stdout is not None
        while last_seen is not None and last_seen not in program.stdout.readline():
            assert program.poll() is None
        time.sleep(then_seconds)
        os.killpg(program.pid, signal.SIGINT)
        run = ended(program)
    # While Python still imports, nobody is there yet to turn the signal into a status.
    assert run.status == 130 or (last_seen is None and run.status == -signal.SIGINT)
    if run.status == 130:
        assert re.search(r"clearing up; it takes up to half a minute\n(.*\n)*stopped and cleaned up", run.output)
    assert nothing_left(tmp_path)


def test_the_story_plays_on_a_stack_that_is_deployed(tmp_path: Path) -> None:
    with running_cloud() as cloud:
        deploy_beside(cloud, deploy(cloud, name="payments", values={"Timeout": 10}), "api")
        program = begin(tmp_path, {**cloud.environment, "N": "30", "STACK": "payments"})
        run = ended(program)
        left = cloud.client("sqs").list_queues()["QueueUrls"]
    assert run.status == 0, run.output
    assert run.line["completed"] == run.line["expected_completed"]
    assert run.line["duplicates"] > 0
    assert left


def test_every_message_takes_effect_once(runs: dict[str, Ended]) -> None:
    run = runs["on"]
    assert run.status == 0, run.output
    assert list(run.line) == NAMES
    assert run.line["sent"] == 60
    assert run.line["completed"] == run.line["expected_completed"] == 54
    assert run.line["dead_lettered"] == run.line["expected_dead_lettered"] == 6
    assert [run.line[name] for name in ("unaccounted", "overlaps", "lost", "doubled")] == [0, 0, 0, 0]
    assert (run.line["receipts_lost"], run.line["receipts_doubled"]) == (0, 0)
    assert re.search(r"^ +54  receipts ", run.output, re.MULTILINE), "each posted transfer's, counted elsewhere"
    assert run.line["duplicates"] > 0
    assert run.line["taken_over"] > 0
    assert run.line["balanced"] is True
    assert re.search(r"^ +4  requests replayed ", run.output, re.MULTILINE), "two were asked for three times over HTTP"
    assert "no alarm fires when a dead letter arrives" in " ".join(run.output.split())


def test_without_claims_every_message_takes_effect_once_though_two_may_run_it(runs: dict[str, Ended]) -> None:
    run = runs["without claims"]
    assert run.status == 0, run.output
    assert list(run.line) == NAMES
    assert "Effects=transaction" in run.output
    assert run.line["completed"] == run.line["expected_completed"] == 54
    assert run.line["dead_lettered"] == run.line["expected_dead_lettered"] == 6
    assert [run.line[name] for name in ("unaccounted", "lost", "doubled")] == [0, 0, 0]
    assert (run.line["receipts_lost"], run.line["receipts_doubled"]) == (0, 0)
    assert run.line["duplicates"] > 0
    assert run.line["overlaps"] > 0, "one is delivered three times at once: without overlaps, something was claimed"
    assert run.line["balanced"] is True


def test_without_protection_the_checks_fail(runs: dict[str, Ended]) -> None:
    control = runs["off"]
    assert control.status == 1, control.output
    assert list(control.line) == NAMES
    assert control.line["doubled"] > 0
    assert "This was the control" in control.output


def test_the_timeline_shows_who_died_and_who_took_over(runs: dict[str, Ended]) -> None:
    """Every message is a row, and all that the summary counts can be found there."""
    rows = timeline(runs["on"])
    assert len(rows) == 60
    assert Counter(row["outcome"] for row in rows) == {"completed": 54, "dead-lettered": 6}
    (killed,) = [row for row in rows if row["fault"] == Kind.KILLED_BEFORE]
    kinds = [kind for _, kind, _, _ in killed["marks"] if kind not in ("delivered", "refused")]
    assert kinds == ["sent", "claimed", "started", "killed", "taken over", "started", "completed"]
    ends = {"completed": "completed", "dead-lettered": "dead letter"}
    assert all(ends[row["outcome"]] in [kind for _, kind, _, _ in row["marks"]] for row in rows)
    assert all(row["marks"][0][1] == "sent" for row in rows)


def timeline(run: Ended) -> list[Any]:
    (path,) = re.findall(r"^  timeline +(\S+)$", run.output, re.MULTILINE)
    found = re.search(r'<script type="application/json" id="data">(.*)</script>', (ROOT / path).read_text())
    assert found is not None
    rows: list[Any] = json.loads(found[1])["rows"]
    return rows


@on_linux
def test_a_run_leaves_nothing(runs: dict[str, Ended], folder: Path) -> None:
    assert nothing_left(folder)
