"""A deployed consumer against what the promises need: pure checks over what AWS says of it, each with its remedy.

A check that lacks a fact says so (`Unchecked`); only what is known to be wrong is a finding. What AWS says is gathered
in `inspection.py`.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

Fact = TypeVar("Fact")
Answer = Mapping[str, Any]
"""What an AWS API answered, under its names."""

LEAST_RECEIVES = 5
INVOCATIONS_A_POLLER = 10
"""A poller of provisioned mode runs up to ten invocations at once (Lambda Developer Guide, scaling for SQS)."""
MOST_POLLERS = 200
"""Where provisioned mode does not say."""
NAMESPACE = "IdempotentReceiver"
DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class Unknown:
    """A fact that could not be had, and why."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What AWS says of a consumer. `dead_letter_queue` is None where there is none, `reserved` where nothing is, and
    `instances` where Lambda's own are used.
    """

    function: Answer | Unknown
    instances: Answer | Unknown | None
    reserved: int | Unknown | None
    mapping: Answer | Unknown
    queue: Answer | Unknown
    dead_letter_queue: Answer | Unknown | None
    table: Answer | Unknown
    time_to_live: Answer | Unknown
    denied: Sequence[str] | Unknown
    alarms: Sequence[Answer] | Unknown
    retention_seconds: int | Unknown


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong, and what to do about it."""

    text: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem, under the name of the check that found it."""

    check: str
    text: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Unchecked:
    """A check that lacked a fact."""

    check: str
    why: str


class _NotKnownError(Exception):
    """A check has come upon a fact that could not be had."""


def _known(fact: Fact | Unknown) -> Fact:
    if isinstance(fact, Unknown):
        raise _NotKnownError(fact.why)
    return fact


def partial_responses(facts: Facts) -> Iterator[Problem]:
    """Lambda reads which messages failed, instead of deleting them all."""
    if "ReportBatchItemFailures" not in (_known(facts.mapping).get("FunctionResponseTypes") or []):
        yield Problem(
            "Lambda takes every answer for a success, and deletes the messages that failed",
            "set FunctionResponseTypes: [ReportBatchItemFailures] on the event source mapping",
        )


def visibility(facts: Facts) -> Iterator[Problem]:
    """A throttled batch does not come back while Lambda still tries it (AWS: six time-outs, plus the window)."""
    timeout = int(_known(facts.function)["Timeout"])
    window = int(_known(facts.mapping).get("MaximumBatchingWindowInSeconds") or 0)
    seconds, least = int(_known(facts.queue)["VisibilityTimeout"]), 6 * timeout + window
    if seconds < least:
        yield Problem(
            f"a message is hidden for {seconds} s, and six time-outs of {timeout} s + {window} s of window are {least}",
            f"set the queue's VisibilityTimeout to {least} or more",
        )


def receives(facts: Facts) -> Iterator[Problem]:
    """Throttled deliveries count as receives, so a message needs a few, and a place to go when they are used up."""
    policy = json.loads(_known(facts.queue).get("RedrivePolicy") or "{}")
    if "deadLetterTargetArn" not in policy:
        yield Problem(
            "the queue has no dead-letter queue, so a message that keeps failing is deleted when its retention ends",
            f"give the queue a RedrivePolicy with maxReceiveCount: {LEAST_RECEIVES} or more",
        )
    elif int(policy["maxReceiveCount"]) < LEAST_RECEIVES:
        yield Problem(
            f"maxReceiveCount is {policy['maxReceiveCount']}, and throttled deliveries count as receives",
            f"set maxReceiveCount in the queue's RedrivePolicy to {LEAST_RECEIVES} or more",
        )


def ttl(facts: Facts) -> Iterator[Problem]:
    """Records go when they have expired."""
    found = _known(facts.time_to_live)
    if found.get("TimeToLiveStatus") not in ("ENABLED", "ENABLING") or found.get("AttributeName") != "expiration":
        yield Problem(
            "records are never deleted, and the table grows for ever",
            "enable time to live on the table's attribute `expiration`",
        )


def record_retention(facts: Facts) -> Iterator[Problem]:
    """A record outlasts its message: one that outlives its record runs again."""
    letters = _known(facts.dead_letter_queue)
    seconds = _retention(_known(facts.queue)) + (0 if letters is None else _retention(letters))
    kept = _known(facts.retention_seconds)
    if kept <= seconds:
        yield Problem(
            f"records last {_days(kept)}, and a message can last {_days(seconds)} in its queues: it would run again",
            f"keep records for longer than {_days(seconds)}: RecordRetentionDays, or retention_seconds in code",
        )


def dead_letter_retention(facts: Facts) -> Iterator[Problem]:
    """A message keeps its age when SQS moves it, so that the dead-letter queue must keep it for longer."""
    letters = _known(facts.dead_letter_queue)
    if letters is not None and _retention(letters) <= _retention(_known(facts.queue)):
        yield Problem(
            f"dead letters are deleted after {_days(_retention(letters))}, counted from their first send, "
            f"and the queue itself keeps messages for {_days(_retention(_known(facts.queue)))}",
            "set the dead-letter queue's MessageRetentionPeriod to 1209600 (14 days)",
        )


def filter_criteria(facts: Facts) -> Iterator[Problem]:
    """Nothing is discarded unseen."""
    if (_known(facts.mapping).get("FilterCriteria") or {}).get("Filters"):
        yield Problem(
            "the event source mapping filters: SQS deletes the messages that do not match, and nobody sees them",
            "remove FilterCriteria, and let the function return for what it does not want",
        )


def global_table(facts: Facts) -> Iterator[Problem]:
    """A claim is decided in one place."""
    table = _known(facts.table)
    regions = [each.get("RegionName", "?") for each in table.get("Replicas") or []]
    if regions and table.get("MultiRegionConsistency") != "STRONG":
        yield Problem(
            f"the table is replicated asynchronously ({', '.join(regions)}): two regions can both claim one key",
            "keep records in a table of one region",
        )


def concurrency(facts: Facts) -> Iterator[Problem]:
    """No more batches are taken than may run: those that Lambda turns away use up receives."""
    mapping = _known(facts.mapping)
    maximum = (mapping.get("ScalingConfig") or {}).get("MaximumConcurrency")
    pollers = mapping.get("ProvisionedPollerConfig")
    if pollers and maximum is not None:
        yield Problem(
            f"provisioned mode is on beside MaximumConcurrency {maximum}, and Lambda heeds only one of them",
            "remove ProvisionedPollerConfig, or MaximumConcurrency",
        )
        return
    most = None if maximum is None else int(maximum)
    if pollers:
        most = INVOCATIONS_A_POLLER * int(pollers.get("MaximumPollers") or MOST_POLLERS)
    reserved = _known(facts.reserved)
    if most is not None and reserved is not None and most > reserved:
        setting = (
            f"MaximumPollers to {reserved // INVOCATIONS_A_POLLER}" if pollers else f"MaximumConcurrency to {reserved}"
        )
        yield Problem(
            f"up to {most} batches are taken at a time, and {reserved} may run: the others are throttled",
            f"set {setting} or less, or reserve more concurrency",
        )


def managed_instances(facts: Facts) -> Iterator[Problem]:
    """A process is dead when its lease is over."""
    if _known(facts.instances) is not None:
        yield Problem(
            "the function runs on Lambda Managed Instances, where a time-out ends nothing: what has timed out goes on "
            "beside the worker that takes its claim over",
            "see that the code says end_process_at_deadline=True, as src/app/consumer.py does there, or run it on "
            "Lambda's own instances",
        )


def permissions(facts: Facts) -> Iterator[Problem]:
    """The function's role may do what the consumer asks for."""
    denied = _known(facts.denied)
    if denied:
        yield Problem(
            f"the function's role may not {', '.join(denied)}",
            "allow it, as the policy of ConsumerRole in template.yaml does, and see that nothing denies it",
        )


