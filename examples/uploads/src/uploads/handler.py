"""Keeps the newest version of each document in a table, in whatever order S3's notifications arrive."""

import os
from urllib.parse import unquote_plus

import boto3
from idempotent_receiver import DynamoDBStore, Transaction, event_id, sqs_consumer

store = DynamoDBStore(os.environ["RECORDS_TABLE"], "uploads")


@sqs_consumer(
    store,
    key=event_id,  # S3 may send a notification twice, in two messages
    sqs=boto3.client("sqs"),
    dead_letter_queue=os.environ["DEAD_LETTER_QUEUE_URL"],
    max_attempts=10,
    effects=os.environ.get("EFFECTS") or "any",
)
def lambda_handler(event: dict, tx: Transaction) -> None:
    """If another upload is recorded after the read, nothing commits, and the function runs again."""
    uploaded = event["Records"][0]["s3"]["object"]  # S3 sends one event a message
    document = {"name": unquote_plus(uploaded["key"])}
    sequencer = uploaded["sequencer"].ljust(32, "0")  # S3's order of the uploads of one name
    known = tx.get(TableName=os.environ["DOCUMENTS_TABLE"], Key=document, attributes=["sequencer"])
    if known and known["sequencer"] > sequencer:
        return
    tx.update(
        TableName=os.environ["DOCUMENTS_TABLE"],
        Key=document,
        UpdateExpression="SET sequencer = :sequencer, etag = :etag, octets = :octets",
        ExpressionAttributeValues={":sequencer": sequencer, ":etag": uploaded["eTag"], ":octets": uploaded["size"]},
    )
