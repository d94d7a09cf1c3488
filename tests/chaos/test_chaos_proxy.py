"""The proxy hands on what it has read, and logs what was applied, whatever becomes of who asked."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import weakref
from typing import TYPE_CHECKING

from local.cloud import LOOPBACK
from tests.chaos.faults import Faults
from tests.chaos.log import Log, Write, lines_of
from tests.chaos.proxy import Proxy, Request

if TYPE_CHECKING:
    from pathlib import Path

SEED = next(seed for seed in range(100) if Faults(seed).deal("PutItem", {}) is None)
"""One that lets the first request pass."""
BODY = json.dumps({"TableName": "records", "Item": {"id": {"S": "key"}, "owner": {"S": "w1.1"}}}).encode()
HEAD = b"POST / HTTP/1.1\r\nX-Amz-Target: D.PutItem\r\nUser-Agent: Boto3 worker/w1\r\nContent-Length: %d" % len(BODY)
GET_QUIET = Request(b"GET /quiet HTTP/1.1", b"")


class Cloud:
    """It says when a request has arrived, and answers once it is let, or breaks the connection."""

    def __init__(self, *, breaks: bool = False) -> None:
        self.arrived = asyncio.Event()
        self.answers = asyncio.Event()
        self._breaks = breaks

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(len(BODY))
        self.arrived.set()
        await self.answers.wait()
        if not self._breaks:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()


async def left_alone(folder: Path, cloud: Cloud) -> bytes | None:
    """Ask for a write, break the connection before there is an answer, and ask whether all is quiet."""
    upstream = await asyncio.start_server(cloud.serve, LOOPBACK, 0)
    log = Log(folder / "proxy.jsonl", durable=False)
    proxy = Proxy(upstream.sockets[0].getsockname()[1], SEED, log)
    readers: list[weakref.ref[asyncio.StreamReader]] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        readers.append(weakref.ref(reader))
        await proxy.connected(reader, writer)

    server = await asyncio.start_server(connected, LOOPBACK, 0)
    async with upstream, server:
        with contextlib.closing(proxy):
            _, writer = await asyncio.open_connection(LOOPBACK, server.sockets[0].getsockname()[1])
            writer.write(HEAD + b"\r\n\r\n" + BODY)
            await cloud.arrived.wait()
            writer.transport.abort()
            while (reader := readers[0]()) is not None and not reader.at_eof():  # noqa: ASYNC110  # until it is noticed
                await asyncio.sleep(0)
            del reader
            gc.collect()
            cloud.answers.set()
            told = await proxy._answer(GET_QUIET)
    log.close()
    return told


def test_a_request_whose_sender_is_gone_is_handed_on_and_logged(tmp_path: Path) -> None:
    """The event loop holds tasks weakly: one that nobody else held once vanished with what it had to log."""
    told = asyncio.run(left_alone(tmp_path, Cloud()))
    (line,) = lines_of(tmp_path)
    assert isinstance(line, Write)
    assert (line.worker, line.key, line.move) == ("w1", "key", "claim")
    assert told is not None
    assert told.startswith(b"HTTP/1.1 200")


def test_a_fault_that_is_none_of_ours_is_told_in_the_end(tmp_path: Path) -> None:
    """The log is not whole then, and no books can be made of it."""
    told = asyncio.run(left_alone(tmp_path, Cloud(breaks=True)))
    assert lines_of(tmp_path) == []
    assert told is not None
    assert told.startswith(b"HTTP/1.1 500")
    assert b"BrokenCloud" in told
