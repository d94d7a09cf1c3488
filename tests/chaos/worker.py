"""A worker, as Lambda would start one: one process, one invocation at a time.

It runs the shipped consumer. Only its handler belongs to chaos: it logs its start and its end, and does what the kind
of each message demands.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config

from app.transfers import Transfer
from harness.cloud import ACCOUNT, LOOPBACK, REGION
from harness.overlay.plain import plain_consumer, write
from harness.workload.evidence import End, Log, Start, now_ms
from harness.workload.transfers import Kind, kind_of
from idempotent_receiver import DynamoDBStore, Message, PermanentError, Transaction, sqs_consumer
from idempotent_receiver.clock import SystemClock
from idempotent_receiver.dynamodb import client_config
from idempotent_receiver.sqs.dead_letter import stamp_of
from idempotent_receiver.sqs.message import messages_of
from idempotent_receiver.sqs.visibility import Backoff
from idempotent_receiver.testing.events import LambdaContext
from tests.chaos.machine import Starter
from tests.chaos.redriver import redrive
from tests.chaos.settings import (
    ACCOUNTS,
    CONCURRENCY,
    ENTRIES,
    LEASE_MARGIN_SECONDS,
    RECORDS,
    STOP_MARGIN_SECONDS,
    TIMEOUT_SECONDS,
    Cast,
    Settings,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LONGEST_RUN_SECONDS = 0.06
AT_ONCE = 0.5
"""The share of invocations whose handlers return at once, so that their transactions leave together."""
HANG_SECONDS = 600.0


class BankAway(PermanentError):
    """Refused, until somebody redrives it."""


class Business:
    """The handler: it posts a transfer, or does whatever else its kind demands."""

    def __init__(self, settings: Settings, log: Log) -> None:
        self._settings = settings
        self._log = log
        self.lease_until_ms = 0
        self.at_once = False
        """Whether the handlers of this invocation return at once."""

    def handle(self, transfer: Transfer, message: Message, tx: Transaction) -> str:
        """One run, logged where it starts and where it ends."""
        with self._logged(message.id):
            payer = tx.get(**payer_of(transfer), attributes=["balance"]) if self._reads(transfer) else None
            time.sleep(self._seconds(transfer, message))
            self._perform(transfer, message, tx, payer)
        return transfer.transfer_id

    async def handle_async(self, transfer: Transfer, message: Message, tx: Transaction) -> str:
        """The same as a coroutine; others of its batch run while it waits."""
        with self._logged(message.id):
            payer = await tx.aget(**payer_of(transfer), attributes=["balance"]) if self._reads(transfer) else None
            await asyncio.sleep(self._seconds(transfer, message))
            self._perform(transfer, message, tx, payer)
        return transfer.transfer_id

    @contextmanager
    def _logged(self, id: str) -> Iterator[None]:
        who, ok = {"worker": self._settings.worker, "name": id}, False
        self._log.write(Start(at_ms=now_ms(), lease_until_ms=self.lease_until_ms, **who))
        try:
            yield
            ok = True
        finally:
            self._log.write(End(at_ms=now_ms(), ok=ok, **who))

    def _reads(self, transfer: Transfer) -> bool:
        """Whether the handler reads the payer's balance and sets it, as it does for a quarter of the transfers."""
        return self._settings.protected and random.Random(transfer.transfer_id).random() < 0.25

    def _seconds(self, transfer: Transfer, message: Message) -> float:
        chance = random.Random(f"{transfer.transfer_id} {message.attempt}")
        return 0.0 if self.at_once else chance.uniform(0, LONGEST_RUN_SECONDS)

    def _perform(self, transfer: Transfer, message: Message, tx: Transaction, payer: Mapping[str, Any] | None) -> None:
        stamp = stamp_of(message.message_attributes)
        redriven = stamp is not None and stamp.queue is not None
        match kind_of(transfer.transfer_id):
            case Kind.REFUSED:
                raise PermanentError("this account is closed")
            case Kind.BANK_AWAY if not redriven:
                raise BankAway("the bank is away")
            case Kind.HOPELESS if not redriven:
                raise ConnectionError("the bank is away, and stays away")
            case Kind.FLAKY if message.attempt == 1:
                raise ConnectionError("the bank is away")
            # Without claims nobody counts the attempts of a worker that was killed.
            case Kind.HANGING if message.receive_count == 1:
                time.sleep(HANG_SECONDS)
            case Kind.NOTED:
                return None
        if self._settings.namespace is not None:
            transfer = transfer.model_copy(update={"transfer_id": f"{transfer.transfer_id}.{self._settings.namespace}"})
        if self._settings.protected and self._settings.receipts is not None:
            tx.send(QueueUrl=self._settings.receipts, MessageBody={"transfer_id": transfer.transfer_id})
        return post(transfer, tx, payer)


