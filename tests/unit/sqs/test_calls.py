"""Handlers that call through their transaction: each call is made if and only if its handler's outcome is there."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver import (
    MemoryStore,
    PermanentError,
    RetryLater,
    Transaction,
    current_claim,
    http_endpoint,
    idempotent,
)
from idempotent_receiver.testing.worker import SILENT
from tests.contexts import Context
from tests.unit.sqs.test_sends import SHIPMENTS, Orders, Sqs, both_modes, deliver, failing, key_of, messages

if TYPE_CHECKING:
    from collections.abc import Callable

CALLED: list[Any] = []
"""What the functions below were called with."""
RAISES: dict[int, BaseException] = {}
"""What `notify` raises, by the order's number."""


@pytest.fixture(autouse=True)
def _nothing_called() -> None:
    CALLED.clear()
    RAISES.clear()


def notify(order: int, *, idempotency_key: str) -> None:
    CALLED.append((order, idempotency_key))
    if order in RAISES:
        raise RAISES[order]


def other(order: int, text: str = "") -> None:
    CALLED.append((order, text))


async def later(order: int) -> None:
    CALLED.append(order)


CALLS = [notify, other, later]


def write(body: dict, tx: Transaction) -> None:
    tx.put(TableName="orders", Item={"order": str(body["n"])})
    tx.call(notify, order=body["n"])


def call(store: Orders, sqs: Any, function: Callable[..., Any], *records: Any, **options: Any) -> list[str]:
    return deliver(store, sqs, function, *records, **{"calls": CALLS, **options})


def keys(*ids: str) -> list[str]:
    return [key_of(id) for id in ids]


@both_modes
def test_a_call_is_made_once_after_the_commit_and_then_the_record_is_completed(effects: str) -> None:
    store = Orders()
    assert call(store, None, write, *messages(3), effects=effects) == []
    assert sorted(CALLED) == [(number, key_of(f"m{number}")) for number in range(3)]
    assert {item["status"] for item in store.items.values()} == {"COMPLETED"}
    assert all(item.keys().isdisjoint({"outbox", "in_progress_expiration"}) for item in store.items.values())

    assert call(store, None, write, *messages(3, receives=2), effects=effects) == []
    assert len(CALLED) == 3, "a duplicate calls nothing"


@both_modes
def test_a_handler_that_raises_or_cannot_commit_calls_nothing(effects: str) -> None:
    store = Orders()
    assert call(store, None, failing(write), *messages(3), effects=effects) == ["m0", "m1", "m2"]
    assert (CALLED, store.orders) == ([], [])


@both_modes
def test_the_record_says_what_to_call_while_it_is_called(effects: str) -> None:
    store, seen = Orders(), []

    def look(order: int) -> None:
        seen.append(dict(store.items["m0"]))

    def handler(body: dict, tx: Transaction) -> None:
        write(body, tx)
        tx.call(look, order=5)

    assert call(store, None, handler, *messages(1), effects=effects, calls=[notify, look]) == []
    assert seen[0]["status"] == "SENDING"
    assert json.loads(seen[0]["outbox"])[1] == {"Call": "look", "Arguments": {"order": 5}}
    assert seen[0]["in_progress_expiration"] > time.time() * 1000


@both_modes
@pytest.mark.parametrize("asynchronous", [False, True])
def test_plain_and_coroutine_functions_are_called_by_either_kind_of_handler(effects: str, asynchronous: bool) -> None:
    def handler(body: dict, tx: Transaction) -> None:
        for function in (other, later, other):
            tx.call(function, order=body["n"])

    async def handler_async(body: dict, tx: Transaction) -> None:
        handler(body, tx)

    store, function = Orders(), handler_async if asynchronous else handler
    assert call(store, None, function, *messages(2), effects=effects, concurrency=2 if asynchronous else 1) == []
    assert sorted(map(str, CALLED)) == sorted(map(str, [(0, ""), 0, (0, ""), (1, ""), 1, (1, "")]))
    assert {item["status"] for item in store.items.values()} == {"COMPLETED"}


@both_modes
def test_calls_follow_messages_and_share_their_numbers(effects: str) -> None:
    order: list[str] = []

    def handler(body: dict, tx: Transaction) -> None:
        tx.send(QueueUrl=SHIPMENTS, MessageBody="a")
        tx.call(notify, order=1)
        tx.send(QueueUrl=SHIPMENTS, MessageBody="b")

    store, sqs = Orders(), Sqs(refuses=lambda entry: order.append(entry["MessageBody"]))
    assert call(store, sqs, handler, *messages(1), effects=effects) == []
    assert (sqs.keys, CALLED) == ([key_of("m0", 1), key_of("m0", 3)], [(1, key_of("m0", 2))])


