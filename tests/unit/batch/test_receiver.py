"""Claim, handle and settle without a queue: the order of outcomes, and the counts that they do not show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from idempotent_receiver import MemoryStore
from idempotent_receiver.batch.calling import Callings
from idempotent_receiver.batch.exchanges import MOST_CLAIMED_AHEAD
from idempotent_receiver.batch.items import TABLE, Do, Work
from idempotent_receiver.batch.progress import Order, Progress
from idempotent_receiver.batch.receiver import Batch, Processed, receive
from idempotent_receiver.batch.runs import Runs
from idempotent_receiver.batch.settings import Settings
from idempotent_receiver.batch.spent import Spent
from idempotent_receiver.batch.turns import Turns
from idempotent_receiver.clock import Deadline
from idempotent_receiver.errors import Failure, PermanentError
from idempotent_receiver.handler.attempt import Attempt
from idempotent_receiver.handler.outcome import (
    SUCCEEDED,
    ClaimFailed,
    Completed,
    DeadLettered,
    Duplicate,
    Failed,
    HeldElsewhere,
    NotStarted,
    Unreadable,
)
from idempotent_receiver.protocol.record import Record, from_attributes
from idempotent_receiver.protocol.store import NotApplied, Written
from idempotent_receiver.protocol.transitions import Claim
from tests.counting_store import CountingStore
from tests.manual_clock import START_MS, ManualClock
from tests.unit.batch.at_once import AtOnce


def work(id: str, handle: Callable[[Attempt], object] = lambda attempt: None, **changes: Any) -> Work:
    claim = Claim(id=id, fingerprint=changes.pop("fingerprint", "f"), owner="me", lease_until_ms=START_MS + 33_000)
    return Work(key=id, claim=changes.pop("claim", claim), handle=handle, **changes)


def process(
    *works: Work, store: MemoryStore | None = None, clock: ManualClock | None = None, **options: Any
) -> Processed:
    settings = Settings(store=MemoryStore() if store is None else store, executor=AtOnce(), **options)
    return receive(works, settings, Deadline.after(ManualClock() if clock is None else clock, 30_000))


def raises(error: Exception) -> Callable[[Attempt], object]:
    def handle(attempt: Attempt) -> None:
        raise error

    return handle


def test_an_error_that_a_module_raises_again_and_again_keeps_nothing_of_earlier_messages() -> None:
    """Python would add to its traceback at each raise, and keep all those frames with their bodies. The place that is
    recorded would be that of the first raise.
    """
    overdrawn = PermanentError("cannot pay")

    def pay(attempt: Attempt) -> None:
        raise overdrawn

    def ship(attempt: Attempt) -> None:
        raise overdrawn

    outcomes = process(work("1", pay), work("2", ship), work("3", pay)).outcomes

    places = [outcome.failure.at for outcome in outcomes if isinstance(outcome, Failed)]
    assert [str(place).split(".")[-1].partition(":")[0] for place in places] == ["pay", "ship", "pay"]
    assert overdrawn.__traceback__ is None


def test_what_was_received_before_is_read_and_taken_over_as_it_was_read() -> None:
    store = CountingStore(namespace=None)
    store.items["k"] = {"id": "k", "status": "FAILED", "version": "x"}

    assert process(work("k", seen_before=True), store=store).claimed == 1
    assert store.asked == ["read", "replace", "replace"]


class OneRefused(MemoryStore):
    """A store that refuses the record of one id, and always will."""

    def insert(self, records: Sequence[Record]) -> Sequence[Written]:
        refused = NotApplied("its key is too long", retry=False)
        answers = iter(super().insert([record for record in records if record.id != "7"]))
        return [refused if record.id == "7" else next(answers) for record in records]


def test_each_message_ends_by_its_own_answer_alone() -> None:
    """Where one claim of a request is refused, those that wait for the next request are asked about all the same."""
    ran: list[str] = []
    ids = [str(number) for number in range(MOST_CLAIMED_AHEAD + 1)]

    outcomes = process(*(work(id, lambda attempt: ran.append(attempt.id)) for id in ids), store=OneRefused()).outcomes

    assert outcomes[7] == ClaimFailed("its key is too long")
    others = [id for id in ids if id != "7"]
    assert [outcome.record.id for outcome in outcomes if isinstance(outcome, Completed)] == others
    assert sorted(ran) == sorted(others)


def test_whatever_the_table_of_items_asks_for_is_done_by_somebody() -> None:
    batch = Batch([], Settings(store=MemoryStore(), executor=AtOnce()), Deadline.after(ManualClock(), 30_000))

    assert {do for _, do in TABLE.values()} - {Do.NOTHING} == batch._progress.actions.keys()


def test_once_stopped_no_run_starts() -> None:
    deadline = Deadline.after(ManualClock(), 30_000)
    settings, progress = Settings(store=MemoryStore(), executor=AtOnce()), Progress(Order([]))
    calls = Callings(settings, progress, deadline, Spent(), lambda item, outbox: None)
    runs = Runs(settings, progress, deadline, Turns(deadline), calls)

    assert runs.may_start(deadline.moment())
    runs.stop()
    assert not runs.may_start(deadline.moment())


def test_an_empty_batch_has_no_outcomes() -> None:
    """Without waiting for anything."""
    assert process() == Processed([], 0, 0, 0, Spent())


def test_outcomes_come_in_the_order_of_their_works() -> None:
    """Whatever the order in which they ended."""
    store = MemoryStore()
    store.items["busy"] = {"id": "busy", "status": "INPROGRESS", "in_progress_expiration": START_MS + 5, "version": "x"}
    store.items["odd"] = {"id": "odd", "status": "ODD", "version": "x"}
    store.items["done"] = {"id": "done", "status": "COMPLETED", "version": "x"}

    processed = process(
        work("busy"),
        work("new"),
        work("done", seen_before=True),
        work("bad", raises(ValueError())),
        work("odd"),
        work("none", claim=Failure(type="UnusableKey", permanent=True, started=False)),
        work("mismatch", fingerprint="g"),
        store=store,
    )

    kinds = [HeldElsewhere, Completed, Duplicate, Failed, Unreadable, Failed, Completed]
    assert [type(outcome) for outcome in processed.outcomes] == kinds
    assert (processed.claimed, processed.taken_over, processed.released) == (3, 0, 0)


def test_take_overs_and_releases_are_counted() -> None:
    """The outcomes do not show them."""
    store, clock = MemoryStore(), ManualClock()
    orphan = {"status": "INPROGRESS", "in_progress_expiration": 1, "version": "x", "owner": "them", "attempts": 1}
    store.items["orphan"] = {"id": "orphan", **orphan}

    def long(attempt: Attempt) -> None:
        clock.seconds += 20

    processed = process(work("orphan", long), work("left"), work("left too"), store=store, clock=clock)

    assert [type(outcome) for outcome in processed.outcomes] == [Completed, NotStarted, NotStarted]
    assert (processed.claimed, processed.taken_over, processed.released) == (3, 1, 2)


@pytest.mark.parametrize("confirmed", [True, False])
def test_what_fails_for_good_is_sent_and_the_outcome_says_whether_that_is_confirmed(confirmed: bool) -> None:
    """By the index of its work."""
    sent = []

    def send(index: int, failure: Failure) -> bool:
        sent.append((index, failure.reason))
        return confirmed

    processed = process(work("a"), work("b", raises(PermanentError("closed"))), send_dead_letter=send)

    assert sent == [(1, "closed")]
    assert type(processed.outcomes[1]) is (DeadLettered if confirmed else Failed)
    assert [isinstance(outcome, SUCCEEDED) for outcome in processed.outcomes] == [True, confirmed]


@pytest.mark.parametrize("over", [0, 1])
def test_a_result_that_would_make_its_record_too_large_is_replaced_by_a_marker(over: int) -> None:
    """To the byte; a record within 1 KB costs one write unit."""
    store = MemoryStore()

    def filling(attempt: Attempt) -> str:
        left = 1024 - from_attributes(store.items["k"]).size_bytes - len('data""')
        return "x" * (left + over)

    process(work("k", filling), store=store)

    assert ("dropped" in store.items["k"]["data"]) is bool(over)
    assert store.items["k"]["status"] == "COMPLETED"


def test_the_attempt_that_a_handler_sees_is_its_claims() -> None:
    """It continues the count in the record."""
    store = MemoryStore(namespace="n")
    store.items["k"] = {"id": "k", "status": "FAILED", "version": "x", "attempts": 4, "validation": "f"}
    seen = []

    process(work("k", seen.append), store=store)

    assert [(attempt.id, attempt.key, attempt.attempt) for attempt in seen] == [("k", "k", 5)]


def test_ten_thousand_works_that_cannot_be_claimed_are_answered_by_two_requests() -> None:
    """Requests for the others would only delay the answer."""

    class Down(MemoryStore):
        calls = 0

        def insert(self, records: Any) -> Any:
            self.calls += 1
            raise ConnectionError

        read = insert

    store, clock = Down(), ManualClock()

    processed = process(*[work(str(number)) for number in range(10_000)], store=store, clock=clock)

    assert {type(outcome) for outcome in processed.outcomes} == {ClaimFailed}
    assert store.calls < 20
    assert clock.seconds < 3
