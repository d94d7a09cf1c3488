"""What an operator finds in the stack: a dashboard, alarms that say where to read on, and narrow permissions."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest

from harness.cloud import ROOT
from idempotent_receiver import telemetry
from tests.template import load, text_of, watched_by
from tests.unit.templates.variants import (
    KEY,
    TOPIC,
    VARIANTS,
    actions,
    alarms,
    apis,
    assert_says_what_to_do,
    consumers,
    every_variant,
    has_dead_letters,
    listed,
    of_type,
    operators,
    properties,
    resources_of,
    statements,
    wide,
    widgets,
)

OPERATING = (ROOT / "docs" / "operating.md").read_text()
COLUMNS = 24
"""CloudWatch's grid."""
OURS = load()["Parameters"]["MetricsNamespace"]["Default"]


def lines_of(widgets: list[dict[str, Any]]) -> list[Any]:
    return [line for each in widgets for line in each["properties"].get("metrics", [])]


# The dashboard.


@every_variant
def test_the_dashboard_shows_all_alarms_what_waits_and_what_to_do_and_nothing_overlaps(variant: str) -> None:
    shown = widgets(variant)
    cells = [
        (x, y)
        for each in shown
        for x in range(each["x"], each["x"] + each["width"])
        for y in range(each["y"], each["y"] + each["height"])
    ]
    assert (len(cells), max(x for x, _ in cells) < COLUMNS) == (len(set(cells)), True)
    first, second, *_, last = shown
    assert set(first["properties"]["alarms"]) == {f"{name}.Arn" for name in alarms(variant)}
    assert second["properties"]["metrics"][0][1] == "ApproximateAgeOfOldestMessage"
    assert last["properties"]["markdown"].startswith("## What to do")
    (letters,) = [each for each in shown if "dead letters" in each["properties"].get("title", "")]
    theirs = ["dead letters", "their age (s)"] if has_dead_letters(variant) else []
    assert [line[-1]["label"] for line in letters["properties"]["metrics"]] == [*theirs, "waiting", "in flight"]


@every_variant
def test_alarms_and_dashboards_show_metrics_that_the_functions_send(variant: str) -> None:
    ours = [line for line in lines_of(widgets(variant)) if line[0] == OURS]
    assert {line[1] for line in ours} == {*telemetry.COUNTS, telemetry.DURATION}
    assert {tuple(line[2:4]) for line in ours} == {("service", "AWS::StackName")}, "as POWERTOOLS_SERVICE_NAME has it"
    rung = {each["MetricName"] for each in alarms(variant).values() if each.get("Namespace") == OURS}
    assert {"LostClaims"} <= rung <= {*telemetry.COUNTS}
    of_the_api = [] if variant == "no api" else lines_of(widgets(variant, "ApiDashboard"))
    theirs = {tuple(line[1:4]) for line in of_the_api if line[0] == OURS}
    assert not of_the_api or theirs == {(name, "service", "AWS::StackName-api") for name in telemetry.CALL_COUNTS}


def test_the_dashboard_sets_durations_against_the_timeout() -> None:
    shown = widgets("standard", FunctionTimeout="120")
    (widget,) = [each for each in shown if "timeout" in each["properties"].get("title", "")]
    assert [line["value"] for line in widget["properties"]["annotations"]["horizontal"]] == [120_000]


def test_the_handbook_explains_and_pictures_the_real_widgets() -> None:
    """`make board` draws the picture."""
    table = OPERATING.partition("\n## The dashboard\n")[2].partition("\n## ")[0]
    explained = re.findall(r"(?m)^\| ([A-Z][^|]+?) \|", table)
    titles = [each["properties"].get("title", "") for each in widgets("standard")]
    assert [(title, name) for title, name in zip(titles, explained, strict=True) if title and name not in title] == []
    picture = html.unescape((ROOT / "docs" / "dashboard.svg").read_text())
    made = widgets("standard", DeadLetterArrivals="false")
    drawn = re.findall(r'font-weight="bold"[^>]*>([^<]*)</text>', picture)
    assert drawn == [each["properties"].get("title", "") for each in made]
    labels = [line[-1].get("label", line[1]) if isinstance(line[-1], dict) else line[1] for line in lines_of(made)]
    assert [label for label in labels if f">{label}" not in picture] == []


# The alarms.


@every_variant
def test_each_alarm_names_the_section_that_says_what_to_type_what_it_means_and_what_to_do(variant: str) -> None:
    for name, alarm in of_type(variant, "AWS::CloudWatch::Alarm").items():
        (section,) = re.findall(r'docs/operating\.md, "(.+)"', alarm["AlarmDescription"])
        assert_says_what_to_do(OPERATING.partition(f"\n## {section}\n")[2].partition("\n## ")[0])
        assert f"[{name}](#" in OPERATING, f"the table has no {name}"
        sent = [TOPIC] if "AlarmTopicArn" in VARIANTS[variant] else None
        assert alarm.get("AlarmActions") == alarm.get("OKActions") == sent


