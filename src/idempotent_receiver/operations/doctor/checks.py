"""The conditions of a deployed consumer's guarantees: pure checks of its facts, each with a remedy.

A check that lacks a fact reports `Unchecked`; only a known problem is a finding.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from idempotent_receiver.operations.description import OUTPUT, differences
from idempotent_receiver.operations.doctor.asking import Answer, NotAnswered, Problem, known
from idempotent_receiver.operations.doctor.bounds import (
    account_limit,
    concurrency,
    dead_letter_retention,
    limits,
    name_of_queue,
    receives,
    record_retention,
    visibility,
)
from idempotent_receiver.operations.doctor.facts import Facts
from idempotent_receiver.operations.doctor.outside_lambda import ON_A_TASK
from idempotent_receiver.operations.doctor.roles import CHECK, ON_ANY_TABLE, READ, SEND_MESSAGE

NAMESPACE = "IdempotentReceiver"


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem, and the check that found it."""

    check: str
    text: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Unchecked:
    """A check that lacked a fact."""

    check: str
    why: str


def partial_responses(facts: Facts) -> Iterator[Problem]:
    """Lambda must read which messages in a batch failed; otherwise it deletes the whole batch."""
    for function in known(facts.functions):
        if "ReportBatchItemFailures" not in (known(function.mapping).get("FunctionResponseTypes") or []):
            yield (
                f"Lambda treats every response from {function.name} as success and deletes failed messages",
                "set FunctionResponseTypes: [ReportBatchItemFailures] on the event source mapping",
            )


def ttl(facts: Facts) -> Iterator[Problem]:
    """Expired records must be deleted."""
    found = known(facts.time_to_live)
    if found.get("TimeToLiveStatus") not in ("ENABLED", "ENABLING") or found.get("AttributeName") != "expiration":
        yield (
            "records are never deleted, so the table grows forever",
            "enable time to live on the table's attribute `expiration`",
        )


def filter_criteria(facts: Facts) -> Iterator[Problem]:
    """No message may be discarded before it reaches the function."""
    for function in known(facts.functions):
        if (known(function.mapping).get("FilterCriteria") or {}).get("Filters"):
            yield (
                "the event source mapping has a filter: messages that do not match are silently deleted",
                "remove FilterCriteria, and let the function return early for unwanted messages",
            )


def global_table(facts: Facts) -> Iterator[Problem]:
    """Regions must not decide claims independently."""
    table = known(facts.table)
    regions = [each["RegionName"] for each in table.get("Replicas") or []]
    if regions and table.get("MultiRegionConsistency") != "STRONG":
        yield (
            f"the table is replicated asynchronously ({', '.join(regions)}): two regions can both claim one key",
            "keep records in a single-region table",
        )
    elif regions and without_claims(facts):
        yield (
            "multi-Region strong consistency does not support transactions: no message can complete",
            "keep records in a single-region table",
        )


def managed_instances(facts: Facts) -> Iterator[Problem]:
    """A run must not outlive its lease."""
    for function in known(facts.functions):
        if known(function.instances) is not None:
            yield (
                "on Lambda Managed Instances, a timeout does not stop a run: it continues alongside its replacement",
                "set end_process_at_deadline=True in code, as src/app/consumer.py does, or avoid managed instances",
            )


def permissions(facts: Facts) -> Iterator[Problem]:
    """The role of the function or task must have the permissions that the consumer needs."""
    denied = known(facts.denied)
    missing = [each for each in denied if not isinstance(each, NotAnswered)]
    if missing:
        whose, policy = (
            ("task", "TaskRole in container.yaml")
            if outside_lambda(facts)
            else ("function", "ConsumerRole in template.yaml")
        )
        yield (
            f"the {whose}'s role lacks {'; '.join(missing)}",
            f"allow these actions, as the policy of {policy} does, and check that nothing denies them",
        )
    for each in denied:
        known(each)


