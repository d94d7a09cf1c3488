"""Our consumer, as the README has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger, Metrics

from benchmarks.settings import entry
from idempotent_receiver import DynamoDBStore, Transaction, sqs_consumer

if TYPE_CHECKING:
    from benchmarks.settings import Handler, Settings


def build(settings: Settings) -> Handler:
    """The consumer, with metrics and its default logging."""
    consumer = sqs_consumer(
        DynamoDBStore(settings.table),
        concurrency=settings.concurrency,
        logger=Logger(service="benchmark"),
        metrics=Metrics(namespace="Benchmark", service="benchmark"),
    )

    def handle(transfer: dict) -> dict[str, str]:  # type: ignore[type-arg]  # the library asks for `dict` as such
        settings.pause()
        return {"posted": transfer["transfer_id"]}

    def handle_writing(transfer: dict, tx: Transaction) -> dict[str, Any]:  # type: ignore[type-arg]  # likewise
        settings.pause()
        tx.put(TableName=settings.entries, Item=entry(transfer))
        return {"posted": transfer["transfer_id"]}

    # The annotations are read at run time, and postponed ones are looked up among the module's names.
    for function in (handle, handle_writing):
        function.__annotations__["transfer"] = dict
    handle_writing.__annotations__["tx"] = Transaction
    return consumer(handle_writing if settings.writes else handle)
