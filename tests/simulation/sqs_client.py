"""An SQS client in virtual time that enforces SQS's limits, and fails where a test says so."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from idempotent_receiver.testing.world import World


class Denied(Exception):
    """SQS refuses the request."""


@dataclass
class SqsClient:
    """The SQS methods that the library calls. `deny` names the methods that fail.

    A request that exceeds SQS's limits is refused. FIFO deduplication lasts five minutes of virtual time.
    """

    world: World
    round_trip_seconds: float = 0.005
    deny: set[str] = field(default_factory=set)
    sent: list[dict[str, Any]] = field(default_factory=list)
    visibilities: dict[str, int] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    _deduplicated: dict[str, float] = field(default_factory=dict)
    _ids: itertools.count[int] = field(default_factory=itertools.count)

    class meta:  # noqa: N801  # boto3's name
        endpoint_url: ClassVar[str] = "https://sqs.us-east-1.amazonaws.com"

    def change_message_visibility_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803
        self._arrive("change_message_visibility_batch")
        assert QueueUrl.startswith(self.meta.endpoint_url + "/123456789012/transfers")
        if not 1 <= len(Entries) <= 10:
            raise Denied("TooManyEntriesInBatchRequest")
        if len({entry["Id"] for entry in Entries}) < len(Entries):
            raise Denied("BatchEntryIdsNotDistinct")
        for entry in Entries:
            if not 0 <= entry["VisibilityTimeout"] <= 12 * 60 * 60:
                raise Denied("InvalidParameterValue")
            assert isinstance(entry["VisibilityTimeout"], int)
            self.visibilities[entry["ReceiptHandle"].removeprefix("handle-")] = entry["VisibilityTimeout"]
        return {"Successful": [{"Id": entry["Id"]} for entry in Entries]}

    def send_message(self, **arguments: Any) -> dict[str, Any]:
        self._arrive("send_message")
        if len(arguments["MessageAttributes"]) > 10:
            raise Denied("InvalidParameterValue: more than ten attributes")
        if not arguments["MessageBody"] or len(arguments["MessageBody"].encode()) > 1024 * 1024:
            raise Denied("InvalidParameterValue: the body")
        if arguments["QueueUrl"].endswith(".fifo"):
            if "MessageGroupId" not in arguments:
                raise Denied("MissingParameter: MessageGroupId")
            self._deduplicate(arguments["MessageDeduplicationId"], arguments)
        else:
            assert "MessageDeduplicationId" not in arguments
            self.sent.append(arguments)
        return {"MessageId": f"sent-{next(self._ids)}"}

    def _deduplicate(self, id: str, arguments: dict[str, Any]) -> None:
        if self.world.now < self._deduplicated.get(id, -1.0):
            return  # SQS accepts the message and drops it
        self._deduplicated[id] = self.world.now + 300
        self.sent.append(arguments)

    def _arrive(self, name: str) -> None:
        self.calls.append(name)
        self.world.sleep(self.round_trip_seconds)
        if name in self.deny:
            raise Denied(f"{name} is denied")
