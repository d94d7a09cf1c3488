"""What `receiver stuck` reads of a relational table, on each database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from idempotent_receiver.operations.sql_scan import not_completed
from idempotent_receiver.protocol.record import Record

if TYPE_CHECKING:
    from tests.unit.sql.bank import Bank


def test_what_is_not_completed_comes_in_pages_without_other_consumers_records(bank: Bank) -> None:
    failed = [Record(f"bank#{n:03}", "FAILED", version="v", attempts=n) for n in range(150)]
    bank.store.insert([*failed, Record("bank#done", "COMPLETED", version="v"), Record("other#1", "FAILED")])

    pages = list(not_completed(bank.store, "bank#"))

    assert sorted(record for page in pages for record in page) == failed
    assert max(map(len, pages)) <= 100


def test_a_scan_that_stops_early_gives_its_connection_back(bank: Bank) -> None:
    bank.store.insert([Record(f"bank#{n:03}", "FAILED", version="v") for n in range(250)])

    found = not_completed(bank.store, "bank#")
    next(found)
    found.close()

    assert bank.store.engine.pool.checkedout() == 0  # type: ignore[attr-defined]  # a QueuePool
