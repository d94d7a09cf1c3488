"""An idempotent function that is called again with the same key: what its callers get, and what runs."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any, cast

import pytest
from pydantic import BaseModel

from idempotent_receiver import (
    FingerprintMismatch,
    InProgress,
    LostClaim,
    MemoryStore,
    NotStarted,
    Payload,
    PermanentError,
    RecordUnreadable,
    ResultUnavailable,
    StoreUnavailable,
    Transaction,
    UnusableKey,
    current_claim,
    event_id,
    idempotent,
    payload_key,
)
from tests.contexts import Context as Invocation
from tests.counting_store import CountingStore
from tests.manual_clock import START_MS, ManualClock


class Receipt(BaseModel):
    """The result of a charge."""

    order: str
    amount: Decimal
    at: datetime


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


def by_order(order: dict[str, Any], *_: object, **__: object) -> str:
    return str(order["id"])


def record(store: MemoryStore, key: str = "1") -> dict[str, Any]:
    return store.items[f"tests#{key}"]


def test_the_first_result_is_returned_to_every_later_call(store: CountingStore, clock: ManualClock) -> None:
    """As the annotated type, and the function runs once. The first call takes two requests, a replay one."""
    runs = []

    @idempotent(store, key=by_order, lease_seconds=60, clock=clock)
    def charge(order: dict[str, Any]) -> Receipt:
        runs.append(order)
        return Receipt(order=order["id"], amount=Decimal("9.90"), at=datetime(2026, 1, 2, tzinfo=UTC))

    first = charge({"id": "1"})
    assert store.asked == ["insert", "replace"]
    store.asked.clear()
    again = charge({"id": "1"})

    assert store.asked == ["insert"]
    assert first == again == Receipt(order="1", amount=Decimal("9.90"), at=datetime(2026, 1, 2, tzinfo=UTC))
    assert len(runs) == 1


def test_a_result_without_an_annotation_comes_back_as_json_and_none_as_none(
    store: CountingStore, clock: ManualClock
) -> None:
    results = {"1": {"a": [1, None]}, "2": None}

    @idempotent(store, key=by_order, lease_seconds=60, clock=clock)
    def work(order):  # type: ignore[no-untyped-def]  # that is the point
        return results[order["id"]]

    for id, result in results.items():
        assert [work({"id": id}), work({"id": id})] == [result, result]


def test_other_keys_run_for_themselves(store: CountingStore, clock: ManualClock) -> None:
    @idempotent(store, key=by_order, lease_seconds=60, clock=clock)
    def work(order: dict[str, Any]) -> str:
        return f"done {order['id']}"

    assert [work({"id": "1"}), work({"id": "2"})] == ["done 1", "done 2"]


def test_a_result_is_kept_for_a_retention_of_minutes_and_a_live_call_for_its_lease(
    store: CountingStore, clock: ManualClock
) -> None:
    """Later the same key is a new call, such as an intended second purchase if the payload is the key."""
    bought: list[Any] = []

    @idempotent(store, key=payload_key(), lease_seconds=3600, retention_seconds=300, clock=clock)
    def buy(order: dict[str, Any]) -> int:
        bought.append(order)
        clock.seconds += 3000
        with pytest.raises(InProgress):
            buy(order)
        return len(bought)

    answers = [buy({"sku": "a"}), buy({"sku": "a"})]
    clock.seconds += 299
    answers.append(buy({"sku": "a"}))
    clock.seconds += 2
    answers.append(buy({"sku": "a"}))

    assert answers == [1, 1, 1, 2]


def test_an_exception_is_the_callers_and_the_next_call_runs_again(store: CountingStore, clock: ManualClock) -> None:
    attempts = []

    @idempotent(store, key=by_order, lease_seconds=60, clock=clock)
    def work(order: dict[str, Any]) -> int:
        attempts.append((current_claim().attempt, current_claim().idempotency_key))
        if len(attempts) == 1:
            raise ConnectionError("secret")
        return len(attempts)

    with pytest.raises(ConnectionError, match="secret"):
        work({"id": "1"})
    assert record(store)["status"] == "FAILED"
    assert "secret" not in json.dumps(record(store))

    assert work({"id": "1"}) == 2
    assert [attempt for attempt, _ in attempts] == [1, 2]
    assert len({key for _, key in attempts}) == 1, "what is passed downstream stays the same"


@pytest.mark.parametrize("texts", [True, False])
@pytest.mark.parametrize("awaited", [True, False])
def test_an_exceptions_text_is_stored_only_where_texts_are_on(
    store: CountingStore, clock: ManualClock, awaited: bool, texts: bool
) -> None:
    wrap = idempotent(store, key=by_order, lease_seconds=60, error_texts=texts, clock=clock)

    def work(order: dict[str, Any]) -> None:
        raise ConnectionError("the ledger is down")

    async def job(order: dict[str, Any]) -> None:
        work(order)

    with pytest.raises(ConnectionError):
        asyncio.run(wrap(job)({"id": "1"})) if awaited else wrap(work)({"id": "1"})
    assert ("the ledger is down" in record(store)["error"]) == texts


def test_a_call_in_progress_is_named_with_its_end(store: CountingStore, clock: ManualClock) -> None:
    @idempotent(store, key=by_order, lease_seconds=60, clock=clock)
    def work(order: dict[str, Any]) -> None:
        clock.seconds += 10
        with pytest.raises(InProgress, match="1: in progress") as caught:
            work(order)
        assert caught.value.until_ms == START_MS + 60_000
        assert caught.value.key == "1"

    work({"id": "1"})


def test_a_lease_that_ends_is_taken_over_and_its_late_holder_gets_the_winners_result(
    store: CountingStore, clock: ManualClock
) -> None:
    @idempotent(store, key=by_order, lease_seconds=60, clock=clock)
    def work(order: dict[str, Any]) -> str:
        if current_claim().attempt == 2:
            return "the winner's"
        clock.seconds += 61
        assert Context().run(work, order) == "the winner's", "as in another process"
        return "the loser's"

    assert work({"id": "1"}) == "the winner's"
    assert json.loads(record(store)["data"]) == "the winner's"


def test_a_claim_that_was_lost_to_one_that_still_runs_is_said(store: CountingStore, clock: ManualClock) -> None:
    @idempotent(store, key=by_order, lease_seconds=60, clock=clock)
    def work(order: dict[str, Any]) -> str:
        store.items["tests#1"] |= {"version": "another's"}
        return "the loser's"

    with pytest.raises(LostClaim, match="took over"):
        work({"id": "1"})
    assert record(store)["status"] == "INPROGRESS"


def test_another_payload_under_the_same_key_is_a_mismatch(store: CountingStore, clock: ManualClock) -> None:
    runs = []

    @idempotent(store, key=by_order, lease_seconds=60, clock=clock)
    def work(order: dict[str, Any], note: object = None) -> None:
        runs.append(order)

    work({"id": "1", "amount": 5}, object())
    work({"amount": 5, "id": "1"}, object())  # what is not JSON is not compared
    with pytest.raises(FingerprintMismatch, match="take a new key"):
        work({"id": "1", "amount": 6})
    assert len(runs) == 1


def test_what_counts_of_a_payload_is_for_the_user_to_say(store: CountingStore, clock: ManualClock) -> None:
    @idempotent(store, key=by_order, lease_seconds=60, clock=clock, payload=Payload(without=("sent_at",)))
    def work(order: dict[str, Any]) -> str:
        return str(order["sent_at"])

    assert work({"id": "1", "sent_at": "now"}) == work({"id": "1", "sent_at": "later"}) == "now"
    with pytest.raises(FingerprintMismatch):
        work({"id": "1", "sent_at": "now", "amount": 1})

    @idempotent(MemoryStore("a"), key=by_order, lease_seconds=60, clock=clock, payload=None)
    def anything(order: dict[str, Any]) -> int:
        return int(order["amount"])

    assert anything({"id": "1", "amount": 1}) == anything({"id": "1", "amount": 2}) == 1


def test_the_payload_can_be_the_key(store: CountingStore, clock: ManualClock) -> None:
    @idempotent(store, key=payload_key("[order.id, amount]"), lease_seconds=60, clock=clock)
    def work(order: dict[str, Any], amount: int) -> float:
        return clock.seconds

    first = work({"id": "1", "x": 1}, 5)
    clock.seconds += 1

    with pytest.raises(FingerprintMismatch):
        work({"id": "1", "x": 2}, 5)
    assert work({"id": "1", "x": 1}, amount=5) == first
    assert work({"id": "1", "x": 1}, 6) != first


def test_arguments_with_a_name_twice_in_json_stay_distinct(store: CountingStore, clock: ManualClock) -> None:
    """Such as a dict with a number and its string as keys."""

    @idempotent(store, key=lambda order: "1", lease_seconds=60, clock=clock)
    def work(order: dict[Any, Any]) -> str:
        return "done"

    assert work({1: "a", "1": "b"}) == work({1: "a", "1": "b"}) == "done"
    with pytest.raises(FingerprintMismatch):
        work({"1": "b"})


def test_an_event_is_known_by_its_id_whatever_carries_it(store: CountingStore, clock: ManualClock) -> None:
    runs = []

    @idempotent(store, key=event_id, clock=clock)
    def handler(event: dict[str, Any], context: Invocation) -> None:
        runs.append(event)

    bridge = {"id": "e-1", "detail-type": "Order placed", "detail": {}}
    sns = {"Records": [{"EventSource": "aws:sns", "Sns": {"MessageId": "s-1", "Message": "{}"}}]}
    for event in (bridge, sns, bridge, sns):
        handler(event, Invocation(clock))

    assert runs == [bridge, sns]
    with pytest.raises(UnusableKey, match="neither EventBridge's event nor one of SNS"):
        handler({"id": "1"}, Invocation(clock))


def test_inside_lambda_the_lease_ends_with_the_invocation(store: CountingStore, clock: ManualClock) -> None:
    """The context is found among the arguments, whatever its position and name."""

    @idempotent(store, key=by_order, clock=clock)
    def work(order: dict[str, Any], *, lambda_context: Invocation) -> None:
        held = record(store)
        assert held["in_progress_expiration"] == START_MS + 33_000
        assert held["owner"] == "invocation-1"
        assert current_claim().remaining_time_ms() == 30_000

    work({"id": "1"}, lambda_context=Invocation(clock))
    assert record(store)["status"] == "COMPLETED"


@pytest.mark.scenario("S44", mutant="a nested claim stays the current one")
def test_a_nested_call_has_the_outer_ones_deadline_and_lease_and_a_key_of_its_own(
    store: CountingStore, clock: ManualClock
) -> None:
    ends = [START_MS + 33_000]

    @idempotent(store.named("inner"), key=str, clock=clock)
    def inner(name: str) -> str:
        clock.seconds += 5
        item = store.items[f"tests.inner#{name}"]
        ends.append(item["in_progress_expiration"])
        return f"{current_claim().key} of {item['owner']}"

    @idempotent(store, key=by_order, clock=clock)
    def outer(order: dict[str, Any], context: Invocation) -> list[str]:
        before = current_claim().key
        said = [inner("a"), inner("b"), inner("a")]
        assert current_claim().key == before
        return said

    assert outer({"id": "1"}, Invocation(clock)) == ["a of invocation-1", "b of invocation-1", "a of invocation-1"]
    assert {*ends} == {START_MS + 33_000}
    assert {item["status"] for item in store.items.values()} == {"COMPLETED"}


def test_outside_lambda_without_a_lease_the_remedy_is_named(store: CountingStore, clock: ManualClock) -> None:
    @idempotent(store, key=by_order, clock=clock)
    def work(order: dict[str, Any]) -> None:
        raise AssertionError("never run")

    with pytest.raises(TypeError, match="lease_seconds"):
        work({"id": "1"})
    assert store.items == {}


def test_with_too_little_time_left_nothing_is_begun(store: CountingStore, clock: ManualClock) -> None:
    @idempotent(store, key=by_order, clock=clock)
    def work(order: dict[str, Any], context: Invocation) -> None:
        raise AssertionError("never run")

    with pytest.raises(NotStarted, match="nothing ran"):
        work({"id": "1"}, Invocation(clock, seconds=1))
    assert store.asked == []


def test_a_claim_that_took_too_long_is_given_back(store: CountingStore, clock: ManualClock) -> None:
    @idempotent(store, key=by_order, clock=clock)
    def work(order: dict[str, Any], context: Invocation) -> int:
        return current_claim().attempt

    def slow(name: str) -> None:
        clock.seconds += 9 if name == "insert" else 0

    store.before = slow
    with pytest.raises(NotStarted):
        work({"id": "1"}, Invocation(clock, seconds=10))
    store.before = lambda name: None
    assert record(store)["in_progress_expiration"] <= clock.epoch_ms()

    assert work({"id": "1"}, Invocation(clock)) == 1, "what was never started does not count"


def test_by_the_later_clock_it_may_be_too_late_to_start(store: CountingStore, clock: ManualClock) -> None:
    """The machine was suspended while the store answered: its monotonic clock stood still, and the lease has ended."""
    runs = []

    @idempotent(store, key=by_order, clock=clock)
    def work(order: dict[str, Any], context: object) -> None:
        runs.append(order)

    def suspended(name: str) -> None:
        clock.stepped_seconds += 3600 if name == "insert" else 0

    store.before = suspended
    with pytest.raises(NotStarted):
        work({"id": "1"}, Invocation(clock))

    assert runs == []
    assert store.asked == ["insert", "replace"], "what was claimed is given back"
    assert record(store)["in_progress_expiration"] <= clock.epoch_ms()


def test_nothing_is_claimed_by_a_call_that_is_too_late_by_either_clock(
    store: CountingStore, clock: ManualClock
) -> None:
    """An outer call was suspended: the next inner call claims nothing, although the monotonic clock leaves time."""

    @idempotent(store.named("inner"), key=str, clock=clock)
    def inner(name: str) -> None: ...

    @idempotent(store, key=by_order, clock=clock)
    def outer(order: dict[str, Any], context: object) -> None:
        clock.stepped_seconds += 3600
        store.asked.clear()
        inner("a")

    with pytest.raises(NotStarted):
        outer({"id": "1"}, Invocation(clock))

    assert store.asked == ["replace"], "the outer one's own end"
    assert record(store)["status"] == "FAILED"


def test_a_wall_clock_that_steps_back_keeps_no_call_from_its_deadline(store: CountingStore, clock: ManualClock) -> None:
    """The later of the two clocks counts."""

    @idempotent(store.named("inner"), key=str, clock=clock)
    def inner(name: str) -> str:
        return name

    @idempotent(store, key=by_order, clock=clock)
    def outer(order: dict[str, Any], context: object) -> str:
        clock.stepped_seconds -= 3600
        before = inner("a")
        clock.seconds += 29.5
        with pytest.raises(NotStarted):
            inner("b")
        return before

    assert outer({"id": "1"}, Invocation(clock)) == "a"


def test_a_coroutine_whose_loop_stood_still_after_its_claim_is_not_started(
    store: CountingStore, clock: ManualClock
) -> None:
    """The machine was suspended in another coroutine of the loop, between this one's claim and its start."""
    runs = []

    @idempotent(store, key=by_order, clock=clock)
    async def work(order: dict[str, Any], context: object) -> None:
        runs.append(order)

    async def both() -> None:
        thread = ThreadPoolExecutor(1)
        asyncio.get_running_loop().set_default_executor(thread)
        task = asyncio.create_task(work({"id": "1"}, Invocation(clock)))
        await asyncio.sleep(0)
        thread.submit(lambda: None).result()  # it runs one job after the other, so the claim has been made
        clock.stepped_seconds += 3600
        with pytest.raises(NotStarted):
            await task

    asyncio.run(both())

    assert runs == []
    assert record(store)["in_progress_expiration"] <= clock.epoch_ms()


