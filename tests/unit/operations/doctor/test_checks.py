"""Doctor: one fault, one finding under its name; none for the stack that is shipped."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from harness.cloud import ROOT
from idempotent_receiver import body_field
from idempotent_receiver.operations.cli.doctor import findings_text
from idempotent_receiver.operations.description import DAY_SECONDS, Description
from idempotent_receiver.operations.doctor.asking import Missing, NotAnswered
from idempotent_receiver.operations.doctor.checks import (
    CHECKS,
    Finding,
    Unchecked,
    check_name,
    checks_of,
    examine,
    notes,
    unknown_promises,
)
from idempotent_receiver.operations.doctor.facts import Facts
from idempotent_receiver.operations.doctor.roles import ON_ANY_TABLE
from idempotent_receiver.payload import EVERYTHING, Payload
from tests.consumer_facts import ARN, URL, facts, facts_outside_lambda

if TYPE_CHECKING:
    from collections.abc import Sequence

FINDINGS = Path(__file__).with_name("findings.txt")
SHIPPED, OUTSIDE = facts(), facts_outside_lambda()
UNKNOWN = Facts(**{each.name: NotAnswered("AccessDenied") for each in fields(Facts)})
KEY = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"

PROVIDER = "arn:aws:lambda:us-east-1:123456789012:capacity-provider:instances"


def amended(fact: str, shipped: Facts = SHIPPED, **changes: Any) -> Facts:
    """The shipped stack with one fact changed."""
    return replace(shipped, **{fact: {**getattr(shipped, fact), **changes}})


def with_function(shipped: Facts = SHIPPED, **facts: Any) -> Facts:
    """The shipped stack with one fact of its function replaced."""
    (function,) = shipped.functions  # type: ignore[misc]
    return replace(shipped, functions=[replace(function, **facts)])


def with_mapping(shipped: Facts = SHIPPED, **changes: Any) -> Facts:
    (function,) = shipped.functions  # type: ignore[misc]
    return with_function(shipped, mapping={**function.mapping, **changes})  # type: ignore[dict-item]


def with_configuration(shipped: Facts = SHIPPED, **changes: Any) -> Facts:
    (function,) = shipped.functions  # type: ignore[misc]
    return with_function(shipped, configuration={**function.configuration, **changes})  # type: ignore[dict-item]


def running(seconds: int, **facts: Any) -> Facts:
    """The shipped stack with another time-out, and a visibility timeout that fits it."""
    hidden = amended("queue", VisibilityTimeout=str(6 * seconds + 1))
    return with_function(with_configuration(hidden, Timeout=seconds), **facts)


def sharing(concurrency: int, shipped: Facts = SHIPPED) -> Facts:
    """In an account whose functions share this concurrency."""
    return amended("account", shipped, UnreservedConcurrentExecutions=concurrency)


def run_as(*words: str, **changes: Any) -> Facts:
    """The shipped workers with another command, or another container."""
    url, handler, *_ = OUTSIDE.container["command"]  # type: ignore[index]
    return amended("container", OUTSIDE, command=[url, handler, *words], **changes)


def without_alarm(metric: str) -> Facts:
    return replace(SHIPPED, alarms=[each for each in SHIPPED.alarms if each.get("MetricName") != metric])  # type: ignore[union-attr]


def given_up_after(receives: int, shipped: Facts = SHIPPED) -> Facts:
    policy = json.loads(shipped.queue["RedrivePolicy"])  # type: ignore[index]
    return amended("queue", shipped, RedrivePolicy=json.dumps({**policy, "maxReceiveCount": str(receives)}))


def with_alarm(metric: str, queue: str | None = None, **changes: Any) -> Facts:
    """The shipped stack with changes of its alarm on this metric, of this queue if it is one of a queue's."""

    def changed(alarm: Any) -> Any:
        of = [each["Value"] for each in alarm.get("Dimensions", [])]
        return alarm | changes if alarm.get("MetricName") == metric and (queue is None or queue in of) else alarm

    return replace(SHIPPED, alarms=[changed(each) for each in SHIPPED.alarms])  # type: ignore[union-attr]


def sending_to(queue: str) -> Facts:
    """The shipped stack, which sends dead letters to this queue."""
    return amended("settings", DEAD_LETTER_QUEUE_URL=URL + queue)


