"""Several processes with one table: of those that write a record at once, one wins, and all get consistent answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
def test_of_many_processes_one_inserts(wired_engine: DynamoDB, processes: StoreProcesses, count: int) -> None:
    """Each id has one winner, whose record stays; the others are refused."""
    for turn in range(ROUNDS):
        ids = [f"key-{turn}-{number}" for number in range(count)]
        wanted = [[claimed(id, owner=str(worker)) for id in ids] for worker in range(PROCESSES)]

        answers = processes.at_once(wired_engine.place, "insert", wanted)

        expected = [wanted[single_winner(answers, position)][position] for position in range(count)]
        assert list(wired_engine.store.read(ids)) == expected


@pytest.mark.parametrize("count", [1, 25, 40])
def test_of_many_processes_one_replaces(wired_engine: DynamoDB, processes: StoreProcesses, count: int) -> None:
    """One of those that saw a record takes it over; the version that the others name is gone."""
    for turn in range(ROUNDS):
        old = [claimed(f"key-{turn}-{number}") for number in range(count)]
        insert_all(wired_engine, *old)
        wanted = [[Change(settled(record, owner=str(worker)), record) for record in old] for worker in range(PROCESSES)]

        answers = processes.at_once(wired_engine.place, "replace", wanted)

        expected = [wanted[single_winner(answers, position)][position].new for position in range(count)]
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
