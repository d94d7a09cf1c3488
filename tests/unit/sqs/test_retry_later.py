"""A handler that says when its message is to come again: a failure, for SQS and the record, and nothing to warn of."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver import (
    MemoryStore,
    PermanentError,
    RetryLater,
    Transaction,
    http_endpoint,
    idempotent,
    sqs_consumer,
)
from idempotent_receiver.http.request import header
from idempotent_receiver.sqs.visibility import LONGEST_VISIBILITY_SECONDS
from idempotent_receiver.testing import lambda_context, sqs_event
from idempotent_receiver.testing.worker import SILENT, failed_ids
from tests.queues import Queues
from tests.unit.test_telemetry import Sink

if TYPE_CHECKING:
    from collections.abc import Callable

FAR = RetryLater("the shop opens at nine", seconds=3600)


class NotPaid(RetryLater):
    """A user's own."""

    def __init__(self, order: str) -> None:
        super().__init__(f"order {order} is not paid", seconds=90.5)


def plain(body: dict) -> None:
    raise FAR


async def coroutine(body: dict) -> None:
    raise FAR


def before_its_writes(body: dict, tx: Transaction) -> None:
    tx.put(TableName="entries", Item={"id": "1"})
    raise FAR


def on_a_condition(body: dict, tx: Transaction) -> None:
    tx.put(TableName="entries", Item={"id": "1"})
    tx.check(TableName="shops", Key={"id": "s"}, ConditionExpression="attribute_exists(id)", otherwise=FAR)


def store() -> MemoryStore:
    return MemoryStore(tables={"entries": "id", "shops": "id"})


def error_of(store: MemoryStore, id: str = "message-1") -> dict[str, Any]:
    assert store.items[id]["status"] == "FAILED"
    error: dict[str, Any] = json.loads(store.items[id]["error"])
    return error


@pytest.mark.parametrize(
    ("handler", "effects"),
    [
        (plain, "any"),
        (coroutine, "any"),
        (before_its_writes, "any"),
        (before_its_writes, "transaction"),
        (on_a_condition, "any"),
        (on_a_condition, "transaction"),
    ],
)
def test_the_message_comes_again_when_its_handler_said_and_the_record_says_why(
    handler: Callable[..., Any], effects: str
) -> None:
    """Nothing is committed, the attempt counts, and the reason is stored: its author chose the text."""
    records, sqs = store(), Queues()
    consumer = sqs_consumer(records, effects=effects, sqs=sqs, logger=SILENT, metrics=SILENT)(handler)  # type: ignore[arg-type]

    for attempts in (1, 2):
        event = sqs_event({}, receive_count=attempts)
        assert failed_ids(consumer(event, lambda_context())) == ["message-1"]
        assert sqs.hidden_seconds(event) == {"message-1": 3600}
        assert error_of(records)["type"] == "RetryLater"
        assert error_of(records)["text"] == "the shop opens at nine"
        assert records.items["message-1"]["attempts"] == attempts
    assert not records.tables["entries"].items


def test_a_subclass_says_it_too_in_whole_seconds_and_never_earlier() -> None:
    sqs, records, event = Queues(), store(), sqs_event({})

    @sqs_consumer(records, sqs=sqs, logger=SILENT, metrics=SILENT)  # type: ignore[arg-type]
    def handler(body: dict) -> None:
        raise NotPaid("o-1")

    handler(event, lambda_context())
    assert sqs.hidden_seconds(event) == {"message-1": 91}
    assert error_of(records)["type"] == "NotPaid"
    assert error_of(records)["text"] == "order o-1 is not paid"


def test_a_subclass_that_never_said_when_is_an_ordinary_failure() -> None:
    class Forgetful(RetryLater):
        def __init__(self) -> None:
            """It calls no `super().__init__`."""

    sqs, records, event = Queues(), store(), sqs_event({})

    @sqs_consumer(records, sqs=sqs, logger=SILENT, metrics=SILENT)  # type: ignore[arg-type]
    def handler(body: dict) -> None:
        raise Forgetful

    assert failed_ids(handler(event, lambda_context())) == ["message-1"]
    assert sqs.hidden_seconds(event)["message-1"] <= 4


def test_without_a_client_the_queues_own_visibility_timeout_holds() -> None:
    """The failure is the same."""
    records = store()
    consumer = sqs_consumer(records, logger=SILENT, metrics=SILENT)(plain)

    assert failed_ids(consumer(sqs_event({}), lambda_context())) == ["message-1"]
    assert error_of(records)["text"] == "the shop opens at nine"


@pytest.mark.parametrize(
    ("seconds", "hidden"),
    [
        (0, 0),
        (0.1, 1),
        (LONGEST_VISIBILITY_SECONDS + 1, LONGEST_VISIBILITY_SECONDS),
        (43_200, LONGEST_VISIBILITY_SECONDS),
    ],
)
def test_of_sqss_twelve_hours_what_may_be_gone_since_the_receive_is_left_out(seconds: float, hidden: int) -> None:
    """SQS would refuse the whole change."""
    sqs, event = Queues(), sqs_event({})

    @sqs_consumer(store(), sqs=sqs, logger=SILENT, metrics=SILENT)  # type: ignore[arg-type]
    def handler(body: dict) -> None:
        raise RetryLater(seconds=seconds)

    handler(event, lambda_context())
    assert sqs.hidden_seconds(event) == {"message-1": hidden}


@pytest.mark.parametrize("seconds", [-1, -0.001, 43_201, 1e9, float("inf"), float("nan")])
def test_a_delay_that_sqs_cannot_make_is_refused_with_the_bound_and_the_remedy(seconds: float) -> None:
    with pytest.raises(
        ValueError,
        match=r"0 to 43200 seconds \(SQS's limit is twelve hours\): for longer delays, use EventBridge Scheduler",
    ):
        RetryLater(seconds=seconds)


