"""Keeps each sign-up, and e-mails a confirmation once it is kept: never for a sign-up that was refused."""

import os

import boto3
from idempotent_receiver import DynamoDBStore, PermanentError, Transaction, sqs_consumer
from pydantic import BaseModel

store = DynamoDBStore(os.environ["RECORDS_TABLE"])


class SignUp(BaseModel):
    email: str
    event: str


def confirm(email: str, event: str, *, idempotency_key: str) -> None:
    """SES takes no idempotency key: after a crash, the e-mail may be sent once more, with the same reference."""
    boto3.client("sesv2").send_email(
        FromEmailAddress=os.environ["SENDER"],
        Destination={"ToAddresses": [email]},
        Content={
            "Simple": {
                "Subject": {"Data": f"You are going to {event}"},
                "Body": {"Text": {"Data": f"Your reference is {idempotency_key[:8]}."}},
            }
        },
    )


@sqs_consumer(
    store,
    sqs=boto3.client("sqs"),
    dead_letter_queue=os.environ["DEAD_LETTER_QUEUE_URL"],
    max_attempts=10,
    effects=os.environ.get("EFFECTS") or "any",
    calls=[confirm],
)
def lambda_handler(signup: SignUp, tx: Transaction) -> None:
    """The call is kept with the item, and made after both have been committed."""
    tx.put(
        TableName=os.environ["SIGNUPS_TABLE"],
        Item=signup.model_dump(),
        ConditionExpression="attribute_not_exists(email)",
        otherwise=PermanentError("this address has signed up"),
    )
    tx.call(confirm, email=signup.email, event=signup.event)
