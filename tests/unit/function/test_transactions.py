"""What an idempotent function writes by its transaction commits with its completion, or not at all."""

from __future__ import annotations

import asyncio
import inspect
from functools import partial
from typing import Any

import pytest

from idempotent_receiver import MemoryStore, PermanentError, StoreUnavailable, Transaction, idempotent
from tests.counting_store import CountingStore
from tests.manual_clock import ManualClock
from tests.unit.function.conftest import ORDER, record


def entry(order: dict[str, Any], tx: Transaction) -> str:
    tx.put(TableName="entries", Item={"id": order["id"]})
    return "posted"


def test_a_transaction_commits_with_the_completion_or_not_at_all(store: CountingStore, once: Any) -> None:
    """It is passed because of its annotation, not by the caller."""

    @once()
    def post(order: dict[str, Any], tx: Transaction, note: str = "") -> str:
        tx.put(
            TableName="entries",
            Item={"id": order["entry"]},
            ConditionExpression="attribute_not_exists(id)",
            otherwise=PermanentError("posted before"),
        )
        return note

    assert list(inspect.signature(post).parameters) == ["order", "note"]
    assert post({"id": "1", "entry": "e"}, note="n") == "n"
    with pytest.raises(PermanentError, match="posted before"):
        post({"id": "2", "entry": "e"})
    assert (record(store, "1")["status"], record(store, "2")["status"]) == ("COMPLETED", "FAILED")
    assert store.asked == ["insert", "commit", "insert", "commit", "replace"]


@pytest.mark.parametrize("texts", [True, False])
def test_the_text_of_a_refused_commit_is_stored_only_where_texts_are_on(
    store: CountingStore, once: Any, texts: bool
) -> None:
    @once(error_texts=texts)
    def post(order: dict[str, Any], tx: Transaction) -> None:
        tx.check(
            TableName="entries",
            Key={"id": "none"},
            ConditionExpression="attribute_exists(id)",
            otherwise=ConnectionError("the ledger is down"),
        )

    with pytest.raises(ConnectionError):
        post(ORDER)
    assert ("the ledger is down" in record(store)["error"]) is texts


def first(tx: Transaction, order: str, note: str = "") -> str:
    return f"{type(tx).__name__} {order} {note}"


def between(order: str, tx: Transaction, note: str = "") -> str:
    return first(tx, order, note)


def by_name(order: str, *notes: str, tx: Transaction) -> str:
    return first(tx, order, *notes)


def by_place(tx: Transaction, /, order: str, note: str = "") -> str:
    return first(tx, order, note)


async def awaited(order: str, tx: Transaction, note: str = "") -> str:
    return first(tx, order, note)


@pytest.mark.parametrize("function", [first, between, by_name, by_place, awaited])
def test_a_transaction_is_given_wherever_its_parameter_stands(clock: ManualClock, function: Any) -> None:
    """The caller's arguments follow the signature without it."""
    once = partial(idempotent, key=lambda *args, **kwargs: "1", payload=None, lease_seconds=60, clock=clock)

    def call(*args: Any, **kwargs: Any) -> Any:
        answer = once(MemoryStore("a"))(function)(*args, **kwargs)
        return asyncio.run(answer) if function is awaited else answer

    assert call("o", "n") == "Transaction o n"
    if function in (first, between):
        assert (call("o", note="n"), call(order="o")) == ("Transaction o n", "Transaction o ")


def test_a_transaction_is_not_the_callers_to_give(store: CountingStore, once: Any) -> None:
    """Not even by its name, to a function that takes any name: what it then wrote would not be committed."""

    @once(key=lambda *args, **kwargs: "1")
    def work(order: str, *, tx: Transaction, **notes: object) -> str:
        return type(tx).__name__

    with pytest.raises(TypeError, match="'tx' is the transaction"):
        work("o", tx="mine")
    assert store.items == {}
    assert work("o", note="n") == "Transaction"


def test_a_commit_without_an_answer_is_no_success_and_undoes_nothing(store: CountingStore, once: Any) -> None:
    """If it was committed after all, the stored result is the answer."""

    @once()
    def post(order: dict[str, Any], tx: Transaction) -> str:
        store.down = {"commit", "read"}
        store.before = lambda name: store.down.clear() if name == "replace" else None
        return entry(order, tx)

    with pytest.raises(StoreUnavailable, match="ran") as caught:
        post(ORDER)
    assert caught.value.ran
    assert record(store)["status"] == "FAILED"


@pytest.mark.parametrize("applied", [False, True])
def test_a_commit_at_which_the_store_raises_is_settled_at_once(
    applied: bool, store: CountingStore, clock: ManualClock, once: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As failed, or with the stored result if it was committed after all."""
    commit = store.commit

    def broken(commits: Any) -> Any:
        if applied:
            commit(commits)
        store.asked.append("broken commit")
        raise AttributeError("secret")

    monkeypatch.setattr(store, "commit", broken)
    post = once()(entry)
    if applied:
        assert post(ORDER) == "posted"
    else:
        with pytest.raises(StoreUnavailable, match=f"the store raised AttributeError at {__name__}.broken:"):
            post(ORDER)
    assert [name for name in store.asked if name != "commit"] == ["insert", "broken commit", "replace"]
    assert record(store)["status"] == ("COMPLETED" if applied else "FAILED")
    assert clock.sleeps == []
