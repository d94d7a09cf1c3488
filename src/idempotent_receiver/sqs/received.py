"""Converts messages between the form that ReceiveMessage returns and the form that Lambda delivers, which the consumer
reads.
"""

import base64
from collections.abc import Mapping
from typing import Any


def lambda_record(raw: Mapping[str, Any], queue_arn: str) -> dict[str, Any]:
    """A record as in Lambda's event, for a message received from this queue. Binary values may be bytes or base64."""
    return {
        "messageId": raw["MessageId"],
        "receiptHandle": raw["ReceiptHandle"],
        "body": raw["Body"],
        "attributes": raw.get("Attributes", {}),
        "messageAttributes": {name: _attribute(value) for name, value in raw.get("MessageAttributes", {}).items()},
        "md5OfBody": raw.get("MD5OfBody", ""),
        "eventSource": "aws:sqs",
        "eventSourceARN": queue_arn,
        "awsRegion": queue_arn.split(":")[3],
    }


def raw_message(record: Mapping[str, Any]) -> dict[str, Any]:
    """The message for a record in Lambda's event. Raises LookupError, TypeError or ValueError for other values."""
    return {
        "MessageId": record["messageId"],
        "ReceiptHandle": record["receiptHandle"],
        "Body": record["body"],
        "Attributes": dict(record["attributes"]),
        "MessageAttributes": {name: raw_attribute(value) for name, value in record["messageAttributes"].items()},
        "MD5OfBody": record["md5OfBody"],
    }


def raw_attribute(value: Mapping[str, Any]) -> dict[str, Any]:
    """A message attribute in SQS's form, from the form that Lambda delivers."""
    kept: dict[str, Any] = {"DataType": value.get("dataType", "String")}
    if value.get("stringValue") is not None:
        kept["StringValue"] = value["stringValue"]
    if value.get("binaryValue") is not None:
        kept["BinaryValue"] = base64.b64decode(value["binaryValue"])
    return kept


def _attribute(value: Mapping[str, Any]) -> dict[str, Any]:
    return {
        f"{name[0].lower()}{name[1:]}": base64.b64encode(held).decode() if isinstance(held, bytes) else held
        for name, held in value.items()
    }
