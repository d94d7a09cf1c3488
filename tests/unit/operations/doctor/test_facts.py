"""The facts that doctor judges: what is asked of AWS, word for word, and what becomes of each refusal."""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import jmespath
import pytest
from botocore import xform_name
from botocore.exceptions import ClientError, EndpointConnectionError
from botocore.session import get_session

from harness.cloud import ROOT
from idempotent_receiver.operations.account import UsageError
from idempotent_receiver.operations.description import DAY_SECONDS, Description
from idempotent_receiver.operations.doctor.asking import Missing, NotAnswered
from idempotent_receiver.operations.doctor.facts import DeployedConsumer, DeployedFunction, Facts, consumer_of, gather
from idempotent_receiver.operations.doctor.roles import ON_ANY_TABLE, SEND_MESSAGE

ACCOUNT = "123456789012"


def arn(service: str, name: str) -> str:
    return f"arn:aws:{service}:us-east-1:{ACCOUNT}:{name}"


QUEUE, DEAD, TABLE = arn("sqs", "orders"), arn("sqs", "orders-dead"), arn("dynamodb", "table/records")
LIVE, OTHER, KEY = arn("lambda", "function:orders:live"), arn("lambda", "function:audit"), arn("kms", "key/1")
ROLE, TASK_ROLE = (f"arn:aws:iam::{ACCOUNT}:role/{name}" for name in ("orders", "task"))
STREAM = arn("logs", "log-group:/aws/lambda/orders:log-stream:any")
INSTANCES = {"CapacityProviderArn": "own"}
VARIABLES = {"RECORDS_TABLE": "records", "DEAD_LETTER_QUEUE_URL": "https://dead", "RECORD_RETENTION_DAYS": "45"}
ACCOUNT_LIMIT = {"ConcurrentExecutions": 10, "UnreservedConcurrentExecutions": 10}
CONFIGURATION = {
    "FunctionName": "orders",
    "FunctionArn": LIVE,
    "Role": ROLE,
    "Environment": {"Variables": VARIABLES},
    "CapacityProviderConfig": {"LambdaManagedInstancesCapacityProviderConfig": INSTANCES},
}
MAPPING = {"EventSourceArn": QUEUE, "FunctionArn": LIVE, "State": "Enabled"}
READS = {"EventSourceArn": QUEUE, "FunctionArn": OTHER, "State": "Enabled"}
ATTRIBUTES = {"QueueArn": QUEUE, "RedrivePolicy": json.dumps({"deadLetterTargetArn": DEAD}), "KmsMasterKeyId": KEY}
WORKER = {"name": "worker", "environment": [{"name": name, "value": value} for name, value in VARIABLES.items()]}
TASK = {
    "taskDefinitionArn": arn("ecs", "task-definition/orders:7"),
    "taskRoleArn": TASK_ROLE,
    "containerDefinitions": [{"name": "sidecar"}, WORKER],
}
OWN_KEY = {"Arn": KEY, "KeyManager": "CUSTOMER", "KeyState": "Enabled"}
TOTALS, INTERFACE = arn("dynamodb", "table/totals"), arn("ec2", "network-interface/any")


def through(service: str) -> dict[str, Any]:
    """What a condition on the service that uses a key compares."""
    value = f"{service}.us-east-1.amazonaws.com"
    return {"ContextKeyName": "kms:ViaService", "ContextKeyType": "string", "ContextKeyValues": [value]}


RECORDS = [f"dynamodb:{each}" for each in ("PartiQLInsert", "PartiQLUpdate", "BatchGetItem", "PutItem", "UpdateItem")]
FROM_SQS = [f"sqs:{each}" for each in ("ReceiveMessage", "DeleteMessage", "GetQueueAttributes")]
NEEDS: dict[str, list[str]] = {
    QUEUE: [*FROM_SQS, "sqs:ChangeMessageVisibility"],
    TABLE: RECORDS,
    DEAD: ["sqs:SendMessage"],
    STREAM: ["logs:CreateLogStream", "logs:PutLogEvents"],
    arn("ecs", "task/cluster/any"): ["ecs:UpdateTaskProtection"],
    INTERFACE: [
        *("ec2:CreateNetworkInterface", "ec2:DeleteNetworkInterface"),
        *("ec2:AssignPrivateIpAddresses", "ec2:UnassignPrivateIpAddresses"),
    ],
}
KEYS_NEEDS = {
    "sqs": [["kms:Decrypt"], ["kms:Decrypt", "kms:GenerateDataKey"]],  # of what is received, and of what is sent
    "dynamodb": [
        [f"kms:{each}" for each in ("Decrypt", "GenerateDataKey", "Encrypt")]
        + [f"kms:{each}" for each in ("DescribeKey", "ReEncryptFrom", "ReEncryptTo")]
    ],
}


