"""Handlers for the worker's tests, in a module as a user has it. Each run leaves a line where the test finds it."""

import os
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from idempotent_receiver import DynamoDBStore, Message, Transaction, sqs_consumer
from idempotent_receiver.sqs.visibility import Backoff

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


def _limited() -> Any:
    """`handle`, with three attempts and a dead-letter queue; it may also fail, or end its process."""
    options = replace(
        handle.options, sqs=boto3.client("sqs"), dead_letter_queue=os.environ["DEAD"], max_attempts=3, backoff=SOON
    )
    return handle.with_options(options, fails_or_kills)


def fails_or_kills(body: dict, message: Message, tx: Transaction) -> None:
    """By its name."""
    if "killer" in body["name"]:
        _note("start", body["name"])
        os._exit(1)
    if "bad" in body["name"]:
        _note("start", body["name"])
        raise ValueError
    handle.__wrapped__(body, message, tx)


SOON = Backoff(first_seconds=1, longest_seconds=2)
if "DEAD" in os.environ:
    limited = _limited()


def undecorated(body: dict) -> None:
    """Nothing of the library's."""
