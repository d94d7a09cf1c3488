"""The tool that lets the tests judge mutants: what it counts, and that its list of equivalent mutants fits the code."""

from __future__ import annotations

import os
import select

import pytest

from tests.mutation import equivalents, rooms
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


def test_mutants_are_drawn_from_the_rooms_that_a_commit_touches() -> None:
    keys, dlq = "src/idempotent_receiver/sqs/keys.py", "src/idempotent_receiver/operations/cli/dlq.py"

    assert rooms.drawn([keys, "README.md", "src/idempotent_receiver/clock.py"], "1") == ["sqs"]
    assert sorted(rooms.drawn([dlq, keys], "1")) == ["operations/cli", "sqs"]
    assert len(rooms.drawn(rooms.files(), "1")) == rooms.MOST
    assert len({*rooms.drawn([], "1"), *rooms.drawn([], "2")}) == 2, "the seed draws one"


@pytest.mark.parametrize("room", sorted(set(map(rooms.room_of, rooms.files()))))
def test_each_room_has_tests_that_reach_it(room: str) -> None:
    """Those of a store are the contract."""
    own, *others = rooms.tests([room])
    assert (rooms.ROOT / own).is_file() or list((rooms.ROOT / own).rglob("test_*.py")) or others == rooms.ON_THE_PATH


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
