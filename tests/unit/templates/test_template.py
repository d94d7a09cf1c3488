"""What template.yaml promises, in every variant that its parameters make of it."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import tomllib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aws_lambda_powertools.shared import constants as powertools
from cfnlint.config import ConfigMixIn
from cfnlint.decode import decode_str
from cfnlint.runner import Runner

from idempotent_receiver.telemetry import COUNTS, DURATION
from local.cloud import ROOT
from tests.template import TEMPLATE, load, rendering, text_of, watched_by

if TYPE_CHECKING:
    from collections.abc import Iterator

OWN_QUEUE = "arn:aws:sqs:us-east-1:123456789012:orders"
VARIANTS = {
    "standard": {},
    "fifo": {"Fifo": "true"},
    "own queue": {
        "Fifo": "true",
        "QueueArn": f"{OWN_QUEUE}.fifo",
        "DeadLetterQueueArn": f"{OWN_QUEUE}-dead.fifo",
    },
    "dead letters at once": {"DeadLetterAtOnce": "true"},
    "own queue, dead letters at once": {
        "QueueArn": OWN_QUEUE,
        "DeadLetterQueueArn": f"{OWN_QUEUE}-dead",
        "DeadLetterAtOnce": "true",
    },
    "own queue, no dead letters": {"QueueArn": OWN_QUEUE},
    "own key": {"KmsKeyArn": "arn:aws:kms:us-east-1:123456789012:key/0f1e2d3c"},
    "no api": {"MakeApi": load()["Parameters"]["MakeApi"]["Default"]},
    "traced, and alarms sent": {"Tracing": "Active", "AlarmTopicArn": "arn:aws:sns:us-east-1:123456789012:alarms"},
}
MADE_HERE = ["standard", "fifo", "dead letters at once", "own key", "no api"]
ON = ("Runtime=python3.13", "Architecture=arm64")
"""What functions run on by default, as a deployment is told."""
every_variant = pytest.mark.parametrize("variant", VARIANTS)
variants_with_api = pytest.mark.parametrize("variant", [variant for variant in VARIANTS if variant != "no api"])
variants_with_queues = pytest.mark.parametrize("variant", MADE_HERE)

TABLES = ("Records", "Accounts", "Entries", "Transfers")
MADE_FOR_THE_API = {"RestApi", "Api", "ApiRole", "ApiLogGroup", "ApiOperatorPolicy", "Transfers"} | {
    *("ApiErrorsAlarm", "ApiServerErrorsAlarm", "ApiLatencyAlarm", "ApiDashboard"),
}
QUEUES = ("Queue", "DeadLetterQueue")


@cache
def rendered(variant: str) -> dict[str, Any]:
    return rendering(**{"MakeApi": "true"} | VARIANTS[variant]).rendered()


def properties(variant: str, resource: str) -> dict[str, Any]:
    return dict(rendered(variant)["Resources"][resource]["Properties"])


def mapping(variant: str) -> dict[str, Any]:
    return dict(properties(variant, "Consumer")["Events"]["Messages"]["Properties"])


def statements(variant: str) -> list[dict[str, Any]]:
    """The statements of the function's role."""
    documents = [policy["PolicyDocument"] for policy in properties(variant, "ConsumerRole")["Policies"]]
    documents.append(properties(variant, "LedgerPolicy")["PolicyDocument"])
    return [statement for document in documents for statement in document["Statement"]]


def api_statements(variant: str) -> list[dict[str, Any]]:
    """The statements of the API function's role, if there is one."""
    if variant == "no api":
        return []
    return [
        each for policy in properties(variant, "ApiRole")["Policies"] for each in policy["PolicyDocument"]["Statement"]
    ]


def operators_statements(variant: str) -> list[dict[str, Any]]:
    """The statements of an operator's policy."""
    return list(properties(variant, "OperatorPolicy")["PolicyDocument"]["Statement"])


def of_type(variant: str, type: str) -> dict[str, dict[str, Any]]:
    """The properties of all resources of a type, by name."""
    resources = rendered(variant)["Resources"].items()
    return {name: each["Properties"] for name, each in resources if each["Type"] == type}


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


@cache
def linter() -> Runner:
    return Runner(ConfigMixIn(regions=["us-east-1"], include_checks=["I"]))


def problems(text: str) -> list[str]:
    decoded, unreadable = decode_str(text)
    matches = unreadable or linter().validate_template(decoded or {})
    return [f"{match.rule.id} {match.message} at {match.path}" for match in matches]


