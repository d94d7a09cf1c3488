"""The table of records, as migrations create it on each database, and one row of it."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import MetaData
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.dialects.mysql.mariadb import MariaDBDialect
from sqlalchemy.schema import CreateIndex, CreateTable

from idempotent_receiver.protocol.record import ATTRIBUTES, Record
from idempotent_receiver.sql import records_table
from idempotent_receiver.sql.table import insert_if_absent, record_of, row_of

DIALECTS = {
    "postgresql": postgresql.dialect(),  # type: ignore[no-untyped-call]
    "mysql": mysql.dialect(),  # type: ignore[no-untyped-call]
    "mariadb": MariaDBDialect(),
    "sqlite": sqlite.dialect(),  # type: ignore[no-untyped-call]
}
IDS = {"postgresql": 'VARCHAR(2048) COLLATE "C"', "sqlite": "VARCHAR(2048)"}
TEXTS = {"postgresql": "TEXT", "sqlite": "TEXT"}
BY_BYTES, LONG = "VARBINARY(2048)", "LONGTEXT COLLATE utf8mb4_bin"
NUMBERS = {"expiration": "BIGINT", "in_progress_expiration": "BIGINT", "attempts": "INTEGER"}


@pytest.mark.parametrize("name", DIALECTS)
def test_ids_compare_by_bytes_and_every_text_fits(name: str) -> None:
    table = records_table(MetaData(), "records")
    lines = str(CreateTable(table).compile(dialect=DIALECTS[name])).strip().split("\n\t")
    columns = dict(line.rstrip(" ,\n)").split(" ", 1) for line in lines[1:-1])
    texts = dict.fromkeys(ATTRIBUTES, TEXTS.get(name, LONG))
    own = {"id": f"{IDS.get(name, BY_BYTES)} NOT NULL", "status": "VARCHAR(16) NOT NULL"}
    assert columns == texts | NUMBERS | own
    assert "PRIMARY KEY (id)" in lines[-1]


def test_expired_records_are_found_by_an_index_and_by_no_other() -> None:
    table = records_table(MetaData())
    assert [str(CreateIndex(each)) for each in table.indexes] == [
        "CREATE INDEX ix_idempotent_receiver_expiration ON idempotent_receiver (expiration)"
    ]


RECORD = Record("ключ", "SENDING", version="v", outbox="{}", expiration=4_000_000_000, attempts=2)


@pytest.mark.parametrize("name", DIALECTS)
def test_a_row_is_the_record_again_whatever_other_columns_it_has(name: str) -> None:
    row: Any = row_of(RECORD, name)
    assert row["id"] == (RECORD.id.encode() if name in ("mysql", "mariadb") else RECORD.id)
    assert "unreadable" not in row
    assert record_of(row | {"yours": 1}) == RECORD


@pytest.mark.parametrize(
    ("name", "start", "end"),
    [
        ("postgresql", "INSERT INTO records ", " ON CONFLICT DO NOTHING"),
        ("sqlite", "INSERT INTO records ", " ON CONFLICT DO NOTHING"),
        ("mysql", "INSERT IGNORE INTO records ", ""),
        ("mariadb", "INSERT IGNORE INTO records ", ""),
    ],
)
def test_an_insert_of_what_is_there_does_nothing(name: str, start: str, end: str) -> None:
    statement = str(insert_if_absent(records_table(MetaData(), "records"), name).compile(dialect=DIALECTS[name]))
    assert statement.startswith(start)
    assert statement.endswith(end)
