"""`explore` for handlers of `effects="transaction"`: two may run at once, and their effects are there once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver import MemoryStore, Message, PermanentError, Transaction, body_field, sqs_consumer
from idempotent_receiver.testing import explore, schedule, sqs_event
from tests.unit.testing.handlers import ORDER, ORDERS, accounts, debit

if TYPE_CHECKING:
    from idempotent_receiver.testing import Calls

unclaimed = sqs_consumer(MemoryStore(), effects="transaction")
mails: list[str] = []


def charge(cents: int) -> None:
    """A payment service, which tests replace."""
    raise AssertionError("a fake is in its place")


services = SimpleNamespace(charge=charge)


@unclaimed
def transactional(order: dict, tx: Transaction) -> None:
    debit(order, tx)


@sqs_consumer(MemoryStore("orders"), key=body_field("order"), effects="transaction", concurrency=2)
async def concurrent(order: dict, tx: Transaction) -> str:
    debit(order, tx)
    return "sold"


@unclaimed
def overdrawing(order: dict, tx: Transaction) -> None:
    debit({**order, "cents": 1000}, tx, PermanentError("overdrawn"))


@unclaimed
def empty(order: dict, tx: Transaction) -> None:
    """There is nothing to do for it."""


@unclaimed
def mailing(order: dict, tx: Transaction) -> None:
    debit(order, tx)
    mails.append(order["order"])


@unclaimed
def charging(order: dict, tx: Transaction) -> None:
    services.charge(order["cents"])
    debit(order, tx)


@unclaimed
def counting_attempts(order: dict, message: Message, tx: Transaction) -> None:
    tx.put(TableName="attempts", Item={"id": message.id, "attempt": message.attempt})


def at(result: Any, what: str) -> set[str]:
    """Where something was played."""
    return {kind for kind, played in result.played if played == what}


def test_a_transaction_survives_everything_without_a_claim() -> None:
    """No message is claimed, and what may happen to a commit or a read happens."""
    result = explore(transactional, ORDER, tables=accounts())

    assert result.violations == []
    assert result.complete
    assert result.effects == {"accounts": [{"account": "alice", "balance": 95}]}
    assert result.acknowledged == {"message-1": "completed"}
    assert at(result, "crash-before") >= {"commit", "read"}
    for what in set(schedule.WRITE) - {"crash-before", "timeout"}:
        assert at(result, what) >= {"commit"}, what
    assert "insert" not in {kind for kind, _ in result.played}
    assert at(result, "raises") == at(result, "fails") == {"handler"}


def test_two_faults_reach_the_record_of_a_failure() -> None:
    """Which is put where there is none, or replaces what was read."""
    result = explore(transactional, ORDER, tables=accounts(), workers=1, faults=2, most_schedules=3000)

    assert result.violations == []
    assert result.complete
    assert "records the failure of" in at(result, "lost") & at(result, "crash-late-2")


@pytest.mark.parametrize("fifo", [False, True])
def test_coroutines_keys_and_groups_survive_it(fifo: bool) -> None:
    result = explore(concurrent, sqs_event(*ORDERS, fifo=fifo), tables=accounts())

    assert result.violations == []
    assert result.effects["accounts"][0]["balance"] == 88


def test_a_condition_that_fails_for_good_ends_the_message() -> None:
    result = explore(overdrawing, ORDER, tables=accounts(), workers=1)

    assert result.violations == []
    assert result.acknowledged == {"message-1": "failed for good"}
    assert result.effects["accounts"][0]["balance"] == 100


def test_an_empty_transaction_is_recorded_and_no_claim() -> None:
    result = explore(empty, ORDER, no_effects="there is nothing to do for it")

    assert result.violations == []
    assert "completes" in at(result, "crash-after")
    assert "insert" not in {kind for kind, _ in result.played}


# Planted mistakes.


def test_what_is_done_outside_of_the_transaction_is_found_to_happen_twice() -> None:
    """Without any fault: two workers run the message at once."""
    mails.clear()

    result = explore(mailing, ORDER, tables=accounts(), state={"mails": mails}, faults=0, check=False)

    (violation,) = result.violations
    assert violation.what == "mails is ['o-1', 'o-1'] at the end, and ['o-1'] in the fault-free run"
    assert violation.remedy.startswith("write it through the Transaction, or keep effects='any': effects='transaction'")
    assert sum("runs the handler for message-1" in line for line in violation.story) == 2
    assert "refused, because the record has changed" in "".join(violation.story)


def test_a_call_without_a_key_is_found_and_the_story_tells_who_runs_it_at_once(calls: Calls) -> None:
    """As for any handler; what helps is its transaction."""
    calls.replace(services, "charge")

    result = explore(charging, ORDER, tables=accounts(), faults=0, check=False)

    (violation,) = result.violations
    assert violation.what == "charge was called 2 times for message-1, without an idempotency key"
    assert "or keep effects='any'" in violation.remedy
    assert violation.story[:4] == (
        "worker A receives message-1",
        "A runs the handler for message-1",
        "A waits before it calls charge, so others go first",
        "worker B receives message-1",
    )
    assert violation.story[4] == "B runs the handler for message-1, while A also runs it, because nothing claims it"


def test_effects_that_depend_on_the_attempt_are_found() -> None:
    """A later run writes something else."""
    result = explore(counting_attempts, ORDER, tables={"attempts": "id"}, check=False)

    assert "the table attempts holds" in result.violations[0].what