@cache
def operations_of(service: str) -> set[str]:
    """What a service can be asked, by the names of boto3's methods."""
    return {xform_name(each) for each in get_session().get_service_model(service).operation_names}


class Aws:
    """Answers exactly what it is asked here, refuses what is in `refused`, and knows nothing else."""

    def __init__(self, *refused: str, region_of_iam: str = "https://iam.amazonaws.com", **changed: Any) -> None:
        self.refused, self.endpoint_url, self.denies = refused, region_of_iam, changed.pop("denies", ())
        self.members = changed.pop("members", ["CapacityProviderConfig"])
        self.judgements: list[tuple[str, list[str], list[Any]]] = []
        with_metadata = {"ResponseMetadata": {}}
        self.answers: dict[str, Any] = {
            "list_event_source_mappings FunctionName=orders": {
                "EventSourceMappings": [MAPPING, {**MAPPING, "EventSourceArn": "arn:aws:kinesis:s"}]
            },
            f"list_event_source_mappings EventSourceArn={QUEUE}": {
                "EventSourceMappings": [READS, {**READS, "State": "Disabled"}]
            },
            f"list_event_source_mappings EventSourceArn={DEAD}": {"EventSourceMappings": [READS]},
            "get_event_source_mapping UUID=m-1": MAPPING | with_metadata,
            f"get_function_configuration FunctionName={LIVE}": CONFIGURATION | with_metadata,
            f"get_function_configuration FunctionName={OTHER}": {"FunctionName": "audit", **with_metadata},
            "get_function_concurrency FunctionName=orders": {"ReservedConcurrentExecutions": 10},
            "get_function_concurrency FunctionName=audit": {},
            "get_account_settings": {"AccountLimit": ACCOUNT_LIMIT, "AccountUsage": {"FunctionCount": 2}},
            f"describe_key KeyId={KEY}": {"KeyMetadata": OWN_KEY},
            f"get_queue_url QueueName=orders QueueOwnerAWSAccountId={ACCOUNT}": {"QueueUrl": "o"},
            f"get_queue_url QueueName=orders-dead QueueOwnerAWSAccountId={ACCOUNT}": {"QueueUrl": "d"},
            "get_queue_attributes QueueUrl=o AttributeNames=['All']": {"Attributes": ATTRIBUTES},
            "get_queue_attributes QueueUrl=d AttributeNames=['All']": {"Attributes": {"QueueArn": DEAD}},
            "describe_table TableName=records": {"Table": {"TableName": "records", "TableArn": TABLE}},
            "describe_time_to_live TableName=records": {"TimeToLiveDescription": {"AttributeName": "expiration"}},
            "describe_alarms AlarmTypes=['MetricAlarm']": {"MetricAlarms": [{"MetricName": "Errors"}]},
            "describe_services cluster=cluster services=['service']": {"services": [{"taskDefinition": "orders:7"}]},
            "describe_task_definition taskDefinition=orders:7": {"taskDefinition": TASK},
            **{operation.replace("_of_", " ", 1): answer for operation, answer in changed.items()},
        }

    def client(self, service: str) -> Any:
        shape = SimpleNamespace(output_shape=SimpleNamespace(members=self.members))
        model = SimpleNamespace(operation_model=lambda name: {"GetFunctionConfiguration": shape}[name])
        meta = SimpleNamespace(endpoint_url=self.endpoint_url, service_model=model)

        def pages(operation: str) -> Any:
            assert operation in operations_of(service)
            return SimpleNamespace(
                paginate=lambda **asked: SimpleNamespace(
                    search=lambda path: jmespath.search(path, self.answer(operation, asked))
                )
            )

        class Client:
            def __getattr__(client, operation: str) -> Any:  # noqa: N805  # `self` is the cloud
                assert operation in operations_of(service)
                return lambda **asked: self.answer(operation, asked)

        made = Client()
        made.meta, made.get_paginator = meta, pages  # type: ignore[attr-defined]
        return made

    def answer(self, operation: str, asked: dict[str, Any]) -> Any:
        if operation in self.refused:
            raise ClientError({"Error": {"Code": "AccessDenied"}}, operation)
        if operation == "simulate_principal_policy":
            return self.judged(**asked)
        key = " ".join([operation, *(f"{name}={value}" for name, value in asked.items())])
        found = self.answers.get(key, EndpointConnectionError(endpoint_url=key))
        if isinstance(found, Exception):
            raise found
        return found

    def judged(self, PolicySourceArn: str, ActionNames: Any, ResourceArns: Any, ContextEntries: Any) -> Any:  # noqa: N803
        (resource,) = ResourceArns
        self.judgements.append((resource, ActionNames, list(ContextEntries)))
        assert PolicySourceArn == (TASK_ROLE if resource.startswith("arn:aws:ecs") else PolicySourceArn)
        self.role = PolicySourceArn
        decisions = [(each, "implicitDeny" if self.denied(each, resource) else "allowed") for each in ActionNames]
        return {"EvaluationResults": [{"EvalActionName": name, "EvalDecision": each} for name, each in decisions]}

    def denied(self, action: str, resource: str) -> bool:
        return action in self.denies or resource in self.denies


