"""An idempotent function that is called again with the same key: what its callers get, and what runs."""

from __future__ import annotations

import asyncio
import json
from contextvars import Context
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel, Field, Json, computed_field, model_validator

from idempotent_receiver import (
    FingerprintMismatch,
    InProgress,
    LostClaim,
    MemoryStore,
    Payload,
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
from tests.unit.function.conftest import ORDER, by_order, never, record


class Receipt(BaseModel):
    """The result of a charge."""

    order: str
    amount: Decimal
    at: datetime


def test_the_first_result_is_returned_to_every_later_call_as_the_annotated_type(
    store: CountingStore, once: Any
) -> None:
    """The function runs once. The first call takes two requests, a replay one; other keys run for themselves."""
    runs = []

    @once()
    def charge(order: dict[str, Any]) -> Receipt:
        runs.append(order["id"])
        return Receipt(order=order["id"], amount=Decimal("9.90"), at=datetime(2026, 1, 2, tzinfo=UTC))

    first, again = charge(ORDER), charge(ORDER)
    assert store.asked == ["insert", "replace", "insert"]
    assert first == again == Receipt(order="1", amount=Decimal("9.90"), at=datetime(2026, 1, 2, tzinfo=UTC))
    assert (charge({"id": "2"}).order, runs) == ("2", ["1", "2"])


class Paid(BaseModel):
    """What a service answers, and a web page shows, under other names."""

    id: str = Field("unknown", validation_alias="paymentId")
    cents: int = Field(serialization_alias="amount")
    at: datetime = Field(alias="paidAt")


class Sum(BaseModel, extra="forbid"):
    """A model with a field that is computed, and one that is parsed."""

    parts: Json[list[int]]

    @computed_field
    @property
    def total(self) -> int:
        return sum(self.parts)


def answer(call: Any) -> Any:
    """What a call returns or raises."""
    try:
        return call(ORDER)
    except Exception as error:  # noqa: BLE001  # whatever it is
        return error


PAID = {"paymentId": "1", "cents": 5, "paidAt": "2026-01-02T00:00:00Z"}


@pytest.mark.parametrize("result", [Paid.model_validate(PAID), Sum.model_validate({"parts": "[1, 2]"})])
def test_a_model_comes_back_whatever_its_fields_are_called_elsewhere(once: Any, result: BaseModel) -> None:
    """It came back with defaults for what was read under another name, or not at all."""

    def work(order: dict[str, Any]) -> Any:
        return result

    work.__annotations__["return"] = type(result)
    call = once()(work)
    assert [answer(call), answer(call)] == [result, result]


def test_what_a_type_raises_for_a_kept_result_is_not_taken_for_the_functions_error(once: Any) -> None:
    """A caller that sees the function's error tries again; the effect took place."""

    class Parsed(BaseModel):
        id: str

        @model_validator(mode="before")
        @classmethod
        def _named(cls, values: dict[str, Any]) -> dict[str, Any]:
            return {"id": values["name"]}

    def job(order: dict[str, Any]) -> Any:
        return {"id": "1"}

    once()(job)(ORDER)
    job.__annotations__["return"] = Parsed
    assert isinstance(again := answer(once()(job)), ResultUnavailable)
    assert "the call took effect; its result no longer fits the function's return type" in str(again)


def test_an_iterator_is_the_first_callers_and_is_not_kept(once: Any) -> None:
    """To keep it used it up, and its caller found nothing in it."""
    work = once()(lambda order: map(str, [1, 2]))
    assert list(work(ORDER)) == ["1", "2"]
    with pytest.raises(ResultUnavailable, match="the result was not kept: a map can be read only once: return a list"):
        work(ORDER)


@pytest.mark.parametrize("result", [{"a": [1, None]}, None])
def test_a_result_without_an_annotation_comes_back_as_json_and_none_as_none(once: Any, result: Any) -> None:
    work = once()(lambda order: result)
    assert [work(ORDER), work(ORDER)] == [result, result]


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

    answers = []
    for wait in (0, 0, 299, 2):
        clock.seconds += wait
        answers.append(buy({"sku": "a"}))
    assert answers == [1, 1, 1, 2]


def test_an_exception_is_the_callers_and_the_next_call_runs_again(store: CountingStore, once: Any) -> None:
    attempts = []

    @once()
    def work(order: dict[str, Any]) -> int:
        attempts.append((current_claim().attempt, current_claim().idempotency_key))
        if len(attempts) == 1:
            raise ConnectionError("secret")
        return len(attempts)

    with pytest.raises(ConnectionError, match="secret"):
        work(ORDER)
    assert (record(store)["status"], "secret" in json.dumps(record(store))) == ("FAILED", False)

    assert work(ORDER) == 2
    assert [attempt for attempt, _ in attempts] == [1, 2]
    assert len({key for _, key in attempts}) == 1, "what is passed downstream stays the same"


@pytest.mark.parametrize("texts", [True, False])
@pytest.mark.parametrize("awaited", [True, False])
def test_an_exceptions_text_is_stored_only_where_texts_are_on(
    store: CountingStore, once: Any, awaited: bool, texts: bool
) -> None:
    def work(order: dict[str, Any]) -> None:
        raise ConnectionError("the ledger is down")

    async def job(order: dict[str, Any]) -> None:
        work(order)

    wrap = once(error_texts=texts)
    with pytest.raises(ConnectionError):
        asyncio.run(wrap(job)(ORDER)) if awaited else wrap(work)(ORDER)
    assert ("the ledger is down" in record(store)["error"]) == texts


def test_a_call_in_progress_is_named_with_its_end(clock: ManualClock, once: Any) -> None:
    @once()
    def work(order: dict[str, Any]) -> None:
        clock.seconds += 10
        with pytest.raises(InProgress, match="1: in progress") as caught:
            work(order)
        assert (caught.value.until_ms, caught.value.key) == (START_MS + 60_000, "1")

    work(ORDER)


def test_a_lease_that_ends_is_taken_over_and_its_late_holder_gets_the_winners_result(
    store: CountingStore, clock: ManualClock, once: Any
) -> None:
    @once()
    def work(order: dict[str, Any]) -> str:
        if current_claim().attempt == 2:
            return "the winner's"
        clock.seconds += 61
        assert Context().run(work, order) == "the winner's", "as in another process"
        return "the loser's"

    assert work(ORDER) == "the winner's"
    assert json.loads(record(store)["data"]) == "the winner's"


def test_a_claim_that_was_lost_to_one_that_still_runs_is_said(store: CountingStore, once: Any) -> None:
    work = once()(lambda order: store.items["tests#1"].update(version="another's"))
    with pytest.raises(LostClaim, match="took over"):
        work(ORDER)
    assert record(store)["status"] == "INPROGRESS"


def test_another_payload_under_the_same_key_is_a_mismatch(once: Any) -> None:
    runs = []
    work = once()(lambda order, note=None: runs.append(order))
    work({"id": "1", "amount": 5})
    work({"amount": 5, "id": "1"}, None)
    with pytest.raises(FingerprintMismatch, match="use a new key"):
        work({"id": "1", "amount": 6})
    assert len(runs) == 1


def test_what_counts_of_a_payload_is_for_the_user_to_say(clock: ManualClock, once: Any) -> None:
    work = once(payload=Payload(without=("sent_at",)))(lambda order: order["sent_at"])
    assert work({"id": "1", "sent_at": "now"}) == work({"id": "1", "sent_at": "later"}) == "now"
    with pytest.raises(FingerprintMismatch):
        work({"id": "1", "sent_at": "now", "amount": 1})

    anything = idempotent(MemoryStore("a"), key=by_order, lease_seconds=60, clock=clock, payload=None)(
        lambda order: order["amount"]
    )
    assert anything({"id": "1", "amount": 1}) == anything({"id": "1", "amount": 2}) == 1


def test_the_payload_can_be_the_key(clock: ManualClock, once: Any) -> None:
    @once(key=payload_key("[order.id, amount]"))
    def work(order: dict[str, Any], amount: int) -> float:
        return clock.seconds

    first = work({"id": "1", "x": 1}, 5)
    clock.seconds += 1
    with pytest.raises(FingerprintMismatch):
        work({"id": "1", "x": 2}, 5)
    assert work({"id": "1", "x": 1}, amount=5) == first
    assert work({"id": "1", "x": 1}, 6) != first


def test_arguments_with_a_name_twice_in_json_stay_distinct(once: Any) -> None:
    """Such as a dict with a number and its string as keys."""
    work = once(key=lambda order: "1")(lambda order: "done")
    assert work({1: "a", "1": "b"}) == work({1: "a", "1": "b"}) == "done"
    with pytest.raises(FingerprintMismatch):
        work({"1": "b"})


def test_an_event_is_known_by_its_id_whatever_carries_it(clock: ManualClock, within: Any) -> None:
    runs = []
    handler = within(key=event_id)(lambda event, context: runs.append(event))
    bridge = {"id": "e-1", "detail-type": "Order placed", "detail": {}}
    sns = {"Records": [{"EventSource": "aws:sns", "Sns": {"MessageId": "s-1", "Message": "{}"}}]}
    for event in (bridge, sns, bridge, sns):
        handler(event, Invocation(clock))
    assert runs == [bridge, sns]
    with pytest.raises(UnusableKey, match="not an event from EventBridge, SNS or S3"):
        handler({"id": "1"}, Invocation(clock))


def test_a_store_that_is_down_is_said_before_and_after_the_run(store: CountingStore, once: Any) -> None:
    runs = []

    @once()
    def work(order: dict[str, Any]) -> None:
        runs.append(order)
        store.down = {"replace", "read"}

    for down, id, said in (({"insert", "read"}, "1", "nothing ran: .* is down"), (set(), "2", "the function ran")):
        store.down = down
        with pytest.raises(StoreUnavailable, match=said) as caught:
            work({"id": id})
        assert caught.value.ran is (id == "2")
        assert len(runs) == int(id) - 1


def test_a_record_that_is_none_of_ours_is_left_alone(store: CountingStore, once: Any) -> None:
    store.items["tests#1"] = foreign = {"id": "tests#1", "status": "PAUSED"}
    with pytest.raises(RecordUnreadable, match="PAUSED"):
        once()(never)(ORDER)
    assert record(store) == foreign == {"id": "tests#1", "status": "PAUSED"}


def test_a_result_that_is_no_json_is_the_first_callers_and_a_replay_says_so(once: Any) -> None:
    result = object()
    work = once()(lambda order: result)
    assert work(ORDER) is result
    with pytest.raises(ResultUnavailable, match="the call took effect; the result was not kept: not JSON"):
        work(ORDER)


def test_a_stored_result_of_another_type_is_an_error(once: Any) -> None:
    """The function was changed between two calls."""

    def work(order: dict[str, Any]) -> Any:
        return "text"

    wrap = once()
    wrap(work)(ORDER)
    work.__annotations__["return"] = Decimal
    with pytest.raises(ResultUnavailable, match="no longer fits the function's return type"):
        wrap(work)(ORDER)


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
def may_want_one(order: dict[str, Any], tx: Transaction | None = None) -> None: ...
def on_event(event: dict[str, Any], context: Any) -> None: ...
def named_event(event: dict[str, Any], more: int = 1, *, at: int, **rest: Any) -> None: ...
def yields(order: dict[str, Any]) -> Any:
    yield order


@pytest.mark.parametrize(
    ("store", "options", "function", "error", "text"),
    [
        (wants_one, {}, None, TypeError, "@idempotent.store"),
        (MemoryStore(), {}, None, ValueError, "namespace"),
        (MemoryStore("a"), {"key": "id"}, None, TypeError, "key must be"),
        (MemoryStore("a"), {"key": payload_key}, None, TypeError, "payload_key\\(...\\)"),
        (MemoryStore("a"), {"lease_seconds": -1}, None, ValueError, "lease_seconds"),
        (MemoryStore("a"), {"payload": "id"}, None, TypeError, "Payload\\("),
        (MemoryStore("a"), {"results": "bucket"}, None, TypeError, "S3Results"),
        (MemoryStore("a"), {}, wants_two, TypeError, "each call has one"),
        (MemoryStore("a"), {}, may_want_one, TypeError, "annotate 'tx' as Transaction"),
        (NoTransactions(), {}, wants_one, TypeError, "does not support"),
        (MemoryStore("a"), {}, yields, TypeError, "generator"),
        (MemoryStore("a"), {"key": lambda order: "1"}, on_event, TypeError, r"\(event, context\) .*with \*_"),
        (MemoryStore("a"), {"key": lambda event: "1"}, named_event, TypeError, r"key .*\(event, at\) .*'at'"),
    ],
)
def test_what_can_be_known_at_set_up_is_said_there(
    store: Any, options: Any, function: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        idempotent(store, **{"key": by_order, **options})(function or never)


@pytest.mark.parametrize(("id", "says"), [("", "empty"), ("x" * 3000, "DynamoDB allows 2048")])
def test_a_key_that_cannot_be_used_runs_nothing(store: CountingStore, once: Any, id: str, says: str) -> None:
    with pytest.raises(UnusableKey, match=says):
        once()(never)({"id": id})
    assert store.items == {}
