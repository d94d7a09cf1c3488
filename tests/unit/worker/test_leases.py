"""Leases that are renewed: who is told what before it is sent, and when the process must be dead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from botocore.config import Config

from idempotent_receiver import DynamoDBStore, MemoryStore
from idempotent_receiver.clock import Deadline
from idempotent_receiver.dynamodb import client_config
from idempotent_receiver.protocol import transitions
from idempotent_receiver.protocol.answers import ClaimLost, Settled
from idempotent_receiver.protocol.exchange import ask
from idempotent_receiver.protocol.record import attributes
from idempotent_receiver.protocol.store import NotApplied, Unknown
from idempotent_receiver.protocol.transitions import Claim, Claimed
from idempotent_receiver.worker.leases import Leases, shortest_lease_seconds
from tests.manual_clock import ManualClock
from tests.unit.dynamodb.wire import session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from idempotent_receiver.protocol.record import Change, Record
    from idempotent_receiver.protocol.store import Written

LEASE, MARGIN = 10.0, 3.0


class RecordedTimer:
    """A kernel timer that ends nothing: when it would fire, by the test's clock."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.fires: float | None = None

    def arm(self, seconds: float) -> None:
        self.fires = self._clock.seconds + seconds

    def disarm(self) -> None:
        self.fires = None


class Store(MemoryStore):
    """A store in memory; `before` is called with each replacement before it takes effect, and may give its answers."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Callable[[Sequence[Change]], list[Written] | None] = lambda changes: None

        self.reads = True

    def replace(self, changes: Sequence[Change]) -> Sequence[Written]:
        return self.before(changes) or super().replace(changes)

    def replace_now(self, changes: Sequence[Change]) -> Sequence[Written]:
        return super().replace(changes)

    def read(self, ids: Sequence[str]) -> Sequence[Record | Unknown | None]:
        return super().read(ids) if self.reads else [Unknown("away")] * len(ids)


class World:
    """A process with leases, and another worker's view of the table."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = Store()
        self.timer = RecordedTimer(self.clock)
        self.lost: list[tuple[str, str]] = []
        self.leases = Leases(
            self.store,
            self.clock,
            self.timer,
            lambda key, why: self.lost.append((key, why)),
            lease_seconds=LEASE,
            margin_seconds=MARGIN,
        )

    @property
    def deadline(self) -> Deadline:
        return Deadline.after(self.clock, 60_000)

    def claim(self, id: str = "k") -> Claimed:
        self.leases.claiming([id])
        wanted = Claim(id, "f", "me", lease_until_ms=0, lease_ms=int(LEASE * 1000))
        claimed = ask(wanted, None, self.store, self.deadline)
        assert isinstance(claimed, Claimed)
        return self.leases.claimed(claimed)

    def complete(self, claimed: Claimed) -> Any:
        settlement = transitions.complete(claimed, "1")
        return ask(settlement, settlement.standing, self.store, self.deadline)

    def take_over(self, id: str = "k") -> None:
        item = self.store.items[id]
        self.store.items[id] = {**item, "version": "theirs", "owner": "them"}


@pytest.fixture
def world() -> World:
    return World()


# The lease.


def test_a_lease_runs_from_its_writing_and_each_renewal_gives_it_its_length_anew(world: World) -> None:
    world.claim()
    first = world.store.items["k"]["in_progress_expiration"]

    world.clock.seconds += 4
    world.leases.renew()

    assert first == world.clock.epoch_ms() - 4_000 + LEASE * 1000
    assert world.store.items["k"]["in_progress_expiration"] == world.clock.epoch_ms() + LEASE * 1000
    assert world.store.items["k"]["attempts"] == 1
    assert world.leases.renewals == 1


def test_a_renewed_lease_keeps_its_parts_of_a_second(world: World) -> None:
    world.leases._lease_seconds = LEASE + 0.75
    world.claim()
    world.clock.seconds += 3

    world.leases.renew()

    assert world.store.items["k"]["in_progress_expiration"] == world.clock.epoch_ms() + LEASE * 1000 + 750


def test_a_renewal_is_not_tried_beyond_the_earliest_lease(world: World) -> None:
    """The process would be ended in the middle of it, though another lease lasts longer."""
    sent: list[Sequence[Change]] = []

    def slow(changes: Sequence[Change]) -> list[Written]:
        sent.append(changes)
        world.clock.seconds += 2
        return [Unknown("no answer") for _ in changes]

    world.claim("a")
    world.clock.seconds += 6
    world.claim("b")
    world.store.before = slow
    world.leases.renew()

    assert [len(changes) for changes in sent] == [2]


def test_all_leases_are_renewed_in_one_call(world: World) -> None:
    for id in "abc":
        world.claim(id)
    sizes: list[int] = []
    world.store.before = lambda changes: sizes.append(len(changes))

    world.leases.renew()

    assert sizes == [3]


