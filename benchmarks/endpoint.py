"""The benchmark's endpoint for its users: how to start it, and its operations besides DynamoDB's and SQS's.

Imports nothing from the library, so that a worker that measures another checkout can use the endpoint too.
"""

from __future__ import annotations

import contextlib
import json
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from idempotent_receiver.local.server import Server

LOOPBACK = "127.0.0.1"
ROOT = Path(__file__).resolve().parent.parent

_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Program:
    """How to start the endpoint, and how to tell that it is ready."""

    def command(self, port: int) -> Sequence[str]:
        """Return the command line."""
        return [sys.executable, "-m", "benchmarks.server", str(port)]

    def environment(self, port: int) -> Mapping[str, str]:
        """Return where the endpoint finds the library's evaluator of expressions."""
        return {"PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1"}

    def ready(self, port: int) -> bool:
        """Say whether the endpoint answers."""
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

    def delay(self, seconds: float) -> None:
        """Delay every response by this time."""
        ask(self.port, "Delay", Seconds=seconds)

    def clear(self) -> None:
        """Drop all tables and queues, and start a new bill."""
        ask(self.port, "Clear")

    def create_queue(self, name: str) -> str:
        """Create an empty queue, and return its URL."""
        url: str = _post(self.port, "AmazonSQS.CreateQueue", QueueName=name)["QueueUrl"]
        return url

    def create_table(self, name: str, key: str) -> None:
        """Create an empty table whose only key is this string attribute."""
        _post(self.port, "DynamoDB_20120810.CreateTable", TableName=name, KeySchema=[{"AttributeName": key}])


def ask(port: int, operation: str, **request: Any) -> dict[str, Any]:
    """Call one of the benchmark's own operations, which server.py names."""
    return _post(port, f"Bench.{operation}", **request)


def _post(port: int, target: str, **request: Any) -> dict[str, Any]:
    headers = {"X-Amz-Target": target}
    call = urllib.request.Request(f"http://{LOOPBACK}:{port}/", json.dumps(request).encode(), headers)
    with _direct.open(call, timeout=30) as response:
        answer: dict[str, Any] = json.load(response)
    return answer


@contextlib.contextmanager
def running_endpoint() -> Iterator[Loopback]:
    """Start an endpoint, and stop it when the block ends."""
    from idempotent_receiver.local.server import running  # noqa: PLC0415  # another checkout may have none

    with running(Program(), folder=ROOT) as server:
        yield Loopback(server)
