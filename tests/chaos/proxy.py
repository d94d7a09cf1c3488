"""The way into the cloud, and it lies: `python -m tests.chaos.proxy PORT`, a process of its own on loopback.

Workers reach the cloud only through here. Each request may meet with a fault (`faults.py`). What DynamoDB really
applied of it is logged before the worker can hear of it, so the log knows more than any worker does. A request that was
read is handed on, even if its sender is dead by then: so it is on a network.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from local.cloud import LOOPBACK
from local.server import ServerError
from tests.chaos.faults import Faults
from tests.chaos.log import Fault, Log, Refusal, Write, now_ms
from tests.chaos.settings import RECORDS, python_path
from tests.chaos.wire import Applied, Refused, fates_of, wishes_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.chaos.faults import Json
    from tests.chaos.wire import Fate, Wish

LARGEST_REQUEST = 16 * 1024 * 1024
IDLE_SECONDS = 1.0
QUIET = b"/quiet"
"""Asking for this is answered once no other request is on its way."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it came."""

    head: bytes
    body: bytes

    @property
    def line(self) -> bytes:
        """Its method and path."""
        return self.head.split(b"\r\n", 1)[0]

    def header(self, name: bytes) -> str:
        """A header's value, or nothing."""
        found = re.search(rb"(?im)^" + re.escape(name) + rb": *(.*?)\r?$", self.head)
        return "" if found is None else found[1].decode()


class BrokenCloud(Exception):
    """The cloud has broken a connection, which is not among the faults that were meant."""


class Proxy:
    """What all connections share."""

    def __init__(self, upstream_port: int, seed: int, log: Log) -> None:
        self._upstream_port = upstream_port
        self._faults = Faults(seed)
        self._log = log
        self._under_way = 0
        self._trouble: Exception | None = None
        # The loop alone does not keep a task whose connection is lost: it would vanish in the middle of a request.
        self._serving: set[asyncio.Task[None] | None] = set()
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter, float]] = []

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection for as long as it lasts."""
        self._serving.add(task := asyncio.current_task())
        try:
            while (request := await _read(reader)) is not None:
                if (answer := await self._answer(request)) is None:
                    writer.transport.abort()
                    return
                writer.write(answer)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the worker was killed, or has given up
        except Exception as error:
            self._trouble = error  # ours or the cloud's, and none that was meant: the log is worth nothing then
            raise
        finally:
            self._serving.discard(task)
            writer.close()

    def close(self) -> None:
        """Close the connections that nobody uses."""
        while self._free:
            self._free.pop()[1].close()

    async def _answer(self, request: Request) -> bytes | None:
        if QUIET in request.line:
            while self._under_way:  # noqa: ASYNC110  # asked once a run: an event would be more to keep right
                await asyncio.sleep(0.02)
            return _response(200, b"") if self._trouble is None else _response(500, repr(self._trouble).encode())
        self._under_way += 1
        try:
            return await self._passed_on(request)
        finally:
            self._under_way -= 1

    async def _passed_on(self, request: Request) -> bytes | None:
        operation = request.header(b"X-Amz-Target").partition(".")[2]
        asked = json.loads(request.body)
        fault = self._faults.deal(operation, asked)
        worker = _worker_of(request)
        if fault is None:
            status, body = await self._asked(request, operation, asked, worker)
            return _response(status, body)
        self._log.write(Fault(at_ms=now_ms(), worker=worker, name=fault.name))
        await asyncio.sleep(fault.delay_seconds)
        arriving = fault.handed_on(asked)
        answer = None
        if arriving is not None:
            changed = Request(request.head, json.dumps(arriving).encode())
            status, body = await self._asked(changed, operation, arriving, worker)
            answer = status, json.loads(body or b"{}")
        told = fault.told(asked, answer)
        return None if told is None else _response(told[0], json.dumps(told[1]).encode())

    async def _asked(self, request: Request, operation: str, asked: Json, worker: str) -> tuple[int, bytes]:
        """Ask the cloud, and log what became of records."""
        wishes, at_ms = wishes_of(operation, asked, RECORDS), now_ms()
        status, body = await self._exchanged(request)
        if wishes:
            fates = fates_of(operation, status, json.loads(body), len(wishes))
            for wish, fate in zip(wishes, fates, strict=True):
                self._note(wish, fate, worker, at_ms)
        return status, body

    def _note(self, wish: Wish, fate: Fate, worker: str, at_ms: int) -> None:
        key, move = wish.key, wish.move
        match fate:
            case Applied():
                self._log.write(Write(at_ms=at_ms, done_ms=now_ms(), worker=worker, key=key, move=move))
            case Refused(owner):
                self._log.write(Refusal(at_ms=at_ms, worker=worker, key=key, move=move, owner=owner))

    async def _exchanged(self, request: Request) -> tuple[int, bytes]:
        """Hand a request to the cloud. Raises BrokenCloud."""
        reader, writer = await self._connection()
        try:
            return await self._exchanged_by(reader, writer, request)
        except (OSError, asyncio.IncompleteReadError) as error:
            writer.close()
            raise BrokenCloud from error

    async def _exchanged_by(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: Request
    ) -> tuple[int, bytes]:
        head = re.sub(rb"(?im)^content-length:[^\r\n]*", b"Content-Length: %d" % len(request.body), request.head)
        writer.write(head + b"\r\n\r\n" + request.body)
        told = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?im)^content-length: *(\d+)", told)
        body = await reader.readexactly(int(length[1]) if length is not None else 0)
        if re.search(rb"(?im)^connection: *close", told) is None:
            self._free.append((reader, writer, time.monotonic()))
        else:
            writer.close()
        return int(told.split(b" ", 2)[1]), body

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection that nobody uses just now, and that the cloud has not tired of: the only faults are ours."""
        while self._free:
            reader, writer, since = self._free.pop()
            if time.monotonic() - since < IDLE_SECONDS:
                return reader, writer
            writer.close()
        return await asyncio.open_connection(LOOPBACK, self._upstream_port)


