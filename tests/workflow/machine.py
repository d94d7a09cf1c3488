"""The shipped definition on moto's engine for state machines, with the shipped steps behind it.

moto runs the definition: Retry, Catch, choices, intrinsic functions, time-outs and the direct write to DynamoDB are the
engine's. It would run functions in Docker. Here they run in this process, behind a loopback server that speaks as much
of Lambda's protocol as Step Functions does, and names errors as Lambda does: by the exception's class.
"""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

from harness.cloud import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

DEFINITION = ROOT / "src" / "app" / "transfer.asl.json"
ROLE = "arn:aws:iam::123456789012:role/machine"
FUNCTION_SECONDS = 10


class Killed(BaseException):
    """The process of a function is gone: nothing after this ran."""


def definition(**substitutions: str) -> dict[str, Any]:
    """The shipped definition, with its placeholders filled in as CloudFormation does."""
    text = DEFINITION.read_text()
    for name, value in substitutions.items():
        text = text.replace(f"${{{name}}}", value)
    found: dict[str, Any] = json.loads(text)
    return found


@dataclass
class Functions:
    """Lambda, as far as a state machine sees it. `calls` are the names of the functions that were invoked, in order."""

    handlers: Mapping[str, Callable[[Any, Any], Any]]
    calls: list[str] = field(default_factory=list)

    def invoke(self, name: str, event: Any) -> tuple[Any, bool]:
        """A function's answer, and whether it is an error."""
        self.calls.append(name)
        context = SimpleNamespace(
            get_remaining_time_in_millis=lambda: FUNCTION_SECONDS * 1000, aws_request_id="1", function_name=name
        )
        try:
            return self.handlers[name](event, context), False
        except Killed:
            # What Lambda says of a process that ended by itself.
            return {"errorType": "Runtime.ExitError", "errorMessage": "RequestId: 1 Error: signal: killed"}, True
        except Exception as error:  # noqa: BLE001  # whatever it is, Lambda tells it by its name
            told = {"errorType": type(error).__name__, "errorMessage": str(error), "requestId": "1", "stackTrace": []}
            return told, True


@contextmanager
def serving(functions: Functions) -> Iterator[str]:
    """Lambda's endpoint, for the length of the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer, failed = functions.invoke(self.path.split("/")[3], event)
            body = json.dumps(answer).encode()
            self.send_response(200)
            if failed:
                self.send_header("X-Amz-Function-Error", "Unhandled")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads, server.block_on_close = True, False
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@dataclass(frozen=True)
class Execution:
    """How an execution ended."""

    status: str
    error: str | None
    output: Any
    states: list[str]

    @classmethod
    def of(cls, client: Any, arn: str) -> Self:
        """What the engine says of an execution."""
        said = client.describe_execution(executionArn=arn)
        events = client.get_execution_history(executionArn=arn, maxResults=1000)["events"]
        entered = [event["stateEnteredEventDetails"]["name"] for event in events if "stateEnteredEventDetails" in event]
        output = json.loads(said["output"]) if said.get("output") else None
        return cls(said["status"], said.get("error"), output, entered)
