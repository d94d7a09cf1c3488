"""What is told of a batch, and what never is."""

from __future__ import annotations

import io
import json
import logging
from dataclasses import replace
from itertools import count
from traceback import walk_tb
from typing import TYPE_CHECKING, Any

import pytest
from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import EphemeralMetrics, SchemaValidationError

from idempotent_receiver import MemoryStore, Message, PermanentError, Transaction, http_endpoint, sqs_consumer
from idempotent_receiver.errors import Failure, InvalidBody
from idempotent_receiver.handler.outcome import (
    ClaimFailed,
    ClaimLost,
    Completed,
    DeadLettered,
    Duplicate,
    Failed,
    HeldElsewhere,
    NotSent,
    NotStarted,
    Outcome,
    SettleFailed,
    Unreadable,
)
from idempotent_receiver.protocol.record import Record
from idempotent_receiver.telemetry import CALL_COUNTS, COUNTS, OF_CLAIMS, SPENT, counts_of, line_of
from tests.consumers import controlled
from tests.contexts import Context
from tests.manual_clock import ManualClock
from tests.queues import Queues
from tests.simulation.world import sqs_record

RECORD = Record(id="k", status="COMPLETED")
FAILURE = Failure(type="Boom", at="m.f:1")
LATER = Failure(type="RetryLater", text="too early", delay_seconds=60)
FOR_GOOD = Failure(type="No", text="closed", permanent=True)
EXHAUSTED = Failure(type="ValueError", exhausted=True)

OUTCOMES: list[tuple[Outcome, int, list[str]]] = [
    (Completed(RECORD), logging.DEBUG, ["Completed"]),
    (Duplicate(RECORD), logging.DEBUG, ["Duplicates"]),
    (Duplicate(RECORD, lost=True), logging.DEBUG, ["Duplicates", "LostClaims"]),
    (HeldElsewhere(1), logging.WARNING, ["InProgress"]),
    (NotStarted(), logging.WARNING, []),
    (Failed(FAILURE), logging.WARNING, ["Failed"]),
    (Failed(FOR_GOOD), logging.ERROR, ["Failed", "Permanent"]),
    (Failed(LATER), logging.INFO, ["Delayed"]),
    (Failed(LATER, recorded=False), logging.WARNING, ["Failed"]),
    (DeadLettered(FOR_GOOD), logging.ERROR, ["Permanent"]),
    (Failed(EXHAUSTED), logging.ERROR, ["Exhausted", "Failed"]),
    (Failed(EXHAUSTED, recorded=False), logging.WARNING, ["Failed"]),
    (DeadLettered(EXHAUSTED), logging.ERROR, ["Exhausted"]),
    (ClaimLost(None), logging.ERROR, ["Failed", "LostClaims"]),
    (SettleFailed("why"), logging.ERROR, ["Failed", "Unsettled"]),
    (NotSent("why"), logging.ERROR, ["Failed", "Unsettled"]),
    (NotSent("why", out_of_time=True), logging.WARNING, []),
    (ClaimFailed("why"), logging.ERROR, ["Failed", "ClaimFailures"]),
    (Unreadable("why"), logging.ERROR, ["Failed"]),
]

if TYPE_CHECKING:
    from collections.abc import Mapping


@pytest.mark.parametrize(("outcome", "level", "names"), OUTCOMES, ids=lambda one: type(one).__name__)
def test_every_outcome_has_its_level_and_its_metrics(outcome: Outcome, level: int, names: list[str]) -> None:
    """A success is DEBUG, a failure WARNING, and what wants a person ERROR."""
    counts = counts_of([line_of(outcome)], claimed=3, taken_over=1, released=2)

    assert line_of(outcome).level == level
    told = {"Claimed": 3, "TakenOver": 1, "Released": 2} | dict.fromkeys(names, 1)
    assert counts == {name: told.get(name, 0) for name in COUNTS}


def test_every_failure_names_its_type() -> None:
    """The dashboard counts failures by it, those of the store among them."""
    failed = [line for outcome, *_ in OUTCOMES if "Failed" in (line := line_of(outcome)).counts]

    assert all("error_type" in line.fields for line in failed)


# Powertools keeps one logger per service and process, and the id of a sink that is gone may come again.
NUMBERS = count()


