"""Several processes with one table: of those that write a record at once, one wins, and all get consistent answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver.protocol.record import Change
from idempotent_receiver.protocol.store import ActionFailed, Applied, Commit
from tests.engines.processes import PROCESSES
from tests.engines.sample_records import claimed, credit, insert_all, settled, single_winner

if TYPE_CHECKING:
    from tests.engines.engine import DynamoDB
    from tests.engines.processes import StoreProcesses

ROUNDS = 5
"""Contests of one kind; what is lost in a race is not lost every time."""


@pytest.mark.parametrize("count", [1, 25, 40])
@pytest.mark.parametrize("method", ["insert", "replace"])
def test_of_many_processes_one_writes(
    wired_engine: DynamoDB, processes: StoreProcesses, method: str, count: int
) -> None:
    """Each id has one winner, who inserts it or takes over the record that all have seen; the others are refused."""
    for turn in range(ROUNDS):
        old = [claimed(f"key-{turn}-{number}") for number in range(count)]
        wanted = [[settled(record, owner=str(worker)) for record in old] for worker in range(PROCESSES)]
        writes: list[list[Any]] = [*wanted]
        if method == "replace":
            insert_all(wired_engine, *old)
            writes = [[Change(*pair) for pair in zip(new, old, strict=True)] for new in wanted]

        answers = processes.at_once(wired_engine.place, method, writes)

        expected = [wanted[single_winner(answers, position)][position] for position in range(count)]
        assert list(wired_engine.store.read([record.id for record in old])) == expected


def test_of_many_processes_one_commits(wired_engine: DynamoDB, processes: StoreProcesses) -> None:
    """Each commits its own completion and a credit to one account: only the winner's credit is applied in each round.

    A table may throttle contending transactions, but must not apply two, or half of one.
    """
    credited = 0
    for turn in range(ROUNDS):
        old = claimed(f"key-{turn}")
        insert_all(wired_engine, old)
        actions = credit(wired_engine).actions
        changes = [Change(settled(old, owner=str(worker)), old) for worker in range(PROCESSES)]

        answers = processes.at_once(wired_engine.place, "commit", [[Commit(change, actions)] for change in changes])

        (found,) = wired_engine.store.read([old.id])
        winners = [worker for worker, (written,) in enumerate(answers) if written == Applied()]
        assert not any(isinstance(written, ActionFailed) for (written,) in answers)
        assert len(winners) <= 1
        assert found == (changes[winners[0]].new if winners else old)
        credited += 5 * len(winners)
        account = wired_engine.account("alice")
        assert (0 if account is None else account["balance"]) == credited
    assert credited > 0
