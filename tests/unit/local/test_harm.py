"""What is lost and made is told in cents, and the sums come out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from local.workload.evidence import Entry
from local.workload.harm import Harm, harm_of
from local.workload.reconciliation import Reconciliation
from local.workload.transfers import Kind, TransferMessage, Workload

ONE, TWO = "t-one", "t-two"
ENTRIES = [
    Entry(transfer=ONE, account="a", amount=-10),
    Entry(transfer=ONE, account="b", amount=10),
    Entry(transfer=TWO, account="a", amount=-25),
    Entry(transfer=TWO, account="c", amount=25),
]
FOUND = Reconciliation(
    workload=Workload(
        messages=(
            TransferMessage(ONE, Kind.GOOD, "a", "b", 10),
            TransferMessage(TWO, Kind.KILLED_BEFORE, "a", "c", 25),
        ),
        opening={"a": 100, "b": 0, "c": 0},
    ),
    protected=False,
    sent={ONE: "m-one", TWO: "m-two"},
    entries=ENTRIES,
    closing={"a": 65, "b": 10, "c": 25},
    records={},
    dead_letters=[],
    left=0,
    log=(),
)


def harm(**changes: Any) -> Harm:
    found = harm_of(replace(FOUND, **changes))
    assert found.before + found.created - found.destroyed == found.after
    return found


def test_where_all_is_well_there_is_no_harm() -> None:
    found = harm()
    assert (found.created, found.destroyed, found.half_posted, found.paid_again) == (0, 0, {}, {})
    assert not found.seen


def test_an_overwritten_debit_creates_money() -> None:
    found = harm(closing={"a": 75, "b": 10, "c": 25})
    assert (found.created, found.destroyed) == (10, 0)
    assert found.seen


def test_an_overwritten_credit_destroys_money() -> None:
    assert (harm(closing={"a": 65, "b": 0, "c": 25}).destroyed, harm().destroyed) == (10, 0)


def test_a_debit_that_was_paid_again_destroys_money_and_leaves_a_half() -> None:
    """As where a worker dies between its two writes, and another begins anew."""
    entries = [replace(ENTRIES[0], amount=-20, times=2), *ENTRIES[1:]]
    found = harm(entries=entries, closing={"a": 55, "b": 10, "c": 25})
    assert (found.created, found.destroyed, found.half_posted, found.paid_again) == (0, 10, {ONE: -10}, {})


def test_a_transfer_that_was_posted_twice_is_paid_again_though_no_money_came_or_went() -> None:
    twice = [replace(each, amount=2 * each.amount, times=2) for each in ENTRIES[2:]]
    found = harm(entries=[*ENTRIES[:2], *twice], closing={"a": 40, "b": 10, "c": 50})
    assert (found.created, found.destroyed, found.half_posted, found.paid_again) == (0, 0, {}, {TWO: 25})
    assert found.seen
