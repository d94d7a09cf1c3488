"""Handlers that read an item with a client of their own and write what they computed from it: which of them count."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver import RetryLater, Transaction
from tests.simulation.test_scenarios_ahead import ROUND_TRIP_SECONDS
from tests.simulation.world import FIFO, sqs_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.scenario import Scenario

KEY = {"account": "alice"}
PAYMENTS = 10


class Account:
    """One account, ten payments of 1 into it in one batch, and handlers that post one."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario

    @property
    def balance(self) -> int:
        """What a strongly consistent read finds."""
        table = self.scenario.memory.tables.get("accounts")
        return 0 if table is None else int(table.items["alice",]["balance"])

    def reading_then_writing(self, body: dict[str, Any], tx: Transaction) -> None:
        found = self._read()
        tx.put(TableName="accounts", Item={**KEY, "balance": found + 1})

    def adding(self, body: dict[str, Any], tx: Transaction) -> None:
        self._read()
        one = {"UpdateExpression": "ADD balance :one", "ExpressionAttributeValues": {":one": 1}}
        tx.update(TableName="accounts", Key=KEY, **one)

    def writing_what_is_still_so(self, body: dict[str, Any], tx: Transaction) -> None:
        found = self._read()
        tx.put(
            TableName="accounts",
            Item={**KEY, "balance": found + 1},
            ConditionExpression="attribute_not_exists(balance) OR balance = :found",
            ExpressionAttributeValues={":found": found},
            otherwise=RetryLater("another payment came first", seconds=1),
        )

    def post(self, handler: Callable[..., Any], **queue: Any) -> int:
        """Deliver the payments until all have succeeded. Returns how many deliveries that took."""
        left, deliveries = [str(number) for number in range(PAYMENTS)], 0
        while left and deliveries < PAYMENTS:
            deliveries += 1
            body = json.dumps({"cents": 1})
            records = [sqs_record(id, body, receives=deliveries, **queue) for id in left]
            left = self.scenario.answer(handler, *records, concurrency=1)
        assert left == []
        return deliveries

    def _read(self) -> int:
        found = self.balance
        self.scenario.world.sleep(ROUND_TRIP_SECONDS)
        return found


@pytest.fixture
def account(either: Scenario) -> Account:
    return Account(either)


def test_writing_what_was_read_before_others_committed_loses_their_updates(account: Account) -> None:
    """Handlers run ahead of their commits, even one at a time. Nothing fails: all ten are done, and few count."""
    assert account.post(account.reading_then_writing) == 1
    assert 1 <= account.balance < PAYMENTS


def test_an_update_that_adds_to_what_is_there_counts_every_message(account: Account) -> None:
    assert account.post(account.adding) == 1
    assert account.balance == PAYMENTS


def test_a_condition_on_what_was_read_lets_what_came_too_late_run_again(account: Account) -> None:
    assert account.post(account.writing_what_is_still_so) > 1
    assert account.balance == PAYMENTS


def test_a_fifo_group_for_each_account_reads_what_the_message_before_has_committed(account: Account) -> None:
    assert account.post(account.reading_then_writing, queue=FIFO, group="alice") == 1
    assert account.balance == PAYMENTS
