"""The benchmark's subjects have a CPU of their own where processes can be pinned."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

PROBE = """
import os
from benchmarks.cpus import keep_off_the_subjects, keep_to
cpus = keep_off_the_subjects()
print(cpus.own, sorted(cpus.every), sorted(os.sched_getaffinity(0)))
keep_to([cpus.own])
print(sorted(os.sched_getaffinity(0)))
print(keep_off_the_subjects())
"""


@pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) == 1, reason="there is one CPU to run on"
)
def test_the_subjects_cpu_is_used_by_nothing_else() -> None:
    """Everything else avoids it, and a subject stays on it. With only one CPU, nothing is pinned."""
    *others, own = every = sorted(os.sched_getaffinity(0))

    told = subprocess.run([sys.executable, "-c", PROBE], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    assert told.splitlines() == [f"{own} {every} {others}", f"[{own}]", "None"]
