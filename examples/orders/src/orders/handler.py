"""Adds each order to its customer's total, and sends a tenth of it to the second consumer, as a refund."""

import os

import boto3
from idempotent_receiver import DynamoDBStore, Transaction, sqs_consumer
from pydantic import BaseModel

store = DynamoDBStore(os.environ["RECORDS_TABLE"])


class Order(BaseModel):
    customer: str
    cents: int


@sqs_consumer(
    store,
    sqs=boto3.client("sqs"),
    dead_letter_queue=os.environ["DEAD_LETTER_QUEUE_URL"],
    max_attempts=10,
    effects=os.environ.get("EFFECTS") or "any",
)
def lambda_handler(order: Order, tx: Transaction) -> None:
    """The refund is sent if and only if the total is written."""
    tx.update(
        TableName=os.environ["TOTALS_TABLE"],
        Key={"customer": order.customer},
        UpdateExpression="ADD cents :cents",
        ExpressionAttributeValues={":cents": order.cents},
    )
    refund = {"customer": order.customer, "cents": order.cents // 10}
    tx.send(QueueUrl=os.environ["REFUNDS_QUEUE_URL"], MessageBody=refund)
