"""idemkit's loop for SQS: `python -m benchmarks.polling.idemkit QUEUE_URL`. It handles one message after the other."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import boto3
from idemkit.backends.dynamodb import DynamoBackend
from idemkit.contrib.sqs import run_forever, sqs_consumer

from benchmarks.polling import HANDLER_SECONDS
from benchmarks.settings import TABLE

VISIBILITY_SECONDS = 60


def main(queue_url: str) -> None:
    """Poll until this process is ended."""
    backend = DynamoBackend(table=TABLE, endpoint_url=os.environ["AWS_ENDPOINT_URL"], create_table=False)
    consumer = sqs_consumer(backend=backend, visibility_timeout_seconds=VISIBILITY_SECONDS)

    @consumer.handle
    async def handle(message: dict[str, Any]) -> dict[str, Any]:
        transfer = json.loads(message["Body"])
        if HANDLER_SECONDS:
            await asyncio.sleep(HANDLER_SECONDS)
        return {"posted": transfer["transfer_id"]}

    run_forever(consumer, sqs_client=boto3.client("sqs"), queue_url=queue_url, visibility_timeout=VISIBILITY_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1])