BY_NAME = DeployedConsumer(function="orders")
BY_STACK = DeployedConsumer(function="orders", mapping="m-1")
WORKERS = DeployedConsumer(queue=QUEUE, cluster="cluster", service="service", table="records")
EXPECTED = Facts(
    functions=[DeployedFunction(configuration=CONFIGURATION, instances=INSTANCES, reserved=10, mapping=MAPPING)],
    account=ACCOUNT_LIMIT,
    container=None,
    settings=VARIABLES,
    queue=ATTRIBUTES,
    dead_letter_queue={"QueueArn": DEAD},
    keys={KEY: OWN_KEY},
    readers=["audit"],
    dead_letter_readers=["audit"],
    named_dead_letter_queue=None,
    named_table=None,
    table={"TableName": "records", "TableArn": TABLE},
    time_to_live={"AttributeName": "expiration"},
    denied=[],
    denied_to_the_handler={},
    alarms=[{"MetricName": "Errors"}],
    retention_seconds=45 * DAY_SECONDS,
)
OF_WORKERS = replace(
    EXPECTED,
    named_table="records",
    container=WORKER,
    functions=[DeployedFunction(configuration={"FunctionName": "audit"}, instances=None, reserved=None, mapping=READS)],
)


@pytest.mark.parametrize(
    ("consumer", "expected", "role"),
    [(BY_NAME, EXPECTED, ROLE), (BY_STACK, EXPECTED, ROLE), (WORKERS, OF_WORKERS, TASK_ROLE)],
    ids=["a function by its name", "by its stack", "workers"],
)
def test_what_aws_says_is_what_is_judged(consumer: DeployedConsumer, expected: Facts, role: str) -> None:
    aws = Aws()
    assert gather(aws.client, consumer) == expected
    assert aws.role == role


def unavailable(found: Facts) -> dict[str, str]:
    """What is not known, and why."""
    facts = {each.name: getattr(found, each.name) for each in fields(Facts)}
    if not isinstance(found.functions, NotAnswered):
        (function,) = found.functions
        facts |= {each.name: getattr(function, each.name) for each in fields(DeployedFunction)}
    for name, several in (("denied", found.denied), ("keys", found.keys)):
        if not isinstance(several, NotAnswered):
            of = several.values() if isinstance(several, dict) else several
            facts[name] = next((each for each in of if isinstance(each, NotAnswered)), None)
    return {name: str(value) for name, value in facts.items() if isinstance(value, NotAnswered)}