def allowing(queue: str) -> str:
    """A policy that lets only this queue's messages in."""
    source = ARN.format(service="sqs", name=queue)
    return json.dumps({"redrivePermission": "byQueue", "sourceQueueArns": [source]})


KEYED_BY_ID, KEYED_BY_NAME = ([{"AttributeName": each, "KeyType": "HASH"}] for each in ("id", "name"))
IDS, NAMES = ([{"AttributeName": each, "AttributeType": "S"}] for each in ("id", "name"))
UNBOUNDED = with_mapping(ScalingConfig=None)
POLLERS = {"MinimumPollers": 2, "MaximumPollers": 20}
AT_MOST_200_POLLERS = with_mapping(ProvisionedPollerConfig={"MinimumPollers": 2}, ScalingConfig=None)
PROVISIONED = with_mapping(ProvisionedPollerConfig=POLLERS, ScalingConfig=None)
STRONG = {"Replicas": [{"RegionName": "x"}], "MultiRegionConsistency": "STRONG"}
UNWATCHED_WORKERS = partial(replace, OUTSIDE, alarms=SHIPPED.alarms[:-4])  # type: ignore[index]
WITHOUT_DEAD_LETTER_QUEUE = partial(  # messages last four days
    replace, amended("queue", RedrivePolicy=""), dead_letter_queue=None, retention_seconds=4 * DAY_SECONDS + 1
)
FIFO = facts("FIFO")
ON_INSTANCES = {"CapacityProviderArn": PROVIDER}
OTHER_TABLE = {"Variables": {"RECORDS_TABLE": "another"}}
FAULTS: dict[str, list[Callable[[], Facts]]] = {
    "partial-responses": [
        lambda: with_mapping(FunctionResponseTypes=[]),
        lambda: with_mapping(FunctionResponseTypes=None),
    ],
    "visibility": [
        lambda: amended("queue", VisibilityTimeout="180"),
        lambda: with_configuration(Timeout=60),
        lambda: with_mapping(MaximumBatchingWindowInSeconds=300),
    ],
    "limits": [
        lambda: running(901),
        lambda: with_mapping(BatchSize=11, MaximumBatchingWindowInSeconds=0),
        lambda: with_mapping(BatchSize=11, MaximumBatchingWindowInSeconds=None),
        lambda: with_mapping(FIFO, BatchSize=11),
        lambda: with_mapping(FIFO, MaximumBatchingWindowInSeconds=1),
    ],
    "receives": [
        lambda: given_up_after(4),
        WITHOUT_DEAD_LETTER_QUEUE,
        lambda: replace(given_up_after(49), given=LIMITED),
        lambda: replace(given_up_after(50), stated=replace(LIMITED, max_attempts=50)),
    ],
    "queue-retention": [
        lambda: amended("queue", MessageRetentionPeriod="60"),
        lambda: amended("queue", OUTSIDE, MessageRetentionPeriod="3599"),
        lambda: amended("queue", MessageRetentionPeriod="4999", VisibilityTimeout="1000"),
        lambda: replace(amended("queue", given_up_after(50), MessageRetentionPeriod="259200"), given=LIMITED),
    ],
    "dead-letter-queue": [
        lambda: sending_to("Queue"),
        lambda: sending_to("Another"),
        lambda: amended("dead_letter_queue", RedrivePolicy='{"deadLetterTargetArn": "x"}'),
        lambda: amended("dead_letter_queue", RedriveAllowPolicy='{"redrivePermission": "denyAll"}'),
        lambda: amended("dead_letter_queue", RedriveAllowPolicy=allowing("Another")),
        lambda: replace(SHIPPED, named_dead_letter_queue=f"{URL}Another"),
    ],
    "one-consumer": [
        lambda: replace(SHIPPED, readers=["Consumer", "audit"]),
        lambda: replace(SHIPPED, dead_letter_readers=["audit"]),
        lambda: replace(OUTSIDE, dead_letter_readers=["Consumer"]),
    ],
    "table-of-records": [
        lambda: amended("settings", RECORDS_TABLE="another"),
        lambda: amended("table", KeySchema=KEYED_BY_NAME, AttributeDefinitions=NAMES),
        lambda: amended("table", KeySchema=[*KEYED_BY_ID, *KEYED_BY_NAME], AttributeDefinitions=[*IDS, *NAMES]),
        lambda: amended("table", AttributeDefinitions=[{**IDS[0], "AttributeType": "N"}]),
    ],
    "ttl": [
        lambda: amended("time_to_live", TimeToLiveStatus="DISABLED"),
        lambda: amended("time_to_live", AttributeName="in_progress_expiration"),
    ],
    "record-retention": [
        # 4 days in the queue, and 14 in the other
        lambda: replace(SHIPPED, retention_seconds=18 * DAY_SECONDS),
        lambda: replace(SHIPPED, retention_seconds=DAY_SECONDS),
    ],
    "dead-letter-retention": [
        lambda: amended("dead_letter_queue", MessageRetentionPeriod="345600"),
        lambda: amended("dead_letter_queue", MessageRetentionPeriod="259200"),
    ],
    "filter-criteria": [lambda: with_mapping(FilterCriteria={"Filters": [{"Pattern": "{}"}]})],
    "global-table": [
        lambda: amended("table", Replicas=[{"RegionName": each} for each in ("x-1", "y-1")]),
        lambda: amended("table", facts(Effects="transaction"), **STRONG),
    ],
    "concurrency": [
        lambda: with_function(reserved=9),
        lambda: with_mapping(ProvisionedPollerConfig=POLLERS),
        lambda: with_function(PROVISIONED, reserved=199),
        lambda: with_function(AT_MOST_200_POLLERS, reserved=200),
        lambda: with_function(UNBOUNDED, reserved=2),
        lambda: with_function(UNBOUNDED, reserved=1249),
        lambda: with_function(UNBOUNDED, reserved=0),
        lambda: with_function(reserved=0),
        lambda: with_function(reserved=1),
        lambda: with_function(PROVISIONED, reserved=19),
    ],
    "account-limit": [
        lambda: sharing(10),
        lambda: sharing(200, PROVISIONED),
    ],
    # Nobody but the code knows whether its process ends itself.
    "managed-instances": [
        lambda: with_function(instances=ON_INSTANCES),
        lambda: running(5400, instances=ON_INSTANCES),
        lambda: sharing(10, with_function(instances=ON_INSTANCES)),
    ],
    "permissions": [
        lambda: replace(SHIPPED, denied=["sqs:A, sqs:B on orders", "logs:C on *"]),
        lambda: replace(OUTSIDE, denied=["sqs:A on *"]),
    ],
    "encryption": [
        lambda: amended("queue", SqsManagedSseEnabled="false"),
        lambda: amended("dead_letter_queue", SqsManagedSseEnabled="false"),
        lambda: amended("table", SSEDescription={"InaccessibleEncryptionDateTime": "2026-11-21"}),
        lambda: replace(SHIPPED, keys={"alias/own": {"KeyState": "Disabled"}}),
        lambda: replace(SHIPPED, keys={KEY: {"KeyState": "PendingDeletion"}}),
    ],
    "alarms": [
        lambda: without_alarm("ApproximateNumberOfMessagesVisible"),
        lambda: without_alarm("ApproximateAgeOfOldestMessage"),
        lambda: without_alarm("LostClaims"),
        lambda: without_alarm("Unsettled"),
        lambda: without_alarm("ClaimFailures"),
        lambda: without_alarm("Failed"),
        lambda: with_configuration(FunctionName="another"),
        lambda: without_alarm("Throttles"),
        lambda: without_alarm("Errors"),
        lambda: with_alarm("Errors", AlarmActions=[]),
        lambda: with_alarm("Errors", ActionsEnabled=False),
        lambda: with_alarm("Unsettled", Threshold=1e6),
        lambda: with_alarm("Unsettled", Threshold=120_000.0),
        lambda: with_alarm("Failed", ComparisonOperator="LessThanThreshold"),
        lambda: with_alarm("ApproximateAgeOfOldestMessage", "Queue", Threshold=345_600.0),
        lambda: with_alarm("ApproximateAgeOfOldestMessage", "DeadLetterQueue", Threshold=1_209_600.0),
        UNWATCHED_WORKERS,
        lambda: amended("settings", POWERTOOLS_SERVICE_NAME="another"),
        lambda: amended("settings", POWERTOOLS_METRICS_NAMESPACE="Another"),
        lambda: replace(facts_outside_lambda(MetricsNamespace="Another"), settings={}),
    ],
    "description": [
        lambda: replace(SHIPPED, given=IN_CODE, stated=replace(IN_CODE, payload=EVERYTHING)),
        lambda: replace(SHIPPED, given=IN_CODE, stated=replace(IN_CODE, retention_days=7)),
    ],
    "one-table": [
        lambda: with_configuration(OUTSIDE, Environment=OTHER_TABLE),
    ],
    "stop-timeout": [
        lambda: amended("container", OUTSIDE, stopTimeout=100),
        lambda: amended("container", OUTSIDE, stopTimeout=None),
        lambda: run_as("--health-file=/tmp/healthy", stopTimeout=25),
        lambda: run_as("--drain-seconds", "120", "--health-file=/tmp/healthy"),
    ],
    "health-check": [
        lambda: amended("container", OUTSIDE, healthCheck=None),
        lambda: amended("container", OUTSIDE, healthCheck={"command": ["CMD-SHELL", "true"]}),
        lambda: run_as("--drain-seconds=100"),
    ],
}
IN_CODE = Description(
    key=body_field("id"), payload=Payload(without=("sent_at",)), namespace="bank", retention_days=30, effects="any"
)
LIMITED = replace(IN_CODE, max_attempts=10)
SOONER = replace(LIMITED, max_age_seconds=DAY_SECONDS)
ALONE = [(check, place) for check, faults in FAULTS.items() for place in range(len(faults))]
IN_ORDER: list[Facts] = [
    SHIPPED,
    OUTSIDE,
    FIFO,
    facts(Effects="transaction"),
    facts("Longer time-outs"),
    facts("Dead letters at once", "In a VPC", "A permissions boundary"),
    facts("Pollers that are kept ready"),
    replace(facts(KmsKeyArn=KEY), keys={KEY: {"KeyState": "Enabled"}}),
    replace(SHIPPED, given=IN_CODE, stated=IN_CODE),
    replace(SHIPPED, given=IN_CODE),
    facts_outside_lambda(DrainSeconds="110"),
    facts_outside_lambda(MetricsNamespace="Ours"),
    amended("time_to_live", TimeToLiveStatus="ENABLING"),
    # Workers set the visibility of each message, and need none of the queue.
    replace(amended("queue", OUTSIDE, VisibilityTimeout="0"), functions=[]),
    with_configuration(OUTSIDE, Environment=None),
    # Each at the very bound that the faults are beyond.
    amended("queue", VisibilityTimeout="181"),
    with_mapping(amended("queue", VisibilityTimeout="180"), BatchSize=10, MaximumBatchingWindowInSeconds=None),
    given_up_after(5),
    replace(given_up_after(50), given=LIMITED),
    replace(given_up_after(51), stated=replace(LIMITED, max_attempts=50)),
    replace(amended("queue", given_up_after(50), MessageRetentionPeriod="259201"), stated=LIMITED),
    replace(amended("queue", given_up_after(50), MessageRetentionPeriod="86401"), given=SOONER, stated=SOONER),
    replace(SHIPPED, retention_seconds=18 * DAY_SECONDS + 1),
    with_function(reserved=10),
    with_function(UNBOUNDED, reserved=1250),
    sending_to("DeadLetterQueue"),
    amended("dead_letter_queue", RedriveAllowPolicy=allowing("Queue")),
    amended("dead_letter_queue", RedriveAllowPolicy='{"redrivePermission": "allowAll"}'),
    amended("queue", MessageRetentionPeriod="3600"),
    with_alarm("Unsettled", Threshold=119_999.0),
    with_alarm("Unsettled", Threshold=120_000.0, ComparisonOperator="GreaterThanOrEqualToThreshold"),
    amended("settings", RECORDS_TABLE="arn:aws:dynamodb:us-east-1:123456789012:table/Records"),
    replace(SHIPPED, named_table=None, named_dead_letter_queue=None),  # by --function
    with_mapping(BatchSize=10, MaximumBatchingWindowInSeconds=0),
    with_mapping(BatchSize=None, MaximumBatchingWindowInSeconds=None),
    running(900),
    sharing(11),
    sharing(10, with_function(reserved=10)),
    sharing(10, with_mapping(ScalingConfig=None)),
    amended("table", **STRONG),
    with_function(PROVISIONED, reserved=200),
    with_function(PROVISIONED, reserved=None),
]


