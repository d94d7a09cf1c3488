"""An endpoint on loopback for DynamoDB and SQS with a configurable round trip: `python -m benchmarks.server PORT`.

It runs in its own process, so that its CPU time is not counted for a subject. A request takes effect on arrival; its
response leaves one round trip later, including the processing time. Any number of requests may be in flight
at once, as on a network. A receive that waits for messages is answered a round trip after there are some. Besides the
services' operations it takes some of the benchmark's own: `Bench.Delay`, `Bench.Clear`, `Bench.Bill`, and, of a queue,
`Bench.Put` and `Bench.Drained`.
"""

from __future__ import annotations

import asyncio
import json
import math
import selectors
import sys
import time
from typing import TYPE_CHECKING, Any

from benchmarks.endpoint import LOOPBACK
from benchmarks.queues import Queues
from harness.dynamodb.tables import Tables
from harness.dynamodb.writes import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

_LARGEST_REQUEST = 32 * 1024 * 1024

LOOK_SECONDS = 0.002
"""How often a waiting receive looks for messages."""

_TYPES = {"DynamoDB_20120810": "com.amazonaws.dynamodb.v20120810", "AmazonSQS": "com.amazonaws.sqs"}
"""The services, and the prefixes of their error types."""


class Endpoint:
    """Shared by all connections: the tables, the queues, and the delay of responses."""

    def __init__(self, origin: str = "") -> None:
        self._origin = origin
        self._new()
        self.delay_seconds = 0.0
        self.waiting: set[Connection] = set()
        """The service whose receives wait for messages."""

    def _new(self) -> None:
        self.tables = Tables()
        self.queues = Queues(self.tables.bill, self._origin)

    def answer(self, target: str, body: bytes, waited: float = math.inf) -> tuple[int, bytes, float] | None:
        """Return a status, a body, and the seconds to wait before sending them; None if it is a receive that has waited
        for messages for so many seconds, and waits on.
        """
        family, _, operation = target.partition(".")
        request = json.loads(body or b"{}")
        if family == "Bench":
            return 200, json.dumps(self._bench(operation, request)).encode(), 0.0
        try:
            answer = self._execute(family, operation, request, waited)
        except Refused as error:
            response = {"__type": f"{_TYPES[family]}#{error.code}", "message": str(error), **error.beside}
            return 400, json.dumps(response).encode(), self.delay_seconds
        return None if answer is None else (200, json.dumps(answer).encode(), self.delay_seconds)

    def _execute(self, family: str, operation: str, request: Mapping[str, Any], waited: float) -> dict[str, Any] | None:
        if family == "AmazonSQS":
            return self.queues.execute(operation, request, time.time(), waited)
        return self.tables.execute(operation, request)

    def _bench(self, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
        if operation == "Put":
            self.queues.put(request["QueueName"], request["Bodies"], time.time())
        if operation in {"Put", "Drained"}:
            return {**self.queues.drained(request["QueueName"]), "waiting": len(self.waiting)}
        if operation == "Clear":
            self._new()
        elif operation == "Delay":
            self.delay_seconds = float(request["Seconds"])
        bill = self.tables.bill
        return {"requests": bill.requests.total(), "write_units": bill.write_units, "read_units": bill.read_units}


class Connection(asyncio.Protocol):
    """One client's connection, with one request at a time, as HTTP/1.1 clients send them."""

    def __init__(self, endpoint: Endpoint, loop: asyncio.AbstractEventLoop) -> None:
        self._endpoint = endpoint
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport for responses."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer every request that is complete."""
        arrived = self._loop.time()
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            target, length = _headers(bytes(self._received[:end]))
            if len(self._received) < end + 4 + length:
                return
            body = bytes(self._received[end + 4 : end + 4 + length])
            del self._received[: end + 4 + length]
            self._answer(target, body, arrived, arrived)
        if len(self._received) > _LARGEST_REQUEST and self._transport is not None:
            self._transport.abort()

    def _answer(self, target: str, body: bytes, arrived: float, now: float) -> None:
        answered = self._endpoint.answer(target, body, now - arrived)
        if answered is None:
            self._endpoint.waiting.add(self)
            self._loop.call_later(LOOK_SECONDS, self._look_again, target, body, arrived)
            return
        status, answer, delay_seconds = answered
        reason = "OK" if status == 200 else "Bad Request"
        head = (
            f"HTTP/1.1 {status} {reason}\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: {len(answer)}"
        )
        response = head.encode() + b"\r\n\r\n" + answer
        if delay_seconds > 0:
            self._loop.call_at(now + delay_seconds, self._send, response)
        else:
            self._send(response)

    def _look_again(self, target: str, body: bytes, arrived: float) -> None:
        self._endpoint.waiting.discard(self)
        if self._transport is not None and not self._transport.is_closing():
            self._answer(target, body, arrived, self._loop.time())

    def _send(self, response: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(response)


def _headers(head: bytes) -> tuple[str, int]:
    """The operation, and the length of the body."""
    fields = (line.partition(b":") for line in head.split(b"\r\n")[1:])
    values = {name.lower(): value.strip() for name, _, value in fields}
    return values.get(b"x-amz-target", b"").decode(), int(values.get(b"content-length", 0))


async def _serve(port: int) -> None:
    loop, endpoint = asyncio.get_running_loop(), Endpoint(f"http://{LOOPBACK}:{port}")
    server = await loop.create_server(lambda: Connection(endpoint, loop), LOOPBACK, port)
    async with server:
        await server.serve_forever()


def main(port: int) -> None:
    """Serve until the process is ended."""
    # select() waits with microsecond precision; epoll() would round every delay up to the next millisecond.
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())) as runner:
        runner.run(_serve(port))


if __name__ == "__main__":
    main(int(sys.argv[1]))
