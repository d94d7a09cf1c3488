"""Which states of the explored world are equal: the exploration skips a state that equals an earlier one."""

from __future__ import annotations

from tests.simulation.explorer import Explorer
from tests.simulation.scheduler import possible_moves
from tests.simulation.setups import SETUPS
from tests.simulation.state import State

FAULTS = 2


def played(*path: tuple[object, ...], setup: str = "3x1", faults: int = FAULTS) -> State:
    explorer = Explorer(SETUPS[setup])
    state = explorer.initial_state(faults)
    for move in path:
        assert move in list(possible_moves(state))
        state = explorer.play(state, move)
    return state


START = ("start", "w0", 0.0), ("apply", "w0", 0, 0)
OTHERS = ("start", "w1", 0.0), ("start", "w2", 0.0)


def test_which_of_two_workers_does_it_makes_no_difference() -> None:
    one = played(("start", "w0", 0.0), *OTHERS, ("apply", "w1", 0, 0), ("apply", "w1", 1, 0))
    other = played(("start", "w0", 0.0), *OTHERS, ("apply", "w2", 0, 0), ("apply", "w2", 1, 0))

    assert [state.items["m0"]["owner"] for state in (one, other)] == ["w1", "w2"]
    assert one.key() == other.key()


def test_what_a_worker_has_received_makes_a_difference() -> None:
    """What it does next follows from its whole history."""
    state = played(*START)
    forgetful = state.copy()
    forgetful.workers[0].history = played(("start", "w0", 0.0)).workers[0].history

    assert state.key() != forgetful.key()


def test_whose_claim_it_is_makes_a_difference_while_they_live() -> None:
    state = played(*START, *OTHERS)
    usurped = state.copy()
    usurped.items = {"m0": state.items["m0"] | {"owner": "w1"}}

    assert state.key() != usurped.key()


def test_a_crash_and_the_faults_left_make_a_difference() -> None:
    assert played(*START).key() != played(*START, faults=1).key()
    assert played(*START, ("crash", "w0")).key() != played(*START, faults=1).key()


def test_the_same_again_an_hour_later_is_the_same() -> None:
    """Only the distances between now, leases and starts matter."""
    now, later = played(*START), played(*START)
    later.now += 3600
    later.workers[0].started += 3600
    later.items = {
        "m0": later.items["m0"] | {"in_progress_expiration": later.items["m0"]["in_progress_expiration"] + 3_600_000}
    }

    assert now.key() == later.key()


def test_a_lease_that_is_closer_to_its_end_makes_a_difference() -> None:
    """Another worker may take over earlier."""
    state = played(*START)
    shorter = state.copy()
    shorter.items = {
        "m0": state.items["m0"] | {"in_progress_expiration": state.items["m0"]["in_progress_expiration"] - 1}
    }

    assert state.key() != shorter.key()


def test_a_copy_that_must_be_refused_is_dropped_from_the_wire() -> None:
    """Only the first insert that arrives can take effect."""
    waiting = played(("start", "w0", 0.0), ("copy", "w0", 0, 0))
    served = played(("start", "w0", 0.0), ("copy", "w0", 0, 0), ("apply", "w0", 0, 0))

    assert [wired.kind for wired in waiting.wire] == ["insert"]
    assert served.wire == ()


def test_a_write_that_may_still_take_effect_stays_on_the_wire() -> None:
    lost = played(*START, ("return", "w0", 1), ("lose", "w0", 2))
    arrived = played(*START, ("return", "w0", 1), ("lose", "w0", 2), ("arrive", 0))

    assert [wired.change.new.status for wired in lost.wire] == ["COMPLETED"]
    assert arrived.items["m0"]["status"] == "COMPLETED"
    assert arrived.wire == ()


def test_a_worker_whose_clock_has_stepped_reads_it_next() -> None:
    stepped = played(*START, *OTHERS, ("clock_step", "w1"))

    assert {move[1] for move in possible_moves(stepped)} == {"w1"}
    assert stepped.key() != played(*START, *OTHERS, faults=1).key()
