"""`make run WORKFLOW=1` ends with balanced books, whatever dies on the way, and its last line says so."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from local.cloud import ROOT, in_containers
from local.workload.transfers import DEATHS, WORKFLOW

pytestmark = pytest.mark.skipif(in_containers(), reason="workers are killed that are processes of this machine")

PATIENCE_SECONDS = 900
KINDS = len(WORKFLOW.shares) + 1
"""Those that something happens to, and the good ones."""
KILLS = set(DEATHS) & set(WORKFLOW.shares)


@pytest.mark.skipif(
    "LONG" not in os.environ, reason="takes two minutes: LONG=1 plays it, and so does make run WORKFLOW=1"
)
def test_the_workflows_books_balance_with_a_death_in_every_step() -> None:
    """Each kind once: in every step on either side of its write, between claim, start and hand-over, and an abort."""
    ran = subprocess.run(
        [sys.executable, "-m", "local.workflow_run"],
        cwd=ROOT,
        env={**os.environ, "N": str(KINDS), "SEED": "1", "PROTECTION": "on"},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    line = json.loads(ran.stdout.splitlines()[-1])
    assert line["asked"] == line["as_expected"] == line["executions"] == KINDS
    assert (line["killed"], line["aborted"]) == (len(KILLS), 1)
    assert (line["unfinished"], line["doubled"], line["balanced"]) == (0, 0, True)
    assert line["receipts"] == line["completed"]
