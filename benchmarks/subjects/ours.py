"""Our consumer, as in the README."""

from typing import Any

import boto3
from aws_lambda_powertools import Logger, Metrics

from benchmarks.settings import TABLE, Cell, Handler, read, sent, set_balance, update
from idempotent_receiver import DynamoDBStore, Transaction, sqs_consumer


def build(cell: Cell, **options: Any) -> Handler:
    """The consumer, with metrics and its default logging."""
    if cell.sends:
        options["sqs"] = sqs = boto3.client("sqs")
        queue_url = sqs.create_queue(QueueName="receipts")["QueueUrl"]
    consumer = sqs_consumer(
        DynamoDBStore(TABLE),
        concurrency=cell.concurrency,
        logger=Logger(service="benchmark"),
        metrics=Metrics(namespace="Benchmark", service="benchmark"),
        **options,
    )

    def handle(transfer: dict) -> dict[str, str]:  # type: ignore[type-arg]  # the library expects a bare `dict`
        cell.pause()
        return {"posted": transfer["transfer_id"]}

    def handle_writing(transfer: dict, tx: Transaction) -> dict[str, Any]:  # type: ignore[type-arg]  # likewise
        cell.pause()
        tx.update(**update(transfer), otherwise=LookupError("the account is not as expected"))
        return {"posted": transfer["transfer_id"]}

    def handle_reading(transfer: dict, tx: Transaction) -> dict[str, Any]:  # type: ignore[type-arg]  # likewise
        cell.pause()
        tx.update(**set_balance(transfer, tx.get(**read(transfer), attributes=["balance"])))
        return {"posted": transfer["transfer_id"]}

    def handle_sending(transfer: dict, tx: Transaction) -> dict[str, Any]:  # type: ignore[type-arg]  # likewise
        tx.send(QueueUrl=queue_url, **sent(transfer))
        return handle_writing(transfer, tx)

    if cell.sends:
        return consumer(handle_sending)
    return consumer(handle_reading if cell.reads else handle_writing if cell.writes else handle)
