"""What an operator finds in the stack: a dashboard, alarms that say where to read on, and narrow permissions."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest

from harness.cloud import ROOT
from idempotent_receiver import telemetry
from tests.template import text_of, watched_by
from tests.unit.templates.variants import (
    KEY,
    TOPIC,
    VARIANTS,
    actions,
    alarms,
    assert_says_what_to_do,
    consumers,
    every_variant,
    has_dead_letters,
    listed,
    of_type,
    operators,
    properties,
    rendered,
    resources_of,
    wide,
    widgets,
)

OPERATING = (ROOT / "docs" / "operating.md").read_text()
COLUMNS = 24
"""CloudWatch's grid."""
OURS = "IdempotentReceiver"


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
    assert "--stack AWS::StackName`" in last["properties"]["markdown"]
    (letters,) = [each for each in shown if "dead letters" in each["properties"].get("title", "")]
    theirs = ["dead letters", "their age (s)"] if has_dead_letters(variant) else []
    assert [line[-1]["label"] for line in letters["properties"]["metrics"]] == [*theirs, "waiting", "in flight"]


@every_variant
def test_alarms_and_dashboard_show_metrics_that_the_function_sends(variant: str) -> None:
    ours = [line for line in lines_of(widgets(variant)) if line[0] == OURS]
    assert {line[1] for line in ours} == {*telemetry.COUNTS, telemetry.DURATION, *telemetry.SPENT.values()}
    assert {tuple(line[2:4]) for line in ours} == {("service", "AWS::StackName")}, "as POWERTOOLS_SERVICE_NAME has it"
    rung = {each["MetricName"] for each in alarms(variant).values() if each.get("Namespace") == OURS}
    assert {"LostClaims"} <= rung <= {*telemetry.COUNTS}


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
    for name, alarm in alarms(variant).items():
        assert_says_what_to_do(alarm)
        assert f"[{name}](" in OPERATING, f"the table has no {name}"
        sent = [TOPIC] if "AlarmTopicArn" in VARIANTS[variant].parameters else None
        assert alarm.get("AlarmActions") == alarm.get("OKActions") == sent


@every_variant
def test_alarms_watch_what_can_break_and_each_queue_by_its_name(variant: str) -> None:
    metrics = [(name, metric) for name, each in alarms(variant).items() for metric in watched_by(each)]
    others = {(metric["Namespace"], metric["MetricName"]) for _, metric in metrics if metric["Namespace"] != "AWS/SQS"}
    assert others == {
        *((OURS, name) for name in ("Failed", "ClaimFailures", "LostClaims", "Unsettled")),
        *(("AWS/Lambda", name) for name in ("Throttles", "Errors")),
    }
    watched = {
        (name, str(metric["Dimensions"][0]["Value"])) for name, metric in metrics if metric["Namespace"] == "AWS/SQS"
    }
    on_dead = ("DeadLetterAlarm", "DeadLetterArrivalAlarm", "DeadLetterAgeAlarm") if has_dead_letters(variant) else ()
    own = VARIANTS[variant].queue_arn
    queue, dead = ({"Fn::GetAtt": [name, "QueueName"]} for name in ("Queue", "DeadLetterQueue"))
    if own:
        own_dead = VARIANTS[variant].parameters.get("DeadLetterQueueArn", "")
        queue, dead = own.rpartition(":")[2], own_dead.rpartition(":")[2]  # type: ignore[assignment]
    assert watched == {("OldestMessageAlarm", str(queue)), *((name, str(dead)) for name in on_dead)}


def test_where_no_dead_letter_queue_is_named_no_alarm_watches_one() -> None:
    without = {variant for variant in VARIANTS if not has_dead_letters(variant)}
    assert without == {"own queue, no dead letters", "starter, own queue", "starter, own fifo queue"}


def test_only_arrivals_are_calculated_and_only_where_they_are_wanted() -> None:
    """Local clouds refuse metric math."""
    calculated = {name for name, each in alarms("standard").items() if "Metrics" in each}
    for variant in ("standard", "starter"):
        assert calculated == set(alarms(variant)) - set(alarms(variant, DeadLetterArrivals="false"))
    assert calculated == {"DeadLetterArrivalAlarm"}


# Permissions. End-to-end tests check that they suffice; these check that they are narrow.


