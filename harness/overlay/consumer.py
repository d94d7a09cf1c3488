"""The composition root of `make run`. It replaces app/consumer.py, which is kept as app/shipped.py.

With protection, the shipped handler runs unchanged: same store, same settings, same business function, which also sends
a receipt to the next consumer. The fake service is told about starts, around the function, and about writes, ends and
sends, around the store and the client, where workers die. Without protection, a plain handler posts the transfers and
then sends.
"""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import boto3

from app.transfers import Transfer
from harness.overlay import plain, service
from idempotent_receiver import Transaction

if TYPE_CHECKING:
    from collections.abc import Iterator

shipped: Any = import_module("app.shipped")
business = shipped.lambda_handler.__wrapped__
receipts: str = service.settings["receipts"]
"""The URL of the queue to send receipts to; empty if none are sent."""
began: dict[str, str] = {}
"""The invocation that began each transfer's last run here: its transaction may end during the next one."""


def _call_and_run(transfer: Transfer, tx: Transaction) -> Any:
    """The business function, preceded by an outside call, with both reported to the fake service."""
    with _witnessed(transfer.transfer_id):
        result = business(transfer, tx)
        if receipts:
            tx.send(QueueUrl=receipts, MessageBody=_receipt_of(transfer.transfer_id))
        return result


def _receipt_of(name: str) -> dict[str, str]:
    return {"transfer_id": name}


@contextmanager
def _witnessed(name: str) -> Iterator[None]:
    """Report a run's start, and its failure if any, to the fake service; and call for the outside effect."""
    began[name] = service.worker
    service.say("/starts", worker=service.worker, name=name)
    try:
        service.call(name)
        yield
    except BaseException:
        _ended(name, ok=False)
        raise


def _ended(name: str, *, ok: bool) -> None:
    service.say("/ends", worker=began.get(name, service.worker), name=name, ok=ok)


def _protected() -> Any:
    service.watch(shipped.store)
    commit = shipped.store.commit

    def faulty(commits: Any) -> Any:
        names = [_transfer_of(each.actions) for each in commits]
        for name in names:
            service.reach(name, "post.before")
        written = commit(commits)
        for name, answer in zip(names, written, strict=True):
            service.reach(name, "post.after")
            _ended(name, ok=type(answer).__name__ == "Applied")
        return written

    shipped.store.commit = faulty
    send_batch = shipped.sqs.send_message_batch

    def faulty_send(**request: Any) -> Any:
        sent = send_batch(**request)
        for each in request["Entries"]:
            if request["QueueUrl"] == receipts:
                service.reach(json.loads(each["MessageBody"])["transfer_id"], "send.after")
        return sent

    shipped.sqs.send_message_batch = faulty_send
    return shipped.idempotent_handler(_call_and_run)


def _transfer_of(actions: Any) -> Any:
    (name,) = {action.arguments["Item"]["transfer_id"] for action in actions if action.kind == "Put"}
    return name


def _plain() -> Any:
    tables = boto3.resource("dynamodb")
    accounts, entries = tables.Table(shipped.ledger.accounts), tables.Table(shipped.ledger.entries)

    def one(record: Any) -> None:
        transfer = Transfer.model_validate_json(record["body"])
        name = transfer.transfer_id
        with _witnessed(name):
            # Without a transaction, anything before its end is between two writes.
            plain.post(accounts, entries, transfer, between=partial(service.reach, name, "post.before"))
        service.reach(name, "post.after")
        _ended(name, ok=True)
        if receipts:
            shipped.sqs.send_message(QueueUrl=receipts, MessageBody=json.dumps(_receipt_of(name)))
        service.reach(name, "send.after")

    return plain.plain_consumer(one)


_handle = _protected() if service.settings["protection"] else _plain()


def lambda_handler(event: Any, context: Any) -> Any:
    """Report the delivery to the fake service, and handle it."""
    service.worker = context.aws_request_id
    deadline_ms = time.time_ns() // 1_000_000 + context.get_remaining_time_in_millis()
    service.say("/deliveries", worker=service.worker, deadline_ms=deadline_ms, records=event["Records"])
    return _handle(event, context)
