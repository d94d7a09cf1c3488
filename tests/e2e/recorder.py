"""A proxy to the cloud that records who asked for what, and loses answers when told to.

A small HTTP server on loopback, which hands every request on as it is and keeps what it says. The function is sent this
way by its `AWS_ENDPOINT_URL` alone; neither its code nor the template knows.
"""

from __future__ import annotations

import http.client
import json
import re
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from tests.e2e.deployed import Aws

UPSTREAM_SECONDS = 60
NOT_HANDED_ON = {"connection", "content-length", "transfer-encoding"}  # they belong to one connection, not to an answer


@dataclass(frozen=True)
class Call:
    """One request to AWS."""

    service: str
    operation: str
    region: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Request:
    """A request as it came."""

    method: str
    path: str
    headers: http.client.HTTPMessage
    body: bytes


@dataclass(frozen=True)
class Reply:
    """What a request is answered with."""

    status: int
    headers: tuple[tuple[str, str], ...]
    content: bytes


Treatment = Callable[[Request, Callable[[], Reply]], Reply]
"""What is done with a request: handed on, refused, or answered otherwise than the cloud did."""


class Recorder:
    """The server, which appends to `calls`; `with Recorder(endpoint_url, calls) as recorder:`."""

    def __init__(
        self, endpoint_url: str, calls: list[Call], treat: Treatment = lambda request, handed_on: handed_on()
    ) -> None:
        self._lost: Counter[str] = Counter()
        handler = _handler(urlsplit(endpoint_url).netloc, calls, self._lost, treat)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False  # a function that is still warm keeps its connection open

    @property
    def endpoint_url(self) -> str:
        """The endpoint for clients."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def lose(self, operation: str, times: int) -> None:
        """Answer this many further requests for this only with an error."""
        self._lost[operation] = times

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def call_of(method: str, path: str, headers: http.client.HTTPMessage, body: bytes) -> Call:
    """What a request asks for. One that is not in AWS's JSON protocol keeps its method and path as its name."""
    scope = re.search(r"Credential=[^/]+/\d+/(?P<region>[^/]+)/(?P<service>[^/]+)/", headers.get("Authorization", ""))
    service, region = (scope["service"], scope["region"]) if scope else ("unsigned", "unknown")
    _, _, operation = headers.get("X-Amz-Target", "").rpartition(".")
    arguments = json.loads(body) if operation else {}
    return Call(service, operation or f"{method} {path}", region, arguments)


def _handler(upstream: str, calls: list[Call], lost: Counter[str], treat: Treatment) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            # Before it is sent: what was asked for counts, whatever comes of it.
            call = call_of(self.command, self.path, self.headers, body)
            calls.append(call)
            reply = treat(Request(self.command, self.path, self.headers, body), lambda: self.handed_on(body))
            status, content = reply.status, reply.content
            if lost[call.operation] > 0:
                lost[call.operation] -= 1
                status, content = HTTPStatus.INTERNAL_SERVER_ERROR, b"{}"
            self.send_response_only(status)
            told = NOT_HANDED_ON - ({"content-length"} if self.command == "HEAD" else set())
            for name, value in reply.headers:
                if name.lower() not in told:
                    self.send_header(name, value)
            if self.command != "HEAD":
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_PUT = do_DELETE = do_HEAD = do_POST  # noqa: N815  # the names that its base looks for

        def handed_on(self, body: bytes) -> Reply:
            headers = {name: value for name, value in self.headers.items() if name.lower() != "expect"}
            # A connection each: the cloud closes those that are idle.
            with closing(http.client.HTTPConnection(upstream, timeout=UPSTREAM_SECONDS)) as connection:
                connection.request(self.command, self.path, body, headers)
                answer = connection.getresponse()
                return Reply(answer.status, tuple(answer.getheaders()), answer.read())

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing: what is kept is the calls."""

    return Handler


def send_by(recorder: Recorder, aws: Aws, function: str) -> None:
    """Send the function's requests through the recorder: one more environment variable, and nothing else changed."""
    client = aws.client("lambda")
    variables = client.get_function_configuration(FunctionName=function)["Environment"]["Variables"]
    client.update_function_configuration(
        FunctionName=function, Environment={"Variables": {**variables, "AWS_ENDPOINT_URL": recorder.endpoint_url}}
    )
    client.get_waiter("function_updated_v2").wait(FunctionName=function)
