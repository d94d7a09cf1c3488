"""What ReceiveMessage returns, as Lambda's events have it."""

from __future__ import annotations

from idempotent_receiver.sqs.message import messages_of
from idempotent_receiver.sqs.received import lambda_record, raw_attribute, raw_message

ARN = "arn:aws:sqs:us-east-1:123456789012:orders"
RAW = {
    "MessageId": "m",
    "ReceiptHandle": "handle",
    "Body": "{}",
    "MD5OfBody": "99914b932bd37a50b983c5e7c90ae93b",
    "Attributes": {"ApproximateReceiveCount": "2"},
    "MessageAttributes": {
        "text": {"DataType": "String", "StringValue": "a"},
        "bytes": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
    },
}


def test_a_received_message_is_what_lambda_would_hand_over() -> None:
    """Names begin in lower case, and bytes are in base64."""
    assert lambda_record(RAW, ARN) == {
        "messageId": "m",
        "receiptHandle": "handle",
        "body": "{}",
        "attributes": {"ApproximateReceiveCount": "2"},
        "messageAttributes": {
            "text": {"dataType": "String", "stringValue": "a"},
            "bytes": {"dataType": "Binary", "binaryValue": "AP8="},
        },
        "md5OfBody": "99914b932bd37a50b983c5e7c90ae93b",
        "eventSource": "aws:sqs",
        "eventSourceARN": ARN,
        "awsRegion": "us-east-1",
    }


def test_a_message_without_attributes_has_none() -> None:
    """An endpoint that is not SQS's may leave them out."""
    least = {name: RAW[name] for name in ("MessageId", "ReceiptHandle", "Body")}
    nothing = {"attributes": {}, "messageAttributes": {}, "md5OfBody": ""}
    assert lambda_record(least, ARN) == {**lambda_record(RAW, ARN), **nothing}


def test_an_attribute_without_a_type_is_a_string() -> None:
    """As in an event that was written by hand."""
    assert raw_attribute({"stringValue": "a"}) == {"DataType": "String", "StringValue": "a"}


def test_the_consumer_reads_it() -> None:
    (message,) = messages_of({"Records": [lambda_record(RAW, ARN)]})
    assert (message.id, message.receive_count, message.receipt_handle) == ("m", 2, "handle")


def test_what_lambda_would_hand_over_tells_what_was_received() -> None:
    assert raw_message(lambda_record(RAW, ARN)) == RAW
