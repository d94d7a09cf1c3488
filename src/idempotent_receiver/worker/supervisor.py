"""The supervisor: starts worker processes, replaces those that die, and ends those that should be dead.

It asks no AWS service and runs no code of the user's, so that nothing of theirs can hang it. Each process tells it by a
pipe what it has received; when one dies, its replacement gives that back.
"""

import json
import logging
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from idempotent_receiver.clock import SystemClock, since_boot_seconds

logger = logging.getLogger("idempotent_receiver.worker")

LOOK_SECONDS = 0.2
WRONG_USAGE = 2
"""The exit status of a process that could not begin, whatever it is tried again."""
SHORT_LIFE_SECONDS = 10.0
LONGEST_PAUSE_SECONDS = 30.0


@dataclass(slots=True, eq=False)
class Child:
    """A worker process, and what it has reported."""

    process: "subprocess.Popen[str]"
    pipe: int
    began_seconds: float
    text: bytes = b""
    handles: dict[str, str] = field(default_factory=dict)
    records: dict[str, str] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)
    dead_by_seconds: float | None = None
    owner: str | None = None

    def read(self) -> None:
        """Take in what it has reported."""
        with suppress(BlockingIOError):
            while chunk := os.read(self.pipe, 65536):
                self.text += chunk
        *lines, self.text = self.text.split(b"\n")
        for line in lines:
            self._take_in(*json.loads(line))

    def _take_in(self, what: str, *rest: Any) -> None:
        match what, *rest:
            case "begins", owner:
                self.owner = owner
            case "received", id, handle:
                self.handles[id] = handle
            case "claims", id, record_id:
                self.records[id] = record_id
            case "started", id:
                self.running.add(id)
            case "ended", id:
                self.handles.pop(id, None)
                self.records.pop(id, None)
                self.running.discard(id)
            case "dead by", seconds:
                self.dead_by_seconds = seconds

    def orphans(self) -> list[dict[str, Any]]:
        """What it has left, now that it is dead."""
        return [
            {
                "id": id,
                "handle": handle,
                "record": self.records.get(id),
                "started": id in self.running,
                "owner": self.owner,
            }
            for id, handle in self.handles.items()
        ]


class Supervisor:
    """Keeps `processes` worker processes at a task, until SIGTERM."""

    def __init__(self, task: dict[str, Any], *, processes: int, drain_seconds: float, health: Path | None) -> None:
        self._task = task
        self._processes = processes
        self._drain_seconds = drain_seconds
        self._health = health
        self._clock = SystemClock()
        self._children: list[Child] = []
        self._pipes = selectors.DefaultSelector()
        self._orphans: list[dict[str, Any]] = []
        self._not_before_seconds = 0.0
        self._short_lives = 0
        self._signals = 0
        self._kill_at_seconds: float | None = None

    def run(self) -> int:
        """Work until told to end; returns the exit status."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._signalled)
        while True:
            if self._signals == 0 and self._clock.monotonic_seconds() >= self._not_before_seconds:
                while len(self._children) < self._processes:
                    self._start()
            for key, _ in self._pipes.select(LOOK_SECONDS):
                key.data.read()
            for child in tuple(self._children):
                status = child.process.poll()
                if status is not None and self._ended(child, status):
                    return self._stop_all()
                if status is None:
                    self._end_if_overdue(child)
            if self._signals and self._drained():
                return 0
            if self._health is not None and self._children:
                self._health.touch()

    def _start(self) -> None:
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        orphans, self._orphans = self._orphans, []
        task = {**self._task, "pipe": writing, "supervisor": os.getpid(), "orphans": orphans}
        process = subprocess.Popen(  # noqa: S603  # this Python, and our own module
            [sys.executable, "-m", "idempotent_receiver.worker", json.dumps(task)],
            pass_fds=[writing],
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,  # a terminal's Ctrl-C is for the supervisor, which lets them drain
        )
        os.close(writing)
        child = Child(process, reading, self._clock.monotonic_seconds())
        self._children.append(child)
        self._pipes.register(reading, selectors.EVENT_READ, child)

    def _ended(self, child: Child, status: int) -> bool:
        """Take leave of a process; returns whether all must end."""
        child.read()
        self._pipes.unregister(child.pipe)
        os.close(child.pipe)
        self._children.remove(child)
        if status == WRONG_USAGE:
            return True
        orphans = child.orphans()
        if status != 0:
            ids = [one["id"] for one in orphans]
            logger.error("a worker process ended with status %d; it held %s", status, ", ".join(ids) or "nothing")
        self._orphans += orphans
        self._tell([one["id"] for one in orphans if one["started"]])
        lived = self._clock.monotonic_seconds() - child.began_seconds
        self._short_lives = self._short_lives + 1 if lived < SHORT_LIFE_SECONDS else 0
        pause = min(LONGEST_PAUSE_SECONDS, 2.0**self._short_lives - 1)
        self._not_before_seconds = self._clock.monotonic_seconds() + pause
        return False

    def _tell(self, suspects: Sequence[str]) -> None:
        """Let every process run these alone: one has died with them."""
        for child in self._children:
            with suppress(OSError):
                assert child.process.stdin is not None
                child.process.stdin.write("".join(f"{id}\n" for id in suspects))
                child.process.stdin.flush()

    def _end_if_overdue(self, child: Child) -> None:
        if child.dead_by_seconds is not None and since_boot_seconds() >= child.dead_by_seconds:
            logger.error("a worker process could not renew a lease, and is ended before the lease is")
            child.process.kill()

    def _signalled(self, *_: object) -> None:
        self._signals += 1
        self._kill_at_seconds = self._clock.monotonic_seconds() + self._drain_seconds
        for child in self._children:
            child.process.terminate() if self._signals == 1 else child.process.kill()

    def _drained(self) -> bool:
        if self._kill_at_seconds is not None and self._clock.monotonic_seconds() >= self._kill_at_seconds:
            for child in self._children:
                child.process.kill()
        return not self._children

    def _stop_all(self) -> int:
        for child in self._children:
            child.process.kill()
            child.process.wait()
        return WRONG_USAGE
