"""A quick test stays in its process, and `make nightly` says what failed and what it did not reach."""

from __future__ import annotations

import socket
import subprocess
import sys
import time

import pytest

from tests.nightly import ROOT, Part, run_all
from tests.tiers import TIERS

NOT_QUICK = "a quick test starts no process and calls no server"
PASSES = Part("passes", (sys.executable, "-c", ""))
FAILS = Part("fails", (sys.executable, "-c", "print('a reason'); raise SystemExit(3)"))
LASTS = Part("lasts", (sys.executable, "-c", "import time; time.sleep(60)"))


@pytest.mark.parametrize("prefix", TIERS)
def test_what_the_table_names_is_there(prefix: str) -> None:
    path, _, test = prefix.partition("::")
    files = sorted((ROOT / "tests").glob(f"{path}*"))
    assert files, "no such file"
    assert f"def {test.partition('[')[0]}" in files[0].read_text() if test else True


@pytest.mark.quick
def test_a_quick_test_starts_no_process() -> None:
    with pytest.raises(pytest.fail.Exception, match=NOT_QUICK):
        subprocess.run([sys.executable, "-c", ""], check=False)


@pytest.mark.quick
def test_a_quick_test_calls_no_server() -> None:
    with socket.socket() as ours, pytest.raises(pytest.fail.Exception, match=NOT_QUICK):
        ours.connect(("127.0.0.1", 9))


def test_what_fails_is_told_with_its_command_and_its_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_all([PASSES, FAILS], time.monotonic() + 60) == 1
    told = capsys.readouterr().out
    assert "a reason" in told
    assert "1 of 2 parts passed, 1 failed.\nFAILED: fails: " in told


def test_it_ends_in_time_and_says_where_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    """Those that come first are run first, from any part on and then in a circle; what is stopped counts as missed."""
    began = time.monotonic()
    assert run_all([LASTS, PASSES, PASSES, LASTS, LASTS], began + 5, first=6) == 0
    assert time.monotonic() - began < 40
    told = capsys.readouterr().out
    assert "2 of 5 parts passed, 0 failed.\nNot reached: lasts, lasts, lasts.\nTo go on: make nightly FIRST=3\n" in told
