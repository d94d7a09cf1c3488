"""Shared by the workflow's functions: the store for their records and the state machine. Reads the environment."""

import json
import os
from importlib.resources import files

import boto3
from aws_lambda_powertools import Logger
from botocore.config import Config

from idempotent_receiver import DynamoDBStore
from idempotent_receiver.dynamodb import client_config
from idempotent_receiver.workflow import Workflow

_quick = Config(connect_timeout=1, read_timeout=3, retries={"mode": "standard", "total_max_attempts": 2})

session = boto3.Session()
dynamodb = session.client("dynamodb", config=client_config())
# The definition is packaged with the code, so that its timeout is set in only one place.
definition = json.loads(files("app").joinpath("transfer.asl.json").read_text())
workflow = Workflow(
    DynamoDBStore(os.environ["WORKFLOWS_TABLE"], namespace="transfers", client=dynamodb),
    client=session.client("stepfunctions", config=_quick),
    state_machine_arn=os.environ["STATE_MACHINE_ARN"],
    timeout_seconds=definition["TimeoutSeconds"],
    retention_seconds=int(os.environ.get("RECORD_RETENTION_DAYS") or 90) * 24 * 60 * 60,
)
logger = Logger()
