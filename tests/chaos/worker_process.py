"""A worker from outside: its process, the pipe to it, and the signals that it is sent."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from idempotent_receiver.local.server import ServerError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from tests.chaos.settings import Settings

START_SECONDS = 120.0
READY = "ready"
SPAWN = multiprocessing.get_context("spawn")
PR_SET_PDEATHSIG = 1


class WorkerProcess:
    """A worker that runs, and whose consumer is ready. `gone` once the pipe has broken: the process is dead."""

    def __init__(self, settings: Settings) -> None:
        self.name = settings.worker
        self.gone = False
        self._log = Path(settings.log)
        self._logged = 0
        self._pipe, theirs = SPAWN.Pipe()
        self._process = SPAWN.Process(target=_serve, args=(theirs, settings), daemon=True)
        self._process.start()
        theirs.close()
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
        if not self.gone and self._process.pid is not None:  # its id may be another's by then
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self._process.kill()
        self._process.join()
        self._pipe.close()


def _serve(pipe: Connection, settings: Settings) -> None:
    """Run a worker, one invocation after the other, until nobody is there any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C at the terminal is for the run, which ends its workers
    if sys.platform == "linux":  # even a frozen worker must not outlive a run that is killed
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    from tests.chaos.worker import Worker  # noqa: PLC0415  # its imports take time in which nothing above would hold

    worker = Worker(settings)
    with contextlib.suppress(EOFError, OSError):
        pipe.send(READY)
        while True:
            pipe.send(worker.answer(pipe.recv()))