async def _read(reader: asyncio.StreamReader) -> Request | None:
    """The next request of a connection; None at its end."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    request = Request(head.removesuffix(b"\r\n\r\n"), b"")
    body = await reader.readexactly(int(request.header(b"Content-Length") or 0))
    return Request(request.head, body)


def _response(status: int, body: bytes) -> bytes:
    # The checksum that DynamoDB sends is left out: what it was taken of may be changed.
    head = f"HTTP/1.1 {status} Chaos\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


def _worker_of(request: Request) -> str:
    found = re.search(r"worker/(\S+)", request.header(b"User-Agent"))
    return "nobody" if found is None else found[1]


async def _serve(port: int, proxy: Proxy) -> None:
    server = await asyncio.start_server(proxy.connected, LOOPBACK, port, limit=LARGEST_REQUEST)
    async with server:
        with contextlib.closing(proxy):
            await server.serve_forever()


def main(port: int) -> None:
    """Serve until somebody ends us."""
    log = Log(Path(os.environ["CHAOS_LOG"]), durable=False)
    proxy = Proxy(int(os.environ["CHAOS_UPSTREAM_PORT"]), int(os.environ["CHAOS_SEED"]), log)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(port, proxy))


@dataclass(frozen=True, slots=True)
class Program:
    """How the proxy is started, and how it says that it is ready."""

    upstream_port: int
    seed: int
    log: Path

    def command(self, port: int) -> Sequence[str]:
        """Return the command line."""
        return [sys.executable, "-m", "tests.chaos.proxy", str(port)]

    def environment(self, port: int) -> Mapping[str, str]:
        """Return where it leads to, and where it writes."""
        return {
            "PYTHONPATH": python_path(),
            "PYTHONDONTWRITEBYTECODE": "1",
            "CHAOS_LOG": str(self.log),
            "CHAOS_UPSTREAM_PORT": str(self.upstream_port),
            "CHAOS_SEED": str(self.seed),
        }

    def ready(self, port: int) -> bool:
        """Say whether it answers."""
        try:
            quiet(port, timeout_seconds=1)
        except ServerError:
            return False
        return True


def quiet(port: int, *, timeout_seconds: float) -> None:
    """Wait until every request that is on its way has arrived. Raises ServerError if not all could."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=timeout_seconds)
    with contextlib.closing(connection):
        try:
            connection.request("GET", QUIET.decode())
            response = connection.getresponse()
            said = response.read().decode()
        except (OSError, http.client.HTTPException) as error:
            raise ServerError("the proxy does not answer") from error
    if response.status != http.client.OK:
        raise ServerError(f"the proxy met with what was not meant to be: {said}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
