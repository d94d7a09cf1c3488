"""OpenTelemetry's SDK in memory: a tracer, and the spans that have ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import Span, Tracer

MESSAGE_ID = "messaging.message.id"
OUTCOME = "idempotent_receiver.outcome"


class Tracing:
    """A tracer whose spans are kept."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer: Tracer = self.provider.get_tracer("orders")

    @property
    def spans(self) -> list[ReadableSpan]:
        """All that have ended, in order."""
        return list(self._exporter.get_finished_spans())

    @property
    def of_messages(self) -> list[ReadableSpan]:
        """Those of messages."""
        return [span for span in self.spans if span.kind is SpanKind.CONSUMER]

    def named(self, *names: str) -> list[ReadableSpan]:
        """Those with one of these names."""
        return [span for span in self.spans if span.name in names]

    def below(self, span: ReadableSpan) -> list[str]:
        """The names of the spans whose parent is this one."""
        return [one.name for one in self.spans if one.parent is not None and one.parent.span_id == span.context.span_id]

    def clear(self) -> None:
        """Forget them."""
        self._exporter.clear()


def of(span: ReadableSpan, name: str) -> Any:
    """An attribute."""
    return (span.attributes or {}).get(name)


def links(span: ReadableSpan) -> list[tuple[int, int]]:
    """The linked traces and spans."""
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


def traceparent(span: Span) -> str:
    """The header that names it."""
    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier, set_span_in_context(span))
    return carrier["traceparent"]


def xray(span: Span) -> str:
    """The header of X-Ray that names it."""
    context = span.get_span_context()
    trace = f"{context.trace_id:032x}"
    return f"Root=1-{trace[:8]}-{trace[8:]};Parent={context.span_id:016x};Sampled=1"
