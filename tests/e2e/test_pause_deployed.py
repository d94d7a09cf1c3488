"""Pause and resume on a deployed consumer: what was sent meanwhile waits, and is done once afterwards."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from local.cloud import ACCOUNT, REGION
from tests.e2e.permissions import Permission, allowed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.conftest import Deploy
    from tests.e2e.deployed import Deployed

A_WHILE_SECONDS = 2
"""Longer than the local cloud takes to deliver a message."""


@pytest.fixture(scope="module")
def bank(deployed: Deploy) -> Iterator[Deployed]:
    """A consumer that no other test pauses."""
    bank = deployed("pause", MakeApi="false")
    yield bank
    bank.resume()


def receiver(bank: Deployed, *arguments: str, code: int = 0) -> Any:
    """Run the command as a program of its own; its answer."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    account = {"AWS_ACCESS_KEY_ID": ACCOUNT, "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": REGION}
    ran = subprocess.run(
        [sys.executable, "-m", "idempotent_receiver", *arguments],
        env=kept | account | {"AWS_ENDPOINT_URL": bank.aws.endpoint_url, "COLUMNS": "400"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == code, ran.stderr
    return json.loads(ran.stdout) if "--json" in arguments else ran.stdout


def test_what_is_sent_while_it_is_paused_waits_and_is_done_once(bank: Deployed) -> None:
    payer, payee = bank.new_account(100), bank.new_account(0)
    transfers = [bank.transfer(payer, payee, 10) for _ in range(8)]
    before = bank.send(*transfers[:5])
    paused = receiver(bank, "pause", "--stack", bank.stack.name, "--yes", "--json")
    assert [each["state"] for each in paused["mappings"]] == ["Disabled"]
    # A batch that was under way goes on to its end, so only what is sent from now on must wait.
    after = bank.send(*transfers[5:])
    time.sleep(A_WHILE_SECONDS)
    assert [bank.status(key) for key in after] == [None] * 3

    resumed = receiver(bank, "resume", "--queue", bank.stack.outputs["QueueArn"], "--yes", "--json")
    assert [each["state"] for each in resumed["mappings"]] == ["Enabled"]
    for key in (*before, *after):
        bank.settled(key, seconds=60)
    bank.drained()
    assert (bank.balance(payer), bank.balance(payee)) == (20, 80)


@pytest.mark.parametrize("command", ["pause", "resume"])
def test_the_examples_in_its_help_run(bank: Deployed, command: str) -> None:
    examples = re.findall(rf"(?m)^ *receiver ({command} .*)$", receiver(bank, command, "--help"))
    assert examples
    queue = bank.stack.outputs["QueueUrl"].rpartition("/")[2]
    for example in examples:
        meant = example.replace("--stack transfers", f"--stack {bank.stack.name}")
        meant = meant.replace("--queue transfers", f"--queue {queue}")
        meant = meant.replace("--function transfers", f"--function {bank.stack.name}")
        assert f"{command}d: {bank.stack.name} (mapping " in receiver(bank, *meant.split()).casefold()


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
