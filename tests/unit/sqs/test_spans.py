"""The spans of a consumer with a tracer: of its messages, and of its exchanges with the store."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter
from opentelemetry.semconv._incubating.attributes import (
    aws_attributes,
    error_attributes,
    faas_attributes,
    messaging_attributes,
)
from opentelemetry.semconv.schemas import Schemas
from opentelemetry.trace import SpanKind, StatusCode

from idempotent_receiver import MemoryStore, PermanentError, RetryLater, Transaction, body_field, sqs_consumer
from idempotent_receiver.sqs import spans as module
from idempotent_receiver.sqs.message import Message
from idempotent_receiver.sqs.spans import MOST_LINKS, OWN, producers
from idempotent_receiver.testing import lambda_context, sqs_event
from idempotent_receiver.testing.worker import SILENT, failed_ids
from idempotent_receiver.transaction.outbox import STAMP
from tests.consumers import controlled
from tests.counting_store import CountingStore
from tests.tracing import MESSAGE_ID, OUTCOME, Tracing, links, of, traceparent, xray
from tests.unit.batch.at_once import PATIENCE, AtOnce

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from opentelemetry.sdk.trace import ReadableSpan

SECRET = "4111-1111"
A, B = "00-" + "a" * 32 + "-" + "1" * 16 + "-01", "00-" + "b" * 32 + "-" + "2" * 16 + "-00"
A_IDS, B_IDS = (int("a" * 32, 16), int("1" * 16, 16)), (int("b" * 32, 16), int("2" * 16, 16))
A_XRAY = f"Root=1-{'a' * 8}-{'a' * 24};Parent={'1' * 16};Sampled=1"


@pytest.fixture
def tracing() -> Tracing:
    return Tracing()


def consume(tracing: Tracing, function: Callable[..., Any], event: Any, **options: Any) -> list[str]:
    """The ids of the messages that must come again."""
    options = {"store": MemoryStore("orders"), "logger": SILENT, "metrics": SILENT, "tracer": tracing.tracer} | options
    consumer = controlled(options.pop("store"), **options)(function)
    return failed_ids(consumer(event, lambda_context()))


def pay(order: dict) -> None:
    if order.get("fails"):
        raise ValueError(SECRET)


def by_message(tracing: Tracing) -> dict[str, ReadableSpan]:
    return {of(span, MESSAGE_ID): span for span in tracing.of_messages}


# A message's span.


def test_three_messages_of_which_one_fails_are_three_spans_with_one_error(tracing: Tracing) -> None:
    assert consume(tracing, pay, sqs_event({}, {"fails": True}, {})) == ["message-2"]

    assert [span.name for span in tracing.of_messages] == ["process queue"] * 3
    statuses = {id: span.status.status_code for id, span in by_message(tracing).items()}
    assert statuses == {
        "message-1": StatusCode.UNSET,
        "message-2": StatusCode.ERROR,
        "message-3": StatusCode.UNSET,
    }
    failed = by_message(tracing)["message-2"]
    assert (of(failed, "error.type"), failed.status.description, failed.events) == ("ValueError", None, ())
    assert [of(span, OUTCOME) for span in tracing.of_messages].count("Completed") == 2


def test_a_span_has_the_attributes_of_the_conventions_and_ours(tracing: Tracing) -> None:
    """As the pinned package of conventions names them."""
    sqs: Any = SimpleNamespace(meta=SimpleNamespace(endpoint_url="https://sqs.us-east-1.amazonaws.com"))
    consume(tracing, pay, sqs_event({}, receive_count=3), sqs=sqs)

    (span,) = tracing.of_messages
    assert dict(span.attributes or {}) == {
        messaging_attributes.MESSAGING_SYSTEM: messaging_attributes.MessagingSystemValues.AWS_SQS.value,
        messaging_attributes.MESSAGING_OPERATION_NAME: "process",
        messaging_attributes.MESSAGING_OPERATION_TYPE: messaging_attributes.MessagingOperationTypeValues.PROCESS.value,
        messaging_attributes.MESSAGING_DESTINATION_NAME: "queue",
        messaging_attributes.MESSAGING_MESSAGE_ID: "message-1",
        aws_attributes.AWS_SQS_QUEUE_URL: "https://sqs.us-east-1.amazonaws.com/123456789012/queue",
        faas_attributes.FAAS_TRIGGER: faas_attributes.FaasTriggerValues.PUBSUB.value,
        "idempotent_receiver.receive_count": 3,
        "idempotent_receiver.outcome": "Completed",
        "idempotent_receiver.attempt": 1,
    }
    assert error_attributes.ERROR_TYPE == "error.type"
    assert list(Schemas)[-1].value.endswith("/1.44.0")
    assert "1.44" in (module.__doc__ or "")


def test_spans_are_below_the_current_one_and_none_is_made(tracing: Tracing) -> None:
    with tracing.tracer.start_as_current_span("invocation") as invocation:
        consume(tracing, pay, sqs_event({}, {"fails": True}))
    parents = {span.parent.span_id for span in tracing.spans if span.parent is not None}
    assert parents == {invocation.get_span_context().span_id}
    assert len(tracing.spans) == 1 + 2 + 2

    tracing.clear()
    consume(tracing, pay, sqs_event({}))
    assert {span.parent for span in tracing.spans} == {None}


def test_a_duplicates_span_says_so_and_has_no_handler_below(tracing: Tracing) -> None:
    def handle(order: dict) -> None:
        with tracing.tracer.start_as_current_span("inner"):
            pass

    store = MemoryStore("orders")
    for event in (sqs_event({"id": 1}, {"id": 1}), sqs_event({"id": 1}, ids=["later"])):
        consume(tracing, handle, event, store=store, key=body_field("id"))

    spans = by_message(tracing)
    assert {id: (of(span, OUTCOME), tracing.below(span)) for id, span in spans.items()} == {
        "message-1": ("Completed", ["inner"]),
        "message-2": ("Duplicate", []),
        "later": ("Duplicate", []),
    }
    assert of(spans["later"], "idempotent_receiver.attempt") is None


def test_a_later_run_tells_its_attempt_and_a_claim_that_was_taken_over(tracing: Tracing) -> None:
    store = MemoryStore("orders")
    consume(tracing, pay, sqs_event({"fails": True}), store=store)
    for item in store.items.values():
        item |= {"status": "INPROGRESS", "in_progress_expiration": 1, "owner": "a worker that died"}
    consume(tracing, pay, sqs_event({"fails": True}, receive_count=2), store=store)

    told = [
        [of(span, f"{OWN}{name}") for name in ("attempt", "receive_count", "taken_over")]
        for span in tracing.of_messages
    ]
    assert told == [[1, 1, None], [2, 2, True]]


@pytest.mark.parametrize(
    ("error", "outcome", "error_type"),
    [
        (KeyError(SECRET), "Failed", "KeyError"),
        (PermanentError(SECRET), "Failed", "PermanentError"),
        (RetryLater(SECRET, seconds=5), "Failed", None),
    ],
)
def test_a_failure_has_the_errors_type_and_a_delay_is_none(
    tracing: Tracing, error: Exception, outcome: str, error_type: str | None
) -> None:
    """As in the log, where the dashboard counts failures by it."""

    def handle(order: dict) -> None:
        raise error

    consume(tracing, handle, sqs_event({}))

    (span,) = tracing.of_messages
    assert (of(span, OUTCOME), of(span, "error.type")) == (outcome, error_type)
    assert span.status.status_code is (StatusCode.UNSET if error_type is None else StatusCode.ERROR)


def test_no_span_holds_a_payload_a_key_or_a_text(tracing: Tracing) -> None:
    def handle(order: dict, message: Message) -> str:
        if message.receive_count == 1:
            raise PermanentError(f"no such card as {SECRET}")
        return SECRET

    attributes = {"card": SECRET, "traceparent": SECRET}
    for receives in (1, 2):
        event = sqs_event({"card": SECRET}, SECRET, receive_count=receives, attributes=attributes)
        consume(tracing, handle, event, key=body_field("card"), error_texts=True)

    assert len(tracing.of_messages) == 4
    assert SECRET not in "".join(span.to_json() for span in tracing.spans)


def test_a_message_without_a_key_or_a_queue_has_its_span(tracing: Tracing) -> None:
    event = sqs_event("no JSON")
    del event["Records"][0]["eventSourceARN"]
    consume(tracing, pay, event, key=body_field("id"))

    (span,) = tracing.spans
    assert (span.name, of(span, OUTCOME), of(span, "error.type")) == ("process", "Failed", "UnusableKey")


# Its producer.


@pytest.mark.parametrize(
    ("header", "attributes", "expected"),
    [
        (None, {}, []),
        (None, {"traceparent": A}, [A_IDS]),
        (A_XRAY, {}, [A_IDS]),
        (A_XRAY, {"traceparent": A}, [A_IDS]),
        (A_XRAY, {"traceparent": B}, [A_IDS, B_IDS]),
        (A_XRAY.replace(";Sampled=1", ";Lineage=1:2:3"), {}, [A_IDS]),
        (f"Parent={'1' * 16};Root=1-{'a' * 8}-{'a' * 24}", {}, [A_IDS]),
        ("Root=1-2-3;Sampled=1", {"traceparent": "not a header"}, []),
        (f"Root=1-{'a' * 8}-{'a' * 24};Sampled=1", {}, []),
        (f"Root=1-{'0' * 8}-{'0' * 24};Parent={'1' * 16}", {"traceparent": f"00-{'0' * 32}-{'1' * 16}-01"}, []),
    ],
)
def test_a_message_is_linked_to_what_names_its_producer(
    tracing: Tracing, header: str | None, attributes: dict[str, str], expected: list[Any]
) -> None:
    """Once, if both headers name one context."""
    event = sqs_event({}, attributes=attributes)
    if header is not None:
        event["Records"][0]["attributes"]["AWSTraceHeader"] = header
    consume(tracing, pay, event)

    assert [links(span) for span in tracing.spans] == [expected] * 3


def test_a_links_context_is_remote_and_as_sampled_as_it_was() -> None:
    def found(header: str = "", **attributes: Any) -> list[tuple[bool, int]]:
        message = Message(
            id="1", body="", raw_body="", attributes={"AWSTraceHeader": header}, message_attributes=attributes
        )
        return [(one.is_remote, one.trace_flags) for one in producers(message).values()]

    assert found(A_XRAY) == [(True, 1)]
    assert found("Sampled=1;" + A_XRAY.removesuffix(";Sampled=1")) == [(True, 1)]
    assert found(A_XRAY.replace("Sampled=1", "Sampled=0")) == [(True, 0)]
    assert found(A_XRAY, traceparent={"stringValue": B}) == [(True, 1), (True, 0)]
    assert found(traceparent={"stringValue": A.replace("-01", "-03")}) == [(True, 1)]
    assert found(traceparent={"stringValue": A.replace("1" * 16, "0" * 16)}) == []


@pytest.mark.parametrize(
    "attribute", [{"binaryValue": "MDA="}, {"stringValue": 7}, {"stringValue": f"ff{A[2:]}"}, "none"]
)
def test_another_attribute_of_that_name_names_nobody(tracing: Tracing, attribute: Any) -> None:
    event = sqs_event({})
    event["Records"][0]["messageAttributes"] = {"traceparent": attribute}
    consume(tracing, pay, event)

    assert [links(span) for span in tracing.of_messages] == [[]]


# Where it is current.


def test_messages_at_once_in_threads_do_not_mix(tracing: Tracing) -> None:
    together = threading.Barrier(3, timeout=PATIENCE)

    def handle(order: dict, message: Message) -> None:
        together.wait()
        with tracing.tracer.start_as_current_span(message.id):
            together.wait()

    consume(tracing, handle, sqs_event({}, {}, {}), concurrency=3)

    assert {id: tracing.below(span) for id, span in by_message(tracing).items()} == {
        id: [id] for id in ("message-1", "message-2", "message-3")
    }


def test_messages_at_once_in_coroutines_do_not_mix(tracing: Tracing) -> None:
    """Nor in the threads that they start."""
    started, all_started = [], asyncio.Event()

    def in_a_thread(id: str) -> None:
        with tracing.tracer.start_as_current_span(f"thread of {id}"):
            pass

    async def handle(order: dict, message: Message) -> None:
        started.append(message.id)
        if len(started) == 3:
            all_started.set()
        await all_started.wait()
        with tracing.tracer.start_as_current_span(message.id):
            await asyncio.sleep(0)
        await asyncio.to_thread(in_a_thread, message.id)

    with tracing.tracer.start_as_current_span("invocation") as invocation:
        consume(tracing, handle, sqs_event({}, {}, {}), concurrency=3)

    spans = by_message(tracing)
    assert {id: tracing.below(span) for id, span in spans.items()} == {
        id: [id, f"thread of {id}"] for id in ("message-1", "message-2", "message-3")
    }
    assert {span.parent.span_id for span in spans.values() if span.parent} == {invocation.get_span_context().span_id}


def test_after_a_batch_no_span_is_current(tracing: Tracing) -> None:
    """Even where all runs on the caller's thread, in its context."""
    consume(tracing, pay, sqs_event({}), executor=AtOnce)
    assert len(tracing.spans) == 3
    assert not trace.get_current_span().get_span_context().is_valid


