"""Checks that our endpoint behaves like DynamoDB: each subject must leave the same records on it as on an emulator.

`python -m benchmarks.validation SUBJECT EVENTS` handles two batches, the second of which repeats messages of the first,
and prints the records that it leaves.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3

from benchmarks.endpoint import Loopback
from benchmarks.measure import python
from benchmarks.settings import PLAIN, Context, event, redelivered

if TYPE_CHECKING:
    from collections.abc import Sequence

DRAWN = {"version", "claim_token"}
"""Attributes with random values."""

MESSAGES = 30
"""More than one request can hold."""


def main(subject: str, path: Path) -> None:
    """Handle the batches, and print the records."""
    with contextlib.redirect_stdout(io.StringIO()):
        handler = importlib.import_module(f"benchmarks.subjects.{subject}").build(PLAIN)
        answers = [handler(batch, Context()) for batch in json.loads(path.read_text())]
    assert answers == [{"batchItemFailures": []}] * len(answers), answers
    items = boto3.client("dynamodb").scan(TableName="records", ConsistentRead=True)["Items"]
    print(json.dumps(items, default=bytes.hex))


def differences(subjects: Sequence[str], endpoint: Loopback, emulator_url: str) -> dict[str, list[str]]:
    """For each subject, the ids of the records in which the two differ."""
    first, fresh = event(MESSAGES), event(MESSAGES)
    batches = [first, redelivered(first, fresh)]
    found: dict[str, list[str]] = {}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(batches, file)
        file.flush()
        for subject in subjects:
            key = "effective_key" if subject == "idemkit" else "id"
            endpoint.clear()
            here, there = (_left_behind(subject, file.name, url, key) for url in (endpoint.url, emulator_url))
            found[subject] = _different(here, there, key)
    return found


def _left_behind(subject: str, path: str, url: str, key: str) -> list[dict[str, Any]]:
    """The records that a subject leaves in a new table."""
    access = {"region_name": "us-east-1", "aws_access_key_id": "benchmark", "aws_secret_access_key": "unchecked"}
    client = boto3.client("dynamodb", endpoint_url=url, **access)  # type: ignore[call-overload]  # plain strings
    client.create_table(
        TableName="records",
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"}],
        KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
    )
    try:
        found: list[dict[str, Any]] = json.loads(python(["-m", "benchmarks.validation", subject, path], url))
    finally:
        client.delete_table(TableName="records")
    return found


def _different(here: Sequence[dict[str, Any]], there: Sequence[dict[str, Any]], key: str) -> list[str]:
    ours, theirs = ({item[key]["S"]: _lasting(item) for item in items} for items in (here, there))
    if len(ours) != 2 * MESSAGES:
        return [f"{len(ours)} records instead of {2 * MESSAGES}"]
    return [id for id in ours.keys() | theirs.keys() if ours.get(id) != theirs.get(id)]


def _lasting(item: dict[str, Any]) -> dict[str, Any]:
    """A record in which times and random values are replaced by their types, because they differ between runs."""
    return {name: next(iter(value)) if name in DRAWN or _is_moment(value) else value for name, value in item.items()}


def _is_moment(value: dict[str, Any]) -> bool:
    """Whether a value is a number large enough for seconds or milliseconds since 1970."""
    return "N" in value and float(value["N"]) > 1_000_000_000


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
