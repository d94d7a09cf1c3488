"""The composition root of `make run`. It replaces app/consumer.py, which is kept as app/shipped.py.

With protection, the shipped handler runs unchanged: same store, same settings, same business function. The fake service
is told about starts, around the function, and about writes and ends, around the store, where workers die. Without
protection, a plain handler posts the transfers.
"""

from __future__ import annotations

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


def _call_and_run(transfer: Transfer, tx: Transaction) -> Any:
    """The business function, preceded by an outside call, with both reported to the fake service."""
    with _witnessed(transfer.transfer_id):
        return business(transfer, tx)


@contextmanager
def _witnessed(name: str) -> Iterator[None]:
    """Report a run's start, and its failure if any, to the fake service; and call for the outside effect."""
    service.say("/starts", worker=service.worker, name=name)
    try:
        service.call(name)
        yield
    except BaseException:
        _ended(name, ok=False)
        raise


def _ended(name: str, *, ok: bool) -> None:
    service.say("/ends", worker=service.worker, name=name, ok=ok)


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

    return plain.plain_consumer(one)


_handle = _protected() if service.settings["protection"] else _plain()


def lambda_handler(event: Any, context: Any) -> Any:
    """Report the delivery to the fake service, and handle it."""
    service.worker = context.aws_request_id
    deadline_ms = time.time_ns() // 1_000_000 + context.get_remaining_time_in_millis()
    service.say("/deliveries", worker=service.worker, deadline_ms=deadline_ms, records=event["Records"])
    return _handle(event, context)