@pytest.mark.parametrize(
    ("resource", "services"), [("ConsumerRole", {"sqs", "dynamodb"}), ("OperatorPolicy", {"sqs", "dynamodb", "s3"})]
)
def test_a_key_of_ones_own_is_used_by_way_of_the_services_that_keep_something_alone(
    resource: str, services: set[str]
) -> None:
    found, without = (
        (consumers if resource == "ConsumerRole" else operators)("own key"),
        rendered()["Resources"][resource],
    )
    (used,) = [each for each in found.values() if "kms:Decrypt" in each["Action"]]
    ((ways,),) = [each.values() for each in used["Condition"].values()]
    assert (used["Resource"], {text_of(way).partition(".")[0] for way in ways}) == (KEY, services)
    assert {"kms:Decrypt", "kms:GenerateDataKey"} <= set(used["Action"])
    assert "kms:" not in str(without)


@every_variant
def test_every_action_and_resource_is_named_but_for_x_ray_which_knows_no_resources(variant: str) -> None:
    traced = {"xray:PutTraceSegments"} if VARIANTS[variant].starter is None else set()
    assert wide(consumers(variant)) == traced
    for each in (*consumers(variant).values(), *operators(variant).values()):
        assert (each["Effect"], {"NotAction", "NotResource", "NotPrincipal"} & set(each)) == ("Allow", set())
    assert set(of_type(variant, "AWS::IAM::Role")) == {"ConsumerRole"}
    assert "ManagedPolicyArns" not in properties(variant, "ConsumerRole"), "all of it is written out"
    assert "Policies" not in properties(variant, "Consumer")


@every_variant
def test_neither_the_consumer_nor_the_operator_can_delete_a_record(variant: str) -> None:
    """The operator may write into records, for a resend claims a key."""
    records = resources_of(consumers(variant), "dynamodb:PartiQLInsert")
    ((name, table),) = records.items()
    assert not re.search("Delete|BatchWrite|Scan|Query", str(consumers(variant)[name]["Action"]))
    assert [each for each, held in consumers(variant).items() if held["Resource"] == table] == [name]
    assert not re.search(r'"(History|Archive)[."]', json.dumps(consumers(variant))), "nor does it know these"
    writes = re.compile("dynamodb:.*(Put|Update|Delete|Write|Insert|Execute)")
    writing = {sid: each for sid, each in operators(variant).items() if any(map(writes.match, listed(each["Action"])))}
    kept, claimed = writing.pop("KeepHistory"), writing.pop("ClaimForAResend")
    assert (writing, kept["Resource"]) == ({}, {"Fn::GetAtt": ["History", "Arn"]})
    assert text_of(claimed["Resource"]).rpartition("/")[2].lower() == "records"
    assert listed(claimed["Action"]) == [f"dynamodb:{each}Item" for each in ("Put", "Update", "ConditionCheck")]


@every_variant
def test_the_operators_policy_is_for_this_stack_alone(variant: str) -> None:
    found = operators(variant)
    unbounded = {sid: listed(each["Action"]) for sid, each in found.items() if each["Resource"] == "*"}
    assert unbounded == {
        "FindTheMapping": ["lambda:ListEventSourceMappings"],
        "LookAtTheAccount": ["lambda:GetAccountSettings"],
    }
    at = "AWS::Region:AWS::AccountId"
    stack = f"arn:AWS::Partition:cloudformation:{at}:stack/AWS::StackName/*"
    assert text_of(found["FindTheStack"]["Resource"]) == stack, "by its name: who types that may not know its id"
    function = f"arn:AWS::Partition:lambda:{at}:function:Consumer"
    assert [text_of(each) for each in found["LookAtTheFunction"]["Resource"]] == [function, f"{function}:*"]
    (mine,) = found["SwitchTheMapping"]["Condition"].values()
    assert mine == {"lambda:FunctionArn": found["LookAtTheFunction"]["Resource"]}
    by_name = {"FindTheStack", "LookAtTheFunction", "SwitchTheMapping", "LookAtTheAlarms", "ReadTheLog"}
    assert wide(found) == by_name | {"ArchiveDeadLetters", "SeeWhichQueuesAreGone", *unbounded}
    log = f"arn:AWS::Partition:logs:{at}:log-group:ConsumerLogGroup:*"
    assert text_of(found["ReadTheLog"]["Resource"]) == log


@every_variant
def test_the_operator_may_send_to_the_queue_and_what_is_restored_to_the_dead_letter_queue(variant: str) -> None:
    """What is redriven or resent goes to the queue. Where no dead-letter queue is known, no other is touched."""
    found, there = operators(variant), has_dead_letters(variant)
    sending = {"SendThemBack": "LookAtTheQueue", **({"RestoreThem": "TakeDeadLetters"} if there else {})}
    assert resources_of(found, "sqs:SendMessage") == {sid: found[other]["Resource"] for sid, other in sending.items()}
    assert ("sqs:DeleteMessage" in actions(found)) == there
