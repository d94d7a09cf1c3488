"""The SQLite database that stands in for a project's own on the local cloud: each secret that the template leaves
without a value gets its URL.

Its tables take the form of DynamoDB's, so that effects.py compares them by the same rule.
"""

import contextlib
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from idempotent_receiver.local.cloud import Cloud
from idempotent_receiver.local.deployment import resources_of
from idempotent_receiver.local.effects import ContentByTable, TableContent

LOCK_SECONDS = 10.0
"""How long a reader waits for a worker's commit."""


def give_database(cloud: Cloud, stack: str, folder: Path) -> None:
    """Give each secret of the stack that has no value the URL of a new database in `folder`."""
    secrets = cloud.client("secretsmanager")
    for each in resources_of(cloud, stack):
        if each["ResourceType"] == "AWS::SecretsManager::Secret":
            name = each["PhysicalResourceId"]
            if not secrets.get_secret_value(SecretId=name).get("SecretString"):
                url = f"sqlite:///{tempfile.mkdtemp(prefix='database-', dir=folder)}/database"
                secrets.put_secret_value(SecretId=name, SecretString=url)


def tables_in(database: str, *, apart: Iterable[str]) -> ContentByTable:
    """The tables of a database, except those named in `apart`."""
    with _opened(database) as at:
        names = [row["name"] for row in at.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return {name: _content(at, name) for name in names if name not in {*apart, "sqlite_sequence"}}


def rows_of(database: str, table: str) -> Iterator[Mapping[str, Any]]:
    """A table's rows, by column."""
    with _opened(database) as at:
        yield from map(dict, at.execute(f"SELECT * FROM {_quoted(table)}"))


@contextlib.contextmanager
def _opened(database: str) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(database, timeout=LOCK_SECONDS)) as at:
        at.row_factory = sqlite3.Row
        yield at


def _content(at: sqlite3.Connection, table: str) -> TableContent:
    columns = at.execute(f"PRAGMA table_info({_quoted(table)})").fetchall()
    key = tuple(each["name"] for each in columns if each["pk"])
    rows = at.execute(f"SELECT * FROM {_quoted(table)}").fetchall()
    return TableContent(key, [{name: _typed(row[name]) for name in row.keys()} for row in rows])  # noqa: SIM118  # a Row iterates over its values


def _typed(value: Any) -> dict[str, Any]:
    match value:
        case None:
            return {"NULL": True}
        case int() | float():
            return {"N": str(value)}
        case bytes():
            return {"B": value}
    return {"S": str(value)}


def _quoted(table: str) -> str:
    escaped = table.replace('"', '""')
    return f'"{escaped}"'
