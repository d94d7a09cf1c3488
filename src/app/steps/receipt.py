"""receipt: send the consumer's queue a message that the money has arrived.

Sending the message and completing this step are not atomic: if a worker dies in between, the next attempt sends the
message again. Both messages have the transfer's id as their key, so the consumer recognises the second as a duplicate.
"""

import os
from typing import Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from app.steps.wiring import session, step, unavailable
from app.transfers import Transfer
from idempotent_receiver import stamped

_queue_url = os.environ["QUEUE_URL"]
_sqs = session.client("sqs", config=Config(connect_timeout=1, read_timeout=3, retries={"total_max_attempts": 2}))


@step("receipt")
def lambda_handler(event: dict[str, Any], context: object) -> dict[str, str]:
    """Send the receipt and return its messageId."""
    transfer = Transfer.model_validate(event)
    try:
        sent = _sqs.send_message(QueueUrl=_queue_url, **message_of(transfer, fifo=_queue_url.endswith(".fifo")))
    except (ClientError, BotoCoreError) as error:
        raise unavailable(error) from error
    return {"transfer_id": transfer.transfer_id, "message_id": sent["MessageId"]}


def message_of(transfer: Transfer, *, fifo: bool) -> dict[str, Any]:
    """The SQS message: byte-identical on every attempt, because the consumer compares fingerprints."""
    id = transfer.transfer_id
    message: dict[str, Any] = {
        "MessageBody": transfer.model_copy(update={"receipt": True}).model_dump_json(),
        "MessageAttributes": stamped(id),
    }
    if fifo:
        message |= {"MessageGroupId": transfer.to_account, "MessageDeduplicationId": id}
    return message
