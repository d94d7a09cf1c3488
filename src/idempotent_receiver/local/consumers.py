"""Finds the functions in a deployed stack that consume queues, and chooses one."""

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from idempotent_receiver.local.cloud import Cloud
from idempotent_receiver.local.deployment import Stack
from idempotent_receiver.local.samples import TrialError

MAX_RECEIVES, VISIBILITY_SECONDS = 5, 900
"""Settings of a queue created here; the visibility timeout is Lambda's longest timeout."""


@dataclass(frozen=True, kw_only=True)
class QueueConsumer:
    """A function that consumes a queue."""

    name: str
    function: str
    queue_url: str
    mapping: str
    """The id of its event source mapping."""
    partial: bool
    """Whether its mapping uses partial batch responses."""


def consumers_of(cloud: Cloud, stack: Stack) -> list[QueueConsumer]:
    """The functions that consume a queue. Assumes that the cloud contains only this stack."""
    names = {physical: logical for logical, physical in stack.resources.items()}
    pages = cloud.client("lambda").get_paginator("list_event_source_mappings").paginate()
    found = []
    for each in (mapping for page in pages for mapping in page["EventSourceMappings"]):
        _, _, service, *_, queue = each["EventSourceArn"].split(":")
        if service == "sqs":
            function = each["FunctionArn"].split(":")[6]
            found.append(
                QueueConsumer(
                    name=names.get(function, function),
                    function=function,
                    queue_url=_queue_url(cloud, queue),
                    mapping=each["UUID"],
                    partial="ReportBatchItemFailures" in each.get("FunctionResponseTypes", []),
                )
            )
    return found


def _queue_url(cloud: Cloud, name: str) -> str:
    """The queue's URL. A queue that the template assumes to exist is created, together with a dead-letter queue."""
    sqs = cloud.client("sqs")
    with contextlib.suppress(sqs.exceptions.QueueDoesNotExist):
        return str(sqs.get_queue_url(QueueName=name)["QueueUrl"])
    ending = ".fifo" if name.endswith(".fifo") else ""
    fifo = {"FifoQueue": "true"} if ending else {}
    dead = sqs.create_queue(QueueName=f"dead-letters-of-{name.removesuffix(ending)}"[:75] + ending, Attributes=fifo)
    found = sqs.get_queue_attributes(QueueUrl=dead["QueueUrl"], AttributeNames=["QueueArn"])["Attributes"]
    redrive = json.dumps({"deadLetterTargetArn": found["QueueArn"], "maxReceiveCount": MAX_RECEIVES})
    attributes = {**fifo, "VisibilityTimeout": str(VISIBILITY_SECONDS), "RedrivePolicy": redrive}
    return str(sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"])


def chosen_function(names: Sequence[str], name: str | None) -> str:
    """The function called `name` or, without a name, the only one. Raises TrialError unless exactly one matches."""
    told = ", ".join(names)
    if not names:
        raise TrialError("no function in the template consumes a queue: add an event of type SQS to one")
    matching = [each for each in names if name in (None, each)]
    if len(matching) != 1:
        raise TrialError(
            f"{'which function?' if name is None else f'{name} does not consume a queue;'} "
            f"use --function with one of: {told}"
        )
    return matching[0]
