"""The ledger: what each posting writes, what is read of it, and what a trace tells of it."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import boto3
import pytest
from boto3.dynamodb.types import TypeSerializer

from app import ledger_trace
from app.ledger import Ledger
from app.ledger_reader import LedgerReader, Legs
from app.transfers import Transfer
from idempotent_receiver import MemoryStore, PermanentError, Transaction, idempotent
from idempotent_receiver.protocol.record import Record
from tests.manual_clock import ManualClock

TRANSFER = Transfer(transfer_id="t-1", from_account="alice", to_account="bob", amount=5, currency="EUR")
DESCRIBED = {"transfer_id": "t-1", "payer": "alice", "payee": "bob", "total": 5, "currency": "EUR"}


class Books:
    """The ledger's tables in memory, in which one step after the other is committed."""

    def __init__(self) -> None:
        self.store = MemoryStore("books", tables={"accounts": "account_id", "entries": "entry_id"})
        for account in ("alice", "bob"):
            item = {"account_id": account, "balance": 10, "currency": "EUR"}
            self.store.tables["accounts"].items[account,] = item
        ledger, numbers = Ledger(accounts="accounts", entries="entries"), count()

        @idempotent(self.store, key=lambda number, step, transfer: str(number), lease_seconds=60, clock=ManualClock())
        def post(number: int, step: str, transfer: Transfer, tx: Transaction) -> None:
            getattr(ledger, step)(transfer, tx)

        self.post: Any = lambda step, transfer=TRANSFER: post(next(numbers), step, transfer)  # type: ignore[call-arg]

    def get_item(self, *, TableName: str, Key: Any, ConsistentRead: bool) -> dict[str, Any]:  # noqa: N803
        assert (TableName, ConsistentRead) == ("entries", True)
        found = self.store.tables["entries"].items.get((Key["entry_id"]["S"],))
        if found is None:
            return {}
        return {"Item": {name: TypeSerializer().serialize(value) for name, value in found.items()}}

    @property
    def legs(self) -> Legs:
        return LedgerReader(self, "entries").legs(TRANSFER)  # type: ignore[arg-type]

    @property
    def balances(self) -> list[int]:
        return [each["balance"] for each in self.store.tables["accounts"].items.values()]


def entry(id: str, account: str, amount: int) -> dict[str, Any]:
    return {"entry_id": id, "account_id": account, "amount": amount, **DESCRIBED}


FIRST, SECOND = entry("t-1#1", "alice", -5), entry("t-1#2", "bob", 5)


@pytest.mark.parametrize(
    ("steps", "entries", "balances", "legs"),
    [
        ([], [], [10, 10], Legs()),
        (["debit"], [FIRST], [5, 10], Legs(taken=True)),
        (["post"], [FIRST, SECOND], [5, 15], Legs(taken=True, arrived=True)),
        (["debit", "credit"], [FIRST, SECOND], [5, 15], Legs(taken=True, arrived=True)),
        (["debit", "refund"], [FIRST, entry("t-1#2", "alice", 5)], [10, 10], Legs(taken=True, returned=True)),
        (["void"], [entry("t-1#1", "alice", 0)], [10, 10], Legs(given_up=True)),
    ],
)
def test_each_posting_writes_its_entry_and_moves_the_money(
    steps: list[str], entries: list[Any], balances: list[int], legs: Legs
) -> None:
    books = Books()
    for step in steps:
        books.post(step)
    assert list(books.store.tables["entries"].items.values()) == entries
    assert (books.balances, books.legs) == (balances, legs)
    assert legs.closed is (len(entries) == 2 or legs.given_up)


def test_a_receipt_is_an_entry_with_the_payees_balance_and_without_money() -> None:
    books = Books()
    books.post("post", TRANSFER.model_copy(update={"receipt": True}))
    assert list(books.store.tables["entries"].items.values()) == [{**entry("t-1##receipt", "bob", 0), "balance": 10}]
    assert books.balances == [10, 10]


def test_a_receipt_of_an_account_that_is_unknown_is_refused() -> None:
    with pytest.raises(PermanentError, match="account carol is unknown"):
        Books().post("post", TRANSFER.model_copy(update={"receipt": True, "to_account": "carol"}))


@pytest.mark.parametrize("name", ["from_account", "to_account", "amount", "currency"])
def test_the_leg_of_another_transfer_of_the_same_id_closes_this_one(name: str) -> None:
    books = Books()
    books.post("void", TRANSFER.model_copy(update={name: 6 if name == "amount" else "other"}))
    assert books.legs == Legs(given_up=True)


@pytest.mark.parametrize(
    ("before", "step", "changed", "says"),
    [
        ([], "debit", {"amount": 11}, "account alice is unknown or cannot pay 11 EUR"),
        ([], "debit", {"from_account": "nobody"}, "account nobody is unknown or cannot pay 5 EUR"),
        ([], "credit", {"to_account": "nobody"}, "account nobody is unknown or not in EUR"),
        ([], "refund", {"currency": "USD"}, "account alice is unknown or not in USD"),
        (["debit"], "debit", {}, "transfer t-1 was posted before, by another message"),
        (["credit"], "credit", {}, "transfer t-1 was posted before, by another message"),
    ],
)
def test_what_cannot_be_posted_fails_for_good_and_moves_nothing(
    before: list[str], step: str, changed: dict[str, Any], says: str
) -> None:
    books = Books()
    for each in before:
        books.post(each)
    balances = books.balances
    with pytest.raises(PermanentError, match=says):
        books.post(step, TRANSFER.model_copy(update=changed))
    assert books.balances == balances


@pytest.mark.parametrize(
    ("key", "data"),
    [("message-1", json.dumps({"posted": "t-1"})), ("t-1", None), ("t-1", "[]"), ("t-1", "{}")],
)
def test_a_trace_tells_the_entries_of_the_transfer_that_a_message_was_about(
    monkeypatch: pytest.MonkeyPatch, key: str, data: str | None
) -> None:
    books = Books()
    books.post("post")

    class Client:
        def get_item(self, *, TableName: str, Key: Any) -> Any:  # noqa: N803
            return books.get_item(TableName=TableName, Key=Key, ConsistentRead=True)

    monkeypatch.setenv("ENTRIES_TABLE", "entries")
    monkeypatch.setattr(boto3, "client", lambda service: {"dynamodb": Client()}[service])
    told = list(ledger_trace.entries(key, Record(id=key, status="COMPLETED", data=data)))
    assert told == [(None, "entry t-1#1: alice -5 EUR"), (None, "entry t-1#2: bob +5 EUR")]
    assert list(ledger_trace.entries("unknown", None)) == []
