"""Every public option is obeyed: what is seen without it, and what with it."""

from __future__ import annotations

import inspect
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from idempotent_receiver import (
    DynamoDBStore,
    Payload,
    body_field,
    header,
    http_endpoint,
    idempotent,
    payload_key,
    process_end,
    sqs_consumer,
)
from idempotent_receiver.batch.executor import ThreadExecutor, ThreadPool
from idempotent_receiver.sqs.visibility import Backoff
from tests.manual_clock import ManualClock
from tests.metering import Metering
from tests.simulation.world import DEAD_LETTERS
from tests.tracing import Tracing
from tests.unit.http.api import request
from tests.unit.probes import (
    ARMED,
    LARGE,
    Recorder,
    accept,
    announce,
    answer,
    answered,
    bodies_handled,
    call,
    called,
    consumed,
    consumer,
    days_kept,
    endpoint,
    executors_made,
    fail,
    function,
    held,
    item,
    lease_beyond_deadline,
    lease_while_running,
    most_at_once,
    of_the_clocks_time,
    only_record,
    post,
    postpone,
    raised,
    refuse,
    results_of,
    statuses,
    stored,
    used,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.unit.probes import Observe


@pytest.fixture(autouse=True)
def unarmed(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def noted(deadline: object) -> Iterator[None]:
        ARMED.append(True)
        yield

    ARMED.clear()
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setattr(process_end, "_process_ends_at", noted)


A, B = request(headers={"Key": "b"}), request("k-2", headers={"Key": "b"})
CHANGED = request(body={"amount": 6}, query="a=2")

ENDPOINT: dict[str, tuple[Any, Observe, Any, Any]] = {
    "key": (header("Key"), answered(lambda store, answers: len(store.items), A, B), 2, 1),
    "scope": (
        lambda event: event["headers"]["Key"],
        answered(lambda store, answers: len(store.items), A, request(headers={"Key": "c"})),
        1,
        2,
    ),
    "required": (False, answered(statuses, request(None)), [400], [200]),
    "wait_seconds": (10, answered(statuses, before=held), [409], [200]),
    "retry_after_seconds": (
        4,
        answered(lambda store, answers: answers[0]["headers"]["Retry-After"], before=held),
        "1",
        "4",
    ),
    "on_exception": (
        "replay",
        answered(statuses, request(), request(), does=raised),
        ["its text", "its text"],
        [500, 500],
    ),
    "is_final": (
        lambda status: status < 300,
        answered(lambda store, answers: only_record(store)["status"], does=lambda: {"statusCode": 500}),
        "COMPLETED",
        "FAILED",
    ),
    "headers": (
        lambda event: {"Vary": "Origin"},
        answered(lambda store, answers: answers[0]["headers"].get("Vary"), request(None)),
        None,
        "Origin",
    ),
    "payload": (None, answered(statuses, request(), CHANGED), [200, 422], [200, 200]),
    "results": (
        Recorder(),
        used(answered(statuses, does=lambda: {"body": LARGE})),
        False,
        True,
    ),
    "retention_seconds": (86_400, answered(days_kept), 30, 1),
    "lease_margin_seconds": (0.5, partial(lease_while_running, endpoint), 3.0, 0.5),
    "stop_margin_seconds": (2.5, answered(statuses, seconds=2.3), [200], [503]),
    "error_texts": (
        True,
        answered(lambda store, answers: "its text" in only_record(store)["error"], does=raised),
        False,
        True,
    ),
    "end_process_at_deadline": (True, answered(lambda store, answers: len(ARMED)), 0, 1),
    "logger": (Recorder(), used(answered(statuses, does=raised)), False, True),
    "metrics": (Recorder(), used(answered(statuses, request(), request())), False, True),
    "clock": (ManualClock(), partial(of_the_clocks_time, endpoint), False, True),
}


NOTES = ({"id": "1", "note": "a"}, {"id": "1", "note": "b"})

FUNCTION: dict[str, tuple[Any, Observe, Any, Any]] = {
    "key": (payload_key("note"), called(lambda store, results: len(store.items), *NOTES), 1, 2),
    "payload": (Payload("id"), called(results_of, *NOTES), [{}, "FingerprintMismatch"], [{}, {}]),
    "lease_seconds": (60, called(results_of, seconds=None), ["TypeError"], [{}]),
    "results": (Recorder(), used(called(results_of, does=lambda: LARGE)), False, True),
    "retention_seconds": (86_400, called(days_kept), 30, 1),
    "lease_margin_seconds": (0.5, partial(lease_while_running, function), 3.0, 0.5),
    "stop_margin_seconds": (2.5, called(results_of, seconds=2.3), [{}], ["NotStarted"]),
    "error_texts": (
        True,
        called(lambda store, results: "its text" in only_record(store)["error"], does=raised),
        False,
        True,
    ),
    "clock": (ManualClock(), partial(of_the_clocks_time, function), False, True),
}

SAME = [{"id": "7", "note": "a"}, {"id": "7", "note": "b"}]
"""Bodies of one key."""

TRACING = Tracing()
METERING = Metering()


def measured(options: Any) -> float:
    """How many messages the meter has seen completed meanwhile."""
    before = METERING.values.get("idempotent_receiver.completed", 0)
    consumed(answer)(options)
    return METERING.values.get("idempotent_receiver.completed", 0) - before


dead_lettered = partial(
    consumed, lambda scenario: [*scenario.dead_letters()], queue_client=True, dead_letter_queue=DEAD_LETTERS
)

CONSUMER: dict[str, tuple[Any, Observe, Any, Any]] = {
    "key": (body_field("id"), consumed(lambda scenario: [*scenario.memory.items]), ["n#m0"], ["n#7"]),
    "effects": ("transaction", consumed(lambda scenario: scenario.requests()[0][0], post), "insert", "commit"),
    "concurrency": (3, most_at_once, 1, 3),
    "dead_letter_queue": (DEAD_LETTERS, consumed(lambda s: [*s.dead_letters()], refuse, queue_client=True), [], ["m0"]),
    "calls": ([announce], consumed(lambda scenario: item(scenario)["status"], call), "FAILED", "COMPLETED"),
    "sqs": (True, consumed(lambda scenario: scenario.sqs.calls, fail), [], ["change_message_visibility_batch"]),
    "max_attempts": (1, dead_lettered(fail), [], ["m0"]),
    "max_age_seconds": (59, dead_lettered(postpone, max_attempts=5), [], ["m0"]),
    "envelope": ("detail", bodies_handled, [{"detail": {"n": 1}}], [{"n": 1}]),
    "payload": (Payload("id"), consumed(answer, accept, SAME, key=body_field("id")), ["m1"], []),
    "retention_seconds": (
        86_400,
        consumed(lambda scenario: round((item(scenario)["expiration"] - scenario.epoch_seconds) / 86_400)),
        30,
        1,
    ),
    "lease_margin_seconds": (0.5, lease_beyond_deadline, 3.0, 0.5),
    "stop_margin_seconds": (2.5, consumed(lambda scenario: len(scenario.runs), seconds=2.3), 1, 0),
    "backoff": (
        Backoff(first_seconds=9_000, longest_seconds=9_000),
        consumed(lambda scenario: scenario.sqs.visibilities["m0"] > 4, fail, queue_client=True),
        False,
        True,
    ),
    "error_texts": (True, consumed(lambda scenario: "its text" in item(scenario)["error"], fail), False, True),
    "end_process_at_deadline": (True, consumed(lambda scenario: len(ARMED)), 0, 1),
    "logger": (Recorder(), used(consumed(answer, fail)), False, True),
    "metrics": (Recorder(), used(consumed(answer)), False, True),
    "meter": (METERING.meter, measured, 0, 1),
    "tracer": (TRACING.tracer, lambda options: (consumed(answer)(options), len(TRACING.spans))[1] > 0, False, True),
}

CLIENT = boto3.client("dynamodb", region_name="us-east-1", endpoint_url="http://127.0.0.1:9")
STORE: dict[str, tuple[Any, Observe, Any, Any]] = {
    "table_name": ("others", stored(lambda store: store.table_id), "records", "others"),
    "namespace": ("n", stored(lambda store: store.namespace), None, "n"),
    "client": (CLIENT, stored(lambda store: store.client is CLIENT), False, True),
}

WAYS = {sqs_consumer: CONSUMER, http_endpoint: ENDPOINT, idempotent: FUNCTION, DynamoDBStore: STORE}


@pytest.mark.parametrize(
    ("table", "option"),
    [pytest.param(table, name, id=f"{way.__name__}-{name}") for way, table in WAYS.items() for name in table],
)
def test_an_option_is_obeyed(table: dict[str, Any], option: str) -> None:
    """By itself, and by what its value says."""
    value, observe, without, with_it = table[option]

    assert (observe({}), observe({option: value})) == (without, with_it)


CONTROLS: dict[str, tuple[Any, Observe, Any, Any]] = {
    "clock": (ManualClock(), partial(of_the_clocks_time, consumer), False, True),
    "executor": (partial(ThreadExecutor, ThreadPool(), None), executors_made, 0, 1),
}


@pytest.mark.parametrize("control", CONTROLS)
def test_a_consumer_obeys_the_clock_and_the_executor_of_a_test(control: str) -> None:
    """They are no options: a deployed consumer has neither."""
    value, observe, without, with_it = CONTROLS[control]

    assert (observe({}), observe({control: value})) == (without, with_it)


@pytest.mark.parametrize("way", WAYS)
def test_every_option_is_there(way: Any) -> None:
    assert {*inspect.signature(way).parameters} - {"store"} == {*WAYS[way]}
