"""A local cloud made as slow as AWS, in front of the fast one; and a machine's metadata service that has its role.

`SlowCloud` takes its time to change an event source mapping and refuses changes meanwhile, ends credentials when it is
told to, and says for its callers that they came by TLS, which the policies of queues and buckets ask for.
"""

from __future__ import annotations

import json
import re
import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

from tests.e2e.recorder import Recorder, Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.e2e.recorder import Call, Request

MAPPINGS = re.compile(r"/2015-03-31/event-source-mappings/(?P<id>[^/?]*)")
EXPIRED = "The security token included in the request is expired"
IN_USE = (
    ("Content-Type", "application/json"),
    ("x-amzn-errortype", "ResourceInUseException"),
)


class SlowCloud:
    """The way into a cloud; `with SlowCloud(endpoint_url) as slow:`. `mapping_seconds`: how long a change takes."""

    def __init__(self, endpoint_url: str, *, mapping_seconds: float = 0.0) -> None:
        self.calls: list[Call] = []
        self.refused = 0
        """How many changes of a mapping were refused."""
        self._mapping_seconds = mapping_seconds
        self._changing: dict[str, tuple[float, str]] = {}
        self._expired: set[str] = set()
        self._recorder = Recorder(endpoint_url, self.calls, self._treat)

    @property
    def endpoint_url(self) -> str:
        return self._recorder.endpoint_url

    @property
    def recorder(self) -> Recorder:
        return self._recorder

    def expire(self, access_key: str) -> None:
        """Accept these credentials no longer."""
        self._expired.add(access_key)

    def __enter__(self) -> Self:
        self._recorder.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._recorder.__exit__(*exc)

    def _treat(self, request: Request, handed_on: Callable[[], Reply]) -> Reply:
        request.headers["X-Forwarded-Proto"] = "https"
        key = re.search(r"Credential=([^/]+)/", request.headers.get("Authorization", ""))
        if key and key[1] in self._expired:
            return _refusal(request)
        mapping = MAPPINGS.match(request.path)
        return handed_on() if mapping is None else self._of_a_mapping(mapping["id"], request, handed_on)

    def _of_a_mapping(self, id: str, request: Request, handed_on: Callable[[], Reply]) -> Reply:
        """Mappings take a while to change, and refuse other changes until then."""
        if request.method == "PUT" and self._state(id) is not None:
            self.refused += 1
            return Reply(HTTPStatus.BAD_REQUEST, IN_USE, json.dumps({"Message": "it is being changed"}).encode())
        reply = handed_on()
        found = json.loads(reply.content)
        if request.method == "PUT" and (enabled := json.loads(request.body).get("Enabled")) is not None:
            changing = "Enabling" if enabled else "Disabling"
            self._changing[id] = (time.monotonic() + self._mapping_seconds, changing)
        for each in found.get("EventSourceMappings", [found]):
            each["State"] = self._state(each["UUID"]) or each["State"]
        return Reply(reply.status, reply.headers, json.dumps(found).encode())

    def _state(self, id: str) -> str | None:
        """Where a mapping is on its way to."""
        ends, state = self._changing.get(id, (0.0, ""))
        return state if time.monotonic() < ends else None


def _refusal(request: Request) -> Reply:
    """ExpiredToken, in the protocol of the request."""
    if "X-Amz-Target" in request.headers or request.path.startswith("/2015-03-31/"):
        code = (("x-amzn-errortype", "ExpiredTokenException"),)
        body = json.dumps({"__type": "ExpiredTokenException", "message": EXPIRED})
        return Reply(HTTPStatus.FORBIDDEN, code, body.encode())
    error = f"<Error><Code>ExpiredToken</Code><Message>{EXPIRED}</Message></Error>"
    return Reply(HTTPStatus.FORBIDDEN, (), f"<ErrorResponse>{error}</ErrorResponse>".encode())


@contextmanager
def metadata_service(access_key: str, *, minutes: float = 60.0) -> Iterator[tuple[str, list[str]]]:
    """An instance's metadata service, whose role's credentials last so long. Its URL, and what it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self._answer("a-token")

        def do_GET(self) -> None:
            asked.append(self.path)
            at_role = self.path.endswith("/proof")
            self._answer(json.dumps(credentials()) if at_role else "proof")

        def _answer(self, text: str) -> None:
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    def credentials() -> dict[str, Any]:
        ends = datetime.now(UTC) + timedelta(minutes=minutes)
        return {
            "Code": "Success",
            "AccessKeyId": access_key,
            "SecretAccessKey": "test",
            "Token": "a-session",
            "Expiration": f"{ends:%Y-%m-%dT%H:%M:%SZ}",
        }

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