def encryption(facts: Facts) -> Iterator[Problem]:
    """Messages must be encrypted at rest (tables and logs always are), and the keys must be usable."""
    for name, queue in (("queue", known(facts.queue)), ("dead-letter queue", known(facts.dead_letter_queue))):
        if queue is not None and queue.get("SqsManagedSseEnabled") != "true" and not queue.get("KmsMasterKeyId"):
            yield f"the {name} is not encrypted at rest", "set SqsManagedSseEnabled: true on it, or a KmsMasterKeyId"
    if (known(facts.table).get("SSEDescription") or {}).get("InaccessibleEncryptionDateTime"):
        yield "the table's key cannot be used", "enable the KMS key, and let DynamoDB use it, within seven days"
    for name, key in known(facts.keys).items():
        if (state := known(key).get("KeyState", "Enabled")) != "Enabled":
            yield (
                f"SQS cannot use the KMS key {name} of a queue: it is {state}",
                "enable it or cancel its deletion, or set another KmsMasterKeyId on the queue",
            )


def alarms(facts: Facts) -> Iterator[Problem]:
    """Alarms must exist."""
    needed, there = _needed_alarms(facts), known(facts.alarms)
    missing = [what for what, watched in needed.items() if not any(_watches(alarm, *watched) for alarm in there)]
    if missing:
        template = "watch.yaml and container.yaml" if outside_lambda(facts) else "watch.yaml"
        yield f"there is no alarm on {', '.join(missing)}", f"add the alarms in {template}"


def description(facts: Facts) -> Iterator[Problem]:
    """The stack's description of the consumer must match the code."""
    code, output = known(facts.given), known(facts.stated)
    if code is None or output is None:
        return
    for name, (ours, theirs) in differences(code, output).items():
        remedy = "deploy the current code, or update the output with `receiver describe`"
        if name in ("retention_days", "effects"):
            remedy += "; if the code reads this from a variable, set the same value here"
        yield f"{name} is {ours} in --consumer and {theirs} in the stack's output {OUTPUT}", remedy


CHECKS: tuple[Callable[[Facts], Iterator[Problem]], ...] = (
    partial_responses,
    visibility,
    limits,
    receives,
    ttl,
    record_retention,
    dead_letter_retention,
    filter_criteria,
    global_table,
    concurrency,
    account_limit,
    managed_instances,
    permissions,
    encryption,
    alarms,
    description,
    *ON_A_TASK,
)
"""All checks, in the order of docs/operating.md."""


def outside_lambda(facts: Facts) -> bool:
    """Whether the consumer consists of `receiver work` processes."""
    return facts.container is not None


def checks_of(facts: Facts) -> list[Callable[[Facts], Iterator[Problem]]]:
    """The checks that apply to this consumer."""
    compared = facts.given is not None and facts.stated is not None
    left_out = {*(() if compared else (description,)), *(() if outside_lambda(facts) else ON_A_TASK)}
    return [check for check in CHECKS if check not in left_out]


def without_claims(facts: Facts) -> bool:
    """Whether the consumer commits without claims, according to the EFFECTS variable that the example and new projects
    read.
    """
    return known(facts.settings).get("EFFECTS") == "transaction"


def notes(facts: Facts) -> Iterator[str]:
    """Remarks that are not findings: a guarantee given up, a missing alarm, a pause, permissions for a handler."""
    dead, alarms = facts.dead_letter_queue, facts.alarms
    if not (dead is None or isinstance(dead, NotAnswered) or isinstance(alarms, NotAnswered)):
        counted = [each for alarm in alarms for each in alarm.get("Metrics") or [] if _counts(each, dead)]
        if not counted:
            yield (
                f"no alarm watches for arrivals in {name_of_queue(dead)}: old dead letters hide new ones. "
                "Deploy with DeadLetterArrivals=true, where metric math is supported (not on local clouds)."
            )
    queue = "its queue" if isinstance(facts.queue, NotAnswered) else f"queue {name_of_queue(facts.queue)}"
    if not isinstance(facts.settings, NotAnswered) and without_claims(facts):
        yield (
            f"EFFECTS is transaction: messages in {queue} are not claimed, which gives up promise 2 of "
            "docs/guarantees.md (one at a time). Two workers may run the same message, but only one commits. Effects "
            "outside its Transaction may happen several times at once."
        )
    functions = [] if isinstance(facts.functions, NotAnswered) else facts.functions
    states = [each.mapping.get("State") for each in functions if not isinstance(each.mapping, NotAnswered)]
    if {"Disabled", "Disabling"} & {*states}:
        yield f"the event source mapping is disabled: Lambda does not read {queue} until `receiver resume`"
    denied = {} if isinstance(facts.denied_to_the_handler, NotAnswered) else facts.denied_to_the_handler
    for variable, (name, refused) in denied.items():
        table = f"the DynamoDB table {name} (variable {variable})"
        if SEND_MESSAGE in refused:
            yield f"the role lacks {SEND_MESSAGE} on {name} (variable {variable}): allow it if the handler sends there"
        elif len(refused) == len(ON_ANY_TABLE):
            yield f"the role has no permissions on {table}: if the handler uses it, allow its actions"
        elif CHECK in refused and READ not in refused:
            yield f"the role has {READ} on {table}, but not {CHECK}: allow both if `tx.get` reads there"


