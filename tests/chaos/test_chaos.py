"""`make chaos` in its short form: it keeps its promise, a planted bug breaks it, and neither leaves anything behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from idempotent_receiver.operations.dead_letters.queue import chunks
from local.cloud import ROOT
from local.workload.evidence import Freeze, lines_of
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
    """Runs with claims, without, and with both, and controls with a bug in each; four at a time, as they mostly wait."""
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
    # When a frozen worker wakes up is the machine's to say: in so short a run it may have nothing left to spoil.
    for seed in range(2, MOST_SEEDS):
        if runs["unfenced"].line["doubled"]:
            break
        runs["unfenced"] = ended(begin(folder / f"unfenced-{seed}", libraries["unfenced"], seed))
    return runs


@pytest.mark.parametrize("name", [*Effects, "fifo"])
def test_nothing_is_lost_or_doubled_and_no_two_run_at_once(runs: dict[str, Ended], name: str) -> None:
    """Whatever is done to the workers and to their requests; and it was done. Without claims two may run at once."""
    run = runs[name]
    assert run.status == 0, run.output
    assert run.line["sent"] == MESSAGES
    assert run.line["completed"] == run.line["expected_completed"] == 194
    assert run.line["dead_lettered"] == run.line["expected_dead_lettered"] == 6
    promised = ["lost", "acknowledged_early", "doubled", "unaccounted"]
    promised += ["overlaps", "run_again"] if name in ("any", "fifo") else []
    assert [run.line[name] for name in promised] == [0] * len(promised)
    assert run.line["balanced"] is True
    assert all(run.line[name] > 0 for name in ("killed", "frozen", "taken_over", "duplicates", "redriven"))
    assert run.line["injected"]["answer dropped"] > 0


def test_each_request_to_a_workflow_has_one_execution_and_one_effect(runs: dict[str, Ended]) -> None:
    """Whatever happens to those who start them, who hand over, and who sweep."""
    run = runs["workflow"]
    assert run.status == 0, run.output
    assert (run.line["sent"], run.line["completed"], run.line["dead_lettered"]) == (MESSAGES, 196, 4)
    assert [run.line[name] for name in ("lost", "acknowledged_early", "doubled", "unaccounted")] == [0] * 4
    assert run.line["balanced"] is True
    assert run.line["swept"]["Started"] > 0


def test_zombies_that_nothing_fences_are_found_out(runs: dict[str, Ended]) -> None:
    """The same with a bug in the library: a worker that had been frozen settles over another's claim."""
    control = runs["unfenced"]
    assert control.status == 1, control.output
    assert control.line["doubled"] > 0
    assert control.line["balanced"] is False
    assert control.line["fenced_frozen"] == 0


@pytest.mark.parametrize(("name", "seen"), [("shared", "lost"), ("unstamped", "unaccounted")])
def test_a_record_that_is_taken_for_anothers_and_a_redrive_that_loses_its_key_are_found_out(
    runs: dict[str, Ended], name: str, seen: str
) -> None:
    """Of two consumers in one namespace one has its messages acknowledged for what the other did."""
    control = runs[name]
    assert control.status == 1, control.output
    assert control.line[seen] > 0
    assert control.line["completed"] < control.line["expected_completed"]


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
