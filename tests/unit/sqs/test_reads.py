"""Handlers that read through their transaction: what they read stands when their outcome commits, or they run again."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

from idempotent_receiver import MemoryStore, Message, PermanentError, Transaction, current_claim
from idempotent_receiver.handler.attempt import MOST_RUNS
from idempotent_receiver.protocol.store import Unknown
from idempotent_receiver.testing import Table
from idempotent_receiver.testing.worker import SILENT, failed_ids
from tests.consumers import controlled
from tests.contexts import Context
from tests.manual_clock import ManualClock
from tests.simulation.world import FIFO, QUEUE, sqs_record

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from idempotent_receiver.protocol.store import ActionFailed, Commit, Written

ACCOUNT: dict[str, Any] = {"TableName": "accounts", "Key": {"account": "a"}}
BALANCE: dict[str, Any] = {**ACCOUNT, "attributes": ["balance"]}
CART: dict[str, Any] = {"TableName": "carts", "Key": {"account": "a"}}
MODES = ["any", "transaction"]
both_modes = pytest.mark.parametrize("effects", MODES)


class Bank(MemoryStore):
    """Accounts, with how often they were read and what was committed."""

    def __init__(self, **balances: int) -> None:
        accounts = ({"account": name, "balance": balance} for name, balance in balances.items())
        super().__init__(None, {"accounts": Table("account", *accounts)})
        self.gets = 0
        self.commits: list[Commit] = []
        self.before_commit: Callable[[], object] | None = None

    def get(self, table: str, key: Mapping[str, Any]) -> Any:
        self.gets += 1
        return super().get(table, key)

    def commit(self, commits: Sequence[Commit]) -> Sequence[Written | ActionFailed]:
        if self.before_commit is not None:
            self.before_commit()
        self.commits += commits
        return super().commit(commits)

    @property
    def accounts(self) -> dict[str, dict[str, Any]]:
        return {item["account"]: item for item in self.tables["accounts"].items.values()}

    def change(self, account: str = "a", **attributes: Any) -> None:
        """Somebody else changes an account."""
        self.accounts[account] |= attributes


def deliver(
    store: Any, function: Callable[..., Any], *records: dict[str, Any], ms: int = 30_000, **options: Any
) -> list[str]:
    """The ids that must be delivered again."""
    consumer = controlled(store, logger=SILENT, metrics=SILENT, **options)(function)
    return failed_ids(consumer({"Records": list(records)}, Context(seconds=ms / 1000)))


def messages(count: int, **body: Any) -> list[dict[str, Any]]:
    return [sqs_record(f"m{number}", body=json.dumps({"n": number, **body})) for number in range(count)]


def pay(cents: int, tx: Transaction) -> None:
    account = tx.get(**BALANCE)
    if account["balance"] < cents:
        raise PermanentError("cannot pay")
    tx.update(
        **ACCOUNT, UpdateExpression="SET balance = :b", ExpressionAttributeValues={":b": account["balance"] - cents}
    )


def record_of(store: MemoryStore, id: str = "m0") -> dict[str, Any]:
    return store.items[id]


def set_pear(tx: Transaction) -> None:
    tx.update(**CART, UpdateExpression="SET pear = :one", ExpressionAttributeValues={":one": 1})


def add_pear(tx: Transaction) -> None:
    tx.update(**CART, UpdateExpression="SET articles.pear = :one", ExpressionAttributeValues={":one": 1})


class Shop(MemoryStore):
    """One cart. While the first message's handler reads it, another worker handles a message that adds a pear."""

    def __init__(self, effects: str, add: Callable[[Transaction], None]) -> None:
        super().__init__(None, {"carts": Table("account", {"account": "a", "articles": {"apple": 1}}), "orders": "id"})
        self.effects, self.add, self.added = effects, add, False

    def get(self, table: str, key: Mapping[str, Any]) -> Any:
        def another(body: dict, tx: Transaction) -> None:
            self.add(tx)

        found = super().get(table, key)
        if not self.added:
            self.added = True
            assert deliver(self, another, sqs_record("another"), effects=self.effects) == []
        return found

    def deliver(self, function: Callable[[dict, Transaction], None]) -> list[str]:
        def handler(body: dict, tx: Transaction) -> None:
            function(body, tx)

        return deliver(self, handler, *messages(1), effects=self.effects)

    @property
    def cart(self) -> Any:
        return self.tables["carts"].items.get(("a",))


