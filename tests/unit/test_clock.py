"""Time, randomness and the deadline."""

from __future__ import annotations

import random

import pytest

from idempotent_receiver.clock import Deadline, SystemClock
from tests.manual_clock import START_MS, ManualClock


@pytest.mark.scenario("S72", mutant="a version of the process's own generator")
@pytest.mark.scenario("S72", mutant="a version is drawn at import")
def test_versions_differ_even_between_twins_that_share_their_generators_state() -> None:
    """A snapshot or a fork copies a process's generator, so each call draws the system's entropy."""
    random.seed(7)
    (first,) = SystemClock().versions(1)
    random.seed(7)
    (second,) = SystemClock().versions(1)

    assert first != second
    assert len(first) == 32
    drawn = SystemClock().versions(1000)
    assert len(set(drawn)) == 1000
    assert {len(version) for version in drawn} == {32}


def test_fractions_are_in_the_unit_interval_and_differ() -> None:
    """They are for jitter."""
    drawn = [SystemClock().fraction() for _ in range(1000)]

    assert all(0 <= fraction < 1 for fraction in drawn)
    assert max(drawn) - min(drawn) > 0.5


def test_the_systems_clocks_go_on() -> None:
    """Milliseconds since 1970, and seconds that never step back."""
    clock = SystemClock()
    before = clock.monotonic_seconds()
    clock.sleep(0)

    assert clock.monotonic_seconds() >= before
    assert clock.epoch_ms() > 1_700_000_000_000


@pytest.mark.parametrize("step", [-3600, -60, 60, 3600])
def test_a_deadline_follows_the_clock_that_never_steps(step: float) -> None:
    """A step of the wall clock changes neither now, nor what is left, nor the end."""
    clock = ManualClock()
    deadline = Deadline.after(clock, 10_000)
    clock.seconds += 4
    clock.stepped_seconds = step

    assert deadline.elapsed_seconds == 4
    assert deadline.left_seconds == 6
    assert deadline.now_ms == START_MS + 4_000
    assert deadline.ends_ms == START_MS + 10_000


@pytest.mark.parametrize(("step", "left"), [(-3600, 6), (-1, 6), (0, 6), (1, 5), (5.5, 0.5), (3600, -3594)])
def test_the_later_of_two_clocks_decides_what_may_still_start(step: float, left: float) -> None:
    """A suspended machine's monotonic clock stood still; a wall clock that steps back gives no time."""
    clock = ManualClock()
    deadline = Deadline.after(clock, 10_000)
    clock.seconds += 4
    clock.stepped_seconds = step

    assert deadline.moment().left_to_start_seconds == pytest.approx(left)


def test_a_deadline_that_is_over_has_less_than_nothing_left() -> None:
    """It is negative, never an error."""
    clock = ManualClock()
    deadline = Deadline.after(clock, -500)

    assert deadline.left_seconds == -0.5
    assert deadline.ends_ms == START_MS - 500