@pytest.mark.parametrize("seconds", ["60", None, True])
def test_a_delay_is_a_number(seconds: Any) -> None:
    with pytest.raises(TypeError, match=r" an int or a float, not (str|NoneType|bool)"):
        RetryLater(seconds=seconds)


def test_a_refused_delay_is_an_ordinary_failure_that_says_in_its_record_what_is_wrong() -> None:
    records = store()

    @sqs_consumer(records, logger=SILENT, metrics=SILENT)
    def handler(body: dict) -> None:
        raise RetryLater(seconds=90_000)

    assert failed_ids(handler(sqs_event({}), lambda_context())) == ["message-1"]
    error = error_of(records)
    assert error["type"] == "ValueError"
    assert "0 to 43200 seconds" in error["text"]
    assert error["at"].startswith(f"{__name__}.handler:")


def test_a_fifo_group_waits_behind_its_delayed_message_and_other_groups_go_on() -> None:
    """So it keeps its order: SQS gives all of it out again at the same time."""
    sqs, ran = Queues(), []

    @sqs_consumer(store(), sqs=sqs, logger=SILENT, metrics=SILENT)  # type: ignore[arg-type]
    def handler(body: dict) -> None:
        ran.append(body["n"])
        if body["n"] == 1:
            raise FAR

    event = sqs_event(*({"n": n} for n in range(1, 6)), fifo=True, groups=["g", "g", "h", "g", "h"])
    assert failed_ids(handler(event, lambda_context())) == ["message-1", "message-2", "message-4"]
    assert sorted(ran) == [1, 3, 5]
    assert sqs.hidden_seconds(event) == {"message-1": 3600, "message-2": 3600, "message-4": 3600}


def test_a_delay_is_no_dead_letter_and_a_permanent_error_is_no_delay() -> None:
    class Both(PermanentError, RetryLater):
        """It says that a retry cannot help, and that goes first."""

        def __init__(self) -> None:
            RetryLater.__init__(self, "closed", seconds=3600)

    sqs, records, event = Queues(), store(), sqs_event({})
    dead = sqs.create("dead")
    consumer = sqs_consumer(records, sqs=sqs, dead_letter_queue=dead.url, logger=SILENT, metrics=SILENT)(plain)  # type: ignore[arg-type]
    assert failed_ids(consumer(event, lambda_context())) == ["message-1"]
    assert dead.sent == []

    def both(body: dict) -> None:
        raise Both

    records = store()
    sqs_consumer(records, sqs=sqs, logger=SILENT, metrics=SILENT)(both)(event, lambda_context())  # type: ignore[arg-type]
    assert error_of(records)["permanent"] is True
    assert sqs.hidden_seconds(event)["message-1"] <= 2


def test_the_log_has_an_info_line_with_the_reason_and_no_alarm_counts_it() -> None:
    """An alarm on `Failed` tells of what nobody wanted."""
    sink = Sink("INFO")
    sqs_consumer(store(), logger=sink.logger, metrics=sink)(plain)(sqs_event({}), lambda_context())  # type: ignore[arg-type]

    assert {line["level"] for line in sink.lines} == {"INFO"}
    told, summary = sink.lines
    assert told["message_id"] == "message-1"
    assert (told["reason"], told["delay_seconds"]) == ("the shop opens at nine", 3600)
    assert "error_type" not in told, "the dashboard counts failures by it"
    assert (summary["messages"], summary["delayed"], summary["failed"]) == (1, 1, 0)
    assert (sink.metrics["Delayed"], sink.metrics["Failed"], sink.metrics["Permanent"]) == (1, 0, 0)


def test_a_delay_that_the_record_does_not_tell_of_is_a_failure_to_warn_of() -> None:
    """Nobody chose that the store is away."""

    class Away(MemoryStore):
        def replace(self, changes: Any) -> Any:
            raise ConnectionError

    sink = Sink("INFO")
    sqs_consumer(Away(), logger=sink.logger, metrics=sink)(plain)(sqs_event({}), lambda_context())  # type: ignore[arg-type]

    assert (sink.metrics["Delayed"], sink.metrics["Failed"]) == (0, 1)
    assert "WARNING" in {line["level"] for line in sink.lines}


def test_for_a_call_it_is_an_error_like_any_other() -> None:
    """It is raised to the caller, and the key may be tried again: nobody delivers a call once more."""
    runs = []

    @idempotent(MemoryStore("calls"), key=lambda order: order, lease_seconds=60)
    def work(order: str) -> None:
        runs.append(order)
        raise FAR

    for _ in range(2):
        with pytest.raises(RetryLater, match="the shop opens at nine"):
            work("o-1")
    assert runs == ["o-1", "o-1"]


def test_for_a_request_it_is_an_error_like_any_other() -> None:
    sink = Sink("INFO")

    @http_endpoint(MemoryStore("requests"), key=header("Idempotency-Key"), logger=sink.logger, metrics=sink)  # type: ignore[arg-type]
    def endpoint(event: Any, context: Any) -> Any:
        raise FAR

    request = {
        "version": "2.0",
        "rawPath": "/",
        "headers": {"idempotency-key": "k-1"},
        "requestContext": {"http": {"method": "POST", "path": "/"}},
        "body": "{}",
    }
    with pytest.raises(RetryLater):
        endpoint(request, lambda_context())
    assert sink.metrics["Failed"] == 1
    assert [line["level"] for line in sink.lines] == ["WARNING"]
