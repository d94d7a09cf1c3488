"""A consumer whose messages send the next ones, for the worker's tests. Each run leaves a line."""

import os
import time

import boto3

from idempotent_receiver import DynamoDBStore, Transaction, sqs_consumer
from tests.e2e.worker_handlers import _note, client, table


@sqs_consumer(DynamoDBStore(table, client=client), sqs=boto3.client("sqs"))
def handle(body: dict, tx: Transaction) -> None:
    """Take effect here, and send the message on."""
    _note("start", body["name"])
    time.sleep(0.1)
    entry = {"TableName": os.environ["ENTRIES"], "Key": {"id": body["name"]}}
    tx.update(**entry, UpdateExpression="ADD times :one", ExpressionAttributeValues={":one": 1})
    tx.send(QueueUrl=os.environ["NEXT"], MessageBody={"name": body["name"]})
