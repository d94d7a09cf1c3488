"""The deployed consumer: its composition root, the only module that reads its environment and builds its clients.

How a batch is handled, with the library module for each step:

1. Lambda calls `lambda_handler(event, context)` with up to 25 messages from the queue (sqs/consumer.py).
2. Each message's key, its messageId, is claimed in the records table, 25 per request (protocol/transitions.py).
3. A message that was completed before is a duplicate and counts as a success. A message that is in progress elsewhere
   fails and is redelivered.
4. A claimed message is parsed and passed to the function below (handler/). A crashed worker's claim is taken over when
   its lease (the function's deadline plus a margin) has ended; the table's TTL deletes old records days later.
5. The record is completed together with the function's writes, or failed with the error (batch/settlements.py).
6. `{"batchItemFailures": [...]}` names the messages that SQS must redeliver. SQS moves a message that fails five times
   to the dead-letter queue.
"""

import os

import boto3
from aws_lambda_powertools import Logger
from botocore.config import Config

from app.ledger import Ledger
from app.transfers import Transfer
from idempotent_receiver import DynamoDBStore, Transaction, sqs_consumer
from idempotent_receiver.dynamodb import client_config

# Shared, because a session creates its second client in a fraction of the time that the first takes.
_session = boto3.Session()
# Sending a dead letter or changing a visibility timeout must not hold up the batch.
_quick = Config(connect_timeout=1, read_timeout=3, retries={"mode": "standard", "total_max_attempts": 2})

store = DynamoDBStore(os.environ["RECORDS_TABLE"], client=_session.client("dynamodb", config=client_config()))
sqs = _session.client("sqs", config=_quick)
idempotent_handler = sqs_consumer(
    store,
    sqs=sqs,
    dead_letter_queue=os.environ.get("DEAD_LETTER_QUEUE_URL") or None,  # set by editing the template
    effects=os.environ.get("EFFECTS") or "any",
    envelope="detail || Message",  # from EventBridge or SNS, if any
    retention_seconds=int(os.environ.get("RECORD_RETENTION_DAYS") or 30) * 24 * 60 * 60,
    end_process_at_deadline="AWS_LAMBDA_MAX_CONCURRENCY" in os.environ,  # Lambda Managed Instances
    logger=Logger(),
)

ledger = Ledger(accounts=os.environ["ACCOUNTS_TABLE"], entries=os.environ["ENTRIES_TABLE"])


@idempotent_handler
def lambda_handler(transfer: Transfer, tx: Transaction) -> dict[str, str]:
    """Post one transfer. Its writes and the message's completion commit together or not at all."""
    ledger.post(transfer, tx)
    return {"posted": transfer.transfer_id}
