"""The facts about a deployed consumer that `checks.py` examines. `gather` makes all of doctor's requests.

A consumer is a function with its event source mapping, or `receiver work` processes on a queue that functions may read
as well. If a request is refused, or an emulator does not support it, only that fact is `NotAnswered`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from botocore.exceptions import ClientError

from idempotent_receiver.dynamodb.codes import code_of
from idempotent_receiver.operations.account import CONSUMER, Client, UsageError, named, split_stack, stack_outputs
from idempotent_receiver.operations.description import DAY_SECONDS, Description, stated
from idempotent_receiver.operations.doctor.asking import Answer, NotAnswered, asked, known, missing_if_gone
from idempotent_receiver.operations.doctor.roles import (
    Role,
    denied,
    denied_to_the_handler,
    managed_by_aws,
    needed,
    needed_of_keys,
    of_a_function,
    of_a_task,
)

RECEIVER_CONTAINER = "worker"
"""The container in deploy/container.yaml that runs the worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployedFunction:
    """A function that reads the queue. `reserved` is None without reserved concurrency, `instances` without Lambda
    Managed Instances.
    """

    configuration: Answer | NotAnswered
    instances: Answer | NotAnswered | None
    reserved: int | NotAnswered | None
    mapping: Answer | NotAnswered

    @property
    def name(self) -> str:
        """The function's name. Raises NotAnswered if its mapping is unknown."""
        return str(known(self.mapping)["FunctionArn"].split(":")[6])


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The facts about a consumer: its function, or its workers' `container` and every function that reads their queue.

    `dead_letter_queue` is None if the queue has no dead-letter queue; `container` is None for a function.
    """

    functions: Sequence[DeployedFunction] | NotAnswered
    account: Answer | NotAnswered
    """The account's Lambda limits."""
    container: Answer | NotAnswered | None
    settings: Mapping[str, str] | NotAnswered
    """The environment variables."""
    queue: Answer | NotAnswered
    dead_letter_queue: Answer | NotAnswered | None
    keys: Mapping[str, Answer | NotAnswered] | NotAnswered
    """KMS metadata of the queues' keys, by the ARN, id or alias that the queue names."""
    readers: Sequence[str] | NotAnswered
    """The names of all functions that read the queue."""
    dead_letter_readers: Sequence[str] | NotAnswered
    named_dead_letter_queue: str | NotAnswered | None
    """The URL that the stack names."""
    table: Answer | NotAnswered
    """The table that the consumer reads: its RECORDS_TABLE or, without one, what the stack or --table names."""
    named_table: str | NotAnswered | None
    """What the stack or --table names, if the consumer's variables can be compared with it."""
    time_to_live: Answer | NotAnswered
    denied: Sequence[str | NotAnswered] | NotAnswered
    """Actions that the role is denied, with their resources."""
    denied_to_the_handler: Mapping[str, tuple[str, Sequence[str]]] | NotAnswered
    """The handler's tables and queues by the variable that names them, with the actions that the role is denied
    there.
    """
    alarms: Sequence[Answer] | NotAnswered
    retention_seconds: int | NotAnswered
    given: Description | NotAnswered | None = None
    """The description from --consumer."""
    stated: Description | NotAnswered | None = None
    """The description from the stack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployedConsumer:
    """What to check: a function and its event source mapping, if known; or the ARN of a queue that workers read and
    their ECS service, if known; and the records table and the URL of the dead-letter queue that are named for it.
    """

    function: str | None = None
    mapping: str | None = None
    queue: str | None = None
    cluster: str | None = None
    service: str | None = None
    table: str | None = None
    dead_letter_queue: str | None = None
    given: Description | None = None
    stated: Description | None = None

    @property
    def record_id(self) -> str | None:
        """A sample record id, if the consumer has a namespace: a role may be restricted to the namespace."""
        namespace = (self.given or self.stated or Description()).namespace
        return None if namespace is None else f"{namespace}#any"


def consumer_of(client: Client, stack: str) -> DeployedConsumer:
    """The consumer in a stack made from this project's templates. Raises UsageError if the stack has no consumer."""
    outputs = stack_outputs(client, stack)
    known = DeployedConsumer(
        table=outputs.get("RecordsTable"),
        dead_letter_queue=outputs.get("DeadLetterQueueUrl"),
        stated=stated(outputs, stack),
    )
    if CONSUMER not in outputs and "ServiceName" in outputs and "QueueArn" in outputs:
        cluster, service = outputs.get("ClusterName"), outputs["ServiceName"]
        return replace(known, queue=outputs["QueueArn"], cluster=cluster, service=service)
    made = client("cloudformation").describe_stack_resources(StackName=split_stack(stack)[0])["StackResources"]
    mappings = [
        each["PhysicalResourceId"] for each in made if each["ResourceType"] == "AWS::Lambda::EventSourceMapping"
    ]
    function = outputs.get(CONSUMER)
    if len(mappings) > 1:
        mappings = [each for each in mappings if _feeds(client("lambda"), each, function)]
    if function is None or len(mappings) != 1:
        raise UsageError(
            f"stack {stack} was not made from this template: no output {CONSUMER} names a function with one mapping"
        )
    return replace(known, function=function, mapping=mappings[0])


