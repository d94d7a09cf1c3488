"""Relational databases for fixtures: an engine for a server that is started, or a skip with the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine

from harness.databases import Unavailable, mariadb, postgresql

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine

__all__ = ["connected", "mariadb", "postgresql", "server"]


def connected(url: str) -> Iterator[Engine]:
    """For a fixture: an engine, disposed of in the end."""
    engine = create_engine(url)
    yield engine
    engine.dispose()


def server(start: Callable[[], contextlib.AbstractContextManager[str]]) -> Iterator[Engine]:
    """For a fixture: an engine for a server that is started, or a skip with the reason."""
    try:
        with start() as url:
            yield from connected(url)
    except Unavailable as why:
        pytest.skip(str(why))
