"""Coroutines whose module keeps clients for the process, in `receiver work` on the local cloud."""

from __future__ import annotations

import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from tests.e2e.test_work import Place

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.deployed import Aws


class Slow(BaseHTTPRequestHandler):
    """Answers after as many milliseconds as its path says, and keeps the connection."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        time.sleep(int(self.path[1:]) / 1000)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def place(aws: Aws, tmp_path: Path) -> Iterator[Place]:
    place = Place(aws, tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), Slow) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        place.more["SERVER"] = f"http://127.0.0.1:{server.server_port}"
        yield place
        server.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize("concurrency", [1, 10])
def test_clients_that_a_module_keeps_work_for_every_message(place: Place, concurrency: int) -> None:
    """Long handlers among short ones: aiohttp's session, httpx's client and a semaphore all belong to one loop."""
    for number in range(60):
        client = ("aiohttp", "httpx", "semaphore")[number % 3]
        milliseconds = 1500 if number % 15 == 7 else 20
        place.send(f"{client}-{number}", client=client, milliseconds=milliseconds)

    with place.worker("--concurrency", str(concurrency), handler="worker_clients:handle"):
        place.wait_for(lambda: place.messages(place.url) == {"0"} and place.runs)

    started = Counter(run.name for run in place.runs if run.what == "start")
    assert {name: count for name, count in started.items() if count > 1} == {}
    place.once()
