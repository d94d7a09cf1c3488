"""The messages in a project's sample events, ready to send."""

import json
import uuid
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class TrialError(Exception):
    """The trial cannot be run; the message says what to change."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A message in a sample event: the name used for it here, and its record as Lambda delivers it."""

    name: str
    record: Mapping[str, Any]

    def sendable(self, *, fifo: bool) -> dict[str, Any]:
        """The SendMessage arguments that send the sample as a new message."""
        attributes = {
            name: {
                "DataType": value.get("dataType", "String"),
                **({"StringValue": value["stringValue"]} if value.get("stringValue") is not None else {}),
                **({"BinaryValue": b64decode(value["binaryValue"])} if value.get("binaryValue") is not None else {}),
            }
            for name, value in (self.record.get("messageAttributes") or {}).items()
        }
        message: dict[str, Any] = {"MessageBody": self.record["body"], "MessageAttributes": attributes}
        if fifo:
            message |= {"MessageGroupId": self.group, "MessageDeduplicationId": uuid.uuid4().hex}
        return message

    @property
    def group(self) -> str:
        """The message group, for a FIFO queue."""
        return str((self.record.get("attributes") or {}).get("MessageGroupId", "trial"))


def samples_in(folder: Path) -> list[Sample]:
    """The messages in the folder's SQS events. Skips other JSON files. Raises TrialError if there are no messages."""
    found = []
    for path in sorted(each for each in folder.glob("*.json") if each.is_file()):
        try:
            event = json.loads(path.read_text())
        except ValueError as error:
            raise TrialError(f"{path} is not JSON: {error}") from None
        records = event.get("Records") if isinstance(event, dict) else None
        listed = records if isinstance(records, list) else ()
        bodies = [each for each in listed if isinstance(each, dict) and isinstance(each.get("body"), str)]
        names = [path.name] if len(bodies) == 1 else [f"{path.name} {place}" for place in range(1, len(bodies) + 1)]
        found += [Sample(name, record) for name, record in zip(names, bodies, strict=True)]
    if not found:
        raise TrialError(
            f"there is no SQS event in {folder}: add one in the form that Lambda delivers, such as "
            '{"Records": [{"messageId": "1", "body": "{...}"}]}'
        )
    return found