@both_modes
@pytest.mark.parametrize("names", [["articles"], ["account", "articles", "pear"]])
@pytest.mark.parametrize("check", [True, False])
def test_a_pear_that_is_added_between_a_read_and_a_put_is_not_lost(effects: str, names: list[str], check: bool) -> None:
    """The put is refused, whatever was named, and says what to do."""

    def add_milk(body: dict, tx: Transaction) -> None:
        cart = tx.get(**CART, attributes=names, check=check)
        tx.put(TableName="carts", Item={**cart, "account": "a", "milk": 1})

    store = Shop(effects, set_pear)
    assert store.deliver(add_milk) == ["m0"]
    assert store.cart == {"account": "a", "articles": {"apple": 1}, "pear": 1}
    error = json.loads(record_of(store)["error"])
    assert error["type"] == "ValueError"
    assert error["text"].startswith("a transaction's Put on carts: the item was read, ")


@both_modes
@pytest.mark.parametrize("add", [set_pear, add_pear])
def test_an_update_keeps_the_pear_that_is_added_after_the_read(effects: str, add: Callable[..., None]) -> None:
    """As an attribute that nobody names, or within the one that is read and written."""
    runs = 0

    def add_milk(body: dict, tx: Transaction) -> None:
        nonlocal runs
        runs += 1
        cart = tx.get(**CART, attributes=["articles"])
        values = {":articles": {**cart["articles"], "milk": 1}}
        tx.update(**CART, UpdateExpression="SET articles = :articles", ExpressionAttributeValues=values)

    store = Shop(effects, add)
    assert store.deliver(add_milk) == []
    assert {*store.cart, *store.cart["articles"]} == {"account", "articles", "apple", "pear", "milk"}
    assert runs == (2 if add is add_pear else 1)


@both_modes
def test_a_checkout_takes_the_pear_that_is_added_after_the_read(effects: str) -> None:
    """A delete rests on what was named, so a cart is one attribute: what nobody named goes with it."""

    def check_out(body: dict, tx: Transaction) -> None:
        cart = tx.get(**CART, attributes=["articles"])
        tx.put(TableName="orders", Item={"id": "1", "articles": cart["articles"]})
        tx.delete(**CART)

    for add, ordered in ((add_pear, {"apple": 1, "pear": 1}), (set_pear, {"apple": 1})):
        store = Shop(effects, add)
        assert store.deliver(check_out) == []
        assert store.cart is None
        assert store.tables["orders"].items["1",]["articles"] == ordered


@both_modes
def test_of_two_that_find_no_item_one_makes_it_and_the_other_runs_again(effects: str) -> None:
    def make(body: dict, tx: Transaction) -> None:
        found = tx.get(**CART, attributes=["made"])
        if found is None:
            tx.put(TableName="carts", Item={"account": "a", "made": body["n"]})
        else:
            tx.update(**CART, UpdateExpression="SET seen = :one", ExpressionAttributeValues={":one": 1})

    store = Shop(effects, lambda tx: make({"n": "another"}, tx))
    del store.tables["carts"].items["a",]
    assert store.deliver(make) == []
    assert store.cart == {"account": "a", "made": "another", "seen": 1}


@both_modes
@pytest.mark.parametrize("concurrency", [1, 7])
def test_a_hundred_messages_on_one_item_all_count_in_one_delivery(effects: str, concurrency: int) -> None:
    store, runs = Bank(a=1000), Counter[int]()

    def handler(body: dict, tx: Transaction) -> None:
        runs[body["n"]] += 1
        pay(1, tx)

    assert deliver(store, handler, *messages(100), effects=effects, concurrency=concurrency) == []

    assert store.accounts["a"]["balance"] == 900
    assert max(runs.values()) <= 2
    assert store.gets == runs.total()
    assert len(store.commits) == 100, "none is sent that is known to fail"


@both_modes
def test_a_payment_after_its_deposit_is_no_dead_letter(effects: str) -> None:
    store = Bank(a=0)

    def handler(body: dict, tx: Transaction) -> None:
        pay(-100 if body["n"] == 0 else 50, tx)

    assert deliver(store, handler, *messages(2), effects=effects) == []
    assert store.accounts["a"]["balance"] == 50


def changing(store: Bank, times: int = 1, **attributes: Any) -> Callable[[Transaction], Any]:
    """Reads an account, which somebody else changes right after the first few reads."""
    left = [times]

    def read(tx: Transaction) -> Any:
        account = tx.get(**BALANCE)
        if left[0]:
            left[0] -= 1
            store.change(**(attributes or {"balance": store.accounts["a"]["balance"] + 1}))
        return account

    return read