def test_a_store_that_is_down_is_said_before_and_after_the_run(store: CountingStore, clock: ManualClock) -> None:
    runs = []

    @idempotent(store, key=by_order, lease_seconds=60, clock=clock)
    def work(order: dict[str, Any]) -> None:
        runs.append(order)
        store.down = {"replace", "read"}

    store.down = {"insert", "read"}
    with pytest.raises(StoreUnavailable, match=r"nothing ran: .* is down") as before:
        work({"id": "1"})
    assert (before.value.ran, runs) == (False, [])

    store.down = set()
    with pytest.raises(StoreUnavailable, match="the function ran") as after:
        work({"id": "2"})
    assert (after.value.ran, len(runs)) == (True, 1)


def test_a_record_that_is_none_of_ours_is_left_alone(store: CountingStore, clock: ManualClock) -> None:
    store.items["tests#1"] = {"id": "tests#1", "status": "PAUSED"}

    @idempotent(store, key=by_order, lease_seconds=60, clock=clock)
    def work(order: dict[str, Any]) -> None:
        raise AssertionError("never run")

    with pytest.raises(RecordUnreadable, match="PAUSED"):
        work({"id": "1"})
    assert record(store) == {"id": "tests#1", "status": "PAUSED"}


def test_a_transaction_commits_with_the_completion_or_not_at_all(store: CountingStore, clock: ManualClock) -> None:
    """It is passed because of its annotation, not by the caller."""

    @idempotent(store, key=by_order, lease_seconds=60, clock=clock)
    def post(order: dict[str, Any], tx: Transaction, note: str = "") -> str:
        tx.put(
            TableName="entries",
            Item={"id": order["entry"]},
            ConditionExpression="attribute_not_exists(id)",
            otherwise=PermanentError("posted before"),
        )
        return note

    assert list(inspect.signature(post).parameters) == ["order", "note"]
    assert post({"id": "1", "entry": "e"}, note="n") == "n"  # type: ignore[call-arg]  # tx is given
    with pytest.raises(PermanentError, match="posted before"):
        post({"id": "2", "entry": "e"})  # type: ignore[call-arg]
    assert (record(store, "1")["status"], record(store, "2")["status"]) == ("COMPLETED", "FAILED")
    assert store.asked == ["insert", "commit", "insert", "commit", "replace"]


