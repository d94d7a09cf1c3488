"""The deployed consumer of a FIFO queue: order within a group, whatever fails, and other groups go on."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.conftest import AT_ONCE, FIFO

if TYPE_CHECKING:
    from tests.e2e.conftest import Deploy
    from tests.e2e.deployed import Deployed


@pytest.fixture(scope="module")
def bank(deployed: Deploy) -> Deployed:
    """The FIFO variant, whose ledger fails as a transfer's id says; no group waits for what fails for good."""
    return deployed("fifo", edits=[FIFO, AT_ONCE], stubborn=True)


def settled_at(record: dict[str, Any]) -> int:
    """When a record was written last, up to a constant: it expires so many days later."""
    return int(record["expiration"])


@pytest.mark.slow
def test_a_failure_holds_up_its_group_in_order_and_no_other(bank: Deployed) -> None:
    # Money is handed on from account to account, so a transfer that went ahead of its turn could not be paid.
    accounts = [bank.new_account(100 if place == 0 else 0) for place in range(4)]
    kinds = ("transfer", "fails2", "transfer")
    handed_on = [bank.transfer(*pair, 100, kind=kind) for pair, kind in zip(pairwise(accounts), kinds, strict=True)]
    payer, payee = bank.new_account(100), bank.new_account(0)
    beside = [bank.transfer(payer, payee, 1) for _ in range(2)]

    slow = bank.send(*handed_on, group="slow")
    other = bank.send(*beside, group="other")

    records = [bank.settled(id, seconds=25) for id in slow]
    bank.drained()
    assert [bank.balance(account) for account in accounts] == [0, 0, 0, 100]
    assert [record["attempts"] for record in records] == [1, 3, 1]
    assert settled_at(records[0]) < settled_at(records[1]) <= settled_at(records[2])
    # Each of the two backoffs took a second or more, and the other group waited for neither.
    beside_records = [bank.settled(id) for id in other]
    assert max(settled_at(record) for record in beside_records) < settled_at(records[1])
    assert [record["attempts"] for record in beside_records] == [1, 1]
    assert (bank.balance(payer), bank.balance(payee)) == (98, 2)
    assert bank.dead_letters() == []