# Death before the lease ends.


def test_the_timer_is_armed_before_a_claim_is_sent(world: World) -> None:
    world.leases.claiming(["k"])

    assert world.timer.fires == LEASE - MARGIN


def test_the_timer_follows_the_earliest_lease(world: World) -> None:
    """Counted from before each write was sent."""
    a = world.claim("a")
    world.clock.seconds += 2
    world.claim("b")
    assert world.timer.fires == LEASE - MARGIN

    world.leases.settling(a)
    assert world.timer.fires == 2 + LEASE - MARGIN
    world.clock.seconds += 3
    world.store.before = lambda changes: world.clock.sleep(2)
    world.leases.renew()

    assert world.timer.fires == 5 + LEASE - MARGIN


def test_nobody_dies_who_holds_nothing(world: World) -> None:
    held = world.claim("a")
    world.leases.claiming(["b"])
    world.leases.not_claimed("b")
    world.leases.settling(held)

    assert world.timer.fires is None


@pytest.mark.parametrize("answer", [Unknown("lost"), NotApplied("throttled", retry=True)])
def test_a_renewal_that_is_not_confirmed_moves_nothing(world: World, answer: Written) -> None:
    world.claim()
    world.clock.seconds += 3
    world.store.before = lambda changes: [answer] * len(changes)

    world.leases.renew()

    assert world.timer.fires == LEASE - MARGIN
    assert world.lost == []


def test_a_renewal_whose_answer_was_lost_is_found_by_its_version(world: World) -> None:
    world.claim()
    world.clock.seconds += 3

    def lose(changes: Sequence[Change]) -> list[Written]:
        world.store.before = lambda changes: None
        world.store.replace(changes)
        return [Unknown("lost")]

    world.store.before = lose
    world.leases.renew()

    assert world.timer.fires is not None
    assert world.timer.fires >= 3 + LEASE - MARGIN


def test_a_renewal_that_took_effect_without_an_answer_is_no_loss_to_the_next_one(world: World) -> None:
    world.claim()
    stored: list[Written] = []

    def lose(changes: Sequence[Change]) -> list[Written]:
        world.store.before = lambda changes: [Unknown("away")] * len(changes)
        stored.extend(world.store.replace_now(changes))
        return [Unknown("lost")]

    world.store.before = lose
    world.store.reads = False
    world.leases.renew()
    world.store.before, world.store.reads = lambda changes: None, True
    world.clock.seconds += 1
    world.leases.renew()

    assert world.lost == []
    assert world.timer.fires == world.clock.seconds + LEASE - MARGIN


@pytest.mark.parametrize("how", ["taken over", "deleted"])
def test_a_lease_that_was_lost_is_reported_with_its_key(world: World, how: str) -> None:
    world.claim()
    if how == "deleted":
        del world.store.items["k"]
    else:
        world.take_over()

    world.leases.renew()

    assert [id for id, _ in world.lost] == ["k"]


# Renewals beside settlements.


def test_a_settlement_goes_over_a_renewal_that_comes_first(world: World) -> None:
    """Whether it was confirmed before, or lands while the settlement is under way."""
    claimed = world.claim()
    world.leases.renew()
    standing = world.leases.settling(claimed)
    assert standing.record.version == world.store.items["k"]["version"]

    assert isinstance(world.complete(standing), Settled)


def test_a_settlement_knows_the_version_of_a_renewal_before_it_is_sent(world: World) -> None:
    """Told afterwards, it would take its own worker's renewal for a take-over."""
    claimed = world.claim()
    answers: list[Any] = []

    def settle_first(changes: Sequence[Change]) -> None:
        world.store.before = lambda changes: None
        held = world.leases.settling(claimed)
        world.store.replace(changes)  # the renewal lands while the settlement is on its way
        answers.append(world.complete(held))

    world.store.before = settle_first
    world.leases.renew()

    assert [type(answer) for answer in answers] == [Settled]
    assert world.store.items["k"]["status"] == "COMPLETED"
    assert world.lost == []


def test_a_renewal_that_is_refused_because_its_own_worker_has_settled_is_no_loss(world: World) -> None:
    claimed = world.claim()

    def settle(changes: Sequence[Change]) -> None:
        world.store.before = lambda changes: None
        world.complete(world.leases.settling(claimed))

    world.store.before = settle
    world.leases.renew()

    assert world.lost == []
    assert world.store.items["k"]["status"] == "COMPLETED"


def test_what_is_being_settled_is_not_renewed(world: World) -> None:
    world.leases.settling(world.claim())
    before = dict(world.store.items["k"])

    world.leases.renew()

    assert world.store.items["k"] == before


def test_a_settlement_after_a_take_over_is_refused_however_many_renewals_there_were(world: World) -> None:
    claimed = world.claim()
    world.leases.renew()
    held = world.leases.settling(claimed)
    world.take_over()

    assert isinstance(world.complete(held), ClaimLost)
    assert world.store.items["k"] == {**attributes(held.record), "version": "theirs", "owner": "them"}


