"""fanferro's consumer: `python -m benchmarks.polling.fanferro QUEUE_URL [CONCURRENCY]`. It remembers nothing."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import fanferro

from benchmarks.polling import HANDLER_SECONDS

VISIBILITY_SECONDS = 60


async def main(queue_url: str, concurrency: str | None = None) -> None:
    """Poll until this process is ended."""
    client = fanferro.Client(endpoint_url=os.environ["AWS_ENDPOINT_URL"], provisioning=fanferro.Provisioning.assume())
    queue = client.queue(queue_url.rpartition("/")[2], url=queue_url)
    options = {} if concurrency is None else {"concurrency": int(concurrency)}
    consumer = client.consumer(queue, visibility_timeout=VISIBILITY_SECONDS, **options)

    @consumer.default  # type: ignore[untyped-decorator]  # not all environments have its types
    async def post(transfer: dict[str, Any]) -> dict[str, Any]:
        """Treat a transfer as posted."""
        if HANDLER_SECONDS:
            await asyncio.sleep(HANDLER_SECONDS)
        return {"posted": transfer["transfer_id"]}

    async with client:
        await consumer.run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
