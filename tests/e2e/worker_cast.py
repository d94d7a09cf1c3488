"""The worker's chaos: real supervisors with their processes, the faults that hit them, and a watch for deaths."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from harness.cloud import ROOT
from tests.chaos.network_faults import ShuffleBag
from tests.chaos.proxy import Cut, Service
from tests.e2e.test_work import LEASE_SECONDS, Place, _alive

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.chaos.proxy import Partitions

SUPERVISORS = 3
PAST_A_LEASE_SECONDS = LEASE_SECONDS + 3


class Deaths(threading.Thread):
    """Sees when processes die: those of supervisors that it knows, and their children."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.at: dict[int, float] = {}
        self.supervisors: set[int] = set()
        self._living: set[int] = set()
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(0.05):
            for supervisor in tuple(self.supervisors):
                self._living |= set(children(supervisor)) - self.at.keys()  # a stopped one keeps its dead
            dead = {pid for pid in self._living if not _alive(pid)}
            self.at |= dict.fromkeys(dead, time.time())
            self._living -= dead

    def end(self) -> None:
        self._ended.set()
        self.join()


def children(supervisor: int) -> list[int]:
    with suppress(OSError):
        return [int(pid) for pid in Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()]
    return []


class Workers:
    """Supervisors with two processes each."""

    def __init__(self, place: Place, deaths: Deaths, **environment: str) -> None:
        self._place = place
        self._deaths = deaths
        self._environment = {**place.environment, **environment}
        self._url = place.url.replace(place.aws.endpoint_url, self._environment["AWS_ENDPOINT_URL"])
        self.running: list[subprocess.Popen[bytes]] = []
        self.leaving: list[subprocess.Popen[bytes]] = []
        self._log = (place.folder / "log").open("ab")

    def replenish(self) -> None:
        """Start as many supervisors as are missing."""
        self.running = [one for one in self.running if one.poll() is None]
        while len(self.running) < SUPERVISORS:
            command = self._place.command(
                "--processes", "2", "--concurrency", "4", url=self._url, handler="worker_chaos_handlers:transfer"
            )
            started = subprocess.Popen(
                command,
                cwd=ROOT / "tests" / "e2e",
                env=self._environment,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,
            )
            self.running.append(started)
            self._deaths.supervisors.add(started.pid)

    def close(self) -> None:
        """Kill them, and their processes with them."""
        for one in (*self.running, *self.leaving):
            with suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGCONT)
            one.kill()
            one.wait()
        self._log.close()


class Stopped(NamedTuple):
    until_seconds: float
    pid: int


class Chaos:
    """The faults of workers. The seed decides the order, and a shuffle bag gives each kind its turn."""

    def __init__(self, workers: Workers, partitions: Partitions, seed: int) -> None:
        self._workers = workers
        self._partitions = partitions
        self._random = random.Random(seed)
        self._stopped: list[Stopped] = []
        self.counts: Counter[str] = Counter()
        """How often each fault has hit a worker."""
        self.died_frozen = 0
        """How many processes were dead when they were to continue."""
        faults = {
            "kill a process": self.kill_a_process,
            "kill a supervisor": self.kill_a_supervisor,
            "freeze a process": self.freeze_a_process,
            "freeze a supervisor": self.freeze_a_supervisor,
            "freeze both": self.freeze_both,
            "drain": self.drain,
            **{
                f"part a {who} from {service.name}, {cut}": partial(self.part, who, service, cut)
                for who, service, cut in product(("process", "supervisor"), Service, Cut)
            },
        }
        self.cast: dict[str, Callable[[subprocess.Popen[bytes]], bool]] = faults
        """Faults by their names; each returns whether there was a worker to hit."""
        # Partitions are many already, since there are six of each kind.
        names = [name for name in faults for _ in range(1 if name.startswith("part") else 2)]
        self._bag = ShuffleBag(self._random, names, len(names))

    def strike(self) -> None:
        """One fault."""
        name = self._bag.draw()
        assert name is not None
        if self.cast[name](self._random.choice(self._workers.running)):
            self.counts[name] += 1
        else:
            self._bag.put_back(name)

    def thaw(self, *, all: bool = False) -> None:
        """Resume those that have been stopped for long enough."""
        due = [one for one in self._stopped if all or time.monotonic() >= one.until_seconds]
        for one in due:
            self._stopped.remove(one)
            self.died_frozen += not _alive(one.pid)
            with suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGCONT)

    def kill_a_process(self, supervisor: subprocess.Popen[bytes]) -> bool:
        return self._signal(signal.SIGKILL, self._one_of(supervisor))

    def kill_a_supervisor(self, supervisor: subprocess.Popen[bytes]) -> bool:
        supervisor.kill()
        supervisor.wait()
        self._workers.replenish()
        return True

    def freeze_a_process(self, supervisor: subprocess.Popen[bytes]) -> bool:
        return self._signal(signal.SIGSTOP, self._one_of(supervisor))

    def freeze_a_supervisor(self, supervisor: subprocess.Popen[bytes]) -> bool:
        return self._signal(signal.SIGSTOP, [supervisor.pid])

    def freeze_both(self, supervisor: subprocess.Popen[bytes]) -> bool:
        processes = children(supervisor.pid)
        return bool(processes) and self._signal(signal.SIGSTOP, [supervisor.pid, *processes])

    def drain(self, supervisor: subprocess.Popen[bytes]) -> bool:
        supervisor.terminate()
        self._workers.running.remove(supervisor)
        self._workers.leaving.append(supervisor)
        self._workers.replenish()
        return True

    def part(self, who: str, service: Service, cut: Cut, supervisor: subprocess.Popen[bytes]) -> bool:
        parted = [supervisor.pid] if who == "supervisor" else self._one_of(supervisor)
        for pid in parted:
            self._partitions.part(str(pid), service, cut, PAST_A_LEASE_SECONDS)
        return bool(parted)

    def _one_of(self, supervisor: subprocess.Popen[bytes]) -> list[int]:
        found = [pid for pid in children(supervisor.pid) if _alive(pid)]
        return [self._random.choice(found)] if found else []

    def _signal(self, number: signal.Signals, pids: Sequence[int]) -> bool:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
                if number is signal.SIGSTOP:
                    self._stopped.append(Stopped(time.monotonic() + PAST_A_LEASE_SECONDS, pid))
        return bool(pids)