def encryption(facts: Facts) -> Iterator[Problem]:
    """Messages are encrypted at rest (tables and logs always are), and the table's key can be used."""
    for name, queue in (("queue", _known(facts.queue)), ("dead-letter queue", _known(facts.dead_letter_queue))):
        if queue is not None and queue.get("SqsManagedSseEnabled") != "true" and not queue.get("KmsMasterKeyId"):
            yield Problem(
                f"the {name} is not encrypted at rest", "set SqsManagedSseEnabled: true on it, or a KmsMasterKeyId"
            )
    if (_known(facts.table).get("SSEDescription") or {}).get("InaccessibleEncryptionDateTime"):
        yield Problem(
            "the table's key cannot be used", "enable the KMS key, and let DynamoDB use it, within seven days"
        )


def alarms(facts: Facts) -> Iterator[Problem]:
    """Somebody is told."""
    missing = [name for name, watches in _wanted_alarms(facts).items() if not any(map(watches, _known(facts.alarms)))]
    if missing:
        yield Problem(f"there is no alarm on {', '.join(missing)}", "add those of template.yaml")


CHECKS: tuple[Callable[[Facts], Iterator[Problem]], ...] = (
    partial_responses,
    visibility,
    receives,
    ttl,
    record_retention,
    dead_letter_retention,
    filter_criteria,
    global_table,
    concurrency,
    managed_instances,
    permissions,
    encryption,
    alarms,
)
"""All checks, in the order of docs/operating.md."""


