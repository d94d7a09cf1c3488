"""The cost of a message's spans: CPU with a tracer and without, and of the SDK's own span with a link, in one run.

The exporter drops what it gets. `.venv/bin/python -m benchmarks.tracing` prints a line of JSON, and exits with 0 only
if the spans take at most twice the SDK's own.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from statistics import median
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from benchmarks.cpus import keep_to
from idempotent_receiver import MemoryStore, sqs_consumer
from idempotent_receiver.testing import lambda_context, sqs_event
from idempotent_receiver.testing.worker import SILENT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from opentelemetry.sdk.trace import ReadableSpan

MESSAGES, ROUNDS = 100, 60
MOST_TIMES_THE_SDKS = 2.0
ATTRIBUTES = {
    "messaging.system": "aws_sqs",
    "messaging.operation.name": "process",
    "messaging.operation.type": "process",
    "messaging.destination.name": "queue",
    "messaging.message.id": "message-1",
    "faas.trigger": "pubsub",
}
"""The attributes that the conventions require of any instrumentation."""


class Drop(SpanExporter):
    """Keeps nothing."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Drop them."""
        return SpanExportResult.SUCCESS


def handle(order: dict[str, Any]) -> None:
    """Do nothing."""


def event(number: int) -> dict[str, Any]:
    """A batch of fresh messages, each from a different producer."""
    made = sqs_event(*[{}] * MESSAGES, ids=[f"{number}-{place}" for place in range(MESSAGES)])
    for place, record in enumerate(made["Records"], 1):
        traceparent = f"00-{place:032x}-{place:016x}-01"
        record["messageAttributes"] = {"traceparent": {"stringValue": traceparent, "dataType": "String"}}
    return made


def sdks_own(tracer: trace.Tracer) -> None:
    """As many spans with a link, current and ended, without this library."""
    for place in range(1, MESSAGES + 1):
        producer = trace.SpanContext(place, place, is_remote=True, trace_flags=trace.TraceFlags(1))
        with tracer.start_as_current_span(
            "process queue", kind=trace.SpanKind.CONSUMER, links=[trace.Link(producer)], attributes=ATTRIBUTES
        ):
            pass


def cpu_us(run: Callable[[], object]) -> float:
    """Its CPU time a message, in microseconds."""
    gc.collect()
    began = time.process_time()
    run()
    return (time.process_time() - began) / MESSAGES * 1e6


def main() -> int:
    """Measure in turns, and print the medians."""
    if hasattr(os, "sched_setaffinity"):
        keep_to([max(os.sched_getaffinity(0))])
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(Drop()))
    tracer = provider.get_tracer("orders")
    quiet: dict[str, Any] = {"logger": SILENT, "metrics": SILENT}
    without = sqs_consumer(MemoryStore("without"), **quiet)(handle)
    traced = sqs_consumer(MemoryStore("traced"), tracer=tracer, **quiet)(handle)
    rounds: list[tuple[float, float, float]] = []
    for number in range(ROUNDS):
        made, context = event(number), lambda_context()
        rounds.append(
            (
                cpu_us(lambda: without(made, context)),  # noqa: B023  # called at once
                cpu_us(lambda: traced(made, context)),  # noqa: B023
                cpu_us(lambda: sdks_own(tracer)),
            )
        )
    plain, with_spans, sdks = (median(each) for each in zip(*rounds, strict=True))
    times = (with_spans - plain) / sdks
    figures = {"without": plain, "with": with_spans, "spans": with_spans - plain, "sdk": sdks, "times": times}
    print(json.dumps({name: round(value, 2) for name, value in figures.items()}))
    return int(times > MOST_TIMES_THE_SDKS)


if __name__ == "__main__":
    sys.exit(main())
