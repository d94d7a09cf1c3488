"""Keys and envelopes in the user's own code: whose fault an error is, and what follows an opened body."""

from __future__ import annotations

import base64
import gzip
import json
import logging
import threading
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel, field_validator

from idempotent_receiver import (
    MemoryStore,
    Message,
    Payload,
    PermanentError,
    RetryLater,
    body_field,
    event_id,
    message_attribute,
    message_id,
    payload_key,
    powertools_key,
    sqs_consumer,
)
from idempotent_receiver.batch.executor import ThreadExecutor, ThreadPool
from idempotent_receiver.testing import explore, lambda_context, sqs_event
from idempotent_receiver.testing.worker import SILENT, failed_ids
from tests.consumers import controlled
from tests.contexts import Context
from tests.queues import Queue, Queues
from tests.simulation.world import QUEUE, sqs_record
from tests.tracing import Tracing
from tests.unit.batch.at_once import PATIENCE
from tests.unit.http.api import raising
from tests.unit.test_key_callables import DOES_NOT_FIT, RETRYABLE

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.quick


def unzipped(body: str) -> str:
    """The text of a body that was compressed and then encoded."""
    return gzip.decompress(base64.b64decode(body)).decode()


def zipped(content: Any, level: int = 9) -> str:
    return base64.b64encode(gzip.compress(json.dumps(content).encode(), level)).decode()


def with_dead_letters() -> tuple[Queues, Queue]:
    sqs = Queues()
    return sqs, sqs.create("dead")


def take(body: dict) -> None:
    """Any message."""


def never(body: dict) -> None:
    raise AssertionError("never run")


def reason_in(letter: dict[str, Any]) -> dict[str, Any]:
    stamp: dict[str, Any] = json.loads(letter["MessageAttributes"]["idempotent-receiver"]["StringValue"])
    return stamp


@pytest.mark.parametrize("option", ["key", "envelope"])
@pytest.mark.parametrize("raised", DOES_NOT_FIT, ids=repr)
def test_an_error_that_blames_the_message_is_permanent(raised: Exception, option: str) -> None:
    """The message is a dead letter at its first delivery, and no record was claimed. The error's text stays hidden."""
    store, (sqs, queue) = MemoryStore("n"), with_dead_letters()
    options: dict[str, Any] = {option: raising(raised)}
    consumer = sqs_consumer(store, sqs=sqs, dead_letter_queue=queue.url, logger=SILENT, **options)(never)  # type: ignore[arg-type]
    assert failed_ids(consumer(sqs_event({"id": 1}), lambda_context())) == []
    (letter,) = queue.sent
    stamp = reason_in(letter)
    what = "the key strategy raised" if option == "key" else "no body could be made from the envelope:"
    assert (stamp["error_type"], stamp["reason"]) == ("UnusableKey", f"{what} {type(raised).__name__}")
    assert "secret" not in str(letter)
    assert store.items == {}


