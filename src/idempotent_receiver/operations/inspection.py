"""What AWS says of a deployed consumer: the facts that `doctor.py` judges. All of doctor's requests are made here.

A request that is refused, or that an emulator does not know, leaves an `Unknown` fact and no more than that.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from idempotent_receiver.operations.doctor import DAY_SECONDS, Answer, Facts, Unknown

Fact = TypeVar("Fact")

FROM_A_QUEUE = ("ReceiveMessage", "DeleteMessage", "GetQueueAttributes", "ChangeMessageVisibility")
ON_RECORDS = ("PartiQLInsert", "PartiQLUpdate", "BatchGetItem", "PutItem", "UpdateItem")
ON_A_KEY = ["kms:Decrypt", "kms:GenerateDataKey"]
TO_THE_LOG = ("CreateLogStream", "PutLogEvents")


class NotFound(Exception):
    """There is no such stack or function, or it is none of ours; the text says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """Where to look: a function, its event source mapping where that is known, and the table of its records."""

    function: str
    mapping: str | None = None
    table: str | None = None
    retention_days: float | None = None


def of_stack(client: Callable[[str], Any], name: str) -> Consumer:
    """The consumer that a stack of this project's template made. Raises NotFound."""
    try:
        (stack,) = client("cloudformation").describe_stacks(StackName=name)["Stacks"]
        made = client("cloudformation").describe_stack_resources(StackName=name)["StackResources"]
    except ClientError as error:
        if error.response.get("Error", {}).get("Code") == "ValidationError":
            raise NotFound(
                f"there is no stack {name} in this account and region: correct --stack (see --region, --profile)"
            ) from None
        raise
    outputs = {each["OutputKey"]: each["OutputValue"] for each in stack.get("Outputs", [])}
    mappings = [
        each["PhysicalResourceId"] for each in made if each["ResourceType"] == "AWS::Lambda::EventSourceMapping"
    ]
    if "ConsumerName" not in outputs or len(mappings) != 1:
        raise NotFound(f"stack {name} is not of this template: it has no output ConsumerName with one mapping")
    return Consumer(function=outputs["ConsumerName"], mapping=mappings[0], table=outputs.get("RecordsTable"))


def gather(client: Callable[[str], Any], consumer: Consumer) -> Facts:
    """Ask AWS for everything; `client` returns the boto3 client of a service. Raises NotFound without the function."""
    function = _function(client, consumer.function)
    mapping = _asked(lambda: _mapping(client("lambda"), consumer))
    queue = _then(mapping, lambda found: _queue(client("sqs"), found["EventSourceArn"]))
    letters = _then(queue, lambda found: _dead_letter_queue(client("sqs"), found))
    table_name = consumer.table or _settings(function).get("RECORDS_TABLE")
    table = _asked(lambda: _table(client("dynamodb"), table_name))
    return Facts(
        function=function,
        instances=_asked(lambda: _instances(client("lambda"), function)),
        reserved=_asked(
            lambda: (
                client("lambda")
                .get_function_concurrency(FunctionName=consumer.function)
                .get("ReservedConcurrentExecutions")
            )
        ),
        mapping=mapping,
        queue=queue,
        dead_letter_queue=letters,
        table=table,
        time_to_live=_then(
            table,
            lambda found: client("dynamodb").describe_time_to_live(TableName=found["TableName"])[
                "TimeToLiveDescription"
            ],
        ),
        denied=_asked(lambda: _denied(client("iam"), function, queue, letters, table)),
        alarms=_asked(lambda: _alarms(client("cloudwatch"))),
        retention_seconds=_retention_seconds(consumer, function),
    )


class _MissingError(Exception):
    """A fact is not to be had, for a reason of ours; the text is the reason."""


def _asked(ask: Callable[[], Fact]) -> Fact | Unknown:
    try:
        return ask()
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "no code")
        return Unknown(f"{error.operation_name} was answered with {code}")
    except BotoCoreError as error:
        return Unknown(f"AWS could not be asked: {type(error).__name__}")
    except _MissingError as error:
        return Unknown(str(error))


def _then(fact: Fact | Unknown, ask: Callable[[Fact], Any]) -> Any:
    return fact if isinstance(fact, Unknown) else _asked(lambda: ask(fact))


def _function(client: Callable[[str], Any], name: str) -> Answer:
    try:
        return _told(client("lambda").get_function_configuration(FunctionName=name))
    except ClientError as error:
        if error.response.get("Error", {}).get("Code") == "ResourceNotFoundException":
            raise NotFound(
                f"there is no function {name} in this account and region: correct --function (see --region, --profile)"
            ) from None
        raise


def _told(answer: Answer) -> Answer:
    """The answer without what only tells of its request."""
    return {name: value for name, value in answer.items() if name != "ResponseMetadata"}


