"""The DynamoDB store."""

from idempotent_receiver.dynamodb.client import client_config
from idempotent_receiver.dynamodb.store import DynamoDBStore

__all__ = ["DynamoDBStore", "client_config"]