@pytest.mark.parametrize("option", ["key", "envelope"])
@pytest.mark.parametrize("raised", [*RETRYABLE, SystemExit("secret")], ids=repr)
def test_any_other_error_is_a_failure_that_may_be_retried(
    raised: BaseException, option: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is no dead letter, comes back after a backoff as a handler's, and claims nothing. The log names its place."""
    store, (sqs, queue) = MemoryStore("n"), with_dead_letters()
    options: dict[str, Any] = {option: raising(raised), "sqs": sqs, "dead_letter_queue": queue.url}
    waits = SimpleNamespace(seconds=lambda receives, clock: 77, outage_seconds=lambda receives, clock: 0)
    log = logging.getLogger("envelopes")
    consumer = sqs_consumer(store, backoff=waits, logger=log, **options)(never)
    event = {"Records": [sqs_record("1", "{}")]}
    assert failed_ids(consumer(event, Context())) == ["1"]
    assert (queue.sent, sqs.hidden_seconds(event), store.items) == ([], {"1": 77}, {})
    failed = [vars(line) for line in caplog.records if "error_type" in vars(line)]
    assert [line["error_type"] for line in failed] == [type(raised).__name__]
    assert failed[0]["at"].startswith(f"{raising.__module__}.raises:")
    assert "secret" not in str(failed)


@pytest.mark.parametrize("option", ["key", "envelope"])
def test_a_key_or_an_envelope_may_say_itself_that_no_retry_can_help_or_when_one_may(option: str) -> None:
    sqs, queue = with_dead_letters()
    options: dict[str, Any] = {option: raising(PermanentError("the order is closed"))}
    consumer = sqs_consumer(MemoryStore("n"), sqs=sqs, dead_letter_queue=queue.url, logger=SILENT, **options)(never)  # type: ignore[arg-type]
    assert failed_ids(consumer(sqs_event({}), lambda_context())) == []
    assert [reason_in(letter)["reason"] for letter in queue.sent] == ["the order is closed"]

    options = {option: raising(RetryLater("the shop is closed", seconds=50))}
    consumer = sqs_consumer(MemoryStore("n"), sqs=sqs, logger=SILENT, **options)(never)  # type: ignore[arg-type]
    event = {"Records": [sqs_record("1", "{}")]}
    assert failed_ids(consumer(event, Context())) == ["1"]
    assert sqs.hidden_seconds(event) == {"1": 50}


@pytest.mark.parametrize("raised", [*RETRYABLE, *DOES_NOT_FIT], ids=repr)
def test_a_key_that_could_not_be_made_now_holds_its_fifo_group(raised: Exception) -> None:
    """One that blames the message does not, once its dead letter is confirmed. Other groups go on either way."""
    ran: list[str] = []

    def key(message: Message) -> str:
        if message.id == "1":
            raise raised
        return message.id

    def noting(body: dict, message: Message) -> None:
        ran.append(message.id)

    sqs, queue = with_dead_letters()
    consumer = sqs_consumer(MemoryStore("n"), key=key, sqs=sqs, dead_letter_queue=queue.url, logger=SILENT)(noting)  # type: ignore[arg-type]
    records = [
        sqs_record(id, "{}", group=group, queue=f"{QUEUE}.fifo") for id, group in (("1", "g"), ("2", "g"), ("3", "h"))
    ]
    failed = failed_ids(consumer({"Records": records}, Context()))
    assert (failed, sorted(ran)) == ((["1", "2"], ["3"]) if raised in RETRYABLE else ([], ["2", "3"]))


def test_an_envelope_that_returns_no_text_costs_no_message_its_redelivery(caplog: pytest.LogCaptureFixture) -> None:
    """Its code is at fault, and the log says how to correct it."""
    sqs, queue = with_dead_letters()
    options: dict[str, Any] = {"envelope": lambda body: gzip.decompress(base64.b64decode(body))}
    log = logging.getLogger("envelopes")
    consumer = sqs_consumer(MemoryStore(), sqs=sqs, dead_letter_queue=queue.url, logger=log, **options)(never)  # type: ignore[arg-type]
    assert failed_ids(consumer({"Records": [sqs_record("1", zipped({}))]}, Context())) == ["1"]
    assert queue.sent == []
    assert "the envelope returned bytes: return the body as a str" in caplog.text + str(
        [vars(one) for one in caplog.records]
    )


async def never_awaited(body: str) -> str:
    return body


@pytest.mark.parametrize("envelope", [7, bytes, never_awaited, partial(never_awaited)])
def test_an_envelope_that_is_no_expression_and_no_plain_callable_is_refused_at_set_up(envelope: Any) -> None:
    with pytest.raises(TypeError, match=r"^envelope must be"):
        sqs_consumer(MemoryStore(), envelope=envelope)


# What follows an opened body.

KEYS: dict[str, Any] = {
    "body_field": body_field("id"),
    "payload_key": payload_key("id"),
    "a callable": lambda message: json.loads(message.body)["id"],
}


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_key_payload_and_body_follow_an_envelope(key: Any) -> None:
    """A second send of one content, compressed anew, is its duplicate; another content under its key is refused."""
    bodies: list[Any] = []

    def noting(body: dict, message: Message) -> None:
        bodies.append((body, json.loads(message.body), message.raw_body))

    store, (sqs, queue) = MemoryStore("n"), with_dead_letters()
    payload = Payload(without=["sent_at"])
    options: dict[str, Any] = {"sqs": sqs, "dead_letter_queue": queue.url, "logger": SILENT}
    consumer = sqs_consumer(store, key=key, envelope=unzipped, payload=payload, **options)(noting)
    order = {"id": "o-1", "amount": 5, "sent_at": 1}
    sends = [zipped(order), zipped({**order, "sent_at": 2}, level=1)]
    for number, body in enumerate(sends):
        assert failed_ids(consumer({"Records": [sqs_record(str(number), body)]}, Context())) == []
    assert bodies == [(order, order, sends[0])]

    other = zipped({**order, "amount": 6})
    assert failed_ids(consumer({"Records": [sqs_record("3", other)]}, Context())) == []
    assert [letter["MessageBody"] for letter in queue.sent] == [other]
    assert reason_in(queue.sent[0])["error_type"] == "FingerprintMismatch"


def test_a_messages_own_id_stays_its_key_whatever_its_envelope() -> None:
    store = MemoryStore()
    consumer = sqs_consumer(store, envelope=unzipped, logger=SILENT)(take)
    assert failed_ids(consumer({"Records": [sqs_record("1", zipped({"id": 1}))]}, Context())) == []
    assert list(store.items) == ["1"]


def test_s3s_test_event_needs_no_envelope() -> None:
    consumer = sqs_consumer(MemoryStore("n"), key=event_id, envelope=unzipped, logger=SILENT)(never)
    test = json.dumps({"Service": "Amazon S3", "Event": "s3:TestEvent"})
    assert failed_ids(consumer({"Records": [sqs_record("1", test)]}, Context())) == []


def test_keys_and_envelopes_are_jobs_beside_each_other() -> None:
    """On threads of the batch's executor: ten that wait for each other all return."""
    together = threading.Barrier(10, timeout=PATIENCE)

    def envelope(body: str) -> str:
        together.wait()
        return body

    store = MemoryStore()
    consumer = sqs_consumer(store, envelope=envelope, logger=SILENT)(take)
    records = [sqs_record(str(number), "{}") for number in range(10)]
    assert failed_ids(consumer({"Records": records}, Context())) == []
    assert len(store.items) == 10


def test_an_envelope_that_hangs_costs_only_its_own_message() -> None:
    """The answer leaves before the deadline, and the others have run."""
    release, ran = threading.Event(), list[str]()

    def envelope(body: str) -> str:
        assert body != "hangs" or release.wait(PATIENCE)
        return "{}"

    def noting(body: dict, message: Message) -> None:
        ran.append(message.id)

    options: dict[str, Any] = {"stop_margin_seconds": 0.1, "logger": SILENT}
    consumer = sqs_consumer(MemoryStore(), envelope=envelope, **options)(noting)
    records = [sqs_record(str(number), "hangs" if number == 0 else "{}") for number in range(3)]
    try:
        assert failed_ids(consumer({"Records": records}, Context(seconds=0.6))) == ["0"]
    finally:
        release.set()
    assert sorted(ran) == ["1", "2"]


class Counting(ThreadExecutor):
    """An executor that counts its jobs by their functions' names."""

    started: list[str]

    def start(self, job: Any, on_done: Callable[[Any], None]) -> None:
        self.started.append(getattr(getattr(job, "func", job), "__name__", ""))
        super().start(job, on_done)


@pytest.mark.parametrize(
    ("options", "jobs"),
    [
        ({}, 0),
        ({"key": message_id, "envelope": "detail"}, 0),
        ({"key": message_attribute("id")}, 0),
        ({"key": body_field("id"), "envelope": "detail || @"}, 0),
        ({"key": payload_key("id"), "payload": Payload(without=["at"])}, 0),
        ({"key": powertools_key("body")}, 3),
        ({"key": event_id}, 0),
        ({"key": lambda message: message.id}, 3),
        ({"key": message_id, "envelope": lambda body: body}, 3),
    ],
)
def test_only_what_is_in_the_users_code_becomes_jobs(options: dict[str, Any], jobs: int) -> None:
    """One of the library's own strategies does no input or output, and a job would cost more than it does."""
    executor = Counting(ThreadPool(), None)
    executor.started = []
    consumer = controlled(MemoryStore("n"), executor=lambda: executor, logger=SILENT, **options)(take)
    records = [sqs_record(str(number), json.dumps({"id": str(number)})) for number in range(3)]
    consumer({"Records": records}, Context())
    assert executor.started.count("_make_claim") == jobs


def test_a_consumer_with_keys_in_code_can_be_explored() -> None:
    @sqs_consumer(MemoryStore("n"), key=lambda message: json.loads(message.body)["id"], envelope=unzipped)
    def handle(body: dict) -> None:
        """It does nothing."""

    event = sqs_event({"id": "1"}, {"id": "2"})
    for record in event["Records"]:
        record["body"] = zipped(json.loads(record["body"]))
    explored = explore(handle, event, faults=0, no_effects="others do")
    assert explored.complete


def test_a_message_has_its_span_if_its_key_is_made_in_code() -> None:
    tracing = Tracing()
    consumer = sqs_consumer(
        MemoryStore("n"), key=lambda message: f"k-{message.id}", tracer=tracing.tracer, logger=SILENT
    )(take)
    consumer({"Records": [sqs_record("1", "{}"), sqs_record("2", "{}")]}, Context())
    assert sorted(span.name.split()[0] for span in tracing.spans) == ["claim", "process", "process", "settle"]


# A body is parsed after its claim.


class Order(BaseModel):
    id: str

    @field_validator("id")
    @classmethod
    def _known(cls, id: str) -> str:
        if (error := ERRORS.get(id)) is not None:
            raise error
        return id


ERRORS: dict[str, Exception] = {}


def ordered(order: Order) -> None:
    """Any order."""


@pytest.mark.parametrize("raised", DOES_NOT_FIT, ids=repr)
def test_a_parsers_error_that_blames_the_body_is_permanent(raised: Exception, monkeypatch: Any) -> None:
    monkeypatch.setitem(ERRORS, "o-1", raised)
    store, (sqs, queue) = MemoryStore("n"), with_dead_letters()
    consumer = sqs_consumer(store, sqs=sqs, dead_letter_queue=queue.url, logger=SILENT)(ordered)  # type: ignore[arg-type]
    assert failed_ids(consumer(sqs_event({"id": "o-1"}), lambda_context())) == []
    (letter,) = queue.sent
    assert reason_in(letter)["error_type"] == "InvalidBody"
    assert "secret" not in str(letter)


@pytest.mark.parametrize("raised", RETRYABLE[:-1], ids=repr)
def test_any_other_error_of_a_parser_is_retried_and_is_no_attempt_of_the_handler(
    raised: Exception, monkeypatch: Any
) -> None:
    """Its record says that it failed, not that the handler has started."""
    monkeypatch.setitem(ERRORS, "o-1", raised)
    attempts: list[int] = []

    def noting(order: Order, message: Message) -> None:
        attempts.append(message.attempt)

    store, (sqs, queue) = MemoryStore("n"), with_dead_letters()
    consumer = sqs_consumer(store, sqs=sqs, dead_letter_queue=queue.url, logger=SILENT)(noting)  # type: ignore[arg-type]
    assert failed_ids(consumer(sqs_event({"id": "o-1"}), lambda_context())) == ["message-1"]
    (record,) = store.items.values()
    error = json.loads(record["error"])
    assert (record["status"], error["type"], error.get("permanent")) == ("FAILED", type(raised).__name__, None)
    assert queue.sent == []
    monkeypatch.delitem(ERRORS, "o-1")
    assert failed_ids(consumer(sqs_event({"id": "o-1"}, receive_count=2), lambda_context())) == []
    assert attempts == [1]


@pytest.mark.parametrize("raised", [KeyError("secret"), RuntimeError("secret")], ids=repr)
def test_a_duplicate_of_what_is_done_is_a_success_under_any_model(raised: Exception, monkeypatch: Any) -> None:
    consumer = sqs_consumer(MemoryStore("n"), logger=SILENT)(ordered)
    assert failed_ids(consumer(sqs_event({"id": "o-1"}), lambda_context())) == []
    monkeypatch.setitem(ERRORS, "o-1", raised)
    for receives in (1, 2):
        assert failed_ids(consumer(sqs_event({"id": "o-1"}, receive_count=receives), lambda_context())) == []
