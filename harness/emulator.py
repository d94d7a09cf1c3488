"""Lambda on this machine: runs the built function under the Runtime Interface Emulator, which Lambda's images contain.

The emulator comes with SAM. The client that fetches events for the function comes from PyPI, as in Lambda's own Python.
The emulator handles timeouts and crashes, so they end as on Lambda.
"""

from __future__ import annotations

import contextlib
import json
import platform
import socket
import sys
import threading
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.cloud import ROOT, direct
from idempotent_receiver.local.server import Server, ServerError, free_port, running

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

SAM = ROOT / ".tools" / "sam"
RUNTIME = ROOT / ".tools" / "runtime"
MACHINES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "arm64", "arm64": "arm64"}

GRACE_SECONDS = 15.0
"""How much longer than the function's timeout we wait: for its start, and for the emulator to notice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeInterfaceEmulator:
    """How to start the emulator: it answers on our port, and starts the function at the first event."""

    name: str
    code: Path
    handler: str
    variables: Mapping[str, str]
    timeout_seconds: int

    def command(self, port: int) -> Sequence[str]:
        return [
            str(_binary()),
            *("--runtime-interface-emulator-address", f"127.0.0.1:{port}"),
            *("--runtime-api-address", f"127.0.0.1:{free_port()}"),
            *(str(RUNTIME / "bin" / "python"), "-m", "awslambdaric", self.handler),
        ]

    def environment(self, port: int) -> Mapping[str, str]:
        """Return the variables that Lambda would set, plus this function's configuration."""
        return {
            "AWS_LAMBDA_FUNCTION_NAME": self.name,
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "512",
            "AWS_LAMBDA_FUNCTION_TIMEOUT": str(self.timeout_seconds),
            "LAMBDA_TASK_ROOT": str(self.code),
            "PYTHONDONTWRITEBYTECODE": "1",
            **self.variables,
        }

    def ready(self, port: int) -> bool:
        """Say whether something listens; the emulator gives no other sign, and an event would run."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
        return False


class Function:
    def __init__(self, server: Server, timeout_seconds: int) -> None:
        self._url = f"http://127.0.0.1:{server.port}/2015-03-31/functions/function/invocations"
        self._patience_seconds = timeout_seconds + GRACE_SECONDS
        self._server = server
        self._one_at_a_time = threading.Lock()  # the emulator crashes on two

    def invoke(self, event: object) -> Any:
        """Return the function's parsed answer; an exception, timeout or crash also counts, with an `errorType`."""
        request = urllib.request.Request(self._url, data=json.dumps(event).encode(), method="POST")
        with self._one_at_a_time:
            try:
                with direct.open(request, timeout=self._patience_seconds) as response:
                    body = response.read()
            except urllib.error.HTTPError as error:
                with error:
                    body = error.read()
        return _parsed(body)

    def log(self) -> str:
        return self._server.log()


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except json.JSONDecodeError:
        # Lambda gives a timeout this type; the emulator returns only a sentence.
        return {"errorType": "Sandbox.Timedout", "errorMessage": body.decode(errors="replace")}


@contextlib.contextmanager
def running_function(
    name: str = "Consumer",
    *,
    code: Path,
    handler: str = "app.consumer.lambda_handler",
    environment: Mapping[str, str],
    timeout_seconds: int = 30,
) -> Iterator[Function]:
    """Run the function built in this folder, with this environment, for any number of events."""
    if not (code / "app").is_dir():
        raise ServerError(f"no built function at {code}: run `make build`")
    program = RuntimeInterfaceEmulator(
        name=name, code=code, handler=handler, variables=environment, timeout_seconds=timeout_seconds
    )
    with running(program, folder=code) as server:
        yield Function(server, timeout_seconds)


def _binary() -> Path:
    machine = MACHINES.get(platform.machine().lower())
    if sys.platform != "linux" or machine is None:
        raise ServerError("Lambda's emulator runs only on Linux; elsewhere a container engine is needed")
    return next(SAM.glob(f"lib/python3*/site-packages/samcli/local/rapid/aws-lambda-rie-{machine}"))
