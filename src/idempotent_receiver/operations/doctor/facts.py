"""What AWS says of a deployed consumer: the facts that `checks.py` judges. All of doctor's requests are made here.

A request that is refused, or that an emulator does not know, leaves that one fact `Unavailable`.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from idempotent_receiver.dynamodb.errors import code_of
from idempotent_receiver.operations.account import CONSUMER, Client, UsageError, named, split_stack, stack_outputs

Fact = TypeVar("Fact")
Answer = Mapping[str, Any]
"""What an AWS API answered, under its names."""

DAY_SECONDS = 86_400
FROM_A_QUEUE = ("ReceiveMessage", "DeleteMessage", "GetQueueAttributes", "ChangeMessageVisibility")
ON_RECORDS = ("PartiQLInsert", "PartiQLUpdate", "BatchGetItem", "PutItem", "UpdateItem")
ON_A_KEY = ("kms:Decrypt", "kms:GenerateDataKey")
TO_THE_LOG = ("CreateLogStream", "PutLogEvents")


class Unavailable(Exception):
    """Stands for a fact that AWS did not give, and is raised where that fact is needed; its text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What AWS says of a consumer.

    None means that there is no `dead_letter_queue`, that no concurrency is `reserved`, or that the function runs on
    Lambda's own `instances`.
    """

    function: Answer | Unavailable
    instances: Answer | Unavailable | None
    reserved: int | Unavailable | None
    mapping: Answer | Unavailable
    queue: Answer | Unavailable
    dead_letter_queue: Answer | Unavailable | None
    table: Answer | Unavailable
    time_to_live: Answer | Unavailable
    denied: Sequence[str] | Unavailable
    alarms: Sequence[Answer] | Unavailable
    retention_seconds: int | Unavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """What to look at: a function, its event source mapping if known, and the table of its records."""

    function: str
    mapping: str | None = None
    table: str | None = None
    retention_days: float | None = None
    stated_retention_days: str | None = None
    """What its stack says of it, where its function does not."""


def consumer_of(client: Client, stack: str) -> Consumer:
    """The consumer that a stack of this project's template made. Raises UsageError where there is none."""
    outputs = stack_outputs(client, stack)
    made = client("cloudformation").describe_stack_resources(StackName=split_stack(stack)[0])["StackResources"]
    mappings = [
        each["PhysicalResourceId"] for each in made if each["ResourceType"] == "AWS::Lambda::EventSourceMapping"
    ]
    function = outputs.get(CONSUMER)
    if len(mappings) > 1:
        mappings = [each for each in mappings if _feeds(client("lambda"), each, function)]
    if function is None or len(mappings) != 1:
        raise UsageError(f"stack {stack} is not of this template: it has no output {CONSUMER} with one mapping")
    return Consumer(
        function=function,
        mapping=mappings[0],
        table=outputs.get("RecordsTable"),
        stated_retention_days=outputs.get("RecordRetentionDays"),
    )


def _feeds(functions: Any, mapping: str, function: str | None) -> bool:
    """Whether a mapping is the function's. An operator may not look at those of others."""
    try:
        arn: str = functions.get_event_source_mapping(UUID=mapping)["FunctionArn"]
    except ClientError:
        return False
    return arn.rpartition(":")[2] == function


def gather(client: Client, consumer: Consumer) -> Facts:
    """Ask AWS for everything. Raises UsageError where there is no such function."""
    with named(f"function {consumer.function}", "correct --function", "ResourceNotFoundException"):
        function = _without_metadata(client("lambda").get_function_configuration(FunctionName=consumer.function))
    functions, sqs, dynamodb = (client(service) for service in ("lambda", "sqs", "dynamodb"))
    mapping = _asked(lambda: _mapping(functions, consumer))
    queue = _asked(lambda found: _queue(sqs, found["EventSourceArn"]), mapping)
    dead_letter_queue = _asked(lambda found: _dead_letter_queue(sqs, found), queue)
    table = _asked(lambda: _table(dynamodb, consumer.table or settings_of(function).get("RECORDS_TABLE")))
    reserved = _asked(lambda: functions.get_function_concurrency(FunctionName=consumer.function))
    time_to_live = _asked(lambda found: dynamodb.describe_time_to_live(TableName=found["TableName"]), table)
    return Facts(
        function=function,
        instances=_asked(lambda: _instances(functions, function)),
        reserved=_asked(lambda found: found.get("ReservedConcurrentExecutions"), reserved),
        mapping=mapping,
        queue=queue,
        dead_letter_queue=dead_letter_queue,
        table=table,
        time_to_live=_asked(lambda found: found["TimeToLiveDescription"], time_to_live),
        denied=_asked(lambda *found: _denied(client("iam"), function, *found), queue, dead_letter_queue, table),
        alarms=_asked(lambda: _alarms(client("cloudwatch"))),
        retention_seconds=_asked(lambda: _retention_seconds(consumer, function)),
    )


def known(fact: Fact | Unavailable) -> Fact:
    """The fact. Raises Unavailable if it is not there."""
    if isinstance(fact, Unavailable):
        raise fact
    return fact


def _asked(ask: Callable[..., Fact], *given: Any) -> Fact | Unavailable:
    """What AWS answers; Unavailable where it does not, or where one of the `given` facts to ask with is."""
    try:
        return ask(*map(known, given))
    except ClientError as error:
        return Unavailable(f"{error.operation_name} was answered with {code_of(error)}")
    except BotoCoreError as error:
        return Unavailable(f"AWS could not be asked: {type(error).__name__}")
    except Unavailable as unavailable:
        return unavailable


