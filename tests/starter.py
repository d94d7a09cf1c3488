"""The projects that `receiver init` makes, one for each choice."""

from __future__ import annotations

from typing import Any

from idempotent_receiver.operations.starter.project import Project, contents
from idempotent_receiver.operations.starter.senders import SendingService

QUEUE = "arn:aws:sqs:us-east-1:123456789012:orders"
BODY_FIELD = ("body_field", "order_id")
CHOICES: dict[str, dict[str, Any]] = {
    "plain": {},
    "fifo": {"fifo": True},
    "async": {"asynchronous": True},
    "body field": {"key": BODY_FIELD},
    "nested field": {"key": ("body_field", "order.id"), "fifo": True},
    "attribute": {"key": ("message_attribute", "order-id")},
    "own queue": {"queue_arn": QUEUE},
    "own fifo queue": {"queue_arn": f"{QUEUE}.fifo", "fifo": True, "key": BODY_FIELD},
    "container": {"container": True},
    "s3": {"source": SendingService.S3, "key": ("event_id", "")},
    "sns": {"source": SendingService.SNS, "key": ("event_id", "")},
    "eventbridge": {"source": SendingService.EVENTBRIDGE, "key": BODY_FIELD},
    "sql": {"sql": True},
    "sql, own queue": {"sql": True, "queue_arn": QUEUE, "key": BODY_FIELD},
    "sql, sns, container": {"sql": True, "container": True, "source": SendingService.SNS, "key": ("event_id", "")},
    "sql, s3": {"sql": True, "source": SendingService.S3, "key": ("event_id", "")},
}


def made(choice: str) -> dict[str, str]:
    """The project's text files by their paths."""
    project = Project(name="order-totals", **CHOICES[choice])
    return contents(project, requirement="idempotent-receiver~=0.1", requirement_dev="idempotent-receiver[cli]~=0.1")
