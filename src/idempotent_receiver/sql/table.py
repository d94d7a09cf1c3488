"""The table of records, and one row of it as a record."""

from typing import Any

from sqlalchemy import BigInteger, Column, Engine, Insert, Integer, MetaData, RowMapping, String, Table, Text
from sqlalchemy.dialects import mysql, postgresql, sqlite

from idempotent_receiver.protocol.record import ATTRIBUTES, MOST_KEY_BYTES, Record

COUNTED = {"preserve_rowcount": True}
"""Otherwise SQLAlchemy counts the rows of an UPDATE and a DELETE alone."""

_NUMBERS = {"expiration": BigInteger, "in_progress_expiration": BigInteger, "attempts": Integer}
_MYSQL = ("mysql", "mariadb")


def records_table(metadata: MetaData, name: str = "idempotent_receiver") -> Table:
    """The table of records, added to your `metadata`, so that Alembic creates it and migrates it with your tables.

    Pass it to `SQLStore(engine, table=...)`. Ids are compared by their bytes on every database.
    """
    # The usual collations order or compare by language; MySQL's take "a", "A" and "a " for one key.
    by_bytes = String(MOST_KEY_BYTES, collation="C").with_variant(String(MOST_KEY_BYTES), "sqlite")
    by_bytes = by_bytes.with_variant(mysql.VARBINARY(MOST_KEY_BYTES), *_MYSQL)
    return Table(name, metadata, Column("id", by_bytes, primary_key=True), *map(_column, ATTRIBUTES[1:]))


def _column(name: str) -> Column[Any]:
    if name in _NUMBERS:
        return Column(name, _NUMBERS[name], index=name == "expiration")
    if name == "status":
        return Column(name, String(16), nullable=False)
    # MySQL's TEXT ends at 64 KB, which an outbox alone may have, and its default character set may lack characters, for
    # which INSERT IGNORE stores "?".
    return Column(name, Text().with_variant(mysql.LONGTEXT(collation="utf8mb4_bin"), *_MYSQL))


def name_in_text(table: Table, engine: Engine) -> str:
    """The table's quoted name for a statement's text, in the schema where this engine has it."""
    schemas = engine.get_execution_options().get("schema_translate_map") or {}
    schema, preparer = schemas.get(table.schema, table.schema), engine.dialect.identifier_preparer
    parts = [preparer.quote(part) for part in (schema, table.name) if part is not None]
    return ".".join(parts).replace("%%", "%")  # doubled again where the driver needs it


def row_of(record: Record, dialect: str) -> dict[str, Any]:
    """The values of a record's row, by column."""
    return dict(zip(ATTRIBUTES, record, strict=False)) | {"id": stored_id(record.id, dialect)}


def stored_id(id: str, dialect: str) -> str | bytes:
    """An id as its column holds it."""
    return id.encode() if dialect in _MYSQL else id


def record_of(row: RowMapping) -> Record:
    """The record in a row. Other columns, which you may have added, are left alone."""
    values = {name: row[name] for name in ATTRIBUTES}
    id = values["id"]
    return Record(**values | {"id": id.decode() if isinstance(id, bytes) else id})


def insert_if_absent(table: Table, dialect: str) -> Insert:
    """The INSERT that does nothing if the id is in the table."""
    match dialect:
        case "postgresql":
            return postgresql.insert(table).on_conflict_do_nothing()
        case "sqlite":
            return sqlite.insert(table).on_conflict_do_nothing()
    return mysql.insert(table).prefix_with("IGNORE")
