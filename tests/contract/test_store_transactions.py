"""What every store promises of a commit: the record and the handler's writes together, or nothing of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from idempotent_receiver import Transaction, sqs_consumer
from idempotent_receiver.protocol.record import Change, Record
from idempotent_receiver.protocol.store import ActionFailed, Applied, Conflict
from tests.contexts import Context
from tests.engines.sample_records import (
    at_once,
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
from tests.manual_clock import ManualClock
from tests.many_operations import commit_one
from tests.simulation.world import sqs_record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from idempotent_receiver.protocol.store import Written
    from tests.engines.engine import Engine, Item


@pytest.fixture
def claimed_record(engine: Engine) -> Record:
    """A record that is claimed, for a transaction to complete."""
    record = claimed()
    insert_all(engine, record)
    return record


def test_a_commit_writes_the_record_and_the_actions(engine: Engine, claimed_record: Record) -> None:
    """Put, update, delete and check take effect together with the record, whose other attributes stay."""
    engine.store.commit([committing(engine, 1)])
    engine.put(engine.item("key") | {"tenant": "blue"})  # type: ignore[operator]  # it is there
    change, tx = settling(claimed_record), credit(engine)
    tx.put(TableName=engine.accounts, Item={"account": "bob", "tags": {"a"}, "raw": b"\x00", "nested": [{"x": None}]})
    tx.delete(TableName=engine.accounts, Key={"account": "account-1"})
    tx.check(TableName=engine.accounts, Key={"account": "x"}, ConditionExpression="attribute_not_exists(account)")

    assert commit_one(engine.store, change, tx.actions) == Applied()

    assert engine.store.read(["key"]) == [change.new]
    item, bob = engine.item("key"), engine.account("bob")
    assert item is not None
    assert (item["tenant"], "in_progress_expiration" in item) == ("blue", False)
    assert engine.account("alice") == {"account": "alice", "balance": 5}
    assert bob is not None
    assert (bob["tags"], bob["nested"]) == ({"a"}, [{"x": None}])
    assert engine.account("account-1") is None


def test_a_commit_without_actions(engine: Engine, claimed_record: Record) -> None:
    """A transaction in which the handler wrote nothing still completes the record."""
    change = settling(claimed_record)

    assert commit_one(engine.store, change, ()) == Applied()
    assert engine.store.read(["key"]) == [change.new]


def test_the_first_failed_condition_is_reported_and_nothing_is_written(engine: Engine, claimed_record: Record) -> None:
    """In the handler's order. The refused transaction leaves no trace: once its condition holds, it goes through."""
    change, tx = settling(claimed_record), credit(engine)
    failing(engine, tx, "account-1")
    failing(engine, tx, "account-2")

    for number in (1, 2):
        assert commit_one(engine.store, change, tx.actions) == ActionFailed(number)
        assert (engine.store.read(["key"]), engine.account("alice")) == ([claimed_record], None)
        engine.store.commit([committing(engine, number)])

    assert commit_one(engine.store, change, tx.actions) == Applied()
    assert engine.account("alice") == {"account": "alice", "balance": 5}


def test_the_same_commit_twice_takes_effect_once(engine: Engine, claimed_record: Record) -> None:
    """A commit that is sent again has its effects once, and is recognised as its sender's own."""
    change, tx = settling(claimed_record), credit(engine)

    assert commit_one(engine.store, change, tx.actions) == Applied()
    assert commit_one(engine.store, change, tx.actions) in (Applied(), Conflict(change.new))
    assert engine.account("alice") == {"account": "alice", "balance": 5}


@pytest.mark.parametrize("condition_fails", [False, True])
@pytest.mark.parametrize("vanished", [False, True])
def test_a_commit_after_a_take_over_is_refused(
    engine: Engine, claimed_record: Record, vanished: bool, condition_fails: bool
) -> None:
    """A worker that has lost its claim writes nothing, resurrects nothing, and learns the new owner. The lost claim is
    the answer, even if a condition fails too.
    """
    taken_over = claimed(attempts=2)
    engine.store.replace([Change(taken_over, claimed_record)])
    if vanished:
        engine.vanish("key")
    tx = credit(engine)
    if condition_fails:
        failing(engine, tx, "nobody")

    assert refused(commit_one(engine.store, settling(claimed_record), tx.actions), None if vanished else taken_over)

    assert engine.store.read(["key"]) == [None if vanished else taken_over]
    assert engine.account("alice") is None


