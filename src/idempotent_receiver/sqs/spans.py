"""A batch's spans for an OpenTelemetry tracer: one for each message, linked to its producer, and one for each exchange
with the store.

Imported only for a consumer with a tracer. Attributes follow the semantic conventions for messaging (1.44, in
development); the library's own start with `idempotent_receiver.`. No attribute contains a body, a key or an error's
text. If the tracer raises, only spans are lost.
"""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableSequence, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from inspect import isawaitable
from itertools import islice
from logging import WARNING
from typing import Any, TypeVar, cast

from opentelemetry import context, trace

from idempotent_receiver.batch.items import Item, Work
from idempotent_receiver.handler.attempt import Attempt
from idempotent_receiver.log_lines import line_of
from idempotent_receiver.protocol.exchange import Operation
from idempotent_receiver.protocol.peek import Peek
from idempotent_receiver.protocol.sending import TakeOver
from idempotent_receiver.protocol.store import Unknown
from idempotent_receiver.protocol.transitions import Claim, Claimed
from idempotent_receiver.sqs.message import Message
from idempotent_receiver.sqs.options import ConsumerOptions
from idempotent_receiver.sqs.visibility import queue_url

MOST_LINKS = 128
"""Links per span: the SDK's default limit."""

OWN = "idempotent_receiver."
"""The prefix of the attributes that no convention defines."""

_NAMES: dict[type, str] = {Peek: "read", Claim: "claim", TakeOver: "claim"}
T = TypeVar("T")


class BatchSpans:
    """One batch's spans: see `batch.settings.Spans`. Each handler runs with its message's span as the current span."""

    def __init__(
        self,
        options: ConsumerOptions,
        messages: Sequence[Message],
        works: MutableSequence[Work],
        *,
        on_lambda: bool,
    ) -> None:
        self._messages, self._telemetry = messages, options.telemetry
        self._of_queue = cache(partial(_of_queue, options.sqs, on_lambda=on_lambda))
        self._start = cast(trace.Tracer, options.tracer).start_span  # without a tracer, there are no spans
        self._raised = False
        self._begun: dict[int, trace.Span] = {}
        self._links: dict[int, dict[tuple[int, int], trace.Link]] = {}
        self._places: dict[str, list[int]] = {}
        """The places of the messages that have not ended, by record id."""
        for place, work in enumerate(works):
            works[place] = work._replace(handle=partial(self._run, place, work.handle))

    def keyed(self, known: Sequence[tuple[int, str]]) -> None:
        """Note which records messages have."""
        for place, id in known:
            self._places.setdefault(id, []).append(place)

    def exchange(self, operations: Sequence[Operation[Any]], send: Callable[[], T]) -> Callable[[], T]:
        """Wrap an exchange in a span. Its messages' spans begin at once, unless they have already begun."""
        places = [place for one in operations for place in self._places[one.transition.id]]
        for place in places:
            self._span(place)
        links = {ids: link for place in places for ids, link in self._links.get(place, {}).items()}
        name = _NAMES.get(type(operations[0].transition), "commit" if operations[0].actions else "settle")

        def traced() -> T:
            count, most = {f"{OWN}message_count": len(operations)}, list(islice(links.values(), MOST_LINKS))
            span = self._safely(self._start, name, links=most, attributes=count)
            try:
                with _current(span):
                    return send()
            finally:
                answered = all(one.answer is not None and not isinstance(one.answer, Unknown) for one in operations)
                self._end(span, None if answered else "StoreUnavailable")

        return traced

    def ended(self, item: Item) -> None:
        """End a message's span with its outcome."""
        assert item.outcome is not None  # it has ended
        if (span := self._span(item.index)) is not None:
            self._safely(span.set_attributes, _ended_as(item))
            self._end(self._begun.pop(item.index), line_of(item.outcome).fields.get("error_type"))
        if isinstance(item.work.claim, Claim):
            self._places[item.work.claim.id].remove(item.index)

    def close(self) -> None:
        """End the spans that are still open because the whole batch failed."""
        while self._begun:
            self._end(self._begun.popitem()[1], "_OTHER")

    def _run(self, place: int, handle: Callable[[Attempt], Any], attempt: Attempt) -> Any:
        span = self._span(place)
        if attempt.call is not None:
            return self._call(span, f"call {attempt.call.name}", partial(handle, attempt))
        with _current(span):
            result = handle(attempt)
        if isawaitable(result):
            return self._awaited(span, result, attempt)
        self._safely(_pass_on, span, attempt)
        return result

    async def _awaited(self, span: trace.Span | None, result: Awaitable[Any], attempt: Attempt) -> Any:
        with _current(span):
            returned = await result
        self._safely(_pass_on, span, attempt)
        return returned

    def _call(self, of_message: trace.Span | None, name: str, make: Callable[[], Any]) -> Any:
        """Make a record's call in a span below its message's."""
        with _current(of_message):
            span = self._safely(self._start, name)
        with self._ending(span) as awaits, _current(span):
            result = make()
            if isawaitable(result):
                awaits.append(True)
                return self._call_awaited(span, result)
        return result

    async def _call_awaited(self, span: trace.Span | None, result: Awaitable[Any]) -> Any:
        with self._ending(span), _current(span):
            return await result

    @contextmanager
    def _ending(self, span: trace.Span | None) -> Iterator[list[bool]]:
        """End a span with the block and its error, unless the block says that something is still awaited."""
        awaits: list[bool] = []
        try:
            yield awaits
        except BaseException as error:
            self._end(span, type(error).__qualname__)
            raise
        if not awaits:
            self._end(span, None)

    def _span(self, place: int) -> trace.Span | None:
        """A message's span. It begins at its first use: in a large batch, most messages wait a long time."""
        if place not in self._begun and (span := self._safely(self._new_span, place)) is not None:
            self._begun[place] = span
        return self._begun.get(place)

    def _new_span(self, place: int) -> trace.Span:
        message = self._messages[place]
        self._links[place] = links = {ids: trace.Link(one) for ids, one in producers(message).items()}
        name, same = self._of_queue(message.queue_arn)
        own = {"messaging.message.id": message.id, f"{OWN}receive_count": message.receive_count}
        return self._start(name, kind=trace.SpanKind.CONSUMER, links=[*links.values()], attributes=same | own)

    def _end(self, span: trace.Span | None, error_type: str | None) -> None:
        if span is None:
            return
        if error_type is not None:
            self._safely(span.set_attribute, "error.type", error_type)
            self._safely(span.set_status, trace.StatusCode.ERROR)
        self._safely(span.end)

    def _safely(self, call: Callable[..., T], *args: Any, **options: Any) -> T | None:
        """The tracer's result, or None if it raises, which is logged once per batch."""
        try:
            return call(*args, **options)
        except Exception as error:  # noqa: BLE001  # a tracer, its samplers and its processors may raise anything
            if not self._raised:
                self._telemetry.report_raised("the tracer raised, so spans are missing", error, WARNING)
            self._raised = True
            return None


