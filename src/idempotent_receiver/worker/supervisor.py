"""The supervisor: starts worker processes, replaces those that die, and kills those that should be dead.

It calls no AWS service and runs no user code, so neither can hang it. Each process reports the messages it receives
over a pipe; when one dies, its replacement returns those messages to the queue.
"""

import json
import logging
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from idempotent_receiver.clock import SystemClock, since_boot_seconds
from idempotent_receiver.worker.scale_in import ScaleInProtection
from idempotent_receiver.worker.suspects import SUSPECTED_LEASES, Suspects

logger = logging.getLogger("idempotent_receiver.worker")

SUPERVISOR_LOOK_SECONDS = 0.2
DRAIN_SECONDS = 25
"""How long handlers may keep running after SIGTERM, by default."""
WRONG_USAGE = 2
"""The exit status of a process that could never start, even if restarted."""
SHORT_LIFE_SECONDS = 10.0
LONGEST_RESTART_PAUSE_SECONDS = 30.0
FULL_PIPE_BYTES = 60_000
"""If a pipe held this much, it may have been full, and reports may be lost."""
MOST_ORPHANS = 40
"""The most messages of dead processes that a new process returns: they are part of its command line."""
MOST_SUSPECTS = 200
"""The most suspects passed to a new process: they are part of its command line, too."""


@dataclass(slots=True, eq=False)
class Child:
    """A worker process and the messages that it has reported, by receipt handle.

    `given` lists the orphans that it has yet to return; `restarts` is the number of dead processes that it has yet to
    count; `signals` counts the signals sent to it. `silent` is set once its pipe is closed. `suspect` is called with a
    message id and the seconds for which to suspect it.
    """

    process: "subprocess.Popen[bytes]"
    pipe: int
    began_seconds: float
    suspect: Callable[[str, float], None]
    given: list[dict[str, Any]] = field(default_factory=list)
    restarts: int = 0
    text: bytes = b""
    received: dict[str, tuple[str, int]] = field(default_factory=dict)
    records: dict[str, str] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)
    dead_by_seconds: float | None = None
    owner: str | None = None
    works: bool = False
    silent: bool = False
    signals: int = 0

    def read(self) -> None:
        """Read and apply its reports."""
        before = len(self.text)
        with suppress(BlockingIOError):
            while chunk := os.read(self.pipe, 65536):
                self.text += chunk
            self.silent = True
        full = len(self.text) - before >= FULL_PIPE_BYTES
        *lines, self.text = self.text.split(b"\n")
        for line in lines:
            self._take_in(*json.loads(line))
        if full:
            self.dead_by_seconds = None  # its last reports may be lost; its own timer still ends it

    def status(self) -> int | None:
        """The exit status once the process and everything it started are dead; None while it runs."""
        # Reap the process only after killing its group: reaping frees the process id, which is also the group's id.
        if os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return None
        self.kill()
        return self.process.wait()

    def drain(self) -> None:
        """Tell the process to drain. `Popen.terminate` would reap a dead process before its group is killed."""
        os.kill(self.process.pid, signal.SIGTERM)

    def kill(self) -> None:
        """Kill its process group: programs that its handlers started must not keep running during the next attempt."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Close its pipes."""
        os.close(self.pipe)
        if self.process.stdin is not None:
            self.process.stdin.close()

    def overdue(self) -> bool:
        """Whether it should be dead, according to its latest report."""
        now = since_boot_seconds()  # before reading: if we are suspended in between, it may have reported more since
        self.read()
        return self.dead_by_seconds is not None and now >= self.dead_by_seconds

    def say(self, text: str) -> None:
        """Write to its standard input; drops the text if the process is not reading."""
        if self.process.stdin is not None:
            with suppress(OSError):
                os.write(self.process.stdin.fileno(), text.encode())

    def _take_in(self, what: str, *rest: Any) -> None:
        match what, *rest:
            case "begins", owner:
                self.owner = owner
            case "works", *_:
                self.works, self.given, self.restarts = True, [], 0
            case "received", id, handle, receives:
                self.received[handle] = id, receives
            case "claims", handle, record_id:
                self.records[handle] = record_id
            case "started", handle:
                self.running.add(handle)
            case "suspect", id, seconds:
                self.suspect(id, seconds)
            case "ended", handle:
                if handle in self.running and handle in self.received:
                    self.suspect(self.received[handle][0], 0)
                self.received.pop(handle, None)
                self.records.pop(handle, None)
                self.running.discard(handle)
            case "dead by", seconds:
                self.dead_by_seconds = seconds

    def orphans(self) -> list[dict[str, Any]]:
        """The messages that a dead process left behind."""
        return self.given + [
            {
                "id": id,
                "handle": handle,
                "receives": receives,
                "record": self.records.get(handle),
                "started": handle in self.running,
                "owner": self.owner,
            }
            for handle, (id, receives) in self.received.items()
        ]