@every_variant
def test_alarms_watch_what_can_break_and_each_queue_by_its_name(variant: str) -> None:
    own = VARIANTS[variant]
    metrics = [(name, metric) for name, each in alarms(variant).items() for metric in watched_by(each)]
    others = {(metric["Namespace"], metric["MetricName"]) for _, metric in metrics if metric["Namespace"] != "AWS/SQS"}
    assert others == {
        *((OURS, name) for name in ("Failed", "ClaimFailures", "LostClaims", "Unsettled")),
        *(("AWS/Lambda", name) for name in ("Throttles", "Errors")),
    }
    watched = {
        (name, str(metric["Dimensions"][0]["Value"])) for name, metric in metrics if metric["Namespace"] == "AWS/SQS"
    }
    queue, dead = ({"Fn::GetAtt": [name, "QueueName"]} for name in ("Queue", "DeadLetterQueue"))
    if "QueueArn" in own:
        queue, dead = (own.get(name, "").rpartition(":")[2] for name in ("QueueArn", "DeadLetterQueueArn"))  # type: ignore[assignment]
    on_dead = ("DeadLetterAlarm", "DeadLetterArrivalAlarm", "DeadLetterAgeAlarm") if dead else ()
    assert watched == {("OldestMessageAlarm", str(queue)), *((name, str(dead)) for name in on_dead)}


def test_only_arrivals_are_calculated_and_only_where_they_are_wanted() -> None:
    """Local clouds refuse metric math."""
    calculated = {name for name, each in alarms("standard").items() if "Metrics" in each}
    assert calculated == set(alarms("standard")) - set(alarms("standard", DeadLetterArrivals="false"))
    assert calculated == {"DeadLetterArrivalAlarm"}


# Permissions. End-to-end tests check that they suffice; these check that they are narrow.


@pytest.mark.parametrize(
    ("resource", "services"), [("ConsumerRole", ["sqs", "dynamodb"]), ("OperatorPolicy", ["sqs", "dynamodb", "s3"])]
)
def test_a_key_of_ones_own_is_used_by_way_of_the_services_that_keep_something_alone(
    resource: str, services: list[str]
) -> None:
    found = statements("own key", resource)["UseKey"]
    ways = found["Condition"]["StringEquals"]["kms:ViaService"]
    assert (found["Resource"], [text_of(way).partition(".")[0] for way in ways]) == (KEY, services)
    assert {"kms:Decrypt", "kms:GenerateDataKey"} <= set(found["Action"])
    assert "UseKey" not in statements("standard", resource)


@every_variant
def test_every_action_and_resource_is_named_but_for_x_ray_which_knows_no_resources(variant: str) -> None:
    traced = {"Trace"} if VARIANTS[variant].get("Tracing") == "Active" else set()
    for allowed in (consumers(variant), apis(variant)):
        assert wide(allowed) == (traced if allowed else set())
    for each in (consumers(variant) | apis(variant) | operators(variant)).values():
        assert (each["Effect"], {"NotAction", "NotResource", "NotPrincipal"} & set(each)) == ("Allow", set())
    for name, function in of_type(variant, "AWS::Serverless::Function").items():
        assert "ManagedPolicyArns" not in properties(variant, f"{name}Role"), "all of it is written out"
        assert "Policies" not in function


@every_variant
def test_neither_the_consumer_nor_the_operator_can_delete_or_forge_a_record(variant: str) -> None:
    of_the_consumer = statements(variant, "ConsumerRole")
    assert not [action for action in actions(of_the_consumer) if re.match("dynamodb:.*(Delete|BatchWrite)", action)]
    assert not re.search(r'"(History|Archive)[."]', json.dumps(of_the_consumer)), "nor does it know these"
    writes = re.compile("dynamodb:.*(Put|Update|Delete|Write|Insert|Execute)")
    writing = {sid: each for sid, each in operators(variant).items() if any(map(writes.match, listed(each["Action"])))}
    assert {sid: each["Resource"] for sid, each in writing.items()} == (
        {"KeepHistory": {"Fn::GetAtt": ["History", "Arn"]}} if has_dead_letters(variant) else {}
    )


@every_variant
def test_the_operators_policy_is_for_this_stack_alone(variant: str) -> None:
    found = operators(variant)
    assert [sid for sid, each in found.items() if each["Resource"] == "*"] == ["FindTheMapping"]
    assert listed(found["FindTheMapping"]["Action"]) == ["lambda:ListEventSourceMappings"]
    function = "arn:${AWS::Partition}:lambda:${AWS::Region}:${AWS::AccountId}:function:${AWS::StackName}"
    own = [{"Fn::Sub": function}, {"Fn::Sub": f"{function}:*"}]
    assert found["LookAtTheFunction"]["Resource"] == own
    assert list(found["SwitchTheMapping"]["Condition"].values()) == [{"lambda:FunctionArn": own}]
    known = {"LookAtTheFunction", "SwitchTheMapping", "FindTheMapping", "LookAtTheAlarms"}
    assert wide(found) - {"ArchiveDeadLetters"} == known


@every_variant
def test_only_where_there_are_dead_letters_the_operator_may_send_to_both_queues_and_archive(variant: str) -> None:
    """What is redriven or resent goes to the queue, and what is restored to the dead-letter queue."""
    found, there = operators(variant), has_dead_letters(variant)
    both = {"SendThemBack": "LookAtTheQueue", "RestoreThem": "TakeDeadLetters"} if there else {}
    assert resources_of(found, "sqs:SendMessage") == {sid: found[other]["Resource"] for sid, other in both.items()}
    acting = {"sqs:SendMessage", "sqs:DeleteMessage", "dynamodb:BatchWriteItem", "s3:PutObject"}
    assert acting & actions(found) == (acting if there else set())
