"""Any outcome, any receive count: a visibility is within SQS's limits, and the same for all of a group."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from idempotent_receiver.errors import Failure
from idempotent_receiver.handler import outcome as ended
from idempotent_receiver.sqs.message import Message
from idempotent_receiver.sqs.visibility import LONGEST_SECONDS, Backoff, in_groups, visibility_seconds
from tests.fuzz.hostile import NOW_MS
from tests.manual_clock import ManualClock
from tests.simulation.world import FIFO, QUEUE

SQS_LONGEST_SECONDS = 12 * 60 * 60

ends = st.integers() | st.integers(-(10**129), 10**129) | st.integers(-(10**8), 10**8).map(lambda off: NOW_MS + off)
outcomes: st.SearchStrategy[ended.Outcome] = st.one_of(
    ends.map(ended.HeldElsewhere),
    st.just(ended.NotStarted()),
    st.just(ended.Failed(Failure(type="E"))),
    st.sampled_from([ended.ClaimFailed("w"), ended.SettleFailed("w"), ended.Unreadable("w"), ended.ClaimLost(None)]),
)
positive = st.floats(min_value=1e-3, max_value=1e300)
backoffs = st.builds(Backoff, first_seconds=positive, longest_seconds=positive)
fractions = st.floats(0, 1, exclude_max=True)


def message(id: str = "1", **given: Any) -> Message:
    return Message(id=id, body="", raw_body="", **given)


@given(outcomes, backoffs, st.integers(0, 10**18).map(str), fractions)
def test_a_visibility_is_within_sqss_limits(
    outcome: ended.Outcome, backoff: Backoff, receives: str, fraction: float
) -> None:
    """It is a whole number of seconds within twelve hours, less the time since the receive."""
    failed = message(attributes={"ApproximateReceiveCount": receives})

    seconds = visibility_seconds(failed, outcome, backoff, NOW_MS, ManualClock(fraction))

    assert type(seconds) is int
    assert 0 <= seconds <= LONGEST_SECONDS < SQS_LONGEST_SECONDS


@given(st.integers(-(10**6), 4 * 10**7), fractions)
def test_no_message_is_visible_before_the_lease_has_ended(left_ms: int, fraction: float) -> None:
    """Unless SQS cannot wait that long: an earlier delivery would only use up a receive."""
    seconds = visibility_seconds(
        message(), ended.HeldElsewhere(NOW_MS + left_ms), Backoff(), NOW_MS, ManualClock(fraction)
    )

    assert seconds * 1000 >= min(left_ms, LONGEST_SECONDS * 1000)


@given(st.integers(1, 60), fractions)
def test_a_backoff_waits_below_its_bound(receives: int, fraction: float) -> None:
    """At least a second, and at most the first bound doubled at each receive, or the maximum."""
    bound = min(900.0, 4.0 * 2 ** (receives - 1))

    assert 1 <= Backoff().seconds(receives, ManualClock(fraction)) <= max(1, bound)


@given(st.lists(st.tuples(st.sampled_from(["g", "h", None]), st.sampled_from([QUEUE, FIFO]), st.integers(0, 9))))
def test_a_group_has_one_visibility(drawn: list[tuple[str | None, str, int]]) -> None:
    """Each message of a FIFO group has the visibility of its first one; all others keep their own."""
    failed = [
        message(str(place), queue_arn=queue, attributes={} if group is None else {"MessageGroupId": group})
        for place, (group, queue, _) in enumerate(drawn)
    ]
    seconds = {one.id: time for one, (_, _, time) in zip(failed, drawn, strict=True)}

    together = in_groups(failed, seconds)

    assert together.keys() == seconds.keys()
    for one in failed:
        mates = [other for other in failed if other.fifo and one.fifo and other.group_id == one.group_id is not None]
        assert together[one.id] == seconds[mates[0].id if mates else one.id]