def _without_metadata(answer: Answer) -> Answer:
    """The answer without its request's metadata."""
    return {name: value for name, value in answer.items() if name != "ResponseMetadata"}


def settings_of(function: Answer) -> Mapping[str, str]:
    """The environment variables of a function."""
    return (function.get("Environment") or {}).get("Variables") or {}


def _instances(functions: Any, function: Answer) -> Answer | None:
    """The user's own instances that it runs on. An older boto3 would leave them out of AWS's answer."""
    known = functions.meta.service_model.operation_model("GetFunctionConfiguration").output_shape.members
    if "CapacityProviderConfig" not in known:
        raise Unavailable("this boto3 does not know Lambda Managed Instances: upgrade boto3 to 1.42 or later")
    provider: Answer = function.get("CapacityProviderConfig") or {}
    return provider.get("LambdaManagedInstancesCapacityProviderConfig")


def _mapping(functions: Any, consumer: Consumer) -> Answer:
    if consumer.mapping is not None:
        return _without_metadata(functions.get_event_source_mapping(UUID=consumer.mapping))
    found = functions.get_paginator("list_event_source_mappings").paginate(FunctionName=consumer.function)
    mappings = list(found.search("EventSourceMappings[?contains(EventSourceArn, ':sqs:')]"))
    if len(mappings) != 1:
        raise Unavailable(f"{consumer.function} consumes {len(mappings)} queues, and doctor checks one: use --stack")
    return dict(mappings[0])


def _queue(sqs: Any, arn: str) -> Answer:
    *_, account, name = arn.split(":")
    url = sqs.get_queue_url(QueueName=name, QueueOwnerAWSAccountId=account)["QueueUrl"]
    return dict(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"])


def _dead_letter_queue(sqs: Any, queue: Answer) -> Answer | None:
    arn = json.loads(queue.get("RedrivePolicy") or "{}").get("deadLetterTargetArn")
    return None if arn is None else _queue(sqs, arn)


def _table(dynamodb: Any, name: str | None) -> Answer:
    if name is None:
        raise Unavailable("the function's environment has no RECORDS_TABLE: name the table with --table")
    return dict(dynamodb.describe_table(TableName=name)["Table"])


def _alarms(cloudwatch: Any) -> list[Answer]:
    return list(cloudwatch.get_paginator("describe_alarms").paginate(AlarmTypes=["MetricAlarm"]).search("MetricAlarms"))


def _retention_seconds(consumer: Consumer, function: Answer) -> int:
    days = consumer.retention_days or settings_of(function).get("RECORD_RETENTION_DAYS")
    days = days or consumer.stated_retention_days
    if days is None:
        raise Unavailable("the function's environment has no RECORD_RETENTION_DAYS: give --retention-days")
    return int(float(days) * DAY_SECONDS)


def _denied(iam: Any, function: Answer, queue: Answer, dead_letter_queue: Answer | None, table: Answer) -> list[str]:
    """The actions that the function's role is denied, as IAM itself decides."""
    needed = _needed(function, queue, dead_letter_queue, table)
    denied = [
        action for resource, actions in needed.items() for action in _denied_on(iam, function, resource, actions, [])
    ]
    key = str(queue.get("KmsMasterKeyId"))
    if denied or not key.startswith("arn:"):
        return denied
    by_sqs = f"sqs.{function['FunctionArn'].split(':')[3]}.amazonaws.com"
    context = {"ContextKeyName": "kms:ViaService", "ContextKeyType": "string", "ContextKeyValues": [by_sqs]}
    denied = _denied_on(iam, function, key, ON_A_KEY, [context])
    if denied and ".amazonaws.com" not in iam.meta.endpoint_url:
        # Emulators ignore the context, so they take a grant with a condition for none.
        raise Unavailable("only AWS knows whether the role may use the queue's key")
    return denied


def _denied_on(iam: Any, function: Answer, resource: str, actions: Sequence[str], context: list[Any]) -> list[str]:
    answer = iam.simulate_principal_policy(
        PolicySourceArn=function["Role"], ActionNames=list(actions), ResourceArns=[resource], ContextEntries=context
    )
    return [each["EvalActionName"] for each in answer["EvaluationResults"] if each["EvalDecision"] != "allowed"]


def _needed(function: Answer, queue: Answer, dead_letter_queue: Answer | None, table: Answer) -> dict[str, list[str]]:
    """The actions that the consumer needs, by the resource's ARN."""
    _, partition, _, region, account, *_ = function["FunctionArn"].split(":")
    log = (function.get("LoggingConfig") or {}).get("LogGroup") or f"/aws/lambda/{function['FunctionName']}"
    stream = f"arn:{partition}:logs:{region}:{account}:log-group:{log}:log-stream:any"
    needed = {
        queue["QueueArn"]: [f"sqs:{action}" for action in FROM_A_QUEUE],
        table["TableArn"]: [f"dynamodb:{action}" for action in ON_RECORDS],
        stream: [f"logs:{action}" for action in TO_THE_LOG],
    }
    if dead_letter_queue is not None and settings_of(function).get("DEAD_LETTER_QUEUE_URL"):
        needed[dead_letter_queue["QueueArn"]] = ["sqs:SendMessage"]
    return needed
