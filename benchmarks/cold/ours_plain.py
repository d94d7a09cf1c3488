"""Our consumer with a plain body and one client."""

from aws_lambda_powertools import Logger, Metrics

from idempotent_receiver import DynamoDBStore, sqs_consumer

store = DynamoDBStore(table_name="records")


@sqs_consumer(store, logger=Logger(service="cold"), metrics=Metrics(namespace="Cold", service="cold"))
def lambda_handler(transfer: dict) -> dict[str, str]:  # type: ignore[type-arg]  # the library expects a bare `dict`
    """Return the transfer's id."""
    return {"posted": transfer["transfer_id"]}


def start() -> None:
    """Create what the first invocation would create."""
    assert store.client is not None