@pytest.mark.parametrize(
    ("consumer", "operation", "missing"),
    [
        (
            BY_NAME,
            "list_event_source_mappings",
            "mapping queue dead_letter_queue keys denied readers dead_letter_readers",
        ),
        (BY_NAME, "get_function_concurrency", "reserved"),
        (BY_NAME, "get_account_settings", "account"),
        (BY_NAME, "get_queue_attributes", "queue dead_letter_queue keys denied readers dead_letter_readers"),
        (BY_NAME, "describe_table", "table time_to_live denied denied_to_the_handler"),
        (BY_NAME, "describe_time_to_live", "time_to_live"),
        (BY_NAME, "simulate_principal_policy", "denied"),
        (BY_NAME, "describe_key", "denied keys"),
        (BY_NAME, "describe_alarms", "alarms"),
        (WORKERS, "list_event_source_mappings", "functions readers dead_letter_readers"),
        (WORKERS, "get_function_configuration", "configuration instances reserved"),
        (WORKERS, "describe_services", "container settings denied denied_to_the_handler retention_seconds"),
        (WORKERS, "describe_task_definition", "container settings denied denied_to_the_handler retention_seconds"),
    ],
)
def test_what_aws_refuses_leaves_what_rests_on_it_unknown_and_nothing_else(
    consumer: DeployedConsumer, operation: str, missing: str
) -> None:
    aws = Aws(operation)
    if operation == "list_event_source_mappings" and consumer is BY_NAME:
        aws.answers["get_function_configuration FunctionName=orders"] = CONFIGURATION
    found = unavailable(gather(aws.client, consumer))
    assert set(found) == set(missing.split())
    assert {why for name, why in found.items() if name != "retention_seconds"} == {f"{operation} failed: AccessDenied"}


def without(document: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in names}


CONFIGURED = f"get_function_configuration_of_FunctionName={LIVE}"
BARE = {CONFIGURED: without(CONFIGURATION, "Environment")}
TASKS = "describe_task_definition_of_taskDefinition=orders:7"
TWO = {
    "list_event_source_mappings_of_FunctionName=orders": {"EventSourceMappings": [MAPPING] * 2},
    "get_function_configuration_of_FunctionName=orders": CONFIGURATION,
}
ELSEWHERE = "http://127.0.0.1"


@pytest.mark.parametrize(
    ("consumer", "aws", "fact", "says"),
    [
        (replace(WORKERS, service=None), {}, "container", r"^the task can be read only for a stack .*: give --stack$"),
        (
            WORKERS,
            {"describe_services_of_cluster=cluster services=['service']": {"services": []}},
            "container",
            "cluster cluster has no service service",
        ),
        (WORKERS, {TASKS: {"taskDefinition": TASK | {"containerDefinitions": []}}}, "container", "no container worker"),
        (WORKERS, {TASKS: {"taskDefinition": without(TASK, "taskRoleArn")}}, "denied", "the task has no task role"),
        (BY_NAME, TWO, "mapping", "^orders consumes 2 queues, .*: use --stack, or --function NAME:ALIAS if"),
        (BY_NAME, {"members": []}, "instances", "upgrade boto3"),
        (BY_NAME, BARE, "table", "^RECORDS_TABLE is not in the environment: name the table with --table$"),
        (BY_NAME, BARE, "retention_seconds", "^RECORD_RETENTION_DAYS is not known from .*: give --consumer$"),
        (
            BY_NAME,
            {"denies": ["kms:Decrypt"], "region_of_iam": ELSEWHERE},
            "denied",
            f"an emulator cannot tell .* {KEY}$",
        ),
        (replace(BY_NAME, table="none"), BARE, "table", "EndpointConnectionError"),
    ],
)
def test_what_cannot_be_known_is_named_with_its_remedy(
    consumer: DeployedConsumer, aws: Any, fact: str, says: str
) -> None:
    assert re.search(says, unavailable(gather(Aws(**aws).client, consumer))[fact])


def gone(code: str, operation: str) -> ClientError:
    return ClientError({"Error": {"Code": code}}, operation)


