"""The conditions of a deployed consumer's guarantees: pure checks of its facts, each with a remedy.

A check that lacks a fact reports `Unchecked`; only a known problem is a finding.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from idempotent_receiver.operations.description import OUTPUT, differences
from idempotent_receiver.operations.doctor.alarms import alarms, early_alarm, messages_in, unnotified, watches
from idempotent_receiver.operations.doctor.asking import (
    Answer,
    Missing,
    NotAnswered,
    Problem,
    asked,
    known,
    name_of_queue,
)
from idempotent_receiver.operations.doctor.bounds import (
    account_limit,
    blocked_groups,
    concurrency,
    dead_letter_retention,
    limits,
    receives,
    record_retention,
    visibility,
)
from idempotent_receiver.operations.doctor.facts import Facts
from idempotent_receiver.operations.doctor.outside_lambda import ON_A_TASK, one_table
from idempotent_receiver.operations.doctor.queues import dead_letter_queue, one_consumer, queue_retention
from idempotent_receiver.operations.doctor.roles import CHECK, ON_ANY_TABLE, READ, SEND_MESSAGE


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


def table_of_records(facts: Facts) -> Iterator[Problem]:
    """The table that the consumer reads must be there, have the records' key, and be the one that operators look at."""
    named = known(facts.named_table)
    read = named and (known(facts.settings).get("RECORDS_TABLE") or named).rpartition("/")[2]  # it may be an ARN
    if read != named:
        yield (
            f"the consumer's RECORDS_TABLE is {read}, but the stack or --table names {named}",
            "set RECORDS_TABLE to the records table; operators' commands look at the other one",
        )
    if isinstance(facts.table, Missing):
        yield f"{facts.table}: no message can be handled", "correct RECORDS_TABLE, or create the table"
    table = known(facts.table)
    kinds = {each["AttributeName"]: each["AttributeType"] for each in table["AttributeDefinitions"]}
    if [(each["AttributeName"], kinds[each["AttributeName"]]) for each in table["KeySchema"]] != [("id", "S")]:
        yield (
            f"table {table['TableName']} has another key than records: no message can be handled",
            "name the records table in RECORDS_TABLE, or create it with the partition key `id`, a string",
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
    queue_retention,
    dead_letter_queue,
    one_consumer,
    table_of_records,
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

OF_PROMISES = frozenset(
    {
        *(partial_responses, receives, queue_retention, one_consumer, table_of_records, record_retention),
        *(dead_letter_retention, filter_criteria, global_table, managed_instances, one_table),
    }
)
"""The checks of what a promise needs: lost, run at the same time, or run again without it."""


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
    """Remarks that are not findings: a guarantee given up, a missing alarm or limit, a pause, permissions."""
    dead, there = facts.dead_letter_queue, facts.alarms
    if asked(unnotified, facts) is True:
        yield "no alarm has an action, so they show only in CloudWatch: deploy with AlarmTopicArn, an SNS topic"
    if not (dead is None or isinstance(dead, NotAnswered) or isinstance(there, NotAnswered)):
        counted = [each for alarm in there for each in alarm.get("Metrics") or [] if _counts(each, dead)]
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
    for remarks in (blocked_groups, early_alarm):
        told = asked(lambda remarks=remarks: [*remarks(facts)])
        yield from () if isinstance(told, NotAnswered) else told
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


def unknown_promises(found: Iterable[Finding | Unchecked]) -> bool:
    """Whether something that a promise needs could not be checked."""
    names = {check_name(check) for check in OF_PROMISES}
    return any(isinstance(each, Unchecked) and each.check in names for each in found)


def _examined(check: Callable[[Facts], Iterator[Problem]], facts: Facts) -> Iterator[Finding | Unchecked]:
    try:
        for text, remedy in check(facts):
            yield Finding(check_name(check), text, remedy)
    except NotAnswered as missing:
        yield Unchecked(check_name(check), str(missing))


def _counts(query: Answer, queue: Answer) -> bool:
    """Whether a metric in an alarm's expression counts the messages in the queue."""
    return watches((query.get("MetricStat") or {}).get("Metric") or {}, messages_in(queue))
