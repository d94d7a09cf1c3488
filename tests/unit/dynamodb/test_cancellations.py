"""What a cancelled transaction says of its commits: of DynamoDB's model, where something else may be in the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.dynamodb.in_process import answered, client_of
from harness.dynamodb.tables import Surroundings, Tables
from idempotent_receiver import DynamoDBStore, PermanentError, Transaction
from idempotent_receiver.dynamodb import client_config
from idempotent_receiver.protocol.record import Change, Record
from idempotent_receiver.protocol.store import ActionFailed, Applied, Commit, NotApplied

if TYPE_CHECKING:
    from collections.abc import Callable

    from idempotent_receiver.protocol.store import Written

pytestmark = pytest.mark.quick


class Bank(Surroundings):
    """Accounts, some of which are throttled, and what happens while a transaction is under way."""

    def __init__(self, **balances: int) -> None:
        self.throttled: set[str] = set()
        self.meanwhile: Callable[[], object] = lambda: None
        self.after: Callable[[], object] = lambda: None
        """Happens after each request."""
        self.tables = Tables(self)
        for name in ("records", "accounts"):
            self.tables.execute("CreateTable", {"TableName": name, "KeySchema": [{"AttributeName": "id"}]})
        self.store = DynamoDBStore("records", client=client_of(self._answer, client_config()))
        for account, balance in balances.items():
            self.set(account, balance)

    def _answer(self, operation: str, body: bytes) -> tuple[int, bytes]:
        answer = answered(self.tables, operation, body)
        self.after()
        return answer

    def between(self) -> None:
        """A transaction is under way; what happens meanwhile happens once."""
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()

    def refusal(self, table: str, place: tuple[str, ...]) -> str | None:
        """The code for a throttled account."""
        return "ThrottlingError" if table == "accounts" and place[0] in self.throttled else None

    def set(self, account: str, balance: int) -> None:
        item = {"id": {"S": account}, "balance": {"N": str(balance)}}
        self.tables.execute("PutItem", {"TableName": "accounts", "Item": item})

    def transaction(self, *reads: str) -> Transaction:
        """A transaction that has read these accounts."""
        tx = Transaction(self.store.get)  # type: ignore[arg-type]  # it answers
        for account in reads:
            tx.get(TableName="accounts", Key={"id": account}, attributes=["balance"])
        return tx

    def commit(self, *transactions: Transaction) -> list[Written | ActionFailed]:
        """The answers to these transactions in one call."""
        records = [Record(id=f"key-{number}", status="COMPLETED", version="v") for number in range(len(transactions))]
        commits = [Commit(Change(one, None), tx.seal()) for one, tx in zip(records, transactions, strict=True)]
        return list(self.store.commit(commits))

    @property
    def transactions(self) -> int:
        """How many transactions were sent."""
        return self.tables.bill.requests["TransactWriteItems"]


def debit(tx: Transaction, account: str, amount: int = 10) -> Transaction:
    tx.update(
        TableName="accounts",
        Key={"id": account},
        UpdateExpression="SET balance = balance - :a",
        ConditionExpression="balance >= :a",
        ExpressionAttributeValues={":a": amount},
        otherwise=PermanentError("overdrawn"),
    )
    return tx


def contended(answer: object) -> bool:
    """Whether a commit has only lost a round."""
    return isinstance(answer, NotApplied) and answer.retry and answer.contended


def test_the_guarded_action_s_own_condition_takes_one_transaction() -> None:
    """A plain overdraft: the reason shows the account as it was read, so nothing is read or sent again."""
    bank = Bank(alice=5)
    tx = debit(bank.transaction("alice"), "alice")

    assert bank.commit(tx) == [ActionFailed(0)]
    assert bank.tables.bill.requests["GetItem"] == bank.transactions == 1


def test_a_guarded_action_that_shows_a_change_is_stale() -> None:
    bank = Bank(alice=5)
    tx = debit(bank.transaction("alice"), "alice")
    bank.set("alice", 6)

    assert bank.commit(tx) == [ActionFailed(0, stale=True)]


def test_an_item_that_is_gone_is_stale_although_it_comes_back() -> None:
    """The reason shows no item, so there was none when the condition was evaluated."""
    bank = Bank(alice=50)
    tx = debit(bank.transaction("alice"), "alice")
    bank.tables.execute("DeleteItem", {"TableName": "accounts", "Key": {"id": {"S": "alice"}}})
    bank.after = lambda: bank.set("alice", 50)

    assert bank.commit(tx) == [ActionFailed(0, stale=True)]


def test_a_condition_on_an_item_that_is_still_absent_takes_one_transaction() -> None:
    bank = Bank()
    tx = debit(bank.transaction("alice"), "alice")

    assert bank.commit(tx) == [ActionFailed(0)]
    assert bank.tables.bill.requests["GetItem"] == bank.transactions == 1


def test_a_throttle_elsewhere_that_hides_the_guard_is_contention() -> None:
    """Once it has passed, the read turns out to be stale: the condition meant nothing."""
    bank = Bank(alice=0, bob=0)
    tx = debit(bank.transaction("alice"), "bob")
    bank.set("alice", 100)
    bank.throttled = {"alice"}

    (answer,) = bank.commit(tx)
    assert contended(answer)

    bank.throttled = set()
    assert bank.commit(tx) == [ActionFailed(1, stale=True)]


def test_a_conflict_elsewhere_that_hides_the_guard_is_contention() -> None:
    """The account that was read has changed, and is being written once more."""
    bank = Bank(alice=0, bob=0)
    tx = debit(bank.transaction("alice"), "bob")
    bank.set("alice", 100)
    answers: list[object] = []
    other = {"Key": {"id": {"S": "alice"}}, "UpdateExpression": "REMOVE note", "TableName": "accounts"}
    bank.meanwhile = lambda: answers.extend(bank.commit(tx))
    bank.tables.execute("TransactWriteItems", {"TransactItems": [{"Update": other}]})

    assert list(map(contended, answers)) == [True]


def test_a_stale_read_is_told_whatever_else_is_in_the_way() -> None:
    """With current data, the handler might not request the others."""
    bank = Bank(alice=0, bob=0)
    tx = debit(bank.transaction("alice"), "bob")
    bank.set("alice", 100)
    bank.throttled = {"bob"}

    assert bank.commit(tx) == [ActionFailed(1, stale=True)]


@pytest.mark.parametrize("trouble", ["ThrottlingError", "ValidationError"])
def test_what_is_in_the_way_of_a_neighbour_may_hide_a_guard_too(trouble: str) -> None:
    """The overdraft goes again at once without that neighbour, and is told by a transaction with nothing in the way."""
    bank = Bank(alice=5, bob=5, carol=50)
    neighbour = bank.transaction()
    if trouble == "ThrottlingError":
        bank.throttled = {"bob"}
        debit(neighbour, "bob")
    else:
        neighbour.put(TableName="accounts", Item={"id": 5})
    overdraft, innocent = debit(bank.transaction("alice"), "alice"), debit(bank.transaction(), "carol")

    told, other, applied = bank.commit(overdraft, neighbour, innocent)

    assert (told, applied) == (ActionFailed(0), Applied())
    assert isinstance(other, NotApplied)
    assert other.retry is (trouble == "ThrottlingError")
    assert bank.transactions == 3


def test_a_definite_error_goes_before_a_condition_and_may_be_retried() -> None:
    """Redelivered, not failed for good: the condition may have rested on what the error hides."""
    bank = Bank(alice=0, bob=0)
    tx = debit(bank.transaction("alice"), "bob")
    tx.put(TableName="accounts", Item={"id": 5})

    (answer,) = bank.commit(tx)

    assert isinstance(answer, NotApplied)
    assert (answer.retry, answer.contended, answer.own) == (False, False, True)
    assert "ValidationError" in answer.why