OTHER_RECORDS = {"TableName": "named", "TableArn": arn("dynamodb", "table/named")}
NAMED = replace(BY_NAME, table="named", dead_letter_queue="https://dead")


def test_the_table_that_is_looked_at_is_the_one_that_the_consumer_reads() -> None:
    """Its RECORDS_TABLE, whatever the stack or --table names; that is kept beside it, to be compared."""
    found = gather(Aws().client, NAMED)
    assert (found.table, found.named_table) == (EXPECTED.table, "named")
    assert found.named_dead_letter_queue == "https://dead"

    without_a_variable = Aws(**{**BARE, "describe_table_of_TableName=named": {"Table": OTHER_RECORDS}})
    assert gather(without_a_variable.client, NAMED).table == OTHER_RECORDS
    by_queue = gather(Aws().client, replace(WORKERS, service=None))
    assert (by_queue.table, by_queue.named_table) == (EXPECTED.table, None), "there are no variables to compare with"


@pytest.mark.parametrize(
    ("fact", "asked", "error", "says"),
    [
        ("table", "describe_table_of_TableName=records", "ResourceNotFoundException", "there is no table records"),
        *(
            (
                "dead_letter_queue",
                f"get_queue_url_of_QueueName=orders-dead QueueOwnerAWSAccountId={ACCOUNT}",
                code,
                f"there is no queue {DEAD}",
            )
            for code in ("QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue")
        ),
    ],
)
def test_what_does_not_exist_is_known_to_be_missing(fact: str, asked: str, error: str, says: str) -> None:
    """Which is a finding, where a refusal is none."""
    found = getattr(gather(Aws(**{asked: gone(error, "Ask")}).client, BY_NAME), fact)
    assert (type(found), str(found)) == (Missing, says)


# What the role may.


def deployed(configuration: Any = (), queue: Any = (), dead: Any = (), table: Any = (), **changed: Any) -> Aws:
    """The cloud with other attributes of what is deployed there."""
    return Aws(
        **{
            CONFIGURED: CONFIGURATION | dict(configuration),
            "get_queue_attributes_of_QueueUrl=o AttributeNames=['All']": {"Attributes": ATTRIBUTES | dict(queue)},
            "get_queue_attributes_of_QueueUrl=d AttributeNames=['All']": {
                "Attributes": {"QueueArn": DEAD, **dict(dead)}
            },
            "describe_table_of_TableName=records": {
                "Table": {"TableName": "records", "TableArn": TABLE, **dict(table)}
            },
        }
        | changed
    )


def judged(aws: Aws, consumer: DeployedConsumer = BY_NAME) -> list[tuple[str, list[str]]]:
    """What IAM is asked about the role, in order."""
    assert gather(aws.client, consumer).denied == []
    return [(resource, actions) for resource, actions, _ in aws.judgements]


def needs(*resources: str) -> list[tuple[str, list[str]]]:
    return [(resource, NEEDS[resource]) for resource in resources]


VPC = {"VpcConfig": {"SubnetIds": ["subnet-1"], "VpcId": "vpc-1"}}
DESCRIBE = ("*", ["ec2:DescribeNetworkInterfaces", "ec2:DescribeSubnets"])
TRACE = ("*", ["xray:PutTraceSegments", "xray:PutTelemetryRecords"])
OF_ALL = needs(QUEUE, TABLE, DEAD, STREAM)
TO_RECEIVE, TO_SEND = [(KEY, each) for each in KEYS_NEEDS["sqs"]]
OF_THE_TABLE = (KEY, KEYS_NEEDS["dynamodb"][0])
ENCRYPTED = {"SSEDescription": {"Status": "ENABLED", "SSEType": "KMS", "KMSMasterKeyArn": KEY}}
AWS_MANAGED = {f"describe_key_of_KeyId={KEY}": {"KeyMetadata": {"Arn": KEY, "KeyManager": "AWS"}}}
NAMES_OF_A_KEY = (KEY, "1234abcd", "alias/own", arn("kms", "alias/own"))
"""As SQS takes them: its ARN, its id, and an alias by name or ARN."""
OF_AWS = ("alias/aws/sqs", arn("kms", "alias/aws/sqs"))
PLAIN = {"KmsMasterKeyId": None}