def payer_of(transfer: Transfer) -> dict[str, Any]:
    """The payer's account."""
    return {"TableName": ACCOUNTS, "Key": {"account_id": transfer.from_account}}


def post(transfer: Transfer, tx: Transaction, payer: Mapping[str, Any] | None = None) -> None:
    """Both sides of a transfer. Nothing here prevents a second posting: an entry counts how often it was written.

    If the `payer` was read, its balance is set, so a lost update would be missing from it.
    """
    for account, amount in (transfer.from_account, -transfer.amount), (transfer.to_account, transfer.amount):
        change = ("ADD balance :amount", amount)
        if payer is not None and account == transfer.from_account:
            change = ("SET balance = :amount", payer["balance"] + amount)
        tx.update(
            TableName=ACCOUNTS,
            Key={"account_id": account},
            UpdateExpression=change[0],
            ExpressionAttributeValues={":amount": change[1]},
        )
        names = {":transfer": transfer.transfer_id, ":account": account}
        tx.update(
            TableName=ENTRIES,
            Key={"entry_id": f"{transfer.transfer_id}#{account}"},
            UpdateExpression="SET transfer_id = :transfer, account_id = :account ADD times :once, amount :amount",
            ExpressionAttributeValues={":once": 1, ":amount": amount, **names},
        )


def consumer_of(settings: Settings, business: Business, log: Log) -> Callable[[Any, Any], Any]:
    """The Lambda handler: the shipped one, or a plain one that knows nothing of claims."""
    session = boto3.Session(aws_access_key_id=ACCOUNT, aws_secret_access_key="test", region_name=REGION)
    # Time-outs that fit the short invocation; the proxy knows a worker by its user agent.
    worker = f"worker/{settings.worker}"
    quick = Config(connect_timeout=0.5, read_timeout=0.8, user_agent_extra=worker, proxies={})
    made = partial(
        session.client, endpoint_url=f"http://{LOOPBACK}:{settings.port}", config=client_config().merge(quick)
    )
    if settings.cast is Cast.WORKFLOW:
        return Starter(settings, made, log)
    if not settings.protected:
        return plain_consumer(partial(_handle_plainly, made("dynamodb"), business))
    consumer = sqs_consumer(
        DynamoDBStore(RECORDS, settings.namespace, made("dynamodb")),
        effects=settings.effects,
        concurrency=CONCURRENCY,
        sqs=made("sqs"),
        dead_letter_queue=settings.outputs["DeadLetterQueueUrl"],
        lease_margin_seconds=LEASE_MARGIN_SECONDS,
        stop_margin_seconds=STOP_MARGIN_SECONDS,
        backoff=Backoff(first_seconds=0.5, longest_seconds=1.0),
    )
    shipped = consumer(business.handle_async if settings.coroutine else business.handle)
    return lambda event, context: shipped(event, context) if event["Records"] else redrive(settings, made, log)


def _handle_plainly(dynamodb: Any, business: Business, record: Mapping[str, Any]) -> None:
    transfer, tx = Transfer.model_validate_json(record["body"]), Transaction()
    (message,) = messages_of({"Records": [record]})
    business.handle(transfer, message, tx)
    write(dynamodb, tx)


class Worker:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        log = Log(Path(settings.log), durable=True)
        self._business = Business(settings, log)
        self._consumer = consumer_of(settings, self._business, log)
        self._invocations = 0

    def answer(self, event: Mapping[str, Any]) -> object:
        """One invocation: the consumer's answer, or why there is none."""
        self._invocations += 1
        ends_ms = now_ms() + int(TIMEOUT_SECONDS * 1000)
        self._business.lease_until_ms = ends_ms + int(LEASE_MARGIN_SECONDS * 1000)
        name = f"{self._settings.worker}.{self._invocations}"
        self._business.at_once = random.Random(name).random() < AT_ONCE
        context = LambdaContext(TIMEOUT_SECONDS, SystemClock(), name)
        try:
            return self._consumer(event, context)
        except Exception as error:  # noqa: BLE001  # whatever it raised, Lambda would consider the batch failed
            return {"raised": f"{type(error).__name__}: {error}"}
