"""What a consumer's start may import: any module that is not listed here would silently slow down cold starts.

Each test starts a fresh interpreter, defines a consumer and creates its client, as a function does before its first
message.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

OURS = {
    "batch", "batch.calling", "batch.exchanges", "batch.executor", "batch.items", "batch.keys", "batch.lent",
    "batch.progress",
    "batch.settlements", "batch.receiver",
    "batch.apart", "batch.runs", "batch.sends", "batch.settings", "batch.spent", "batch.turns", "clock", "dynamodb",
    "dynamodb.cancellations", "dynamodb.client", "dynamodb.codes", "dynamodb.errors", "dynamodb.packs",
    "dynamodb.statements", "dynamodb.store", "dynamodb.transactions", "durable", "errors", "handler",
    "handler.annotations", "handler.attempt", "handler.callees", "handler.lending", "handler.outcome", "json_numbers",
    "log_lines",
    "options", "payload", "places", "process_end",
    "protocol", "transaction.action", "protocol.answers",
    "protocol.charges", "protocol.exchange", "protocol.limits", "protocol.namespaces", "protocol.peek",
    "transaction.operators", "transaction.outbox",
    "protocol.record",
    "transaction.reads", "protocol.sending", "protocol.store", "transaction.transaction", "protocol.transitions",
    "transaction.values", "raw_requests", "sqs",
    "sqs.batch_answers", "sqs.binding", "sqs.consumer", "sqs.dead_letter",
    "sqs.keys", "sqs.message", "sqs.options", "sqs.received", "sqs.sends", "sqs.visibility", "sqs.work",
    "telemetry", "transaction",
}  # fmt: skip
"""The library's modules on the data path of a queue. The command line and the operator's side are none of it."""

THIRD_PARTY = {
    "jmespath", "rfc8785",
    "boto3", "botocore", "certifi", "dateutil", "s3transfer", "six", "urllib3",  # the AWS SDK
}  # fmt: skip

WITH_POWERTOOLS = THIRD_PARTY | {"aws_lambda_powertools", "typing_extensions"}

POWERTOOLS = {
    "exceptions", "logging", "metrics", "package_logger", "shared", "tracing", "utilities", "utilities.jmespath_utils",
    "warnings",
}  # fmt: skip
"""Its logging and metrics, and what they bring. Its tracer's own SDK, its parser and its batches are expensive."""

START = """
import json, sys
before = set(sys.modules)
from idempotent_receiver import DynamoDBStore, sqs_consumer
tracer = meter = None
{telemetry}
store = DynamoDBStore("records")
consumer = sqs_consumer(store, logger=logger, metrics=metrics, tracer=tracer, meter=meter)
{handler}
consumer(handle)
store.client
print(json.dumps(sorted(set(sys.modules) - before)))
"""

POWERTOOLS_TELEMETRY = """
from aws_lambda_powertools import Logger, Metrics
logger, metrics = Logger(service="a"), Metrics(namespace="a", service="a")
"""

OWN_TELEMETRY = """
import logging
class Quiet:
    def add_metric(self, name, unit, value): pass
    def flush_metrics(self): pass
logger, metrics = logging.getLogger("payments"), Quiet()
"""

TRACED = (
    OWN_TELEMETRY
    + """
from opentelemetry import trace
tracer = trace.get_tracer("payments")
"""
)

MEASURED = (
    OWN_TELEMETRY
    + """
from opentelemetry import metrics as api
meter = api.get_meter("payments")
"""
)

DEFAULT_TELEMETRY = "logger = metrics = None"


def imported(handler: str, telemetry: str = POWERTOOLS_TELEMETRY) -> set[str]:
    """The modules that are there once such a consumer has started."""
    code = START.format(telemetry=telemetry, handler=handler)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={
            "PATH": os.environ.get("PATH", os.defpath),
            "PYTHONPATH": str(ROOT / "src"),
            "AWS_DEFAULT_REGION": "us-east-1",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


def of(package: str, modules: set[str]) -> set[str]:
    """The modules of a package, by their names within the package."""
    return {module.removeprefix(f"{package}.") for module in modules if module.startswith(f"{package}.")}


def packages(modules: set[str]) -> set[str]:
    """The packages outside the standard library."""
    names = {module.partition(".")[0] for module in modules} - set(sys.stdlib_module_names)
    return {name for name in names if not name.startswith("_")} - {"idempotent_receiver"}


PLAIN = "def handle(body: dict): pass"
PYDANTIC = {"pydantic", "pydantic_core", "annotated_types", "typing_inspection"}


@pytest.mark.parametrize(
    ("handler", "telemetry", "ours", "others"),
    [
        (PLAIN, POWERTOOLS_TELEMETRY, set(), WITH_POWERTOOLS),
        (PLAIN, DEFAULT_TELEMETRY, set(), WITH_POWERTOOLS),
        # Logger and Metrics are a good part of a cold start. The default metrics are imported with the first batch.
        (PLAIN, OWN_TELEMETRY, set(), THIRD_PARTY),
        (PLAIN, OWN_TELEMETRY + "metrics = None", set(), THIRD_PARTY),
        (PLAIN, TRACED, {"sqs.spans"}, THIRD_PARTY | {"opentelemetry", "typing_extensions"}),
        (PLAIN, MEASURED, {"instruments"}, THIRD_PARTY | {"opentelemetry", "typing_extensions"}),
        ("async def handle(body: dict): pass", POWERTOOLS_TELEMETRY, {"batch.event_loop"}, WITH_POWERTOOLS),
        ("def handle(body: list[int]): pass", POWERTOOLS_TELEMETRY, set(), WITH_POWERTOOLS | PYDANTIC),
    ],
    ids=[
        "Powertools given",
        "default",
        "a logger of its own",
        "its default metrics",
        "a tracer",
        "a meter",
        "a coroutine",
        "a model",
    ],
)
def test_a_consumer_imports_what_is_listed(handler: str, telemetry: str, ours: set[str], others: set[str]) -> None:
    """Exactly the data path's modules, and the listed packages at most."""
    modules = imported(handler, telemetry)

    assert of("idempotent_receiver", modules) == OURS | ours
    assert packages(modules) <= others


def test_of_powertools_only_logging_and_metrics_and_no_event_loop_without_need() -> None:
    """The event loop is for coroutine handlers, the store in memory for tests, and X-Ray's SDK is not used."""
    modules = imported(PLAIN)

    found = of("aws_lambda_powertools", modules)
    within = {module for module in found if module.partition(".")[0] in POWERTOOLS - {"utilities"}}
    assert found - within <= POWERTOOLS
    assert not modules & {"asyncio", "idempotent_receiver.testing.memory", "aws_xray_sdk", "typer", "rich"}
