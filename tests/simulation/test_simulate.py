"""Random simulations keep the invariants and settle; planted bugs, or clocks too far apart, make them fail.

`make simulate` runs as many seeds as you like.
"""

from __future__ import annotations

import shlex
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from idempotent_receiver.batch.settlements import Settlements
from idempotent_receiver.batch.turns import Turns
from idempotent_receiver.protocol.answers import Settled
from tests.simulation.invariants import Violation
from tests.simulation.plan import CLOCKS_OFF_SECONDS
from tests.simulation.planted import run_planted
from tests.simulation.simulate import KINDS, again, main, played, world_of
from tests.simulation.simulation import Simulation
from tests.simulation.test_explore_planted import (
    forgets_the_effects,
    replaces_what_it_finds,
    sends_what_it_has_not_recorded,
    takes_silence_for_success,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from idempotent_receiver.batch.items import Item
    from idempotent_receiver.protocol.answers import SettleResult
    from idempotent_receiver.protocol.exchange import Operation
    from idempotent_receiver.protocol.transitions import Claimed


def test_several_hundred_worlds_keep_the_invariants_and_settle(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "300"]) == 0

    assert "300 seeds" in capsys.readouterr().out


def test_worlds_in_which_claims_are_released_settle_too(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[object] = []
    released = Settlements._released

    def counted(taken: Settlements, item: Item, held: Claimed, done: Operation[SettleResult]) -> None:
        answers.append(type(done.answer))
        released(taken, item, held, done)

    monkeypatch.setattr(Settlements, "_released", counted)

    _, failures = played(0, 300, CLOCKS_OFF_SECONDS, small=True, kind="queue")

    assert failures == []
    assert answers.count(Settled) > 40


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_is_the_same_world_each_time(kind: str) -> None:
    """On the wire, retries wait in the world's time, too, and draw their jitter from the seed."""

    def trace(seed: int) -> list[str]:
        lines: list[str] = []
        world_of(seed, CLOCKS_OFF_SECONDS, lines.append, kind).run()
        return lines

    assert trace(12) == trace(12) != trace(13)


def test_clocks_further_apart_than_the_lease_margin_let_two_run_at_once() -> None:
    broken = set()
    for seed in range(200):
        simulation = Simulation(seed, clocks_off_seconds=15.0)
        try:
            simulation.run()
        except Violation:
            broken |= {violation.rule for violation in simulation.monitor.violations}

    assert "OVERLAP" in broken


@pytest.mark.parametrize(
    ("bug", "rule", "towards"),
    [
        ("acknowledged before it is recorded", "I", None),
        ("a take-over without compare-and-swap", "SEEN", "peek: frozen"),
        ("one's own version is not recognised", "I9", None),
        ("the wall clock is not asked before a start", "I2", "handler: suspended"),
    ],
)
def test_a_planted_bug_is_found_and_its_seed_can_be_replayed(
    bug: str, rule: str, towards: str | None, tmp_path: Path
) -> None:

    def run(*arguments: str) -> list[str]:
        ran = run_planted(bug, tmp_path, "-m", "tests.simulation.simulate", *arguments)
        assert ran.returncode == 1, ran.stdout + ran.stderr
        return [line for line in ran.stdout.splitlines() if "next is --first" not in line]

    steer = [] if towards is None else ["--towards", towards]
    told, command, *_ = run("--kind", "queue", "--seeds", "1000", "--failures", "1", "--processes", "1", *steer)

    assert f" {rule}" in told
    assert run(*shlex.split(command)[4:])[-1] == told


ALONE = """
import sys
from contextlib import suppress
from harness.checker import check
from tests.simulation.call_simulation import CallSimulation
from tests.simulation.monitor import Monitor
from tests.simulation.simulation import Simulation
from tests.simulation.table_monitor import TableMonitor

TableMonitor.violated = Monitor.violated = lambda self, violation: None
for seed in range(400):
    if sys.argv[2] == "calls":
        world = CallSimulation(seed)
        history = world.monitor.history.events if world.monitor.judged else []
    else:
        world = Simulation(seed, plain=True)
        history = world.queues[0].history
    with suppress(Exception):
        world.run()
    if sys.argv[1] in {finding.rule for finding in check(history)}:
        sys.exit(f"found by seed {seed}")
"""
"""No other invariant is asked, and none ends a world early."""


@pytest.mark.parametrize(
    ("bug", "rule", "world"),
    [
        ("a call's transaction is left out of its completion", "EARLY", "calls"),
        ("an answer is given whose transaction was not committed", "ANSWER", "calls"),
        ("a replay is not marked as one", "ANSWER", "calls"),
        ("acknowledged before it is recorded", "AGAIN", "queue"),
        ("acknowledged although it could not be recorded", "EARLY", "queue"),
        ("a failure that is recorded is acknowledged", "EARLY", "queue"),
        ("a dead letter is acknowledged unconfirmed", "EARLY", "queue"),
        ("the handler's own writes are forgotten", "LOST", "queue"),
        ("one ok is all ok", "LOST", "queue"),
        ("a settlement names no version", "DOUBLED", "queue"),
        ("without a claim a commit replaces whatever it meets", "DOUBLED", "queue"),
        ("a settlement replaces whatever is there", "BOTH", "queue"),
        ("an insert over what is there", "OVERLAP", "queue"),
        ("a claimed message runs although its group has stopped", "ORDER", "queue"),
        ("an invocation is kept for the next", "LOST", "queue"),
    ],
)
def test_a_planted_bug_is_found_by_what_clients_see_alone(bug: str, rule: str, world: str, tmp_path: Path) -> None:
    ran = run_planted(bug, tmp_path, "-c", ALONE, rule, world)
    assert "found by seed" in ran.stderr, ran.stderr


def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Turns, "enter", lambda self, index, actions, begin, since: begin(None))
    monkeypatch.setattr(Turns, "leave", lambda self, index, *, applied: None)


@pytest.mark.parametrize(
    ("plant", "rule"),
    [
        (replaces_what_it_finds, "SEEN"),
        (forgets_the_effects, "EARLY"),
        (takes_silence_for_success, "I4"),
        (sends_what_it_has_not_recorded, "LETTER"),
        (at_once, "TURNS"),
    ],
)
def test_a_planted_bug_without_claims_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    broken: set[str] = set()
    seeds = (seed for seed in range(2_000) if Simulation(seed).plan.unclaimed)

    while rule not in broken:
        simulation = Simulation(next(seeds))
        with suppress(Violation):
            simulation.run()
        broken |= {violation.rule for violation in simulation.monitor.violations}


def test_a_seed_with_other_clocks_is_replayed_with_them() -> None:
    assert again(3, CLOCKS_OFF_SECONDS) == "python -m tests.simulation.simulate --seed 3"
    assert again(3, 15.0) == "python -m tests.simulation.simulate --seed 3 --clocks 15"
    assert again(3, CLOCKS_OFF_SECONDS, small=True) == "python -m tests.simulation.simulate --seed 3 --small"
    totals, failures = played(0, 2, CLOCKS_OFF_SECONDS)
    assert (totals.seeds, failures) == (2, [])


@pytest.mark.parametrize("seed", [153106, 163978])
def test_what_an_invocation_leaves_under_way_contends_with_the_next(seed: int) -> None:
    Simulation(seed).run()
