"""Powertools with the same pydantic model for the body, one client for the queue and one for the table."""

from typing import Any

import boto3
from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.idempotency import (
    DynamoDBPersistenceLayer,
    IdempotencyConfig,
    idempotent_function,
)

from app.transfers import Transfer

logger = Logger(service="cold")
metrics = Metrics(namespace="Cold", service="cold")
session = boto3.session.Session()
sqs = session.client("sqs")
processor = BatchProcessor(event_type=EventType.SQS)
config = IdempotencyConfig(event_key_jmespath="messageId")
layer = DynamoDBPersistenceLayer(table_name="records", boto3_session=session)


@idempotent_function(data_keyword_argument="record", config=config, persistence_store=layer)  # type: ignore[untyped-decorator]  # it has no types
def handle(record: Any) -> dict[str, str]:
    """Validate the body, and return the transfer's id."""
    return {"posted": Transfer.model_validate_json(record.body).transfer_id}


@metrics.log_metrics
def lambda_handler(event: Any, context: Any) -> Any:
    """Handle a batch."""
    config.register_lambda_context(context)
    return process_partial_response(
        event=event, record_handler=lambda record: handle(record=record), processor=processor, context=context
    )


def start() -> None:
    """Create what the first invocation would create."""
    assert layer.client is not None