def name_of(check: Callable[[Facts], Iterator[Problem]]) -> str:
    """A check's name, as people and scripts read it."""
    return check.__name__.replace("_", "-")


def examine(facts: Facts) -> list[Finding | Unchecked]:
    """What all checks come to; empty if all is as it should be."""
    return [each for check in CHECKS for each in _examined(check, facts)]


def _examined(check: Callable[[Facts], Iterator[Problem]], facts: Facts) -> Iterator[Finding | Unchecked]:
    try:
        for problem in check(facts):
            yield Finding(name_of(check), problem.text, problem.remedy)
    except _NotKnownError as missing:
        yield Unchecked(name_of(check), str(missing))


def _wanted_alarms(facts: Facts) -> dict[str, Callable[[Answer], bool]]:
    """What must be watched, and which alarm does so. A name or namespace that is not known is not compared."""
    function, queue, letters = _known(facts.function), _known(facts.queue), _known(facts.dead_letter_queue)
    settings = (function.get("Environment") or {}).get("Variables") or {}
    ours = settings.get("POWERTOOLS_METRICS_NAMESPACE", NAMESPACE)
    service = settings.get("POWERTOOLS_SERVICE_NAME")
    wanted = {
        "the age of the oldest message": _watching(
            "AWS/SQS", "ApproximateAgeOfOldestMessage", "QueueName", _last(queue["QueueArn"])
        ),
        "throttles": _watching("AWS/Lambda", "Throttles", "FunctionName", function["FunctionName"]),
        "errors and time-outs": _watching("AWS/Lambda", "Errors", "FunctionName", function["FunctionName"]),
        "lost claims": _watching(ours, "LostClaims", "service", service),
        "unsettled messages": _watching(ours, "Unsettled", "service", service),
    }
    if letters is not None:
        wanted["dead letters"] = _watching(
            "AWS/SQS", "ApproximateNumberOfMessagesVisible", "QueueName", _last(letters["QueueArn"])
        )
    return wanted


def _watching(namespace: str, metric: str, dimension: str, value: str | None) -> Callable[[Answer], bool]:
    def watches(alarm: Answer) -> bool:
        dimensions = {each["Name"]: each["Value"] for each in alarm.get("Dimensions") or []}
        same = (alarm.get("Namespace"), alarm.get("MetricName")) == (namespace, metric)
        return same and (value is None or dimensions.get(dimension) == value)

    return watches


def _last(arn: str) -> str:
    return arn.rpartition(":")[2]


def _retention(queue: Answer) -> int:
    return int(queue["MessageRetentionPeriod"])


def _days(seconds: int) -> str:
    days = f"{seconds / DAY_SECONDS:g}"
    return f"{days} day" if days == "1" else f"{days} days"
