"""The builders of events and contexts: what Lambda would hand over, and clear errors for what it would not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from idempotent_receiver import MemoryStore, Message, body_field, message_attribute, sqs_consumer
from idempotent_receiver.testing import lambda_context, sqs_event


class Order(BaseModel):
    order: str


@dataclass
class Line:
    order: str


def received(event: dict[str, Any], **options: Any) -> list[Message]:
    """The messages that a handler gets of an event."""
    got: list[Message] = []

    def handle(body: str, message: Message) -> None:
        got.append(message)

    assert sqs_consumer(MemoryStore("orders"), **options)(handle)(event, lambda_context()) == {"batchItemFailures": []}
    return got


@pytest.mark.parametrize(
    "body", ['{"order":"o-1"}', b'{"order":"o-1"}', {"order": "o-1"}, Order(order="o-1"), Line(order="o-1")]
)
def test_a_body_is_text_or_whatever_can_be_json(body: object) -> None:
    (message,) = received(sqs_event(body), key=body_field("order"))
    assert (message.body, message.key) == ('{"order":"o-1"}', "o-1")


def test_an_event_has_as_many_messages_as_bodies() -> None:
    """Each with an id of its own, received once unless it says otherwise."""
    first, second = received(sqs_event("a", "b"))
    assert (first.id, second.id, first.receive_count, first.fifo) == ("message-1", "message-2", 1, False)
    (again,) = received(sqs_event("a", ids=["m"], receive_count=3))
    assert (again.id, again.receive_count) == ("m", 3)
    assert again.sent_at is not None
    assert again.first_received_at is not None


@pytest.mark.parametrize("several", [["a", "b"], ("a", "b"), map(str, (1, 2)), (body for body in "ab")], ids=type)
def test_a_list_is_not_taken_for_one_message(several: object) -> None:
    """`explore` takes a list of bodies; here each is an argument of its own."""
    with pytest.raises(TypeError, match=r"each body as a separate argument, not a list: sqs_event\(\*bodies\)"):
        sqs_event(several)
    with pytest.raises(TypeError, match=r"as its text: json\.dumps"):
        sqs_event("a", several)


def test_a_body_may_be_a_json_list() -> None:
    """Given as text, so that it is not taken for several bodies."""
    (message,) = received(sqs_event("[1,2]"))
    assert message.body == "[1,2]"


def test_a_fifo_queue_has_groups() -> None:
    """One for all unless each message is given its own; a standard queue has none."""
    assert [one.group_id for one in received(sqs_event("a", "b", fifo=True))] == ["group-1", "group-1"]
    assert [one.group_id for one in received(sqs_event("a", "b", fifo=True, groups=["x", "y"]))] == ["x", "y"]
    assert all(one.fifo for one in received(sqs_event("a", fifo=True, groups="x")))
    assert [one.group_id for one in received(sqs_event("a"))] == [None]


@pytest.mark.parametrize("order", ["o-1", {"DataType": "String", "StringValue": "o-1"}])
def test_message_attributes_are_carried(order: Any) -> None:
    """As texts, or as they are sent; an event has bytes in Base64."""
    attributes = {"order": order, "seal": {"DataType": "Binary", "BinaryValue": b"\xff"}}
    (message,) = received(sqs_event("a", attributes=attributes), key=message_attribute("order"))
    assert message.key == "o-1"
    assert message.message_attributes["seal"] == {"dataType": "Binary", "binaryValue": "/w=="}


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        ({"bodies": [object()]}, TypeError, "can be written as JSON"),
        ({"bodies": ["a", "b"], "ids": ["m"]}, ValueError, "ids must have one value per message, 2 in all"),
        ({"bodies": ["a"], "ids": "m"}, ValueError, "ids must have one value per message"),
        ({"bodies": ["a", "b"], "ids": ["m", "m"]}, ValueError, "ids must be unique"),
        ({"bodies": ["a"], "groups": ["x", "y"]}, ValueError, "groups must have one value per message, 1 in all"),
    ],
)
def test_an_event_that_lambda_would_not_send_is_refused(
    arguments: dict[str, Any], error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        sqs_event(*arguments.pop("bodies"), **arguments)


def test_a_contexts_time_runs_out() -> None:
    context = lambda_context(seconds=60)
    assert 59_000 < context.get_remaining_time_in_millis() <= 60_000
    assert context.function_name
    assert context.aws_request_id
    for seconds in (0, -1, True, "30"):
        with pytest.raises(ValueError, match="seconds must be"):
            lambda_context(seconds=seconds)  # type: ignore[arg-type]  # that is the test
