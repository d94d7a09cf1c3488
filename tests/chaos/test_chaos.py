"""`make chaos` in its short form: it keeps its promise, a planted bug breaks it, and neither leaves anything behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from harness.cloud import ROOT
from harness.workload.evidence import Freeze, lines_of
from idempotent_receiver.operations.dead_letters.queue import chunks
from tests.chaos.settings import Effects
from tests.e2e.test_cloud import nothing_left, on_linux
from tests.mutants.catalogue import MUTANTS
from tests.mutants.planting import plant
from tests.programs import Ended, ended

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE_SECONDS = 150
MESSAGES = 200
MOST_SEEDS = 6
CONTROLS = {
    "unfenced": "a settlement names no version",
    "shared": "a namespace is left out of the id",
    "unstamped": "a dead letter comes back under a new key",
    "unsent": "what SQS has not confirmed counts as sent",
}
"""Bugs by their runs."""


def begin(folder: Path, library: Path | None = None, seed: int = 1, **chosen: str) -> subprocess.Popen[str]:
    """Start a run, of the library in the checkout or of a copy, whose temporary files go to a folder of their own."""
    (folder / "temporary").mkdir(parents=True)
    environment = {
        "N": str(MESSAGES),
        "SEED": str(seed),
        **chosen,
        "TMPDIR": str(folder / "temporary"),
        "EVIDENCE": str(folder / "log"),
    }
    if library is not None:
        environment["PYTHONPATH"] = str(library)
    return subprocess.Popen(
        [sys.executable, "-m", "tests.chaos"],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("chaos")


@pytest.fixture(scope="module")
def runs(folder: Path) -> dict[str, Ended]:
    """Runs with claims, without, and with both, and controls with a bug each; four at a time, as they mostly wait."""
    bugs = {mutant.name: mutant for mutant in MUTANTS}
    libraries = {name: plant(bugs[bug], folder / name) for name, bug in CONTROLS.items()}
    chosen = {name.value: {"EFFECTS": name} for name in Effects} | {
        name: {"CAST": name} for name in ("fifo", "workflow")
    }
    runs: dict[str, Ended] = {}
    for wave in chunks([*chosen, *libraries], 4):
        programs = {name: begin(folder / name, libraries.get(name), **chosen.get(name, {})) for name in wave}
        try:
            runs |= {name: ended(program) for name, program in programs.items()}
        finally:
            for program in programs.values():
                program.kill()
    # When a frozen worker wakes up depends on the machine: in so short a run it may have nothing left to spoil. And
    # what is refused at first may be sent along with a redelivery.
    for name, seen in (("unfenced", "doubled"), ("unsent", "receipts_lost")):
        for seed in range(2, MOST_SEEDS):
            if runs[name].line[seen]:
                break
            runs[name] = ended(begin(folder / f"{name}-{seed}", libraries[name], seed))
    return runs


@pytest.mark.parametrize("name", [*Effects, "fifo", "workflow"])
def test_nothing_is_lost_or_doubled_and_no_two_run_at_once(runs: dict[str, Ended], name: str) -> None:
    """Whatever is done to workers, sweeps and requests; and it was done. Without claims two may run at once."""
    run, dead = runs[name], 4 if name == "workflow" else 6
    assert run.status == 0, run.output
    ends = ("sent", "completed", "expected_completed", "dead_lettered", "expected_dead_lettered")
    assert [run.line[name] for name in ends] == [MESSAGES, *[MESSAGES - dead] * 2, dead, dead]
    promised = ["lost", "acknowledged_early", "doubled", "unaccounted"]
    promised += [] if name == "workflow" else ["receipts_lost", "receipts_doubled"]
    promised += [] if name in ("transaction", "mixed") else ["overlaps", "run_again"]
    assert [run.line[name] for name in promised] == [0] * len(promised)
    assert run.line["balanced"] is True
    must = ("swept",) if name == "workflow" else ("taken_over", "duplicates", "redriven")
    assert all(run.line[name] for name in ("killed", "frozen", *must))
    assert run.line["injected"]["answer dropped"] > 0


@pytest.mark.parametrize(
    ("name", "seen"),
    [("unfenced", "doubled"), ("shared", "lost"), ("unstamped", "unaccounted"), ("unsent", "receipts_lost")],
)
def test_a_bug_is_found_out(runs: dict[str, Ended], name: str, seen: str) -> None:
    """A zombie settles over another's claim, two consumers share their records, a redriven message loses its key, or
    one that SQS did not take is not sent again.
    """
    control = runs[name]
    assert control.status == 1, control.output
    assert control.line[seen] > 0


@on_linux
def test_a_run_leaves_nothing(runs: dict[str, Ended], folder: Path) -> None:
    assert all(nothing_left(folder / name / "temporary") for name in runs)


@on_linux
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_stopped_leaves_nothing_not_even_what_is_frozen(tmp_path: Path, number: signal.Signals) -> None:
    with begin(tmp_path) as program:
        ends = time.monotonic() + PATIENCE_SECONDS
        while not any(isinstance(line, Freeze) for line in lines_of(tmp_path / "log")):
            assert program.poll() is None
            assert time.monotonic() < ends
            time.sleep(0.1)
        program.send_signal(number)
        status = ended(program).status
    assert status == (-signal.SIGKILL if number is signal.SIGKILL else 130)
    assert nothing_left(tmp_path / "temporary")
