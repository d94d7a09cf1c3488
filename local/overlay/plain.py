"""The controls: handlers as many are written, with the same function and writes as the shipped ones, and no records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from idempotent_receiver.dynamodb.transactions import transact_items

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def plain_consumer(one: Callable[[Mapping[str, Any]], None]) -> Callable[[Any, Any], Any]:
    """A plain partial-batch handler: handle each record of a batch, and answer with those that failed."""

    def handle(event: Any, context: Any) -> Any:
        failed = []
        for record in event["Records"]:
            try:
                one(record)
            except Exception:  # noqa: BLE001  # a plain handler tries everything again
                failed.append({"itemIdentifier": record["messageId"]})
        return {"batchItemFailures": failed}

    return handle


def write(dynamodb: Any, tx: Any) -> None:
    if tx.actions:
        dynamodb.transact_write_items(TransactItems=transact_items(tx.actions, table="none", id="none"))
