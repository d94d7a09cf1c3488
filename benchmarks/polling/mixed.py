"""A consumer of ours for messages that say how long they take, as `receiver work` takes it."""

import time

from aws_lambda_powertools import Logger, Metrics

from benchmarks.settings import TABLE
from idempotent_receiver import DynamoDBStore, sqs_consumer


@sqs_consumer(
    DynamoDBStore(TABLE),
    logger=Logger(service="benchmark"),
    metrics=Metrics(namespace="Benchmark", service="benchmark"),
)
def lambda_handler(message: dict) -> None:  # type: ignore[type-arg]  # the library asks for `dict` as such
    """Take so long."""
    time.sleep(message["seconds"])