@both_modes
def test_messages_that_are_not_confirmed_hold_back_no_call(effects: str) -> None:
    def handler(body: dict, tx: Transaction) -> None:
        tx.send(QueueUrl=SHIPMENTS, MessageBody="a")
        tx.call(notify, order=1)

    store, sqs = Orders(), Sqs(refuses=lambda entry: {"Code": "AccessDenied", "SenderFault": True})
    assert call(store, sqs, handler, *messages(1), effects=effects) == ["m0"]
    assert [(1, key_of("m0", 2))] == CALLED
    assert call(store, Sqs(), handler, *messages(1, receives=2), effects=effects) == []
    assert len(CALLED) == 1, "its tombstone says that it was made"


@both_modes
def test_a_call_that_raises_is_made_again_and_holds_back_no_other(effects: str) -> None:
    def handler(body: dict, tx: Transaction) -> None:
        for order in (1, 2, 3):
            tx.call(notify, order=order)

    store = Orders()
    RAISES[2] = ValueError("secret")
    assert call(store, None, handler, *messages(1), effects=effects) == ["m0"]
    assert [order for order, _ in CALLED] == [1, 2, 3]
    item = store.items["m0"]
    assert json.loads(item["outbox"]) == [None, {"Call": "notify", "Arguments": {"order": 2}}, None]
    assert (item["status"], item["in_progress_expiration"] <= time.time() * 1000) == ("SENDING", True)

    RAISES.clear()
    assert call(store, None, handler, *messages(1, receives=2), effects=effects) == []
    assert CALLED[3:] == [(2, key_of("m0", 2))], "the handler does not run again"
    assert store.status() == "COMPLETED"


@both_modes
@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), BaseException()], ids=repr)
def test_whatever_a_call_raises_is_its_messages_failure_alone(effects: str, error: BaseException) -> None:
    store = Orders()
    RAISES[1] = error
    assert call(store, None, write, *messages(3), effects=effects, concurrency=2) == ["m1"]
    assert (store.status("m0"), store.status("m1"), store.status("m2")) == ("COMPLETED", "SENDING", "COMPLETED")


@both_modes
def test_a_permanent_error_is_dead_lettered_with_its_reason_and_the_record_keeps_the_call(effects: str) -> None:
    store, sqs = Orders(), Sqs()
    RAISES[0] = PermanentError("no such address")
    options = {"effects": effects, "dead_letter_queue": f"{SHIPMENTS}-dead"}
    assert call(store, sqs, write, *messages(1), **options) == []
    (letter,) = sqs.dead
    assert "call 1 (notify) failed for good: no such address" in str(letter)
    assert (store.status(), store.orders) == ("SENDING", ["0"])

    RAISES.clear()
    assert call(store, sqs, write, *messages(1, receives=2), **options) == []
    assert (store.status(), len(CALLED)) == ("COMPLETED", 2)