def test_a_transaction_is_given_wherever_its_parameter_stands(clock: ManualClock) -> None:
    """The caller's arguments follow the signature without it."""
    once = partial(idempotent, key=lambda *args, **kwargs: "1", payload=None, lease_seconds=60, clock=clock)

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

    for function in (first, between, by_name, by_place):
        assert cast("Any", once(MemoryStore("a"))(function))("o", "n") == "Transaction o n"
    for function in (first, between):
        assert cast("Any", once(MemoryStore("a"))(function))("o", note="n") == "Transaction o n"
        assert cast("Any", once(MemoryStore("a"))(function))(order="o") == "Transaction o "
    assert asyncio.run(cast("Any", once(MemoryStore("a"))(awaited))("o", "n")) == "Transaction o n"


def test_a_transaction_is_not_the_callers_to_give(store: CountingStore, clock: ManualClock) -> None:
    """Not even by its name, to a function that takes any name: what it then wrote would not be committed."""

    @idempotent(store, key=lambda *args, **kwargs: "1", lease_seconds=60, clock=clock)
    def work(order: str, *, tx: Transaction, **notes: object) -> str:
        return type(tx).__name__

    with pytest.raises(TypeError, match="'tx' is the transaction"):
        work("o", tx="mine")

    assert store.items == {}
    assert work("o", note="n") == "Transaction"


