"""What must hold of a deployed consumer for the promises to hold: pure checks of its facts, each with its remedy.

A check that lacks a fact says so (`Unchecked`); only what is known to be wrong is a finding.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from idempotent_receiver.operations.doctor.asking import Answer, Problem, Unavailable, known
from idempotent_receiver.operations.doctor.facts import DAY_SECONDS, Facts, Function
from idempotent_receiver.operations.doctor.outside_lambda import ON_A_TASK

MIN_RECEIVES = 5
INVOCATIONS_A_POLLER = 10
"""A poller of provisioned mode runs up to ten invocations at once (Lambda Developer Guide, scaling for SQS)."""
DEFAULT_POLLERS = 200
"""The most pollers of provisioned mode, unless it says otherwise."""
NAMESPACE = "IdempotentReceiver"


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


def partial_responses(facts: Facts) -> Iterator[Problem]:
    """Lambda reads which messages failed, instead of deleting them all."""
    for function in known(facts.functions):
        if "ReportBatchItemFailures" not in (known(function.mapping).get("FunctionResponseTypes") or []):
            yield (
                f"Lambda takes every answer of {_name_of(function)} for a success, and deletes what failed",
                "set FunctionResponseTypes: [ReportBatchItemFailures] on the event source mapping",
            )


def visibility(facts: Facts) -> Iterator[Problem]:
    """A throttled batch does not come back while Lambda still tries it (AWS: six time-outs, plus the window)."""
    for function in known(facts.functions):
        timeout = int(known(function.configuration)["Timeout"])
        window = int(known(function.mapping).get("MaximumBatchingWindowInSeconds") or 0)
        hidden, least = int(known(facts.queue)["VisibilityTimeout"]), 6 * timeout + window
        if hidden < least:
            yield (
                f"a message is hidden for {hidden} s, but six time-outs of {timeout} s + {window} s of window: {least}",
                f"set the queue's VisibilityTimeout to {least} or more",
            )


def receives(facts: Facts) -> Iterator[Problem]:
    """Throttled deliveries count as receives, so a message needs a few, and a place to go when they are used up."""
    policy = json.loads(known(facts.queue).get("RedrivePolicy") or "{}")
    if "deadLetterTargetArn" not in policy:
        yield (
            "the queue has no dead-letter queue, so a message that keeps failing is deleted when its retention ends",
            f"give the queue a RedrivePolicy with maxReceiveCount: {MIN_RECEIVES} or more",
        )
    elif int(policy["maxReceiveCount"]) < MIN_RECEIVES:
        yield (
            f"maxReceiveCount is {policy['maxReceiveCount']}, and throttled deliveries count as receives",
            f"set maxReceiveCount in the queue's RedrivePolicy to {MIN_RECEIVES} or more",
        )


def ttl(facts: Facts) -> Iterator[Problem]:
    """Expired records are deleted."""
    found = known(facts.time_to_live)
    if found.get("TimeToLiveStatus") not in ("ENABLED", "ENABLING") or found.get("AttributeName") != "expiration":
        yield (
            "records are never deleted, and the table grows for ever",
            "enable time to live on the table's attribute `expiration`",
        )


def record_retention(facts: Facts) -> Iterator[Problem]:
    """A record outlasts its message: a message that outlives its record runs again."""
    dead = known(facts.dead_letter_queue)
    seconds = _retention(known(facts.queue)) + (0 if dead is None else _retention(dead))
    kept = known(facts.retention_seconds)
    if kept <= seconds:
        yield (
            f"records last {_days(kept)}, but a message can last {_days(seconds)} in its queues: it would run again",
            f"keep records for longer than {_days(seconds)}: RecordRetentionDays, or retention_seconds in code",
        )


def dead_letter_retention(facts: Facts) -> Iterator[Problem]:
    """A message keeps its age when SQS moves it, so the dead-letter queue must keep it longer."""
    dead, queue = known(facts.dead_letter_queue), known(facts.queue)
    if dead is not None and _retention(dead) <= _retention(queue):
        yield (
            f"dead letters are deleted after {_days(_retention(dead))}, and the queue keeps {_days(_retention(queue))}",
            "set the dead-letter queue's MessageRetentionPeriod to 1209600 (14 days)",
        )


def filter_criteria(facts: Facts) -> Iterator[Problem]:
    """No message is discarded unseen."""
    for function in known(facts.functions):
        if (known(function.mapping).get("FilterCriteria") or {}).get("Filters"):
            yield (
                "the event source mapping has a filter: messages that do not match are deleted, and nobody sees them",
                "remove FilterCriteria, and let the function return for messages that it does not want",
            )


def global_table(facts: Facts) -> Iterator[Problem]:
    """A claim is decided in one place."""
    table = known(facts.table)
    regions = [each["RegionName"] for each in table.get("Replicas") or []]
    if regions and table.get("MultiRegionConsistency") != "STRONG":
        yield (
            f"the table is replicated asynchronously ({', '.join(regions)}): two regions can both claim one key",
            "keep records in a table of one region",
        )
    elif regions and without_claims(facts):
        yield (
            "the table has multi-Region strong consistency, where AWS takes no transactions: no message can complete",
            "keep records in a table of one region",
        )


def concurrency(facts: Facts) -> Iterator[Problem]:
    """Lambda takes no more batches than may run: those that it turns away use up receives."""
    for function in known(facts.functions):
        yield from _concurrency(known(function.mapping), function.reserved)


def _concurrency(mapping: Answer, may_run: int | Unavailable | None) -> Iterator[Problem]:
    maximum = (mapping.get("ScalingConfig") or {}).get("MaximumConcurrency")
    pollers = mapping.get("ProvisionedPollerConfig")
    if pollers and maximum is not None:
        yield (
            f"provisioned mode is on beside MaximumConcurrency {maximum}, and Lambda obeys only one of them",
            "remove ProvisionedPollerConfig, or MaximumConcurrency",
        )
        return
    most = None if maximum is None else int(maximum)
    if pollers:
        most = INVOCATIONS_A_POLLER * int(pollers.get("MaximumPollers") or DEFAULT_POLLERS)
    reserved = known(may_run)
    if most is not None and reserved is not None and most > reserved:
        setting = (
            f"MaximumPollers to {reserved // INVOCATIONS_A_POLLER}" if pollers else f"MaximumConcurrency to {reserved}"
        )
        yield (
            f"Lambda takes up to {most} batches at a time, but only {reserved} may run: the others are throttled",
            f"set {setting} or less, or reserve more concurrency",
        )


def managed_instances(facts: Facts) -> Iterator[Problem]:
    """A process is dead when its lease is over."""
    for function in known(facts.functions):
        if known(function.instances) is not None:
            yield (
                "on Lambda Managed Instances a time-out ends nothing: the run goes on beside the one that takes over",
                "set end_process_at_deadline=True in code, as src/app/consumer.py does, or use Lambda's own instances",
            )


def permissions(facts: Facts) -> Iterator[Problem]:
    """The role of the function or the task may do what the consumer needs."""
    denied = known(facts.denied)
    if denied:
        whose, policy = (
            ("task", "TaskRole in container.yaml")
            if outside_lambda(facts)
            else ("function", "ConsumerRole in consumer.yaml")
        )
        yield (
            f"the {whose}'s role may not {', '.join(denied)}",
            f"allow it, as the policy of {policy} does, and check that nothing denies it",
        )


def encryption(facts: Facts) -> Iterator[Problem]:
    """Messages are encrypted at rest (tables and logs always are), and the table's key can be used."""
    for name, queue in (("queue", known(facts.queue)), ("dead-letter queue", known(facts.dead_letter_queue))):
        if queue is not None and queue.get("SqsManagedSseEnabled") != "true" and not queue.get("KmsMasterKeyId"):
            yield f"the {name} is not encrypted at rest", "set SqsManagedSseEnabled: true on it, or a KmsMasterKeyId"
    if (known(facts.table).get("SSEDescription") or {}).get("InaccessibleEncryptionDateTime"):
        yield "the table's key cannot be used", "enable the KMS key, and let DynamoDB use it, within seven days"


