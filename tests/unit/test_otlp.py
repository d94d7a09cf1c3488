"""What a consumer's spans are on the wire: OTLP over HTTP, sent to an endpoint here."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from idempotent_receiver import MemoryStore, sqs_consumer
from idempotent_receiver.testing import lambda_context, sqs_event
from idempotent_receiver.testing.worker import SILENT, failed_ids

if TYPE_CHECKING:
    from collections.abc import Iterator

TRACE, SENDER = "a" * 32, "1" * 16


@contextmanager
def collector() -> Iterator[tuple[str, list[ExportTraceServiceRequest]]]:
    """The address of an endpoint for spans, and what it has received."""
    received: list[ExportTraceServiceRequest] = []

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            assert (self.path, self.headers["Content-Type"]) == ("/v1/traces", "application/x-protobuf")
            received.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *arguments: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/traces", received
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_spans_reach_a_collector_with_their_links_and_attributes() -> None:
    def handle(order: dict) -> None:
        if order.get("fails"):
            raise ValueError

    with collector() as (address, received):
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=address)))
        tracer = provider.get_tracer("orders")
        consumer = sqs_consumer(MemoryStore("orders"), tracer=tracer, logger=SILENT, metrics=SILENT)(handle)
        event = sqs_event({}, {"fails": True}, attributes={"traceparent": f"00-{TRACE}-{SENDER}-01"})
        assert failed_ids(consumer(event, lambda_context())) == ["message-2"]
        provider.force_flush()
        provider.shutdown()

    spans = [
        span
        for request in received
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    assert sorted(span.name for span in spans) == ["claim", "process queue", "process queue", "settle"]
    assert {(link.trace_id.hex(), link.span_id.hex()) for span in spans for link in span.links} == {(TRACE, SENDER)}
    messages = {_attributes(span)["messaging.message.id"]: span for span in spans if span.name == "process queue"}
    assert {span.kind for span in messages.values()} == {Span.SPAN_KIND_CONSUMER}
    assert [messages[id].status.code for id in ("message-1", "message-2")] == [
        Status.STATUS_CODE_UNSET,
        Status.STATUS_CODE_ERROR,
    ]
    assert _attributes(messages["message-2"])["error.type"] == "ValueError"


def _attributes(span: Span) -> dict[str, str]:
    return {each.key: each.value.string_value for each in span.attributes}
