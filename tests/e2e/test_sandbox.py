"""`make cloud` stays until it is interrupted, and what it says to type can be typed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from local.cloud import ROOT
from local.sandbox import ENVIRONMENT
from tests.e2e.deployed import eventually
from tests.e2e.test_cloud import nothing_left, on_linux

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATIENCE_SECONDS = 120
README = (ROOT / "README.md").read_text()
LAST_LINE = "It stays until you press Ctrl-C"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where its temporary files go."""
    return tmp_path_factory.mktemp("sandbox")


@pytest.fixture(scope="module")
def program(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A sandbox, started as a script starts one in the background: Ctrl-C is ignored, unless it says otherwise."""
    with subprocess.Popen(
        ["sh", "-c", 'trap "" INT && exec "$0" -m local.sandbox', sys.executable],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder), "N": "20"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as program:
        yield program
        program.terminate()
        program.communicate(timeout=PATIENCE_SECONDS)


@pytest.fixture(scope="module")
def typed(program: subprocess.Popen[str]) -> dict[str, str]:
    """The commands that it says to type, by their first words."""
    assert program.stdout is not None
    said = []
    for line in program.stdout:
        said.append(line.strip())
        if line.startswith(LAST_LINE):
            break
    assert said[-1].startswith(LAST_LINE), "\n".join(said)
    lines = [line.partition("    #")[0] for line in said if line.startswith(".venv/bin/receiver ")]
    found: dict[str, str] = {}
    for line in lines:
        words = line.removeprefix(".venv/bin/receiver ").split()
        found.setdefault(" ".join(words[: 2 if words[0] == "dlq" else 1]), line)
    return found | {"shows": "\n".join(line for line in lines if " show " in line)}


def test_the_readmes_commands_work_on_it(typed: dict[str, str]) -> None:
    assert typed
    section = README.partition("\n## Behind HTTP\n")[2].partition("\n## ")[0]
    set_up, seven, *_ = re.findall(r"(?ms)^```sh\n(.*?)^```$", section)
    script = ["sh", "-euc", set_up + seven]
    done = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert re.findall(r" (\d{3}) replayed=(\w*)\n", done.stdout) == [("202", "")] * 5 + [("202", "true")] * 2


def ran(line: str, *more: str) -> tuple[int, Any]:
    """Type it into a shell that has sourced the file; its status and its answer as JSON."""
    script = f". {ENVIRONMENT.relative_to(ROOT)} && exec {line} --json {' '.join(more)}"
    done = subprocess.run(["sh", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)


def test_doctor_finds_nothing(typed: dict[str, str]) -> None:
    status, found = ran(typed["doctor"])
    assert (status, found["findings"]) == (0, [])


def test_records_of_each_kind_are_there_to_be_shown(typed: dict[str, str]) -> None:
    shown = [ran(line)[1]["status"] for line in typed["shows"].splitlines()]
    assert shown == ["COMPLETED", "FAILED", "INPROGRESS"]


def test_dead_letters_are_listed_and_what_can_succeed_comes_back(typed: dict[str, str]) -> None:
    _, listed = ran(typed["dlq list"])
    verdicts = [letter["verdict"] for group in listed["groups"] for letter in group["letters"]]
    assert (verdicts.count("MOVE"), verdicts.count("DONE")) == (2, 1)
    assert verdicts.count("PERMANENT") >= 3

    status, told = ran(typed["dlq redrive"], "--yes")

    assert (told["moved"], told["dropped"]) == (2, 1)
    assert status == 1, "what has failed for good is left"
    _, listed = ran(typed["dlq list"])
    assert {letter["verdict"] for group in listed["groups"] for letter in group["letters"]} == {"PERMANENT"}


def test_the_claim_of_a_dead_worker_is_found(typed: dict[str, str]) -> None:
    orphan = typed["shows"].splitlines()[-1].split()[2]
    eventually(
        lambda: ran(typed["stuck"], "--yes")[1]["unsettled"],
        lambda unsettled: [each["id"] for each in unsettled] == [orphan],
        what="its lease is over",
    )


@on_linux
def test_a_ctrl_c_ends_it_and_leaves_nothing(
    typed: dict[str, str], program: subprocess.Popen[str], folder: Path
) -> None:
    assert ENVIRONMENT.exists()
    os.killpg(program.pid, signal.SIGINT)
    said, _ = program.communicate(timeout=PATIENCE_SECONDS)
    assert "clearing up; it takes up to half a minute\n" in said
    assert program.returncode == 0
    assert nothing_left(folder)
    assert not ENVIRONMENT.exists()
