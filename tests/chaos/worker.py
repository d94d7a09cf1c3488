"""A worker, as Lambda would start one: `python -m tests.chaos.worker PORT`, one process, one invocation at a time.

It runs the shipped consumer. All that is of the chaos here is the handler, which logs its start and its end, and what
each kind of message makes it do. Whoever connects is told the process's id, then sends events and hears answers, a JSON
object a line.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from pydantic import BaseModel, ConfigDict

from idempotent_receiver import DynamoDBStore, Message, PermanentError, Transaction, sqs_consumer
from idempotent_receiver.dynamodb import client_config
from idempotent_receiver.sqs.visibility import Backoff
from local.cloud import ACCOUNT, LOOPBACK, REGION
from tests.chaos.log import End, Log, Start, now_ms
from tests.chaos.settings import (
    ACCOUNTS,
    CONCURRENCY,
    ENTRIES,
    LEASE_MARGIN_SECONDS,
    RECORDS,
    STOP_MARGIN_SECONDS,
    TIMEOUT_SECONDS,
    Settings,
)
from tests.chaos.tale import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

LONGEST_RUN_SECONDS = 0.06
HANG_SECONDS = 600.0


class Transfer(BaseModel):
    """What a message says."""

    model_config = ConfigDict(strict=True)

    name: str
    kind: str
    payer: str
    payee: str
    amount: int


class Refused(ConnectionError):
    """The handler fails, and might not the next time."""


@dataclass(frozen=True, slots=True)
class Context:
    """Lambda's context, of which the consumer wants the deadline."""

    aws_request_id: str
    ends_ms: int
    function_name: str = "chaos"

    def get_remaining_time_in_millis(self) -> int:
        """The time until Lambda would end this process."""
        return max(0, self.ends_ms - now_ms())


class Business:
    """The handler: it posts a transfer, or does what else its message's kind wants."""

    def __init__(self, worker: str, log: Log) -> None:
        self._worker = worker
        self._log = log
        self.lease_until_ms = 0

    def handle(self, transfer: Transfer, message: Message, tx: Transaction) -> str:
        """One run, logged where it starts and where it ends."""
        self._log.write(
            Start(
                at_ms=now_ms(),
                worker=self._worker,
                key=message.key,
                name=transfer.name,
                attempt=message.attempt,
                lease_until_ms=self.lease_until_ms,
            )
        )
        ok = False
        try:
            self._perform(transfer, message.attempt, tx)
            ok = True
        finally:
            self._log.write(End(at_ms=now_ms(), worker=self._worker, key=message.key, ok=ok))
        return transfer.name

    def _perform(self, transfer: Transfer, attempt: int, tx: Transaction) -> None:
        time.sleep(random.Random(f"{transfer.name} {attempt}").uniform(0, LONGEST_RUN_SECONDS))
        match Kind(transfer.kind):
            case Kind.REFUSED:
                raise PermanentError("this account is closed")
            case Kind.HOPELESS:
                raise Refused("the bank is away, and stays away")
            case Kind.FLAKY if attempt == 1:
                raise Refused("the bank is away")
            case Kind.HANGING if attempt == 1:
                time.sleep(HANG_SECONDS)
            case Kind.NOTED:
                return
        post(transfer, tx)


def post(transfer: Transfer, tx: Transaction) -> None:
    """Both sides of a transfer. Nothing here keeps it from being posted twice: an entry counts how often it was."""
    for account, amount in ((transfer.payer, -transfer.amount), (transfer.payee, transfer.amount)):
        tx.update(
            TableName=ACCOUNTS,
            Key={"id": account},
            UpdateExpression="ADD balance :amount",
            ExpressionAttributeValues={":amount": amount},
        )
        tx.update(
            TableName=ENTRIES,
            Key={"id": f"{transfer.name}#{account}"},
            UpdateExpression="ADD times :once, amount :amount",
            ExpressionAttributeValues={":once": 1, ":amount": amount},
        )


