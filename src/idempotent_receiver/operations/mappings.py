"""The event source mappings through which Lambda reads a queue, and how to enable or disable them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from idempotent_receiver.clock import Clock

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_sqs import SQSClient

SWITCH_POLL_SECONDS = 1.0
SWITCHED_SECONDS = 300.0
"""Time limit for switching a mapping: Lambda takes up to two minutes, and may first finish another change."""
ENABLED, DISABLED = "Enabled", "Disabled"
"""The stable states of a mapping. In any other state, Lambda is changing it and refuses further changes."""


@dataclass(frozen=True, slots=True)
class Mapping:
    """An event source mapping, and the function that it invokes with a queue's messages."""

    id: str
    function: str
    """The function's name; NAME:ALIAS if Lambda invokes an alias or a version."""
    state: str

    def invokes(self, function: str) -> bool:
        """Whether this mapping invokes the function with this name or ARN, with or without an alias."""
        name = function.partition(":function:")[2] or function
        return name in (self.function, self.function.partition(":")[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """The approximate contents of a queue, and its visibility timeout and retention."""

    waiting: int
    in_flight: int
    visibility_seconds: int
    retention_seconds: int


def mappings_of(functions: "LambdaClient", queue_arn: str) -> list[Mapping]:
    """All mappings of the queue, sorted by function name."""
    found = functions.get_paginator("list_event_source_mappings").paginate(EventSourceArn=queue_arn)
    mappings = [
        Mapping(each["UUID"], each["FunctionArn"].partition(":function:")[2], each["State"])
        for page in found
        for each in page["EventSourceMappings"]
    ]
    return sorted(mappings, key=lambda each: each.function)


def backlog_of(sqs: "SQSClient", queue_url: str) -> Backlog:
    """The queue's backlog, as reported by SQS."""
    found = sqs.get_queue_attributes(QueueUrl=queue_url, AttributeNames=["All"])["Attributes"]
    return Backlog(
        waiting=int(found["ApproximateNumberOfMessages"]) + int(found["ApproximateNumberOfMessagesDelayed"]),
        in_flight=int(found["ApproximateNumberOfMessagesNotVisible"]),
        visibility_seconds=int(found["VisibilityTimeout"]),
        retention_seconds=int(found["MessageRetentionPeriod"]),
    )


def switch(
    functions: "LambdaClient",
    mappings: Sequence[Mapping],
    *,
    state: str,
    seconds: float,
    clock: Clock,
    stopped: Callable[[], bool],
) -> dict[str, str]:
    """Enable or disable mappings and wait up to `seconds` for `state`. Returns the last known states by id.

    A mapping that is already changing, as during a deployment, is switched as soon as Lambda accepts the change.
    """
    deadline = clock.monotonic_seconds() + seconds
    states = {each.id: each.state for each in mappings}
    while True:
        for id in (id for id, now in states.items() if now != state):
            states[id] = _asked(functions, id, state) if states[id] in (ENABLED, DISABLED) else _state(functions, id)
        if set(states.values()) <= {state} or stopped() or clock.monotonic_seconds() >= deadline:
            return states
        clock.sleep(SWITCH_POLL_SECONDS)


def _asked(functions: "LambdaClient", id: str, state: str) -> str:
    try:
        return functions.update_event_source_mapping(UUID=id, Enabled=state == ENABLED)["State"]
    except (functions.exceptions.ResourceInUseException, functions.exceptions.ResourceConflictException):
        return _state(functions, id)


def _state(functions: "LambdaClient", id: str) -> str:
    return functions.get_event_source_mapping(UUID=id)["State"]
