"""What a seed decides: its workload, its faults and how often they occur, and which worlds it combines.

Each world draws from a random source of its own, so that one more world changes nothing in those that were there.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tests.simulation import reached
from tests.simulation.casts import HABITS
from tests.simulation.network_faults import FAULTS
from tests.simulation.results import FORMS

CLOCKS_OFF_SECONDS = 1.4
"""Two clocks with this error, in opposite directions, still differ by less than the lease margin."""
DAY_SECONDS = 24 * 60 * 60


@dataclass(frozen=True)
class Version:
    """What a process is deployed with."""

    claims: bool
    dead_letters: bool
    concurrency: int
    asynchronous: bool = False
    validates: bool = False


class Plan:
    """A seed's workload and faults: which ones occur, and how often. A `plain` one has none of the later worlds."""

    habits: frozenset[str] = frozenset()
    forms: tuple[str, ...] = ("text",)
    """Which results the handlers return."""
    asynchronous = 0.0
    """How many of the processes run coroutines."""
    functions = queues = 1
    unusable = 0.0
    """How many of the messages have no usable key."""
    still = 0.0
    """How often one of a process's clocks stands still."""
    late = redrives = deletions = 0
    """How many late duplicates there are, how many dead letters are sent back, how often TTL deletes."""
    reads = False
    """Whether a handler reads the account that its transaction writes, and writes what follows from it."""
    sends = False
    """Whether a handler sends a message through its transaction."""
    calls = False
    """Whether it calls a function instead, which sends the message."""
    expires = False
    """Whether records expire, after a day, and messages are delivered again then."""
    audit_retention_seconds = 30 * DAY_SECONDS
    """How long the records last of the function that handlers call."""
    deploy_at: float | None = None
    """When the processes are replaced by a new version."""

    def __init__(self, random: Random, seed: int, *, plain: bool = False) -> None:
        self.fifo = random.random() < 0.4
        self.transactional = random.random() < 0.5
        self.dead_letters = random.random() < 0.5
        self.concurrency = random.choice([1, 1, 2, 4, 8])
        self.visibility_seconds = random.choice([5.0, 15.0, 60.0])
        self.duplicates = 0.0 if self.fifo else random.choice([0.0, 0.02, 0.2])
        self.faults = random.choice([0.0, 0.02, 0.1, 0.1, 0.3])
        self.kinds = random.sample([*FAULTS][:-1], random.randint(1, len(FAULTS) - 1))
        self.crashes = self.faults / 2
        self.lost_deletes = self.faults / 2
        self.fails = random.choice([0.0, 0.05, 0.2])
        # Handlers that take no time finish together, and are settled together.
        self.takes_seconds = random.choice([[0.0], [0.0, 0.0, 0.005, 0.3, 2.0, 5.0]])
        self.freezes = random.choice([0.0, 0.0, 0.1])
        self.outage_from = random.choice([None, None, 1.0, 30.0])
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
        # From a random source of its own, so that it changes nothing in the other worlds.
        self.kinds += ["slow"] if Random(f"slow {seed}").random() < 0.2 else []
        self.keyed = self.more.random() < 0.3
        """Whether messages have keys of their producers, and some share one, with the same payload or another."""
        self.seed = seed
        if not plain:
            self._combine_worlds()

    def _combine_worlds(self) -> None:
        cast = self.source("cast")
        self.habits = (
            frozenset(habit for habit in HABITS if cast.random() < 0.4) if cast.random() < 0.5 else self.habits
        )
        self.audit_retention_seconds = cast.choice([30 * DAY_SECONDS, 30 * DAY_SECONDS, 5, 20])
        results = self.source("results")
        self.forms = results.choice([self.forms, tuple(results.sample(FORMS, 3))])
        self.asynchronous = self.source("coroutines").choice([0.0, 0.0, 0.5, 1.0])
        self.functions, self.queues = self.source("consumers").choice([(1, 1), (1, 1), (2, 2), (1, 2)])
        self.reads = self.source("reads").random() < 0.5
        self.unusable = self.source("unusable").choice([0.0, 0.0, 0.25]) if self.keyed else 0.0
        self.still = self.source("still").choice([0.0, 0.0, 0.3])
        if self.still:
            self.takes_seconds = [0.0, 0.3, 2.0, 2.0]
        moves = self.source("moves")
        self.late = moves.choice([0, 0, 3])
        self.redrives = moves.choice([0, 0, 4])
        self.deletions = moves.choice([0, 4])
        self.expires = moves.random() < 0.2
        deploy = self.source("deploy")
        self.deploy_at = deploy.choice([None, None, None, 0.5, 5.0, 30.0])
        self.deployed = {name: deploy.random() < 0.5 for name in Version.__dataclass_fields__}
        """What the new version changes."""
        self.transactional = self.transactional or (self.deploy_at is not None and self.deployed["claims"])
        # A record that expires while it is SENDING is run again, which nobody could tell from a lost send.
        self.sends = self.transactional and not self.expires and self.source("sends").random() < 0.4
        self.calls = self.sends and self.source("calls").random() < 0.4

    def source(self, world: str) -> Random:
        return Random(f"{world} {self.seed}")

    @property
    def flawless(self) -> bool:
        wrong = self.faults or self.fails or self.freezes or self.suspensions or self.duplicates or self.outage_from
        later = self.late or self.redrives or self.expires or self.still or self.deploy_at
        return not (wrong or later or self.closes or self.keyed or self.habits or reached.steered())

    def version(self, process: str, *, deployed: bool) -> Version:
        """What a process of this name is deployed with, before the deployment or after it."""
        changed = self.deployed if deployed else {}
        unclaimed, asynchronous = (
            1.0 - share if changed.get(name) else share
            for name, share in (("claims", self.unclaimed), ("asynchronous", self.asynchronous))
        )
        return Version(
            claims=Random(f"{self.seed} {process}").random() >= unclaimed,
            dead_letters=self.dead_letters != bool(changed.get("dead_letters")),
            concurrency=1 + 8 // self.concurrency if changed.get("concurrency") else self.concurrency,
            asynchronous=Random(f"coroutines {self.seed} {process}").random() < asynchronous,
            validates=bool(changed.get("validates")) and not process.startswith("last"),
        )
