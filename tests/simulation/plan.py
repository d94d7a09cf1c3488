"""What a seed decides: its workload, its faults and how often they occur."""

from __future__ import annotations

from random import Random

from tests.simulation import reached
from tests.simulation.network_faults import FAULTS

CLOCKS_OFF_SECONDS = 1.4
"""Two clocks with this error, in opposite directions, still differ by less than the lease margin."""


class Plan:
    """A seed's workload and faults: which ones occur, and how often."""

    def __init__(self, random: Random, seed: int) -> None:
        self.fifo = random.random() < 0.4
        self.transactional = random.random() < 0.5
        self.dead_letters = random.random() < 0.5
        self.concurrency = random.choice([1, 1, 2, 4, 8])
        self.visibility_seconds = random.choice([5.0, 15.0, 60.0])
        self.duplicates = 0.0 if self.fifo else random.choice([0.0, 0.02, 0.2])
        self.faults = random.choice([0.0, 0.02, 0.1, 0.1, 0.3])
        self.kinds = random.sample(list(FAULTS), random.randint(1, len(FAULTS)))
        self.crashes = self.faults / 2
        self.lost_deletes = self.faults / 2
        self.fails = random.choice([0.0, 0.05, 0.2])
        # Handlers that take no time finish together, and are settled together.
        self.takes_seconds = random.choice([[0.0], [0.0, 0.0, 0.005, 0.3, 2.0, 5.0]])
        self.freezes = random.choice([0.0, 0.0, 0.1])
        self.outage_from = random.choice([None, None, 1.0, 30.0])
        # A random source of its own, so that suspensions change nothing else in a seed's world.
        self.suspended = Random(f"suspended {seed}")
        self.suspensions = self.suspended.choice([0.0, 0.0, 0.0, 0.1])
        self.more = Random(f"entries {seed}")
        self.unclaimed = self.more.choice([0.0, 0.0, 0.5, 1.0])
        """How many of the processes claim nothing."""
        self.transactional = self.transactional or self.unclaimed > 0
        self.accounts = self.more.choice([0, 0, 1, 2])
        """How many items the transactions of all messages share; with none, each has its own alone."""
        self.closes = self.more.choice([False, False, True])
        """Whether a condition of a transaction fails at times."""
        self.keyed = self.more.random() < 0.3
        """Whether messages have keys of their producers, and some share one, with the same payload or another."""

    @property
    def flawless(self) -> bool:
        """Whether nothing at all goes wrong."""
        wrong = self.faults or self.fails or self.freezes or self.suspensions or self.duplicates or self.outage_from
        return not (wrong or self.closes or self.keyed or reached.steered())
