"""The table of records under any name, and where the engine says it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import MetaData, event, text
from sqlalchemy.orm import Session

from idempotent_receiver import sqs_consumer
from idempotent_receiver.sql import SQLStore, records_table
from tests.unit.sql.bank import deliver

if TYPE_CHECKING:
    from sqlalchemy import Engine


def runs(store: SQLStore) -> bool:
    def handle(body: dict[str, Any], session: Session) -> None: ...

    return deliver(sqs_consumer(store)(handle)) == [] and store.read(["message-1"]) != [None]


@pytest.mark.parametrize("name", ["orders' idempotency", "100% of them", 'a"b`c', "SELECT"])
def test_a_table_may_have_any_name(database: Engine, name: str) -> None:
    store = SQLStore(database, table=records_table(MetaData(), name))
    store.create()
    try:
        assert runs(store)
    finally:
        store.table.drop(database)


def test_the_engines_map_of_schemas_counts(database: Engine) -> None:
    """As for the handler's own tables: a tenant's records lie in the tenant's schema, and nowhere else."""
    if database.dialect.name == "sqlite":
        event.listen(database, "connect", lambda driver, record: driver.execute("ATTACH ':memory:' AS tenant"))
    else:
        with database.begin() as at:
            at.execute(text("CREATE SCHEMA tenant"))
    store = SQLStore(database.execution_options(schema_translate_map={None: "tenant"}))
    try:
        store.create()
        assert runs(store)
    finally:
        if database.dialect.name != "sqlite":
            store.table.drop(store.engine)
            with database.begin() as at:
                at.execute(text("DROP SCHEMA tenant"))