def test_a_commit_without_an_answer_is_no_success_and_undoes_nothing(store: CountingStore, clock: ManualClock) -> None:
    """If it was committed after all, the stored result is the answer."""

    @idempotent(store, key=by_order, lease_seconds=60, clock=clock)
    def post(order: dict[str, Any], tx: Transaction) -> str:
        tx.put(TableName="entries", Item={"id": order["id"]})
        store.down = {"commit", "read"}
        store.before = lambda name: store.down.clear() if name == "replace" else None
        return "posted"

    with pytest.raises(StoreUnavailable, match="ran") as caught:
        post({"id": "1"})  # type: ignore[call-arg]
    assert caught.value.ran
    assert record(store)["status"] == "FAILED"


@pytest.mark.parametrize("applied", [False, True])
def test_a_commit_at_which_the_store_raises_is_settled_at_once(
    applied: bool, store: CountingStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As failed, or with the stored result if it was committed after all."""
    commit = store.commit

    def broken(commits: Any) -> Any:
        if applied:
            commit(commits)
        store.asked.append("broken commit")
        raise AttributeError("secret")

    @idempotent(store, key=by_order, lease_seconds=60, clock=clock)
    def post(order: dict[str, Any], tx: Transaction) -> str:
        tx.put(TableName="entries", Item={"id": order["id"]})
        return "posted"

    monkeypatch.setattr(store, "commit", broken)
    if applied:
        assert post({"id": "1"}) == "posted"  # type: ignore[call-arg]  # tx is given
    else:
        with pytest.raises(StoreUnavailable, match=f"the store raised AttributeError at {__name__}.broken:"):
            post({"id": "1"})  # type: ignore[call-arg]
    assert [name for name in store.asked if name != "commit"] == ["insert", "broken commit", "replace"]
    assert record(store)["status"] == ("COMPLETED" if applied else "FAILED")
    assert clock.sleeps == []


def test_a_result_that_is_no_json_is_the_first_callers_and_a_replay_says_so(
    store: CountingStore, clock: ManualClock
) -> None:
    result = object()

    @idempotent(store, key=by_order, lease_seconds=60, clock=clock)
    def work(order: dict[str, Any]) -> object:
        return result

    assert work({"id": "1"}) is result
    with pytest.raises(ResultUnavailable, match="the effect is done; the result was not kept: not JSON"):
        work({"id": "1"})


def test_a_stored_result_of_another_type_is_an_error(store: CountingStore, clock: ManualClock) -> None:
    """The function was changed between two calls."""

    def work(order: dict[str, Any]) -> Any:
        return "text"

    wrap = idempotent(store, key=by_order, lease_seconds=60, clock=clock)
    wrap(work)({"id": "1"})
    work.__annotations__["return"] = int
    with pytest.raises(ResultUnavailable, match="int"):
        wrap(work)({"id": "1"})


def test_a_coroutine_function_is_awaited_and_runs_once(store: CountingStore, clock: ManualClock) -> None:
    runs = []

    @idempotent(store, key=by_order, lease_seconds=60, clock=clock)
    async def work(order: dict[str, Any]) -> str:
        await asyncio.sleep(0)
        runs.append(current_claim().key)
        return "done"

    async def twice() -> list[str]:
        return [await work({"id": "1"}), await work({"id": "1"})]

    assert asyncio.run(twice()) == ["done", "done"]
    assert runs == ["1"]


def test_a_coroutine_that_is_cancelled_is_recorded_as_failed(store: CountingStore, clock: ManualClock) -> None:
    @idempotent(store, key=by_order, lease_seconds=60, clock=clock)
    async def work(order: dict[str, Any], started: asyncio.Event) -> None:
        started.set()
        await asyncio.Event().wait()

    async def cancelled() -> None:
        started = asyncio.Event()
        task = asyncio.create_task(work({"id": "1"}, started))
        await started.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()

    asyncio.run(cancelled())
    assert record(store)["status"] == "FAILED"


class Gate:
    """Blocks the first request of one name to a store, on its thread, until it is opened."""

    def __init__(self, store: CountingStore, name: str) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        self.name = name
        store.before = self._hold

    def _hold(self, name: str) -> None:
        if name == self.name and not self.reached.is_set():
            self.reached.set()
            assert self.opened.wait(10)

    async def cancel_there(self, work: Coroutine[Any, Any, object]) -> None:
        """Start some work and cancel it twice while it is blocked, as a closing loop does."""
        task = asyncio.create_task(work)
        assert await asyncio.to_thread(self.reached.wait, 10)
        for _ in range(2):
            for one in asyncio.all_tasks() - {asyncio.current_task()}:
                one.cancel()
            for _ in range(5):
                await asyncio.sleep(0)
        left = task.done()
        self.opened.set()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        assert not left, "it left a thread at work behind it"


def test_a_caller_that_is_cancelled_while_it_claims_leaves_no_claim(store: CountingStore, clock: ManualClock) -> None:
    """Nothing has run, so the next call need not wait for the lease's end."""

    @idempotent(store, key=by_order, lease_seconds=3600, clock=clock)
    async def work(order: dict[str, Any]) -> int:
        return current_claim().attempt

    async def cancelled_and_called_again() -> int:
        await Gate(store, "insert").cancel_there(work({"id": "1"}))
        assert record(store)["in_progress_expiration"] <= clock.epoch_ms()
        return await work({"id": "1"})

    assert asyncio.run(cancelled_and_called_again()) == 1, "what was never started does not count"


def test_a_caller_that_is_cancelled_and_has_claimed_nothing_gives_nothing_back(
    store: CountingStore, clock: ManualClock
) -> None:
    @idempotent(store, key=by_order, lease_seconds=3600, clock=clock)
    async def work(order: dict[str, Any]) -> str:
        return "done"

    asyncio.run(work({"id": "1"}))  # type: ignore[arg-type]  # what is wrapped is a coroutine function still
    done = record(store).copy()
    store.asked.clear()
    asyncio.run(Gate(store, "insert").cancel_there(work({"id": "1"})))

    assert (record(store), store.asked) == (done, ["insert"])


def test_a_caller_that_is_cancelled_while_it_settles_has_settled(store: CountingStore, clock: ManualClock) -> None:
    runs = []

    @idempotent(store, key=by_order, lease_seconds=3600, clock=clock)
    async def work(order: dict[str, Any]) -> str:
        runs.append(order)
        return "done"

    async def cancelled_and_called_again() -> str:
        await Gate(store, "replace").cancel_there(work({"id": "1"}))
        assert record(store)["status"] == "COMPLETED"
        return await work({"id": "1"})

    assert asyncio.run(cancelled_and_called_again()) == "done"
    assert len(runs) == 1


def test_methods_and_static_methods_can_be_wrapped(store: CountingStore, clock: ManualClock) -> None:
    class Shop:
        @idempotent(store, key=lambda self, order: f"method-{order}", lease_seconds=60, clock=clock)
        def sell(self, order: str) -> str:
            return f"sold {order}"

        @staticmethod
        @idempotent(store.named("price"), key=lambda order: f"static-{order}", lease_seconds=60, clock=clock)
        def price(order: str) -> int:
            return len(order)

    assert [Shop().sell("a"), Shop().sell("a"), Shop.price("abc")] == ["sold a", "sold a", 3]
    with pytest.raises(TypeError, match="below @staticmethod"):
        idempotent(store, key=by_order)(staticmethod(by_order))


@dataclass
class NoTransactions:
    """A store with only what the protocol requires."""

    namespace: str | None = "tests"

    def insert(self, records: Any) -> Any: ...
    def read(self, ids: Any) -> Any: ...
    def replace(self, changes: Any) -> Any: ...


def wants_two(order: dict[str, Any], one: Transaction, two: Transaction) -> None: ...
def wants_one(order: dict[str, Any], tx: Transaction) -> None: ...
def yields(order: dict[str, Any]) -> Any:
    yield order


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        (lambda: idempotent(wants_one, key=by_order), TypeError, "@idempotent.store"),
        (lambda: idempotent(MemoryStore(), key=by_order), ValueError, "namespace"),
        (lambda: idempotent(MemoryStore("a"), key="id"), TypeError, "key must be"),
        (lambda: idempotent(MemoryStore("a"), key=payload_key), TypeError, "payload_key\\(...\\)"),
        (lambda: idempotent(MemoryStore("a"), key=by_order, lease_seconds=-1), ValueError, "lease_seconds"),
        (lambda: idempotent(MemoryStore("a"), key=by_order, payload="id"), TypeError, "Payload\\("),
        (lambda: idempotent(MemoryStore("a"), key=by_order, results="bucket"), TypeError, "S3Results"),
        (lambda: idempotent(MemoryStore("a"), key=by_order)(wants_two), TypeError, "one a call"),
        (lambda: idempotent(NoTransactions(), key=by_order)(wants_one), TypeError, "has none"),
        (lambda: idempotent(MemoryStore("a"), key=by_order)(yields), TypeError, "generator"),
    ],
)
def test_what_can_be_known_at_set_up_is_said_there(wrong: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        wrong()


def test_a_key_that_cannot_be_used_runs_nothing(store: CountingStore, clock: ManualClock) -> None:
    @idempotent(store, key=by_order, lease_seconds=60, clock=clock)
    def work(order: dict[str, Any]) -> None:
        raise AssertionError("never run")

    with pytest.raises(UnusableKey, match="empty"):
        work({"id": ""})
    with pytest.raises(UnusableKey, match="DynamoDB takes 2048"):
        work({"id": "x" * 3000})
    assert store.items == {}
