"""idemkit: its DynamoDB backend and its queue adapter, by its coroutines, all messages of a batch at once.

Its documentation prefers the coroutines to the synchronous calls under load. Its connections are as many as ours, and
it stores a mark for a message and no result, as it does by default, which is the cheaper thing.
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING, Any

from botocore.config import Config
from idemkit import ConsumerAction, IdempotentConsumer, QueueConfig
from idemkit.backends.dynamodb import DynamoBackend

from benchmarks.subjects.telling import telling

if TYPE_CHECKING:
    from benchmarks.settings import Event, Handler, Settings

CONNECTIONS = 32


def build(settings: Settings) -> Handler:
    """The consumer, on an event loop that lasts as long as its process."""
    if settings.writes:
        raise ValueError("idemkit has no writes of its own to compare")
    loop = asyncio.new_event_loop()
    consumer = loop.run_until_complete(_consumer(settings))

    async def receive(event: Event) -> Any:
        results = await asyncio.gather(*(consumer.dispatch(record) for record in event["Records"]))
        failed = [
            record["messageId"]
            for record, result in zip(event["Records"], results, strict=True)
            if result.action is not ConsumerAction.ACK
        ]
        return {"batchItemFailures": [{"itemIdentifier": id} for id in failed]}

    return telling(lambda event, context: loop.run_until_complete(receive(event)))


async def _consumer(settings: Settings) -> IdempotentConsumer:
    backend = DynamoBackend(
        table=settings.table,
        endpoint_url=os.environ["AWS_ENDPOINT_URL"],
        create_table=False,
        config=Config(max_pool_connections=CONNECTIONS, retries={"mode": "standard", "max_attempts": 3}),
    )
    at_once = asyncio.Semaphore(settings.concurrency)

    async def handle(record: dict[str, Any]) -> dict[str, Any]:
        transfer = json.loads(record["body"])
        if settings.handler_seconds:
            async with at_once:
                await asyncio.sleep(settings.handler_seconds)
        return {"posted": transfer["transfer_id"]}

    config = QueueConfig(
        dedup_id=lambda record: record["messageId"],
        receive_count=lambda record: int(record["attributes"]["ApproximateReceiveCount"]),
        visibility_timeout_seconds=900,
    )
    return IdempotentConsumer(backend=backend, config=config, handler=handle)
