"""Exports a customer's orders to S3. `receiver work` runs it in a container, for as long as it takes."""

import csv
import io
import os
from collections.abc import Iterator

import boto3
from idempotent_receiver import DynamoDBStore, Message, Transaction, sqs_consumer
from pydantic import BaseModel

store = DynamoDBStore(os.environ["RECORDS_TABLE"])


class Request(BaseModel):
    report: str
    customer: str


def orders_of(customer: str) -> Iterator[tuple[str, str]]:
    """The number and the cents of all orders of a customer, read page by page."""
    pages = boto3.client("dynamodb").get_paginator("query")
    for page in pages.paginate(
        TableName=os.environ["ORDERS_TABLE"],
        KeyConditionExpression="customer = :customer",
        ExpressionAttributeValues={":customer": {"S": customer}},
    ):
        yield from ((item["order"]["S"], item["cents"]["N"]) for item in page["Items"])


def upload(name: str, text: str) -> None:
    boto3.client("s3").put_object(Bucket=os.environ["REPORTS_BUCKET"], Key=name, Body=text.encode())


@sqs_consumer(
    store,
    sqs=boto3.client("sqs"),
    dead_letter_queue=os.environ["DEAD_LETTER_QUEUE_URL"],
    max_attempts=10,
)
def lambda_handler(request: Request, message: Message, tx: Transaction) -> None:
    """Another attempt writes the same object again, because its name is made from the key."""
    name = f"{request.customer}/{message.idempotency_key}.csv"
    written = io.StringIO()
    rows = csv.writer(written)
    rows.writerow(["order", "cents"])
    rows.writerows(orders_of(request.customer))
    upload(name, written.getvalue())
    tx.put(TableName=os.environ["REPORTS_TABLE"], Item={"report": request.report, "object": name})
