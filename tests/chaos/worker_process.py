"""A worker from outside, and what starts it: a process that has all imports, and forks one in milliseconds.

A worker started afresh takes a second of CPU for its imports, and chaos kills hundreds. As with Lambda's SnapStart,
those that are forked share the state of Python's generator of random numbers.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import time
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from idempotent_receiver.local.server import ServerError

if TYPE_CHECKING:
    from typing import NoReturn

    from tests.chaos.settings import Settings

START_SECONDS = 120.0
END_SECONDS = 10.0
READY = "ready"
SPAWN = multiprocessing.get_context("spawn")
PR_SET_PDEATHSIG = 1


class Nursery:
    """The process; threads may share it. Its workers do not outlive it."""

    def __init__(self) -> None:
        self._pipe, theirs = SPAWN.Pipe()
        self._process = SPAWN.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        self._asking = threading.Lock()
        if not self._pipe.poll(START_SECONDS) or self._pipe.recv() != READY:
            self.close()
            raise ServerError("the process that workers are forked from did not start")

    def bear(self, settings: Settings) -> tuple[int, Connection]:
        """Start a worker: its process id, and the pipe to it."""
        ours, theirs = SPAWN.Pipe()
        with self._asking, theirs:
            self._pipe.send(settings)
            send_handle(self._pipe, theirs.fileno(), self._process.pid)
            return self._pipe.recv(), ours

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.join()
        self._pipe.close()


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


def _serve(pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C at the terminal is for the run, which ends its workers
    _die_with_ones_parent()
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    from tests.chaos.worker import Worker  # noqa: F401, PLC0415  # so that each worker finds it imported

    with contextlib.suppress(EOFError, OSError):
        pipe.send(READY)
        while True:
            settings, handle = pipe.recv(), recv_handle(pipe)
            # Nobody waits for it, so its id is not reused after its death, and a late signal hits no other process.
            pid = os.fork()
            if pid == 0:
                pipe.close()
                _work(Connection(handle), settings)
            os.close(handle)
            pipe.send(pid)


def _work(pipe: Connection, settings: Settings) -> NoReturn:
    """Run a worker, one invocation after the other, until its caller is gone."""
    try:
        _die_with_ones_parent()
        from tests.chaos.worker import Worker  # noqa: PLC0415

        worker = Worker(settings)
        pipe.send(READY)
        while True:
            pipe.send(worker.answer(pipe.recv()))
    finally:
        os._exit(0)


def _die_with_ones_parent() -> None:
    """Even a frozen worker must not outlive a run that is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
