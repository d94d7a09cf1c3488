"""A message as ReceiveMessage returns it, in the form in which Lambda hands it over: the consumer's rules read that."""

import base64
from collections.abc import Mapping
from typing import Any


def lambda_record(raw: Mapping[str, Any], queue_arn: str) -> dict[str, Any]:
    """The record of Lambda's event that a message received from this queue would be."""
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


def _attribute(value: Mapping[str, Any]) -> dict[str, Any]:
    return {
        f"{name[0].lower()}{name[1:]}": base64.b64encode(held).decode() if name == "BinaryValue" else held
        for name, held in value.items()
    }
