"""Books each payment that the bank reports: keeps it, and adds it to what its invoice has been paid."""

import os

import boto3
from idempotent_receiver import DynamoDBStore, PermanentError, Transaction, body_field, sqs_consumer
from pydantic import BaseModel

store = DynamoDBStore(os.environ["RECORDS_TABLE"], "payments")


class Payment(BaseModel):
    payment_id: str
    invoice: str
    cents: int


@sqs_consumer(
    store,
    key=body_field("payment_id"),  # the bank may report a payment again, in a new message
    sqs=boto3.client("sqs"),
    dead_letter_queue=os.environ["DEAD_LETTER_QUEUE_URL"],
    max_attempts=10,
    effects=os.environ.get("EFFECTS") or "any",
)
def lambda_handler(payment: Payment, tx: Transaction) -> None:
    """Both writes and the message's completion are one transaction in DynamoDB."""
    tx.put(
        TableName=os.environ["PAYMENTS_TABLE"],
        Item=payment.model_dump(),
        ConditionExpression="attribute_not_exists(payment_id)",
        otherwise=PermanentError("booked before, and its record has expired"),
    )
    tx.update(
        TableName=os.environ["INVOICES_TABLE"],
        Key={"invoice": payment.invoice},
        UpdateExpression="ADD paid :cents, payments :one",
        ExpressionAttributeValues={":cents": payment.cents, ":one": 1},
    )