def _feeds(functions: Any, mapping: str, function: str | None) -> bool:
    """Whether a mapping belongs to the function. An operator may lack permission to view other functions' mappings."""
    try:
        arn: str = functions.get_event_source_mapping(UUID=mapping)["FunctionArn"]
    except ClientError:
        return False
    return arn.split(":")[6] == function


def gather(client: Client, consumer: DeployedConsumer) -> Facts:
    """Ask AWS for all facts. Raises UsageError if the function does not exist."""
    return _of_workers(client, consumer) if consumer.function is None else _of_a_function(client, consumer)


def _of_a_function(client: Client, consumer: DeployedConsumer) -> Facts:
    functions = client("lambda")
    mapping = asked(lambda: _mapping(functions, consumer))
    # If the mapping invokes an alias, the version behind the alias is the one that runs.
    invoked = consumer.function if isinstance(mapping, NotAnswered) else mapping["FunctionArn"]
    with named(f"function {consumer.function}", "correct --function", "ResourceNotFoundException"):
        configuration = _configuration(functions, invoked)
    function = _function(functions, configuration, mapping)
    queue = asked(lambda found: _queue(client("sqs"), found["EventSourceArn"]), mapping)
    settings, role = settings_of(configuration), of_a_function(configuration)
    return _of_either(client, consumer, queue=queue, settings=settings, functions=[function], container=None, role=role)


def _of_workers(client: Client, consumer: DeployedConsumer) -> Facts:
    arn = str(consumer.queue)
    queue = asked(lambda: _queue(client("sqs"), arn))
    functions = asked(lambda: _functions_on(client("lambda"), arn))
    task = asked(lambda: _task(client("ecs"), consumer))
    container = asked(_container, task)
    settings = asked(_variables, container)
    role = asked(lambda found: of_a_task(found, str(consumer.cluster)), task)
    return _of_either(
        client, consumer, queue=queue, settings=settings, functions=functions, container=container, role=role
    )


