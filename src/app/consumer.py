"""The deployed consumer. This is its composition root: it alone reads the environment and builds the clients."""

import os

import boto3
from aws_lambda_powertools import Logger, Metrics
from botocore.config import Config

from app.ledger import Ledger
from app.transfers import Transfer
from idempotent_receiver import DynamoDBStore, Transaction, sqs_consumer
from idempotent_receiver.dynamodb import client_config

# Shared, because a session's second client takes a fraction of the first one's time at a cold start.
_session = boto3.Session()
# Sending a dead letter or changing a visibility must not hold up the batch.
_quick = Config(connect_timeout=1, read_timeout=3, retries={"mode": "standard", "total_max_attempts": 2})

store = DynamoDBStore(os.environ["RECORDS_TABLE"], client=_session.client("dynamodb", config=client_config()))
idempotent_handler = sqs_consumer(
    store,
    sqs=_session.client("sqs", config=_quick),
    dead_letter_queue=os.environ.get("DEAD_LETTER_QUEUE_URL") or None,  # only with the template's DeadLetterAtOnce
    effects=os.environ.get("EFFECTS") or "any",
    envelope="detail || Message",  # EventBridge's, SNS's, or none
    retention_seconds=int(os.environ.get("RECORD_RETENTION_DAYS") or 30) * 24 * 60 * 60,
    end_process_at_deadline="AWS_LAMBDA_MAX_CONCURRENCY" in os.environ,  # Lambda Managed Instances
    logger=Logger(),
    metrics=Metrics(),
)

ledger = Ledger(accounts=os.environ["ACCOUNTS_TABLE"], entries=os.environ["ENTRIES_TABLE"])


@idempotent_handler
def lambda_handler(transfer: Transfer, tx: Transaction) -> dict[str, str]:
    """Post one transfer. Its writes and the message's completion commit together, or not at all."""
    ledger.post(transfer, tx)
    return {"posted": transfer.transfer_id}
