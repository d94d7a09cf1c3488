"""Powertools with a plain body and one client."""

from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.idempotency import (
    DynamoDBPersistenceLayer,
    IdempotencyConfig,
    idempotent_function,
)

logger = Logger(service="cold")
metrics = Metrics(namespace="Cold", service="cold")
processor = BatchProcessor(event_type=EventType.SQS)
config = IdempotencyConfig(event_key_jmespath="messageId")
layer = DynamoDBPersistenceLayer(table_name="records")


@idempotent_function(data_keyword_argument="record", config=config, persistence_store=layer)  # type: ignore[untyped-decorator]  # it has no types
def handle(record: Any) -> dict[str, str]:
    """Return the transfer's id."""
    return {"posted": record.json_body["transfer_id"]}


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
