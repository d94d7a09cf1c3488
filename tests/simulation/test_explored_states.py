"""Which states of the explored world count as one, and which do not: what the exploration leaves out rests on this."""

from __future__ import annotations

from tests.simulation.explore import SETUPS
from tests.simulation.game import Game
from tests.simulation.moves import moves
from tests.simulation.state import State

FAULTS = 2


def played(*path: tuple[object, ...], setup: str = "3x1", faults: int = FAULTS) -> State:
    """The state after these moves."""
    game = Game(SETUPS[setup])
    state = game.beginning(faults)
    for move in path:
        assert move in list(moves(state))
        state = game.play(state, move)
    return state


START = ("start", "w0", 0.0), ("apply", "w0", 0, 0)
OTHERS = ("start", "w1", 0.0), ("start", "w2", 0.0)


def test_which_of_two_workers_does_it_makes_no_difference() -> None:
    """They run the same code: neither whose claim it is counts, nor what its version is called."""
    one = played(("start", "w0", 0.0), *OTHERS, ("apply", "w1", 0, 0), ("apply", "w1", 1, 0))
    other = played(("start", "w0", 0.0), *OTHERS, ("apply", "w2", 0, 0), ("apply", "w2", 1, 0))

    assert [state.items["m0"]["owner"] for state in (one, other)] == ["w1", "w2"]
    assert one.key() == other.key()


def test_what_a_worker_has_been_told_makes_a_difference() -> None:
    """What it does next follows from all of it."""
    state = played(*START)
    forgetful = state.copy()
    forgetful.workers[0].past = played(("start", "w0", 0.0)).workers[0].past

    assert state.key() != forgetful.key()


def test_whose_claim_it_is_makes_a_difference_while_they_live() -> None:
    """The owner may settle it, another may not."""
    state = played(*START, *OTHERS)
    usurped = state.copy()
    usurped.items = {"m0": state.items["m0"] | {"owner": "w1"}}

    assert state.key() != usurped.key()


def test_a_crash_and_a_fault_that_is_left_make_a_difference() -> None:
    """Of two alike states, more can come from the one with more faults left."""
    assert played(*START).key() != played(*START, faults=1).key()
    assert played(*START, ("crash", "w0")).key() != played(*START, faults=1).key()


def test_the_same_again_an_hour_later_is_the_same() -> None:
    """Only the distances between now, leases and starts count."""
    now, later = played(*START), played(*START)
    later.now += 3600
    later.workers[0].started += 3600
    later.items = {
        "m0": later.items["m0"] | {"in_progress_expiration": later.items["m0"]["in_progress_expiration"] + 3_600_000}
    }

    assert now.key() == later.key()


def test_a_lease_that_is_closer_to_its_end_makes_a_difference() -> None:
    """Somebody may take over earlier."""
    state = played(*START)
    shorter = state.copy()
    shorter.items = {
        "m0": state.items["m0"] | {"in_progress_expiration": state.items["m0"]["in_progress_expiration"] - 1}
    }

    assert state.key() != shorter.key()


def test_a_copy_that_must_be_refused_is_dropped_from_the_wire() -> None:
    """The first insert to arrive is the last one that can take effect."""
    waiting = played(("start", "w0", 0.0), ("copy", "w0", 0, 0))
    served = played(("start", "w0", 0.0), ("copy", "w0", 0, 0), ("apply", "w0", 0, 0))

    assert [wired.kind for wired in waiting.wire] == ["insert"]
    assert served.wire == ()


def test_a_write_that_may_still_take_effect_stays_on_the_wire() -> None:
    """A completion that was lost is not refused before its version is replaced."""
    lost = played(*START, ("return", "w0", 1), ("lose", "w0", 2))
    arrived = played(*START, ("return", "w0", 1), ("lose", "w0", 2), ("arrive", 0))

    assert [wired.change.new.status for wired in lost.wire] == ["COMPLETED"]
    assert arrived.items["m0"]["status"] == "COMPLETED"
    assert arrived.wire == ()


def test_a_worker_whose_clock_has_stepped_looks_at_it_next() -> None:
    """Nobody else can see it, so nothing has to come between."""
    stepped = played(*START, *OTHERS, ("step", "w1"))

    assert {move[1] for move in moves(stepped)} == {"w1"}
    assert stepped.key() != played(*START, *OTHERS, faults=1).key()
