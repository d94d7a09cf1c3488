"""Explores the smallest worlds. Planted bugs, and clocks beyond the bound, show that the exploration can fail.

`make explore` explores the larger worlds too.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from tests.simulation import scheduler
from tests.simulation.explore import explored, report
from tests.simulation.planted import run_planted
from tests.simulation.search import Search, explorer_of, shortest
from tests.simulation.setups import SETUPS
from tests.simulation.trace import encoded, replayed

if TYPE_CHECKING:
    from pathlib import Path

    from tests.simulation.state import State


@pytest.mark.parametrize(
    ("setup", "faults"),
    [
        ("2x1", 2),
        ("2x1-transaction", 1),
        ("2x1-letters", 1),
        ("2x1-renewed", 1),
        ("2x1-unclaimed", 2),
        ("2x1-unclaimed-twice", 2),
        ("2x1-unclaimed-letters", 1),
        ("2x1-turned-on", 1),
        ("2x1-turned-off", 1),
        ("2x1-sends-two", 1),
        ("2x1-sends-renewed", 0),
        ("2x1-sends-turned-on", 1),
        ("2x1-sends-rollout", 1),
        ("2x1-sends-rollback", 1),
        ("2x1-reads-sends", 1),
        ("2x1-calls", 1),
        ("2x1-calls-and-sends", 1),
        ("2x1-calls-letters", 1),
        ("2x1-calls-renewed", 0),
        ("2x1-calls-rollout", 1),
        ("2x1-calls-rollback", 1),
        ("2x1-mixed-letters", 1),
        ("2x1-attempts", 1),
        ("2x1-attempts-unclaimed", 1),
        ("3x1-unclaimed", 1),
        ("2x2-unclaimed", 0),
        ("2x2-unclaimed-fifo", 1),
        ("2x1-function", 1),
        ("2x1-function-transaction", 1),
        ("2x1-http", 1),
        ("2x1-http-replay", 1),
        ("2x1-http-wait", 0),
        ("2x1-workflow", 1),
        ("2x1-workflow-sweep", 1),
        ("3x1-workflow", 0),
        ("3x1-workflow-sweeps", 0),
        ("3x1", 1),
        ("2x2-fifo", 0),
    ],
)
def test_every_schedule_keeps_the_invariants(setup: str, faults: int) -> None:
    found = explored(setup, faults, seconds=300)

    assert found.violation is None
    assert found.finished
    assert found.schedules >= found.states > 100
    assert len(report(found)) == 1


@pytest.mark.parametrize(
    ("bug", "setup", "faults", "rule"),
    [
        ("acknowledged before it is recorded", "2x1", 0, "I"),
        ("a settlement names no version", "2x1", 1, "I3"),
        ("a take-over without compare-and-swap", "2x1", 1, "I7"),
        ("unread is free", "2x1", 2, "I9"),
        ("one's own version is not recognised", "2x1", 1, "I9"),
        ("a claimed message runs although its group has stopped", "2x2-fifo", 1, "FIFO"),
        ("a lease without a margin for clocks that differ", "2x1", 1, "I1"),
        ("an orphan waits for its record's expiration", "2x1", 1, "I6"),
        ("the handler's own writes are forgotten", "2x1-transaction", 0, "EFFECT"),
        ("a settlement names no version", "2x1-function", 1, "I3"),
        ("one's own version is not recognised", "2x1-function", 1, "I9"),
        ("the loser's answer is given", "2x1-http", 1, "HTTP"),
        ("a replay is not marked as one", "2x1-http", 0, "HTTP"),
        ("an answer is given whose transaction was not committed", "2x1-http-replay", 2, "I4"),
        ("a passing failure is answered for ever", "2x1-http-replay", 1, "HTTP"),
        ("an execution that was faster than its hand-over is said to run", "2x1-workflow", 0, "WORKFLOW"),
        ("a failed execution is started again", "2x1-workflow", 0, "I3"),
        ("what is to be started is not kept", "2x1-workflow-sweep", 1, "WORKFLOW"),
        ("a conclusion overwrites a failure", "3x1-workflow-sweeps", 1, "I3"),
        ("a transaction keeps the caller's dicts", "2x1-shares", 0, "I9"),
        ("a namespace is left out of the id", "3x1-consumers", 0, "I1"),
        ("the fingerprint is not compared", "2x1-payloads", 0, "I4"),
        ("the fingerprint is not compared", "2x1-http-payloads", 0, "HTTP"),
        ("an expired record is honoured", "2x1-http-expires", 0, "HTTP"),
        ("a bucket that does not answer has lost the answer", "2x1-http-large", 1, "HTTP"),
        ("a large result is written over another claim's", "2x1-http-large", 1, "HTTP"),
        ("a redriven message counts under its new id", "3x1-redriven", 1, "I1"),
        ("a coroutine that hangs is not cancelled", "2x1-coroutine", 0, "ANSWER"),
        ("a peek that finds a crash at the limit sends its dead letter unfenced", "2x1-attempts", 2, "LETTER"),
    ],
)
def test_a_planted_bug_is_found_and_reported(bug: str, setup: str, faults: int, rule: str, tmp_path: Path) -> None:
    def run(*arguments: str) -> str:
        ran = run_planted(bug, tmp_path, "-m", "tests.simulation.explore", setup, "--faults", str(faults), *arguments)
        assert ran.returncode == (0 if arguments else 1), ran.stderr
        return ran.stdout

    first, *trace, last = run().splitlines()

    assert "VIOLATED after" in first
    assert f" {rule}" in trace[-1]
    assert run(*last.split()[-2:]).splitlines() == trace


def test_clocks_beyond_the_bound_break_the_first_invariant(monkeypatch: pytest.MonkeyPatch) -> None:
    """The condition is necessary: a worker whose clock is far ahead takes over a live lease."""
    monkeypatch.setattr(scheduler, "CLOCK_OFF_SECONDS", 14.0)
    search = Search(SETUPS["2x1"], faults=1)

    found = search.run()

    assert found.violation is not None
    assert found.violation.rule == "I7"
    violation, schedule = shortest(found)
    assert len(schedule) <= len(found.schedule)
    assert str(violation) in list(replayed(found.setup, 1, encoded(found.setup, 1, schedule)))[-1]


def random_schedule(explorer: Any, random: Random) -> tuple[list[scheduler.Move], State]:
    state, path = explorer.initial_state(faults=2), []
    while possible := list(explorer.moves(state)):
        path.append(random.choice(possible))
        state = explorer.play(state, path[-1])
    return path, state


@pytest.mark.parametrize("setup", list(SETUPS))
def test_a_cached_history_is_what_the_worker_does(setup: str) -> None:
    random, explorer = Random(1), explorer_of(SETUPS[setup])
    for _ in range(20):
        path, end = random_schedule(explorer, random)
        anew = explorer_of(SETUPS[setup])
        state = anew.initial_state(faults=2)
        for move in path:
            state = anew.play(state, move)
        assert (state.items, state.entries, state.dead_lettered) == (end.items, end.entries, end.dead_lettered)
        assert not list(anew.moves(state))