# The store.


def book(order: dict, tx: Transaction) -> None:
    tx.put(TableName="bookings", Item={"id": str(order["id"])})


def test_each_exchange_with_the_store_has_a_span_with_its_count(tracing: Tracing) -> None:
    store = MemoryStore("orders", tables={"bookings": "id"})
    event = sqs_event({"id": 1}, {"id": 2}, attributes={"traceparent": A})
    consume(tracing, book, event, store=store)
    told = [(span.name, of(span, f"{OWN}message_count"), links(span)) for span in tracing.named("claim", "commit")]
    assert told == [("claim", 2, [A_IDS]), ("commit", 2, [A_IDS])]

    tracing.clear()
    consume(tracing, pay, sqs_event({"id": 1}, receive_count=2), store=MemoryStore("orders"))
    assert [span.name for span in tracing.spans] == ["read", "claim", "settle", "process queue"]

    tracing.clear()
    consume(tracing, book, sqs_event({"id": 3}, ids=["3"]), store=store, effects="transaction")
    assert [span.name for span in tracing.spans] == ["commit", "process queue"]


def test_an_exchange_that_gets_no_answer_is_an_error(tracing: Tracing) -> None:
    store = CountingStore("orders")
    store.down = {"insert", "read"}
    assert consume(tracing, pay, sqs_event({}), store=store) == ["message-1"]

    claims, (message,) = tracing.named("claim"), tracing.of_messages
    assert {(span.status.status_code, of(span, "error.type")) for span in claims} == {
        (StatusCode.ERROR, "StoreUnavailable")
    }
    assert (of(message, OUTCOME), of(message, "error.type")) == ("ClaimFailed", "ClaimFailed")


