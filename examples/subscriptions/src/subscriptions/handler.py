"""Follows each subscription's changes in their order. One that cannot be applied holds back only its own group."""

import os
from typing import Literal

import boto3
from idempotent_receiver import DynamoDBStore, Transaction, sqs_consumer
from pydantic import BaseModel

store = DynamoDBStore(os.environ["RECORDS_TABLE"])


class Change(BaseModel):
    subscription: str  # also the message group, so that changes of one subscription stay in order
    status: Literal["active", "past_due", "canceled"]
    started: bool = False


@sqs_consumer(
    store,
    sqs=boto3.client("sqs"),
    dead_letter_queue=os.environ["DEAD_LETTER_QUEUE_URL"],
    max_attempts=5,  # then it is a dead letter, and the next change of its group runs
    effects=os.environ.get("EFFECTS") or "any",
)
def lambda_handler(change: Change, tx: Transaction) -> None:
    """The first change makes the subscription; a later one fails if there is none."""
    tx.update(
        TableName=os.environ["SUBSCRIPTIONS_TABLE"],
        Key={"subscription": change.subscription},
        UpdateExpression="SET #status = :status ADD changes :one",
        ConditionExpression=f"attribute_{'not_' if change.started else ''}exists(subscription)",
        ExpressionAttributeNames={"#status": "status"},
        ExpressionAttributeValues={":status": change.status, ":one": 1},
    )
