"""A worker from outside: its process, the pipe to it, and the signals that it is sent."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from idempotent_receiver.local.server import ServerError
from tests.chaos.nursery import READY, START_SECONDS

if TYPE_CHECKING:
    from tests.chaos.nursery import Nursery
    from tests.chaos.settings import Settings

END_SECONDS = 10.0


class WorkerProcess:
    """A worker that runs, and whose consumer is ready. `gone` once the pipe has broken: the process is dead."""

    def __init__(self, nursery: Nursery, settings: Settings) -> None:
        self.name = settings.worker
        self.gone = False
        self._log = Path(settings.log)
        self._logged = 0
        self._pid, self._pipe = nursery.bear(settings)
        if self.answer(time.monotonic() + START_SECONDS) != READY:
            self.close()
            raise ServerError(f"worker {self.name} did not start")

    def send(self, event: dict[str, Any]) -> None:
        self._logged = self._log.stat().st_size
        self._pipe.send(event)

    @property
    def handling(self) -> bool:
        return self._log.stat().st_size > self._logged

    def answer(self, until: float) -> Any:
        """The invocation's answer; None where there is none by then, or where the worker is `gone`."""
        try:
            return self._pipe.recv() if self._pipe.poll(max(0.0, until - time.monotonic())) else None
        except (EOFError, OSError):
            self.gone = True
            return None

    def signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, number)

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self.signal(signal.SIGKILL)
        ends = time.monotonic() + END_SECONDS
        while not self.gone and time.monotonic() < ends:
            self.answer(ends)
        self._pipe.close()
