"""Consumers whose time and concurrency a test controls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from idempotent_receiver import sqs_consumer
from idempotent_receiver.sqs.consumer import Consumer

if TYPE_CHECKING:
    from collections.abc import Callable

    from idempotent_receiver.batch.executor import NewExecutor
    from idempotent_receiver.clock import Clock
    from idempotent_receiver.protocol.store import RecordStore
    from idempotent_receiver.sqs.consumer import LambdaHandler


def controlled(
    store: RecordStore, *, clock: Clock | None = None, executor: NewExecutor | None = None, **options: Any
) -> Callable[[Callable[..., Any]], LambdaHandler]:
    """As `sqs_consumer`, with a clock and executors of the test's own, as of `with_options`."""
    consumer = sqs_consumer(store, **options)
    return lambda function: Consumer(consumer, function, clock=clock, executor=executor).lambda_handler
