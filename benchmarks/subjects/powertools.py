"""AWS Lambda Powertools: BatchProcessor with idempotent_function on DynamoDB, combined as in its documentation.

It handles one message after the other and ignores `concurrency`: its utility for coroutines does not support idempotent
handlers, and its store is not thread-safe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import boto3
from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.idempotency import (
    DynamoDBPersistenceLayer,
    IdempotencyConfig,
    idempotent_function,
)

from benchmarks.settings import TABLE, read, sent, set_balance, update
from benchmarks.subjects.reporting import reporting
from harness.dynamodb.values import plain, wire

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

    from benchmarks.settings import Cell, Event, Handler

RETENTION_SECONDS = 30 * 24 * 60 * 60


def build(cell: Cell) -> Handler:
    """The consumer, with metrics and its default logging."""
    processor = BatchProcessor(event_type=EventType.SQS)
    config = IdempotencyConfig(event_key_jmespath="messageId", expires_after_seconds=RETENTION_SECONDS)
    layer = DynamoDBPersistenceLayer(table_name=TABLE)
    write = _writer(cell)

    @idempotent_function(data_keyword_argument="record", config=config, persistence_store=layer)  # type: ignore[untyped-decorator]  # it has no types
    def handle(record: SQSRecord) -> dict[str, Any]:
        transfer = record.json_body
        cell.pause()
        if cell.writes:
            write(transfer)
        return {"posted": transfer["transfer_id"]}

    def lambda_handler(event: Event, context: Any) -> Any:
        config.register_lambda_context(context)
        return process_partial_response(
            event=event, record_handler=lambda record: handle(record=record), processor=processor, context=context
        )

    return reporting(lambda_handler)


def _writer(cell: Cell) -> Any:
    """A function that writes in its own requests, separately from the record."""
    if not cell.writes:
        return None
    client = boto3.client("dynamodb")

    def write(transfer: dict[str, Any]) -> None:
        client.update_item(**wire(update(transfer)))

    def read_and_write(transfer: dict[str, Any]) -> None:
        stored = client.get_item(**wire(read(transfer)), ConsistentRead=True).get("Item")
        found = None if stored is None else plain(stored)
        written = set_balance(transfer, found) | {"ConditionExpression": "attribute_not_exists(account)"}
        if found is not None:
            written["ConditionExpression"] = "balance = :read"
            written["ExpressionAttributeValues"][":read"] = found["balance"]
        client.update_item(**wire(written))

    if not cell.sends:
        return read_and_write if cell.reads else write
    sqs = boto3.client("sqs")
    queue_url = sqs.create_queue(QueueName="receipts")["QueueUrl"]

    def write_and_send(transfer: dict[str, Any]) -> None:
        write(transfer)
        sqs.send_message(QueueUrl=queue_url, **sent(transfer))

    return write_and_send
