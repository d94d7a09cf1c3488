"""What one work's failure, silence or end does to its neighbours in the batch: no more than the table says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from idempotent_receiver.batch.exchanges import MOST_PEEKED
from idempotent_receiver.batch.items import Event, Stage
from idempotent_receiver.batch.progress import Order
from idempotent_receiver.batch.receiver import MOST_SENDING, DeadLetters, receive
from idempotent_receiver.batch.settings import Settings
from idempotent_receiver.clock import Deadline
from idempotent_receiver.errors import Failure, PermanentError
from idempotent_receiver.handler.outcome import ClaimFailed, Completed, Failed, NotStarted
from idempotent_receiver.protocol.exchange import CLAIM_RETRIES
from idempotent_receiver.protocol.store import READS_A_CALL, NotApplied, Unknown
from tests.counting_store import CountingStore
from tests.manual_clock import ManualClock
from tests.unit.batch.at_once import AtOnce
from tests.unit.batch.test_host import Host, Impatient, waiting
from tests.unit.batch.test_progress import progress_of
from tests.unit.batch.test_receiver import process, raises, work

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from idempotent_receiver.handler.attempt import Attempt
    from idempotent_receiver.protocol.record import Record
    from idempotent_receiver.protocol.store import ActionFailed, Commit, Written

KEYLESS = Failure(type="UnusableKey", text="no key", permanent=True, started=False)


class LastFirst(AtOnce):
    """An executor that reports one job at a step, the last that was started."""

    def step(self, timeout_seconds: float | None) -> None:
        then, result = self.finished.pop()
        then(result)


class Uncancelled(LastFirst):
    """An executor whose coroutines are never cancelled."""

    def cancel_async(self) -> None:
        raise AssertionError("what runs has time left")


class Refusing(CountingStore):
    """A store that refuses to read, for good."""

    def read(self, ids: Sequence[str]) -> Sequence[Record | Unknown | None]:
        return [Unknown("denied", retry=False)] * len(ids)


def test_a_group_that_stops_while_a_message_of_it_is_read_does_not_claim_it() -> None:
    """What is known to stand behind a failure is claimed for nothing, and released again."""
    store = CountingStore()
    works = [work("a", claim=KEYLESS, group="g"), work("b", group="g", seen_before=True)]
    settings = Settings(store=store, executor=LastFirst(), send_dead_letter=lambda place, failure: False)

    outcomes = receive(works, settings, Deadline.after(ManualClock(), 30_000)).outcomes

    assert [type(outcome) for outcome in outcomes] == [Failed, NotStarted]
    assert store.asked == ["read"]


def test_one_read_that_is_refused_for_good_says_nothing_of_what_has_not_been_asked() -> None:
    """It may be a fault of its own key."""
    outcomes = process(work("a", seen_before=True), work("b"), work("c"), store=Refusing()).outcomes

    assert [type(outcome) for outcome in outcomes] == [ClaimFailed, Completed, Completed]


def test_where_the_store_is_away_nothing_that_was_to_be_read_asks_it_in_turn() -> None:
    store = CountingStore()
    store.down = {"read"}

    outcomes = process(*[work(str(number), seen_before=True) for number in range(2_000)], store=store).outcomes

    assert {type(outcome) for outcome in outcomes} == {ClaimFailed}
    assert len(store.asked) <= (1 + CLAIM_RETRIES) * MOST_PEEKED / READS_A_CALL


def test_a_dead_letter_that_is_not_confirmed_keeps_none_of_the_others_from_being_sent() -> None:
    sent: list[int] = []
    works = [work(str(number), raises(PermanentError("closed"))) for number in range(3 * MOST_SENDING)]

    outcomes = process(*works, send_dead_letter=lambda place, failure: sent.append(place) is not None).outcomes

    assert sent == list(range(len(works)))
    assert [(type(one), one.recorded) for one in outcomes if isinstance(one, Failed)] == [(Failed, True)] * len(works)


def test_dead_letters_that_come_too_late_are_all_failures_that_are_recorded() -> None:
    clock = ManualClock()

    def fails(attempt: object) -> None:
        clock.seconds = 29.6
        raise PermanentError("closed")

    works = [work("a", raises(PermanentError("closed"))), work("b", raises(PermanentError("closed"))), work("c", fails)]
    outcomes = process(*works, clock=clock, send_dead_letter=lambda place, failure: True).outcomes

    assert [one.recorded for one in outcomes if isinstance(one, Failed)] == [True] * 3


def test_dead_letters_that_are_too_late_are_all_told_at_once() -> None:
    progress, items = progress_of(work("a"), work("b"))
    dead_letters = DeadLetters(AtOnce(), lambda place, failure: True, progress)
    for item in items:
        item.stage, item.failure = Stage.SENDING, KEYLESS
        dead_letters.add(item)

    dead_letters.send(late=True)

    assert [item.stage for item in items] == [Stage.ENDED] * 2


def test_what_its_loop_has_just_taken_lets_the_others_go() -> None:
    class Late(Impatient):
        def releases(self, index: int) -> bool:
            if index == 0:
                runs.ready.popleft()
            return True

    host = Late()
    runs, taken, clock = waiting(host, running=2)
    (other,) = Order([work("b")]).items
    other.index, other.stage = 1, Stage.READY
    runs.ready.append(other)
    clock.seconds += 9

    runs.release_waiting(host, runs._deadline.moment())

    assert (taken.stage, other.stage) == (Stage.READY, Stage.RELEASING)


class Contended(CountingStore):
    """A store in which what is first committed always meets another transaction."""

    def commit(self, commits: Sequence[Commit]) -> Sequence[Written | ActionFailed]:
        if "first" not in str(commits[0].change.new.data):
            return super().commit(commits)
        return [NotApplied("another transaction was in the way", retry=True, contended=True)]


def test_a_commit_that_loses_to_other_transactions_stops_nothing_else() -> None:
    """What waits for another payload of its key begins all the same: the store does answer."""

    def posts(result: str) -> Callable[[Attempt], object]:
        def handle(attempt: Attempt) -> str:
            attempt.transaction.put(TableName="T", Item={"id": result})
            return result

        return handle

    works = [work("k", posts("first")), work("k", posts("second"), fingerprint="another")]
    outcomes = process(*works, store=Contended(), unclaimed=True).outcomes

    assert [type(outcome) for outcome in outcomes] == [Failed, Completed]


@pytest.mark.parametrize("away", [False, True], ids=["drains", "away"])
def test_a_batch_that_starts_nothing_more_cancels_nothing_that_runs(away: bool) -> None:
    """Because its host drains, or its store is away."""
    host, store = Host(), CountingStore()
    host.drains, store.down = not away, {"commit", "insert", "replace"}
    settings = Settings(store=store, executor=Uncancelled(), host=None if away else host, unclaimed=away)

    works = [work("a", seen_before=True), work("b")]
    processed = receive(works, settings, Deadline.after(ManualClock(), 30_000))

    assert len(processed.outcomes) == 2


def test_all_that_waited_are_told_at_once_though_nobody_waits_for_what_ended_first() -> None:
    progress, (alone, first, second) = progress_of(work("a"), work("k"), work("k"))
    for item in (alone, first):
        progress.happens(item, Event.ASKS)
        progress.happens(item, Event.ANSWERED, ClaimFailed("down"))

    progress.pass_on()

    assert second.outcome == ClaimFailed("down")


def test_another_payload_of_a_key_is_not_asked_about_once_the_batch_has_stopped() -> None:
    progress, (first, second) = progress_of(work("k"), work("k", fingerprint="another"))
    progress.happens(first, Event.ASKS)
    progress.stopped = True

    progress.happens(first, Event.ANSWERED, ClaimFailed("down"))
    progress.pass_on()

    assert second.outcome == NotStarted()
