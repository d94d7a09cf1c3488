"""The permissions that a consumer's role needs, and those that IAM denies it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from idempotent_receiver.operations.doctor.asking import Answer, NotAnswered, asked

FROM_A_QUEUE = ("ReceiveMessage", "DeleteMessage", "GetQueueAttributes", "ChangeMessageVisibility")
ON_RECORDS = ("PartiQLInsert", "PartiQLUpdate", "BatchGetItem", "PutItem", "UpdateItem")
TO_RECEIVE, TO_SEND = ("Decrypt",), ("Decrypt", "GenerateDataKey")
FOR_A_TABLE = ("Decrypt", "GenerateDataKey", "Encrypt", "DescribeKey", "ReEncryptFrom", "ReEncryptTo")
"""KMS actions by what the key encrypts. For a table, DynamoDB requires its callers to have these actions."""
TO_THE_LOG = ("CreateLogStream", "PutLogEvents")
IN_A_VPC = ("DescribeNetworkInterfaces", "DescribeSubnets")
ON_AN_INTERFACE = (
    "CreateNetworkInterface",
    "DeleteNetworkInterface",
    "AssignPrivateIpAddresses",
    "UnassignPrivateIpAddresses",
)
TO_TRACE = ("PutTraceSegments", "PutTelemetryRecords")
ON_ANY_TABLE = (
    *("GetItem", "BatchGetItem", "Query", "Scan", "ConditionCheckItem", "PutItem", "UpdateItem", "DeleteItem"),
    *("BatchWriteItem", "PartiQLSelect", "PartiQLInsert", "PartiQLUpdate", "PartiQLDelete"),
)
READ, CHECK = "dynamodb:GetItem", "dynamodb:ConditionCheckItem"
"""What a transaction's `get` needs: the read, and the check of an item that is read but not written."""
TABLE_NAME = re.compile(r"[A-Za-z0-9_.-]{3,255}")
QUEUE_URL = re.compile(r"https?://.+/([0-9]{12})/([A-Za-z0-9_-]{1,80}(?:\.fifo)?)")
SEND_MESSAGE = "sqs:SendMessage"


@dataclass(frozen=True, slots=True)
class Need:
    """Actions on one resource, with the request's context keys and values, which conditions may check."""

    service: str
    actions: Sequence[str]
    resource: str
    context: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class Role:
    """A consumer's role, and what it needs only for Lambda or only for ECS."""

    arn: str
    needs: Sequence[Need]


def of_a_function(function: Answer) -> Role:
    """A function's role. Lambda uses it to write logs and traces and to connect the function to its VPC."""
    _, partition, _, region, account, *_ = function["FunctionArn"].split(":")
    log = (function.get("LoggingConfig") or {}).get("LogGroup") or f"/aws/lambda/{function['FunctionName']}"
    stream = f"arn:{partition}:logs:{region}:{account}:log-group:{log}:log-stream:any"
    needs = [Need("logs", TO_THE_LOG, stream)]
    if (function.get("VpcConfig") or {}).get("SubnetIds"):
        interface = f"arn:{partition}:ec2:{region}:{account}:network-interface/any"
        needs += [Need("ec2", IN_A_VPC, "*"), Need("ec2", ON_AN_INTERFACE, interface)]
    if (function.get("TracingConfig") or {}).get("Mode") == "Active":
        needs.append(Need("xray", TO_TRACE, "*"))
    return Role(function["Role"], needs)


def of_a_task(task: Answer, cluster: str) -> Role:
    """An ECS task's role, which lets the task request scale-in protection. The execution role writes the log."""
    if "taskRoleArn" not in task:
        raise NotAnswered("the task has no task role")
    _, partition, _, region, account, *_ = task["taskDefinitionArn"].split(":")
    itself = f"arn:{partition}:ecs:{region}:{account}:task/{cluster}/any"
    return Role(task["taskRoleArn"], [Need("ecs", ["UpdateTaskProtection"], itself)])


def needed(
    record_id: str | None, settings: Mapping[str, str], queue: Answer, dead_letter_queue: Answer | None, table: Answer
) -> list[Need]:
    """What every consumer needs. `record_id` is a sample, for roles that are restricted to a namespace."""
    ids = [] if record_id is None else [_given("dynamodb:LeadingKeys", "stringList", record_id)]
    found = [Need("sqs", FROM_A_QUEUE, queue["QueueArn"]), Need("dynamodb", ON_RECORDS, table["TableArn"], ids)]
    if dead_letter_queue is not None and settings.get("DEAD_LETTER_QUEUE_URL"):
        found.append(Need("sqs", ["SendMessage"], dead_letter_queue["QueueArn"]))
    return found