def _instances(functions: Any, function: Answer) -> Answer | None:
    """The instances of the user's that it runs on. An older boto3 would leave them out of AWS's answer."""
    known = functions.meta.service_model.operation_model("GetFunctionConfiguration").output_shape.members
    if "CapacityProviderConfig" not in known:
        raise _MissingError("this boto3 knows nothing of Lambda Managed Instances: upgrade boto3 to 1.42 or later")
    provider: Answer = function.get("CapacityProviderConfig") or {}
    return provider.get("LambdaManagedInstancesCapacityProviderConfig")


def _settings(function: Answer) -> Mapping[str, str]:
    return (function.get("Environment") or {}).get("Variables") or {}


def _mapping(functions: Any, consumer: Consumer) -> Answer:
    if consumer.mapping is not None:
        return _told(functions.get_event_source_mapping(UUID=consumer.mapping))
    pages = functions.get_paginator("list_event_source_mappings").paginate(FunctionName=consumer.function)
    mappings = [each for page in pages for each in page["EventSourceMappings"] if ":sqs:" in each["EventSourceArn"]]
    if len(mappings) != 1:
        raise _MissingError(f"{consumer.function} consumes {len(mappings)} queues, and one is looked at: use --stack")
    only: Answer = mappings[0]
    return only


def _queue(sqs: Any, arn: str) -> Answer:
    *_, account, name = arn.split(":")
    url = sqs.get_queue_url(QueueName=name, QueueOwnerAWSAccountId=account)["QueueUrl"]
    found: Answer = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    return found


def _dead_letter_queue(sqs: Any, queue: Answer) -> Answer | None:
    arn = json.loads(queue.get("RedrivePolicy") or "{}").get("deadLetterTargetArn")
    return None if arn is None else _queue(sqs, arn)


def _table(dynamodb: Any, name: str | None) -> Answer:
    if name is None:
        raise _MissingError("the function's environment has no RECORDS_TABLE: name the table with --table")
    found: Answer = dynamodb.describe_table(TableName=name)["Table"]
    return found


def _alarms(cloudwatch: Any) -> list[Answer]:
    pages = cloudwatch.get_paginator("describe_alarms").paginate(AlarmTypes=["MetricAlarm"])
    return [alarm for page in pages for alarm in page["MetricAlarms"]]


def _retention_seconds(consumer: Consumer, function: Answer) -> int | Unknown:
    days = consumer.retention_days or _settings(function).get("RECORD_RETENTION_DAYS")
    if days is None:
        return Unknown("the function's environment has no RECORD_RETENTION_DAYS: say --retention-days")
    return int(float(days) * DAY_SECONDS)


def _denied(iam: Any, function: Answer, queue: Any, letters: Any, table: Any) -> list[str]:
    """The actions that the function's role is denied, by IAM's own verdict."""
    needed = _needed(function, queue, letters, table)
    denied = [
        action for resource, actions in needed.items() for action in _refused(iam, function, resource, actions, [])
    ]
    key = str(queue.get("KmsMasterKeyId"))
    if denied or not key.startswith("arn:"):
        return denied
    by_sqs = f"sqs.{function['FunctionArn'].split(':')[3]}.amazonaws.com"
    context = {"ContextKeyName": "kms:ViaService", "ContextKeyType": "string", "ContextKeyValues": [by_sqs]}
    denied = _refused(iam, function, key, ON_A_KEY, [context])
    if denied and ".amazonaws.com" not in iam.meta.endpoint_url:
        # Emulators know no context, so a grant with a condition looks like none.
        raise _MissingError("whether the role may use the queue's key is only known to AWS")
    return denied


def _refused(iam: Any, function: Answer, resource: str, actions: list[str], context: list[Any]) -> list[str]:
    answer = iam.simulate_principal_policy(
        PolicySourceArn=function["Role"], ActionNames=actions, ResourceArns=[resource], ContextEntries=context
    )
    return [each["EvalActionName"] for each in answer["EvaluationResults"] if each["EvalDecision"] != "allowed"]


def _needed(function: Answer, queue: Any, letters: Any, table: Any) -> dict[str, list[str]]:
    """What the consumer asks for, by the resource's ARN."""
    for fact in (queue, letters, table):
        if isinstance(fact, Unknown):
            raise _MissingError(fact.why)
    partition, region, account = (function["FunctionArn"].split(":")[place] for place in (1, 3, 4))
    log = (function.get("LoggingConfig") or {}).get("LogGroup") or f"/aws/lambda/{function['FunctionName']}"
    needed = {
        queue["QueueArn"]: [f"sqs:{action}" for action in FROM_A_QUEUE],
        table["TableArn"]: [f"dynamodb:{action}" for action in ON_RECORDS],
        f"arn:{partition}:logs:{region}:{account}:log-group:{log}:log-stream:any": [
            f"logs:{action}" for action in TO_THE_LOG
        ],
    }
    if letters is not None and _settings(function).get("DEAD_LETTER_QUEUE_URL"):
        needed[letters["QueueArn"]] = ["sqs:SendMessage"]
    return needed