def alarms(facts: Facts) -> Iterator[Problem]:
    """Somebody is alerted."""
    needed, there = _needed_alarms(facts), known(facts.alarms)
    missing = [what for what, watched in needed.items() if not any(_watches(alarm, *watched) for alarm in there)]
    if missing:
        template = "consumer.yaml and container.yaml" if outside_lambda(facts) else "consumer.yaml"
        yield f"there is no alarm on {', '.join(missing)}", f"add those of {template}"


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
    *ON_A_TASK,
)
"""All checks, in the order of docs/operating.md."""


def outside_lambda(facts: Facts) -> bool:
    """Whether the consumer is workers of `receiver work`."""
    return facts.container is not None


def checks_of(facts: Facts) -> list[Callable[[Facts], Iterator[Problem]]]:
    """Those that apply to this consumer."""
    return [check for check in CHECKS if outside_lambda(facts) or check not in ON_A_TASK]


def without_claims(facts: Facts) -> bool:
    """Whether the consumer commits without claims, as the variable says that the example and new projects read."""
    return known(facts.settings).get("EFFECTS") == "transaction"


def notes(facts: Facts) -> Iterator[str]:
    """What somebody chose, which is no finding: a promise that a consumer gives up, an alarm that is off, a pause."""
    dead, alarms = facts.dead_letter_queue, facts.alarms
    if not (dead is None or isinstance(dead, Unavailable) or isinstance(alarms, Unavailable)):
        counted = [each for alarm in alarms for each in alarm.get("Metrics") or [] if _counts(each, dead)]
        if not counted:
            yield (
                f"no alarm watches for arrivals in {_name(dead)}: dead letters that stay hide new ones. "
                "Deploy with DeadLetterArrivals=true, where metric math is known: local clouds refuse it."
            )
    queue = "its queue" if isinstance(facts.queue, Unavailable) else f"queue {_name(facts.queue)}"
    if not isinstance(facts.settings, Unavailable) and without_claims(facts):
        yield (
            f"EFFECTS is transaction: messages of {queue} are not claimed, which gives up promise 2 of "
            "docs/guarantees.md, one at a time. Two workers may run one message, and one of them commits. What the "
            "handler does outside its Transaction may happen several times at once."
        )
    functions = [] if isinstance(facts.functions, Unavailable) else facts.functions
    states = [each.mapping.get("State") for each in functions if not isinstance(each.mapping, Unavailable)]
    if {"Disabled", "Disabling"} & {*states}:
        yield f"the event source mapping is disabled: Lambda does not read {queue} until `receiver resume`"


