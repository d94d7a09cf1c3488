"""Finds stuck work in a relational database. Needs SQLAlchemy, so import it only for a consumer that uses it."""

from collections.abc import Generator

from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from idempotent_receiver.handler.lending import LendingStore
from idempotent_receiver.operations.account import UsageError
from idempotent_receiver.protocol.record import Record, Status
from idempotent_receiver.sql.errors import told
from idempotent_receiver.sql.store import SQLStore
from idempotent_receiver.sql.table import record_of

_PAGES = {"yield_per": 100}


def not_completed(store: LendingStore, prefix: str) -> Generator[list[Record]]:
    """The records with this prefix that are not COMPLETED, page by page. Raises UsageError if they cannot be read."""
    assert isinstance(store, SQLStore)  # no other store lends
    query = select(store.table).where(store.table.c.status != Status.COMPLETED)
    try:
        with store.engine.connect() as at, at.execute(query, execution_options=_PAGES) as rows:
            for page in rows.mappings().partitions():
                yield [record for record in map(record_of, page) if record.id.startswith(prefix)]
    except SQLAlchemyError as error:
        raise UsageError(
            f"the table {store.table.fullname} cannot be read: {told(error)}: check the engine of --consumer"
        ) from error
