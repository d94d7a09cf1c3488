"""A DynamoDB endpoint on loopback, with a round trip of our choosing: `python -m benchmarks.endpoint PORT`.

A process of its own, so that what it costs is on nobody's bill. A request takes effect when it arrives; its answer
leaves one round trip later, so that any number of requests are under way at once, as they are on a network. Beside
DynamoDB's operations it takes three of the benchmark's: `Bench.Delay`, `Bench.Clear` and `Bench.Bill`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import selectors
import sys
import time
import urllib.request
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.tables import Refused, Tables
from local.server import Server, running

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

LOOPBACK = "127.0.0.1"
ROOT = Path(__file__).resolve().parent.parent

_LARGEST_REQUEST = 32 * 1024 * 1024


class Endpoint:
    """What all connections share: the tables, and how late answers leave."""

    def __init__(self) -> None:
        self.tables = Tables()
        self.delay_seconds = 0.0
        self.cpu_started = time.process_time()

    def answer(self, target: str, body: bytes) -> tuple[int, bytes, float]:
        """A status, a body, and how long the answer waits."""
        family, _, operation = target.partition(".")
        request = json.loads(body or b"{}")
        if family == "Bench":
            return 200, json.dumps(self._of_the_bench(operation, request)).encode(), 0.0
        try:
            return 200, json.dumps(self.tables.execute(operation, request)).encode(), self.delay_seconds
        except Refused as error:
            kind = f"com.amazonaws.dynamodb.v20120810#{error.code}"
            told = {"__type": kind, "message": str(error), **error.beside}
            return 400, json.dumps(told).encode(), self.delay_seconds

    def _of_the_bench(self, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
        if operation == "Clear":
            self.tables = Tables()
            self.cpu_started = time.process_time()
        elif operation == "Delay":
            self.delay_seconds = float(request["Seconds"])
        bill = self.tables.bill
        cpu_seconds = time.process_time() - self.cpu_started
        return {
            "Requests": dict(bill.requests),
            "WriteUnits": bill.write_units,
            "ReadUnits": bill.read_units,
            "CpuSeconds": cpu_seconds,
        }


class Connection(asyncio.Protocol):
    """One client's connection: a request at a time, as HTTP/1.1 clients send them."""

    def __init__(self, endpoint: Endpoint, loop: asyncio.AbstractEventLoop) -> None:
        self._endpoint = endpoint
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way back."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer each request that is complete."""
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            target, length = _headers(bytes(self._received[:end]))
            if len(self._received) < end + 4 + length:
                return
            body = bytes(self._received[end + 4 : end + 4 + length])
            del self._received[: end + 4 + length]
            self._answer(target, body)
        if len(self._received) > _LARGEST_REQUEST and self._transport is not None:
            self._transport.abort()

    def _answer(self, target: str, body: bytes) -> None:
        status, answer, delay_seconds = self._endpoint.answer(target, body)
        reason = "OK" if status == 200 else "Bad Request"
        head = (
            f"HTTP/1.1 {status} {reason}\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: {len(answer)}"
        )
        whole = head.encode() + b"\r\n\r\n" + answer
        if delay_seconds > 0:
            self._loop.call_later(delay_seconds, self._send, whole)
        else:
            self._send(whole)

    def _send(self, whole: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(whole)


def _headers(head: bytes) -> tuple[str, int]:
    """What is asked for, and how long its body is."""
    target, length = "", 0
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        match name.lower():
            case b"x-amz-target":
                target = value.strip().decode()
            case b"content-length":
                length = int(value)
    return target, length


async def _serve(port: int) -> None:
    loop, endpoint = asyncio.get_running_loop(), Endpoint()
    server = await loop.create_server(lambda: Connection(endpoint, loop), LOOPBACK, port)
    async with server:
        await server.serve_forever()


def main(port: int) -> None:
    """Serve until somebody ends us."""
    # select() waits to the microsecond, where epoll() would round every delay up to the next millisecond.
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())) as runner:
        runner.run(_serve(port))


# The other side: how the benchmark starts it, and speaks to it.


@dataclass(frozen=True, slots=True)
class Bill:
    """What was asked of the endpoint since it was cleared, and the CPU that it took for that."""

    requests: dict[str, int]
    write_units: float
    read_units: float
    cpu_seconds: float


class Program:
    """How the endpoint is started, and how it says that it is ready."""

    def command(self, port: int) -> Sequence[str]:
        """Return the command line."""
        return [sys.executable, "-m", "benchmarks.endpoint", str(port)]

    def environment(self, port: int) -> Mapping[str, str]:
        """Return where it finds the expressions' meaning."""
        return {"PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1"}

    def ready(self, port: int) -> bool:
        """Say whether it answers."""
        try:
            ask(port, "Bill")
        except OSError:
            return False
        return True


class Loopback:
    """A running endpoint."""

    def __init__(self, server: Server) -> None:
        self.port = server.port
        self.url = f"http://{LOOPBACK}:{server.port}"
        self._ask = partial(ask, server.port)

    def delay(self, seconds: float) -> None:
        """Let every answer leave so much later."""
        self._ask("Delay", Seconds=seconds)

    def clear(self) -> None:
        """Forget all tables, and what was asked."""
        self._ask("Clear")

    def create_table(self, name: str, key: str) -> None:
        """Make an empty table whose only key is this string."""
        _post(self.port, "DynamoDB_20120810.CreateTable", TableName=name, KeySchema=[{"AttributeName": key}])

    def bill(self) -> Bill:
        """What was asked since."""
        told = self._ask("Bill")
        return Bill(told["Requests"], told["WriteUnits"], told["ReadUnits"], told["CpuSeconds"])


_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def ask(port: int, operation: str, **request: Any) -> dict[str, Any]:
    """Ask one of the benchmark's own operations."""
    return _post(port, f"Bench.{operation}", **request)


def _post(port: int, target: str, **request: Any) -> dict[str, Any]:
    headers = {"X-Amz-Target": target}
    asked = urllib.request.Request(f"http://{LOOPBACK}:{port}/", json.dumps(request).encode(), headers)
    with _direct.open(asked, timeout=30) as response:
        told: dict[str, Any] = json.load(response)
    return told


@contextlib.contextmanager
def running_endpoint() -> Iterator[Loopback]:
    """Start an endpoint, and end it however the block is left."""
    with running(Program(), folder=ROOT) as server:
        yield Loopback(server)


if __name__ == "__main__":
    main(int(sys.argv[1]))