def needed_of_keys(
    settings: Mapping[str, str], queue: Answer, dead_letter_queue: Answer | None, table: Answer
) -> list[Need]:
    """The KMS actions needed, by key ARN, id or alias. AWS services use the keys on the consumer's behalf."""
    region = queue["QueueArn"].split(":")[3]
    dead = dead_letter_queue if settings.get("DEAD_LETTER_QUEUE_URL") else None
    used = (
        ("sqs", TO_RECEIVE, queue.get("KmsMasterKeyId")),
        ("sqs", TO_SEND, (dead or {}).get("KmsMasterKeyId")),
        ("dynamodb", FOR_A_TABLE, (table.get("SSEDescription") or {}).get("KMSMasterKeyArn")),
    )
    return [
        Need("kms", actions, key, [_given("kms:ViaService", "string", f"{service}.{region}.amazonaws.com")])
        for service, actions, key in used
        if key and not managed_by_aws(key)
    ]


def managed_by_aws(key: str) -> bool:
    """Whether an alias, by name or ARN, names an AWS managed key, which the whole account may use."""
    return key.rpartition(":")[2].startswith("alias/aws/")


def denied(iam: Any, kms: Any, role: Role, needs: Sequence[Need], of_keys: Sequence[Need]) -> list[str | NotAnswered]:
    """The actions that IAM denies the role, with their resources; empty if none."""
    found: list[str | NotAnswered] = [_told(need, _denied(iam, role, need)) for need in (*needs, *role.needs)]
    found += [asked(_denied_of_a_key, iam, kms, role, need) for need in of_keys]
    return [each for each in found if each != ""]


def denied_to_the_handler(
    iam: Any, role: Role, settings: Mapping[str, str], table: Answer
) -> dict[str, tuple[str, Sequence[str]]]:
    """By variable, like TOTALS_TABLE or REFUNDS_QUEUE_URL: the table or queue that it names, and the actions that the
    role is denied there.
    """
    _, partition, _, region, *_ = table["TableArn"].split(":")
    others = {each for each in settings if each.endswith("_QUEUE_URL")} - {"DEAD_LETTER_QUEUE_URL"}
    found: dict[str, tuple[str, Sequence[str]]] = {}
    for variable, name in settings.items():
        if variable.endswith("_TABLE") and TABLE_NAME.fullmatch(name) and name != table["TableName"]:
            need = Need("dynamodb", ON_ANY_TABLE, f"{table['TableArn'].partition('/')[0]}/{name}")
        elif variable in others and (queue := QUEUE_URL.fullmatch(name)) is not None:
            need = Need("sqs", ["SendMessage"], f"arn:{partition}:sqs:{region}:{queue[1]}:{queue[2]}")
        else:
            continue
        if refused := _denied(iam, role, need):
            found[variable] = need.resource.rpartition("/")[2].rpartition(":")[2], refused
    return found


def _denied_of_a_key(iam: Any, kms: Any, role: Role, need: Need) -> str:
    key = kms.describe_key(KeyId=need.resource)["KeyMetadata"]
    if key["KeyManager"] == "AWS":
        return ""  # its key policy admits the whole account
    refused = _denied(iam, role, replace(need, resource=key["Arn"]))
    if refused and ".amazonaws.com" not in iam.meta.endpoint_url:
        # Emulators ignore the context, so a conditional grant looks like a denial.
        raise NotAnswered(f"an emulator cannot tell whether the role may use the key {key['Arn']}")
    return _told(replace(need, resource=f"{key['Arn']} through {need.context[0]['ContextKeyValues'][0]}"), refused)


def _denied(iam: Any, role: Role, need: Need) -> list[str]:
    answer = iam.simulate_principal_policy(
        PolicySourceArn=role.arn,
        ActionNames=[f"{need.service}:{action}" for action in need.actions],
        ResourceArns=[need.resource],
        ContextEntries=need.context,
    )
    return [each["EvalActionName"] for each in answer["EvaluationResults"] if each["EvalDecision"] != "allowed"]


def _told(need: Need, refused: Sequence[str]) -> str:
    return f"{', '.join(refused)} on {need.resource}" if refused else ""


def _given(name: str, kind: str, value: str) -> dict[str, Any]:
    """A context key with its value, in the simulator's format."""
    return {"ContextKeyName": name, "ContextKeyType": kind, "ContextKeyValues": [value]}
