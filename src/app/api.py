"""The deployed API: accepts each transfer once over HTTP and sends it to the queue from which `consumer.py` reads.

This is the composition root: it reads the environment and builds the clients. The responses are in `routes.py`.
"""

import os

import boto3
from aws_lambda_powertools import Logger, Metrics
from botocore.config import Config

from app.routes import callers, served
from app.transfer_service import TransferService
from idempotent_receiver import DynamoDBStore, header, http_endpoint, payload_key
from idempotent_receiver.dynamodb import client_config

# Shared, because a session creates its second client in a fraction of the time that the first takes.
_session = boto3.Session()
_dynamodb = _session.client("dynamodb", config=client_config())
_quick = Config(connect_timeout=1, read_timeout=3, retries={"mode": "standard", "total_max_attempts": 2})

service = TransferService(
    sqs=_session.client("sqs", config=_quick),
    dynamodb=_dynamodb,
    records=DynamoDBStore(os.environ["RECORDS_TABLE"], client=_dynamodb),
    queue_url=os.environ["QUEUE_URL"],
    transfers=os.environ["TRANSFERS_TABLE"],
    entries=os.environ["ENTRIES_TABLE"],
)
caller = callers(os.environ)
idempotent_handler = http_endpoint(
    DynamoDBStore(os.environ["RECORDS_TABLE"], namespace="transfers", client=_dynamodb),
    key=payload_key() if os.environ.get("REQUEST_KEY") == "payload" else header("Idempotency-Key"),
    scope=caller,
    retention_seconds=int(os.environ.get("RECORD_RETENTION_DAYS") or 30) * 24 * 60 * 60,
    end_process_at_deadline="AWS_LAMBDA_MAX_CONCURRENCY" in os.environ,  # Lambda Managed Instances
    logger=Logger(),
    metrics=Metrics(namespace="IdempotentReceiver"),
)
lambda_handler = served(service, idempotent_handler, caller=caller)
