"""`make spans`: docs/spans.svg, the spans of four messages on the local cloud, as OTLP brings them to a collector.

Two consumers in a row: orders, one of which fails and one of which comes twice, and what they send. A row is a span, in
the order in which they began, below its parent; a dashed line is a link.
"""

from __future__ import annotations

import json
import time
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry import propagate, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from harness.cloud import ROOT, embedded_cloud
from idempotent_receiver import DynamoDBStore, Transaction, sqs_consumer
from idempotent_receiver.sqs.received import lambda_record
from idempotent_receiver.testing import lambda_context
from idempotent_receiver.testing.worker import SILENT, failed_ids
from tests.unit.test_otlp import collector

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from harness.cloud import Cloud

PICTURE = ROOT / "docs" / "spans.svg"
ORDERS = [{"order": "1"}, {"order": "2"}, {"order": "3", "fails": True}]
QUEUES, TABLES = ("orders", "parcels"), {"records": "id", "placed": "order", "packed": "order"}
LABELS, TRACK, ROW = 330, 650, 20
"""Pixels."""
OUTCOME = "idempotent_receiver.outcome"


class Row(NamedTuple):
    """A span, and how far below its trace's first one it is."""

    span: Span
    depth: int


def main() -> None:
    PICTURE.write_text(drawn([*in_rows(spans_of_a_run())]))


def spans_of_a_run() -> list[Span]:
    with embedded_cloud() as cloud, collector() as (address, received):
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=address)))
        play(cloud, provider.get_tracer("shop"))
        provider.force_flush()
        provider.shutdown()
    return [
        span
        for request in received
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def play(cloud: Cloud, tracer: trace.Tracer) -> None:
    """Send the orders, handle them in two batches, and then what they have sent."""
    sqs, dynamodb = cloud.client("sqs"), cloud.client("dynamodb")
    orders, parcels = (sqs.create_queue(QueueName=name)["QueueUrl"] for name in QUEUES)
    for name, key in TABLES.items():
        dynamodb.create_table(
            TableName=name,
            KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
    options: Any = {"sqs": sqs, "tracer": tracer, "logger": SILENT, "metrics": SILENT}

    @sqs_consumer(DynamoDBStore("records", "spans.orders", dynamodb), **options)
    def place(order: dict[str, Any], tx: Transaction) -> None:
        with tracer.start_as_current_span("check the order"):
            time.sleep(0.005)
        if "fails" in order:
            raise ConnectionError
        tx.put(TableName="placed", Item=order)
        tx.send(QueueUrl=parcels, MessageBody=order)

    @sqs_consumer(DynamoDBStore("records", "spans.parcels", dynamodb), **options)
    def pack(order: dict[str, Any], tx: Transaction) -> None:
        tx.put(TableName="packed", Item=order)

    with tracer.start_as_current_span("POST /checkout", kind=trace.SpanKind.SERVER):
        for order in ORDERS:
            context: dict[str, str] = {}
            propagate.inject(context)
            attributes: Any = {"traceparent": {"DataType": "String", "StringValue": context["traceparent"]}}
            sqs.send_message(QueueUrl=orders, MessageBody=json.dumps(order), MessageAttributes=attributes)
    batch = received_from(sqs, orders)
    invoke(tracer, place, batch)
    invoke(tracer, place, batch[:1])  # SQS may deliver one again
    invoke(tracer, pack, received_from(sqs, parcels))


def received_from(sqs: Any, url: str) -> list[dict[str, Any]]:
    """A batch, as Lambda passes it on."""
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    more: Any = {"AttributeNames": ["All"], "MessageAttributeNames": ["All"]}
    found = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, **more)["Messages"]
    return [lambda_record(each, arn) for each in found]


def invoke(tracer: trace.Tracer, consumer: Any, records: list[dict[str, Any]]) -> list[str]:
    """Handle a batch below the span of its invocation."""
    with tracer.start_as_current_span("invocation", context=trace.set_span_in_context(trace.INVALID_SPAN)):
        return failed_ids(consumer({"Records": records}, lambda_context()))


def in_rows(spans: Iterable[Span]) -> Iterator[Row]:
    """Each span below its parent, in the order in which they began."""
    below: dict[bytes, list[Span]] = {}
    for span in sorted(spans, key=lambda span: span.start_time_unix_nano):
        below.setdefault(span.parent_span_id, []).append(span)
    waiting = [Row(span, 0) for span in reversed(below.get(b"", []))]
    while waiting:
        yield (row := waiting.pop())
        waiting += [Row(span, row.depth + 1) for span in reversed(below.get(row.span.span_id, []))]


def drawn(rows: list[Row]) -> str:
    """The spans as an SVG."""
    first = min(row.span.start_time_unix_nano for row in rows)
    last = max(row.span.end_time_unix_nano for row in rows)
    place = {row.span.span_id: number for number, row in enumerate(rows)}

    def x(nanoseconds: int) -> float:
        return LABELS + TRACK * (nanoseconds - first) / (last - first)

    parts = []
    for number, (span, depth) in enumerate(rows):
        y, begins = number * ROW + 6, x(span.start_time_unix_nano)
        width = max(2.0, x(span.end_time_unix_nano) - begins)
        outcome = next((each.value.string_value for each in span.attributes if each.key == OUTCOME), "")
        failed = span.status.code == Status.STATUS_CODE_ERROR
        colour = "#d62728" if failed else "#1f77b4" if span.kind == Span.SPAN_KIND_CONSUMER else "#9aa5b1"
        milliseconds = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e6
        told = escape(f"{span.name}{f': {outcome}' if outcome else ''}")
        parts.append(f'<text x="{8 + 14 * depth}" y="{y + 12}">{told}</text>')
        parts.append(f'<rect x="{begins:.1f}" y="{y}" width="{width:.1f}" height="14" rx="2" fill="{colour}"/>')
        beside = begins + width + 4 if begins + width < LABELS + TRACK - 60 else begins - 50
        parts.append(f'<text x="{beside:.1f}" y="{y + 11}" fill="#555">{milliseconds:.1f} ms</text>')
        for link in span.links if span.kind == Span.SPAN_KIND_CONSUMER else ():
            if link.span_id in place:
                above, from_x = place[link.span_id] * ROW + 20, x(rows[place[link.span_id]].span.end_time_unix_nano)
                line = f'x1="{from_x:.1f}" y1="{above}" x2="{begins:.1f}" y2="{y + 7}"'
                parts.append(f'<line {line} stroke="#e0861a" stroke-dasharray="4 3"/>')
    size = f"0 0 {LABELS + TRACK + 20} {len(rows) * ROW + 12}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}" font-family="sans-serif" font-size="12">'
        '<rect width="100%" height="100%" fill="#fff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


if __name__ == "__main__":
    main()
