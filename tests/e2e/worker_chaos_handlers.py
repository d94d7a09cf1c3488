"""The handler of the worker's chaos, in a module as a user has it. Each run leaves a line, and moves money.

As a control, WITHOUT_RENEWAL takes from its process what keeps a handler alone: no lease and no visibility is renewed,
and no timer ends the process.
"""

import os
import re
import time
from pathlib import Path

import boto3
from botocore.config import Config

from idempotent_receiver import DynamoDBStore, Message, Transaction, sqs_consumer
from idempotent_receiver.sqs.visibility import Backoff
from idempotent_receiver.worker.leases import Leases
from idempotent_receiver.worker.process import Process

LONGEST_BACKOFF_SECONDS = 10.0
"""What was received often and meets the lease of a dead worker may wait for so long."""

# Time-outs that fit the short leases; the proxy knows a process and its supervisor by the user agent.
quick = Config(
    connect_timeout=1, retries={"total_max_attempts": 1}, user_agent_extra=f"worker/{os.getppid()}/{os.getpid()}"
)
dynamodb = boto3.client("dynamodb", config=quick.merge(Config(read_timeout=1)))
sqs = boto3.client("sqs", config=quick.merge(Config(read_timeout=5)))

if os.environ.get("WITHOUT_RENEWAL"):
    Leases.renew = Leases._arm = Process._renew_visibilities = lambda self: None


def _note(what: str, name: str) -> None:
    with Path(os.environ["RUNS"]).open("a") as runs:
        runs.write(f"{time.time():.3f} {os.getpid()} {what} {name}\n")


@sqs_consumer(
    DynamoDBStore(os.environ.get("RECORDS", "records"), client=dynamodb),
    sqs=sqs,
    backoff=Backoff(first_seconds=0.5, longest_seconds=LONGEST_BACKOFF_SECONDS),
)
def transfer(body: dict, message: Message, tx: Transaction) -> None:
    """As long as the body says; the first attempt may hold Python's lock for ever."""
    _note("start", body["name"])
    if body.get("hangs") and message.attempt == 1:
        re.match(r"(a+)+$", "a" * 60 + "b")
    time.sleep(body["seconds"])
    for id, amount in ((body["name"], 1), (body["from"], -body["amount"]), (body["to"], body["amount"])):
        tx.update(
            TableName=os.environ["ENTRIES"],
            Key={"id": id},
            UpdateExpression="ADD times :amount",
            ExpressionAttributeValues={":amount": amount},
        )
    _note("end", body["name"])