class Supervisor:
    """Keeps `processes` worker processes running until SIGTERM."""

    def __init__(self, task: dict[str, Any], *, processes: int, drain_seconds: float, health: Path | None) -> None:
        self._task = task
        self._processes = processes
        self._drain_seconds = drain_seconds
        self._health = health
        self._clock = SystemClock()
        self._children: list[Child] = []
        self._pipes = selectors.DefaultSelector()
        self._orphans: list[dict[str, Any]] = []
        self._suspects = Suspects(self._clock)
        self._restarts = 0
        self._not_before_seconds = 0.0
        self._short_lives = 0
        self._worked = False
        self._last_worked = False
        self._signals = 0
        self._kill_at_seconds: float | None = None

    def run(self) -> int:
        """Run until signalled to stop; returns the exit status."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._signalled)
        protection = ScaleInProtection.started(os.environ)
        while True:
            if self._signals == 0 and self._clock.monotonic_seconds() >= self._not_before_seconds:
                self._start_missing()
            self._look(SUPERVISOR_LOOK_SECONDS)
            for child in tuple(self._children):
                status = child.status()
                if status is not None and self._ended(child, status):
                    return self._stop_all()
                if status is None:
                    self._end_if_overdue(child)
                    self._pass_on(child)
            if self._signals and self._drained():
                return 0
            if self._health is not None and self._healthy():
                with suppress(OSError):  # the health check will find the file too old
                    self._health.touch()
            if protection is not None:
                protection.running = frozenset().union(*(child.running for child in self._children))

    def _look(self, seconds: float) -> None:
        """Wait up to `seconds` for reports, and apply them."""
        for key, _ in self._pipes.select(seconds):
            key.data.read()
            if key.data.silent:
                self._pipes.unregister(key.fd)  # a closed pipe would always be ready

    def _start_missing(self) -> None:
        try:
            while len(self._children) < self._processes:
                self._start()
            self._orphans = []  # leases of orphans beyond the limit expire on their own
        except OSError as error:
            logger.error("a worker process could not be started: %s", error)  # noqa: TRY400  # the text is enough
            self._pause(0.0)

    def _start(self) -> None:
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        orphans = self._orphans[-MOST_ORPHANS:]
        suspects = list(self._suspects.left().items())[-MOST_SUSPECTS:]
        own = {"pipe": writing, "supervisor": os.getpid(), "restarts": self._restarts}
        task = {**self._task, **own, "orphans": orphans, "suspects": suspects}
        try:
            process = subprocess.Popen(  # noqa: S603  # this interpreter and our own module
                [sys.executable, "-m", "idempotent_receiver.worker", json.dumps(task)],
                pass_fds=[writing],
                stdin=subprocess.PIPE,
                start_new_session=True,  # its own process group; Ctrl-C in a terminal reaches only the supervisor
            )
        except OSError:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        self._orphans = self._orphans[:-MOST_ORPHANS]
        child = Child(process, reading, self._clock.monotonic_seconds(), self._suspect, orphans, self._restarts)
        self._restarts = 0
        if process.stdin is not None:
            os.set_blocking(process.stdin.fileno(), False)
        self._children.append(child)
        self._pipes.register(reading, selectors.EVENT_READ, child)

    def _ended(self, child: Child, status: int) -> bool:
        """Handle a process's exit; returns whether all processes must stop."""
        late = child.overdue()  # reads its last reports
        with suppress(KeyError):
            self._pipes.unregister(child.pipe)
        child.close()
        self._children.remove(child)
        self._worked |= child.works
        self._last_worked = child.works
        if status == WRONG_USAGE and not self._worked and not any(other.works for other in self._children):
            return True
        orphans = child.orphans()
        if status == 0 and child.works and not orphans:
            return False  # it drained, or received `max_messages`: not a crash
        if self._signals and not child.works and not orphans:
            return False  # it was still loading when signalled
        why = ", because it could not renew a lease" if late else ""
        held = ", ".join(one["id"] for one in orphans) or "nothing"
        logger.error("a worker process ended with status %d%s; it held %s", status, why, held)
        self._orphans += orphans
        self._restarts += 1 + child.restarts
        for one in orphans:
            if one["started"]:
                self._suspect(one["id"], SUSPECTED_LEASES * self._task["limits"]["lease_seconds"])
        self._pause(self._clock.monotonic_seconds() - child.began_seconds)
        return False

    def _healthy(self) -> bool:
        """Whether a process is working, or loading to replace one that was; loading takes as long as at startup."""
        return any(child.works or self._last_worked for child in self._children)

    def _pause(self, lived_seconds: float) -> None:
        """Delay the next start, longer after each successive short-lived process."""
        self._short_lives = min(self._short_lives + 1, 10) if lived_seconds < SHORT_LIFE_SECONDS else 0
        pause = min(LONGEST_RESTART_PAUSE_SECONDS, 2.0**self._short_lives - 1)
        self._not_before_seconds = self._clock.monotonic_seconds() + pause

    def _suspect(self, id: str, seconds: float) -> None:
        """Make every process handle this message alone for `seconds`, because one died handling it; zero ends this."""
        if seconds > 0 or id in self._suspects:
            self._suspects.keep(id, seconds)
            for child in self._children:
                child.say(json.dumps([id, seconds]) + "\n")

    def _end_if_overdue(self, child: Child) -> None:
        if child.overdue():
            child.kill()
            child.dead_by_seconds = None  # it may take several checks to exit
            logger.error("a worker process could not renew a lease and is killed before the lease ends")

    def _signalled(self, *_: object) -> None:
        self._signals += 1
        self._kill_at_seconds = self._clock.monotonic_seconds() + self._drain_seconds

    def _pass_on(self, child: Child) -> None:
        """Drain a process at the first signal, and kill it at the second.

        Not done in the signal handler, which may run while a process is being started and would miss that process.
        """
        if child.signals < self._signals:
            child.signals = self._signals
            child.drain() if self._signals == 1 else child.kill()

    def _drained(self) -> bool:
        if self._kill_at_seconds is not None and self._clock.monotonic_seconds() >= self._kill_at_seconds:
            for child in self._children:
                child.kill()
        return not self._children

    def _stop_all(self) -> int:
        for child in self._children:
            child.kill()
            child.process.wait()
        return WRONG_USAGE