def check_name(check: Callable[[Facts], Iterator[Problem]]) -> str:
    """A check's name in output."""
    return check.__name__.replace("_", "-")


def examine(facts: Facts) -> list[Finding | Unchecked]:
    """The results of all checks that found a problem or lacked a fact."""
    return [each for check in checks_of(facts) for each in _examined(check, facts)]


def _examined(check: Callable[[Facts], Iterator[Problem]], facts: Facts) -> Iterator[Finding | Unchecked]:
    try:
        for text, remedy in check(facts):
            yield Finding(check_name(check), text, remedy)
    except NotAnswered as missing:
        yield Unchecked(check_name(check), str(missing))


Watched = tuple[str | None, str, str, str | None]
"""Namespace, metric, dimension and value. Unknown parts are not compared."""


def _needed_alarms(facts: Facts) -> dict[str, Watched]:
    queue, dead = known(facts.queue), known(facts.dead_letter_queue)
    service = ours = None
    if not isinstance(facts.settings, NotAnswered):
        service = facts.settings.get("POWERTOOLS_SERVICE_NAME")
        ours = facts.settings.get("POWERTOOLS_METRICS_NAMESPACE", NAMESPACE)
    alarms: dict[str, Watched] = {
        "the age of the oldest message": (
            "AWS/SQS",
            "ApproximateAgeOfOldestMessage",
            "QueueName",
            name_of_queue(queue),
        ),
        "lost claims": (ours, "LostClaims", "service", service),
        "unsettled messages": (ours, "Unsettled", "service", service),
        "failed claims": (ours, "ClaimFailures", "service", service),
        "messages that keep failing": (ours, "Failed", "service", service),
    }
    if not outside_lambda(facts):
        (function,) = known(facts.functions)
        name = known(function.configuration)["FunctionName"]
        alarms["throttles"] = ("AWS/Lambda", "Throttles", "FunctionName", name)
        alarms["errors and timeouts"] = ("AWS/Lambda", "Errors", "FunctionName", name)
    if dead is not None:
        alarms["dead letters"] = _messages_in(dead)
        alarms["dead letters that grow old"] = (
            "AWS/SQS",
            "ApproximateAgeOfOldestMessage",
            "QueueName",
            name_of_queue(dead),
        )
    return alarms


def _watches(alarm: Answer, namespace: str | None, metric: str, dimension: str, value: str | None) -> bool:
    dimensions = {each["Name"]: each["Value"] for each in alarm.get("Dimensions") or []}
    same = alarm.get("MetricName") == metric and alarm.get("Namespace") == (namespace or alarm.get("Namespace"))
    return same and (value is None or dimensions.get(dimension) == value)


def _messages_in(queue: Answer) -> Watched:
    return "AWS/SQS", "ApproximateNumberOfMessagesVisible", "QueueName", name_of_queue(queue)


def _counts(query: Answer, queue: Answer) -> bool:
    """Whether a metric in an alarm's expression counts the messages in the queue."""
    return _watches((query.get("MetricStat") or {}).get("Metric") or {}, *_messages_in(queue))
