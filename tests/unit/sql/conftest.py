"""The databases: SQLite, and PostgreSQL by the driver that shares round trips and by one that does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import Engine, create_engine, make_url

from tests.engines import databases
from tests.unit.sql.bank import Bank

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DATABASES = ("sqlite", "psycopg", "psycopg2", "mariadb")


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Engine]:
    yield from databases.server(databases.postgresql)


@pytest.fixture(scope="session")
def mariadb() -> Iterator[Engine]:
    yield from databases.server(databases.mariadb)


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """An engine of each database, with a pool of its own."""
    if request.param == "sqlite":
        url = make_url(f"sqlite:///{tmp_path / 'bank'}")
    elif request.param == "mariadb":
        url = request.getfixturevalue("mariadb").url
    else:
        url = request.getfixturevalue("postgresql").url.set(drivername=f"postgresql+{request.param}")
    engine = create_engine(url)
    yield engine
    engine.dispose()


@pytest.fixture(params=("postgresql", "mariadb"))
def on_server(request: pytest.FixtureRequest) -> Iterator[Bank]:
    """A bank on each server, by one driver."""
    engine = create_engine(request.getfixturevalue(request.param).url)
    yield Bank(engine)
    engine.dispose()


@pytest.fixture
def bank(database: Engine) -> Bank:
    return Bank(database)


@pytest.fixture
def on_postgresql(postgresql: Engine) -> Iterator[Bank]:
    """A bank on PostgreSQL, by psycopg 3."""
    engine = create_engine(postgresql.url)
    yield Bank(engine)
    engine.dispose()
