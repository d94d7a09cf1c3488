"""The tool that lets the tests judge mutants: what it counts, and that its list of equivalent mutants fits the code."""

from __future__ import annotations

import ast
import os
import select
from pathlib import Path

import pytest

from tests.mutation import equivalents
from tests.mutation.judges import forked

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


def test_no_judge_outlives_an_interruption() -> None:
    """Each is in a process group of its own, which Ctrl-C does not reach."""
    reads, writes = os.pipe()

    def waiting() -> int:
        os.read(os.pipe()[0], 1)
        return 0

    judging = forked([("waits", waiting), ("passes", lambda: 0)])
    assert next(judging) == ("passes", 0)
    os.close(writes)  # the judge that waits has the last one
    judging.close()
    assert select.select([reads], [], [], 5)[0], "it waits still"
    os.close(reads)