def consumer_of(settings: Settings, business: Business) -> Callable[[Any, Any], Any]:
    """The Lambda handler: the shipped one, or a plain one that knows nothing of claims."""
    session = boto3.Session(aws_access_key_id=ACCOUNT, aws_secret_access_key="test", region_name=REGION)
    # Time-outs that fit the short invocation; the proxy knows a worker by its user agent.
    quick = Config(connect_timeout=0.5, read_timeout=0.8, user_agent_extra=f"worker/{settings.worker}")
    config = client_config().merge(quick)
    dynamodb = session.client("dynamodb", endpoint_url=settings.endpoint_url, config=config)
    if not settings.protected:
        return _plain_consumer(dynamodb, business)
    shipped = sqs_consumer(
        DynamoDBStore(RECORDS, client=dynamodb),
        concurrency=CONCURRENCY,
        sqs=session.client("sqs", endpoint_url=settings.endpoint_url, config=config),
        dead_letter_queue=settings.dead_letter_queue_url,
        lease_margin_seconds=LEASE_MARGIN_SECONDS,
        stop_margin_seconds=STOP_MARGIN_SECONDS,
        backoff=Backoff(first_seconds=0.5, longest_seconds=1.0),
    )

    @shipped
    def handle(transfer: Transfer, message: Message, tx: Transaction) -> str:
        return business.handle(transfer, message, tx)

    return handle


def _plain_consumer(dynamodb: Any, business: Business) -> Callable[[Any, Any], Any]:
    """The control: a partial-batch handler as many are written."""
    from idempotent_receiver.dynamodb.transactions import transact_items  # noqa: PLC0415  # only the control does so itself

    def one(record: Mapping[str, Any]) -> None:
        transfer, tx = Transfer.model_validate_json(record["body"]), Transaction()
        receives = int(record["attributes"]["ApproximateReceiveCount"])
        id, body = record["messageId"], record["body"]
        business.handle(transfer, Message(id=id, key=id, body=body, raw_body=body, attempt=receives), tx)
        if tx.actions:
            dynamodb.transact_write_items(TransactItems=transact_items(tx.actions, table=RECORDS, id=id))

    def handle(event: Mapping[str, Any], context: object) -> Mapping[str, Any]:
        failed = []
        for record in event["Records"]:
            try:
                one(record)
            except Exception:  # noqa: BLE001  # that is what a plain handler does: whatever it was, try again
                failed.append({"itemIdentifier": record["messageId"]})
        return {"batchItemFailures": failed}

    return handle


class Worker:
    """The process, from invocation to invocation."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._business = Business(settings.worker, Log(Path(settings.log), durable=True))
        self._consumer = consumer_of(settings, self._business)
        self._invocations = 0

    def answer(self, event: Mapping[str, Any]) -> object:
        """One invocation: the consumer's answer, or why there is none."""
        self._invocations += 1
        ends_ms = now_ms() + int(TIMEOUT_SECONDS * 1000)
        self._business.lease_until_ms = ends_ms + int(LEASE_MARGIN_SECONDS * 1000)
        context = Context(f"{self._settings.worker}.{self._invocations}", ends_ms)
        try:
            return self._consumer(event, context)
        except Exception as error:  # noqa: BLE001  # whatever it raised, Lambda would take the batch for failed
            return {"raised": f"{type(error).__name__}: {error}"}


def main(port: int) -> None:
    """Serve one connection after the other, until somebody ends us."""
    settings = Settings.from_environment()
    worker = Worker(settings)
    with socket.create_server((LOOPBACK, port)) as server:
        while True:
            connection, _ = server.accept()
            # A worker that was frozen finds nobody there any more.
            with connection, contextlib.suppress(ConnectionError):
                _serve(connection, worker)


def _serve(connection: socket.socket, worker: Worker) -> None:
    with connection.makefile("rw", encoding="utf-8") as stream:
        stream.write(f"{os.getpid()}\n")
        stream.flush()
        for line in stream:
            stream.write(json.dumps(worker.answer(json.loads(line))) + "\n")
            stream.flush()


@dataclass(frozen=True, slots=True)
class Program:
    """How a worker is started, and how it says that it is ready."""

    settings: Settings

    def command(self, port: int) -> Sequence[str]:
        """Return the command line."""
        return [sys.executable, "-m", "tests.chaos.worker", str(port)]

    def environment(self, port: int) -> Mapping[str, str]:
        """Return what it must know."""
        return self.settings.environment()

    def ready(self, port: int) -> bool:
        """Say whether it listens: it does once its consumer is there."""
        try:
            with socket.create_connection((LOOPBACK, port), timeout=1) as probe:
                return bool(probe.recv(1))
        except OSError:
            return False


if __name__ == "__main__":
    main(int(sys.argv[1]))