class Sink:
    """Where a consumer's log and metrics go."""

    def __init__(self, level: str = "DEBUG") -> None:
        self.stream = io.StringIO()
        self.logger = Logger(service=f"sink-{next(NUMBERS)}", level=level, stream=self.stream)
        self.metrics: dict[str, float] = {}
        self.units: dict[str, object] = {}

    def add_metric(self, name: str, unit: object, value: float) -> None:
        self.metrics[name] = value
        self.units[name] = unit

    def flush_metrics(self) -> None:
        self.flushed = True

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]


def told(sink: Sink, *records: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    def handle(body: dict, message: Message) -> None:
        if message.id == "bad":
            raise ValueError(f"secret of {body}")
        if message.id == "poison":
            raise PermanentError("closed")

    consumer = controlled(MemoryStore(), logger=sink.logger, metrics=sink, **options)(handle)  # type: ignore[arg-type]
    consumer({"Records": list(records)}, Context())
    return sink.lines


def test_each_message_has_a_line_with_its_id_and_key_and_the_batch_has_a_summary() -> None:
    """At their levels."""
    lines = told(Sink(), sqs_record("good"), sqs_record("bad", receives=2), sqs_record("poison"))

    by_id = {line["message_id"]: line for line in lines if "message_id" in line}
    assert {id: line["level"] for id, line in by_id.items()} == {"good": "DEBUG", "bad": "WARNING", "poison": "ERROR"}
    assert all(line["key"] == id for id, line in by_id.items())
    assert (by_id["bad"]["error_type"], by_id["bad"]["receive_count"]) == ("ValueError", 2)
    assert by_id["poison"]["reason"] == "closed"
    (summary,) = [line for line in lines if line["message"] == "batch"]
    assert (summary["level"], summary["messages"], summary["completed"], summary["failed"]) == ("INFO", 3, 1, 2)


@pytest.mark.parametrize("messages", [1, 50])
def test_at_info_single_successes_are_silent(messages: int) -> None:
    """A batch of ten thousand is one line."""
    lines = told(Sink("INFO"), *[sqs_record(str(place)) for place in range(messages)])

    assert [line["message"] for line in lines] == ["batch"]


def test_bodies_and_the_texts_of_ordinary_errors_are_never_told() -> None:
    """Neither of those that run nor of those that do not parse."""
    sink = Sink()
    told(sink, sqs_record("bad", '{"card":"4111"}'), sqs_record("worse", '"4111"'), sqs_record("worst", "4111 4111"))

    assert "4111" not in sink.stream.getvalue()


@pytest.mark.parametrize("texts", [True, False])
def test_a_failure_has_its_traceback_where_texts_may_be_told(texts: bool) -> None:
    lines = told(Sink(), sqs_record("bad"), sqs_record("worse", '"4111"'), error_texts=texts)

    tracebacks = {line["message_id"]: line.get("traceback") for line in lines if "message_id" in line}
    assert tracebacks["worse"] is None
    assert (tracebacks["bad"] is not None) is texts
    assert not texts or "in handle\n" in tracebacks["bad"]


def test_all_metrics_are_sent_for_every_batch() -> None:
    """A missing value means that nothing ran."""
    sink = Sink()
    told(sink, sqs_record("good"))

    assert set(sink.metrics) == {*COUNTS, "BatchDuration", *SPENT.values()} - {"CallMilliseconds", "ReadMilliseconds"}
    assert (sink.metrics["Claimed"], sink.metrics["Completed"], sink.metrics["Failed"]) == (1, 1, 0)


def test_a_dead_letter_that_sqs_refuses_is_told_with_its_queue_and_the_remedy() -> None:
    def handle(body: dict) -> None:
        raise PermanentError("closed")

    sink, sqs = Sink(), Queues()
    url = sqs.create("dead").url
    sqs.broken, sqs.error = {"send_message"}, ConnectionError("secret")
    options: Any = {"sqs": sqs, "dead_letter_queue": url, "logger": sink.logger, "metrics": sink}
    sqs_consumer(MemoryStore(), **options)(handle)({"Records": [sqs_record("1")]}, Context())

    (line,) = [line for line in sink.lines if url in line["message"]]
    assert "sqs:SendMessage" in line["message"]
    assert (line["level"], line["message_id"], line["error_type"]) == ("ERROR", "1", "ConnectionError")
    assert "secret" not in sink.stream.getvalue()


def test_a_dead_letter_queue_that_is_the_consumers_own_is_named_and_never_sent_to() -> None:
    """The message fails like one whose send is not confirmed, and goes the way of the queue's redrive policy."""

    def handle(body: dict) -> None:
        raise PermanentError("closed")

    sink, sqs, record = Sink(), Queues(), sqs_record("1")
    own = sqs.create(record["eventSourceARN"].rpartition(":")[2])
    url = own.url
    options: Any = {"sqs": sqs, "dead_letter_queue": url, "logger": sink.logger, "metrics": sink}
    answer = sqs_consumer(MemoryStore(), **options)(handle)({"Records": [record]}, Context())

    assert (own.sent, answer["batchItemFailures"]) == ([], [{"itemIdentifier": "1"}])
    (line,) = [line for line in sink.lines if url in line["message"]]
    assert "it is the queue that the message came from" in line["message"]
    assert (line["level"], line["message_id"], line["error_type"]) == ("ERROR", "1", "OwnQueue")


def test_a_duration_is_in_milliseconds() -> None:
    """As its unit says, and the summary's field."""
    sink, clock = Sink(), ManualClock()

    def handle(body: dict) -> None:
        clock.seconds += 1.5

    controlled(MemoryStore(), logger=sink.logger, metrics=sink, clock=clock)(handle)(
        {"Records": [sqs_record("1")]}, Context()
    )  # type: ignore[arg-type]

    assert (sink.metrics["BatchDuration"], sink.lines[-1]["milliseconds"]) == (1_500, 1_500)
    times = {"BatchDuration", *SPENT.values()} - {"CallMilliseconds", "ReadMilliseconds"}
    assert sink.units == dict.fromkeys(COUNTS, "Count") | dict.fromkeys(times, "Milliseconds")


class SlowStore(MemoryStore):
    """Each kind of request takes its own time."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(tables={"done": "id"})
        self.clock = clock

    def _takes(self, seconds: float) -> None:
        self.clock.seconds += seconds

    def insert(self, records: Any) -> Any:
        self._takes(0.01)
        return super().insert(records)

    def read(self, ids: Any) -> Any:
        self._takes(0.02)
        return super().read(ids)

    def replace(self, changes: Any) -> Any:
        self._takes(0.04)
        return super().replace(changes)

    def commit(self, commits: Any) -> Any:
        self._takes(0.08)
        return super().commit(commits)

    def get(self, table: Any, key: Any) -> Any:
        self._takes(0.16)
        return super().get(table, key)


SLOW_KEY: Any = {"TableName": "done", "Key": {"id": "x"}}


@pytest.mark.parametrize(
    ("body", "receives", "times", "requests"),
    [
        ("plain", 1, {"Claim": 10, "Read": 0, "Handler": 500, "Settle": 40}, 2),
        ("plain", 2, {"Claim": 30, "Read": 0, "Handler": 500, "Settle": 40}, 3),
        ("raises", 1, {"Claim": 10, "Read": 0, "Handler": 500, "Settle": 40}, 2),
        ("reads", 1, {"Claim": 10, "Read": 320, "Handler": 500, "Settle": 80}, 4),
    ],
)
def test_the_time_of_the_store_and_of_the_handler_are_told_apart(
    body: str, receives: int, times: dict[str, int], requests: int
) -> None:
    """What a handler waits for its reads is not its own; a failure counts like a success."""
    sink, clock = Sink(), ManualClock()

    def handle(body: str, tx: Transaction) -> None:
        clock.seconds += 0.5
        if body == "reads":
            tx.get(**SLOW_KEY, attributes=["id"])
            tx.get(TableName="done", Key={"id": "y"}, attributes=["id"])
        if body == "raises":
            raise ValueError

    options: Any = {"logger": sink.logger, "metrics": sink, "clock": clock}
    controlled(SlowStore(clock), **options)(handle)({"Records": [sqs_record("1", body, receives=receives)]}, Context())

    told = {f"{name}Milliseconds": value for name, value in {**times, "LongestHandler": 500}.items()}
    assert {name: value for name, value in sink.metrics.items() if name in told} == pytest.approx(told)
    assert sink.metrics["Requests"] == requests
    assert sink.lines[-1]["handler_milliseconds"] == 500


def test_the_time_of_handlers_is_their_sum_and_the_longest_is_told() -> None:
    """A run again counts too, and a function without a transaction has no reads."""
    sink, clock = Sink(), ManualClock()

    async def handle(body: int) -> None:
        clock.seconds += body

    options: Any = {"logger": sink.logger, "metrics": sink, "clock": clock}
    records = [sqs_record(str(body), str(body)) for body in (1, 3, 2)]
    controlled(MemoryStore(), **options)(handle)({"Records": records}, Context())

    assert (sink.metrics["HandlerMilliseconds"], sink.metrics["LongestHandlerMilliseconds"]) == (6_000, 3_000)
    assert "ReadMilliseconds" not in sink.metrics


@pytest.mark.parametrize(
    ("other_fails", "counts", "says", "ran"),
    [
        (False, {"Duplicates": 1}, "duplicate of a completed message", 2),
        (True, {"Failed": 1}, "failed, will be retried", 3),
    ],
)
def test_a_run_without_a_claim_has_none_to_lose_to_a_faster_one(
    other_fails: bool, counts: dict[str, int], says: str, ran: int
) -> None:
    """Two at a time are allowed there: an alarm on lost claims would tell nothing."""
    sink, runs, message = Sink(), count(), sqs_record("twice")

    def handle(body: dict, message: Message, tx: Transaction) -> None:
        tx.put(TableName="done", Item={"id": message.id})
        if next(runs) == 0:
            faster(event, Context())
        elif other_fails:
            raise ConnectionError

    event = {"Records": [message]}
    store = MemoryStore(tables={"done": "id"})
    slower = sqs_consumer(store, effects="transaction", logger=sink.logger, metrics=sink)(handle)  # type: ignore[arg-type]
    faster = slower.with_options(replace(slower.options, logger=Sink().logger, metrics=Sink()))

    slower(event, Context())

    assert next(runs) == ran, "they met"
    names = {"BatchDuration", "Requests", *SPENT.values()} - {"CallMilliseconds"}
    told = {name: sink.metrics[name] for name in names}
    assert sink.metrics == dict.fromkeys({*COUNTS} - OF_CLAIMS, 0) | told | counts
    (line,) = [line for line in sink.lines if "message_id" in line]
    assert line["message"] == says


@pytest.mark.parametrize("kind", [Metrics, EphemeralMetrics])
@pytest.mark.parametrize("way_in", [sqs_consumer, http_endpoint])
def test_metrics_without_a_namespace_are_refused_at_set_up(
    monkeypatch: pytest.MonkeyPatch, kind: Any, way_in: Any
) -> None:
    """Powertools would raise at each batch's end, where nobody hears it."""
    monkeypatch.delenv("POWERTOOLS_METRICS_NAMESPACE", raising=False)

    with pytest.raises(
        ValueError, match=r"metrics has no namespace: Metrics\(namespace=.* or set POWERTOOLS_METRICS_N"
    ):
        way_in(MemoryStore(namespace="n"), logger=Sink().logger, metrics=kind())(lambda event, context: None)


@pytest.mark.parametrize("kind", [Metrics, EphemeralMetrics])
def test_metrics_are_shared_with_log_metrics_that_raises_for_none(
    capsys: pytest.CaptureFixture[str], kind: Any
) -> None:
    """The handler's own metrics stay for `log_metrics`, which sends them. Ours go out beside them, with the same
    namespace and dimensions.
    """
    metrics = kind(namespace="Shop", service="orders")
    metrics.clear_metrics()  # Powertools' Metrics share their values across the process
    metrics.set_default_dimensions(stage="test")

    @metrics.log_metrics(raise_on_empty_metrics=True)
    @sqs_consumer(MemoryStore(), logger=Sink().logger, metrics=metrics)
    def consumer(body: dict) -> None:
        metrics.add_metric("Ordered", unit="Count", value=2)
        metrics.add_dimension("shop", "north")
        metrics.add_dimensions(region="eu")

    def answer(id: str) -> Any:
        try:
            return consumer({"Records": [sqs_record(id)]}, Context())
        except SchemaValidationError as error:
            return str(error)

    answers = [answer(id) for id in ("1", "2")]
    metrics.clear_default_dimensions() if kind is Metrics else None
    metrics.clear_metrics()

    assert answers == [{"batchItemFailures": []}] * 2
    sent = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [("Ordered" in each, "Completed" in each) for each in sent] == [(False, True), (True, False)] * 2
    for each in sent:
        (described,) = each["_aws"]["CloudWatchMetrics"]
        assert described["Namespace"] == "Shop"
        assert [sorted(names) for names in described["Dimensions"]] == [
            ["service", "shop", "stage"],
            ["region", "stage"],
        ]
        assert (each["service"], each["stage"], each["shop"], each["region"]) == ("orders", "test", "north", "eu")


class RaisingLog:
    """A logger whose every line raises."""

    def __getattr__(self, name: str) -> Any:
        if name not in {"debug", "info", "warning", "error"}:
            raise AttributeError(name)

        def raising(*given: Any, **named: Any) -> None:
            raise ConnectionError("the log's server is gone")

        return raising


def test_a_logger_that_raises_does_not_silence_metrics() -> None:
    """Of a batch with a failure, and of a call."""

    def handle(body: dict) -> None:
        raise ValueError

    of_batch, of_call = Sink(), Sink()
    answer = sqs_consumer(MemoryStore(), logger=RaisingLog(), metrics=of_batch)(handle)(
        {"Records": [sqs_record("1")]}, Context()
    )
    endpoint = http_endpoint(MemoryStore(namespace="calls"), logger=RaisingLog(), metrics=of_call)
    status = endpoint(lambda event, context: {"statusCode": 201})(request("k"), Context())["statusCode"]

    assert (answer["batchItemFailures"], status) == ([{"itemIdentifier": "1"}], 201)
    assert (of_batch.metrics.get("Failed"), of_call.metrics.get("Completed")) == (1, 1)
    assert of_batch.flushed
    assert of_call.flushed


def test_a_logger_that_raises_for_one_line_gets_the_others() -> None:
    """And metrics that raise cost no line."""
    lines: list[str] = []

    class Choosy(RaisingLog):
        def warning(self, text: str, *, extra: Any) -> None:
            if extra["message_id"] == "1":
                raise ConnectionError
            lines.append(text)

        def info(self, text: str, *, extra: Any) -> None:
            lines.append(text)

    def handle(body: dict) -> None:
        raise ValueError

    sqs_consumer(MemoryStore(), logger=Choosy(), metrics=object.__new__(Sink))(handle)(  # type: ignore[arg-type]
        {"Records": [sqs_record("1"), sqs_record("2")]}, Context()
    )

    assert lines == ["failed, will be retried", "batch"]


def test_a_standard_logger_is_told_the_same_at_its_own_level(caplog: pytest.LogCaptureFixture) -> None:
    """Its level may be one that it has from its parents; no field takes the name of one of a log record's own."""

    def handle(body: dict, message: Message) -> None:
        if message.id == "bad":
            raise ValueError(f"secret of {body}")

    caplog.set_level("INFO")
    consumer = sqs_consumer(MemoryStore(), logger=logging.getLogger("payments"), metrics=Sink())(handle)
    consumer({"Records": [sqs_record("good"), sqs_record("bad")]}, Context())

    assert [(line.levelname, line.message) for line in caplog.records] == [
        ("WARNING", "failed, will be retried"),
        ("INFO", "batch"),
    ]
    failed, summary = (vars(line) for line in caplog.records)
    assert (failed["message_id"], failed["key"], failed["error_type"]) == ("bad", "bad", "ValueError")
    assert (summary["messages"], summary["completed"], summary["failed"]) == (2, 1, 1)


@pytest.mark.parametrize("raised", [ValueError("odd"), PermanentError("odd"), InvalidBody("odd")])
@pytest.mark.parametrize("error_texts", [False, True])
def test_a_failures_line_has_its_stack_where_texts_may_be_logged(
    raised: Exception, error_texts: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """An error tracker groups by it. A refused body's stack may quote the body."""

    def handle(body: dict) -> None:
        raise raised

    payments = logging.getLogger("payments")
    sqs_consumer(MemoryStore(), logger=payments, metrics=Sink(), error_texts=error_texts)(handle)(
        {"Records": [sqs_record("1")]}, Context()
    )

    exc_info = caplog.records[0].exc_info
    if not error_texts or isinstance(raised, InvalidBody):
        assert exc_info is None
    else:
        assert exc_info is not None
        assert exc_info[1] is raised
        assert [frame.f_code.co_name for frame, _ in walk_tb(exc_info[2])][-1] == "handle"


def test_a_log_that_takes_no_stack_is_told_all_else() -> None:
    class Bare:
        def __init__(self) -> None:
            self.told: list[str] = []

        def debug(self, text: str, *, extra: Mapping[str, Any]) -> None:
            self.told.append(text)

        info = warning = error = debug

    def handle(body: dict) -> None:
        raise ValueError

    bare = Bare()
    sqs_consumer(MemoryStore(), logger=bare, metrics=Sink(), error_texts=True)(handle)(
        {"Records": [sqs_record("1")]}, Context()
    )

    assert bare.told == ["failed, will be retried", "batch"]


@pytest.mark.parametrize(("outcome", "level", "names"), OUTCOMES, ids=lambda one: type(one).__name__)
def test_every_line_can_be_a_standard_log_record(outcome: Outcome, level: int, names: list[str]) -> None:
    """`logging` refuses fields that would overwrite a record's own."""
    fields = dict(line_of(outcome).fields) | {"message_id": "m", "key": "k", "receive_count": 1}

    record = logging.getLogger("payments").makeRecord("payments", level, "f", 1, "text", (), None, extra=fields)

    assert vars(record).items() >= fields.items()


def test_without_metrics_of_its_own_a_consumer_sends_embedded_ones(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever does the logging. In a namespace of the library's own."""

    def handle(body: dict) -> None: ...

    sqs_consumer(MemoryStore(), logger=logging.getLogger("payments"))(handle)({"Records": [sqs_record("1")]}, Context())

    (sent,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert sent["_aws"]["CloudWatchMetrics"][0]["Namespace"] == "IdempotentReceiver"
    assert (sent["Completed"], sent["Failed"]) == ([1.0], [0.0])


def request(key: str, body: str = "{}") -> dict[str, Any]:
    return {"httpMethod": "POST", "path": "/", "headers": {"Idempotency-Key": key}, "body": body, "requestContext": {}}


def test_every_call_of_an_endpoint_counts_by_its_answer() -> None:
    """Replays, 409s and 422s are clients' affairs, and API Gateway counts no status by itself."""
    sent: list[dict[str, float]] = []

    class Each(Sink):
        def flush_metrics(self) -> None:
            sent.append({name: value for name, value in self.metrics.items() if value})

    def handle(event: Any, context: Any) -> dict[str, Any]:
        if event["body"] == "fails":
            raise ConnectionError
        if (key := event["headers"]["Idempotency-Key"]) == "meets itself":
            assert endpoint(request(key), Context())["statusCode"] == 409
        return {"statusCode": 201}

    sink, store = Each(), MemoryStore(namespace="calls")
    endpoint = http_endpoint(store, on_exception="replay", logger=sink.logger, metrics=sink)(handle)
    answers = [
        endpoint(request(key, body), Context())["statusCode"]
        for key, body in [("k", "{}"), ("k", "{}"), ("k", "[]"), ("meets itself", "{}"), *[("bad", "fails")] * 2]
    ]

    assert answers == [201, 201, 422, 201, 500, 500]
    assert sent == [
        {"Completed": 1},
        {"Duplicates": 1},
        {"Mismatches": 1},
        {"InProgress": 1},
        {"Completed": 1},
        {"Failed": 1},
        {"Duplicates": 1},
    ]
    assert set(sink.metrics) == set(CALL_COUNTS)


def test_an_endpoint_without_metrics_sends_none(capsys: pytest.CaptureFixture[str]) -> None:
    http_endpoint(MemoryStore(namespace="calls"), logger=Sink().logger)(lambda event, context: {"statusCode": 201})(
        request("k"), Context()
    )

    assert capsys.readouterr().out == ""


def test_a_broken_sink_changes_no_answer_and_is_logged() -> None:
    class Broken(Sink):
        def flush_metrics(self) -> None:
            raise RuntimeError

    sink = Broken()
    endpoint = http_endpoint(MemoryStore(namespace="calls"), logger=sink.logger, metrics=sink)(
        lambda event, context: {}
    )

    assert endpoint(request("k"), Context()) == {}
    assert sink.lines[-1]["message"] == "unexpected error in the receiver"