# The whole template.


@every_variant
def test_every_variant_is_clean_once_it_is_rendered(variant: str) -> None:
    assert problems(json.dumps(rendered(variant))) == []


@every_variant
def test_every_reference_names_something_that_exists(variant: str) -> None:
    """Conditions may remove what another part refers to, and cfn-lint checks no reference within a function."""
    named = {name.partition(".")[0] for name in references({**rendered(variant), "Transform": None})}
    functions = of_type(variant, "AWS::Serverless::Function").items()
    made_by_sam = {f"{name}{event}" for name, each in functions for event in each["Events"]}
    assert {name for name in named if not name.startswith("AWS::")} <= {*rendered(variant)["Resources"], *made_by_sam}


def references(node: Any) -> Iterator[str]:
    match node:
        case {"Ref": name} | {"Fn::GetAtt": [name, *_]} | {"Fn::GetAtt": str(name)}:
            yield name
        case {"Fn::Sub": [text, dict(given)]}:
            yield from references(list(given.values()))
            yield from (name for name in re.findall(r"\$\{([^}!]+)\}", text) if name not in given)
        case {"Fn::Sub": str(text)}:
            yield from re.findall(r"\$\{([^}!]+)\}", text)
        case dict():
            assert not {key for key in node if key.startswith("Fn::If")}, "a condition was not decided"
            yield from references(list(node.values()))
        case list():
            for part in node:
                yield from references(part)


def test_unless_its_parameter_asks_for_it_nothing_of_the_api_is_made() -> None:
    assert not MADE_FOR_THE_API & set(rendered("no api")["Resources"])
    assert set(rendered("standard")["Resources"]) >= MADE_FOR_THE_API
    assert not [name for name in rendered("no api")["Outputs"] if name.startswith("Api")]


@every_variant
def test_its_outputs_are_there(variant: str) -> None:
    names = {"QueueUrl", "QueueArn", "DeadLetterQueueUrl", "RecordsTable", "ConsumerName", "ConsumerLogGroup"}
    absent = {"DeadLetterQueueUrl"} if variant == "own queue, no dead letters" else set()
    assert names & set(rendered(variant)["Outputs"]) == names - absent


# Queues.


@pytest.mark.parametrize("timeout", load()["Parameters"]["FunctionTimeout"]["AllowedValues"])
def test_a_message_stays_hidden_for_six_timeouts_and_the_longest_window(timeout: str) -> None:
    queue = rendering(FunctionTimeout=timeout).rendered()["Resources"]["Queue"]["Properties"]
    assert queue["VisibilityTimeout"] >= 6 * int(timeout) + load()["Parameters"]["BatchWindow"]["MaxValue"]
    assert queue["VisibilityTimeout"] <= 12 * 60 * 60, "SQS takes no more"


@variants_with_queues
def test_a_message_is_tried_at_least_five_times(variant: str) -> None:
    redrive = properties(variant, "Queue")["RedrivePolicy"]
    assert redrive["deadLetterTargetArn"] == {"Fn::GetAtt": ["DeadLetterQueue", "Arn"]}
    assert redrive["maxReceiveCount"] >= 5
    assert load()["Parameters"]["MaxReceiveCount"]["MinValue"] >= 5


@variants_with_queues
def test_dead_letters_outlast_messages(variant: str) -> None:
    days = [properties(variant, queue)["MessageRetentionPeriod"] / 86_400 for queue in QUEUES]
    assert days == [4, 14]


@variants_with_queues
def test_queues_are_encrypted_at_rest_and_on_the_way(variant: str) -> None:
    key = VARIANTS[variant].get("KmsKeyArn")
    encryption = {"KmsMasterKeyId": key} if key else {"SqsManagedSseEnabled": True}
    for queue in QUEUES:
        given = properties(variant, queue)
        assert {name: given[name] for name in ("KmsMasterKeyId", "SqsManagedSseEnabled") if name in given} == encryption
    policy = properties(variant, "QueuesOverTlsOnly")
    assert policy["Queues"] == [{"Ref": queue} for queue in QUEUES]
    assert policy["PolicyDocument"]["Statement"] == [
        {
            "Effect": "Deny",
            "Principal": "*",
            "Action": "sqs:*",
            "Resource": [{"Fn::GetAtt": [queue, "Arn"]} for queue in QUEUES],
            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
        }
    ]


