"""A quick test stays in its process, and the table of tiers names what is there."""

from __future__ import annotations

import socket
import subprocess
import sys

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