@pytest.mark.parametrize("in_order", IN_ORDER)
def test_nothing_is_found_on_what_is_shipped_or_within_bounds(in_order: Facts) -> None:
    assert examine(in_order) == []


def test_containers_beside_the_function_have_checks_of_their_own() -> None:
    compared = replace(OUTSIDE, given=IN_CODE, stated=IN_CODE)
    assert checks_of(compared) == list(CHECKS)
    assert [check_name(check) for check in CHECKS if check not in checks_of(OUTSIDE)] == ["description"]
    only_outside = [check_name(check) for check in checks_of(OUTSIDE) if check not in checks_of(SHIPPED)]
    assert only_outside == ["one-table", "stop-timeout", "health-check"]


@pytest.mark.parametrize(
    ("check", "spoiled"),
    [
        ("partial-responses", with_mapping(OUTSIDE, FunctionResponseTypes=[])),
        ("visibility", with_configuration(OUTSIDE, Timeout=60)),
        ("filter-criteria", with_mapping(OUTSIDE, FilterCriteria={"Filters": [{"Pattern": "{}"}]})),
        ("managed-instances", with_function(OUTSIDE, instances={"CapacityProviderArn": PROVIDER})),
    ],
)
def test_a_function_that_reads_the_workers_queue_can_spoil_it(check: str, spoiled: Facts) -> None:
    """What it loses or repeats, the workers never see, or see twice."""
    assert [(type(each), each.check) for each in examine(spoiled)] == [(Finding, check)]
    assert examine(replace(spoiled, functions=[])) == []


