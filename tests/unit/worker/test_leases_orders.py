"""Renewals beside what a worker writes of what it has sent: a thousand orders, at each request to the store."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from greenlet import getcurrent, greenlet

from idempotent_receiver import MemoryStore
from idempotent_receiver.clock import Deadline
from idempotent_receiver.protocol.answers import ClaimLost, Settled
from idempotent_receiver.protocol.exchange import SETTLE_RETRIES, ask
from idempotent_receiver.protocol.record import Record, attributes
from idempotent_receiver.protocol.sending import TakeOver, mark, stop
from idempotent_receiver.protocol.store import NotApplied, Unknown
from idempotent_receiver.protocol.transitions import Claim, Claimed
from idempotent_receiver.transaction.outbox import Outgoing, confirmed, to_text
from idempotent_receiver.worker.leases import Leases
from tests.manual_clock import START_MS, ManualClock
from tests.unit.worker.test_leases import LEASE, MARGIN, RecordedTimer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from idempotent_receiver.protocol.record import Change
    from idempotent_receiver.protocol.store import Written

OUTBOX = to_text([Outgoing("https://example.com/q", {"MessageBody": text}) for text in "abc"])
SENDING = Record(
    id="k",
    status="SENDING",
    version="0",
    outbox=OUTBOX,
    data="1",
    attempts=1,
    owner="before",
    expiration=START_MS // 1000 + 86_400,
    in_progress_expiration=START_MS - 1,
)


class Store(MemoryStore):
    """A store whose requests wait for their turn, on their way there and back, and may be lost on either."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        self.random = random
        self.losses = 2
        self.outboxes: list[str] = []
        self.hub: Any = None

    def read(self, ids: Sequence[str]) -> Sequence[Record | Unknown | None]:
        self._turn()
        return super().read(ids)

    def replace(self, changes: Sequence[Change]) -> Sequence[Written]:
        self._turn()
        how = self.random.random() if self.losses else 1.0
        self.losses -= how < 0.3
        if how < 0.1:
            return [NotApplied("throttled", retry=True)] * len(changes)
        if how < 0.2:
            return [Unknown("lost on its way there")] * len(changes)
        answers = super().replace(changes)
        self.outboxes.append(str(self.items["k"].get("outbox")))
        self._turn()
        return [Unknown("lost on its way back")] * len(changes) if how < 0.3 else answers

    def _turn(self) -> None:
        if self.hub is not None:
            self.hub.switch()


def play(seed: int, end: Callable[[Claimed, Deadline], Any]) -> tuple[Store, Any, list[str]]:
    """One order, drawn by its seed: renewals, and a write that ends what one process has taken over."""
    random = Random(seed)
    clock, store, lost = ManualClock(), Store(random), list[str]()
    leases = Leases(
        store,
        clock,
        RecordedTimer(clock),
        lambda key, why: lost.append(why),
        lease_seconds=LEASE,
        margin_seconds=MARGIN,
    )
    deadline = Deadline.after(clock, 60_000)
    store.items["k"] = attributes(SENDING)
    store.losses, claim = 0, Claim("k", None, "me", 0, lease_ms=int(LEASE * 1000))
    leases.claiming(["k"])
    taken: Any = ask(TakeOver(claim), SENDING, store, deadline)
    held = leases.claimed(taken)
    answers: list[Any] = []

    def settle() -> None:
        settlement = end(leases.settling(held), deadline)
        answers.append(ask(settlement, settlement.standing, store, deadline, max_retries=SETTLE_RETRIES))

    store.losses, store.hub = 2, getcurrent()
    jobs = [greenlet(leases.renew), greenlet(leases.renew), greenlet(settle)]
    while running := [job for job in jobs if not job.dead]:
        random.choice(running).switch()
    (answer,) = answers
    return store, answer, lost


def stops(held: Claimed, deadline: Deadline) -> Any:
    return stop(held, confirmed(held.record.outbox, {1}), deadline.now_ms)


def marks(held: Claimed, deadline: Deadline) -> Any:
    return mark(held)


@pytest.mark.parametrize("seed", range(10))
def test_no_renewal_undoes_what_its_worker_has_recorded_or_ends_it(seed: int) -> None:
    """A hundred orders each, of which half stop with tombstones, and half mark."""
    ends = set[str]()
    for number in range(100):
        store, answer, lost = play(seed * 100 + number, stops if number % 2 else marks)
        item = store.items["k"]

        assert isinstance(answer, Settled)
        assert lost == [], "its process would end"
        assert item["version"] == answer.record.version
        assert item["status"] == ("SENDING" if number % 2 else "COMPLETED")
        assert (item["data"], item["attempts"]) == ("1", 1)
        if number % 2:
            assert item["outbox"] == confirmed(OUTBOX, {1})
            assert item["in_progress_expiration"] <= START_MS + 60_000
        first = next(place for place, one in enumerate(store.outboxes) if one != OUTBOX)
        assert set(store.outboxes[first:]) == {str(item.get("outbox"))}, "a confirmed message has come back"
        ends.add(f"{len(store.outboxes)}")
    assert len(ends) > 1, "orders differ"


def test_a_late_worker_that_renews_and_stops_is_refused_and_told_once() -> None:
    """Another worker has taken over: whichever of the two writes meets it, nothing changes."""
    world_store = MemoryStore()
    clock, lost = ManualClock(), list[str]()
    leases = Leases(
        world_store,
        clock,
        RecordedTimer(clock),
        lambda key, why: lost.append(why),
        lease_seconds=LEASE,
        margin_seconds=MARGIN,
    )
    deadline = Deadline.after(clock, 60_000)
    world_store.items["k"] = attributes(SENDING)
    leases.claiming(["k"])
    taken: Any = ask(TakeOver(Claim("k", None, "me", 0, lease_ms=10_000)), SENDING, world_store, deadline)
    held = leases.claimed(taken)
    theirs = {**world_store.items["k"], "version": "theirs", "owner": "them"}
    world_store.items["k"] = theirs

    settlement = stops(leases.settling(held), deadline)
    answer = ask(settlement, settlement.standing, world_store, deadline)

    assert isinstance(answer, ClaimLost)
    assert (world_store.items["k"], lost) == (theirs, [])