@both_modes
def test_each_run_has_its_own_transaction_and_argument_under_one_attempt(effects: str) -> None:
    store, seen = Bank(a=5), []
    read = changing(store)

    def handler(body: dict, message: Message, tx: Transaction) -> None:
        body["n"] += 1
        seen.append((body["n"], message.attempt, message.idempotency_key, current_claim().attempt, id(tx)))
        kept.append(tx)
        account = read(tx)
        tx.update(**ACCOUNT, UpdateExpression="SET seen = :s", ExpressionAttributeValues={":s": account["balance"]})

    kept: list[Transaction] = []
    assert deliver(store, handler, *messages(1), effects=effects) == []

    assert store.accounts["a"] == {"account": "a", "balance": 6, "seen": 6}
    assert [one[0] for one in seen] == [1, 1]
    assert seen[0][1:4] == seen[1][1:4]
    assert seen[0][4] != seen[1][4]
    first, second = (commit.change.new for commit in store.commits)
    assert first.version != second.version
    assert record_of(store)["attempts"] == 1


@both_modes
@pytest.mark.parametrize("queue", [QUEUE, FIFO])
def test_a_return_without_a_write_and_a_permanent_error_stand_on_what_was_read(effects: str, queue: str) -> None:
    for end in (lambda: None, lambda: permanent("frozen")):
        store, balances = Bank(a=5), []
        read = changing(store)

        failed = deliver(store, ending(read, balances, end), sqs_record("m0", queue=queue, group="g"), effects=effects)

        assert balances == [5, 6]
        assert failed == ([] if record_of(store)["status"] == "COMPLETED" else ["m0"])
        assert [len(commit.actions) for commit in store.commits] == [1, 1]


def ending(read: Callable[[Transaction], Any], balances: list[int], end: Callable[[], None]) -> Callable[..., None]:
    def handler(body: dict, tx: Transaction) -> None:
        balances.append(read(tx)["balance"])
        end()

    return handler


def permanent(text: str) -> None:
    raise PermanentError(text)


@both_modes
def test_a_permanent_error_that_no_longer_holds_is_none(effects: str) -> None:
    """It is dead-lettered on what is there when its record is written, never on what has passed."""
    store = Bank(a=0)
    read = changing(store, balance=100)

    def handler(body: dict, tx: Transaction) -> None:
        if read(tx)["balance"] < 50:
            raise PermanentError("cannot pay")
        tx.update(**ACCOUNT, UpdateExpression="SET balance = :b", ExpressionAttributeValues={":b": 50})

    assert deliver(store, handler, *messages(1), effects=effects) == []
    assert store.accounts["a"]["balance"] == 50


@both_modes
def test_an_error_that_is_retried_checks_nothing(effects: str) -> None:
    store = Bank(a=0)
    read = changing(store)

    def handler(body: dict, tx: Transaction) -> None:
        read(tx)
        raise ValueError

    assert deliver(store, handler, *messages(1), effects=effects) == ["m0"]
    assert json.loads(record_of(store)["error"])["type"] == "ValueError"
    assert store.commits == []


@both_modes
def test_what_changes_every_time_is_a_failure_that_names_table_and_action(effects: str) -> None:
    store = Bank(a=0)
    read = changing(store, times=100)
    runs = 0

    def handler(body: dict, tx: Transaction) -> None:
        nonlocal runs
        runs += 1
        read(tx)
        tx.put(TableName="others", Item={"account": "x"})
        tx.update(**ACCOUNT, UpdateExpression="SET n = :b", ExpressionAttributeValues={":b": 50})

    store.tables["others"] = Table("account")
    assert deliver(store, handler, *messages(1), effects=effects) == ["m0"]

    assert runs == MOST_RUNS
    error = json.loads(record_of(store)["error"])
    assert error["type"] == "ConditionFailed"
    assert "action 2 (Update on accounts) kept changing" in error["text"]
    assert "does the function itself write it with another client?" in error["text"]
    assert not error.get("permanent")
    assert "n" not in store.accounts["a"]


@both_modes
def test_under_a_condition_of_its_own_only_what_has_changed_runs_again(effects: str) -> None:
    store, balances = Bank(a=5), []
    read = changing(store)

    def handler(body: dict, tx: Transaction) -> None:
        balances.append(read(tx)["balance"])
        tx.update(
            **ACCOUNT,
            UpdateExpression="SET n = :b",
            ConditionExpression="balance > :b",
            ExpressionAttributeValues={":b": 50},
            otherwise=PermanentError("overdrawn"),
        )

    assert deliver(store, handler, *messages(1), effects=effects) == ["m0"]
    assert balances == [5, 6]
    assert json.loads(record_of(store)["error"])["text"] == "overdrawn"