def _of_queue(sqs: Any, queue_arn: str, *, on_lambda: bool) -> tuple[str, dict[str, Any]]:
    """The span name and attributes that all of a queue's messages share."""
    queue = queue_arn.rpartition(":")[2]
    attributes = {
        "messaging.system": "aws_sqs",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": queue,
    }
    if on_lambda:
        attributes["faas.trigger"] = "pubsub"
    with suppress(Exception):  # there may be no client, and a handwritten event may have an invalid ARN
        attributes["aws.sqs.queue.url"] = queue_url(sqs, queue_arn)
    return f"process {queue}".rstrip(), attributes


@contextmanager
def _current(span: trace.Span | None) -> Iterator[None]:
    if span is None:
        yield
        return
    token = context.attach(trace.set_span_in_context(span))
    try:
        yield
    finally:
        context.detach(token)


def _ended_as(item: Item) -> dict[str, Any]:
    attributes: dict[str, Any] = {f"{OWN}outcome": type(item.outcome).__name__}
    if item.runs:
        attributes[f"{OWN}attempt"] = item.basis.record.attempts or 1
        if isinstance(item.basis, Claimed) and item.basis.taken_over:
            attributes[f"{OWN}taken_over"] = True
    return attributes


def _pass_on(span: trace.Span | None, attempt: Attempt) -> None:
    """Add the span's context to the messages that a handler sends, in the two places where `producers` looks."""
    if span is None or not (sender := span.get_span_context()).is_valid:
        return
    trace_id, span_id = f"{sender.trace_id:032x}", f"{sender.span_id:016x}"
    w3c = f"00-{trace_id}-{span_id}-{sender.trace_flags & trace.TraceFlags.SAMPLED:02x}"
    xray = f"Root=1-{trace_id[:8]}-{trace_id[8:]};Parent={span_id};Sampled={sender.trace_flags.sampled:d}"
    attempt.pass_on({"traceparent": w3c}, {"AWSTraceHeader": xray})


_W3C = re.compile("(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]([0-9a-f])(?:-|$)")
_XRAY = re.compile("(?=.*Root=1-([0-9a-f]{8}-[0-9a-f]{24})(?:;|$))(?=.*Parent=([0-9a-f]{16})(?:;|$))(?:.*Sampled=(1))?")


def producers(message: Message) -> dict[tuple[int, int], trace.SpanContext]:
    """The contexts that a message's sender added: X-Ray's, which SQS keeps as a system attribute, and W3C's, in message
    attributes. They are keyed by trace and span, so that a repeated context counts once.
    """
    attribute = message.message_attributes.get("traceparent")
    w3c = attribute.get("stringValue") if isinstance(attribute, Mapping) else None
    found = {}
    for header, form in ((message.attributes.get("AWSTraceHeader"), _XRAY), (w3c, _W3C)):
        if isinstance(header, str) and (names := form.match(header)) is not None:
            ids = int(names[1].replace("-", ""), 16), int(names[2], 16)
            flags = trace.TraceFlags(int(names[3] or "0", 16) & trace.TraceFlags.SAMPLED)
            found[ids] = trace.SpanContext(*ids, is_remote=True, trace_flags=flags)
    return {ids: one for ids, one in found.items() if one.is_valid}
