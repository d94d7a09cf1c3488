"""Every pair of commands on one message, the first killed after each of its writes: one body takes effect, and nothing
vanishes.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import pytest

from idempotent_receiver.operations.dead_letters.triage import Verdict
from tests.unit.operations.dead_letters.night import FIX, OLD, OTHER_FIX, Night

FIRST = ("redrive", "fix", "other-fix", "archive", "delete", "to-dlq", "from-archive", "finish", "stuck")
SECOND = FIRST
MOST_WRITES = 12


class World(NamedTuple):
    """What surrounds two commands on one message."""

    first: str
    effects: str = "any"
    fifo: bool = False
    known: bool = True
    copies: int = 1
    running: bool = False

    def __str__(self) -> str:
        told = (
            self.first,
            *(() if self.effects == "any" else ("without claims",)),
            "fifo" if self.fifo else "standard",
            "failed" if self.known else "never claimed",
            "once" if self.copies == 1 else "restored twice",
            "consumer running" if self.running else "consumer idle",
        )
        return ", ".join(told)


def worlds(first: str) -> list[World]:
    """All worlds in which this command comes first."""
    either = (False, True)
    return [World(first, *each) for each in itertools.product(("any", "transaction"), either, either, (1, 2), either)]


EVERY = [each for first in FIRST for each in worlds(first)]
SOME = [worlds(first)[place * 5 % 32] for place, first in enumerate(FIRST)]
"""One of each command, by which each of the rest is met in both its forms."""


@pytest.mark.parametrize("world", SOME, ids=str)
def test_one_body_takes_effect_and_nothing_vanishes_whichever_of_two_commands_is_killed(world: World) -> None:
    judge(world)


@pytest.mark.parametrize("world", [each for each in EVERY if each not in SOME], ids=str)
def test_every_pair_of_commands_in_every_world(world: World) -> None:
    judge(world)


def judge(world: World) -> None:
    """Kill the first command after each of its writes, then give each other one, and go on as the triage says."""
    for second in SECOND:
        for write in range(1, MOST_WRITES):
            bank = night(world)
            killed = bank.killed(world.first, write)
            if world.running:
                bank.deliver()
            ended = bank.do(second)
            bank.settle()

            told = f"{world.first} killed after write {write}, then {second} ({ended})"
            assert set(bank.ran) <= {OLD, FIX, OTHER_FIX}
            assert bank.ran.total() <= 1, (told, bank.ran)
            if "delete" not in (world.first, second):
                assert bank.ran.total() == 1, (told, bank.verdicts(), list(bank.bucket.objects))
            assert not bank.queue.messages, told
            if not killed:
                break
        else:
            raise AssertionError("a command made more writes than are tried")


def night(world: World) -> Night:
    """What the first command finds."""
    made = Night(fifo=world.fifo, effects=world.effects)
    made.letter(known=world.known, copies=world.copies)
    if world.first in ("to-dlq", "from-archive"):
        made.do("archive")
    if world.first in ("finish", "stuck"):
        assert made.killed("fix", 1)
        assert Verdict.UNSENT in made.verdicts()
    return made