def test_a_store_that_is_away_is_asked_no_longer_than_the_process_lives(world: World) -> None:
    world.claim()
    world.store.before = lambda changes: [Unknown("away")] * len(changes)
    world.clock.seconds += 6.9

    world.leases.renew()

    assert world.clock.seconds < LEASE - MARGIN


def test_what_runs_again_instead_of_being_settled_is_renewed_again(world: World) -> None:
    """Over whichever of its renewals stands; the process dies before the lease that stands ends."""
    claimed = world.claim()
    world.clock.seconds += 2
    standing = world.leases.settling(claimed)
    assert world.timer.fires is None

    again = world.leases.resumed(standing)
    assert again is not None
    assert world.timer.fires == LEASE - MARGIN
    world.clock.seconds += 2
    world.leases.renew()
    assert world.timer.fires == 4 + LEASE - MARGIN
    assert isinstance(world.complete(world.leases.settling(again)), Settled)


def test_what_has_too_little_of_its_lease_left_is_not_resumed(world: World) -> None:
    standing = world.leases.settling(world.claim())
    world.clock.seconds += LEASE - MARGIN - world.leases.renewal_seconds + 0.01

    assert world.leases.resumed(standing) is None
    assert world.timer.fires is None
    assert world.lost == []


# Several batches of one process, and one key.


def test_what_another_batch_is_answered_says_nothing_of_a_claim_on_its_way(world: World) -> None:
    """A message that came again is only read, and found held; its first receive is still being claimed."""
    world.leases.claiming(["k"], "first")
    world.clock.seconds += 1
    world.leases.claiming(["k"], "second")
    world.leases.not_claimed("k", "second")
    assert world.timer.fires == LEASE - MARGIN

    claimed = ask(Claim("k", "f", "me", 0, lease_ms=10_000), None, world.store, world.deadline)
    assert isinstance(claimed, Claimed)
    world.leases.claimed(claimed, "first")

    assert world.timer.fires == LEASE - MARGIN


def test_what_was_settling_leaves_the_lease_of_whoever_has_taken_its_key_over_alone(world: World) -> None:
    """Its commit was refused after its lease had ended, and now it wants to record the failure."""
    first = world.leases.settling(world.claim())
    world.clock.seconds += LEASE + 1
    world.leases.claiming(["k"], "second")
    wanted = Claim("k", "f", "me", 0, lease_ms=10_000)
    second = ask(wanted, first.record, world.store, world.deadline)
    assert isinstance(second, Claimed)
    world.leases.claimed(second, "second")

    again = world.leases.settling(first)
    refused = transitions.fail(again, "{}")

    assert isinstance(ask(refused, refused.standing, world.store, world.deadline), ClaimLost)
    assert world.timer.fires == 2 * LEASE + 1 - MARGIN
    world.leases.renew()
    assert world.store.items["k"]["in_progress_expiration"] == world.clock.epoch_ms() + LEASE * 1000


def test_a_key_that_another_batch_of_the_process_has_claimed_is_lost(world: World) -> None:
    """Its record was deleted while its handler ran."""
    world.claim()
    del world.store.items["k"]

    world.claim()

    assert [id for id, _ in world.lost] == ["k"]


def test_a_batch_that_ends_before_its_claims_are_answered_lets_the_process_live(world: World) -> None:
    world.leases.claiming(["a", "b"], "batch")

    world.leases.ended("batch")

    assert world.timer.fires is None
    assert world.lost == []


@pytest.mark.parametrize("renewals", [0, 1])
def test_a_batch_that_fails_as_a_whole_loses_what_it_held(world: World, renewals: int) -> None:
    """Nobody would settle it, and its lease would be renewed for ever."""
    world.claim()
    for _ in range(renewals):
        world.leases.renew()

    world.leases.ended("another")
    assert world.lost == []
    world.leases.ended(None)

    assert world.lost == [("k", "its batch has failed")]


# What a lease must leave time for.


def test_a_lease_must_leave_time_for_three_renewals_by_the_clients_time_outs() -> None:
    config = Config(connect_timeout=1, read_timeout=2, retries={"total_max_attempts": 2}, region_name="us-east-1")
    store = DynamoDBStore("records", client=session().client("dynamodb", config=config))

    assert shortest_lease_seconds(store, MARGIN) == 3 * 2 * (1 + 2) + MARGIN
    assert shortest_lease_seconds(MemoryStore(), MARGIN) == MARGIN


def test_the_default_client_renews_leases_of_half_a_minute() -> None:
    assert (
        shortest_lease_seconds(
            DynamoDBStore("records", client=session().client("dynamodb", config=client_config())), MARGIN
        )
        <= 30
    )
