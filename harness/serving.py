"""HTTP servers of this process, on loopback: the fake service, and the proxy of chaos."""

from __future__ import annotations

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class Respond(Protocol):
    """Answers one request; called in the thread of its connection."""

    def __call__(self, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes] | None:
        """Return status and body; None breaks the connection."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a held request must not delay the end
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore broken connections: workers are killed here."""


@contextlib.contextmanager
def serving(respond: Respond) -> Iterator[int]:
    """Serve on a free port of 127.0.0.1, which it yields, for the block."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1  # head and body are sent together

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            body = self.rfile.read(length)
            # A client that sent half a request is dead.
            answer = respond(self.path, self.headers, body) if len(body) == length else None  # type: ignore[arg-type]
            if answer is None:
                self.close_connection = True
                return
            # Without DynamoDB's checksum, because the body it covers may have been changed.
            self.send_response_only(answer[0])
            self.send_header("Content-Type", "application/x-amz-json-1.0")
            self.send_header("Content-Length", str(len(answer[1])))
            self.end_headers()
            self.wfile.write(answer[1])

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: the run's own log is the one that counts."""

    with _Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
