"""Pause and resume on a deployed consumer: what was sent meanwhile waits, and is done once afterwards."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from harness.cloud import ACCOUNT, REGION
from tests.e2e.permissions import Permission, allowed
from tests.e2e.test_redrive_deployed import receiver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.conftest import Deploy
    from tests.e2e.deployed import Deployed

A_WHILE_SECONDS = 2
"""Longer than the local cloud takes to deliver a message."""


@pytest.fixture(scope="module")
def bank(deployed: Deploy) -> Iterator[Deployed]:
    """A consumer that no other test pauses."""
    bank = deployed("pause", api=None)
    yield bank
    bank.resume()


def test_what_is_sent_while_it_is_paused_waits_and_is_done_once(bank: Deployed) -> None:
    payer, payee = bank.new_account(100), bank.new_account(0)
    transfers = [bank.transfer(payer, payee, 10) for _ in range(8)]
    before = bank.send(*transfers[:5])
    paused = receiver(bank, "pause", "--yes")[1]
    assert [each["state"] for each in paused["mappings"]] == ["Disabled"]
    # A running batch continues to its end, so only what is sent from now on must wait.
    after = bank.send(*transfers[5:])
    time.sleep(A_WHILE_SECONDS)
    assert [bank.status(key) for key in after] == [None] * 3

    resumed = receiver(bank, "resume", "--yes")[1]
    assert [each["state"] for each in resumed["mappings"]] == ["Enabled"]
    for key in (*before, *after):
        bank.settled(key, seconds=60)
    bank.drained()
    assert (bank.balance(payer), bank.balance(payee)) == (20, 80)


def test_all_that_it_asks_for_is_in_the_operators_policy(bank: Deployed) -> None:
    of_the_mapping = [
        each for each in bank.operators_statements() if each["Sid"] in ("SwitchTheMapping", "FindTheMapping")
    ]
    (condition,) = [each.pop("Condition") for each in of_the_mapping if "Condition" in each]
    mapping = f"arn:aws:lambda:{REGION}:{ACCOUNT}:event-source-mapping:{bank.stack.resources['ConsumerMessages']}"
    for action in ("ListEventSourceMappings", "GetEventSourceMapping", "UpdateEventSourceMapping"):
        assert allowed(Permission(f"lambda:{action}", mapping), of_the_mapping)
    found = bank.aws.client("lambda").get_event_source_mapping(UUID=bank.stack.resources["ConsumerMessages"])
    assert found["FunctionArn"] in condition["ArnLike"]["lambda:FunctionArn"]