@both_modes
def test_a_stale_read_comes_before_another_actions_own_condition(effects: str) -> None:
    """Had the handler known, it might not have asked for that."""
    store = Bank(a=5, b=0)
    read = changing(store)

    def handler(body: dict, tx: Transaction) -> None:
        if read(tx)["balance"] == 5:
            tx.update(
                TableName="accounts",
                Key={"account": "b"},
                UpdateExpression="SET n = :n",
                ConditionExpression="balance = :n",
                ExpressionAttributeValues={":n": 7},
                otherwise=PermanentError("not seven"),
            )

    assert deliver(store, handler, *messages(1), effects=effects) == []


@both_modes
def test_a_get_that_failed_lets_nothing_commit_even_if_it_was_caught(effects: str) -> None:
    class Down(Bank):
        def get(self, table: str, key: Mapping[str, Any]) -> Any:
            return Unknown("nobody answered")

    def returns(body: dict, tx: Transaction) -> None:
        caught(tx)
        tx.put(TableName="accounts", Item={"account": "b", "balance": 1})

    def refuses(body: dict, tx: Transaction) -> None:
        caught(tx)
        raise PermanentError("no such account")

    def caught(tx: Transaction) -> None:
        with pytest.raises(Exception, match="nobody answered"):
            tx.get(**BALANCE)

    for function in (returns, refuses):
        store = Down(a=5)
        assert deliver(store, function, *messages(1), effects=effects) == ["m0"]
        error = json.loads(record_of(store)["error"])
        assert error["type"] == "StoreUnavailable"
        assert "nobody answered" in error["text"]
        assert not error.get("permanent")
        assert "b" not in store.accounts


@both_modes
def test_without_time_for_another_run_it_is_a_failure_whose_attempt_counts(effects: str) -> None:
    store, context = Bank(a=5), Context()
    runs = 0

    def handler(body: dict, tx: Transaction) -> None:
        nonlocal runs
        runs += 1
        tx.get(**BALANCE)
        store.change(balance=runs)
        clock.seconds += 20

    clock = ManualClock()
    consumer = controlled(store, effects=effects, logger=SILENT, metrics=SILENT, clock=clock)(handler)
    assert failed_ids(consumer({"Records": messages(1)}, context)) == ["m0"]

    assert runs == 1
    assert json.loads(record_of(store)["error"])["type"] == "ConditionFailed"
    assert record_of(store)["attempts"] == 1


@both_modes
def test_what_was_to_run_again_and_found_no_time_has_failed_after_a_start(effects: str) -> None:
    """It waits for its next run while another message takes the time that is left."""
    store, clock, sent = Bank(a=5), ManualClock(), threading.Event()
    store.before_commit = sent.set

    def handler(body: dict, tx: Transaction) -> None:
        if body["n"] == 0:
            tx.get(**BALANCE)
            store.change(balance=6)
        else:
            while not sent.wait(0.005):
                clock.seconds += 0.001  # so that the commit leaves
            time.sleep(0.1)
            clock.seconds += 20

    consumer = controlled(store, effects=effects, logger=SILENT, metrics=SILENT, clock=clock)(handler)
    assert failed_ids(consumer({"Records": messages(2)}, Context())) == ["m0"]

    assert record_of(store)["status"] == "FAILED"
    assert json.loads(record_of(store)["error"])["type"] == "ConditionFailed"
    assert record_of(store)["attempts"] == 1


@both_modes
def test_a_fifo_group_goes_in_order_through_runs_that_repeat(effects: str) -> None:
    store, order = Bank(a=0), []
    store.accounts["a"]["seen"] = []

    def handler(body: dict, tx: Transaction) -> None:
        order.append(body["n"])
        account = tx.get(**ACCOUNT, attributes=["balance", "seen"])
        if order.count(body["n"]) == 1 and body["n"] % 2:
            store.change(balance=body["n"])
        seen = [*account["seen"], body["n"]]
        tx.update(**ACCOUNT, UpdateExpression="SET seen = :s", ExpressionAttributeValues={":s": seen})

    records = [sqs_record(f"m{number}", body=json.dumps({"n": number}), queue=FIFO, group="g") for number in range(6)]
    assert deliver(store, handler, *records, effects=effects, concurrency=3) == []
    assert store.accounts["a"]["seen"] == list(range(6))
    assert order == [0, 1, 1, 2, 3, 3, 4, 5, 5]


