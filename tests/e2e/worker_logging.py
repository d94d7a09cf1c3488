"""A handler for the worker's tests whose module configures logging as the test says, or not at all."""

import logging
import os
import time
from logging import config  # for the test's code

import worker_handlers as shared

exec(os.environ["CONFIGURES"])  # what stands here in a user's module

from idempotent_receiver import DynamoDBStore, Transaction, sqs_consumer  # noqa: E402

__all__ = ["config", "handle"]

orders = logging.getLogger("orders")


@sqs_consumer(DynamoDBStore(shared.table, client=shared.client))
def handle(body: dict, tx: Transaction) -> None:
    """Says what it does."""
    orders.info("shipped %s", body["name"])
    orders.warning("boto at %s and %s", *(logging.getLogger(name).level for name in ("boto3", "botocore")))
    time.sleep(body.get("seconds", 0))
    entry = {"TableName": os.environ["ENTRIES"], "Key": {"id": body["name"]}}
    tx.update(**entry, UpdateExpression="ADD times :one", ExpressionAttributeValues={":one": 1})