def test_a_fifo_queue_has_a_fifo_dead_letter_queue_and_a_standard_queue_a_standard_one() -> None:
    assert [properties("fifo", queue).get("FifoQueue") for queue in QUEUES] == [True, True]
    assert [properties("standard", queue).get("FifoQueue") for queue in QUEUES] == [None, None]


def test_behind_a_queue_of_ones_own_none_is_made() -> None:
    behind = [variant for variant, parameters in VARIANTS.items() if "QueueArn" in parameters]
    assert behind
    for variant in behind:
        assert not {*QUEUES, "QueuesOverTlsOnly"} & set(rendered(variant)["Resources"])


# The function.


@every_variant
def test_the_function_has_the_name_that_alarms_metrics_and_policies_go_by(variant: str) -> None:
    consumer = properties(variant, "Consumer")
    assert consumer["FunctionName"] == {"Ref": "AWS::StackName"}
    assert consumer["Environment"]["Variables"]["POWERTOOLS_SERVICE_NAME"] == {"Ref": "AWS::StackName"}
    alarms = of_type(variant, "AWS::CloudWatch::Alarm").values()
    watched = [metric for each in alarms for metric in watched_by(each)]
    named = [each["Dimensions"][0]["Value"] for each in watched if each["Namespace"] != "AWS/SQS"]
    assert set(map(str, named)) - {str({"Ref": "Api"})} == {str({"Ref": "AWS::StackName"})}


@every_variant
def test_lambda_takes_the_answer_message_by_message(variant: str) -> None:
    assert mapping(variant)["FunctionResponseTypes"] == ["ReportBatchItemFailures"]


@every_variant
def test_it_consumes_the_queue_that_is_meant(variant: str) -> None:
    own = VARIANTS[variant].get("QueueArn")
    assert mapping(variant)["Queue"] == (own or {"Fn::GetAtt": ["Queue", "Arn"]})
    assert rendered(variant)["Outputs"]["QueueArn"]["Value"] == mapping(variant)["Queue"]


@every_variant
def test_a_fifo_mapping_stays_within_what_lambda_takes(variant: str) -> None:
    if VARIANTS[variant].get("Fifo"):
        assert mapping(variant)["BatchSize"] <= 10
        assert "MaximumBatchingWindowInSeconds" not in mapping(variant)
    else:
        assert mapping(variant)["MaximumBatchingWindowInSeconds"] >= 1, "more than ten messages need a window"


@every_variant
def test_every_function_runs_on_the_default_runtime_and_logs_where_logs_expire(variant: str) -> None:
    for name, function in of_type(variant, "AWS::Serverless::Function").items():
        assert (function["Runtime"], function["Architectures"]) == ("python3.13", ["arm64"])
        assert function["LoggingConfig"] == {"LogGroup": {"Ref": f"{name}LogGroup"}}
        assert properties(variant, f"{name}LogGroup")["RetentionInDays"] == 30


@variants_with_api
def test_nobody_calls_the_api_without_a_signature(variant: str) -> None:
    assert properties(variant, "RestApi")["Auth"] == {"DefaultAuthorizer": "AWS_IAM", "InvokeRole": "NONE"}
    for event in properties(variant, "Api")["Events"].values():
        assert event["Properties"]["RestApiId"] == {"Ref": "RestApi"}
        assert "Auth" not in event["Properties"]


@variants_with_api
def test_the_api_sends_to_the_queue_that_is_consumed_and_touches_no_record_of_a_message(variant: str) -> None:
    by_action = {action: each for each in api_statements(variant) for action in listed(each["Action"])}
    assert by_action["sqs:SendMessage"]["Resource"] == mapping(variant)["Queue"]
    own = VARIANTS[variant].get("QueueArn")
    url = properties(variant, "Api")["Environment"]["Variables"]["QUEUE_URL"]
    named = {"Fn::Sub": "https://sqs.${AWS::Region}.${AWS::URLSuffix}/" + "/".join((own or "").split(":")[4:])}
    assert url == (named if own else {"Ref": "Queue"})
    (write,) = [each for each in api_statements(variant) if "dynamodb:UpdateItem" in listed(each["Action"])]
    assert write["Resource"] == {"Fn::GetAtt": ["Records", "Arn"]}
    assert write["Condition"] == {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["transfers#*"]}}
    assert not {action for action in by_action if "Delete" in action or "Scan" in action}


