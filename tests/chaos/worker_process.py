"""A worker from outside: its process, the one connection to it, and the signals that it is sent."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from local.cloud import LOOPBACK, ROOT
from local.server import running
from tests.chaos.worker import Program

if TYPE_CHECKING:
    from tests.chaos.settings import Settings

HELLO_SECONDS = 5.0


class WorkerProcess:
    """A worker that runs, and whose consumer is ready. `gone` once the connection has broken: the process is dead."""

    def __init__(self, settings: Settings) -> None:
        self.name = settings.worker
        self._log = Path(settings.log)
        self._logged = 0
        self._cleanup = contextlib.ExitStack()
        try:
            server = self._cleanup.enter_context(running(Program(settings), folder=ROOT))
            self._socket = socket.create_connection((LOOPBACK, server.port))
            self._cleanup.callback(self._socket.close)
            self._received = b""
            self.gone = False
            self.pid = int(self._line(time.monotonic() + HELLO_SECONDS) or 0)
        except BaseException:
            self._cleanup.close()
            raise

    def send(self, event: dict[str, Any]) -> None:
        """Begin an invocation."""
        self._logged = self._log.stat().st_size
        self._socket.sendall(json.dumps(event).encode() + b"\n")

    @property
    def handling(self) -> bool:
        """Whether a handler has started in this invocation."""
        return self._log.stat().st_size > self._logged

    def answer(self, until: float) -> Any:
        """The invocation's answer; None where there is none by then, or where the worker is `gone`."""
        line = self._line(until)
        return None if line is None else json.loads(line)

    def signal(self, number: signal.Signals) -> None:
        """Send the process a signal."""
        if not self.gone:  # its id may be another's by then
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def close(self) -> None:
        """End the process, whatever it is at, and clear up after it."""
        self.signal(signal.SIGKILL)
        self._cleanup.close()

    def _line(self, until: float) -> bytes | None:
        try:
            while b"\n" not in self._received:
                left = until - time.monotonic()
                if left <= 0:
                    return None
                self._socket.settimeout(left)
                received = self._socket.recv(65536)
                if not received:
                    raise ConnectionResetError
                self._received += received
        except TimeoutError:
            return None
        except ConnectionError:
            self.gone = True
            return None
        line, self._received = self._received.split(b"\n", 1)
        return line
