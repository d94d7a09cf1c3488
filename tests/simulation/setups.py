"""The setups that the exploration plays: how many workers receive which messages, and how their consumer is set up."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

FIRST, AGAIN, LAST, SWEEP, REDRIVEN, OPERATES = 1, 2, 3, 4, 5, 6
"""Which receive of its messages a worker handles. The last one comes after all faults; a sweep is a workflow's; what is
redriven was a dead letter. One that operates is an operator, who receives nothing.
"""
ALL = frozenset({FIRST, AGAIN, LAST})
CONSUMERS = "ab"
HOT = "hot"

WAIVED = {
    "I1": "without claims two workers may run one message at the same time: one of them commits",
    "I2": "a first receive runs unread, and what was read may change before its handler starts: no such run commits",
}
"""The rules that do not hold of a worker without claims, and why. EFFECT, SEEN and I3 hold of it in their place."""


@dataclass(frozen=True)
class Act:
    """What an operator does with a dead letter: "resend" or "redrive". Body 0 is what the letter has."""

    verb: str
    operator: str = "alice"
    letter: int = 0
    old: int = 0
    new: int = 1


ALICE, BOB = Act("resend"), Act("resend", operator="bob", letter=1)
REDRIVE = Act("redrive", letter=1)


@dataclass(frozen=True)
class Setup:
    """One setup. `adapter` is one of `adapters.ADAPTERS`: how the messages reach the shipped code."""

    name: str
    workers: int
    messages: int
    transactional: bool = False
    dead_letters: bool = False
    attempts: int = 0
    """With dead letters only: how many charged attempts a message has; 0 for any number."""
    fifo: bool = False
    concurrency: int = 1
    adapter: str = "queue"
    sweeps: int = 0
    """Workflow only: how many of the workers, the last ones, are sweeps."""
    replay: bool = False
    """HTTP only: whether the error response of a handler that raised is final and replayed."""
    wait_seconds: float = 0
    """HTTP only: how long a request waits for another one with its key."""
    faults: int = 2
    """The most faults in one schedule, unless the command line says otherwise."""
    unclaimed: frozenset[int] = frozenset()
    """The receives whose workers claim nothing, by `effects="transaction"`. If only some, it is turned on or off."""
    renewals: int = 0
    """How often a worker may renew its leases. With any, workers run as outside Lambda: under leases that are shorter
    than the time limit, and killed by a timer before the earliest ends.
    """
    renewing: frozenset[int] = ALL
    """The receives whose workers may do so."""
    consumers: int = 1
    """How many consumers share the table: the workers are theirs in turns, and all receive the same messageIds."""
    payloads: int = 1
    """How many payloads come under one key: the workers receive them in turns."""
    shares: bool = False
    """Whether a handler has one dict for all its actions, and for all its messages."""
    hot: bool = False
    """Whether all messages also add to one entry, so that their transactions take turns."""
    reads: str = ""
    """What messages read by their transactions, and write by what they have read. "count": an entry to which each adds
    one. "absence": an entry that whoever finds none makes. "skew": an entry of their own, unless they find the other's.
    """
    sends: bool = False
    """Whether the handler sends a message through its transaction."""
    sent: int = 1
    """How many messages such a handler sends."""
    calls: int = 0
    """How many of these are calls of a function instead, which come first."""
    before_calls: frozenset[int] = frozenset()
    """The receives whose workers are of the release before calls: they call nothing, and read no outbox with a call."""
    before_sends: frozenset[int] = frozenset()
    """The receives whose workers are of the release before that: they send nothing, and know no SENDING."""
    asynchronous: bool = False
    """Whether the handler is a coroutine function."""
    retention_seconds: int | None = None
    """How long records last, if not beyond every worker's life. TTL may delete what has expired at any time."""
    large: bool = False
    """HTTP only: whether responses are too large for their records, and go to a bucket."""
    redriven: bool = False
    """Whether the last worker receives what was redriven, once there is a dead letter."""
    firsts: int = 1
    """How many of the workers handle a first receive: of messages that were sent several times under their keys."""
    acts: tuple[Act, ...] = ()
    """Operators only: what they do, at the same time. The dead letter is there as often as it was restored."""
    letters: tuple[int, ...] = (0, 0)
    """Operators only: the body that each dead letter has. Body 1 is there if its resend crashed and it failed, too."""

    @property
    def failures(self) -> bool:
        """Whether a failure is final, as a completion is."""
        return self.replay or self.adapter == "workflow"

    @property
    def refuses(self) -> bool:
        """Whether a handler may raise PermanentError: with dead letters for good, over HTTP for now."""
        return self.dead_letters or self.adapter == "http"

    @property
    def batch(self) -> list[str]:
        """The ids of the messages' records. They are the messages' own, but for several consumers."""
        return self.batch_of(0)

    def batch_of(self, variant: int) -> list[str]:
        """The ids of the records of the messages that come to a consumer."""
        prefix = "m" if self.adapter == "queue" and self.payloads == 1 else "m#"
        whose = f"{CONSUMERS[variant]}#" if self.consumers > 1 else ""
        return [f"{whose}{prefix}{number}" for number in range(self.messages)]

    @property
    def variants(self) -> range:
        return range(max(self.consumers, self.payloads))

    def variant(self, number: int) -> int:
        """Which consumer the worker with this number is, or which payload it receives."""
        return number % len(self.variants)

    def entries_of(self, id: str) -> list[str]:
        """The entries that a message's transaction adds to."""
        return [id, *([f"{id} too"] if self.shares else []), *([HOT] if self.hot else [])]

    def receives(self, number: int) -> int:
        """Which receive of its messages the worker with this number handles."""
        if number >= self.workers - self.sweeps:
            return SWEEP
        if self.redriven and number == self.workers - 1:
            return REDRIVEN
        return FIRST if number < self.firsts else AGAIN

    def sent_by(self, receives: int) -> bool:
        """Whether the handler of the worker that handles this receive sends."""
        return self.sends and receives not in self.before_sends | self.before_calls

    def waives(self, rule: str, receives: int) -> bool:
        """Whether a rule does not hold of the worker that handles this receive: see `WAIVED`."""
        return rule in WAIVED and receives in self.unclaimed