class Visibilities(Sqs):
    """Keeps what visibilities it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds_of: dict[str, int] = {}

    def change_message_visibility_batch(self, **arguments: Any) -> None:
        for entry in arguments["Entries"]:
            self.seconds_of[entry["ReceiptHandle"]] = entry["VisibilityTimeout"]


@both_modes
def test_retry_later_chooses_when_a_call_is_made_again(effects: str) -> None:
    store, sqs = Orders(), Visibilities()
    RAISES[0] = RetryLater(seconds=77)
    assert call(store, sqs, write, *messages(1), effects=effects) == ["m0"]
    assert [*sqs.seconds_of.values()] == [77]


def test_current_claim_works_inside_a_call() -> None:
    def look(order: int) -> None:
        claim = current_claim()
        CALLED.append((claim.key, claim.attempt, claim.idempotency_key, claim.remaining_time_ms() > 0))

    def handler(body: dict, tx: Transaction) -> None:
        tx.call(look, order=1)

    assert call(Orders(), None, handler, *messages(1), calls=[look]) == []
    assert [("m0", 1, key_of("m0")[:-2], True)] == CALLED


@both_modes
def test_an_unknown_name_leaves_the_record_alone_and_names_the_remedy(effects: str) -> None:
    store, log = Orders(), Log()
    RAISES[0] = ValueError()
    assert call(store, None, write, *messages(1), effects=effects) == ["m0"]
    before = dict(store.items["m0"])

    options = {"effects": effects, "calls": [other], "logger": log, "metrics": log}
    assert call(store, None, write_other, *messages(1, receives=2), **options) == ["m0"]
    assert store.items["m0"] == before
    assert "calls={'notify': function}" in str(log.lines)

    RAISES.clear()
    renamed = {"informed": other, "notify": notify}
    assert call(store, None, write_other, *messages(1, receives=3), effects=effects, calls=renamed) == []
    assert store.status() == "COMPLETED"


def write_other(body: dict, tx: Transaction) -> None:
    tx.call(other, order=body["n"])


def test_arguments_that_no_longer_fit_are_a_failure_that_names_the_function() -> None:
    store, log = Orders(), Log()
    RAISES[0] = ValueError()
    call(store, None, write, *messages(1))

    def notify(order: str) -> None:
        CALLED.append("never")

    assert call(store, None, write_other, *messages(1, receives=2), calls=[notify, other]) == ["m0"]

    def notify(order: int, more: int) -> None:  # type: ignore[no-redef]
        CALLED.append("never")

    options = {"calls": [notify, other], "logger": log, "metrics": log}
    assert call(store, None, write_other, *messages(1, receives=2), **options) == ["m0"]
    assert "no longer fits: " in str(log.lines)
    assert "missing a required argument: 'more'" in str(log.lines)
    assert (store.status(), len(CALLED)) == ("SENDING", 1)


class Log:
    """Keeps all lines and metrics."""

    log_level = 10

    def __init__(self) -> None:
        self.lines: list[Any] = []
        self.metrics: dict[str, float] = {}

    def debug(self, text: str, **more: Any) -> None:
        self.lines.append((text, more))

    info = warning = error = debug

    def add_metric(self, name: str, unit: str, value: float) -> None:
        self.metrics[name] = value

    def flush_metrics(self) -> None: ...


@both_modes
def test_no_log_has_an_argument_and_its_time_is_told(effects: str) -> None:
    def secret(text: str) -> None:
        raise ValueError(text)

    def handler(body: dict, tx: Transaction) -> None:
        tx.call(secret, text="confidential")

    log = Log()
    assert call(Orders(), None, handler, *messages(1), effects=effects, calls=[secret], logger=log, metrics=log) == [
        "m0"
    ]
    assert "confidential" not in str(log.lines)
    assert "call 1 (secret): ValueError at " in str(log.lines)
    assert (log.metrics["Failed"], log.metrics["Unsettled"]) == (1, 0)
    assert "CallMilliseconds" in log.metrics

    options: dict[str, Any] = {"calls": [], "logger": log, "metrics": Log()}
    assert call(Orders(), None, only_writes, *messages(1), effects=effects, **options) == []
    assert "CallMilliseconds" not in options["metrics"].metrics


@both_modes
def test_no_more_calls_run_at_once_than_handlers_may(effects: str) -> None:
    running, most, lock = 0, 0, threading.Lock()

    def count() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.002)
        with lock:
            running -= 1

    def slow(order: int) -> None:
        count()

    def handler(body: dict, tx: Transaction) -> None:
        count()
        tx.call(slow, order=1)

    for concurrency in (1, 3):
        assert call(Orders(), None, handler, *messages(9), effects=effects, calls=[slow], concurrency=concurrency) == []
        assert most == concurrency


def test_calls_go_before_handlers_that_have_not_started() -> None:
    """Two messages' worth of time is spent on one: a call waits for the running handler alone."""
    order: list[str] = []

    def mark(n: int) -> None:
        order.append(f"call {n}")

    def handler(body: dict, tx: Transaction) -> None:
        order.append(f"handler {body['n']}")
        time.sleep(0.02)
        tx.call(mark, n=body["n"])

    assert call(Orders(), None, handler, *messages(5), calls=[mark]) == []
    assert order.index("call 0") < order.index("handler 3")


@both_modes
def test_instant_calls_of_a_hundred_messages_take_at_most_eight_marks(effects: str) -> None:
    """On a busy machine some requests leave before they are full, so one of five batches has to do."""
    marks = []
    while not marks or (min(marks) > 8 and len(marks) < 5):
        store = Orders()
        store.seconds = 0.005
        assert call(store, None, write, *messages(100), effects=effects) == []
        marks.append(store.requests["replace"])
        assert len(CALLED) == 100
        CALLED.clear()
    assert min(marks) <= 8


@both_modes
def test_who_calls_nothing_takes_the_requests_of_before(effects: str) -> None:
    """A declared function costs nothing until it is called."""
    requests = []
    for calls in ([], CALLS):
        store = Orders()
        assert call(store, None, only_writes, *messages(25), effects=effects, calls=calls) == []
        requests.append(store.requests.total())
    assert requests[0] == requests[1]


def only_writes(body: dict, tx: Transaction) -> None:
    tx.put(TableName="orders", Item={"order": str(body["n"])})


def test_other_entry_points_refuse_a_call_because_nobody_redelivers_it() -> None:
    @idempotent(MemoryStore("calls"), key=lambda order: order, lease_seconds=30)
    def take(order: str, tx: Transaction) -> None:
        tx.call(other, order=1)

    @http_endpoint(MemoryStore("http"), logger=SILENT)
    def handler(event: dict, context: Any, tx: Transaction) -> dict:
        tx.call(other, order=1)
        return {"statusCode": 200}

    request = {"httpMethod": "POST", "path": "/", "headers": {"Idempotency-Key": "k"}, "body": "{}"}
    for refuses in (lambda: take("a"), lambda: handler(request, Context())):
        with pytest.raises(RuntimeError, match="its calls are not redelivered: use an sqs_consumer"):
            refuses()


@both_modes
def test_an_undeclared_function_fails_its_message_with_the_remedy(effects: str) -> None:
    store = Orders()
    assert call(store, None, write, *messages(1), effects=effects, calls=[other]) == ["m0"]
    assert "notify is not declared: sqs_consumer(store, calls=[notify])" in store.items["m0"]["error"]
    assert (store.status(), CALLED) == ("FAILED", [])