def test_a_span_has_at_most_128_links(tracing: Tracing) -> None:
    """A read of a hundred messages may name two hundred producers."""
    event = sqs_event(*[{}] * 100, receive_count=2)
    for number, record in enumerate(event["Records"], 1):
        record["attributes"]["AWSTraceHeader"] = f"Root=1-{number:08x}-{'a' * 24};Parent={number:016x}"
        parent = {"stringValue": f"00-{number:032x}-{number:016x}-01", "dataType": "String"}
        record["messageAttributes"] = {"traceparent": parent}
    consume(tracing, pay, event)

    (read,) = tracing.named("read")
    assert (of(read, f"{OWN}message_count"), len(read.links), MOST_LINKS) == (100, 128, 128)
    assert read.dropped_links == 0


def test_messages_of_one_key_end_once_each(tracing: Tracing) -> None:
    """Also those whose payload differs, which the store is asked for after the first has ended."""
    event = sqs_event({"id": 1, "n": 1}, {"id": 1, "n": 2}, {"id": 1, "n": 1}, attributes={"traceparent": A})
    consume(tracing, pay, event, key=body_field("id"))

    assert {id: of(span, OUTCOME) for id, span in by_message(tracing).items()} == {
        "message-1": "Completed",
        "message-2": "Failed",
        "message-3": "Duplicate",
    }
    assert len(tracing.of_messages) == 3
    assert [len(span.links) for span in tracing.named("claim")] == [1, 1], "the second is the second message's"


