"""Shared by the steps: the store for their records, the ledger and their decorator. Reads the environment."""

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import boto3
from aws_lambda_powertools import Logger
from botocore.exceptions import BotoCoreError, ClientError

from app.ledger import Ledger
from app.ledger_reader import LedgerReader
from idempotent_receiver import DynamoDBStore, idempotent
from idempotent_receiver.dynamodb import client_config

Result = TypeVar("Result")

session = boto3.Session()
dynamodb = session.client("dynamodb", config=client_config())
store = DynamoDBStore(os.environ["STEPS_TABLE"], namespace="steps", client=dynamodb)
ledger = Ledger(accounts=os.environ["ACCOUNTS_TABLE"], entries=os.environ["ENTRIES_TABLE"])
ledger_reader = LedgerReader(dynamodb, ledger.entries)
logger = Logger()
_retention_seconds = int(os.environ.get("RECORD_RETENTION_DAYS") or 90) * 24 * 60 * 60


class Unavailable(Exception):
    """AWS could not be reached or did not confirm the request. The state machine retries."""


def step(name: str) -> Callable[[Callable[..., Result]], Callable[[dict[str, Any], Any], Result]]:
    """The decorator for the step with this name: its Lambda handler takes effect once for each transfer."""
    return idempotent(store.named(name), key=_transfer_id, retention_seconds=_retention_seconds)


def unavailable(error: ClientError | BotoCoreError) -> Unavailable:
    """The error for the state machine: AWS's error code, without anything about the request."""
    code = error.response["Error"]["Code"] if isinstance(error, ClientError) else type(error).__name__
    return Unavailable(f"AWS answered {code}")


def _transfer_id(event: Mapping[str, Any], context: object) -> str:
    return str(event["transfer_id"])