def _of_either(
    client: Client,
    consumer: DeployedConsumer,
    *,
    queue: Answer | NotAnswered,
    settings: Mapping[str, str] | NotAnswered,
    functions: Sequence[DeployedFunction] | NotAnswered,
    container: Answer | NotAnswered | None,
    role: Role | NotAnswered,
) -> Facts:
    dynamodb = client("dynamodb")
    dead_letter_queue = asked(lambda found: _dead_letter_queue(client("sqs"), found), queue)
    read = None if isinstance(settings, NotAnswered) else settings.get("RECORDS_TABLE")
    table = asked(lambda: _table(dynamodb, read or consumer.table))
    time_to_live = asked(lambda found: dynamodb.describe_time_to_live(TableName=found["TableName"]), table)
    iam, kms = client("iam"), client("kms")
    needs = asked(lambda *found: needed(consumer.record_id, *found), settings, queue, dead_letter_queue, table)
    of_keys = asked(needed_of_keys, settings, queue, dead_letter_queue, table)
    return Facts(
        functions=functions,
        account=asked(lambda: client("lambda").get_account_settings()["AccountLimit"]),
        container=container,
        settings=settings,
        queue=queue,
        dead_letter_queue=dead_letter_queue,
        keys=asked(lambda *queues: _keys(kms, queues), queue, dead_letter_queue),
        readers=asked(_readers, client("lambda"), queue),
        dead_letter_readers=asked(_readers, client("lambda"), dead_letter_queue),
        named_dead_letter_queue=consumer.dead_letter_queue,
        table=table,
        named_table=consumer.table if consumer.function or consumer.service else None,
        time_to_live=asked(lambda found: found["TimeToLiveDescription"], time_to_live),
        denied=asked(lambda *found: denied(iam, kms, *found), role, needs, of_keys),
        denied_to_the_handler=asked(lambda *found: denied_to_the_handler(iam, *found), role, settings, table),
        alarms=asked(lambda: _alarms(client("cloudwatch"))),
        retention_seconds=asked(lambda: _retention_seconds(consumer, settings)),
        given=consumer.given,
        stated=consumer.stated,
    )


def _without_metadata(answer: Answer) -> Answer:
    return {name: value for name, value in answer.items() if name != "ResponseMetadata"}


def _configuration(functions: Any, name: str | None) -> Answer:
    return _without_metadata(functions.get_function_configuration(FunctionName=name))


def settings_of(function: Answer) -> Mapping[str, str]:
    """A function's environment variables."""
    return (function.get("Environment") or {}).get("Variables") or {}


def _function(functions: Any, configuration: Answer | NotAnswered, mapping: Answer | NotAnswered) -> DeployedFunction:
    reserved = asked(
        lambda found: functions.get_function_concurrency(FunctionName=found["FunctionName"]), configuration
    )
    return DeployedFunction(
        configuration=configuration,
        instances=asked(lambda found: _instances(functions, found), configuration),
        reserved=asked(lambda found: found.get("ReservedConcurrentExecutions"), reserved),
        mapping=mapping,
    )


def _mappings_on(functions: Any, queue: str) -> list[Answer]:
    """The mappings on the queue that are not disabled."""
    pages = functions.get_paginator("list_event_source_mappings").paginate(EventSourceArn=queue)
    return [dict(each) for each in pages.search("EventSourceMappings[?State!='Disabled']")]


def _functions_on(functions: Any, queue: str) -> list[DeployedFunction]:
    mappings = _mappings_on(functions, queue)
    return [_function(functions, asked(_configuration, functions, each["FunctionArn"]), each) for each in mappings]


def _readers(functions: Any, queue: Answer | None) -> list[str]:
    """The names of the functions that read the queue."""
    mappings = [] if queue is None else _mappings_on(functions, queue["QueueArn"])
    return sorted({each["FunctionArn"].split(":")[6] for each in mappings})


def _task(ecs: Any, consumer: DeployedConsumer) -> Answer:
    if consumer.service is None:
        raise NotAnswered("the task can be read only for a stack created from deploy/container.yaml: give --stack")
    services = ecs.describe_services(cluster=consumer.cluster, services=[consumer.service])["services"]
    if not services:
        raise NotAnswered(f"cluster {consumer.cluster} has no service {consumer.service}")
    definition = ecs.describe_task_definition(taskDefinition=services[0]["taskDefinition"])
    return dict(definition["taskDefinition"])


