"""What an operator finds in the stack: a dashboard, alarms that say where to read on, keys, and a policy."""

from __future__ import annotations

import ast
import html
import json
import re
from functools import cache
from typing import Any

import pytest
from cfnlint.config import ConfigMixIn
from cfnlint.decode import decode_str
from cfnlint.runner import Runner

from idempotent_receiver import message_id, telemetry
from local.cloud import ROOT
from tests.template import COMPONENT, load, rendering, text_of

QUEUE = "arn:aws:sqs:us-east-1:123456789012:orders"
KEY = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
VARIANTS = {
    "standard": {},
    "fifo": {"Fifo": "true"},
    "own queue": {"QueueArn": QUEUE, "DeadLetterQueueArn": f"{QUEUE}-dead"},
    "dead letters at once": {"DeadLetterAtOnce": "true"},
    "own queue, no dead letters": {"QueueArn": QUEUE},
    "own key": {"KmsKeyArn": KEY},
    "own key and queue": {"KmsKeyArn": KEY, "QueueArn": QUEUE},
}
every_variant = pytest.mark.parametrize("variant", VARIANTS)

OPERATING = (ROOT / "docs" / "operating.md").read_text()
COLUMNS = 24
"""CloudWatch's grid."""


def resources(variant: str, **parameters: str) -> dict[str, Any]:
    return dict(rendering(**VARIANTS[variant], **parameters).rendered()["Resources"])


def properties(variant: str, name: str) -> dict[str, Any]:
    return dict(resources(variant)[name]["Properties"])


def alarms(variant: str, **parameters: str) -> dict[str, dict[str, Any]]:
    found = resources(variant, **parameters)
    return {name: each["Properties"] for name, each in found.items() if each["Type"] == "AWS::CloudWatch::Alarm"}


def widgets(variant: str) -> list[dict[str, Any]]:
    return list(json.loads(text_of(properties(variant, "Dashboard")["DashboardBody"]))["widgets"])


def operators(variant: str) -> dict[str, dict[str, Any]]:
    document = properties(variant, "OperatorPolicy")["PolicyDocument"]
    return {statement["Sid"]: statement for statement in document["Statement"]}


def consumers(variant: str) -> dict[str, dict[str, Any]]:
    (policy,) = properties(variant, "ConsumerRole")["Policies"]
    return {statement["Sid"]: statement for statement in policy["PolicyDocument"]["Statement"]}


def actions(statements: dict[str, dict[str, Any]]) -> set[str]:
    listed = [statement["Action"] for statement in statements.values()]
    return {action for each in listed for action in ([each] if isinstance(each, str) else each)}


@cache
def linter() -> Runner:
    return Runner(ConfigMixIn(regions=["us-east-1"], include_checks=["I"]))


@every_variant
def test_every_variant_is_clean_once_it_is_rendered(variant: str) -> None:
    document = json.dumps(rendering(**VARIANTS[variant]).rendered())
    template, refused = decode_str(document)
    assert refused == []
    found = linter().validate_template(template or {})
    assert [f"{match.rule.id} {match.message}" for match in found] == []


# The dashboard.


