"""An idempotent function reads through its transaction: its result rests on what stood when it was committed."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver import PermanentError, StoreUnavailable, Transaction
from idempotent_receiver.handler.attempt import MOST_RUNS
from idempotent_receiver.protocol.store import Unknown
from idempotent_receiver.testing import Table
from tests.unit.function.conftest import ORDER, record

if TYPE_CHECKING:
    from tests.counting_store import CountingStore

ACCOUNT: dict[str, Any] = {"TableName": "accounts", "Key": {"account": "a"}}
BALANCE: dict[str, Any] = {**ACCOUNT, "attributes": ["balance"]}


@pytest.fixture(autouse=True)
def account(store: CountingStore) -> dict[str, Any]:
    store.tables["accounts"] = Table("account", {"account": "a", "balance": 5})
    (item,) = store.tables["accounts"].items.values()
    return item


def changes_once(store: CountingStore, account: dict[str, Any]) -> None:
    """Somebody else changes the account before the first commit."""

    def before(name: str) -> None:
        if name == "commit":
            account["balance"] += 1
            store.before = lambda name: None

    store.before = before


def test_a_function_runs_again_on_what_is_there_now(store: CountingStore, account: dict[str, Any], once: Any) -> None:
    balances: list[int] = []

    @once()
    def take(order: dict[str, Any], tx: Transaction) -> int:
        balances.append(tx.get(**BALANCE)["balance"])
        tx.update(**ACCOUNT, UpdateExpression="SET balance = :b", ExpressionAttributeValues={":b": balances[-1] - 1})
        return balances[-1]

    changes_once(store, account)
    assert [take(ORDER), take(ORDER)] == [6, 6]
    assert balances == [5, 6]
    assert store.tables["accounts"].items["a",]["balance"] == 5
    assert record(store)["attempts"] == 1
    assert store.asked[:3] == ["insert", "commit", "commit"]


def test_a_function_that_runs_again_gets_the_same_arguments(
    store: CountingStore, account: dict[str, Any], once: Any
) -> None:
    """Not copies: an argument may be a client or a cache, which the caller keeps using."""
    given: list[object] = []

    @once()
    def look(order: dict[str, Any], tx: Transaction) -> int:
        given.append(order)
        return int(tx.get(**BALANCE)["balance"])

    changes_once(store, account)
    order = {**ORDER}
    assert look(order) == 6
    assert [each is order for each in given] == [True, True]


@pytest.mark.parametrize("annotated", [False, True])
def test_what_was_read_may_be_the_result_and_is_a_dict_like_its_replay(
    store: CountingStore, once: Any, annotated: bool
) -> None:
    def look(order: dict[str, Any], tx: Transaction) -> dict[str, Any]:
        return {"account": tx.get(**BALANCE)} if order["nested"] else tx.get(**BALANCE)

    if not annotated:
        del look.__annotations__["return"]
    looked = once()(look)
    for nested in (False, True):
        for _ in "again":
            found = looked({"id": str(nested), "nested": nested})
            assert json.loads(record(store, str(nested))["data"]) == found
            account = found["account"] if nested else found
            assert account == {"balance": 5}
            assert (account.get("account"), "account" in account) == (None, False)


def test_a_coroutine_does_so_too(store: CountingStore, account: dict[str, Any], once: Any) -> None:
    @once()
    async def look(order: dict[str, Any], tx: Transaction) -> int:
        return (await tx.aget(**BALANCE))["balance"]

    changes_once(store, account)
    assert asyncio.run(look(ORDER)) == 6


def test_a_coroutine_cancelled_before_its_next_run_releases_its_key(
    store: CountingStore, account: dict[str, Any], once: Any
) -> None:
    @once()
    async def look(order: dict[str, Any], tx: Transaction) -> int:
        return (await tx.aget(**BALANCE))["balance"]

    async def cancelled() -> None:
        task = asyncio.create_task(look(ORDER))
        loop = asyncio.get_running_loop()

        def before(name: str) -> None:
            if name == "commit":
                account["balance"] += 1
                loop.call_soon_threadsafe(task.cancel)
                store.before = lambda name: None

        store.before = before
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert record(store)["status"] == "INPROGRESS"
    assert record(store)["attempts"] == 1
    assert asyncio.run(look(ORDER)) == 6


def test_a_permanent_error_is_raised_only_if_what_it_rests_on_stands(
    store: CountingStore, account: dict[str, Any], once: Any
) -> None:
    @once()
    def take(order: dict[str, Any], tx: Transaction) -> int:
        if (balance := tx.get(**BALANCE)["balance"]) < 6:
            raise PermanentError("cannot pay")
        return int(balance)

    changes_once(store, account)
    assert take(ORDER) == 6

    account["balance"] = 0
    with pytest.raises(PermanentError, match="cannot pay"):
        take({"id": "2"})
    assert record(store, "2")["status"] == "FAILED"
    assert store.asked[-2:] == ["insert", "commit"]


def test_what_changes_every_time_is_no_result(store: CountingStore, account: dict[str, Any], once: Any) -> None:
    runs: list[int] = []

    @once()
    def look(order: dict[str, Any], tx: Transaction) -> None:
        runs.append(tx.get(**BALANCE)["balance"])
        account["balance"] += 1

    with pytest.raises(StoreUnavailable, match=r"action 1 \(ConditionCheck on accounts\) kept changing") as raised:
        look(ORDER)
    assert raised.value.ran
    assert len(runs) == MOST_RUNS


def test_a_get_that_failed_makes_no_result_even_if_it_was_caught(store: CountingStore, once: Any) -> None:
    store.get = lambda table, key: Unknown("nobody answered")  # type: ignore[method-assign]

    @once()
    def look(order: dict[str, Any], tx: Transaction) -> str:
        with pytest.raises(StoreUnavailable):
            tx.get(**BALANCE)
        return "done"

    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="nobody answered"):
            look(ORDER)
    assert record(store)["attempts"] == 2