# What must not break a batch.


class Broken(SpanProcessor):
    """Raises at the start or the end of a span."""

    def __init__(self, *events: str) -> None:
        self.events = events

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        if "start" in self.events:
            raise RuntimeError(SECRET)

    def on_end(self, span: Any) -> None:
        if "end" in self.events:
            raise RuntimeError(SECRET)


class BrokenExporter(SpanExporter):
    """Raises when it is given spans."""

    def export(self, spans: Sequence[ReadableSpan]) -> Any:
        raise ConnectionError(SECRET)


class BrokenSpan(trace.NonRecordingSpan):
    """Raises at whatever is done with it."""

    def set_attributes(self, *arguments: Any) -> None:
        raise RuntimeError(SECRET)

    set_attribute = set_status = set_attributes

    def end(self, end_time: int | None = None) -> None:
        raise RuntimeError(SECRET)


class BrokenTracer:
    """Makes such spans."""

    def start_span(self, *arguments: Any, **options: Any) -> trace.Span:
        return BrokenSpan(trace.SpanContext(1, 2, is_remote=False))


def broken(*processors: SpanProcessor) -> Any:
    tracing = Tracing()
    for processor in processors:
        tracing.provider.add_span_processor(processor)
    return tracing.tracer


@pytest.mark.parametrize("asynchronous", [False, True], ids=["plain", "coroutine"])
@pytest.mark.parametrize(
    ("tracer", "lines"),
    [
        (broken(Broken("start")), 1),
        (broken(Broken("end")), 1),
        (broken(SimpleSpanProcessor(BrokenExporter())), 0),
        (BrokenTracer(), 1),
    ],
    ids=["a start raises", "an end raises", "an exporter raises", "all raises"],
)
def test_a_tracer_that_raises_breaks_no_batch_and_is_told_once(
    tracing: Tracing, caplog: pytest.LogCaptureFixture, tracer: Any, lines: int, asynchronous: bool
) -> None:
    """By the place, without the text."""
    handled: list[str] = []

    def handle(order: dict, message: Message) -> None:
        handled.append(message.id)
        if order.get("fails"):
            raise ValueError

    async def handle_async(order: dict, message: Message) -> None:
        handle(order, message)

    function = handle_async if asynchronous else handle
    event = sqs_event({}, {"fails": True}, {})
    assert consume(tracing, function, event, tracer=tracer, logger=logging.getLogger("orders")) == ["message-2"]

    assert sorted(handled) == ["message-1", "message-2", "message-3"]
    told = [record for record in caplog.records if "the tracer raised" in record.message]
    assert [record.levelno for record in told] == [logging.WARNING] * lines
    assert SECRET not in json.dumps([record.message for record in caplog.records])