def _container(task: Answer) -> Answer:
    found = [each for each in task["containerDefinitions"] if each["name"] == RECEIVER_CONTAINER]
    if not found:
        raise NotAnswered(f"the task has no container {RECEIVER_CONTAINER}")
    return dict(found[0])


def _variables(container: Answer) -> Mapping[str, str]:
    return {each["name"]: each["value"] for each in container.get("environment") or []}


def _instances(functions: Any, function: Answer) -> Answer | None:
    """The managed instances that the function runs on. An older boto3 drops them from AWS's response."""
    known = functions.meta.service_model.operation_model("GetFunctionConfiguration").output_shape.members
    if "CapacityProviderConfig" not in known:
        raise NotAnswered("this boto3 does not know Lambda Managed Instances: upgrade boto3 to 1.42 or later")
    provider: Answer = function.get("CapacityProviderConfig") or {}
    return provider.get("LambdaManagedInstancesCapacityProviderConfig")


def _mapping(functions: Any, consumer: DeployedConsumer) -> Answer:
    if consumer.mapping is not None:
        return _without_metadata(functions.get_event_source_mapping(UUID=consumer.mapping))
    found = functions.get_paginator("list_event_source_mappings").paginate(FunctionName=consumer.function)
    mappings = list(found.search("EventSourceMappings[?contains(EventSourceArn, ':sqs:')]"))
    if len(mappings) != 1:
        raise NotAnswered(
            f"{consumer.function} consumes {len(mappings)} queues, but doctor checks one: use --stack, or --function "
            "NAME:ALIAS if its mapping invokes an alias"
        )
    return dict(mappings[0])


def _queue(sqs: Any, arn: str) -> Answer:
    *_, account, name = arn.split(":")
    with missing_if_gone(f"queue {arn}"):
        url = sqs.get_queue_url(QueueName=name, QueueOwnerAWSAccountId=account)["QueueUrl"]
    return dict(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"])


def _dead_letter_queue(sqs: Any, queue: Answer) -> Answer | None:
    arn = json.loads(queue.get("RedrivePolicy") or "{}").get("deadLetterTargetArn")
    return None if arn is None else _queue(sqs, arn)


def _keys(kms: Any, queues: Sequence[Answer | None]) -> dict[str, Answer | NotAnswered]:
    names = [each["KmsMasterKeyId"] for each in queues if each is not None and each.get("KmsMasterKeyId")]
    return {name: asked(_key, kms, name) for name in names if not managed_by_aws(name)}


def _key(kms: Any, name: str) -> Answer:
    try:
        return dict(kms.describe_key(KeyId=name)["KeyMetadata"])
    except ClientError as error:
        if code_of(error) == "NotFoundException":
            return {"KeyState": "missing"}
        raise


def _table(dynamodb: Any, name: str | None) -> Answer:
    if name is None:
        raise NotAnswered("RECORDS_TABLE is not in the environment: name the table with --table")
    with missing_if_gone(f"table {name}"):
        return dict(dynamodb.describe_table(TableName=name)["Table"])


def _alarms(cloudwatch: Any) -> list[Answer]:
    return list(cloudwatch.get_paginator("describe_alarms").paginate(AlarmTypes=["MetricAlarm"]).search("MetricAlarms"))


def _retention_seconds(consumer: DeployedConsumer, settings: Mapping[str, str] | NotAnswered) -> int:
    variables = {} if isinstance(settings, NotAnswered) else settings
    # The variable takes precedence: the code may read it, but was imported here without it.
    if "RECORD_RETENTION_DAYS" in variables:
        return int(float(variables["RECORD_RETENTION_DAYS"]) * DAY_SECONDS)
    for each in (consumer.given, consumer.stated):
        if each is not None and each.retention_seconds is not None:
            return each.retention_seconds
    raise NotAnswered("RECORD_RETENTION_DAYS is not known from the environment: give --consumer")
