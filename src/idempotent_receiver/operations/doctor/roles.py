"""What the role of a consumer must be allowed, and what of that IAM denies it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from idempotent_receiver.operations.doctor.asking import Answer, Unavailable

FROM_A_QUEUE = ("ReceiveMessage", "DeleteMessage", "GetQueueAttributes", "ChangeMessageVisibility")
ON_RECORDS = ("PartiQLInsert", "PartiQLUpdate", "BatchGetItem", "PutItem", "UpdateItem")
ON_A_KEY = ("kms:Decrypt", "kms:GenerateDataKey")
TO_THE_LOG = ("CreateLogStream", "PutLogEvents")


@dataclass(frozen=True, slots=True)
class Role:
    """The role that a consumer runs with, and what only its kind needs, by the resource's ARN."""

    arn: str
    needs: Mapping[str, Sequence[str]]


def of_a_function(function: Answer) -> Role:
    """A function's role. It writes the log itself."""
    return Role(function["Role"], {_log_stream(function): [f"logs:{action}" for action in TO_THE_LOG]})


def of_a_task(task: Answer, cluster: str) -> Role:
    """The role of an ECS task, which asks ECS to protect it. Its log is written by another role."""
    if "taskRoleArn" not in task:
        raise Unavailable("the task has no role of its own")
    _, partition, _, region, account, *_ = task["taskDefinitionArn"].split(":")
    itself = f"arn:{partition}:ecs:{region}:{account}:task/{cluster}/any"
    return Role(task["taskRoleArn"], {itself: ["ecs:UpdateTaskProtection"]})


def denied(iam: Any, role: Role, needs: Mapping[str, Sequence[str]], queue: Answer) -> list[str]:
    """The actions that the role is denied, as IAM itself decides."""
    needed = {**needs, **role.needs}
    denied = [each for resource, actions in needed.items() for each in _denied_on(iam, role, resource, actions, [])]
    key = str(queue.get("KmsMasterKeyId"))
    if denied or not key.startswith("arn:"):
        return denied
    by_sqs = f"sqs.{queue['QueueArn'].split(':')[3]}.amazonaws.com"
    context = {"ContextKeyName": "kms:ViaService", "ContextKeyType": "string", "ContextKeyValues": [by_sqs]}
    denied = _denied_on(iam, role, key, ON_A_KEY, [context])
    if denied and ".amazonaws.com" not in iam.meta.endpoint_url:
        # Emulators ignore the context, so they take a grant with a condition for none.
        raise Unavailable("only AWS knows whether the role may use the queue's key")
    return denied


def _denied_on(iam: Any, role: Role, resource: str, actions: Sequence[str], context: list[Any]) -> list[str]:
    answer = iam.simulate_principal_policy(
        PolicySourceArn=role.arn, ActionNames=list(actions), ResourceArns=[resource], ContextEntries=context
    )
    return [each["EvalActionName"] for each in answer["EvaluationResults"] if each["EvalDecision"] != "allowed"]


def needed(
    settings: Mapping[str, str], queue: Answer, dead_letter_queue: Answer | None, table: Answer
) -> dict[str, Sequence[str]]:
    """The actions that every consumer needs, by the resource's ARN."""
    found: dict[str, Sequence[str]] = {
        queue["QueueArn"]: [f"sqs:{action}" for action in FROM_A_QUEUE],
        table["TableArn"]: [f"dynamodb:{action}" for action in ON_RECORDS],
    }
    if dead_letter_queue is not None and settings.get("DEAD_LETTER_QUEUE_URL"):
        found[dead_letter_queue["QueueArn"]] = ["sqs:SendMessage"]
    return found


def _log_stream(function: Answer) -> str:
    _, partition, _, region, account, *_ = function["FunctionArn"].split(":")
    log = (function.get("LoggingConfig") or {}).get("LogGroup") or f"/aws/lambda/{function['FunctionName']}"
    return f"arn:{partition}:logs:{region}:{account}:log-group:{log}:log-stream:any"
