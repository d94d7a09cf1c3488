"""What every store promises of many commits at once: each has its own answer, and none fails for another's sake."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver import Transaction
from idempotent_receiver.local.cloud import is_ministack
from idempotent_receiver.protocol.record import Change, Record
from idempotent_receiver.protocol.store import ActionFailed, Applied, Commit, Conflict
from tests.engines.sample_records import (
    claimed,
    committing,
    credit,
    failing,
    insert_all,
    refused,
    refused_permanently,
    settled,
    settling,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.engines.engine import Engine


def commits(engine: Engine, count: int) -> list[Commit]:
    """Each puts a record and credits an account of its own."""
    return [committing(engine, number) for number in range(count)]


def balances(engine: Engine, count: int) -> list[Any]:
    items = [engine.account(f"account-{number}") for number in range(count)]
    return [None if item is None else item["balance"] for item in items]


def records(engine: Engine, commits: Sequence[Commit]) -> list[Any]:
    return list(engine.store.read([commit.change.new.id for commit in commits]))


def insert_each(engine: Engine, records: Sequence[Record]) -> None:
    """One by one, as not every engine has batches."""
    for record in records:
        insert_all(engine, record)


@pytest.mark.parametrize("count", [0, 1, 2, 50, 51, 60])
def test_any_number_of_commits(engine: Engine, count: int) -> None:
    """All take effect, with their actions: sixty with a write each have 120 writes."""
    wanted = commits(engine, count)

    assert list(engine.store.commit(wanted)) == [Applied()] * count

    assert records(engine, wanted) == [commit.change.new for commit in wanted]
    assert balances(engine, count) == [5] * count


def test_claims_are_completed_together(engine: Engine) -> None:
    """Commits that replace records share requests with those that put them."""
    held = [claimed(f"held-{number}") for number in range(20)]
    insert_each(engine, held)
    replacing = [Commit(settling(one), credit(engine, one.id).actions) for one in held]
    wanted = [*replacing, *commits(engine, 20), Commit(settling(claimed("vanished")), ())]

    *answers, vanished = engine.store.commit(wanted)

    assert answers == [Applied()] * 40
    assert vanished == Conflict(None)
    assert records(engine, wanted) == [*(commit.change.new for commit in wanted[:-1]), None]


def test_each_failed_condition_names_its_own_action(engine: Engine) -> None:
    """Among those that take effect; of those that fail, nothing does."""
    positions = {3: 0, 11: 1, 12: 2, 29: 0}
    wanted = commits(engine, 30)
    for number, position in positions.items():
        tx = Transaction()
        for place in range(3):
            if place == position:
                failing(engine, tx, f"nobody-{number}")
            else:
                tx.put(TableName=engine.accounts, Item={"account": f"account-{number}/{place}"})
        wanted[number] = committing(engine, number, tx)

    answers = engine.store.commit(wanted)

    expected = [ActionFailed(positions[number]) if number in positions else Applied() for number in range(30)]
    assert list(answers) == expected
    assert balances(engine, 30) == [None if number in positions else 5 for number in range(30)]
    assert records(engine, [wanted[number] for number in positions]) == [None] * 4
    assert all(engine.account(f"account-{number}/{place}") is None for number in positions for place in range(3))


def test_each_that_meets_another_record_is_told_with_what_is_there(engine: Engine) -> None:
    """A first record is put neither over a completed one nor over one that has expired; an expired one that was read is
    replaced, and not if it has changed since.
    """
    there = [settled(claimed("key-1")), *(claimed(f"key-{number}", expiration=1) for number in (2, 4, 5))]
    insert_each(engine, there)
    changed = settled(there[2])
    engine.store.replace([Change(changed, there[2])])
    wanted = commits(engine, 6)
    for number, read in ((4, there[2]), (5, there[3])):
        wanted[number] = Commit(settling(read), wanted[number].actions)
    met = {1: there[0], 2: there[1], 4: changed}

    answers = engine.store.commit(wanted)

    assert all(refused(answers[number], record) for number, record in met.items())
    assert [answers[number] for number in (0, 3, 5)] == [Applied()] * 3
    assert balances(engine, 6) == [5, None, None, 5, None, 5]
    assert records(engine, [wanted[number] for number in met]) == [*met.values()]


def test_commits_on_one_item_take_effect_in_their_order(engine: Engine) -> None:
    """Each finds what the one before has left."""

    def noting(number: int) -> Commit:
        tx = Transaction()
        tx.update(
            TableName=engine.accounts,
            Key={"account": "shared"},
            UpdateExpression="SET #n = :now",
            ConditionExpression="#n = :before" if number else "attribute_not_exists(#n) AND :before < :now",
            ExpressionAttributeNames={"#n": "last"},
            ExpressionAttributeValues={":before": number - 1, ":now": number},
        )
        return committing(engine, number, tx)

    assert list(engine.store.commit([noting(number) for number in range(8)])) == [Applied()] * 8
    shared = engine.account("shared")
    assert shared is not None
    assert shared["last"] == 7


def test_the_same_commits_again_take_effect_once(engine: Engine) -> None:
    """In the same company, in another, and alone."""
    wanted = commits(engine, 6)
    engine.store.commit(wanted)

    for again in (wanted, wanted[::-1], wanted[2:4], wanted[:1], [*wanted, *commits(engine, 8)[6:]]):
        for commit, answer in zip(again, engine.store.commit(again), strict=True):
            assert answer in (Applied(), Conflict(commit.change.new))

    assert balances(engine, 8) == [5] * 8
    assert records(engine, wanted) == [commit.change.new for commit in wanted]


INVALID = {
    "a table that is not there": {"TableName": "nowhere", "Key": {"account": "a"}, "UpdateExpression": "ADD n :n"},
    "a change of the key": {"Key": {"account": "a"}, "UpdateExpression": "ADD account :n"},
    "another key": {"Key": {"other": "a"}, "UpdateExpression": "ADD n :n"},
    "no update": {"Key": {"account": "a"}, "UpdateExpression": "ADD :n n"},
}
LENIENT = {"ministack": ("another key", "no update")}
"""What an emulator takes."""


@pytest.mark.parametrize("kind", INVALID)
def test_one_that_is_invalid_fails_alone(engine: Engine, kind: str, request: pytest.FixtureRequest) -> None:
    """Among fifty, for good."""
    name = request.node.callspec.params["engine"]
    if name == "named" and is_ministack(os.environ["CONTRACT_ENDPOINT"]):
        name = "ministack"
    if kind in LENIENT.get(name, ()):
        pytest.skip("this engine takes it")
    arguments: dict[str, Any] = {"TableName": engine.accounts, "ExpressionAttributeValues": {":n": 1}}
    tx = Transaction()
    tx.update(**arguments | INVALID[kind])
    wanted = [committing(engine, number, tx if number == 31 else None) for number in range(50)]

    answers = list(engine.store.commit(wanted))

    assert refused_permanently(answers[31])
    assert answers[:31] + answers[32:] == [Applied()] * 49
    assert records(engine, wanted[31:32]) == [None]
    assert balances(engine, 50) == [None if number == 31 else 5 for number in range(50)]


def test_two_on_one_item_that_only_dynamodb_can_know_fail_nobody(limited_engine: Engine) -> None:
    """Where all actions are Puts, their table's key is not known here: DynamoDB refuses such a request."""

    def putting(number: int, account: str) -> Commit:
        tx = Transaction()
        tx.put(TableName=limited_engine.accounts, Item={"account": account, "by": number})
        return committing(limited_engine, number, tx)

    wanted = [putting(number, "shared" if number in (2, 7) else f"account-{number}") for number in range(10)]

    assert list(limited_engine.store.commit(wanted)) == [Applied()] * 10
    assert limited_engine.account("shared") == {"account": "shared", "by": 7}


def test_an_item_that_is_too_large_fails_its_commit_alone(limited_engine: Engine) -> None:
    """Of 400 KB with its names: its neighbours take effect."""
    tx = Transaction()
    tx.put(TableName=limited_engine.accounts, Item={"account": "large", "data": "x" * 400 * 1024})
    wanted = [committing(limited_engine, number, tx if number == 1 else None) for number in range(4)]

    answers = list(limited_engine.store.commit(wanted))

    assert refused_permanently(answers[1])
    assert answers[:1] + answers[2:] == [Applied()] * 3


def test_a_record_that_cannot_be_stored_fails_its_commit_alone(engine: Engine) -> None:
    """As in a batch of inserts."""
    unstorable = Commit(Change(Record(id="a\ud800", status="COMPLETED", version="v"), None), ())

    first, second, third = engine.store.commit([*commits(engine, 1), unstorable, committing(engine, 2)])

    assert first == third == Applied()
    assert refused_permanently(second)