def encrypted_by(name: str, answer: Any = None) -> Aws:
    """The cloud whose queue has a key of this name."""
    described = {"KeyMetadata": OWN_KEY} if answer is None else answer
    return deployed(queue={"KmsMasterKeyId": name}, **{f"describe_key_of_KeyId={name}": described})


BY_ITSELF = {"Environment": {"Variables": without(VARIABLES, "DEAD_LETTER_QUEUE_URL")}}


@pytest.mark.parametrize(
    ("aws", "expected"),
    [
        (deployed(), [*OF_ALL, TO_RECEIVE]),
        (deployed(queue=PLAIN), OF_ALL),
        (deployed({"VpcConfig": {"SubnetIds": []}, "TracingConfig": {"Mode": "PassThrough"}}, PLAIN), OF_ALL),
        (deployed(VPC, PLAIN), [*OF_ALL, DESCRIBE, *needs(INTERFACE)]),
        (deployed({"TracingConfig": {"Mode": "Active"}}, PLAIN), [*OF_ALL, TRACE]),
        (deployed(BY_ITSELF, PLAIN, dead={"KmsMasterKeyId": KEY}), needs(QUEUE, TABLE, STREAM)),
        (deployed(queue={**PLAIN, "RedrivePolicy": None}), needs(QUEUE, TABLE, STREAM)),
        (deployed(queue=PLAIN, dead={"KmsMasterKeyId": KEY}), [*OF_ALL, TO_SEND]),
        (deployed(table=ENCRYPTED), [*OF_ALL, TO_RECEIVE, OF_THE_TABLE]),
        # A key of AWS's own is everybody's in the account: no policy of the role speaks of it.
        (deployed(queue=PLAIN, table=ENCRYPTED, **AWS_MANAGED), OF_ALL),
        *((deployed(queue={"KmsMasterKeyId": name}), OF_ALL) for name in OF_AWS),
        *((encrypted_by(name), [*OF_ALL, TO_RECEIVE]) for name in NAMES_OF_A_KEY),
    ],
)
def test_iam_is_asked_for_all_that_the_consumer_needs_and_no_more(aws: Aws, expected: Any) -> None:
    assert judged(aws) == expected


def test_a_task_needs_what_its_worker_asks_and_no_log() -> None:
    itself = arn("ecs", "task/cluster/any")
    assert judged(deployed(queue=PLAIN), WORKERS) == needs(QUEUE, TABLE, DEAD, itself)


def test_the_log_is_where_the_function_says() -> None:
    own = judged(deployed({"LoggingConfig": {"LogGroup": "own"}}))
    assert (arn("logs", "log-group:own:log-stream:any"), NEEDS[STREAM]) in own


@pytest.mark.parametrize(
    ("consumer", "given"),
    [(BY_NAME, []), (replace(BY_NAME, stated=Description(namespace="refunds")), ["refunds#any"])],
)
def test_a_role_is_judged_by_a_record_of_its_namespace(consumer: DeployedConsumer, given: list[str]) -> None:
    """One that may touch only its own records is denied a request that names none of them."""
    aws = deployed(queue=PLAIN)
    gather(aws.client, consumer)
    leading = {"ContextKeyName": "dynamodb:LeadingKeys", "ContextKeyType": "stringList", "ContextKeyValues": given}
    assert {resource: context for resource, _, context in aws.judgements if context} == (
        {TABLE: [leading]} if given else {}
    )


def test_a_key_is_asked_for_in_the_name_of_the_service_that_uses_it() -> None:
    aws = deployed(table=ENCRYPTED)
    gather(aws.client, BY_NAME)
    assert [context for resource, _, context in aws.judgements if resource == KEY] == [
        [through("sqs")],
        [through("dynamodb")],
    ]


def test_every_action_that_a_role_may_lack_is_documented() -> None:
    document = (ROOT / "docs" / "operating.md").read_text()
    section = document.partition("\n### What the role needs\n")[2].partition("\n## ")[0]
    listed = [*NEEDS.values(), *KEYS_NEEDS["sqs"], *KEYS_NEEDS["dynamodb"], DESCRIBE[1], TRACE[1]]
    actions = {each for needed in listed for each in needed}
    documented = set(re.findall(r"`(?:[a-z0-9]+:)?([A-Z][A-Za-z]+)`", section))
    assert {each for each in actions if each.partition(":")[2] not in documented} == set()


