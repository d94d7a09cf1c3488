"""What a run is played on: two queues and three tables of a local cloud, and what can be read from them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.chaos.books import Entry, Letter
from tests.chaos.settings import ACCOUNTS, ENTRIES, MOST_RECEIVES, RECORDS, VISIBILITY_SECONDS
from tests.chaos.tale import ACCOUNTS as ALL_ACCOUNTS
from tests.chaos.tale import OPENING_BALANCE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_sqs import SQSClient

    from local.cloud import Cloud
    from tests.chaos.tale import Part


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The clients, and the queues' names. These clients go straight to the cloud: no fault is on their way."""

    sqs: SQSClient
    dynamodb: DynamoDBClient
    queue_url: str
    queue_arn: str
    dead_letter_queue_url: str

    def send(self, parts: Sequence[Part]) -> dict[str, str]:
        """Send up to ten messages; return their ids by their names."""
        entries: Any = [{"Id": str(place), "MessageBody": part.body} for place, part in enumerate(parts)]
        answer = self.sqs.send_message_batch(QueueUrl=self.queue_url, Entries=entries)
        return {parts[int(sent["Id"])].name: sent["MessageId"] for sent in answer["Successful"]}

    def backlog(self) -> int:
        """How many messages the queue has, whether they are visible or under way."""
        names: Any = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.sqs.get_queue_attributes(QueueUrl=self.queue_url, AttributeNames=names)["Attributes"]
        return sum(int(found[name]) for name in names)

    def records(self) -> dict[str, str]:
        """Each record's status by its key."""
        return {item["id"]["S"]: item["status"]["S"] for item in self._items(RECORDS)}

    def balances(self) -> dict[str, int]:
        """The accounts' balances."""
        return {item["id"]["S"]: int(item["balance"]["N"]) for item in self._items(ACCOUNTS)}

    def entries(self) -> list[Entry]:
        """The whole ledger."""
        return [_entry(item) for item in self._items(ENTRIES)]

    def letters(self) -> list[Letter]:
        """Everything in the dead-letter queue."""
        found: list[Letter] = []
        while True:
            # Longer hidden than this takes, so that each is seen once.
            messages = self.sqs.receive_message(
                QueueUrl=self.dead_letter_queue_url,
                MaxNumberOfMessages=10,
                VisibilityTimeout=3600,
                AttributeNames=["SentTimestamp"],
            ).get("Messages", [])
            if not messages:
                return found
            for message in messages:
                name, sent_ms = json.loads(message["Body"])["name"], int(message["Attributes"]["SentTimestamp"])
                found.append(Letter(name=name, sent_ms=sent_ms))

    def _items(self, table: str) -> Iterator[dict[str, Any]]:
        for page in self.dynamodb.get_paginator("scan").paginate(TableName=table, ConsistentRead=True):
            yield from page["Items"]


def _entry(item: dict[str, Any]) -> Entry:
    transfer, _, account = item["id"]["S"].partition("#")
    return Entry(transfer=transfer, account=account, times=int(item["times"]["N"]), amount=int(item["amount"]["N"]))


def set_up(cloud: Cloud) -> Stage:
    """Make the tables and the queues, and open the accounts."""
    dynamodb, sqs = cloud.client("dynamodb"), cloud.client("sqs")
    for table in (RECORDS, ACCOUNTS, ENTRIES):
        dynamodb.create_table(
            TableName=table,
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
    for account in ALL_ACCOUNTS:
        dynamodb.put_item(TableName=ACCOUNTS, Item={"id": {"S": account}, "balance": {"N": str(OPENING_BALANCE)}})
    dead_letter_queue_url = sqs.create_queue(QueueName="dead-letters")["QueueUrl"]
    redrive = {"deadLetterTargetArn": _arn(sqs, dead_letter_queue_url), "maxReceiveCount": MOST_RECEIVES}
    attributes: Any = {"VisibilityTimeout": str(VISIBILITY_SECONDS), "RedrivePolicy": json.dumps(redrive)}
    queue_url = sqs.create_queue(QueueName="transfers", Attributes=attributes)["QueueUrl"]
    return Stage(
        sqs=sqs,
        dynamodb=dynamodb,
        queue_url=queue_url,
        queue_arn=_arn(sqs, queue_url),
        dead_letter_queue_url=dead_letter_queue_url,
    )


def _arn(sqs: SQSClient, url: str) -> str:
    return sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
