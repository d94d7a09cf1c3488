"""Our consumer for messages that say how long they take, run by `receiver work`."""

import time

from aws_lambda_powertools import Logger, Metrics

from benchmarks.settings import TABLE
from idempotent_receiver import DynamoDBStore, sqs_consumer


@sqs_consumer(
    DynamoDBStore(TABLE),
    logger=Logger(service="benchmark"),
    metrics=Metrics(namespace="Benchmark", service="benchmark"),
)
def lambda_handler(message: dict) -> None:  # type: ignore[type-arg]  # the library expects a bare `dict`
    """Take so long."""
    time.sleep(message["seconds"])
