"""A quick test stays in its process, and the table of tiers names what is there."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.nightly import ROOT
from tests.tiers import TIERS

NOT_QUICK = "a quick test starts no process and calls no server"


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


HANGS = """
import threading
from tests import conftest
from tests.conftest import pytest_runtest_protocol

def pytest_configure():
    conftest.LONGEST_SECONDS = dict.fromkeys(conftest.LONGEST_SECONDS, 1)
"""


@pytest.mark.slow
def test_a_test_that_hangs_fails_and_is_named_and_the_others_run(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(HANGS)
    (tmp_path / "test_hangs.py").write_text(
        "import threading\n\ndef test_hangs():\n    threading.Event().wait(60)\n\ndef test_passes():\n    pass\n"
    )
    command = [sys.executable, "-m", "pytest", "-n1", "-q", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT)]
    ended = subprocess.run([*command, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False)

    assert "crashed while running" in ended.stdout
    assert "test_hangs" in ended.stdout
    assert "1 failed, 1 passed" in ended.stdout
    assert 'test_hangs.py", line 4 in test_hangs' in ended.stderr
