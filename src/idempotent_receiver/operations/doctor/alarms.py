"""Whether an alarm on each problem can fire, and tells somebody: pure checks, as in `checks.py`."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from idempotent_receiver.operations.doctor.asking import Answer, NotAnswered, Problem, known, name_of_queue
from idempotent_receiver.operations.doctor.bounds import dead_letter_retention, described_limits
from idempotent_receiver.operations.doctor.facts import Facts
from idempotent_receiver.operations.doctor.queues import queue_retention
from idempotent_receiver.sqs.visibility import Backoff

NAMESPACE = "IdempotentReceiver"
OLDEST = "the age of the oldest message"
LARGEST_RECEIVE_COUNT = 1000
"""SQS's largest maxReceiveCount."""
MOST_IN_FLIGHT = 120_000
"""SQS lets a queue's consumers hold as many messages at once, so no more can fail at once."""


class Watched(NamedTuple):
    """A metric that needs an alarm, and a value that it does not exceed. Unknown parts are None and not compared."""

    namespace: str | None
    metric: str
    dimension: str
    value: str | None
    most: float = MOST_IN_FLIGHT


def alarms(facts: Facts) -> Iterator[Problem]:
    """Alarms must exist, and must be able to fire and to tell somebody."""
    there = known(facts.alarms)
    watching = {what: (watched, _on(watched, there)) for what, watched in needed_alarms(facts).items()}
    if missing := [what for what, (_, found) in watching.items() if not found]:
        template = "watch.yaml" if facts.container is None else "watch.yaml and container.yaml"
        yield f"there is no alarm on {', '.join(missing)}", f"add the alarms in {template}"
    notified = any(_notifies(each) for _, found in watching.values() for each in found)
    for what, (watched, found) in watching.items():
        problems = [_problem(each, watched.most, notified=notified) for each in found]
        if problems and None not in problems:
            text, remedy = next(filter(None, problems))
            yield f"the alarm on {what} {text}", remedy


def unnotified(facts: Facts) -> bool:
    """Whether no alarm tells anybody, as where no topic was given."""
    there = known(facts.alarms)
    found = [each for watched in needed_alarms(facts).values() for each in _on(watched, there)]
    return bool(found) and not any(map(_notifies, found))


def _problem(alarm: Answer, most: float, *, notified: bool) -> Problem | None:
    """What keeps an alarm from telling anybody. Without an action it is one only where other alarms have some."""
    name, threshold = alarm.get("AlarmName", ""), alarm.get("Threshold")
    operator = str(alarm.get("ComparisonOperator", ""))
    if not alarm.get("ActionsEnabled", True):
        return "has its actions off", f"run `aws cloudwatch enable-alarm-actions --alarm-names {name}`"
    if notified and not _notifies(alarm):
        return "has no action", "give it the AlarmActions of the others"
    if operator.startswith("LessThan"):
        return "fires below its threshold, not above", "set ComparisonOperator: GreaterThanThreshold"
    if threshold is not None and (threshold > most or (threshold == most and operator == "GreaterThanThreshold")):
        return (
            f"fires above {threshold:g}, which is never reached: {most:g} is the most",
            "set the Threshold that watch.yaml has",
        )
    return None


def _notifies(alarm: Answer) -> bool:
    return bool(alarm.get("AlarmActions"))


def needed_alarms(facts: Facts) -> Mapping[str, Watched]:
    """The metrics to watch, by what they mean."""
    queue, dead = known(facts.queue), known(facts.dead_letter_queue)
    service = ours = None
    if not isinstance(facts.settings, NotAnswered):
        service = facts.settings.get("POWERTOOLS_SERVICE_NAME")
        ours = facts.settings.get("POWERTOOLS_METRICS_NAMESPACE", NAMESPACE)
    # Too short a retention is a finding of its own.
    oldest = math.inf if any(queue_retention(facts)) else int(queue["MessageRetentionPeriod"])
    needed = {
        OLDEST: _age(queue, oldest),
        "lost claims": Watched(ours, "LostClaims", "service", service),
        "unsettled messages": Watched(ours, "Unsettled", "service", service),
        "failed claims": Watched(ours, "ClaimFailures", "service", service),
        "messages that keep failing": Watched(ours, "Failed", "service", service),
    }
    if facts.container is None:
        (function,) = known(facts.functions)
        name = known(function.configuration)["FunctionName"]
        needed["throttles"] = Watched("AWS/Lambda", "Throttles", "FunctionName", name)
        needed["errors and timeouts"] = Watched("AWS/Lambda", "Errors", "FunctionName", name)
    if dead is not None:
        needed["dead letters"] = messages_in(dead)
        oldest = math.inf if any(dead_letter_retention(facts)) else int(dead["MessageRetentionPeriod"])
        needed["dead letters that grow old"] = _age(dead, oldest)
    return needed


def early_alarm(facts: Facts) -> Iterator[str]:
    """On a FIFO queue, an alarm on the age should outlast a failing message's attempts. A note: it may be meant.

    On a standard queue, SQS leaves messages out of this age that it has delivered three times.
    """
    queue, attempts = known(facts.queue), described_limits(facts).max_attempts
    if queue.get("FifoQueue") != "true" or attempts is None:
        return
    lasts = round(Backoff().average_seconds(min(attempts, LARGEST_RECEIVE_COUNT)))
    for alarm in _on(needed_alarms(facts)[OLDEST], known(facts.alarms)):
        if (threshold := alarm.get("Threshold", lasts)) < lasts:
            yield (
                f"the alarm on {OLDEST} fires above {threshold:g} s, but {attempts} attempts of a failing message last "
                f"{lasts} s on average: set OldestMessageAgeSeconds to {2 * lasts} or more"
            )


def watches(alarm: Answer, watched: Watched) -> bool:
    """Whether an alarm, or a metric of its expression, is on this metric."""
    dimensions = {each["Name"]: each["Value"] for each in alarm.get("Dimensions") or []}
    namespace = watched.namespace or alarm.get("Namespace")
    same = alarm.get("MetricName") == watched.metric and alarm.get("Namespace") == namespace
    return same and (watched.value is None or dimensions.get(watched.dimension) == watched.value)


def messages_in(queue: Answer) -> Watched:
    """The metric of the messages that wait in a queue."""
    return Watched("AWS/SQS", "ApproximateNumberOfMessagesVisible", "QueueName", name_of_queue(queue))


def _age(queue: Answer, most: float) -> Watched:
    return Watched("AWS/SQS", "ApproximateAgeOfOldestMessage", "QueueName", name_of_queue(queue), most)


def _on(watched: Watched, alarms: Iterable[Answer]) -> list[Answer]:
    return [each for each in alarms if watches(each, watched)]