def _operators(name: str, *acts: Act, letters: tuple[int, ...] = (0, 0)) -> tuple[Setup, ...]:
    """Operators beside two deliveries, of a standard and a FIFO queue, with claims and without."""
    faults = 2 if len(acts) < 3 else 1
    common: dict[str, Any] = {"messages": 1, "adapter": "operators", "acts": acts, "letters": letters, "faults": faults}
    unclaimed: dict[str, Any] = {"transactional": True, "unclaimed": ALL, **common}
    return (
        Setup(name, workers=2, **common),
        Setup(f"{name}-fifo", workers=2, fifo=True, **common),
        Setup(f"{name}-unclaimed", workers=2, **unclaimed),
        Setup(f"{name}-unclaimed-fifo", workers=2, fifo=True, **unclaimed),
    )


def _reading(reads: str) -> tuple[Setup, ...]:
    """Two messages that read what the other one writes, with claims and without."""
    common: dict[str, Any] = {"workers": 2, "messages": 2, "transactional": True, "reads": reads, "faults": 1}
    return Setup(f"2x2-{reads}", **common), Setup(f"2x2-{reads}-unclaimed", unclaimed=ALL, **common)


_SENDING: dict[str, Any] = {"workers": 2, "messages": 1, "transactional": True, "sends": True}

_CALLING: dict[str, Any] = {**_SENDING, "calls": 1}