def test_of_workers_whose_task_is_unknown_it_checks_what_the_queue_and_the_table_say() -> None:
    unknown = NotAnswered("give --stack")
    by_queue = replace(OUTSIDE, container=unknown, settings=unknown, denied=unknown, functions=[])
    unchecked = ["dead-letter-queue", "permissions", "stop-timeout", "health-check"]
    by_queue = replace(by_queue, named_table=None)
    assert examine(by_queue) == [Unchecked(name, "give --stack") for name in unchecked]
    other_names = [{**each, "Dimensions": []} for each in OUTSIDE.alarms if each.get("MetricName") == "LostClaims"]  # type: ignore[union-attr]
    others = [each for each in OUTSIDE.alarms if each.get("MetricName") != "LostClaims"]  # type: ignore[union-attr]
    assert examine(replace(by_queue, alarms=[*others, *other_names])) == examine(by_queue)
    found = [each.check for each in examine(replace(by_queue, alarms=others))]
    assert found == [*unchecked[:2], "alarms", *unchecked[2:]]


@pytest.mark.parametrize(
    ("command", "why"),
    [(None, "no command"), ([], "no command"), (["--drain-seconds"], "argument --drain-seconds: expected one")],
)
def test_a_command_that_cannot_be_read_could_not_be_checked(command: list[str] | None, why: str) -> None:
    found = {each.check: each for each in examine(amended("container", OUTSIDE, command=command))}
    assert isinstance(unchecked := found["stop-timeout"], Unchecked)
    assert why in unchecked.why


