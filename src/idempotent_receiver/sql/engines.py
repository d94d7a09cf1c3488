"""Checks of what the user passes: engines, pools and sessions with which the promise could not be kept are refused."""

from typing import Any

from sqlalchemy import Engine
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import QueuePool, SingletonThreadPool, StaticPool


def require_engine(engine: Engine) -> None:
    """Raise ValueError for an engine that commits each statement, whose driver is asynchronous, or whose threads share
    or never share a database.
    """
    if engine.dialect.is_async:
        raise ValueError(f"the engine's driver, {engine.dialect.driver}, is asynchronous: use one that blocks")
    levels = (engine.get_execution_options().get("isolation_level"), getattr(engine.dialect, _LEVEL, None))
    if any(level is not None and str(level).upper() == "AUTOCOMMIT" for level in levels):
        raise ValueError("the engine is in AUTOCOMMIT, so no record could commit together with anything: leave it out")
    if isinstance(engine.pool, StaticPool | SingletonThreadPool):
        raise ValueError(  # noqa: TRY004  # it is an engine, and this one does not fit
            f"the engine's {type(engine.pool).__name__} gives all threads one connection, or each a database of its "
            "own: for SQLite, use a file, create_engine('sqlite:///records.db')"
        )


_LEVEL = "_on_connect_isolation_level"
"""Where SQLAlchemy keeps the level that `create_engine` was given."""


def require_concurrency(engine: Engine, concurrency: int) -> None:
    """Raise ValueError if that many handlers at once are too many for the database or the pool."""
    if engine.dialect.name == "sqlite" and concurrency > 1:
        raise ValueError(f"SQLite has one writer at a time, so concurrency must be 1; it is {concurrency}")
    most = _most_connections(engine.pool)
    if most is not None and most < concurrency:
        raise ValueError(
            f"each of {concurrency} handlers needs a connection, and the engine's pool has at most {most}: use "
            f"create_engine(..., pool_size={concurrency})"
        )


def _most_connections(pool: Any) -> int | None:
    """A pool's largest size; None if it has none or does not say."""
    if not isinstance(pool, QueuePool):
        return None
    overflow = getattr(pool, "_max_overflow", -1)
    return None if pool.size() == 0 or overflow < 0 else pool.size() + overflow


def require_sessions(sessions: object) -> None:
    """Raise TypeError for anything but a sessionmaker of a Session, and ValueError for one whose sessions use other
    connections.
    """
    if sessions is None:
        return
    if not isinstance(sessions, sessionmaker) or not issubclass(sessions.class_, Session):
        raise TypeError(f"sessions must be a sqlalchemy.orm.sessionmaker of a Session; it is {sessions!r}")
    for name in ("binds", "twophase"):
        if sessions.kw.get(name):
            raise ValueError(f"sessions has {name}, which would commit apart from the record: leave it out")
