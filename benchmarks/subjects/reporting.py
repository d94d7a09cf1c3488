"""A report of each batch for subjects that have none of their own: a log line, and metrics for counts and duration."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

if TYPE_CHECKING:
    from benchmarks.settings import Event, Handler


def reporting(handler: Handler) -> Handler:
    """The handler, with a log line and metrics for each batch."""
    logger, metrics = Logger(service="benchmark"), Metrics(namespace="Benchmark", service="benchmark")

    def lambda_handler(event: Event, context: Any) -> Any:
        started = time.perf_counter()
        answer = handler(event, context)
        messages, failed = len(event["Records"]), len(answer["batchItemFailures"])
        milliseconds = round((time.perf_counter() - started) * 1000, 3)
        logger.info("batch", extra={"messages": messages, "failed": failed, "milliseconds": milliseconds})
        metrics.add_metric("Completed", unit=MetricUnit.Count, value=messages - failed)
        metrics.add_metric("Failed", unit=MetricUnit.Count, value=failed)
        metrics.add_metric("BatchDuration", unit=MetricUnit.Milliseconds, value=milliseconds)
        metrics.flush_metrics()
        return answer

    return lambda_handler
