"""The composition root of `make run`. It takes the place of app/consumer.py, which is kept as app/shipped.py.

With protection, the shipped handler runs as it was shipped: same store, same settings, same business function. The fake
service is told what starts, around the function, and what ends, around the store's `commit`; there workers die. Without
protection, the same function runs in a plain handler.
"""

from __future__ import annotations

import time
from importlib import import_module
from typing import Any

import boto3

from app.transfers import Transfer
from idempotent_receiver import Transaction
from local.overlay import plain, service

shipped: Any = import_module("app.shipped")
business = shipped.lambda_handler.__wrapped__
_worker = ""
"""The id of this process's one invocation."""


def _call_and_run(transfer: Transfer, tx: Transaction) -> Any:
    """The business function, with an outside call before it, and the fake service told of both."""
    name = transfer.transfer_id
    service.say("/starts", worker=_worker, name=name)
    try:
        service.call(name)
        return business(transfer, tx)
    except BaseException:
        _ended(name, ok=False)
        raise


def _ended(name: str, *, ok: bool) -> None:
    service.say("/ends", worker=_worker, name=name, ok=ok)


def _protected() -> Any:
    commit = shipped.store.commit

    def faulty(change: Any, actions: Any) -> Any:
        (name,) = {action.arguments["Item"]["transfer_id"] for action in actions if action.kind == "Put"}
        service.reach(name, "post.before")
        written = commit(change, actions)
        service.reach(name, "post.after")
        _ended(name, ok=type(written).__name__ == "Applied")
        return written

    shipped.store.commit = faulty
    return shipped.idempotent_handler(_call_and_run)


def _plain() -> Any:
    dynamodb = boto3.client("dynamodb")

    def one(record: Any) -> None:
        transfer, tx = Transfer.model_validate_json(record["body"]), Transaction()
        _call_and_run(transfer, tx)
        ok = False
        try:
            service.reach(transfer.transfer_id, "post.before")
            plain.write(dynamodb, tx)
            service.reach(transfer.transfer_id, "post.after")
            ok = True
        finally:
            _ended(transfer.transfer_id, ok=ok)

    return plain.plain_consumer(one)


_handle = _protected() if service.settings["protection"] else _plain()


def lambda_handler(event: Any, context: Any) -> Any:
    """Tell the fake service what was delivered, and handle it."""
    global _worker  # noqa: PLW0603  # one invocation at a time
    _worker = context.aws_request_id
    deadline_ms = time.time_ns() // 1_000_000 + context.get_remaining_time_in_millis()
    service.say("/deliveries", worker=_worker, deadline_ms=deadline_ms, records=event["Records"])
    return _handle(event, context)
