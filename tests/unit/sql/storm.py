"""A storm: workers that are killed while they run, overlapping deliveries, and a ledger that must come out exact."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, create_engine, func, insert, make_url, select, update

from tests.unit.sql.bank import Bank, deliver

if TYPE_CHECKING:
    from multiprocessing.connection import Connection as Pipe

A_BATCH = 8
LONGEST_SECONDS = 240
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["tests.unit.sql.storm"])


def work(orders: Pipe, bank: Bank, url: str, options: dict[str, Any], concurrency: int) -> None:
    """A worker: answers each batch of (message, receive count) with what is to be redelivered, until it is killed."""
    engine = create_engine(make_url(url), **options)
    bank = bank.by(engine)
    rough = random.Random(os.getpid())

    def handle(body: dict[str, Any], at: Connection) -> None:
        at.execute(insert(bank.entries).values({"of": body["id"]}))
        for account, cents in (("a", -1), ("b", 1)):
            query = update(bank.accounts).where(bank.accounts.c.id == account)
            at.execute(query.values(balance=bank.accounts.c.balance + cents))
            time.sleep(rough.random() / 500)
        if body["rough"] and rough.random() < 0.5:
            raise ValueError

    consumer = bank.consumer(handle, concurrency=concurrency, logger=Silent(), metrics=Silent())
    while True:
        batch = orders.recv()
        bodies = [{"id": id, "rough": int(id) % 10 == 0} for id, _ in batch]
        receives = max(count for _, count in batch)
        orders.send(deliver(consumer, *bodies, ids=[id for id, _ in batch], receive_count=receives, seconds=30))


class Silent:
    """A logger and metrics that say nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *given, **named: None


@dataclass
class Storm:
    """Messages, each delivered until a worker has acknowledged it, and one in five a second time meanwhile."""

    bank: Bank
    messages: int
    kills: int
    options: dict[str, Any] = field(default_factory=dict)
    concurrency: int = 4
    seed: int = 7

    def __post_init__(self) -> None:
        self.left = {str(number): 0 for number in range(self.messages)}
        self.killed = 0
        self._draws = random.Random(self.seed)
        self._lock = threading.Lock()

    def blow(self, workers: int = 3) -> None:
        """Deliver all messages. Raises AssertionError if that takes too long."""
        self._ends = time.monotonic() + LONGEST_SECONDS
        seats = [threading.Thread(target=self._seat) for _ in range(workers)]
        for seat in seats:
            seat.start()
        for seat in seats:
            seat.join()
        assert not self.left, f"{len(self.left)} messages were never acknowledged"

    def _seat(self) -> None:
        process, orders = self._started()
        try:
            while batch := self._drawn():
                orders.send(batch)
                self._strike(process)
                try:
                    again = orders.recv() if orders.poll(60) else None
                except (EOFError, OSError):
                    again = None
                if again is None:
                    self._end(process)
                    process, orders = self._started()
                    continue
                with self._lock:
                    for id, _ in batch:
                        if id not in again:
                            self.left.pop(id, None)
        finally:
            self._end(process)

    def _started(self) -> tuple[Any, Pipe]:
        ours, theirs = _processes.Pipe()
        url = self.bank.engine.url.render_as_string(hide_password=False)
        bank = Bank.__new__(Bank)
        bank.accounts, bank.entries, bank.records = self.bank.accounts, self.bank.entries, self.bank.records
        process = _processes.Process(target=work, args=(theirs, bank, url, self.options, self.concurrency), daemon=True)
        process.start()
        theirs.close()
        return process, ours

    def _end(self, process: Any) -> None:
        process.kill()
        process.join()

    def _drawn(self) -> list[tuple[str, int]]:
        """Any messages that are not acknowledged: another seat may be running the same."""
        with self._lock:
            if time.monotonic() > self._ends:
                return []
            ids = self._draws.sample(sorted(self.left), min(A_BATCH, len(self.left)))
            for id in ids:
                self.left[id] += 1
            return [(id, self.left[id]) for id in ids]

    def _strike(self, process: Any) -> None:
        """Kill the worker, or stop it for a while, at any moment of its batch."""
        with self._lock:
            kills = self.killed < self.kills and self._draws.random() < 0.5
            self.killed += kills
            stops = not kills and self._draws.random() < 0.1
            wait = self._draws.random() / 10
        if kills or stops:
            time.sleep(wait)
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL if kills else signal.SIGSTOP)
            if stops:
                time.sleep(wait * 3)
                with suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGCONT)

    def judge(self) -> None:
        """Every effect is there once, the balances are exact, and every record is COMPLETED."""
        bank = self.bank
        with bank.engine.connect() as at:
            query = select(bank.entries.c.of, func.count()).group_by(bank.entries.c.of)
            counts = {row[0]: row[1] for row in at.execute(query)}
            balances = {row[0]: row[1] for row in at.execute(select(bank.accounts.c.id, bank.accounts.c.balance))}
            statuses = set(at.execute(select(bank.records.c.status)).scalars())
        assert counts == {str(number): 1 for number in range(self.messages)}
        assert balances == {"a": 1000 - self.messages, "b": self.messages}
        assert statuses == {"COMPLETED"}


def storm(bank: Bank, **given: Any) -> Storm:
    """A storm over a bank whose first account has 1000 cents."""
    with bank.engine.begin() as at:
        at.execute(update(bank.accounts).where(bank.accounts.c.id == "a").values(balance=1000))
    return Storm(bank, **given)
