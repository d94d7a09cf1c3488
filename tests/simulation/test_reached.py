"""A simulation names what it has never reached, a long one fails on it, and seeds are steered to what is rare."""

from __future__ import annotations

import pytest

from idempotent_receiver.batch import items, settlements
from idempotent_receiver.protocol import transitions
from tests.simulation import plan, reached, simulate
from tests.simulation.network_faults import FAULTS
from tests.simulation.observed import observed
from tests.simulation.plan import CLOCKS_OFF_SECONDS
from tests.simulation.simulate import main, played


def never() -> set[str]:
    totals, _ = played(0, 40, CLOCKS_OFF_SECONDS, kind="queue")
    return set(totals.reached.never())


usual = pytest.fixture(scope="module")(never)


def test_a_run_names_what_it_has_never_reached_and_a_long_one_fails_by_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "20", "--processes", "1"]) == 0
    assert "  never reached: release: frozen" in capsys.readouterr().out

    assert main(["--seeds", "20", "--processes", "1", "--must-reach"]) == 1


def test_a_fault_that_no_longer_occurs_is_named_at_every_point(
    usual: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    throttled = {place for place in reached.declared() if place.endswith(": throttled")}
    assert len(throttled - usual) > 3

    monkeypatch.setattr(plan, "FAULTS", {kind: fault for kind, fault in FAULTS.items() if kind != "throttled"})

    assert throttled <= never()


def test_a_row_that_has_become_unreachable_is_named(usual: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    row = "completing: stale"
    assert row not in usual

    monkeypatch.setattr(settlements, "MOST_RUNS", 0)

    assert row in never()


def test_every_row_declares_itself() -> None:
    assert {f"{stage}: {event}" for stage, event in items.TABLE} <= set(reached.GROUPS["stages and events"])
    assert sum(place.startswith("decide: ") for place in reached.GROUPS["decisions"]) == 11


def test_to_reach_what_is_excluded_or_undeclared_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(reached.EXCLUDED, "handler: killed", "nobody kills")

    assert main(["--seeds", "20", "--processes", "1"]) == 1
    assert "  reached, but nobody kills: handler: killed" in capsys.readouterr().out


def test_the_tables_are_the_shipped_ones_again_once_nobody_observes_them() -> None:
    shipped = transitions.decide.__code__

    with observed():
        assert transitions.decide.__code__ is not shipped

    assert transitions.decide.__code__ is shipped
    assert type(items.TABLE) is items.StageTable


def test_seeds_are_steered_to_what_is_rare_whatever_the_number_of_processes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(simulate, "SEEDS_A_TASK", 4)

    def missed(*options: str) -> list[str]:
        assert main(["--seeds", "64", "--kind", "queue", *options]) == 0
        return [line for line in capsys.readouterr().out.splitlines() if "never reached" in line]

    steered = missed("--processes", "1")

    assert steered == missed("--processes", "2")
    assert len(steered) < len(missed("--unsteered"))