def test_a_batch_that_fails_as_a_whole_ends_its_spans(tracing: Tracing, monkeypatch: pytest.MonkeyPatch) -> None:
    def defective(*arguments: Any) -> None:
        raise LookupError

    monkeypatch.setattr("idempotent_receiver.batch.exchanges.ClaimLine._claimed", defective)
    assert consume(tracing, pay, sqs_event({}, {})) == ["message-1", "message-2"]

    assert {(of(span, OUTCOME), of(span, "error.type")) for span in tracing.of_messages} == {(None, "_OTHER")}
    assert len(tracing.of_messages) == 2


@pytest.mark.parametrize("wrong", [trace, "orders", Tracing], ids=["the module", "a name", "a class"])
def test_what_is_no_tracer_is_refused_at_set_up(wrong: Any) -> None:
    with pytest.raises(TypeError, match="tracer must be an OpenTelemetry tracer"):
        sqs_consumer(MemoryStore(), tracer=wrong)


def test_the_api_alone_records_nothing_and_breaks_nothing(tracing: Tracing) -> None:
    """Without an SDK, a tracer makes spans that are not recorded."""
    assert consume(tracing, pay, sqs_event({}, {"fails": True}), tracer=trace.get_tracer("orders")) == ["message-2"]
    assert tracing.spans == []