SETUPS = {
    setup.name: setup
    for setup in (
        Setup("2x1", workers=2, messages=1),
        Setup("2x1-transaction", workers=2, messages=1, transactional=True),
        Setup("2x1-letters", workers=2, messages=1, dead_letters=True),
        Setup("2x1-renewed", workers=2, messages=1, renewals=2),
        Setup("2x1-unclaimed", workers=2, messages=1, transactional=True, unclaimed=ALL),
        Setup("2x1-unclaimed-twice", workers=2, messages=1, transactional=True, unclaimed=ALL, firsts=2),
        Setup("2x1-unclaimed-letters", workers=2, messages=1, transactional=True, unclaimed=ALL, dead_letters=True),
        Setup("2x1-turned-on", workers=2, messages=1, transactional=True, unclaimed=frozenset({AGAIN, LAST})),
        Setup("2x1-turned-off", workers=2, messages=1, transactional=True, unclaimed=frozenset({FIRST})),
        Setup(
            "2x1-mixed-letters",
            workers=2,
            messages=1,
            transactional=True,
            unclaimed=frozenset({AGAIN}),
            dead_letters=True,
        ),
        Setup("2x1-function", workers=2, messages=1, adapter="function"),
        Setup("2x1-function-transaction", workers=2, messages=1, adapter="function", transactional=True),
        Setup("2x1-http", workers=2, messages=1, adapter="http"),
        Setup("2x1-http-replay", workers=2, messages=1, adapter="http", transactional=True, replay=True),
        Setup("2x1-http-wait", workers=2, messages=1, adapter="http", wait_seconds=0.1),
        Setup("2x1-shares", workers=2, messages=1, transactional=True, shares=True),
        Setup("2x2-shares", workers=2, messages=2, transactional=True, shares=True, faults=1),
        Setup("3x1-consumers", workers=3, messages=1, consumers=2),
        Setup("2x1-payloads", workers=2, messages=1, payloads=2),
        Setup("3x1-payloads", workers=3, messages=1, payloads=2),
        Setup("2x1-http-payloads", workers=2, messages=1, adapter="http", payloads=2),
        Setup("2x1-coroutine", workers=2, messages=1, asynchronous=True),
        Setup("2x1-coroutine-transaction", workers=2, messages=1, asynchronous=True, transactional=True),
        Setup("2x1-http-expires", workers=2, messages=1, adapter="http", transactional=True, retention_seconds=5),
        Setup("2x1-http-large", workers=2, messages=1, adapter="http", large=True),
        Setup("2x1-reads", workers=2, messages=1, transactional=True, reads="count"),
        Setup("2x1-reads-unclaimed", workers=2, messages=1, transactional=True, unclaimed=ALL, reads="count"),
        Setup("2x1-reads-letters", workers=2, messages=1, transactional=True, dead_letters=True, reads="count"),
        Setup("2x1-sends", **_SENDING),
        Setup("2x1-sends-unclaimed", unclaimed=ALL, **_SENDING),
        Setup("2x1-sends-two", sent=2, **_SENDING),
        Setup("2x1-sends-two-unclaimed", sent=2, unclaimed=ALL, **_SENDING),
        Setup("2x1-sends-renewed", renewals=1, faults=1, **_SENDING),
        Setup("2x1-sends-renewed-unclaimed", renewals=1, faults=1, unclaimed=ALL, **_SENDING),
        Setup("2x1-sends-letters", dead_letters=True, **_SENDING),
        Setup("2x1-sends-turned-on", unclaimed=frozenset({AGAIN, LAST}), **_SENDING),
        Setup("2x1-sends-rollout", before_sends=frozenset({FIRST}), **_SENDING),
        Setup("2x1-sends-rollback", before_sends=frozenset({AGAIN}), **_SENDING),
        Setup("2x1-sends-rollout-unclaimed", before_sends=frozenset({FIRST}), unclaimed=ALL, **_SENDING),
        Setup("2x1-sends-rollback-unclaimed", before_sends=frozenset({AGAIN}), unclaimed=ALL, **_SENDING),
        Setup("2x1-reads-sends", reads="count", **_SENDING),
        Setup("2x1-calls", **_CALLING),
        Setup("2x1-calls-unclaimed", unclaimed=ALL, **_CALLING),
        Setup("2x1-calls-two", sent=2, **_CALLING | {"calls": 2}),
        Setup("2x1-calls-and-sends", sent=2, **_CALLING),
        Setup("2x1-calls-and-sends-unclaimed", sent=2, unclaimed=ALL, **_CALLING),
        Setup("2x1-calls-renewed", renewals=1, faults=1, **_CALLING),
        Setup("2x1-calls-letters", dead_letters=True, **_CALLING),
        Setup("2x1-calls-rollout", before_calls=frozenset({FIRST}), **_CALLING),
        Setup("2x1-calls-rollback", before_calls=frozenset({AGAIN}), **_CALLING),
        Setup("2x1-calls-rollback-unclaimed", before_calls=frozenset({AGAIN}), unclaimed=ALL, **_CALLING),
        Setup("2x1-reads-calls", reads="count", **_CALLING),
        Setup("2x1-attempts", workers=2, messages=1, dead_letters=True, attempts=1),
        Setup("2x1-attempts-two", workers=2, messages=1, dead_letters=True, attempts=2),
        Setup(
            "2x1-attempts-unclaimed",
            workers=2,
            messages=1,
            transactional=True,
            unclaimed=ALL,
            dead_letters=True,
            attempts=1,
        ),
        Setup("3x1-attempts", workers=3, messages=1, dead_letters=True, attempts=1, faults=1),
        Setup("3x1-attempts-redriven", workers=3, messages=1, dead_letters=True, attempts=1, redriven=True, faults=1),
        Setup("3x1-redriven", workers=3, messages=1, dead_letters=True, redriven=True),
        *_operators("resend", ALICE),
        *_operators("resend-other", ALICE, replace(BOB, new=2)),
        *_operators("resend-redrive", ALICE, REDRIVE),
        *_operators("resend-redriven", ALICE, Act("redrive"), letters=(0,)),
        *_operators("resend-chain", ALICE, replace(BOB, old=1, new=2), letters=(0, 1)),
        *_operators("resend-circle", ALICE, replace(BOB, old=1, new=0), letters=(0, 1)),
        *_operators("resend-crossed", replace(ALICE, new=2), replace(BOB, old=2, new=0), letters=(0, 2)),
        Setup("2x1-workflow", workers=2, messages=1, adapter="workflow"),
        Setup("2x1-workflow-sweep", workers=2, messages=1, adapter="workflow", sweeps=1),
        Setup("3x1-workflow", workers=3, messages=1, adapter="workflow", sweeps=1),
        Setup("3x1-workflow-sweeps", workers=3, messages=1, adapter="workflow", sweeps=2),
        Setup("3x1-function", workers=3, messages=1, adapter="function"),
        Setup("3x1-unclaimed", workers=3, messages=1, transactional=True, unclaimed=ALL, firsts=2),
        Setup("3x1", workers=3, messages=1),
        Setup("2x2-attempts", workers=2, messages=2, dead_letters=True, attempts=1, faults=1),
        Setup("2x2-attempts-fifo", workers=2, messages=2, fifo=True, dead_letters=True, attempts=1, faults=1),
        Setup("2x2-unclaimed-fifo", workers=2, messages=2, transactional=True, unclaimed=ALL, fifo=True),
        # Running both messages before either is committed multiplies the schedules, as running them at once does.
        Setup("2x2-unclaimed", workers=2, messages=2, transactional=True, unclaimed=ALL, faults=1),
        Setup("2x2-hot", workers=2, messages=2, transactional=True, hot=True, faults=1),
        Setup("2x2-hot-unclaimed", workers=2, messages=2, transactional=True, unclaimed=ALL, hot=True, faults=1),
        *_reading("count"),
        *_reading("skew"),
        *_reading("absence"),
        # With a fault these do not end within an hour.
        Setup("2x2-sends", workers=2, messages=2, transactional=True, sends=True, faults=0),
        Setup("2x2-sends-unclaimed", workers=2, messages=2, transactional=True, unclaimed=ALL, sends=True, faults=0),
        Setup("2x2-renewed", workers=2, messages=2, renewals=1, renewing=frozenset({FIRST}), faults=1),
        Setup("2x2-fifo", workers=2, messages=2, fifo=True),
        Setup("2x2", workers=2, messages=2),
        # Running both messages at once multiplies the schedules: with two faults the search takes hours.
        Setup("2x2-parallel", workers=2, messages=2, concurrency=2, faults=1),
    )
}
"""Each worker receives all messages. The name says workers x messages, then what is special.

The heaviest setups come last, so that the others report first.
"""
