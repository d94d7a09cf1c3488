"""Servers of relational databases, started from what is installed here.

A server runs in a folder of its own, on a free port of the loopback, without writing through to the disk. It ends with
the block. Whoever asks for one that is not installed is told why there is none.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError

from idempotent_receiver.local.server import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

UNPRIVILEGED = "postgres"
"""Servers refuse to run as root; this user comes with Debian's package."""
LONGEST_START_SECONDS = 60


class Unavailable(Exception):
    """The database is not installed here."""


def program(name: str, *folders: str) -> str:
    """The path of a program. Raises Unavailable."""
    found = shutil.which(name)
    for folder in folders:
        for path in sorted(Path("/").glob(folder), reverse=True):
            if (path / name).exists():
                return str(path / name)
    if found is None:
        raise Unavailable(f"{name} is not installed")
    return found


@contextlib.contextmanager
def postgresql(*, durable: bool = False) -> Iterator[str]:
    """A PostgreSQL server's URL, with psycopg 3 as its driver. `durable`: it writes through, as in production. Raises
    Unavailable.
    """
    of_debian = "usr/lib/postgresql/*/bin"
    initdb, postgres = program("initdb", of_debian), program("postgres", of_debian)
    with _folder() as folder:
        user = _user()
        given = ["-D", str(folder / "data"), "-U", "tests", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C"]
        subprocess.run([initdb, *given], check=True, stdout=subprocess.DEVNULL, cwd="/", user=user)
        port = free_port()
        settings = {
            "listen_addresses": "127.0.0.1", "unix_socket_directories": "", "max_connections": "200",
            "deadlock_timeout": "100ms",
        }  # fmt: skip
        if not durable:
            settings |= dict.fromkeys(("fsync", "full_page_writes", "synchronous_commit"), "off")
        options = [each for name, value in settings.items() for each in ("-c", f"{name}={value}")]
        command = [postgres, "-D", str(folder / "data"), "-p", str(port), *options]
        with _running(command, folder / "log", user):
            url = f"postgresql+psycopg://tests@127.0.0.1:{port}/postgres"
            _until_it_answers(url, folder / "log")
            yield url


@contextlib.contextmanager
def mariadb() -> Iterator[str]:
    """A MariaDB server's URL. Raises Unavailable."""
    server = program("mariadbd", "usr/sbin")
    install = program("mariadb-install-db", "usr/bin")
    try:
        import pymysql  # type: ignore[import-untyped]  # noqa: F401, PLC0415  # only for tests
    except ImportError:
        raise Unavailable("MariaDB is installed, but no driver: pip install pymysql") from None
    with _folder() as folder:
        given = [f"--datadir={folder / 'data'}", "--auth-root-authentication-method=normal", "--skip-test-db"]
        subprocess.run([install, "--no-defaults", *given], check=True, stdout=subprocess.DEVNULL, cwd="/", user=_user())
        port = free_port()
        command = [
            server, "--no-defaults", f"--datadir={folder / 'data'}", f"--port={port}", "--bind-address=127.0.0.1",
            f"--socket={folder / 'socket'}", "--innodb-flush-log-at-trx-commit=0",
        ]  # fmt: skip
        with _running(command, folder / "log", _user()):
            url = f"mariadb+pymysql://root@127.0.0.1:{port}/mysql"
            _until_it_answers(url, folder / "log")
            yield url


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A folder that the server's user owns."""
    folder = Path(tempfile.mkdtemp(prefix="database-"))
    try:
        if (user := _user()) is not None:
            shutil.chown(folder, user)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _user() -> str | None:
    return UNPRIVILEGED if os.geteuid() == 0 else None


@contextlib.contextmanager
def _running(command: list[str], log: Path, user: str | None) -> Iterator[None]:
    with log.open("wb") as written:
        server = subprocess.Popen(command, stdout=written, stderr=written, cwd="/", user=user)
    try:
        yield
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _until_it_answers(url: str, log: Path) -> None:
    engine = create_engine(url)
    ends = time.monotonic() + LONGEST_START_SECONDS
    while True:
        try:
            with engine.connect() as at:
                at.execute(text("SELECT 1"))
            break
        except OperationalError:
            if time.monotonic() > ends:
                raise AssertionError(log.read_text(errors="replace")) from None
            time.sleep(0.05)
    engine.dispose()
