"""What one work's failure, silence or end does to its neighbours in the batch: no more than the table says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from idempotent_receiver.batch.items import Event
from idempotent_receiver.batch.receiver import receive
from idempotent_receiver.batch.settings import Settings
from idempotent_receiver.clock import Deadline
from idempotent_receiver.errors import Failure
from idempotent_receiver.handler.outcome import ClaimFailed, Completed, Failed, NotStarted
from idempotent_receiver.protocol.store import Unknown
from tests.counting_store import CountingStore
from tests.manual_clock import ManualClock
from tests.unit.batch.at_once import AtOnce
from tests.unit.batch.test_progress import progress_of
from tests.unit.batch.test_receiver import process, work

if TYPE_CHECKING:
    from collections.abc import Sequence

    from idempotent_receiver.protocol.record import Record

KEYLESS = Failure(type="UnusableKey", text="no key", permanent=True, started=False)


class LastFirst(AtOnce):
    """An executor that reports one job at a step, the last that was started."""

    def step(self, timeout_seconds: float | None) -> None:
        then, result = self.finished.pop()
        then(result)


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


def test_another_payload_of_a_key_is_not_asked_about_once_the_batch_has_stopped() -> None:
    progress, (first, second) = progress_of(work("k"), work("k", fingerprint="another"))
    progress.happens(first, Event.ASKS)
    progress.stopped = True

    progress.happens(first, Event.ANSWERED, ClaimFailed("down"))
    progress.pass_on()

    assert second.outcome == NotStarted()