def test_a_flag_that_doctor_does_not_know_is_not_its_own() -> None:
    own = "--health-file=/tmp/healthy"
    assert examine(run_as("-h", "--drain=200", own)) == examine(run_as(own))


@pytest.mark.parametrize(("check", "place"), ALONE)
def test_a_fault_is_found_by_its_check_alone(check: str, place: int) -> None:
    assert [(type(each), each.check) for each in examine(FAULTS[check][place]())] == [(Finding, check)]


def test_each_finding_says_what_is_wrong_and_its_remedy() -> None:
    """As in `findings.txt`, which `make transcripts` writes anew."""
    found = [(check, each) for check, faults in FAULTS.items() for fault in faults for each in examine(fault())]
    told = "".join(f"{check}: {each.text}\n    {each.remedy}\n" for check, each in found if isinstance(each, Finding))
    if "UPDATE" in os.environ:
        FINDINGS.write_text(told)
    assert told == FINDINGS.read_text()


@pytest.mark.scenario("S34", mutant="a table in two regions is as good as one")
def test_a_table_in_which_two_regions_can_both_claim_a_key_is_found_and_is_not_promised() -> None:
    """Replicas that are written asynchronously let both claims succeed: no code of ours could tell."""
    found = examine(amended("table", Replicas=[{"RegionName": "eu-west-1"}], MultiRegionConsistency="EVENTUAL"))

    assert [each.check for each in found] == ["global-table"]
    assert "two regions can both claim one key" in str(found[0])
    assert "in a single-region table" in str(found[0])
    not_promised = (ROOT / "docs/guarantees.md").read_text().partition("\n## Not promised\n")[2]
    assert "global table" in not_promised


