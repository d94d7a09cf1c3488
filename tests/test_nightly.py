"""What runs the tests says what it did: a run that judged nothing, or that was stopped, does not pass."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING, NoReturn

import pytest

from tests import nightly
from tests.nightly import ROOT, Part, main, run_all

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

PASSES, FAILS = (
    Part(name, (sys.executable, "-c", code))
    for name, code in (("fine", ""), ("bad", "raise SystemExit('for a reason')"))
)


def after(seconds: float) -> float:
    return time.monotonic() + seconds


def test_what_failed_is_said_with_its_command_and_what_was_not_reached_with_where_to_go_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_all([PASSES, PASSES], after(60)) == 0
    assert run_all([PASSES, FAILS], after(60)) == 1
    assert "for a reason" in (said := capsys.readouterr().out)
    assert "1 of 2 parts passed, 1 failed.\nFAILED: bad: " in said
    assert run_all([PASSES, PASSES], after(0)) == 1, "nothing was judged"
    assert "0 of 2 parts passed, 0 failed.\nNot reached: fine, fine.\n" in capsys.readouterr().out


def test_a_ci_run_begins_with_any_part_and_fails_only_by_what_failed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".ci").mkdir()
    ci = shutil.copy(ROOT / ".ci/run", tmp_path / ".ci/run")
    for name, script in {"git": "echo ffffff1", "make": f'echo "$@" >> {tmp_path}/made'}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    subprocess.run([ci], check=True)
    target, *given = (tmp_path / "made").read_text().splitlines()[-1].split()
    monkeypatch.undo()
    assert target == "nightly"
    told = subprocess.run(
        ["make", "--no-print-directory", "-n", target, *given], cwd=ROOT, capture_output=True, text=True, check=True
    )
    arguments = shlex.split(told.stdout.splitlines()[-1])[3:]
    monkeypatch.setattr(nightly, "all_parts", lambda: [PASSES, PASSES])
    monkeypatch.setattr(nightly, "run", lambda part, ends, over: nightly.Result(None))
    assert main(arguments) == 0, "none of them ended in time"
    assert "make nightly FIRST=1" in capsys.readouterr().out


@pytest.mark.parametrize(("user", "answers"), [(0, 100), (1000, 0)])
def test_ci_goes_on_where_no_database_can_be_installed(
    user: int, answers: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Offline, or without being root: the tests that need a server are skipped."""
    for name, script in {"apt-get": f"exit {answers}", "id": f"echo {user}"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    done = subprocess.run(["make", "databases"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "tests skip what is not there" in done.stdout


def test_ctrl_c_stops_what_is_under_way_and_begins_nothing_more(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(running: Iterable[object]) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(nightly, "as_completed", interrupted)
    lasting = Part("slow", (sys.executable, "-c", "import time; time.sleep(60)"))
    assert run_all([lasting, lasting, lasting], after(60), first=1) == 130
    assert "0 of 3 parts passed, 0 failed." in (said := capsys.readouterr().out)
    assert "make nightly FIRST=1" in said


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--minutes", "0"], "MINUTES is a number above 0; it is 0"),
        (["--minutes", "-1"], "MINUTES is a number above 0"),
        (["--minutes", "nan"], "MINUTES is a number above 0"),
        (["--minutes", "inf"], "MINUTES is a number above 0"),
        (["--minutes", "ten"], "MINUTES, FIRST and SEED are numbers: could not convert string to float: 'ten'"),
        (["--first", "two"], "MINUTES, FIRST and SEED are numbers"),
        (["--first", "2"], "FIRST is the number of a part, 0 to 1; it is 2"),
        (["--first", "-1"], "FIRST is the number of a part"),
    ],
)
def test_a_wrong_value_is_told_by_its_key(
    given: list[str], told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nightly, "all_parts", lambda: [PASSES, PASSES])
    with pytest.raises(SystemExit, match="2"):
        main(given)
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("target", "given", "told"),
    [
        ("simulate", "SEEDS=0", "SEEDS is a whole number above 0; it is 0"),
        ("simulate", "SEED=-1", "SEED is a whole number; it is -1"),
        ("explore", "FAULTS=-1", "FAULTS is a whole number; it is -1"),
        ("mutation", "SAMPLE=abc", "SAMPLE is a whole number above 0; it is abc"),
        ("mutation", "TESTS=tests tests/no", "TESTS names files and folders; there is no tests/no"),
        ("fuzz", "EXAMPLES=0", "EXAMPLES is a whole number above 0"),
    ],
)
def test_make_tells_a_wrong_value_by_its_key(target: str, given: str, told: str) -> None:
    """Otherwise nothing is judged, and that passes."""
    done = subprocess.run(["make", "-n", target, given], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert told in done.stderr


def test_make_takes_a_right_one() -> None:
    asked = ["make", "-n", "simulate", "SEEDS=20", "FIRST=0", "SEED=0", "PROCESSES=10"]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "--seeds 20 --first 0 --seed 0" in done.stdout
