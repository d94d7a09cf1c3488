"""A deployed stack from the outside: the workload's requests to its queues, tables and function.

An operator's own AWS client could do everything here. None of the consumer's code is used.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from harness.workload.evidence import DeadLetter, Entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from harness.caller import Account, Caller
    from harness.cloud import Cloud
    from harness.workload.transfers import TransferMessage
    from idempotent_receiver.local.deployment import Stack

STAMP = "idempotent-receiver"
"""The attribute in which the consumer says why a message became a dead letter, and which message it was."""

LEGS = FIRST_LEG, SECOND_LEG = "#1", "#2"
"""The suffixes of a transfer's id in the ids of its entries."""

MOST_RECEIVES = 2_000
EMPTY_RECEIVES = 3
MOST_RESENDS = 10


class StackError(Exception):
    """The stack did not accept what the workload sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """The approximate number of messages in a queue: available, and received but not deleted."""

    waiting: int
    in_flight: int

    @property
    def total(self) -> int:
        return self.waiting + self.in_flight


@dataclass(frozen=True, slots=True, kw_only=True)
class StackClient:
    """A deployed stack, through its clients."""

    stack: Stack
    clients: Cloud | Account
    receive_seconds: int = 0
    """How long to wait for a dead letter: a short poll asks only some of SQS's servers."""
    api: Caller | None = None
    """The caller of the stack's API, if it has one."""
    groups_hide: bool = False
    """Whether dead letters share FIFO groups."""

    def check(self) -> None:
        needed = {"QueueUrl", "QueueArn", "DeadLetterQueueUrl", "ConsumerLogGroup"} - set(self.stack.outputs)
        needed |= {"Accounts", "Entries", "Records", "Consumer"} - set(self.stack.resources)
        if needed:
            raise StackError(
                f"the workload needs a stack of this template, with its own ledger and a dead-letter queue; "
                f"{self.stack.name} has no {', '.join(sorted(needed))}"
            )

    @property
    def sqs(self) -> Any:
        return self.clients.client("sqs")

    @property
    def dynamodb(self) -> Any:
        return self.clients.client("dynamodb")

    @property
    def functions(self) -> Any:
        return self.clients.client("lambda")

    @property
    def queue(self) -> str:
        return self.stack.outputs["QueueUrl"]

    @property
    def dead_letter_queue(self) -> str:
        return self.stack.outputs["DeadLetterQueueUrl"]

    def shorten_visibility(self, seconds: int) -> int:
        """Set the queue's visibility timeout; returns the old one."""
        found = self._attributes(self.queue)
        self.sqs.set_queue_attributes(QueueUrl=self.queue, Attributes={"VisibilityTimeout": str(seconds)})
        return int(found["VisibilityTimeout"])

    def configuration(self) -> dict[str, Any]:
        """The function's configuration."""
        found: dict[str, Any] = self.functions.get_function_configuration(FunctionName=self.stack.resources["Consumer"])
        return found

    def configure(self, **changes: Any) -> None:
        """Change the function's configuration, and return once it is in effect."""
        function = self.stack.resources["Consumer"]
        self.functions.update_function_configuration(FunctionName=function, **changes)
        self.functions.get_waiter("function_updated_v2").wait(FunctionName=function, WaiterConfig={"Delay": 1})

    def open_accounts(self, balances: Mapping[str, int], currency: str) -> None:
        table = self.stack.resources["Accounts"]
        for account, balance in balances.items():
            item = {"account_id": {"S": account}, "balance": {"N": str(balance)}, "currency": {"S": currency}}
            self.dynamodb.put_item(TableName=table, Item=item)

    def balances(self, accounts: Sequence[str]) -> dict[str, int]:
        found = self._read(self.stack.resources["Accounts"], "account_id", accounts)
        return {item["account_id"]["S"]: int(item["balance"]["N"]) for item in found}

    def send(self, messages: Sequence[TransferMessage], attributes: Sequence[Any] = ({},) * 10) -> dict[str, str]:
        """Send up to ten messages, with their attributes; returns their ids by name."""
        entries: list[Any] = [
            {"Id": str(place), "MessageBody": each.body, "MessageAttributes": own}
            for place, (each, own) in enumerate(zip(messages, attributes, strict=False))
        ]
        if self.queue.endswith(".fifo"):
            for entry, each in zip(entries, messages, strict=True):
                entry.update(MessageGroupId=each.group or each.name, MessageDeduplicationId=each.name)
        ids: dict[str, str] = {}
        for _ in range(MOST_RESENDS):
            answer = self.sqs.send_message_batch(QueueUrl=self.queue, Entries=entries)
            ids |= {messages[int(sent["Id"])].name: sent["MessageId"] for sent in answer.get("Successful", [])}
            entries = [entry for entry in entries if messages[int(entry["Id"])].name not in ids]
            if not entries:
                return ids
        raise StackError(f"SQS refused {len(entries)} messages {MOST_RESENDS} times over")

    def post(self, message: TransferMessage, times: int) -> str:
        """Request a transfer over HTTP, several times with one key; returns its id, which is also its message's key."""
        assert self.api is not None, "such a message needs an API"
        asked = {name: value for name, value in message.transfer.items() if name != "transfer_id"}
        answers = [self.api.post(asked, message.name) for _ in range(times)]
        told = [(answer.status, answer.replayed, answer.body) for answer in answers]
        if told != [(HTTPStatus.ACCEPTED, place > 0, answers[0].body) for place in range(times)]:
            raise StackError(f"the API did not give {message.name} one response and then the same again: {told}")
        return str(answers[0].body["transfer_id"])

    def backlog(self, queue: str) -> Backlog:
        found = self._attributes(queue)
        counts = [int(found.get(f"ApproximateNumberOfMessages{which}", 0)) for which in ("", "Delayed", "NotVisible")]
        return Backlog(waiting=counts[0] + counts[1], in_flight=counts[2])

    def _attributes(self, queue: str) -> dict[str, str]:
        found: dict[str, str] = self.sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["All"])["Attributes"]
        return found

    def invoke(self, record: Mapping[str, Any]) -> None:
        """Pass one SQS record to the function, as Lambda's poller does."""
        event = json.dumps({"Records": [record]}).encode()
        answer = self.functions.invoke(FunctionName=self.stack.resources["Consumer"], Payload=event)
        if "FunctionError" in answer:
            raise StackError(f"the function failed when a message was delivered again: {answer['Payload'].read()!r}")

    def record_of(self, message: TransferMessage, message_id: str) -> dict[str, Any]:
        """The SQS record of a message as Lambda's poller would make it, if none was recorded."""
        arn = self.stack.outputs["QueueArn"]
        return {
            "messageId": message_id,
            "receiptHandle": "",
            "body": message.body,
            "attributes": {"ApproximateReceiveCount": "1"},
            "messageAttributes": {},
            "eventSource": "aws:sqs",
            "eventSourceARN": arn,
            "awsRegion": arn.split(":")[3],
        }

    def entries_of(self, transfers: Iterable[str]) -> list[Entry]:
        ids = dict.fromkeys(f"{name}{leg}" for name in transfers for leg in LEGS)
        return [_entry(item) for item in self._read(self.stack.resources["Entries"], "entry_id", list(ids))]

    def posted(self, transfers: Iterable[str]) -> frozenset[str]:
        return frozenset(entry.transfer for entry in self.entries_of(transfers))

    def all_entries(self) -> list[Entry]:
        """Every entry in the ledger: for a ledger that belongs to this run."""
        pages = self.dynamodb.get_paginator("scan").paginate(
            TableName=self.stack.resources["Entries"], ConsistentRead=True
        )
        return [_entry(item) for page in pages for item in page["Items"]]

    def receipts_left(self) -> int:
        """The approximate number of receipts that nobody has counted yet."""
        queue = self.stack.outputs.get("ReceiptsQueueUrl")
        return 0 if queue is None else self.backlog(queue).total

    def receipt_counts(self) -> dict[str, int] | None:
        """How often each transfer's receipt was counted; None if transfers send none."""
        table = self.stack.resources.get("Receipts")
        if table is None:
            return None
        pages = self.dynamodb.get_paginator("scan").paginate(TableName=table, ConsistentRead=True)
        return {each["transfer_id"]["S"]: int(each["times"]["N"]) for page in pages for each in page["Items"]}

    def records(self, message_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """The consumer's records of these messages, by message id, in plain values."""
        found = self._read(self.stack.resources["Records"], "id", message_ids)
        return {item["id"]["S"]: {name: next(iter(value.values())) for name, value in item.items()} for item in found}

    def dead_letters(self) -> list[DeadLetter]:
        """Everything in the dead-letter queue. Messages stay there, invisible for a while; if `groups_hide`, they are
        deleted, because SQS delivers nothing more of a FIFO group while part of it is in flight.
        """
        found: dict[str, DeadLetter] = {}
        empty = 0
        for _ in range(MOST_RECEIVES):
            messages = self.sqs.receive_message(
                QueueUrl=self.dead_letter_queue,
                MaxNumberOfMessages=10,
                VisibilityTimeout=120,
                WaitTimeSeconds=self.receive_seconds,
                MessageAttributeNames=["All"],
                AttributeNames=["SentTimestamp"],
            ).get("Messages", [])
            found |= {message["MessageId"]: dead_letter(message) for message in messages}
            if self.groups_hide:
                self.delete_dead_letters([dead_letter(message) for message in messages])
            empty = 0 if messages else empty + 1
            if empty == EMPTY_RECEIVES:
                break
        return list(found.values())

    def delete_dead_letters(self, dead_letters: Sequence[DeadLetter]) -> None:
        for each in dead_letters:
            self.sqs.delete_message(QueueUrl=self.dead_letter_queue, ReceiptHandle=each.receipt_handle)

    def _read(self, table: str, key: str, ids: Sequence[str]) -> Iterator[Any]:
        """The items with these keys, read consistently."""
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
                raise StackError(f"DynamoDB left keys of {table} unprocessed {MOST_RESENDS} times over")


def _entry(item: Any) -> Entry:
    return Entry(
        transfer=item["transfer_id"]["S"],
        account=item["account_id"]["S"],
        amount=int(item["amount"]["N"]),
        times=int(item.get("times", {"N": "1"})["N"]),
    )


def dead_letter(message: Any) -> DeadLetter:
    """A dead-letter queue message's own information."""
    stamp = json.loads(message.get("MessageAttributes", {}).get(STAMP, {}).get("StringValue", "{}"))
    return DeadLetter(
        message_id=stamp.get("original_id", message["MessageId"]),
        reason=stamp.get("reason"),
        sent_ms=int(message.get("Attributes", {}).get("SentTimestamp", 0)),
        receipt_handle=message["ReceiptHandle"],
    )