@pytest.mark.parametrize(
    ("document", "begins"),
    [("docs/limits.md", "| regions |"), ("docs/guarantees.md", "- **Anything across regions.**")],
)
def test_the_global_table_that_is_let_pass_is_named_with_what_it_lacks(document: str, begins: str) -> None:
    """A claim holds in one with strong consistency, but AWS takes no transactions there and deletes nothing by TTL."""
    assert examine(amended("table", **STRONG)) == []
    findings_text = (ROOT / document).read_text().partition(begins)[2]
    paragraph = " ".join(findings_text.partition("\n- **" if begins.startswith("-") else "\n")[0].split())
    for word in ("multi-Region strong consistency", "supports no transactions", "no TTL", "`Transaction`"):
        assert word in paragraph


def test_every_check_is_documented_in_its_order_and_has_a_fault_that_it_finds() -> None:
    assert list(FAULTS) == [check_name(check) for check in CHECKS]
    section = (ROOT / "docs/operating.md").read_text().partition("\n## Doctor\n")[2].partition("\n## ")[0]
    assert re.findall(r"(?m)^\| `([a-z-]+)` \|", section) == [check_name(check) for check in CHECKS]


def test_what_could_not_be_asked_is_said_and_is_no_finding() -> None:
    assert examine(UNKNOWN) == [Unchecked(check_name(check), "AccessDenied") for check in CHECKS]


@pytest.mark.parametrize(
    ("fact", "missing", "check", "remedy"),
    [
        ("table", "there is no table records", "table-of-records", "correct RECORDS_TABLE"),
        ("dead_letter_queue", "there is no queue dead", "dead-letter-queue", "create it, or name another"),
    ],
)
def test_what_the_consumer_needs_and_is_not_there_is_a_finding(
    fact: str, missing: str, check: str, remedy: str
) -> None:
    """And what rests on it could not be checked."""
    findings = [each for each in examine(replace(SHIPPED, **{fact: Missing(missing)})) if isinstance(each, Finding)]

    assert [each.check for each in findings] == [check]
    assert missing in findings[0].text
    assert remedy in findings[0].remedy


@pytest.mark.parametrize(
    ("consumer", "unknown"),
    [
        (SHIPPED, False),
        (UNKNOWN, True),
        (replace(SHIPPED, readers=NotAnswered("AccessDenied")), True),
        (replace(SHIPPED, table=NotAnswered("AccessDenied")), True),
        (replace(SHIPPED, alarms=NotAnswered("AccessDenied"), account=NotAnswered("AccessDenied")), False),
        (with_mapping(FunctionResponseTypes=[]), False),
    ],
)
def test_a_promise_whose_condition_could_not_be_checked_is_told_apart(consumer: Facts, unknown: bool) -> None:
    """It is not passed. What only an operator needs, such as alarms, is no promise."""
    assert unknown_promises(examine(consumer)) is unknown


def test_what_of_a_role_is_not_known_hides_nothing_that_is() -> None:
    """A key that AWS does not describe is one of several things that a role needs."""
    role = replace(SHIPPED, denied=["sqs:A on orders", NotAnswered("DescribeKey was refused")])
    finding, unchecked = examine(role)
    assert isinstance(finding, Finding)
    assert "lacks sqs:A on orders" in finding.text
    assert unchecked == Unchecked("permissions", "DescribeKey was refused")


