"""When a failed message becomes visible again."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from harness.cloud import ROOT
from idempotent_receiver.clock import Deadline
from idempotent_receiver.errors import Failure
from idempotent_receiver.handler.outcome import (
    ClaimFailed,
    ClaimLost,
    Failed,
    HeldElsewhere,
    NotSent,
    NotStarted,
    Outcome,
    SettleFailed,
    Unreadable,
)
from idempotent_receiver.sqs.message import Message
from idempotent_receiver.sqs.visibility import (
    LONGEST_VISIBILITY_SECONDS,
    Backoff,
    in_groups,
    send_back,
    visibility_seconds,
)
from tests.manual_clock import START_MS, ManualClock
from tests.unit.batch.at_once import AtOnce


def message(
    id: str = "1", receives: int = 1, group: str | None = None, queue: str = "arn:aws:sqs:r:1:q.fifo"
) -> Message:
    attributes = {"ApproximateReceiveCount": str(receives)} | ({} if group is None else {"MessageGroupId": group})
    return Message(id=id, body="", raw_body="", attributes=attributes, queue_arn=queue)


@pytest.mark.parametrize(
    ("receives", "bound"), [(0, 2), (1, 4), (2, 8), (5, 64), (8, 512), (9, 900), (31, 900), (10**6, 900)]
)
def test_a_backoff_doubles_with_each_receive_up_to_its_longest(receives: int, bound: int) -> None:
    """With full jitter below that bound, and at least a second."""
    assert Backoff().seconds(receives, ManualClock(fraction=0.999_999)) == bound
    assert Backoff().seconds(receives, ManualClock(fraction=0.0)) == 1
    assert Backoff().seconds(receives, ManualClock(fraction=0.5)) == max(1, bound // 2)


def test_no_backoff_exceeds_sqss_limit() -> None:
    """The limit is twelve hours from the receive; a batching window and an invocation may already have passed."""
    endless = Backoff(first_seconds=1e9, longest_seconds=1e12)

    assert endless.seconds(100, ManualClock(fraction=0.999_999)) == LONGEST_VISIBILITY_SECONDS
    assert LONGEST_VISIBILITY_SECONDS + 20 * 60 <= 12 * 60 * 60


@pytest.mark.parametrize("name", ["first_seconds", "longest_seconds"])
@pytest.mark.parametrize("wrong", ["4", -1, None, True, float("nan")])
def test_a_backoff_of_no_time_is_refused_by_its_name(name: str, wrong: Any) -> None:
    """Where it is made: in the first batch that has a failure it would make each of its messages fail."""
    with pytest.raises(ValueError, match=f"{name} must be a finite, non-negative number of seconds"):
        Backoff(**{name: wrong})


LONGEST_MS = LONGEST_VISIBILITY_SECONDS * 1000 - 500
"""What is left of a lease when a wait for it, with half a second of jitter, is as long as SQS allows."""

FOR_GOOD = Failed(Failure(type="PermanentError", permanent=True))


@pytest.mark.parametrize(
    ("outcome", "left_to_sqs"),
    [
        *(
            (outcome, left)
            for outcome in (Failed(Failure(type="Boom")), Unreadable("?"), ClaimLost(None))
            for left in (True, False)
        ),
        # Its dead letter could not be sent; the next receive sends it again.
        (FOR_GOOD, False),
    ],
)
def test_failures_of_every_kind_back_off(outcome: Outcome, left_to_sqs: bool) -> None:
    clock = ManualClock(fraction=0.999_999)

    assert visibility_seconds(message(receives=3), outcome, Backoff(), START_MS, clock, left_to_sqs=left_to_sqs) == 16


@pytest.mark.parametrize(
    ("fraction", "waits"), [(0.0, [1, 1, 1, 1]), (0.34, [2, 3, 6, 306]), (0.999_999, [4, 8, 16, 900])]
)
def test_what_failed_for_good_goes_through_its_first_five_receives_at_once(fraction: float, waits: list[int]) -> None:
    """So SQS soon moves it to the dead-letter queue. If it has no redrive policy, or one with more receives, it then
    backs off: nothing loops at full speed until it expires.
    """
    clock = ManualClock(fraction=fraction)
    seconds = [
        visibility_seconds(message(receives=n), FOR_GOOD, Backoff(), START_MS, clock, left_to_sqs=True)
        for n in (*range(1, 6), 6, 7, 8, 14)
    ]

    assert seconds == [int(3 * fraction)] * 5 + waits


@pytest.mark.parametrize(
    "outcome", [SettleFailed("?"), ClaimFailed("?"), NotSent("?")], ids=lambda outcome: type(outcome).__name__
)
def test_while_the_store_is_unavailable_four_waits_outlast_a_quarter_of_an_hour(outcome: Outcome) -> None:
    """Even with the shortest jitter; the first wait is still short, in case the store is back soon."""

    def waits(fraction: float) -> list[int]:
        clock = ManualClock(fraction=fraction)
        counts = range(1, 5)
        return [visibility_seconds(message(receives=n), outcome, Backoff(), START_MS, clock) for n in counts]

    assert waits(0.0) == [3, 27, 243, 675]
    assert waits(0.999_999) == [4, 36, 324, 900]
    assert sum(waits(0.0)) > 15 * 60


@pytest.mark.parametrize(("left_ms", "fraction", "seconds"), [(10_000, 0.0, 10), (10_001, 0.0, 11), (10_000, 0.9, 11)])
def test_what_is_in_progress_waits_for_the_leases_end_and_a_jitter(left_ms: int, fraction: float, seconds: int) -> None:
    """Never less."""
    clock = ManualClock(fraction=fraction)

    assert visibility_seconds(message(), HeldElsewhere(START_MS + left_ms), Backoff(), START_MS, clock) == seconds


@pytest.mark.parametrize(
    ("until", "seconds"),
    [
        (START_MS - 60_000, 0),
        (START_MS + 10**7, 10_001),
        (START_MS + LONGEST_MS, LONGEST_VISIBILITY_SECONDS),
        (START_MS + LONGEST_MS + 1, 4),
        (START_MS + 10**9, 4),
    ],
)
def test_a_lease_that_no_worker_has_is_not_waited_for(until: int, seconds: int) -> None:
    """One that has ended, a worker's, and one of days: an operator's, who may be done at any time."""
    assert visibility_seconds(message(), HeldElsewhere(until), Backoff(), START_MS, ManualClock()) == seconds


@pytest.mark.parametrize(("fraction", "seconds"), [(0.0, 0), (0.34, 1), (0.999, 2)])
def test_what_was_not_started_comes_again_at_once_with_jitter(fraction: float, seconds: int) -> None:
    """However often it has been received."""
    clock = ManualClock(fraction=fraction)

    assert visibility_seconds(message(receives=9), NotStarted(), Backoff(), START_MS, clock) == seconds


def test_a_group_has_one_visibility_its_first_failures() -> None:
    """On a FIFO queue; on a standard queue a group orders nothing."""
    failed = [message("a", group="g"), message("b", group="h"), message("c", group="g")]
    wanted = {"a": 7, "b": 1, "c": 900}

    assert in_groups(failed, wanted) == {"a": 7, "b": 1, "c": 7}
    standard = [message(one.id, group="g", queue="arn:aws:sqs:r:1:q") for one in failed]
    assert in_groups(standard, wanted) == wanted


@pytest.mark.parametrize("refused", [False, True])
def test_all_visibilities_are_changed_ten_in_a_request(refused: bool) -> None:
    """Of those that can be, group by group; what SQS refuses is left to the queue's own visibility timeout."""
    asked: list[Any] = []

    def change(**request: Any) -> None:
        asked.append(request)
        if refused:
            raise ConnectionError

    arn = "arn:aws:sqs:us-east-1:123456789012:orders.fifo"
    sqs: Any = SimpleNamespace(
        change_message_visibility_batch=change, meta=SimpleNamespace(endpoint_url="https://sqs.example.com")
    )
    messages = [replace(message(str(n), 2, "first" if n < 3 else None, arn), receipt_handle=f"r{n}") for n in range(12)]
    messages += [replace(messages[0], id="none", receipt_handle=""), replace(messages[0], id="nowhere", queue_arn="")]
    failed: list[tuple[Message, Outcome]] = [(each, FOR_GOOD) for each in messages]
    failed[0] = (messages[0], Failed(Failure(type="Boom")))

    deadline = Deadline.after(ManualClock(fraction=0.999_999), 30_000)
    send_back(sqs, Backoff(), failed, AtOnce(), deadline, left_to_sqs=True)

    waits = [8, 8, 8] + [2] * 9
    entries = [{"ReceiptHandle": f"r{n}", "VisibilityTimeout": wait} for n, wait in enumerate(waits)]
    assert asked == [
        {
            "QueueUrl": "https://sqs.example.com/123456789012/orders.fifo",
            "Entries": [{"Id": str(place), **entry} for place, entry in enumerate(chunk)],
        }
        for chunk in (entries[:10], entries[10:])
    ]


def test_the_page_says_how_long_attempts_last_on_average() -> None:
    """To two figures; from two minutes on in minutes."""
    section = (ROOT / "docs/consumer.md").read_text().partition("\n## Back-off\n")[2].partition("\n## ")[0]
    attempts, times = (re.findall(r"(\d[^|]*?) \|", line) for line in re.findall(r"(?m)^\| [at].*$", section))
    lasts = [Backoff().average_seconds(int(each)) for each in attempts]
    assert times == [f"{each / 60:.0f} min" if each >= 120 else f"{each:.0f} s" for each in lasts]


def test_a_backoff_waits_as_long_as_its_average_says() -> None:
    clock = ManualClock()
    waited = [sum(Backoff().seconds(each, clock) for each in range(1, 10)) for _ in range(400)]
    assert sum(waited) / 400 == pytest.approx(Backoff().average_seconds(10), rel=0.1)
