"""A message as a handler sees it."""

from __future__ import annotations

from collections import UserDict
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import pytest
from aws_lambda_powertools.utilities.data_classes import SQSEvent
from aws_lambda_powertools.utilities.parser.models import SqsModel

from idempotent_receiver.sqs.message import InvalidEvent, Message, messages_of
from tests.simulation.world import sqs_record


def message(queue: str = "", **attributes: str) -> Message:
    return Message(id="1", body="", raw_body="", queue_arn=queue, attributes=attributes)


@pytest.mark.parametrize(
    ("told", "count"),
    [
        ("1", 1),
        ("17", 17),
        ("", 1),
        ("x", 1),
        ("-1", 1),
        ("²", 1),
        ("1.5", 1),
        ("٣", 1),
        ("9" * 18, 10**18 - 1),
        ("9" * 19, 1),
    ],
)
def test_the_receive_count_is_sqss_or_one(told: str, count: int) -> None:
    """An unreadable count is a first delivery."""
    assert message(ApproximateReceiveCount=told).receive_count == count
    assert message().receive_count == 1


def test_times_are_moments_in_utc_or_unknown() -> None:
    """An event of another source may lack them."""
    sent = message(SentTimestamp="1800000000123", ApproximateFirstReceiveTimestamp="1800000001000")

    assert sent.sent_at == datetime(2027, 1, 15, 8, 0, 0, 123000, tzinfo=UTC)
    assert sent.first_received_at == datetime(2027, 1, 15, 8, 0, 1, tzinfo=UTC)
    assert message().sent_at is None


@pytest.mark.parametrize("told", ["soon", "", "-1", "1.5", "²", "9" * 17, "9" * 5000])
def test_an_invalid_time_is_unknown(told: str) -> None:
    """Python accepts more digits than numbers, prints at most 4,300, and knows no year after 9999."""
    assert message(SentTimestamp=told).sent_at is None
    assert message(ApproximateFirstReceiveTimestamp=told).first_received_at is None


def test_fifo_is_what_the_queues_name_says() -> None:
    """A group id alone does not make it FIFO: on standard queues it serves fair queues."""
    assert message("arn:aws:sqs:us-east-1:1:orders.fifo", MessageGroupId="g").fifo
    assert not message("arn:aws:sqs:us-east-1:1:orders", MessageGroupId="g").fifo
    assert not message().fifo


def test_the_idempotency_key_is_of_the_record_and_of_nothing_else() -> None:
    """It is the same in every attempt, and different in every namespace."""
    first = Message(id="1", body="", raw_body="", record_id="n#a", attempt=1)
    later = Message(id="2", body="x", raw_body="", record_id="n#a", attempt=7)
    other = Message(id="1", body="", raw_body="", record_id="m#a", attempt=1)

    assert first.idempotency_key == later.idempotency_key != other.idempotency_key
    assert len(first.idempotency_key) == 64


def test_a_record_with_the_least_that_sqs_sends_is_a_message() -> None:
    """Recorded events and other tools omit much."""
    (parsed,) = messages_of({"Records": [{"messageId": "1", "body": ""}]})

    assert (parsed.id, parsed.body, parsed.receive_count, parsed.group_id) == ("1", "", 1, None)
    assert (parsed.attributes, parsed.message_attributes, parsed.queue_arn) == ({}, {}, "")


@pytest.mark.parametrize("kind", [dict, UserDict, MappingProxyType, SQSEvent])
def test_any_mapping_is_an_event(kind: Any) -> None:
    """Powertools' `event_source` passes one of its own. A mapping's parts may be mappings, too."""
    attributes = MappingProxyType({"ApproximateReceiveCount": "3"})
    record = UserDict(sqs_record("1")) | {"attributes": attributes, "messageAttributes": MappingProxyType({"a": {}})}

    try:
        (parsed,) = messages_of(kind({"Records": [record]}))
    except InvalidEvent as error:
        pytest.fail(str(error))

    assert (parsed.id, parsed.receive_count, dict(parsed.message_attributes)) == ("1", 3, {"a": {}})


@pytest.mark.parametrize(
    ("event", "came"),
    [
        (None, "it is of type NoneType"),
        ([sqs_record("1")], "it is of type list"),
        (SqsModel.model_construct(Records=[]), "it is of type SqsModel"),
        ({"Records": ()}, "its 'Records' is of type tuple"),
        ({"detail": {}}, "it has no list 'Records'"),
        ({"Records": ["x"]}, r"Records\[0\] is of type str"),
    ],
)
def test_an_invalid_event_is_told_by_the_type_that_came(event: object, came: str) -> None:
    """What stands around a consumer may pass it something else than Lambda's event."""
    with pytest.raises(InvalidEvent, match=f"^not an SQS event: {came}"):
        messages_of(event)


@pytest.mark.parametrize("odd", [None, [], "x", 7])
def test_attributes_of_an_odd_type_are_none_at_all(odd: object) -> None:
    """They carry no usable value."""
    (parsed,) = messages_of({"Records": [{"messageId": "1", "body": "", "attributes": odd}]})

    assert parsed.attributes == {}


def test_single_attributes_that_are_neither_text_nor_number_are_left_out() -> None:
    """Lambda sends strings; events written by hand have numbers. 10 to the 5,000 is neither."""
    odd = {"list": [1], "huge": 10**5000, "none": None, "float": 1.5}
    (parsed,) = messages_of({"Records": [{"messageId": "1", "body": "", "attributes": {"n": 2, **odd}}]})

    assert parsed.attributes == {"n": "2"}


@pytest.mark.parametrize("name", ["eventSourceARN", "receiptHandle", "messageAttributes"])
def test_a_part_of_a_wrong_type_is_no_sqs_message(name: str) -> None:
    """It is refused by name before anything runs; a missing or empty part is accepted."""
    with pytest.raises(InvalidEvent, match=f"not an SQS event: '{name}'"):
        messages_of({"Records": [{"messageId": "1", "body": "", name: 7}]})

    assert len(messages_of({"Records": [{"messageId": "1", "body": "", name: None}]})) == 1


@pytest.mark.parametrize("source", [10**5000, ["x"], {}, None], ids=["huge", "list", "empty", "none"])
def test_a_source_that_cannot_be_named_is_unknown(source: object) -> None:
    """Reporting the error must not fail."""
    with pytest.raises(InvalidEvent, match="comes from 'unknown'"):
        messages_of({"Records": [{"eventSource": source}]})
