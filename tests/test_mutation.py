"""The tool that lets the tests judge mutants: what it counts, and that its list of equivalent mutants fits the code."""

from __future__ import annotations

import os
import select

import pytest

from tests.mutation import equivalents
from tests.mutation.judges import forked


@pytest.mark.parametrize("change", sorted(equivalents.entries()), ids=lambda change: change[0])
def test_an_equivalent_mutant_is_one_that_the_tool_makes(change: equivalents.Change) -> None:
    """After an edit the entry has to be judged again."""
    assert change in equivalents.changes(change[0])


def test_an_entry_whose_mutant_is_killed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = ("sqs.keys.event_id", "a", "b")
    mutant = "idempotent_receiver.sqs.keys.x_event_id__mutmut_1"
    monkeypatch.setattr(equivalents, "entries", lambda: {listed})
    monkeypatch.setattr(equivalents, "change", lambda name: listed)

    assert equivalents.mistakes([mutant], {mutant: "survived"}) == []
    assert equivalents.mistakes([mutant], {mutant: "killed"}) == [f"a test kills {mutant}"]


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
