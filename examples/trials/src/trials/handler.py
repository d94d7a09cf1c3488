"""Starts a trial of 14 days for each account that is opened. EventBridge sends the event."""

import os
from datetime import datetime, timedelta

import boto3
from idempotent_receiver import DynamoDBStore, PermanentError, Transaction, event_id, sqs_consumer
from pydantic import BaseModel

store = DynamoDBStore(os.environ["RECORDS_TABLE"], "trials")
TRIAL = timedelta(days=14)


class AccountOpened(BaseModel):
    account: str
    opened_at: datetime  # from the event: the clock would give another end on another attempt


@sqs_consumer(
    store,
    key=event_id,
    envelope="detail",
    sqs=boto3.client("sqs"),
    dead_letter_queue=os.environ["DEAD_LETTER_QUEUE_URL"],
    max_attempts=10,
    effects=os.environ.get("EFFECTS") or "any",
)
def lambda_handler(opened: AccountOpened, tx: Transaction) -> None:
    """An account has one trial, whichever of its events arrives first."""
    tx.put(
        TableName=os.environ["TRIALS_TABLE"],
        Item={"account": opened.account, "ends_at": (opened.opened_at + TRIAL).isoformat()},
        ConditionExpression="attribute_not_exists(account)",
        otherwise=PermanentError("the account has had its trial"),
    )