def test_two_actions_on_one_item_are_refused(engine: Engine, claimed_record: Record) -> None:
    """DynamoDB allows one action for an item: two are refused for good, and nothing is written."""
    tx = credit(engine)
    tx.put(TableName=engine.accounts, Item={"account": "alice", "balance": 0})

    assert refused_permanently(commit_one(engine.store, settling(claimed_record), tx.actions))
    assert (engine.store.read(["key"]), engine.account("alice")) == ([claimed_record], None)


def test_one_dict_filled_anew_for_debit_and_credit_is_a_debit_and_a_credit(
    engine: Engine, claimed_record: Record
) -> None:
    """The arguments are committed as they were at the call, although their dicts have changed since."""
    tx = Transaction()
    key: Item = {}
    values: Item = {}
    update: Item = {"UpdateExpression": "ADD balance :amount", "ExpressionAttributeValues": values}
    for account, amount in (("alice", -100), ("bob", 100)):
        key["account"], values[":amount"] = account, amount
        tx.update(TableName=engine.accounts, Key=key, **update)
    key["account"], values[":amount"] = "eve", 1_000_000

    assert commit_one(engine.store, settling(claimed_record), tx.actions) == Applied()

    assert engine.account("alice") == {"account": "alice", "balance": -100}
    assert engine.account("bob") == {"account": "bob", "balance": 100}
    assert engine.account("eve") is None


BOOKING: Item = {"account": "", "balance": 0, "notes": [{"to": ""}]}
"""A template at module level, which every message's handler fills anew."""


def test_one_template_filled_anew_for_ten_messages_of_a_batch_books_each(engine: Engine) -> None:
    """Each message commits its own values, while other handlers run."""

    def book(body: dict, tx: Transaction) -> None:  # type: ignore[type-arg]  # what users write
        BOOKING["account"], BOOKING["balance"] = body["account"], body["amount"]
        BOOKING["notes"][0]["to"] = body["account"]
        tx.put(TableName=engine.accounts, Item=BOOKING)

    bodies = [{"account": f"account-{number}", "amount": number} for number in range(10)]
    messages = [sqs_record(f"message-{number}", json.dumps(body)) for number, body in enumerate(bodies)]

    answer = sqs_consumer(engine.store)(book)({"Records": messages}, Context(ManualClock()))

    assert answer == {"batchItemFailures": []}
    for body in bodies:
        account = body["account"]
        booked = {"account": account, "balance": body["amount"], "notes": [{"to": account}]}
        assert engine.account(str(account)) == booked


def test_what_a_table_holds_is_not_what_its_action_holds(engine: Engine, claimed_record: Record) -> None:
    """Changing an item in the table does not change a transaction that is sent again."""
    tx = Transaction()
    tx.put(TableName=engine.accounts, Item={"account": "alice", "lines": [{"n": 1}]})
    set_values: Item = {":lines": [{"n": 1}]}
    update: Item = {"UpdateExpression": "SET #l = :lines", "ExpressionAttributeNames": {"#l": "lines"}}
    tx.update(TableName=engine.accounts, Key={"account": "bob"}, **update, ExpressionAttributeValues=set_values)
    assert commit_one(engine.store, settling(claimed_record), tx.actions) == Applied()

    for account in ("alice", "bob"):
        engine.account(account)["lines"][0]["n"] = 2  # type: ignore[index]  # it is there

    put, updated = tx.actions
    assert put.arguments["Item"]["lines"] == updated.arguments["ExpressionAttributeValues"][":lines"] == [{"n": 1}]


def test_a_commit_and_take_overs_exclude_each_other(shared_engine: Engine) -> None:
    """A commit and 7 take-overs at once: one wins, and the handler's writes are there if and only if it was the commit.

    A store may throttle a contending commit, but must not apply half of it.
    """
    old = claimed()
    insert_all(shared_engine, old)
    changes = [Change(settled(old, owner=str(worker)), old) for worker in range(8)]
    actions = credit(shared_engine).actions

    def write(worker: int) -> Sequence[Written]:
        if worker:
            return shared_engine.store.replace([changes[worker]])
        written = commit_one(shared_engine.store, changes[0], actions)
        assert not isinstance(written, ActionFailed)
        return [written]

    answers = at_once(write)

    winners = [worker for worker, written in enumerate(answers) if written == [Applied()]]
    assert len(winners) == 1
    assert shared_engine.store.read([old.id]) == [changes[winners[0]].new]
    assert (shared_engine.account("alice") is not None) == (winners == [0])
