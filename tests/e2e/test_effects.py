"""The consumer without claims, `Effects=transaction`: turned on and off by stack updates while messages arrive."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.deployed import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.e2e.conftest import Deploy
    from tests.e2e.deployed import Deployed

VISIBILITY_SECONDS = 24
"""Longer than a lease, so that a replaced process's messages are redelivered while the test waits."""


@pytest.fixture(scope="module")
def turned(deployed: Deploy) -> Deployed:
    """A consumer whose parameter is changed here, so no other test may have it. Its ledger fails as it is told to.

    Each update starts its processes anew: few at a time, and with time to start on a busy machine.
    """
    values = {"Timeout": 20, "VisibilityTimeout": VISIBILITY_SECONDS}
    return deployed("turned", values=values, stubborn=True, api=None, MaximumConcurrency="2")


def turn(bank: Deployed, effects: str) -> None:
    """Update the stack, with everything else as it was."""
    formation, name = bank.aws.client("cloudformation"), bank.stack.name
    (stack,) = formation.describe_stacks(StackName=name)["Stacks"]
    given = {each["ParameterKey"]: each["ParameterValue"] for each in stack["Parameters"]}
    if given["Effects"] == effects:
        return
    kept = [{"ParameterKey": each, "UsePreviousValue": True} for each in given if each != "Effects"]
    formation.update_stack(
        StackName=name,
        UsePreviousTemplate=True,
        Parameters=[*kept, {"ParameterKey": "Effects", "ParameterValue": effects}],
        Capabilities=["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"],
    )
    formation.get_waiter("stack_update_complete").wait(StackName=name, WaiterConfig={"Delay": 1})
    assert variables(bank)["EFFECTS"] == effects


def variables(bank: Deployed) -> dict[str, str]:
    function = bank.stack.outputs["ConsumerName"]
    configuration = bank.aws.client("lambda").get_function_configuration(FunctionName=function)
    return dict(configuration["Environment"]["Variables"])


@contextmanager
def traffic(bank: Deployed, payer: str, payee: str) -> Iterator[dict[str, dict[str, Any]]]:
    """Send transfers all the while, some of which fail at first; gives them by their messages' ids."""
    sent: dict[str, dict[str, Any]] = {}
    stopped = threading.Event()

    def send() -> None:
        while not stopped.is_set():
            transfers = [bank.transfer(payer, payee, 1, kind=kind) for kind in ("transfer", "transfer", "fails1")]
            sent.update(zip(bank.send(*transfers), transfers, strict=True))
            stopped.wait(0.3)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield sent
    finally:
        stopped.set()
        sender.join()


def test_messages_sent_while_it_is_turned_on_and_off_take_effect_once(turned: Deployed) -> None:
    turn(turned, "any")
    payer, payee = turned.new_account(100_000), turned.new_account(0)

    with traffic(turned, payer, payee) as sent:
        for effects in ("any", "transaction", "any", "transaction"):
            turn(turned, effects)
            since = len(batches(turned))
            eventually(
                lambda effects=effects, since=since: (effects == "any") in ways(batches(turned)[since:]),
                what=f"a batch is completed as {effects} has it",
                seconds=90,
            )

    for id, transfer in sent.items():
        assert turned.settled(id, seconds=60)["id"] == id
        assert turned.entries(transfer) == {payer: -1, payee: +1}
    turned.drained(seconds=60)
    assert turned.dead_letters() == []
    assert (turned.balance(payer), turned.balance(payee)) == (100_000 - len(sent), len(sent))


def batches(bank: Deployed) -> list[dict[str, int]]:
    """What its function has logged of each batch."""
    return [line for line in bank.log_lines() if line.get("message") == "batch"]


def ways(found: Sequence[dict[str, int]]) -> set[bool]:
    """Whether messages of these batches were completed with claims, and whether without."""
    return {batch["claimed"] > 0 for batch in found if batch["completed"] > 0}


def test_a_live_claim_of_a_worker_from_before_is_waited_for_and_one_that_is_over_is_replaced(turned: Deployed) -> None:
    payer, payee = turned.new_account(100), turned.new_account(0)
    transfer = turned.transfer(payer, payee, 1)
    turn(turned, "transaction")
    for ends, failed in ((time.time() + 60, [transfer["transfer_id"]]), (time.time() - 1, [])):
        claim = {"id": transfer["transfer_id"], "status": "INPROGRESS", "version": "v", "attempts": 1, "owner": "dead"}
        times = {"expiration": int(time.time()) + 86_400, "in_progress_expiration": int(ends * 1000)}
        turned.put("Records", {**claim, **times})
        assert invoked(turned, transfer, receives=2) == failed
    found = turned.record(transfer["transfer_id"])
    assert found is not None
    assert (found["status"], found["attempts"], "in_progress_expiration" in found) == ("COMPLETED", 2, False)
    assert json.loads(found["data"]) == {"posted": transfer["transfer_id"]}
    assert turned.balance(payee) == 1


def invoked(bank: Deployed, transfer: dict[str, Any], *, receives: int = 1) -> list[str]:
    """The messages that a delivery of this transfer alone wants redelivered."""
    return bank.invoke({"Records": [bank.delivered(transfer, receives)]}).failed
