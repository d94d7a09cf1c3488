"""Where the story plays: a deployed stack, and what the story asks of its queues and tables, from the outside.

Everything here is what an operator's own AWS client could do. Nothing of the consumer's code is used.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from local.books import DeadLetter, Entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_sqs import SQSClient

    from local.caller import Caller
    from local.deploy import Stack
    from local.story import Part

STAMP = "idempotent-receiver"
"""The attribute by which the consumer says why a dead letter died, and which message it was."""

LEGS = FIRST_LEG, SECOND_LEG = "#1", "#2"
"""What follows on a transfer's id in the ids of its entries."""

MOST_RECEIVES = 2_000
EMPTY_RECEIVES = 3
MOST_RESENDS = 10
MOST_LOOKS, LOOK_SECONDS = 300, 0.2


class StageError(Exception):
    """The stack did not take what the story asked of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """How many messages a queue has, as far as it says: to be received, and received but not deleted."""

    waiting: int
    in_flight: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.waiting + self.in_flight


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A deployed stack, by its clients."""

    stack: Stack
    sqs: SQSClient
    dynamodb: DynamoDBClient
    functions: LambdaClient
    receive_seconds: int = 0
    """How long to wait for a dead letter: SQS answers at once only from some of its servers."""
    api: Caller | None = None
    """The way to the stack's API, if it has one."""

    def __post_init__(self) -> None:
        needed = {"QueueUrl", "QueueArn", "DeadLetterQueueUrl", "ConsumerLogGroup"} - set(self.stack.outputs)
        needed |= {"Accounts", "Entries", "Records", "Consumer"} - set(self.stack.resources)
        if needed:
            raise StageError(
                f"the story needs a stack of this template, with its own ledger and a dead-letter queue; "
                f"{self.stack.name} has no {', '.join(sorted(needed))}"
            )

    @property
    def queue(self) -> str:
        """The queue's URL."""
        return self.stack.outputs["QueueUrl"]

    @property
    def dead_letter_queue(self) -> str:
        """The dead-letter queue's URL."""
        return self.stack.outputs["DeadLetterQueueUrl"]

    def shorten_visibility(self, seconds: int) -> int:
        """Set the queue's visibility timeout; return what it was."""
        found = self._attributes(self.queue)
        self.sqs.set_queue_attributes(QueueUrl=self.queue, Attributes={"VisibilityTimeout": str(seconds)})
        return int(found["VisibilityTimeout"])

    def open_accounts(self, balances: Mapping[str, int], currency: str) -> None:
        """Put the accounts with what is on them."""
        table = self.stack.resources["Accounts"]
        for account, balance in balances.items():
            item = {"account_id": {"S": account}, "balance": {"N": str(balance)}, "currency": {"S": currency}}
            self.dynamodb.put_item(TableName=table, Item=item)

    def balances(self, accounts: Sequence[str]) -> dict[str, int]:
        """What is on these accounts now."""
        found = self._read(self.stack.resources["Accounts"], "account_id", accounts)
        return {item["account_id"]["S"]: int(item["balance"]["N"]) for item in found}

    def send(self, parts: Sequence[Part]) -> dict[str, str]:
        """Send up to ten messages; return their ids by the parts' names."""
        entries: list[Any] = [
            {"Id": str(place), "MessageBody": part.body, **self._grouping(part)} for place, part in enumerate(parts)
        ]
        ids: dict[str, str] = {}
        for _ in range(MOST_RESENDS):
            answer = self.sqs.send_message_batch(QueueUrl=self.queue, Entries=entries)
            ids |= {parts[int(sent["Id"])].name: sent["MessageId"] for sent in answer.get("Successful", [])}
            entries = [entry for entry in entries if parts[int(entry["Id"])].name not in ids]
            if not entries:
                return ids
        raise StageError(f"SQS refused {len(entries)} messages {MOST_RESENDS} times over")

    def post(self, part: Part, times: int) -> str:
        """Ask for a transfer over HTTP, several times with one key; return its id, which is its message's key too."""
        assert self.api is not None, "no story has such a part without an API"
        asked = {name: value for name, value in json.loads(part.body).items() if name != "transfer_id"}
        answers = [self.api.post(asked, part.name) for _ in range(times)]
        told = [(answer.status, answer.replayed, answer.body) for answer in answers]
        if told != [(HTTPStatus.ACCEPTED, place > 0, answers[0].body) for place in range(times)]:
            raise StageError(f"the API answered {part.name} otherwise than once, and then the same again: {told}")
        return str(answers[0].body["transfer_id"])

    def _grouping(self, part: Part) -> dict[str, str]:
        """What a FIFO queue wants to know besides; each message is a group of its own."""
        fifo = self.queue.endswith(".fifo")
        return {"MessageGroupId": part.name, "MessageDeduplicationId": part.name} if fifo else {}

    def backlog(self, queue: str) -> Backlog:
        """How many messages the queue has."""
        found = self._attributes(queue)
        counts = [int(found.get(f"ApproximateNumberOfMessages{which}", 0)) for which in ("", "Delayed", "NotVisible")]
        return Backlog(waiting=counts[0] + counts[1], in_flight=counts[2])

    def _attributes(self, queue: str) -> dict[str, str]:
        found = self.sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["All"])["Attributes"]
        return {str(name): value for name, value in found.items()}

    def invoke(self, record: Mapping[str, Any]) -> None:
        """Hand one SQS record to the function, as Lambda's poller does."""
        event = json.dumps({"Records": [record]}).encode()
        answer = self.functions.invoke(FunctionName=self.stack.resources["Consumer"], Payload=event)
        if "FunctionError" in answer:
            raise StageError(f"the function failed when a message was delivered again: {answer['Payload'].read()!r}")

    def record_of(self, part: Part, message_id: str) -> dict[str, Any]:
        """The SQS record of a message as Lambda's poller would make it, where none was recorded."""
        arn = self.stack.outputs["QueueArn"]
        return {
            "messageId": message_id,
            "receiptHandle": "",
            "body": part.body,
            "attributes": {"ApproximateReceiveCount": "1"},
            "messageAttributes": {},
            "eventSource": "aws:sqs",
            "eventSourceARN": arn,
            "awsRegion": arn.split(":")[3],
        }

    def abandon(self, part: Part) -> str:
        """Hand the function a message that is in no queue, and that kills it; return the key of the claim it leaves."""
        record = self.record_of(part, str(uuid4()))
        try:
            self.invoke(record)
        except StageError:
            return str(record["messageId"])
        raise StageError(f"the worker was to die of {part.name}, and did not")

    def let_die(self, parts: Sequence[Part], *, handled: int) -> None:
        """Send messages and receive them until SQS moves them to the dead-letter queue, as nobody acknowledges them.

        The function handles the first few, and its acknowledgement is what gets lost.
        """
        self._deliver(enabled=False)
        try:
            sent = self.send(parts)
            for part in parts[:handled]:
                self.invoke(self.record_of(part, sent[part.name]))
            for _ in range(MOST_RECEIVES):
                if self.backlog(self.queue).total == 0:
                    return
                self._receive_in_vain()
            raise StageError("messages that nobody handled did not become dead letters")
        finally:
            self._deliver(enabled=True)

    def _receive_in_vain(self) -> None:
        for message in self.sqs.receive_message(QueueUrl=self.queue, MaxNumberOfMessages=10).get("Messages", []):
            self.sqs.change_message_visibility(
                QueueUrl=self.queue, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
            )

    def _deliver(self, *, enabled: bool) -> None:
        """Let the queue deliver to the function, or hold its messages back."""
        mapping = self.stack.resources["ConsumerMessages"]
        self.functions.update_event_source_mapping(UUID=mapping, Enabled=enabled)
        wanted = "Enabled" if enabled else "Disabled"
        for _ in range(MOST_LOOKS):
            if self.functions.get_event_source_mapping(UUID=mapping)["State"] == wanted:
                return
            time.sleep(LOOK_SECONDS)
        raise StageError(f"the queue's mapping did not become {wanted}")

    def entries_of(self, transfers: Iterable[str]) -> list[Entry]:
        """The ledger's entries for these transfers."""
        ids = dict.fromkeys(f"{name}{leg}" for name in transfers for leg in LEGS)
        return [_entry(item) for item in self._read(self.stack.resources["Entries"], "entry_id", list(ids))]

    def all_entries(self) -> list[Entry]:
        """Every entry that the ledger has: for a ledger that is this run's alone."""
        pages = self.dynamodb.get_paginator("scan").paginate(
            TableName=self.stack.resources["Entries"], ConsistentRead=True
        )
        return [_entry(item) for page in pages for item in page["Items"]]

    def records(self, message_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """The consumer's records of these messages, by message id, in plain values."""
        found = self._read(self.stack.resources["Records"], "id", message_ids)
        return {item["id"]["S"]: {name: next(iter(value.values())) for name, value in item.items()} for item in found}

    def dead_letters(self) -> list[DeadLetter]:
        """Everything that the dead-letter queue has. It is left there, invisible for a while."""
        found: dict[str, DeadLetter] = {}
        empty = 0
        for _ in range(MOST_RECEIVES):
            messages = self.sqs.receive_message(
                QueueUrl=self.dead_letter_queue,
                MaxNumberOfMessages=10,
                VisibilityTimeout=120,
                WaitTimeSeconds=self.receive_seconds,
                MessageAttributeNames=["All"],
            ).get("Messages", [])
            found |= {message["MessageId"]: dead_letter(message) for message in messages}
            empty = 0 if messages else empty + 1
            if empty == EMPTY_RECEIVES:
                break
        return list(found.values())

    def bury(self, letters: Sequence[DeadLetter]) -> None:
        """Delete these dead letters."""
        for letter in letters:
            self.sqs.delete_message(QueueUrl=self.dead_letter_queue, ReceiptHandle=letter.receipt_handle)

    def _read(self, table: str, key: str, ids: Sequence[str]) -> Iterator[Any]:
        """The items with these keys, consistently."""
        for start in range(0, len(ids), 100):
            keys: Any = [{key: {"S": id}} for id in ids[start : start + 100]]
            asked: Any = {table: {"Keys": keys, "ConsistentRead": True}}
            for _ in range(MOST_RESENDS):
                answer = self.dynamodb.batch_get_item(RequestItems=asked)
                yield from answer["Responses"].get(table, [])
                asked = answer.get("UnprocessedKeys")
                if not asked:
                    break
            else:
                raise StageError(f"DynamoDB left keys of {table} unprocessed {MOST_RESENDS} times over")


def _entry(item: Any) -> Entry:
    return Entry(transfer=item["transfer_id"]["S"], account=item["account_id"]["S"], amount=int(item["amount"]["N"]))


def dead_letter(message: Any) -> DeadLetter:
    """What a message of the dead-letter queue says of itself."""
    stamp = json.loads(message.get("MessageAttributes", {}).get(STAMP, {}).get("StringValue", "{}"))
    return DeadLetter(
        message_id=stamp.get("original_id", message["MessageId"]),
        reason=stamp.get("reason"),
        receipt_handle=message["ReceiptHandle"],
    )