THROUGH_SQS = f"on {KEY} through sqs.us-east-1.amazonaws.com"


@pytest.mark.parametrize(
    ("denies", "denied"),
    [
        (["sqs:SendMessage"], [f"sqs:SendMessage on {DEAD}"]),
        (["sqs:SendMessage", "kms:Decrypt"], [f"sqs:SendMessage on {DEAD}", f"kms:Decrypt {THROUGH_SQS}"]),
        ([STREAM], [f"logs:CreateLogStream, logs:PutLogEvents on {STREAM}"]),
        (["dynamodb:PutItem"], [f"dynamodb:PutItem on {TABLE}"]),
    ],
)
def test_what_the_role_is_denied_is_named_with_its_resource(denies: list[str], denied: list[str]) -> None:
    assert gather(Aws(denies=denies).client, BY_NAME).denied == denied


HOST, REFUNDS = "https://sqs.us-east-1.amazonaws.com/123456789012", arn("sqs", "refunds.fifo")


@pytest.mark.parametrize(
    ("named", "denies", "denied_there"),
    [
        (
            {"TOTALS_TABLE": "totals"},
            [TOTALS],
            {"TOTALS_TABLE": ("totals", [f"dynamodb:{each}" for each in ON_ANY_TABLE])},
        ),
        ({"TOTALS_TABLE": "totals"}, [], {}),
        ({"TOTALS_TABLE": "totals"}, ["dynamodb:Scan"], {"TOTALS_TABLE": ("totals", ["dynamodb:Scan"])}),
        ({"TOTALS": "totals"}, [TOTALS], {}),
        ({"EMPTY_TABLE": ""}, [arn("dynamodb", "table/")], {}),
        ({"PAGE_TABLE": "of contents"}, [arn("dynamodb", "table/of contents")], {}),
        ({"OWN_TABLE": "records"}, [TABLE], {}),  # that is a finding
        (
            {"REFUNDS_QUEUE_URL": f"{HOST}/refunds.fifo"},
            [REFUNDS],
            {"REFUNDS_QUEUE_URL": ("refunds.fifo", [SEND_MESSAGE])},
        ),
        ({"REFUNDS_QUEUE_URL": f"{HOST}/refunds.fifo"}, [], {}),
        ({"REFUNDS_URL": f"{HOST}/refunds.fifo"}, [REFUNDS], {}),
        ({"REFUNDS_QUEUE_URL": ""}, [REFUNDS], {}),
        ({"DEAD_LETTER_QUEUE_URL": f"{HOST}/refunds.fifo"}, [REFUNDS], {}),  # that is one, too
    ],
)
def test_what_the_role_may_not_do_to_a_table_or_queue_is_known_by_its_variable(
    named: Any, denies: Any, denied_there: Any
) -> None:
    aws = deployed({"Environment": {"Variables": VARIABLES | named}}, denies=denies)
    assert gather(aws.client, BY_NAME).denied_to_the_handler == denied_there
    of_others = [each for resource, actions, _ in aws.judgements if resource == TOTALS for each in actions]
    assert {"dynamodb:GetItem", "dynamodb:PutItem"} <= {*of_others} or "TOTALS_TABLE" not in named


@pytest.mark.parametrize("name", NAMES_OF_A_KEY)
def test_a_queues_key_is_known_by_each_of_its_names(name: str) -> None:
    gone = ClientError({"Error": {"Code": "NotFoundException"}}, "DescribeKey")
    assert gather(encrypted_by(name).client, BY_NAME).keys == {name: OWN_KEY}
    assert gather(encrypted_by(name, gone).client, BY_NAME).keys == {name: {"KeyState": "missing"}}


@pytest.mark.parametrize("name", OF_AWS)
def test_a_key_of_awss_own_is_not_asked_about(name: str) -> None:
    assert gather(deployed(queue={"KmsMasterKeyId": name}).client, BY_NAME).keys == {}


