"""The store on DynamoDB."""

from idempotent_receiver.dynamodb.store import DynamoDBStore, client_config

__all__ = ["DynamoDBStore", "client_config"]
