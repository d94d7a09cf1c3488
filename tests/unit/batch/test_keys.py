"""Keys that are made as jobs: in any order, a few at once, each for its own message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from idempotent_receiver.batch.items import Work
from idempotent_receiver.batch.keys import KEYS_LINGER_SECONDS, MOST_KEYING
from idempotent_receiver.batch.receiver import Processed, receive
from idempotent_receiver.batch.settings import Settings
from idempotent_receiver.clock import Deadline
from idempotent_receiver.errors import Failure
from idempotent_receiver.handler.attempt import Attempt
from idempotent_receiver.handler.outcome import Completed, Duplicate, Failed, HeldElsewhere, NotStarted, Outcome
from idempotent_receiver.protocol.transitions import Claim
from tests.counting_store import CountingStore
from tests.manual_clock import START_MS, ManualClock
from tests.unit.batch.at_once import AtOnce
from tests.unit.batch.test_host import Host

PAUSE = -1
"""Between two keys, time passes until what is keyed has been claimed."""

LATER = Failure(type="ClientError", started=False)


def claim_of(id: str, fingerprint: str = "f") -> Claim:
    return Claim(id=id, fingerprint=fingerprint, owner="me", lease_until_ms=START_MS + 33_000)


class Unhurried(AtOnce):
    """An executor that makes the keys at these places in this order, one a step, and none of the others; everything
    else runs at once. With nothing left to do, time passes.
    """

    def __init__(self, order: Sequence[int], clock: ManualClock, *, at_once: bool = False) -> None:
        super().__init__()
        self.order, self.clock, self.at_once = list(order), clock, at_once
        self.keys: dict[int, tuple[Callable[[], Any], Callable[[Any], None]]] = {}
        self.most = 0

    def start(self, job: Callable[[], Any], then: Callable[[Any], None]) -> None:
        if isinstance(job, partial) and job.func is make:
            self.keys[job.args[0]] = job, then
            self.most = max(self.most, len(self.keys))
        else:
            super().start(job, then)

    def step(self, timeout_seconds: float | None) -> None:
        if self.order and self.order[0] == PAUSE and not self.finished:
            self.order.pop(0)
            self.clock.seconds += KEYS_LINGER_SECONDS
            return
        while self.order and self.order[0] in self.keys and (self.at_once or not self.finished):
            job, then = self.keys.pop(self.order.pop(0))
            self.finished.append((then, job()))
        if self.finished:
            super().step(timeout_seconds)
        else:
            assert timeout_seconds is not None, "the receiver waits for ever"
            assert timeout_seconds > 0, "the receiver does not wait"
            self.clock.seconds += timeout_seconds


def make(place: int, key: str, claim: Claim | Failure) -> tuple[str, Claim | Failure]:
    return key, claim


class Batch:
    """Messages whose keys are made in an order, and what becomes of them."""

    def __init__(self, *keys: str | Failure, groups: str | None = None) -> None:
        self.clock, self.store, self.ran = ManualClock(), CountingStore(None), list[int]()
        self.raises: dict[int, Exception] = {}
        self.works = [
            Work(
                key="",
                claim=partial(make, place, str(key), key if isinstance(key, Failure) else claim_of(key)),
                handle=partial(self.run, place),
                group=None if groups is None else groups[place],
            )
            for place, key in enumerate(keys)
        ]

    def run(self, place: int, attempt: Attempt) -> None:
        self.ran.append(place)
        if place in self.raises:
            raise self.raises[place]

    def received(self, *order: int, at_once: bool = False, **options: Any) -> list[type[Outcome]]:
        self.executor = Unhurried(order, self.clock, at_once=at_once)
        settings = Settings(store=self.store, executor=self.executor, **options)
        self.processed: Processed = receive(self.works, settings, Deadline.after(self.clock, 30_000))
        return [type(outcome) for outcome in self.processed.outcomes]


def test_a_key_that_is_never_made_holds_up_no_other_message() -> None:
    """It has not started when the time is over, and nothing was claimed for it."""
    batch = Batch("a", "b", "c")
    assert batch.received(2, 1) == [NotStarted, Completed, Completed]
    assert sorted(batch.store.items) == ["b", "c"]
    assert batch.clock.seconds == pytest.approx(29, abs=0.01)


def test_only_a_few_keys_are_made_at_once() -> None:
    count = 3 * MOST_KEYING
    batch = Batch(*map(str, range(count)))
    assert batch.received(*range(count)) == [Completed] * count
    assert batch.executor.most == MOST_KEYING


def test_messages_whose_keys_are_made_at_the_same_time_share_their_requests() -> None:
    batch = Batch(*map(str, range(MOST_KEYING)))
    batch.received(*range(MOST_KEYING))
    assert batch.store.asked == ["insert", "replace"]


def test_a_message_with_a_key_waits_only_a_little_for_one_without() -> None:
    batch = Batch("a", "b")
    started: list[float] = []
    batch.works[0] = batch.works[0]._replace(handle=lambda attempt: started.append(batch.clock.seconds))
    batch.received(0)
    assert started == [pytest.approx(KEYS_LINGER_SECONDS)]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
@pytest.mark.parametrize("groups", [None, "ggg"])
@pytest.mark.parametrize("at_once", [True, False])
def test_one_key_runs_once_a_batch_in_whatever_order_its_messages_are_keyed(
    order: tuple[int, ...], groups: str | None, at_once: bool
) -> None:
    batch = Batch("k", "k", "k", groups=groups)
    ended = batch.received(*order, at_once=at_once)
    assert sorted(ended, key=str) == sorted([Completed, Duplicate, Duplicate], key=str)
    assert len(batch.ran) == 1
    assert groups is None or ended[0] is Completed


@pytest.mark.parametrize("fails", [True, False])
def test_a_message_that_is_keyed_after_its_like_has_ended_is_decided_by_the_record(fails: bool) -> None:
    """One that failed runs again, as at its next delivery."""
    batch = Batch("k", "k", "k")
    if fails:
        batch.raises[0] = ConnectionError()
    ended = [Failed, Completed, Duplicate] if fails else [Completed, Duplicate, Duplicate]
    assert batch.received(0, PAUSE, 1, PAUSE, 2) == ended
    assert batch.ran == ([0, 1] if fails else [0])
    assert batch.store.asked.count("insert") == 1

    batch = Batch("k", "k")
    batch.works[1] = batch.works[1]._replace(claim=partial(make, 1, "k", claim_of("k", "another")))
    assert batch.received(0, PAUSE, 1) == [Completed, Failed]
    assert batch.ran == [0]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_a_groups_messages_run_in_their_order_in_whatever_order_they_are_keyed(order: tuple[int, ...]) -> None:
    batch = Batch("a", "b", "c", groups="ggg")
    assert batch.received(*order) == [Completed] * 3
    assert batch.ran == [0, 1, 2]


def test_a_key_that_could_not_be_made_now_holds_its_group_and_no_other() -> None:
    batch = Batch("a", LATER, "c", "d", groups="gggh")
    assert batch.received(3, 2, 1, 0) == [Completed, Failed, NotStarted, Completed]
    assert sorted(batch.ran) == [0, 3]
    assert {id for id, record in batch.store.items.items() if record["status"] == "COMPLETED"} == {"a", "d"}


def test_a_key_that_is_never_made_holds_its_group_and_no_other() -> None:
    batch = Batch("a", "b", "c", groups="ggh")
    assert batch.received(1, 2) == [NotStarted, NotStarted, Completed]


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1), (1, 3, 0, 2), (2, 3, 0, 1)])
def test_groups_that_share_their_keys_crosswise_do_not_wait_for_each_other_for_ever(order: tuple[int, ...]) -> None:
    """A key belongs to one group; where it does not, a message may have to come again."""
    batch = Batch("k", "l", "l", "k", groups="gghh")
    ended = batch.received(*order)
    assert set(ended) <= {Completed, Duplicate, HeldElsewhere, NotStarted}
    assert batch.clock.seconds < 1
    assert all(record["status"] == "COMPLETED" for record in batch.store.items.values())
    assert len(batch.ran) == len(set(batch.store.items))


def test_a_host_is_told_of_a_key_before_it_is_claimed() -> None:
    class Noting(Host):
        def keyed(self, known: Sequence[tuple[int, str]]) -> None:
            self.told.append(("keyed", *known))

    host = Noting()
    batch = Batch("a", LATER)
    batch.works.append(Work(key="c", claim=claim_of("c"), handle=batch.works[0].handle))
    batch.received(1, 0, host=host)
    told = [each for each in host.told if each[0] in ("keyed", "claiming")]
    assert told == [("keyed", (2, "c")), ("keyed", (0, "a")), ("claiming", "a", "c")]


def test_what_was_received_before_is_read_once_its_key_is_made() -> None:
    batch = Batch("a")
    batch.works = [batch.works[0]._replace(seen_before=True)]
    assert batch.received(0) == [Completed]
    assert batch.store.asked == ["read", "insert", "replace"]


def test_a_key_that_is_made_when_the_answer_has_been_given_changes_nothing() -> None:
    batch = Batch("a")
    assert batch.received() == [NotStarted]
    _, then = batch.executor.keys.pop(0)
    then(("a", claim_of("a")))
    assert batch.store.items == {}
