"""The tool that lets the tests judge mutants: what it counts, and that its list of equivalent mutants fits the code."""

from __future__ import annotations

import ast
import os
import signal
from pathlib import Path

import pytest

from tests.mutation import equivalents
from tests.mutation.judges import LATE, forked
from tests.mutation.score import least

SOURCE = Path(__file__).resolve().parents[1] / "src"


def source_of(function: str) -> list[str]:
    """The lines of a function that an entry names: `batch.runs.Runs.start`, `app.ledger.Ledger.move`."""
    parts = function.split(".")
    root = SOURCE if parts[0] == "app" else SOURCE / "idempotent_receiver"
    last = next(n for n in range(len(parts), 0, -1) if root.joinpath(*parts[:n]).with_suffix(".py").exists())
    text = root.joinpath(*parts[:last]).with_suffix(".py").read_text()
    body: list[ast.stmt] = ast.parse(text).body
    for name in parts[last:]:
        (found,) = [each for each in body if getattr(each, "name", None) == name]
        body = found.body  # type: ignore[attr-defined]
    return [line.strip() for line in (ast.get_source_segment(text, found) or "").splitlines()]


@pytest.mark.parametrize("change", sorted(equivalents.entries()), ids=lambda change: change[0])
def test_an_equivalent_mutant_changes_lines_that_are_there(change: equivalents.Change) -> None:
    """After an edit the entry has to be judged again."""
    function, was, now = change

    assert was != now
    assert {line.strip() for line in was.splitlines()} <= set(source_of(function))


def test_an_entry_that_fits_no_mutant_or_one_that_is_killed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    killed, gone = ("sqs.keys.event_id", "a", "b"), ("sqs.keys.gone", "c", "d")
    mutant = "idempotent_receiver.sqs.keys.x_event_id__mutmut_1"
    monkeypatch.setattr(equivalents, "entries", lambda: {killed, gone})
    monkeypatch.setattr(equivalents, "change", lambda name: killed)

    assert equivalents.mistakes([mutant], {mutant: "survived"}) == [f"no mutant fits {gone}"]
    assert f"a test kills {mutant}" in equivalents.mistakes([mutant], {mutant: "killed"})


@pytest.mark.parametrize(
    ("mutant", "function"),
    [
        ("idempotent_receiver.sqs.keys.x__digits__mutmut_3", "sqs.keys._digits"),
        ("idempotent_receiver.batch.runs.xǁRunsǁ_note__mutmut_12", "batch.runs.Runs._note"),
        ("app.ledger.xǁLedgerǁ__init____mutmut_1", "app.ledger.Ledger.__init__"),
    ],
)
def test_a_mutant_is_named_after_its_function(mutant: str, function: str) -> None:
    assert equivalents.function(mutant) == function


def test_a_job_ends_by_its_own_code_or_by_the_alarm() -> None:
    """One that waits for ever is late."""

    def waiting() -> int:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        os.read(os.pipe()[0], 1)
        return 0

    jobs = [("passes", lambda: 0), ("fails", lambda: 1), ("waits", waiting)]
    assert dict(forked(jobs)) == {"passes": 0, "fails": 1, "waits": LATE}


def test_a_large_sample_must_reach_95_percent_and_a_small_one_what_chance_leaves() -> None:
    assert (least(400), least(16_808)) == (0.95, 0.95)
    assert 0.80 < least(20) < 0.81