@pytest.mark.parametrize("seconds", [901, 5400])
def test_on_managed_instances_the_numbers_follow_a_longer_time_out(seconds: int) -> None:
    """AWS lets such a function run 90 minutes, and the visibility timeout that fits it is within SQS's 12 hours."""
    unfit = with_function(with_configuration(Timeout=seconds), instances=ON_INSTANCES)
    hidden = 6 * seconds + 1
    assert [each.check for each in examine(unfit)] == ["visibility", "managed-instances"]
    assert f"VisibilityTimeout to {hidden} or more" in str(examine(unfit)[0])
    assert hidden <= 43_200
    assert [each.check for each in examine(running(seconds, instances=ON_INSTANCES))] == ["managed-instances"]


def test_the_documented_numbers_of_managed_instances_fit() -> None:
    section = (ROOT / "docs" / "deploying.md").read_text().partition("\n### Longer time-outs\n")[2].partition("\n#")[0]
    numbers = dict(re.findall(r"`(Timeout|VisibilityTimeout): (\d+)`", section))
    assert numbers["Timeout"] == "5400"
    documented = with_function(facts(values=numbers), instances=ON_INSTANCES)
    assert [each.check for each in examine(documented)] == ["managed-instances"]


def test_a_time_out_beyond_90_minutes_is_found_on_managed_instances_too() -> None:
    found = examine(running(5401, instances=ON_INSTANCES))
    assert [each.check for each in found] == ["limits", "managed-instances"]
    assert "set its Timeout to 5400 or less" in str(found[0])


def test_what_only_a_long_or_wide_function_needs_is_not_asked_of_others() -> None:
    """An operator who may not look at the account, or whose boto3 is old, still has the other checks."""
    unknown = NotAnswered("AccessDenied")
    assert examine(replace(with_function(reserved=10), account=unknown)) == []
    assert examine(replace(SHIPPED, account=unknown)) == [Unchecked("account-limit", "AccessDenied")]
    assert [each.check for each in examine(running(900, instances=unknown))] == ["managed-instances"]
    assert [each.check for each in examine(running(901, instances=unknown))] == ["limits", "managed-instances"]


def test_every_function_on_the_queue_is_compared_with_the_account() -> None:
    (reserves,) = with_function(OUTSIDE, reserved=10).functions  # type: ignore[misc]
    (shares,) = OUTSIDE.functions  # type: ignore[misc]
    both = sharing(10, replace(OUTSIDE, functions=[reserves, shares]))
    assert [each.check for each in examine(both)] == ["account-limit"]


def test_a_missing_fact_leaves_the_other_checks_alone() -> None:
    found = examine(replace(with_mapping(FunctionResponseTypes=[]), alarms=NotAnswered("AccessDenied")))
    assert [(type(each), each.check) for each in found] == [(Finding, "partial-responses"), (Unchecked, "alarms")]


def shown(found: Sequence[Finding | Unchecked], noted: Sequence[str] = ()) -> str:
    console = Console(width=80, file=io.StringIO())
    console.print(findings_text([check_name(check) for check in checks_of(SHIPPED)], found, noted))
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_what_is_in_order_is_named_so_that_no_finding_can_be_trusted() -> None:
    names = [check_name(check) for check in checks_of(SHIPPED)]
    said = " ".join(shown([]).split())
    assert said == f"passed: {', '.join(names)} 19 checks: 19 passed, 0 findings, 0 not checked."

    found = examine(replace(with_mapping(FunctionResponseTypes=[]), alarms=NotAnswered("AccessDenied")))
    in_order = shown(found).partition("passed: ")[2]
    assert "partial-responses" not in in_order
    assert "alarms" not in in_order
    assert in_order.endswith("19 checks: 17 passed, 1 finding, 1 not checked.\n")


WITHOUT_CLAIMS = facts(Effects="transaction")
UNWATCHED = facts(DeadLetterArrivals="false")


