"""A message's trace over its deaths: every consumer's span is linked to the message's producer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.trace import StatusCode

from idempotent_receiver.transaction.outbox import from_text
from tests.tracing import OUTCOME, Tracing, links, of, traceparent, xray
from tests.unit.operations.dead_letters.bank import Bank, both_kinds
from tests.unit.operations.dead_letters.resends import resending

if TYPE_CHECKING:
    from opentelemetry.trace import Span


def headers(sender: Span, *names: str) -> dict[str, Any]:
    """The arguments to send a message with these headers, which name its sender's span."""
    w3c = {"traceparent": {"DataType": "String", "StringValue": traceparent(sender)}}
    aws = {"AWSTraceHeader": {"DataType": "String", "StringValue": xray(sender)}}
    return {
        "MessageAttributes": w3c if "traceparent" in names else {},
        **({"MessageSystemAttributes": aws} if "AWSTraceHeader" in names else {}),
    }


@both_kinds
@pytest.mark.parametrize("at_once", [True, False], ids=["sent by the consumer", "moved by SQS"])
@pytest.mark.parametrize("names", [["traceparent"], ["AWSTraceHeader"], ["traceparent", "AWSTraceHeader"]])
def test_from_its_producer_to_its_redrive_one_chain_of_links(names: list[str], at_once: bool, fifo: bool) -> None:
    """Producer, queue, consumer, dead letter, redrive, consumer."""
    tracing = Tracing()
    bank = Bank(fifo=fifo, at_once=at_once, tracer=tracing.tracer)
    group = {"MessageGroupId": "g", "MessageDeduplicationId": "d"} if fifo else {}
    with tracing.tracer.start_as_current_span("send") as sender:
        sent = {"MessageBody": '{"name": "permanent"}', **headers(sender, *names), **group}
        bank.sqs.send_message(QueueUrl=bank.queue.url, **sent)

    if at_once:
        bank.deliver()
    else:
        bank.kill_by_receives(handle=True)
    failed = tracing.of_messages
    tracing.clear()
    bank.mended = True
    bank.redrive(rules={"include_permanent": True})
    bank.deliver()

    (completed,) = tracing.of_messages
    producer = (sender.get_span_context().trace_id, sender.get_span_context().span_id)
    assert {of(span, OUTCOME) for span in failed} == {"DeadLettered" if at_once else "Failed"}
    assert {(of(span, "error.type"), span.status.status_code) for span in failed} == {
        ("PermanentError", StatusCode.ERROR)
    }
    assert of(completed, OUTCOME) == "Completed"
    assert [links(span) for span in [*failed, completed]] == [[producer]] * (len(failed) + 1)
    assert not bank.dead.messages


def test_a_message_that_is_resent_with_another_body_keeps_its_headers() -> None:
    tracing = Tracing()
    bank = Bank()
    with tracing.tracer.start_as_current_span("send") as sender:
        sent = {"MessageBody": '{"name": "garbage"}', **headers(sender, "traceparent", "AWSTraceHeader")}
        bank.sqs.send_message(QueueUrl=bank.queue.url, **sent)
    bank.deliver()

    with bank.session() as session:
        (decision,) = session.take()
        planned = resending(session, bank, '{"name": "mended"}').planned(decision)
    assert planned.begin is not None
    (message,) = from_text(planned.begin.outbox).values()

    for copy in (message.arguments, decision.dead_letter.restored()):
        assert copy["MessageAttributes"].items() >= sent["MessageAttributes"].items()
        assert copy["MessageSystemAttributes"] == sent["MessageSystemAttributes"]
