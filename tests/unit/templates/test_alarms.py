"""When each alarm of watch.yaml fires, minute by minute, by the model of CloudWatch. The local cloud fires none.

tests/e2e/test_alarms.py makes the deployed ones fire by what they are for.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.cloudwatch import CloudWatch
from tests.template import text_of, watched_by
from tests.unit.templates.variants import alarms, properties

if TYPE_CHECKING:
    from collections.abc import Sequence

VISIBLE, IN_FLIGHT = "ApproximateNumberOfMessagesVisible", "ApproximateNumberOfMessagesNotVisible"
QUEUE, DEAD = ("AWS/SQS", "QueueName", "Queue.QueueName"), ("AWS/SQS", "QueueName", "DeadLetterQueue.QueueName")
FUNCTION, OURS = ("AWS/Lambda", "FunctionName", "Consumer"), ("IdempotentReceiver", "service", "AWS::StackName")
AGE = "ApproximateAgeOfOldestMessage"
WEEK_SECONDS = 7 * 86_400


def deployed() -> dict[str, Any]:
    """The template's alarms, with a name in place of each reference."""
    found = json.loads(json.dumps(alarms("standard")))
    for metric in (metric for each in found.values() for metric in watched_by(each)):
        for dimension in metric["Dimensions"]:
            dimension["Value"] = text_of(dimension["Value"])
    return dict(found)


def rung(*series: tuple[tuple[str, str, str], str, Sequence[float | None]]) -> dict[str, list[int]]:
    """The minutes in which alarms fire, by name. Of each metric there is one value a minute, or none."""
    cloudwatch = CloudWatch(deployed())
    for minute in range(max(len(values) for _, _, values in series)):
        for (space, dimension, of), name, values in series:
            value = values[minute] if minute < len(values) else None
            if value is not None:
                cloudwatch.put((space, name, dimension, of), value)
        cloudwatch.end_minute()
    found: dict[str, list[int]] = {}
    for name, minute in cloudwatch.rung:
        found.setdefault(name, []).append(minute)
    return found


def test_what_is_sound_rings_nothing() -> None:
    idle: list[float | None] = [0, 0, None, 0]
    counts = [(OURS, name, idle) for name in ("ClaimFailures", "LostClaims", "Unsettled")]
    of_lambda = [(FUNCTION, name, idle) for name in ("Throttles", "Errors")]
    queues = [(queue, name, [0, 0, 0]) for queue in (QUEUE, DEAD) for name in (VISIBLE, IN_FLIGHT, AGE)]
    assert rung(*counts, *of_lambda, *queues) == {}


@pytest.mark.parametrize(
    ("of", "metric", "alarm"),
    [
        (OURS, "ClaimFailures", "ClaimFailuresAlarm"),
        (OURS, "LostClaims", "LostClaimsAlarm"),
        (OURS, "Unsettled", "UnsettledAlarm"),
        (FUNCTION, "Errors", "ErrorsAlarm"),
    ],
)
def test_what_is_never_expected_rings_at_once_and_stays_red_for_a_while(
    of: tuple[str, str, str], metric: str, alarm: str
) -> None:
    """The next message may come a quarter of an hour later: two in five minutes fire it once."""
    assert rung((of, metric, [0, 1])) == {alarm: [2]}
    assert rung((of, metric, [1, None, None, 1])) == {alarm: [1]}
    assert rung((of, metric, [1, *[None] * 15, 1])) == {alarm: [1, 17]}


def test_throttles_ring_in_their_second_minute_of_five() -> None:
    """Lambda tries a single throttled batch again by itself."""
    assert rung((FUNCTION, "Throttles", [9, 0, 0, 0, 0, 0, 9])) == {}
    assert rung((FUNCTION, "Throttles", [1, 0, 0, 0, 1])) == {"ThrottlesAlarm": [5]}


def test_the_oldest_message_rings_in_the_second_minute_in_which_it_is_too_old() -> None:
    assert rung((QUEUE, AGE, [900, 900, 900])) == {}
    assert rung((QUEUE, AGE, [840, 901, 10])) == {}
    assert rung((QUEUE, AGE, [840, 901, 961])) == {"OldestMessageAlarm": [3]}


def test_a_dead_letter_rings_at_once_and_each_that_follows_while_it_lies_there() -> None:
    assert rung((DEAD, VISIBLE, [0, 1, 1]), (DEAD, IN_FLIGHT, [0, 0, 0])) == {
        "DeadLetterAlarm": [2],
        "DeadLetterArrivalAlarm": [2],
    }
    more = ((DEAD, VISIBLE, [1, 1, 1, 2, 2]), (DEAD, IN_FLIGHT, [0, 0, 0, 0, 0]))
    assert rung(*more) == {"DeadLetterAlarm": [1], "DeadLetterArrivalAlarm": [4]}


def test_reading_dead_letters_rings_nothing() -> None:
    """They are in flight for a while, and come back."""
    read = ((DEAD, VISIBLE, [3, 0, 0, 3, 3]), (DEAD, IN_FLIGHT, [0, 3, 3, 0, 0]))
    assert rung(*read) == {"DeadLetterAlarm": [1]}


def test_dead_letters_ring_before_sqs_deletes_them() -> None:
    """It counts from the first send: of the days in the dead-letter queue, some may be spent in the first one."""
    assert rung((DEAD, AGE, [WEEK_SECONDS])) == {}
    assert rung((DEAD, AGE, [WEEK_SECONDS + 1])) == {"DeadLetterAgeAlarm": [1]}
    kept, spent = (properties("standard", name)["MessageRetentionPeriod"] for name in ("DeadLetterQueue", "Queue"))
    assert deployed()["DeadLetterAgeAlarm"]["Threshold"] <= kept - spent - 86_400