def counting(namespace: str, queue: str) -> Facts:
    """The shipped stack whose alarm on arrivals watches another metric, or another queue."""
    dimensions = [{"Name": "QueueName", "Value": queue}]
    metric = {"Namespace": namespace, "MetricName": "ApproximateNumberOfMessagesVisible", "Dimensions": dimensions}
    return replace(UNWATCHED, alarms=[*UNWATCHED.alarms, {"Metrics": [{"MetricStat": {"Metric": metric}}]}])  # type: ignore[misc]


def on_totals(*denied: str) -> Facts:
    """The shipped stack whose role is denied these actions on a table of its handler's."""
    return replace(SHIPPED, denied_to_the_handler={"TOTALS_TABLE": ("totals", [f"dynamodb:{each}" for each in denied])})


@pytest.mark.parametrize(
    ("consumer", "says"),
    [
        (WITHOUT_CLAIMS, ["queue Queue are not claimed", "promise 2"]),
        (replace(WITHOUT_CLAIMS, queue=NotAnswered("AccessDenied")), ["its queue are not claimed"]),
        (with_mapping(State="Disabled"), ["Lambda does not read queue Queue until `receiver resume`"]),
        (with_mapping(State="Disabling"), ["Lambda does not read queue Queue until `receiver resume`"]),
        # A local cloud refuses the alarm, so it must not be a finding there.
        (UNWATCHED, ["no alarm watches for arrivals in DeadLetterQueue"]),
        (counting("AWS/SQS", "another"), ["arrivals in DeadLetterQueue"]),
        (counting("Ours", "DeadLetterQueue"), ["arrivals in DeadLetterQueue"]),
        (counting("AWS/SQS", "DeadLetterQueue"), []),
        (with_mapping(State="Enabled"), []),
        (on_totals(*ON_ANY_TABLE), ["no permissions on the DynamoDB table totals (variable TOTALS_TABLE"]),
        (on_totals("Query", "ConditionCheckItem"), ["has dynamodb:GetItem on", "table totals", "`tx.get`"]),
        (on_totals("GetItem", "ConditionCheckItem"), []),  # it only writes
        (on_totals("Query", "Scan"), []),
        (
            replace(SHIPPED, denied_to_the_handler={"REFUNDS_QUEUE_URL": ("refunds", ["sqs:SendMessage"])}),
            ["lacks sqs:SendMessage on refunds (variable REFUNDS_QUEUE_URL)"],
        ),
        (FIFO, ["queue Queue is FIFO, and no max_attempts", "without ever running", "docs/consumer.md"]),
        (replace(FIFO, given=IN_CODE, stated=IN_CODE), ["queue Queue is FIFO, and no max_attempts"]),
        (
            replace(given_up_after(50, FIFO), given=LIMITED),
            ["fires above 900 s, but 10 attempts", "last 960 s on average", "1920 or more"],
        ),
        (replace(given_up_after(50, FIFO), stated=replace(LIMITED, max_attempts=9)), []),
        (replace(given_up_after(50), given=LIMITED), []),
        (facts(AlarmTopicArn=""), ["no alarm has an action", "AlarmTopicArn"]),
        (replace(UNWATCHED, dead_letter_queue=None), []),
        (replace(UNWATCHED, alarms=NotAnswered("AccessDenied")), []),
        (SHIPPED, []),
        (replace(SHIPPED, settings={}), []),
        (UNKNOWN, []),
    ],
)
def test_what_a_consumer_gives_up_or_nobody_watches_is_noted_and_is_no_finding(
    consumer: Facts, says: list[str]
) -> None:
    noted = list(notes(consumer))
    assert len(noted) == bool(says)
    for note in noted:
        assert [findings_text for findings_text in says if findings_text not in note] == []
        assert f"note: {note}" in " ".join(shown([], [note]).split())
    assert not [each for each in examine(consumer) if isinstance(each, Finding)] or not says
    assert "\n## 2. One at a time\n" in (ROOT / "docs/guarantees.md").read_text()


def test_each_function_that_reads_a_workers_queue_must_have_its_table() -> None:
    """Not only the first."""
    (function,) = SHIPPED.functions  # type: ignore[misc]
    functions = [function, replace(function, configuration={**function.configuration, "Environment": OTHER_TABLE})]
    told = [each for each in examine(replace(OUTSIDE, functions=functions)) if "also reads the queue" in str(each)]
    assert len(told) == 1