@every_variant
def test_the_dashboard_is_json_whose_widgets_do_not_overlap(variant: str) -> None:
    cells = [
        (x, y)
        for each in widgets(variant)
        for x in range(each["x"], each["x"] + each["width"])
        for y in range(each["y"], each["y"] + each["height"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < COLUMNS


@every_variant
def test_the_dashboard_shows_dead_letters_where_there_can_be_some(variant: str) -> None:
    (widget,) = [each for each in widgets(variant) if "dead letters" in each["properties"].get("title", "")]
    labelled = [line[-1]["label"] for line in widget["properties"]["metrics"]]
    theirs = [] if "no dead" in variant or variant == "own key and queue" else ["dead letters", "their age (s)"]
    assert labelled == [*theirs, "waiting", "in flight"]


@every_variant
def test_the_dashboard_begins_with_all_alarms_and_what_waits_and_ends_with_what_to_do(variant: str) -> None:
    first, second, *_, last = widgets(variant)
    assert set(first["properties"]["alarms"]) == {f"{name}.Arn" for name in alarms(variant) if "Api" not in name}
    assert second["properties"]["view"] == "singleValue"
    assert second["properties"]["metrics"][0][1] == "ApproximateAgeOfOldestMessage"
    assert last["properties"]["markdown"].startswith("## What to do")


def test_the_apis_dashboard_shows_what_its_function_counts() -> None:
    body = resources("standard", MakeApi="true")["ApiDashboard"]["Properties"]["DashboardBody"]
    lines = [line for each in json.loads(text_of(body))["widgets"] for line in each["properties"].get("metrics", [])]
    ours = {tuple(line[1:4]) for line in lines if line[0] == "IdempotentReceiver"}
    assert ours == {(name, "service", "AWS::StackName-api") for name in telemetry.CALL_COUNTS}


def test_the_dashboard_sets_durations_against_the_timeout() -> None:
    body = rendering(FunctionTimeout="120").rendered()["Resources"]["Dashboard"]["Properties"]["DashboardBody"]
    (widget,) = [
        each for each in json.loads(text_of(body))["widgets"] if "timeout" in each["properties"].get("title", "")
    ]
    assert [line["value"] for line in widget["properties"]["annotations"]["horizontal"]] == [120_000]


def test_the_dashboard_shows_every_metric_of_ours() -> None:
    lines = [line for each in widgets("standard") for line in each["properties"].get("metrics", [])]
    assert {line[1] for line in lines if line[0] == "IdempotentReceiver"} == {*telemetry.COUNTS, telemetry.DURATION}


def test_each_widget_is_explained() -> None:
    table = OPERATING.partition("\n## The dashboard\n")[2].partition("\n## ")[0]
    explained = re.findall(r"(?m)^\| ([A-Z][^|]+?) \|", table)
    titles = [each["properties"].get("title", "What to do") for each in widgets("standard")]
    assert len(explained) == len(titles)
    assert [title for title, name in zip(titles, explained, strict=True) if not title.startswith(name)] == []


def test_the_picture_is_of_the_real_widgets() -> None:
    """`make board` draws it. Names that only a deployment knows differ."""
    picture = html.unescape((ROOT / "docs" / "dashboard.svg").read_text())
    shown = re.findall(r'font-weight="bold"[^>]*>([^<]*)</text>', picture)
    drawn = resources("standard", DeadLetterArrivals="false")["Dashboard"]["Properties"]["DashboardBody"]
    made = json.loads(text_of(drawn))["widgets"]
    assert shown == [each["properties"].get("title", "") for each in made]
    for each in made:
        for line in each["properties"].get("metrics", []):
            assert f">{line[-1].get('label', line[1]) if isinstance(line[-1], dict) else line[1]}" in picture
        for arn in each["properties"].get("alarms", []):
            assert re.search(f">{arn.removesuffix('.Arn')}: (In alarm|OK)<", picture)
    size = max(each["y"] + each["height"] for each in made)
    assert f'viewBox="0 0 {24 * 45} {size * 42}"' in picture


# The alarms.


@every_variant
def test_each_alarm_names_the_section_that_says_what_to_type_what_it_means_and_what_to_do(variant: str) -> None:
    for name, alarm in alarms(variant, MakeApi="true").items():
        (section,) = re.findall(r'docs/operating\.md, "(.+)"', alarm["AlarmDescription"])
        text = OPERATING.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
        assert re.match(r"\n\*\*What to type\.\*\*[^\n]*\n\n```sh\n", text), f"{name} begins with what to type"
        assert "**What it means.**" in text, name
        assert "**What to do.**" in text, name
        assert f"[{name}](#" in OPERATING, f"the table has no {name}"


@every_variant
def test_alarms_watch_what_can_break(variant: str) -> None:
    found = alarms(variant)
    letters = {name for name in found if name.startswith("DeadLetter")}
    watched = {(each["Namespace"], each["MetricName"]) for name, each in found.items() if name not in letters}
    assert watched == {
        ("AWS/SQS", "ApproximateAgeOfOldestMessage"),
        ("IdempotentReceiver", "ClaimFailures"),
        ("IdempotentReceiver", "LostClaims"),
        ("IdempotentReceiver", "Unsettled"),
        ("AWS/Lambda", "Throttles"),
        ("AWS/Lambda", "Errors"),
    }
    has_letters = "DeadLetterQueueUrl" in rendering(**VARIANTS[variant]).rendered()["Outputs"]
    assert len(letters) == (3 if has_letters else 0)


def test_only_arrivals_are_calculated_and_only_where_they_are_wanted() -> None:
    """Local clouds refuse metric math."""
    calculated = {name for name, each in alarms("standard").items() if "Metrics" in each}
    assert calculated == set(alarms("standard")) - set(alarms("standard", DeadLetterArrivals="false"))
    assert calculated == {"DeadLetterArrivalAlarm"}


def test_alarms_are_sent_to_the_topic_that_is_named_and_else_only_show() -> None:
    topic = "arn:aws:sns:us-east-1:123456789012:alarms"
    sent = alarms("standard", AlarmTopicArn=topic).values()
    assert all(alarm["AlarmActions"] == alarm["OKActions"] == [topic] for alarm in sent)
    assert not any("AlarmActions" in alarm for alarm in alarms("standard").values())


# Keys.


def test_a_key_of_ones_own_encrypts_everything_that_is_kept() -> None:
    for queue in ("Queue", "DeadLetterQueue"):
        assert properties("own key", queue)["KmsMasterKeyId"] == KEY
        assert "SqsManagedSseEnabled" not in properties("own key", queue), "SQS takes one or the other"
        assert properties("standard", queue)["SqsManagedSseEnabled"] is True
    for table in ("Records", "History", "Accounts", "Entries"):
        wanted = {"SSEEnabled": True, "SSEType": "KMS", "KMSMasterKeyId": KEY}
        assert properties("own key", table)["SSESpecification"] == wanted
        assert "SSESpecification" not in properties("standard", table)
    assert properties("own key", "ConsumerLogGroup")["KmsKeyId"] == KEY
    assert archives_encryption("own key") == {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": KEY}
    assert archives_encryption("standard") == {"SSEAlgorithm": "AES256"}


def archives_encryption(variant: str) -> dict[str, Any]:
    (rule,) = properties(variant, "Archive")["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    return dict(rule["ServerSideEncryptionByDefault"])


@pytest.mark.parametrize(
    ("statements", "services"), [(consumers, ["sqs", "dynamodb"]), (operators, ["sqs", "dynamodb", "s3"])]
)
def test_a_key_of_ones_own_is_used_by_way_of_the_services_that_keep_something_alone(
    statements: Any, services: list[str]
) -> None:
    found = statements("own key")["UseKey"]
    assert found["Resource"] == KEY
    ways = found["Condition"]["StringEquals"]["kms:ViaService"]
    assert [text_of(way).partition(".")[0] for way in ways] == services
    assert {"kms:Decrypt", "kms:GenerateDataKey"} <= set(found["Action"])
    assert "UseKey" not in statements("standard")


# Permissions.


@pytest.mark.parametrize(
    ("parameters", "refused"),
    [
        ({"DeadLetterAtOnce": "true"}, False),
        ({"DeadLetterAtOnce": "true", "QueueArn": QUEUE, "DeadLetterQueueArn": f"{QUEUE}-dead"}, False),
        ({"DeadLetterAtOnce": "true", "QueueArn": QUEUE}, True),
        ({"QueueArn": QUEUE}, False),
    ],
)
def test_dead_letters_are_refused_at_once_where_there_is_no_queue_for_them(
    parameters: dict[str, str], refused: bool
) -> None:
    """Else the option would be on, and do nothing."""
    rule, chosen = load(COMPONENT)["Rules"]["DeadLettersNeedAQueue"], rendering(**parameters)
    (assertion,) = rule["Assertions"]
    assert (chosen.holds(rule["RuleCondition"]) and not chosen.holds(assertion["Assert"])) is refused


@every_variant
def test_neither_the_consumer_nor_the_operator_can_delete_or_forge_a_record(variant: str) -> None:
    assert not [action for action in actions(consumers(variant)) if re.match("dynamodb:.*(Delete|BatchWrite)", action)]
    writes = re.compile("dynamodb:.*(Put|Update|Delete|Write|Insert|Execute)")
    writing = {sid: each for sid, each in operators(variant).items() if any(map(writes.match, actions({sid: each})))}
    assert {sid: each["Resource"] for sid, each in writing.items()} == (
        {"KeepHistory": {"Fn::GetAtt": ["History", "Arn"]}} if has_dead_letters(variant) else {}
    )


@every_variant
def test_the_operators_policy_is_for_this_stack_alone(variant: str) -> None:
    for sid, statement in operators(variant).items():
        assert (statement["Resource"] == "*") == (sid == "FindTheMapping"), sid
        assert not [action for action in actions({sid: statement}) if "*" in action]
    assert actions({"": operators(variant)["FindTheMapping"]}) == {"lambda:ListEventSourceMappings"}
    function = "arn:${AWS::Partition}:lambda:${AWS::Region}:${AWS::AccountId}:function:${AWS::StackName}"
    own = [{"Fn::Sub": function}, {"Fn::Sub": f"{function}:*"}]
    assert operators(variant)["LookAtTheFunction"]["Resource"] == own
    (only,) = operators(variant)["SwitchTheMapping"]["Condition"].values()
    assert only == {"lambda:FunctionArn": own}
    wide = {sid for sid, each in operators(variant).items() if "*" in json.dumps(each["Resource"])}
    assert wide - {"ArchiveDeadLetters"} == {
        "LookAtTheFunction",
        "SwitchTheMapping",
        "FindTheMapping",
        "LookAtTheAlarms",
    }


@every_variant
def test_the_operator_may_send_to_both_queues(variant: str) -> None:
    """What is redriven or resent goes to the queue, and what is restored to the dead-letter queue."""
    sending = {
        sid: each["Resource"] for sid, each in operators(variant).items() if "sqs:SendMessage" in actions({sid: each})
    }
    both = {"SendThemBack": "LookAtTheQueue", "RestoreThem": "TakeDeadLetters"} if has_dead_letters(variant) else {}
    assert sending == {sid: operators(variant)[other]["Resource"] for sid, other in both.items()}


def has_dead_letters(variant: str) -> bool:
    return "DeadLetterQueueUrl" in rendering(**VARIANTS[variant]).rendered()["Outputs"]


@every_variant
def test_without_dead_letters_the_operator_may_send_and_archive_nothing(variant: str) -> None:
    allowed = {"sqs:SendMessage", "sqs:DeleteMessage", "dynamodb:BatchWriteItem", "s3:PutObject"}
    assert allowed & actions(operators(variant)) == (allowed if has_dead_letters(variant) else set())


# What is kept of dead letters.


@every_variant
def test_where_there_are_dead_letters_acts_on_them_are_kept_and_they_can_be_archived(variant: str) -> None:
    rendered = rendering(**VARIANTS[variant]).rendered()
    kept = {"History", "Archive", "ArchiveOverTlsOnly"}
    assert kept & set(rendered["Resources"]) == (kept if has_dead_letters(variant) else set())
    outputs = {name: each["Value"] for name, each in rendered["Outputs"].items()}
    told = {"HistoryTable": {"Ref": "History"}, "ArchiveBucket": {"Ref": "Archive"}}
    assert {name: outputs.get(name) for name in told} == (
        told if has_dead_letters(variant) else dict.fromkeys(told, None)
    )


def test_the_history_can_be_restored_and_has_the_keys_of_an_act() -> None:
    table = properties("standard", "History")
    assert table["BillingMode"] == "PAY_PER_REQUEST"
    assert table["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    keys = {each["KeyType"]: each["AttributeName"] for each in table["KeySchema"]}
    assert keys == {"HASH": "key", "RANGE": "act"}
    assert "TimeToLiveSpecification" not in table


def test_the_archive_is_private_versioned_and_reached_over_tls_alone() -> None:
    bucket = properties("standard", "Archive")
    assert bucket["VersioningConfiguration"] == {"Status": "Enabled"}
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    assert len(bucket["PublicAccessBlockConfiguration"]) == 4
    (statement,) = properties("standard", "ArchiveOverTlsOnly")["PolicyDocument"]["Statement"]
    assert (statement["Effect"], statement["Principal"], statement["Action"]) == ("Deny", "*", "s3:*")
    assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    assert [text_of(each) for each in statement["Resource"]] == ["Archive.Arn", "Archive.Arn/*"]


@every_variant
def test_the_consumer_knows_neither_the_history_nor_the_archive(variant: str) -> None:
    assert not re.search(r'"(History|Archive)[."]', json.dumps(consumers(variant)))


def test_the_operators_policy_is_an_output() -> None:
    assert rendering().rendered()["Outputs"]["OperatorPolicyArn"]["Value"] == {"Ref": "OperatorPolicy"}


def test_the_outputs_say_of_the_consumer_what_its_code_says() -> None:
    """`receiver` takes a message's key as the consumer does, or it would judge by the wrong record."""
    tree = ast.parse((ROOT / "src/app/consumer.py").read_text())
    (call,) = [each for each in ast.walk(tree) if isinstance(each, ast.Call) and _called(each) == "sqs_consumer"]
    given = {each.arg: each.value for each in call.keywords}
    outputs = {name: each["Value"] for name, each in rendering(RecordRetentionDays="45").rendered()["Outputs"].items()}
    assert "key" not in given
    assert outputs["KeyStrategy"] == message_id.__name__
    assert outputs["Envelope"] == ast.literal_eval(given["envelope"])
    assert "Namespace" not in outputs
    assert outputs["RecordRetentionDays"] == "45"


def _called(call: ast.Call) -> str | None:
    return call.func.id if isinstance(call.func, ast.Name) else None


def test_every_exemption_from_a_check_has_its_reason_beside_it() -> None:
    exempt = {
        (name, skip["id"]): skip["comment"]
        for name, resource in [*load()["Resources"].items(), *load(COMPONENT)["Resources"].items()]
        for skip in resource.get("Metadata", {}).get("checkov", {}).get("skip", [])
    }
    tables, the_api = {"Records", "History", "Accounts", "Entries", "Transfers"}, {"RestApi", "Api"}
    assert {name for name, _ in exempt} == {"Consumer", "Archive", *tables, *the_api}
    assert all(len(reason.split()) > 5 for reason in exempt.values())
