"""idemkit: its DynamoDB backend and its queue adapter as coroutines, with all messages of a batch at once.

Its documentation recommends coroutines over synchronous calls under load. It has as many connections as our client. By
default it stores a marker for a message and no result, which is cheaper.
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING, Any

from botocore.config import Config
from idemkit import ConsumerAction, IdempotentConsumer, QueueConfig
from idemkit.backends.dynamodb import DynamoBackend

from benchmarks.settings import TABLE
from benchmarks.subjects.reporting import reporting

if TYPE_CHECKING:
    from benchmarks.settings import Cell, Event, Handler

CONNECTIONS = 32


def build(cell: Cell) -> Handler:
    """The consumer, on an event loop that runs as long as its process."""
    if cell.writes:
        raise ValueError("idemkit offers no writes to compare")
    loop = asyncio.new_event_loop()
    consumer = loop.run_until_complete(_consumer(cell))

    async def receive(event: Event) -> Any:
        results = await asyncio.gather(*(consumer.dispatch(record) for record in event["Records"]))
        failed = [
            record["messageId"]
            for record, result in zip(event["Records"], results, strict=True)
            if result.action is not ConsumerAction.ACK
        ]
        return {"batchItemFailures": [{"itemIdentifier": id} for id in failed]}

    return reporting(lambda event, context: loop.run_until_complete(receive(event)))


async def _consumer(cell: Cell) -> IdempotentConsumer:
    backend = DynamoBackend(
        table=TABLE,
        endpoint_url=os.environ["AWS_ENDPOINT_URL"],
        create_table=False,
        config=Config(max_pool_connections=CONNECTIONS, retries={"mode": "standard", "max_attempts": 3}),
    )
    at_once = asyncio.Semaphore(cell.concurrency)

    async def handle(record: dict[str, Any]) -> dict[str, Any]:
        transfer = json.loads(record["body"])
        if cell.handler_seconds:
            async with at_once:
                await asyncio.sleep(cell.handler_seconds)
        return {"posted": transfer["transfer_id"]}

    config = QueueConfig(
        dedup_id=lambda record: record["messageId"],
        receive_count=lambda record: int(record["attributes"]["ApproximateReceiveCount"]),
        visibility_timeout_seconds=900,
    )
    return IdempotentConsumer(backend=backend, config=config, handler=handle)