def name_of(check: Callable[[Facts], Iterator[Problem]]) -> str:
    """A check's name, as people and scripts read it."""
    return check.__name__.replace("_", "-")


def examine(facts: Facts) -> list[Finding | Unchecked]:
    """What all checks find; empty if all is in order."""
    return [each for check in checks_of(facts) for each in _examined(check, facts)]


def _examined(check: Callable[[Facts], Iterator[Problem]], facts: Facts) -> Iterator[Finding | Unchecked]:
    try:
        for text, remedy in check(facts):
            yield Finding(name_of(check), text, remedy)
    except Unavailable as missing:
        yield Unchecked(name_of(check), str(missing))


Watched = tuple[str | None, str, str, str | None]
"""Namespace, metric, dimension and value. What is not known is not compared."""


def _needed_alarms(facts: Facts) -> dict[str, Watched]:
    queue, dead = known(facts.queue), known(facts.dead_letter_queue)
    service = ours = None
    if not isinstance(facts.settings, Unavailable):
        service = facts.settings.get("POWERTOOLS_SERVICE_NAME")
        ours = facts.settings.get("POWERTOOLS_METRICS_NAMESPACE", NAMESPACE)
    alarms: dict[str, Watched] = {
        "the age of the oldest message": ("AWS/SQS", "ApproximateAgeOfOldestMessage", "QueueName", _name(queue)),
        "lost claims": (ours, "LostClaims", "service", service),
        "unsettled messages": (ours, "Unsettled", "service", service),
        "failed claims": (ours, "ClaimFailures", "service", service),
    }
    if not outside_lambda(facts):
        (function,) = known(facts.functions)
        name = known(function.configuration)["FunctionName"]
        alarms["throttles"] = ("AWS/Lambda", "Throttles", "FunctionName", name)
        alarms["errors and time-outs"] = ("AWS/Lambda", "Errors", "FunctionName", name)
    if dead is not None:
        alarms["dead letters"] = _messages_in(dead)
        alarms["dead letters that grow old"] = ("AWS/SQS", "ApproximateAgeOfOldestMessage", "QueueName", _name(dead))
    return alarms


def _watches(alarm: Answer, namespace: str | None, metric: str, dimension: str, value: str | None) -> bool:
    dimensions = {each["Name"]: each["Value"] for each in alarm.get("Dimensions") or []}
    same = alarm.get("MetricName") == metric and alarm.get("Namespace") == (namespace or alarm.get("Namespace"))
    return same and (value is None or dimensions.get(dimension) == value)


def _name_of(function: Function) -> str:
    return str(known(function.mapping)["FunctionArn"].split(":")[6])


def _messages_in(queue: Answer) -> Watched:
    return "AWS/SQS", "ApproximateNumberOfMessagesVisible", "QueueName", _name(queue)


def _counts(query: Answer, queue: Answer) -> bool:
    """Whether a metric of an alarm's expression is how many messages a queue holds."""
    return _watches((query.get("MetricStat") or {}).get("Metric") or {}, *_messages_in(queue))


def _name(queue: Answer) -> str:
    return str(queue["QueueArn"]).rpartition(":")[2]


def _retention(queue: Answer) -> int:
    return int(queue["MessageRetentionPeriod"])


def _days(seconds: int) -> str:
    days = f"{seconds / DAY_SECONDS:g}"
    return f"{days} day" if days == "1" else f"{days} days"
