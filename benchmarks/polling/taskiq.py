"""A taskiq worker's broker and task, on SQS: `taskiq worker benchmarks.polling.taskiq:broker`. It remembers nothing."""

from __future__ import annotations

import asyncio
import json
import secrets
from typing import Any

from taskiq_aio_sqs import SQSBroker

from benchmarks.polling import HANDLER_SECONDS
from benchmarks.settings import QUEUE

TASK = "post"

broker = SQSBroker(QUEUE, max_number_of_messages=10, visibility_timeout=60)


@broker.task(task_name=TASK)  # type: ignore[untyped-decorator]  # not all environments have its types
async def post(transfer: dict[str, Any]) -> dict[str, Any]:
    """Treat a transfer as posted."""
    if HANDLER_SECONDS:
        await asyncio.sleep(HANDLER_SECONDS)
    return {"posted": transfer["transfer_id"]}


def body(transfer: dict[str, Any]) -> str:
    """The message with which taskiq requests the task."""
    task = {"task_id": secrets.token_hex(16), "task_name": TASK, "labels": {}, "labels_types": {}}
    return json.dumps({**task, "args": [transfer], "kwargs": {}})
