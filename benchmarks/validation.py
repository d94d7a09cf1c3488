"""Checks that our endpoint behaves like DynamoDB: each subject must leave the same records on it as on an emulator.

`python -m benchmarks.validation SUBJECT WRITES EVENTS` handles two batches, the second of which repeats messages of the
first, and prints the records that it leaves and the items that its handlers wrote.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3

from benchmarks.measure import python
from benchmarks.settings import ENTRIES, PLAIN, TABLE, Context, event, failing, redelivered
from benchmarks.worker import check

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.endpoint import Loopback
    from harness.dynamodb.units import Item

    Items = dict[str, list[Item]]
    """The items of each table."""

DRAWN = {"version", "claim_token"}
"""Attributes with random values."""

MESSAGES = 30
"""More than one request can hold."""

HOT_ITEMS, FAILING = 3, 0.1
"""How many items the messages write to, and the share whose condition does not hold."""

WRITE_NOTHING, WRITE_ALWAYS = ("idemkit",), ("unclaimed",)
"""Subjects that have no writes to compare, and those that only have such."""


def main(subject: str, writes: bool, path: Path) -> None:
    """Handle the batches, and print what is in the tables."""
    with contextlib.redirect_stdout(io.StringIO()):
        handler = importlib.import_module(f"benchmarks.subjects.{subject}").build(replace(PLAIN, writes=writes))
        for batch in json.loads(path.read_text()):
            check(handler(batch, Context()), batch)
    client = boto3.client("dynamodb")
    items = {name: client.scan(TableName=name, ConsistentRead=True)["Items"] for name in (TABLE, ENTRIES)}
    print(json.dumps(items, default=bytes.hex))


def differences(subjects: Sequence[str], endpoint: Loopback, emulator_url: str) -> dict[str, list[str]]:
    """For each subject, the keys of the records and items in which the two differ."""
    return {
        f"{subject}, {'writing' if writes else 'plain'}": _differences(subject, writes, endpoint, emulator_url)
        for subject in subjects
        for writes in (False, True)
        if subject not in (WRITE_NOTHING if writes else WRITE_ALWAYS)
    }


def _differences(subject: str, writes: bool, endpoint: Loopback, emulator_url: str) -> list[str]:
    shares = {"hot_items": HOT_ITEMS, "failing": FAILING} if writes else {}
    first, fresh = (event(MESSAGES, **shares) for _ in range(2))  # type: ignore[arg-type]  # mixed numbers
    keys = {TABLE: "effective_key" if subject == "idemkit" else "id", ENTRIES: "account"}
    endpoint.clear()
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump([first, redelivered(first, fresh)], file)
        file.flush()
        here, there = (_left_behind(subject, writes, file.name, url, keys) for url in (endpoint.url, emulator_url))
    # Powertools deletes the record of a message that failed.
    least = 2 * MESSAGES - len(failing(first)) - len(failing(fresh))
    if not least <= len(here[TABLE]) <= 2 * MESSAGES or len(here[ENTRIES]) != (HOT_ITEMS if writes else 0):
        return [f"{len(here[TABLE])} records and {len(here[ENTRIES])} items are too few or too many"]
    return [id for table, key in keys.items() for id in _different(here[table], there[table], key)]


def _left_behind(subject: str, writes: bool, path: str, url: str, keys: Mapping[str, str]) -> Items:
    """What a subject leaves in new tables."""
    access = {"region_name": "us-east-1", "aws_access_key_id": "benchmark", "aws_secret_access_key": "unchecked"}
    client = boto3.client("dynamodb", endpoint_url=url, **access)  # type: ignore[call-overload]  # plain strings
    for name, key in keys.items():
        client.create_table(
            TableName=name,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"}],
            KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
        )
    try:
        found: Items = json.loads(python(["-m", "benchmarks.validation", subject, str(int(writes)), path], url))
    finally:
        for name in keys:
            client.delete_table(TableName=name)
    return found


def _different(here: Sequence[Item], there: Sequence[Item], key: str) -> list[str]:
    ours, theirs = ({item[key]["S"]: _lasting(item) for item in items} for items in (here, there))
    return [id for id in ours.keys() | theirs.keys() if ours.get(id) != theirs.get(id)]


def _lasting(item: Item) -> dict[str, Any]:
    """A record in which times and random values are replaced by their types, because they differ between runs."""
    return {name: next(iter(value)) if name in DRAWN or _is_moment(value) else value for name, value in item.items()}


def _is_moment(value: dict[str, Any]) -> bool:
    """Whether a value is a number large enough for seconds or milliseconds since 1970."""
    return "N" in value and float(value["N"]) > 1_000_000_000


if __name__ == "__main__":
    main(sys.argv[1], bool(int(sys.argv[2])), Path(sys.argv[3]))
