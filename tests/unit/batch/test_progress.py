"""How far the items of a batch are: what ends when the time is over, and who goes on when another has ended."""

from __future__ import annotations

import pytest

from idempotent_receiver.batch.items import Do, Event, Item, Work
from idempotent_receiver.batch.progress import Order, Progress
from idempotent_receiver.errors import Failure
from idempotent_receiver.handler.outcome import ClaimFailed, Failed, NotStarted, Outcome, SettleFailed
from idempotent_receiver.protocol.transitions import Claim

FAILURE = Failure(type="ValueError", at="here")


def progress_of(*works: Work) -> tuple[Progress, list[Item]]:
    """A batch in which every action is only noted by the stage that it leaves an item in."""
    progress = Progress(Order(works))
    progress.actions = dict.fromkeys(Do, lambda item: None) | {Do.END: progress.end}
    return progress, progress.order.items


def work(key: str = "k", group: str | None = None) -> Work:
    claim = Claim(id=key, fingerprint="f", owner="me", lease_until_ms=33_000)
    return Work(key=key, claim=claim, handle=lambda attempt: None, group=group)


@pytest.mark.parametrize(
    ("events", "kind"),
    [
        ([Event.ASKS], ClaimFailed),
        ([Event.ASKS, Event.CLAIMED, Event.STOPPED], NotStarted),
        ([Event.ASKS, Event.CLAIMED, Event.TURN, Event.STOPPED], NotStarted),
        ([Event.ASKS, Event.CLAIMED, Event.TURN, Event.RETURNED], SettleFailed),
        ([Event.ASKS, Event.CLAIMED, Event.TURN, Event.RAISED], Failed),
        ([Event.ASKS, Event.FAILED_FOR_GOOD], Failed),
    ],
)
def test_what_is_under_way_when_the_time_is_over_is_nobodys_success(events: list[Event], kind: type[Outcome]) -> None:
    """It ends as if the store had not answered; what was being released has not started all the same."""
    progress, (item,) = progress_of(work())
    item.failure = FAILURE
    for event in events:
        progress.happens(item, event)

    (outcome,) = progress.outcomes()

    assert type(outcome) is kind
    assert progress.unresolved == 0


def test_a_claim_whose_release_was_not_answered_is_not_told_as_released() -> None:
    progress, (item,) = progress_of(work())
    for event in (Event.ASKS, Event.CLAIMED, Event.TURN, Event.STOPPED):
        progress.happens(item, event)

    assert progress.outcomes() == [NotStarted(released=False)]


def test_behind_a_failure_nothing_of_its_group_may_start() -> None:
    progress, (first, second, other) = progress_of(work("1", "g"), work("2", "g"), work("3", "h"))
    for event in (Event.ASKS, Event.CLAIMED, Event.TURN, Event.RAISED):
        progress.happens(first, event)
        assert progress.may_start(second)
    progress.happens(first, Event.SETTLED, Failed(FAILURE))

    assert [progress.may_start(each) for each in (second, other)] == [False, True]


@pytest.mark.parametrize("event", [Event.SETTLED, Event.NOT_COMMITTED, Event.FAILED_FOR_GOOD])
def test_an_answer_that_comes_after_the_batch_has_answered_is_nobodys(event: Event) -> None:
    """While visibilities are changed, the executor still delivers what was under way."""
    progress, (item,) = progress_of(work())
    for before in (Event.ASKS, Event.CLAIMED, Event.TURN, Event.RETURNED):
        progress.happens(item, before)
    answered = progress.outcomes()

    progress.happens(item, event, NotStarted())

    assert progress.outcomes() == answered