@every_variant
def test_every_variable_that_is_read_is_set_and_every_one_that_is_set_is_read(variant: str) -> None:
    known_to_powertools = {value for name, value in vars(powertools).items() if name.endswith("_ENV")}
    functions = of_type(variant, "AWS::Serverless::Function")
    assert set(functions) == ({"Consumer"} if variant == "no api" else {"Consumer", "Api"})
    for function in functions.values():
        needed, wanted = variables_read(function["Handler"])
        given = set(function["Environment"]["Variables"])
        assert needed <= given
        assert given <= needed | wanted | known_to_powertools
        if "DeadLetterAtOnce" not in VARIANTS[variant]:
            wanted.discard("DEAD_LETTER_QUEUE_URL")
        assert wanted <= given


def test_every_message_is_claimed_unless_the_parameter_says_otherwise() -> None:
    def told(**parameters: str) -> str:
        consumer = rendering(**parameters).rendered()["Resources"]["Consumer"]["Properties"]
        return str(consumer["Environment"]["Variables"]["EFFECTS"])

    assert (told(), told(Effects="transaction")) == ("any", "transaction")
    assert load()["Parameters"]["Effects"]["AllowedValues"] == ["any", "transaction"]


def variables_read(handler: str) -> tuple[set[str], set[str]]:
    """The variables that a composition root reads: the required ones and the optional ones."""
    needed, wanted = set(), set()
    path = ROOT / "src" / Path(*handler.split(".")[:-1]).with_suffix(".py")
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Subscript(value=ast.Attribute(attr="environ"), slice=ast.Constant(value=str(name))):
                needed.add(name)
            case ast.Call(
                func=ast.Attribute(value=ast.Attribute(attr="environ"), attr="get"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                wanted.add(name)
    return needed, wanted


@every_variant
def test_dead_letters_are_sent_where_the_role_may_send_them(variant: str) -> None:
    url = properties(variant, "Consumer")["Environment"]["Variables"].get("DEAD_LETTER_QUEUE_URL")
    resources = [each["Resource"] for each in statements(variant) if "sqs:SendMessage" in listed(each["Action"])]
    own = VARIANTS[variant].get("DeadLetterQueueArn")
    if "DeadLetterAtOnce" not in VARIANTS[variant]:
        assert (url, resources) == (None, []), "SQS moves them"
    elif own:
        assert url == {"Fn::Sub": "https://sqs.${AWS::Region}.${AWS::URLSuffix}/" + "/".join(own.split(":")[4:])}
        assert resources == [own]
    else:
        assert url == {"Ref": "DeadLetterQueue"}
        assert resources == [{"Fn::GetAtt": ["DeadLetterQueue", "Arn"]}]


@pytest.mark.parametrize(
    ("said", "passed"),
    [
        ((), ["LogRetentionDays=7", *ON]),
        (("ARCHITECTURE=x86_64",), ["LogRetentionDays=7", "Runtime=python3.13", "Architecture=x86_64"]),
        (("RUNTIME=python3.14",), ["LogRetentionDays=7", "Runtime=python3.14", "Architecture=arm64"]),
        (("ARCHITECTURE=arm64", "ENV=prod"), ["LogRetentionDays=90", "MaximumConcurrency=50", *ON]),
        (("WORKFLOW=1",), ["LogRetentionDays=7", *ON, "$consumers"]),
        (
            ("WORKFLOW=1", "ARCHITECTURE=x86_64"),
            ["LogRetentionDays=7", "Runtime=python3.13", "Architecture=x86_64", "$consumers"],
        ),
    ],
)
def test_a_deployments_parameters_are_added_to_samconfigs(said: tuple[str, ...], passed: list[str]) -> None:
    """On their own they would replace them."""
    assert told_to("sam deploy", *said) == passed
    assert told_to("sam build", *said) == [each for each in passed if each != "$consumers"], "it is built as deployed"


@pytest.mark.parametrize("before_it", ["", "[default.deploy.parameters]\n"], ids=["for all", "for deploy alone"])
def test_what_samconfig_says_a_function_runs_on_is_built_and_deployed(tmp_path: Path, before_it: str) -> None:
    for name in ("Makefile", ".tools", "requirements"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "samconfig.toml").write_text(
        f'[default.global.parameters]\n{before_it}parameter_overrides = "Architecture=x86_64 Fifo=true"\n'
    )
    for command in ("sam build", "sam deploy"):
        assert told_to(command, folder=tmp_path) == ["Fifo=true", "Runtime=python3.13", "Architecture=x86_64"]


def told_to(command: str, *said: str, folder: Path = ROOT) -> list[str]:
    """The parameters that `make deploy` would hand to this command."""
    chosen = ("MAKEFLAGS", "RUNTIME", "ARCHITECTURE", "WORKFLOW")
    environment = {name: value for name, value in os.environ.items() if name not in chosen}
    asked = ["make", "--dry-run", "deploy", *said]
    told = subprocess.run(asked, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout
    (line,) = [line for line in told.splitlines() if command in line]
    _, _, overrides = line.partition("--parameter-overrides ")
    return overrides.removesuffix(" && \\").split()


@pytest.mark.parametrize("environment", ["default", "staging", "prod"])
@pytest.mark.parametrize("file", ["samconfig.toml", "deploy/samconfig.toml"])
def test_every_environment_names_the_same_runtime_for_build_and_deployment(file: str, environment: str) -> None:
    """A parameter that a deployment omits keeps its old value, whatever was built."""
    tables = tomllib.loads((ROOT / file).read_text())[environment]
    assert set(ON) <= set(tables["global"]["parameters"]["parameter_overrides"])
    assert not [
        name
        for name, each in tables.items()
        if not name.startswith(("global", "local_")) and "parameter_overrides" in each["parameters"]
    ]


@pytest.mark.parametrize("path", [TEMPLATE, ROOT / "deploy/workflow.yaml"], ids=lambda path: path.stem)
def test_every_runtime_and_architecture_has_its_makefile(path: Path) -> None:
    """SAM passes a makefile none of a function's parameters; it only chooses the Makefile."""
    template = load(path)
    parameters = template["Parameters"]
    for function in (each for each in template["Resources"].values() if each["Type"] == "AWS::Serverless::Function"):
        found = function["Metadata"]["ContextPath"]["Fn::Sub"].partition("${")
        assert (path.parent / found[0]).resolve() == ROOT / "platforms"
        assert "".join(found[1:]) == "${Runtime}-${Architecture}"
    assert {each.parent.name for each in (ROOT / "platforms").glob("*/Makefile")} == {
        f"{runtime}-{architecture}"
        for runtime in parameters["Runtime"]["AllowedValues"]
        for architecture in parameters["Architecture"]["AllowedValues"]
    }
    assert [parameters[each.partition("=")[0]]["Default"] for each in ON] == [each.partition("=")[2] for each in ON]


@pytest.mark.parametrize("workflow", ["", "WORKFLOW=1"])
def test_an_environment_that_samconfig_does_not_have_is_refused_before_anything_is_built(workflow: str) -> None:
    asked = ["make", "--dry-run", "deploy", "ENV=nowhere", *workflow.split()]
    told = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    assert told.returncode != 0
    assert "has no table nowhere: ENV is one of default staging prod" in told.stderr
    assert "sam build" not in told.stdout


# Tables.


@pytest.mark.parametrize("table", TABLES)
def test_a_table_is_paid_by_request_and_can_be_restored_to_any_second(table: str) -> None:
    assert properties("standard", table)["BillingMode"] == "PAY_PER_REQUEST"
    assert properties("standard", table)["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}


@pytest.mark.parametrize("table", TABLES)
def test_a_key_of_ones_own_encrypts_the_tables_and_the_log(table: str) -> None:
    key = VARIANTS["own key"]["KmsKeyArn"]
    encryption = {"SSEEnabled": True, "SSEType": "KMS", "KMSMasterKeyId": key}
    assert properties("own key", table)["SSESpecification"] == encryption
    assert properties("own key", "ConsumerLogGroup")["KmsKeyId"] == key
    assert "SSESpecification" not in properties("standard", table)


def test_records_expire_and_the_ledger_does_not() -> None:
    expiry = {"AttributeName": "expiration", "Enabled": True}
    assert properties("standard", "Records")["TimeToLiveSpecification"] == expiry
    assert not any("TimeToLiveSpecification" in properties("standard", table) for table in TABLES[1:])


@every_variant
def test_no_update_of_the_stack_drops_records_ledger_or_messages(variant: str) -> None:
    stateful = {"AWS::DynamoDB::Table", "AWS::SQS::Queue", "AWS::S3::Bucket", "AWS::S3::BucketPolicy"}
    kept = {name: each for name, each in rendered(variant)["Resources"].items() if each["Type"] in stateful}
    assert set(TABLES) - (MADE_FOR_THE_API if variant == "no api" else set()) <= set(kept)
    for each in kept.values():
        assert (each.get("DeletionPolicy"), each.get("UpdateReplacePolicy")) == ("Retain", "Retain")


# Permissions. End-to-end tests check that they suffice; these check that they are narrow.


@every_variant
def test_no_permission_has_a_wildcard_but_for_x_ray_which_knows_no_resources(variant: str) -> None:
    traced = VARIANTS[variant].get("Tracing") == "Active"
    for allowed in (statements(variant), api_statements(variant)):
        wide = [each.get("Sid") for each in allowed if "*" in json.dumps(each["Resource"])]
        assert wide == (["Trace"] if traced and allowed else [])
    for name, function in of_type(variant, "AWS::Serverless::Function").items():
        assert "ManagedPolicyArns" not in properties(variant, f"{name}Role"), "all of it is written out"
        assert "Policies" not in function


@every_variant
def test_every_action_is_named(variant: str) -> None:
    for statement in statements(variant) + api_statements(variant) + operators_statements(variant):
        assert statement["Effect"] == "Allow"
        assert not [action for action in listed(statement["Action"]) if "*" in action or "?" in action]
        assert not {"NotAction", "NotResource", "NotPrincipal"} & set(statement)


@every_variant
def test_a_role_reads_only_the_queue_it_consumes(variant: str) -> None:
    (queue,) = [each["Resource"] for each in statements(variant) if "sqs:ReceiveMessage" in listed(each["Action"])]
    assert queue == mapping(variant)["Queue"]


# Alarms.


@every_variant
def test_an_alarm_watches_each_queue_by_its_name(variant: str) -> None:
    own = VARIANTS[variant]
    alarms = of_type(variant, "AWS::CloudWatch::Alarm").items()
    watched = {
        (name, str(metric["Dimensions"][0]["Value"]))
        for name, each in alarms
        for metric in watched_by(each)
        if metric["Namespace"] == "AWS/SQS"
    }
    queue: Any = {"Fn::GetAtt": ["Queue", "QueueName"]}
    dead: Any = {"Fn::GetAtt": ["DeadLetterQueue", "QueueName"]}
    if "QueueArn" in own:
        queue, dead = own["QueueArn"].rpartition(":")[2], own.get("DeadLetterQueueArn", "").rpartition(":")[2]
    on_dead = ("DeadLetterAlarm", "DeadLetterArrivalAlarm", "DeadLetterAgeAlarm") if dead else ()
    assert watched == {("OldestMessageAlarm", str(queue)), *((name, str(dead)) for name in on_dead)}


def test_alarms_are_sent_to_the_topic_that_is_named() -> None:
    topic = VARIANTS["traced, and alarms sent"]["AlarmTopicArn"]
    alarms = of_type("traced, and alarms sent", "AWS::CloudWatch::Alarm")
    assert {"DeadLetterAlarm", "OldestMessageAlarm"} <= set(alarms)
    for name, alarm in alarms.items():
        assert alarm["AlarmActions"] == [topic]
        assert "AlarmActions" not in properties("standard", name)


@every_variant
def test_alarms_and_dashboard_show_metrics_that_the_consumer_sends(variant: str) -> None:
    widgets = json.loads(text_of(properties(variant, "Dashboard")["DashboardBody"]))["widgets"]
    namespace = load()["Parameters"]["MetricsNamespace"]["Default"]
    shown = [metric for widget in widgets for metric in widget["properties"].get("metrics", [])]
    alarms = of_type(variant, "AWS::CloudWatch::Alarm").values()
    names = {metric[1] for metric in shown if metric[0] == namespace}
    names |= {alarm["MetricName"] for alarm in alarms if alarm.get("Namespace") == namespace}
    assert {"Completed", "LostClaims"} <= names <= {*COUNTS, DURATION}
    dimensions = {tuple(metric[2:4]) for metric in shown if metric[0] == namespace}
    assert dimensions == {("service", "AWS::StackName")}, "as POWERTOOLS_SERVICE_NAME has it"


def test_the_deployed_api_has_no_default_caller() -> None:
    """LOCAL_CALLER is declared because `sam local` passes only declared variables; only the local cloud sets it."""
    assert [line.strip() for line in (ROOT / "template.yaml").read_text().splitlines() if "LOCAL_CALLER" in line] == [
        "LOCAL_CALLER: !Ref AWS::NoValue"
    ]