def test_a_sender_is_named_by_both_of_its_headers(tracing: Tracing) -> None:
    """What the tests' producers write is what these parse."""
    with tracing.tracer.start_as_current_span("send") as sender:
        message = Message(
            id="1",
            body="",
            raw_body="",
            attributes={"AWSTraceHeader": xray(sender)},
            message_attributes={"traceparent": {"stringValue": traceparent(sender)}},
        )
        assert [one.span_id for one in producers(message).values()] == [sender.get_span_context().span_id]
    assert tracing.spans[0].kind is SpanKind.INTERNAL


# What a handler sends.


@pytest.mark.parametrize("asynchronous", [False, True])
def test_what_a_handler_sends_is_linked_to_its_messages_span(tracing: Tracing, *, asynchronous: bool) -> None:
    """In both places: a consumer finds one producer. What the handler gave itself stays."""
    store, own = MemoryStore("orders"), {"traceparent": {"DataType": "String", "StringValue": A}}
    full = {str(number): {"DataType": "String", "StringValue": "a"} for number in range(9)}

    def post(order: dict, tx: Transaction) -> None:
        for attributes in ({}, own, full):
            tx.send(QueueUrl="https://sqs.us-east-1.amazonaws.com/1/q", MessageBody="a", MessageAttributes=attributes)

    async def post_later(order: dict, tx: Transaction) -> None:
        post(order, tx)

    assert consume(tracing, post_later if asynchronous else post, sqs_event({}), store=store) == []

    (span,) = tracing.of_messages
    plain, given, crowded = store.sent
    header = plain["MessageSystemAttributes"]["AWSTraceHeader"]["StringValue"]
    received = Message(
        id="m",
        body="a",
        raw_body="a",
        attributes={"AWSTraceHeader": header},
        message_attributes={"traceparent": {"stringValue": plain["MessageAttributes"]["traceparent"]["StringValue"]}},
    )
    assert list(producers(received)) == [(span.context.trace_id, span.context.span_id)]
    assert given["MessageAttributes"] == own | {STAMP: given["MessageAttributes"][STAMP]}
    assert crowded["MessageAttributes"] == full | {STAMP: crowded["MessageAttributes"][STAMP]}
    assert {one["MessageSystemAttributes"]["AWSTraceHeader"]["StringValue"] for one in store.sent} == {header}


def remind(order: int) -> None:
    if order:
        raise ValueError(SECRET)


async def remind_later(order: int) -> None:
    remind(order)


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("order", [0, 1])
def test_a_call_has_a_span_below_its_messages_without_arguments(
    tracing: Tracing, asynchronous: bool, order: int
) -> None:
    called = remind_later if asynchronous else remind

    def place(body: dict, tx: Transaction) -> None:
        tx.call(called, order=order)

    async def place_later(body: dict, tx: Transaction) -> None:
        tx.call(called, order=order)

    assert consume(tracing, place_later if asynchronous else place, sqs_event({}), calls=[called]) == (
        ["message-1"] if order else []
    )
    (span,) = tracing.named(f"call {called.__name__}")
    (message,) = tracing.of_messages
    assert f"call {called.__name__}" in tracing.below(message)
    assert of(span, "error.type") == ("ValueError" if order else None)
    assert of(message, "error.type") == ("ValueError" if order else None)
    assert SECRET not in span.to_json() + message.to_json()