class Account(BaseModel):
    """What a handler reads."""

    balance: int


@both_modes
def test_a_coroutine_reads_with_aget(effects: str) -> None:
    store = Bank(a=100)

    async def handler(body: dict, tx: Transaction) -> None:
        account = await tx.aget(**ACCOUNT, attributes=Account)
        tx.update(**ACCOUNT, UpdateExpression="SET balance = :b", ExpressionAttributeValues={":b": account.balance - 1})

    assert deliver(store, handler, *messages(30), effects=effects, concurrency=10) == []
    assert store.accounts["a"]["balance"] == 70


def test_write_skew_is_prevented() -> None:
    """Two doctors are on call, and each may leave while the other stays: one of them stays."""
    store = Bank(a=1, b=1)

    def leave(body: dict, tx: Transaction) -> None:
        mine, other = ("a", "b") if body["n"] else ("b", "a")
        if tx.get(**BALANCE | {"Key": {"account": other}})["balance"] == 0:
            return
        key = {"account": mine}
        tx.update(
            TableName="accounts", Key=key, UpdateExpression="SET balance = :b", ExpressionAttributeValues={":b": 0}
        )

    for effects in MODES:
        before = deepcopy(store.tables["accounts"].items)
        assert deliver(store, leave, *messages(2), effects=effects, concurrency=2) == []
        assert sorted(account["balance"] for account in store.accounts.values()) == [0, 1]
        store.tables["accounts"].items = before
        store.items.clear()


@both_modes
def test_checks_that_many_share_and_then_write_all_count_in_one_delivery(effects: str) -> None:
    """On an empty account all do nothing; then somebody deposits, and each pays."""
    store, runs, began = Bank(a=0), Counter[int](), threading.Barrier(30)

    def deposit() -> None:
        store.before_commit = None
        store.change(balance=1000)

    def handler(body: dict, tx: Transaction) -> None:
        runs[body["n"]] += 1
        account = tx.get(**BALANCE)
        if runs[body["n"]] == 1:
            began.wait()
        if account["balance"]:
            pay(10, tx)

    store.before_commit = deposit
    assert deliver(store, handler, *messages(30), effects=effects, concurrency=30) == []
    assert store.accounts["a"]["balance"] == 1000 - 30 * 10
    assert max(runs.values()) <= 3


@both_modes
def test_a_cancelled_read_lets_nothing_commit_even_if_it_was_caught(effects: str) -> None:
    class Slow(Bank):
        def get(self, table: str, key: Mapping[str, Any]) -> Any:
            time.sleep(0.2)
            return super().get(table, key)

    store = Slow(a=100)

    async def handler(body: dict, tx: Transaction) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(tx.aget(**BALANCE), 0.01)
        if body["n"]:
            raise PermanentError("no such account")
        tx.put(TableName="accounts", Item={"account": "a", "balance": 0})

    assert deliver(store, handler, *messages(2), effects=effects) == ["m0", "m1"]
    assert store.accounts["a"]["balance"] == 100
    for id in ("m0", "m1"):
        error = json.loads(record_of(store, id)["error"])
        assert "was cancelled" in error["text"]
        assert not error.get("permanent")


@both_modes
def test_a_malformed_key_fails_its_message_alone(effects: str) -> None:
    store, runs = Bank(a=1000), Counter[int]()

    def handler(body: dict, tx: Transaction) -> None:
        runs[body["n"]] += 1
        if body["n"] == 0:
            tx.update(TableName="accounts", Key={"account": "b", "typo": "x"}, UpdateExpression="REMOVE n")
        else:
            pay(1, tx)

    assert deliver(store, handler, *messages(50), effects=effects, concurrency=1) == ["m0"]
    assert store.accounts["a"]["balance"] == 951
    assert max(runs.values()) <= 2


def test_a_neighbour_that_writes_another_attribute_lets_a_read_stand() -> None:
    store, runs = Bank(a=5), Counter[int]()

    def handler(body: dict, tx: Transaction) -> None:
        runs[body["n"]] += 1
        tx.get(**ACCOUNT, attributes=["balance"])
        tx.update(**ACCOUNT, UpdateExpression="ADD seen :one", ExpressionAttributeValues={":one": 1})

    assert deliver(store, handler, *messages(50), concurrency=10) == []
    assert store.accounts["a"]["seen"] == 50
    assert set(runs.values()) == {1}
