"""Records and changes as a worker writes them, and checks of the store's answers."""

from __future__ import annotations

import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING, Any

from idempotent_receiver import Transaction
from idempotent_receiver.protocol.record import Change, Record
from idempotent_receiver.protocol.store import ActionFailed, Applied, Commit, Conflict, NotApplied

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from idempotent_receiver.protocol.store import Written
    from tests.engines.engine import Engine

MAX_RETRIES = 50
"""How often a throttled write is retried: a new table on AWS throttles at first."""


def version() -> str:
    """A new version: a transaction's token is made of it, and an engine remembers tokens."""
    return secrets.token_hex(16)


def claimed(id: str = "key", **given: Any) -> Record:
    """A record as a claim writes it."""
    usual: dict[str, Any] = {
        "status": "INPROGRESS",
        "version": version(),
        "expiration": 1_800_000_000,
        "in_progress_expiration": 1_800_000_000_123,
        "attempts": 1,
        "validation": "fingerprint",
        "owner": "worker",
    }
    return Record(id=id, **usual | given)


def settled(record: Record, **given: Any) -> Record:
    """A claimed record after its completion: attributes are added, changed and removed."""
    usual: dict[str, Any] = {"status": "COMPLETED", "version": version(), "data": "{}", "in_progress_expiration": None}
    return record._replace(**usual | given)


def settling(record: Record) -> Change:
    return Change(settled(record), record)


def committing(engine: Engine, number: int, tx: Transaction | None = None) -> Commit:
    """A commit that completes a record where there is none, with a credit to an account of its own or with `tx`."""
    actions = (credit(engine, f"account-{number}") if tx is None else tx).actions
    return Commit(Change(settled(claimed(f"key-{number}")), None), actions)


def insert_all(engine: Engine, *records: Record) -> None:
    """Insert these records as a worker would."""
    left = list(records)
    for _ in range(MAX_RETRIES):
        answers = list(zip(left, engine.store.insert(left), strict=True))
        left = [record for record, answer in answers if throttled(answer)]
        assert all(throttled(answer) or isinstance(answer, Applied) for _, answer in answers)
        if not left:
            return
        time.sleep(0.1)
    raise AssertionError("the table throttles for ever")


def throttled(answer: Written) -> bool:
    return isinstance(answer, NotApplied) and answer.retry


def refused(written: Written | ActionFailed, there: Record | None) -> bool:
    """Whether a write was refused because of this record; a store that returns a record must return this one."""
    return isinstance(written, Conflict) and written.found in (None, there)


def refused_permanently(written: Written | ActionFailed) -> bool:
    return isinstance(written, NotApplied) and not written.retry


def single_winner(answers: Sequence[Sequence[Written]], position: int) -> int:
    """The worker whose write at that position was applied; exactly one must have been."""
    winners = [worker for worker, written in enumerate(answers) if written[position] == Applied()]
    losers = [written[position] for worker, written in enumerate(answers) if worker not in winners]
    assert len(winners) == 1
    assert all(isinstance(written, Conflict) for written in losers)
    return winners[0]


def credit(engine: Engine, account: str = "alice", **arguments: Any) -> Transaction:
    """A transaction that adds 5 to an account's balance."""
    tx = Transaction()
    tx.update(
        TableName=engine.accounts,
        Key={"account": account},
        UpdateExpression="ADD balance :amount",
        **{"ExpressionAttributeValues": {":amount": 5}} | arguments,
    )
    return tx


def at_once(work: Callable[[int], Sequence[Written]], workers: int = 8) -> list[Sequence[Written]]:
    """The answers to several threads that start at the same moment."""
    barrier = Barrier(workers)

    def started(worker: int) -> Sequence[Written]:
        barrier.wait()
        return work(worker)

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(started, range(workers)))


def failing(engine: Engine, tx: Transaction, account: str) -> None:
    """Add a condition that fails."""
    tx.check(TableName=engine.accounts, Key={"account": account}, ConditionExpression="attribute_exists(account)")
