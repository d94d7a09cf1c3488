"""Handlers for the worker's tests, in a module as a user has it. Each run leaves a line where the test finds it."""

import os
import re
import time
from pathlib import Path

import boto3
from botocore.config import Config

from idempotent_receiver import DynamoDBStore, Message, Transaction, sqs_consumer

client = boto3.client("dynamodb", config=Config(connect_timeout=1, read_timeout=1, retries={"total_max_attempts": 1}))
table = os.environ.get("RECORDS", "records")


def _note(what: str, name: str) -> None:
    with Path(os.environ["RUNS"]).open("a") as runs:
        runs.write(f"{time.time():.3f} {os.getpid()} {what} {name}\n")


@sqs_consumer(DynamoDBStore(table, client=client))
def handle(body: dict, message: Message, tx: Transaction) -> None:
    """As long as the body says; the first attempt may hold Python's lock for ever."""
    _note("start", body["name"])
    if body.get("hangs") and message.attempt == 1:
        re.match(r"(a+)+$", "a" * 60 + "b")
    time.sleep(body.get("seconds", 0))
    entry = {"TableName": os.environ["ENTRIES"], "Key": {"id": body["name"]}}
    tx.update(**entry, UpdateExpression="ADD times :one", ExpressionAttributeValues={":one": 1})
    _note("end", body["name"])


def undecorated(body: dict) -> None:
    """Nothing of the library's."""
