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
    "batch", "batch.exchanges", "batch.executor", "batch.items", "batch.progress", "batch.settlements",
    "batch.receiver", "batch.runs", "batch.settings", "clock", "dynamodb", "dynamodb.client", "dynamodb.errors",
    "dynamodb.packs", "dynamodb.statements", "dynamodb.store", "dynamodb.transactions",
    "errors", "handler", "handler.annotations", "handler.attempt",
    "handler.outcome", "handler.process_end", "handler.results", "options", "payload",
    "protocol", "protocol.exchange", "protocol.namespaces", "protocol.record",
    "protocol.store", "protocol.transaction", "protocol.transitions", "sqs", "sqs.binding", "sqs.consumer",
    "sqs.dead_letter", "sqs.keys", "sqs.message", "sqs.received", "sqs.visibility", "telemetry",
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
{telemetry}
store = DynamoDBStore("records")
consumer = sqs_consumer(store, logger=logger, metrics=metrics)
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


@pytest.mark.parametrize("telemetry", [POWERTOOLS_TELEMETRY, DEFAULT_TELEMETRY], ids=["given", "default"])
def test_a_plain_consumer_imports_what_is_listed(telemetry: str) -> None:
    """A consumer with a plain body starts with exactly the data path's modules, and the listed packages at most."""
    modules = imported(PLAIN, telemetry)

    assert of("idempotent_receiver", modules) == OURS
    assert packages(modules) <= WITH_POWERTOOLS


@pytest.mark.parametrize("metrics", ["", "metrics = None"], ids=["own", "default"])
def test_a_consumer_with_a_logger_of_its_own_starts_without_powertools(metrics: str) -> None:
    """Logger and Metrics are a good part of a cold start. The default metrics are imported with the first batch."""
    modules = imported(PLAIN, OWN_TELEMETRY + metrics)

    assert of("idempotent_receiver", modules) == OURS
    assert packages(modules) <= THIRD_PARTY


def test_of_powertools_only_logging_and_metrics() -> None:
    """Of Powertools, only what its logging and its metrics need is imported."""
    found = of("aws_lambda_powertools", imported(PLAIN))

    within = {module for module in found if module.partition(".")[0] in POWERTOOLS - {"utilities"}}
    assert found - within <= POWERTOOLS


def test_no_event_loop_and_no_memory_store_without_need() -> None:
    """The event loop is for coroutine handlers, the store in memory for tests, and X-Ray's SDK is not used."""
    modules = imported(PLAIN)

    assert not modules & {"asyncio", "idempotent_receiver.testing.memory", "aws_xray_sdk", "typer", "rich"}


def test_a_coroutine_handler_brings_its_loop() -> None:
    """An `async def` imports the event loop, and no other module of the library."""
    modules = imported("async def handle(body: dict): pass")

    assert of("idempotent_receiver", modules) - OURS == {"batch.event_loop"}
    assert packages(modules) <= WITH_POWERTOOLS


def test_a_model_brings_pydantic() -> None:
    """A body that pydantic validates imports pydantic, and nothing else."""
    modules = imported("def handle(body: list[int]): pass")

    brought = {"pydantic", "pydantic_core", "annotated_types", "typing_inspection"}
    assert of("idempotent_receiver", modules) == OURS
    assert packages(modules) <= WITH_POWERTOOLS | brought