@pytest.mark.parametrize(
    ("variable", "given", "stated", "days"), [("45", 7.5, 3, 45), (None, 7.5, 3, 7.5), (None, None, 3, 3)]
)
def test_the_retention_is_as_the_environment_or_the_code_or_the_stack_says(
    variable: str | None, given: float | None, stated: float, days: float
) -> None:
    variables = without(VARIABLES, *(() if variable else ("RECORD_RETENTION_DAYS",)))
    configured = {**CONFIGURATION, "Environment": {"Variables": variables}}
    descriptions = {"given": Description(retention_days=given), "stated": Description(retention_days=stated)}
    found = gather(Aws(**{CONFIGURED: configured}).client, replace(BY_NAME, **descriptions))
    assert found.retention_seconds == days * DAY_SECONDS


def test_a_function_that_does_not_exist_is_refused() -> None:
    gone = ClientError({"Error": {"Code": "ResourceNotFoundException"}}, "GetFunctionConfiguration")
    with pytest.raises(UsageError, match=r"there is no function orders .*: correct --function \("):
        gather(Aws(**{CONFIGURED: gone}).client, BY_NAME)


# Which consumer a stack has.

DESCRIBED = {"RecordsTable": "records", "ConsumerDescription": '{"retention_days": 30}'}
OUTPUTS = {"ConsumerName": "orders", **DESCRIBED}
SERVICE = {"ServiceName": "service", "ClusterName": "cluster", "QueueArn": QUEUE, **DESCRIBED}
STATED = Description(retention_days=30)


def stacked(outputs: dict[str, str], *mappings: str) -> Aws:
    listed = [{"OutputKey": name, "OutputValue": value} for name, value in outputs.items()]
    kinds = [*((each, "AWS::Lambda::EventSourceMapping") for each in mappings), ("q", "AWS::SQS::Queue")]
    resources = [{"PhysicalResourceId": id, "ResourceType": kind, "LogicalResourceId": id} for id, kind in kinds]
    aws = Aws()
    aws.answers |= {
        "describe_stacks StackName=shop": {"Stacks": [{"Outputs": listed}]},
        "describe_stack_resources StackName=shop": {"StackResources": resources},
        "get_event_source_mapping UUID=other": {"FunctionArn": OTHER},
        "get_event_source_mapping UUID=refused": ClientError({"Error": {"Code": "AccessDenied"}}, "Get"),
    }
    return aws


@pytest.mark.parametrize("mappings", [["m-1"], ["other", "m-1"], ["refused", "m-1"], ["refused"]])
def test_a_stacks_function_is_found_with_its_own_mapping(mappings: list[str]) -> None:
    found = consumer_of(stacked(OUTPUTS, *mappings).client, "shop")
    assert found == DeployedConsumer(function="orders", mapping=mappings[-1], table="records", stated=STATED)


@pytest.mark.parametrize("outputs", [OUTPUTS, SERVICE])
def test_a_stack_tells_the_namespace_of_its_consumers_records(outputs: dict[str, str]) -> None:
    found = consumer_of(stacked({**outputs, "ConsumerDescription": '{"namespace": "refunds"}'}, "m-1").client, "shop")
    assert found.record_id == "refunds#any"


def test_a_stack_tells_the_dead_letter_queue_that_it_names() -> None:
    found = consumer_of(stacked({**OUTPUTS, "DeadLetterQueueUrl": "https://dead"}, "m-1").client, "shop")
    assert found.dead_letter_queue == "https://dead"


def test_a_stacks_workers_are_found_by_their_service() -> None:
    assert consumer_of(stacked(SERVICE).client, "shop") == replace(WORKERS, stated=STATED)


@pytest.mark.parametrize(
    ("outputs", "mappings"),
    [({}, ["m-1"]), (OUTPUTS, []), (OUTPUTS, ["m-1", "m-1"]), (without(SERVICE, "QueueArn"), [])],
)
def test_a_stack_without_one_consumer_is_refused(outputs: dict[str, str], mappings: list[str]) -> None:
    with pytest.raises(UsageError, match="stack shop"):
        consumer_of(stacked(outputs, *mappings).client, "shop")
