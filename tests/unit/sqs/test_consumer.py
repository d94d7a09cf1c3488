"""The SQS consumer: what it refuses at set-up, which events are invalid, and the shape of its answers."""

from __future__ import annotations

import json
import logging
from functools import partial
from types import SimpleNamespace
from typing import Annotated, Any

import boto3
import pytest
from pydantic import Field

from idempotent_receiver import (
    Backoff,
    DynamoDBStore,
    MemoryStore,
    Message,
    Payload,
    PermanentError,
    S3Results,
    Transaction,
    UnusableKey,
    body_field,
    http_endpoint,
    idempotent,
    message_attribute,
    message_id,
    sqs_consumer,
)
from idempotent_receiver.clock import Clock
from idempotent_receiver.protocol.record import record_id, usable
from idempotent_receiver.sqs.message import InvalidEvent
from idempotent_receiver.testing.worker import failed_ids
from idempotent_receiver.transaction.outbox import STAMP
from tests.consumers import controlled
from tests.contexts import Context
from tests.manual_clock import ManualClock
from tests.simulation.world import sqs_record


def handle(body: dict) -> str:
    return "done"


def event(*records: Any) -> dict[str, Any]:
    return {"Records": list(records)}


# Set-up.


def test_a_custom_key_needs_a_namespace() -> None:
    """Otherwise two consumers of one table would suppress each other's messages; the error shows how to set one."""
    with pytest.raises(ValueError, match=r'namespace="payments"'):
        sqs_consumer(MemoryStore(), key=body_field("id"))
    with pytest.raises(ValueError, match="namespace"):
        sqs_consumer(MemoryStore(), key=lambda message: message.id)


def test_a_part_of_the_payload_needs_a_key_of_ones_own() -> None:
    """The body of a messageId is always the same."""
    sqs_consumer(MemoryStore("n"), key=body_field("id"), payload=Payload("id"))
    with pytest.raises(ValueError, match="payload needs a key other than messageId"):
        sqs_consumer(MemoryStore("n"), payload=Payload("id"))


def test_message_ids_need_no_namespace_and_may_have_one() -> None:
    """They are unique anyway."""
    sqs_consumer(MemoryStore())
    sqs_consumer(MemoryStore(), key=message_id)
    sqs_consumer(MemoryStore(namespace="n"))


@pytest.mark.parametrize("seconds", [None, 0, -1, 0.5, 300.0, True, "300"])
@pytest.mark.parametrize("way_in", [sqs_consumer, http_endpoint, partial(idempotent, key=str)])
def test_a_retention_is_a_whole_number_of_seconds(way_in: Any, seconds: Any) -> None:
    """None comes from a variable that is not set."""
    with pytest.raises(ValueError, match="retention_seconds must be a whole number of at least 1"):
        way_in(MemoryStore("n"), retention_seconds=seconds)


@pytest.mark.parametrize(
    ("namespace", "told"),
    [
        ("", "^namespace is empty, perhaps from an unset variable."),
        ("shop#orders", "^namespace 'shop#orders' has a '#'"),
        ("#", "^namespace '#' has a '#'"),
        ("\ud800", "^namespace "),
    ],
)
@pytest.mark.parametrize("made", [MemoryStore, partial(DynamoDBStore, "records")])
def test_an_ambiguous_namespace_is_refused_when_a_store_is_created(made: Any, namespace: str, told: str) -> None:
    """An empty one comes from an empty variable; one with `#` could be another namespace and part of a key."""
    with pytest.raises(ValueError, match=told):
        made(namespace=namespace)


@pytest.mark.parametrize("namespace", [7, b"orders", ["orders"], True])
@pytest.mark.parametrize("made", [MemoryStore, partial(DynamoDBStore, "records")])
def test_a_namespace_is_a_string_or_none(made: Any, namespace: object) -> None:
    """None means no namespace."""
    with pytest.raises(TypeError, match="namespace must be a string"):
        made(namespace=namespace)
    assert made(namespace=None).namespace is None


@pytest.mark.parametrize("way_in", [sqs_consumer, http_endpoint, partial(idempotent, key=str)])
def test_a_custom_stores_namespace_is_checked_at_set_up(way_in: Any) -> None:
    """The store itself may not have checked it."""
    store = MemoryStore("orders")
    store.namespace = "shop#orders"
    with pytest.raises(ValueError, match="from-powertools"):
        way_in(store)


def test_a_transaction_needs_a_store_that_has_them() -> None:
    """It is refused when the function is wrapped."""

    class Plain:
        namespace = None

        def insert(self, records: Any) -> Any: ...
        def read(self, ids: Any) -> Any: ...
        def replace(self, changes: Any) -> Any: ...

    class Committing(Plain):
        def commit(self, commits: Any) -> Any: ...

    def transfer(body: dict, tx: Transaction) -> None: ...

    for store in (Plain(), Committing()):  # a transaction also reads
        with pytest.raises(TypeError, match=f"requests a Transaction, which {type(store).__name__} does not support"):
            sqs_consumer(store)(transfer)
    sqs_consumer(Plain())(handle)


def test_what_an_annotation_demands_beyond_its_type_is_demanded() -> None:
    def picky(body: Annotated[list[int], Field(min_length=1)]) -> None: ...

    answer = sqs_consumer(MemoryStore())(picky)(event(sqs_record("1", "[1]"), sqs_record("2", "[]")), Context())

    assert failed_ids(answer) == ["2"]


@pytest.mark.parametrize(("name", "told"), [("eventSource", "aws:x"), ("EventSource", "aws:x"), ("from", "unknown")])
def test_an_event_of_another_service_is_told_where_it_comes_from(name: str, told: str) -> None:
    """The trigger is usually the wrong one."""
    with pytest.raises(InvalidEvent, match=rf"comes from '{told}'; is the function's trigger an SQS queue\?$"):
        sqs_consumer(MemoryStore())(handle)(event({name: "aws:x"}), Context())


@pytest.mark.parametrize("context", [None, object(), {}])
def test_a_missing_context_is_an_error_that_says_what_to_pass(context: object) -> None:
    """The context's deadline determines the lease."""
    with pytest.raises(TypeError, match=r"get_remaining_time_in_millis\(\), aws_request_id and function_name"):
        sqs_consumer(MemoryStore())(handle)(event(sqs_record("1")), context)


# Events.

NO_EVENTS: list[Any] = [
    None,
    {},
    [],
    "Records",
    7,
    {"records": []},
    {"Records": None},
    {"Records": {}},
    {"Records": "[]"},
    {"detail": {}},
    event(None),
    event("x"),
    event([]),
    event({}),
    event({"messageId": "1"}),
    event({"body": "{}"}),
    event({"messageId": "", "body": "{}"}),
    event({"messageId": None, "body": "{}"}),
    event({"messageId": 7, "body": "{}"}),
    event({"messageId": "1", "body": None}),
    event({"messageId": "1", "body": {"a": 1}}),
    event(sqs_record("1"), {"messageId": "2"}, sqs_record("3")),
]


@pytest.mark.scenario("S51", mutant="what is no batch is an empty batch")
@pytest.mark.scenario("S52", mutant="a malformed record is passed over")
@pytest.mark.scenario("S59", mutant="an empty messageId is let in")
@pytest.mark.parametrize("wrong", NO_EVENTS, ids=lambda one: json.dumps(one)[:40])
def test_an_invalid_event_raises_before_any_handler_runs(wrong: Any) -> None:
    """An empty answer would acknowledge everything; an error makes Lambda retry the batch."""
    store, ran = MemoryStore(), []

    def noting(body: dict) -> None:
        ran.append(body)

    with pytest.raises(InvalidEvent, match="not an SQS event"):
        sqs_consumer(store)(noting)(wrong, Context())
    assert ran == []
    assert store.items == {}


@pytest.mark.scenario("S51", mutant="an empty batch is received like any other")
def test_an_empty_batch_is_answered_without_any_request() -> None:
    """Not even one to the store, and no thread is started."""

    class Untouchable:
        namespace = None

        def touch(self, *arguments: Any) -> Any:
            raise AssertionError("the store was asked")

        insert = read = replace = touch

    wrapped = controlled(Untouchable(), executor=lambda: pytest.fail("no executor is needed"))(handle)

    assert wrapped(event(), Context()) == {"batchItemFailures": []}


@pytest.mark.parametrize("error", [RuntimeError, SystemExit, KeyboardInterrupt])
def test_a_key_that_ends_in_an_exit_is_its_messages_failure_alone(error: type[BaseException]) -> None:
    """Like such a handler. So is a reason that cannot be formatted."""

    class Unspeakable(UnusableKey):
        def __str__(self) -> str:
            raise error

    def exiting(message: Message) -> str:
        if message.id == "1":
            raise error
        if message.id == "2":
            raise Unspeakable
        return message.id

    wrapped = sqs_consumer(MemoryStore(namespace="n"), key=exiting)(handle)
    answer = wrapped(event(*(sqs_record(id) for id in "123")), Context())

    assert answer == {"batchItemFailures": [{"itemIdentifier": "1"}, {"itemIdentifier": "2"}]}


def test_a_body_is_taken_out_of_its_envelope_and_a_plain_one_stays_as_it_came() -> None:
    """EventBridge's, SNS's or none, all in one queue."""
    bodies = []

    def noting(body: dict) -> None:
        bodies.append(body)

    wrapped = sqs_consumer(MemoryStore(), envelope="detail || Message")(noting)
    records = [
        sqs_record("1", json.dumps({"detail": {"n": 1}, "detail-type": "x"})),
        sqs_record("2", json.dumps({"Type": "Notification", "Message": '{"n": 2}'})),
        sqs_record("3", '{"n": 3}'),
    ]

    assert failed_ids(wrapped(event(*records), Context())) == []
    assert bodies == [{"n": 1}, {"n": 2}, {"n": 3}]


def test_a_handler_gets_everything_of_its_message() -> None:
    """All documented attributes are there."""
    seen = []

    def noting(message: Message, body: str) -> None:
        seen.append((message, message.remaining_time_ms()))

    store = MemoryStore(namespace="n")
    sqs_consumer(store, key=lambda message: f"key-of-{message.id}")(noting)(
        event(sqs_record("1", "text", receives=3, group="g")), Context(seconds=20)
    )

    ((message, left_ms),) = seen
    assert (message.id, message.key, message.body, message.receive_count) == ("1", "key-of-1", "text", 3)
    assert (message.group_id, message.attempt, message.record_id) == ("g", 1, "n#key-of-1")
    assert message.sent_at is not None
    assert message.sent_at.year == 2027
    assert len(message.idempotency_key) == 64
    assert 15_000 < left_ms <= 20_000
    assert store.items["n#key-of-1"]["owner"] == "invocation-1"


def keyless(message: Message) -> str:
    raise KeyError(message.body)


@pytest.mark.parametrize(
    ("options", "context", "told"),
    [
        # As in a user's own tests.
        (
            {},
            SimpleNamespace(get_remaining_time_in_millis=lambda: 30_000),
            {"reason": "1 is closed", "error_type": "PermanentError", "function": "unknown"},
        ),
        # What it raised may have come from the body. After a redrive the messageId is another one.
        (
            {"key": keyless},
            Context(),
            {"reason": "the key strategy raised KeyError", "error_type": "UnusableKey", "function": "function"},
        ),
    ],
    ids=["a context that tells the time alone", "a key strategy that raises"],
)
def test_a_dead_letter_tells_what_is_known(options: Any, context: object, told: dict[str, str]) -> None:
    def closed(message: Message, body: dict) -> None:
        raise PermanentError(f"{message.key} is closed")

    store, sent = MemoryStore("n"), list[Any]()
    sqs: Any = SimpleNamespace(send_message=lambda **letter: sent.append(letter))
    wrapped = sqs_consumer(store, sqs=sqs, dead_letter_queue=URL, **options)(closed)

    assert failed_ids(wrapped(event(sqs_record("1")), context)) == []
    stamp = json.loads(sent[0]["MessageAttributes"][STAMP]["StringValue"])
    assert {name: stamp[name] for name in (*told, "key", "original_id")} == {**told, "key": "1", "original_id": "1"}
    assert [item["owner"] for item in store.items.values()] == ([] if options else ["unknown"])


def test_a_defect_of_the_library_acknowledges_nothing_and_is_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state of the batch is unknown, so every id fails."""

    def broken(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("idempotent_receiver.sqs.consumer.receive", broken)
    answer = sqs_consumer(MemoryStore())(handle)(event(sqs_record("1"), sqs_record("2")), Context())

    assert sorted(failed_ids(answer)) == ["1", "2"]
    assert "unexpected error in the receiver" in caplog.text


@pytest.mark.parametrize("broken", ["logger", "metrics"])
def test_logging_and_metrics_never_change_the_answer(broken: str) -> None:
    """A logger or a metrics sink may raise any exception."""

    class Broken:
        log_level = 10

        def fail(self, *arguments: Any, **fields: Any) -> Any:
            raise RuntimeError("the sink is broken")

        info = error = warning = debug = add_metric = flush_metrics = fail

    store = MemoryStore()
    wrapped = sqs_consumer(store, **{broken: Broken()})(handle)  # type: ignore[arg-type]

    assert failed_ids(wrapped(event(sqs_record("1")), Context())) == []
    assert store.items["1"]["status"] == "COMPLETED"


@pytest.mark.parametrize(("seconds", "told"), [(2.0, True), (2.0015, False)])
def test_an_invocation_too_short_for_any_message_names_what_to_change(
    seconds: float, told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise each message would come again until it is a dead letter, and none would say why."""
    wrapped = controlled(MemoryStore(), logger=logging.getLogger(), stop_margin_seconds=2, clock=ManualClock())(handle)

    answer = wrapped(event(sqs_record("1")), Context(seconds=seconds))

    assert ("raise the function's timeout above stop_margin_seconds" in caplog.text) is told
    assert failed_ids(answer) == (["1"] if told else [])


def test_a_backoff_that_raises_changes_no_answer(caplog: pytest.LogCaptureFixture) -> None:
    """What has been done would come again with each message that fails, and be a dead letter in the end."""

    class Broken(Backoff):
        def seconds(self, receive_count: int, clock: Clock) -> int:
            raise ZeroDivisionError

    def handle_most(body: dict) -> None:
        if body.get("fails"):
            raise ValueError

    sqs = SimpleNamespace(meta=SimpleNamespace(endpoint_url=""))
    wrapped = sqs_consumer(MemoryStore(), sqs=sqs, backoff=Broken(), logger=logging.getLogger())(handle_most)  # type: ignore[arg-type]

    assert failed_ids(wrapped(event(sqs_record("1", '{"fails": 1}'), sqs_record("2")), Context())) == ["1"]
    assert "the backoff raised, so the queue's visibility timeout applies" in caplog.text


async def key_from_elsewhere(message: Message) -> str:
    """A key that somebody would have to await."""
    return message.id


URL = "https://sqs.us-east-1.amazonaws.com/123456789012/dead"
METRICS = (("add", ""), ("flush", "s"))
DYNAMODB = boto3.client("dynamodb", region_name="us-east-1")


WRONGLY_CALLED = [lambda: "1", lambda message, context: "1", lambda *, message: "1"]
"""Their TypeError for each message would blame the message."""


@pytest.mark.parametrize(
    ("told", "wrong"),
    [
        ("key must be message_id", {"key": "order_id"}),
        *[("key must be .*, which does not take one argument", {"key": wrong}) for wrong in WRONGLY_CALLED],
        *[("envelope must take one argument, the body", {"envelope": wrong}) for wrong in WRONGLY_CALLED],
        ("call it with a name", {"key": message_attribute}),
        ("call it with a name", {"key": body_field}),
        ("sqs must be a boto3 client for sqs", {"sqs": DYNAMODB}),
        ("a queue URL, not a name or ARN", {"sqs": object(), "dead_letter_queue": URL.replace("https://", "arn:")}),
        (r"sqs=boto3.client\('sqs'\)", {"dead_letter_queue": URL}),
        ("backoff must be a Backoff", {"backoff": {"first_seconds": 1}}),
        ("backoff must be a Backoff", {"backoff": Backoff}),
        # What waits for the table asks it another question.
        ("backoff must be a Backoff", {"backoff": SimpleNamespace(seconds=lambda receives, clock: 1)}),
        # The text of an environment's variable: "false" would store what was to stay out of the table.
        *[("error_texts must be True or False", {"error_texts": wrong}) for wrong in ("false", "", None)],
        # Nothing is ever later than NaN, and with all time reserved nothing would start.
        *[
            ("stop_margin_seconds must be a finite, non-negative number", {"stop_margin_seconds": float(wrong)})
            for wrong in ("nan", "inf")
        ],
        *[
            ("lease_margin_seconds must be a finite, non-negative number", {"lease_margin_seconds": float(wrong)})
            for wrong in ("nan", "inf")
        ],
        ("key must be .* a coroutine function", {"key": key_from_elsewhere}),
        *[("logger must be a Powertools", {"logger": SimpleNamespace(**{name: print})}) for name in ("info", "error")],
        *[("metrics must be", {"metrics": SimpleNamespace(**{f"{name}_metric{s}": 1})}) for name, s in METRICS],
        ("logger must be a Powertools Logger", {"logger": 3}),
        ("metrics must be Powertools Metrics", {"metrics": 3}),
        *[("concurrency must be a whole number of at least 1", {"concurrency": wrong}) for wrong in (2.5, 0, -1)],
        # SQS delivers again for days.
        *[("retention_seconds must be at least 86400", {"retention_seconds": wrong}) for wrong in (1, 3600, 86_399)],
        # A lease must outlast the process.
        ("lease_margin_seconds must be a finite, non-negative number of seconds", {"lease_margin_seconds": -0.1}),
        ("stop_margin_seconds must be a finite, non-negative number of seconds", {"stop_margin_seconds": -0.1}),
        *[("lease_margin_seconds must be", {"lease_margin_seconds": float(wrong)}) for wrong in ("nan", "inf")],
        # Of an environment variable, "false" would store what errors say.
        ("error_texts must be True or False", {"error_texts": "false"}),
        (r"envelope\('detail\['\) is not a JMESPath", {"envelope": "detail["}),
    ],
)
def test_an_invalid_option_is_refused_at_set_up_by_its_name(told: str, wrong: dict[str, Any]) -> None:
    """An error for each message later would look like the messages' own fault."""
    with pytest.raises((TypeError, ValueError), match=told):
        sqs_consumer(MemoryStore(namespace="n"), **wrong)


def test_an_object_that_is_no_store_is_refused_at_set_up() -> None:
    """Usually the decorator, or the store's class, was used without calling it."""
    with pytest.raises(TypeError, match=r"@sqs_consumer\(store\)"):
        sqs_consumer(handle)  # type: ignore[arg-type]  # the slip
    with pytest.raises(TypeError, match=r"store must be a store.*; it is <class"):
        sqs_consumer(MemoryStore)  # type: ignore[arg-type]  # the slip
    with pytest.raises(TypeError, match="such as DynamoDBStore"):
        sqs_consumer("records")  # type: ignore[arg-type]  # a table's name is no store
    with pytest.raises(TypeError, match="client must be a boto3 client for dynamodb"):
        DynamoDBStore("records", client=boto3.client("sqs", region_name="us-east-1"))  # type: ignore[arg-type]


def test_a_client_that_converts_values_is_refused_at_set_up() -> None:
    """It would turn what the store sends into something else: each duplicate and retry would fail. A client of the
    same session is as usual, and one of a resource of SQS or S3 works.
    """
    session = boto3.session.Session(region_name="us-east-1")
    resource = session.resource("dynamodb")
    for converting in (resource.meta.client, resource.Table("records").meta.client):
        with pytest.raises(
            TypeError, match=r"boto3\.client\('dynamodb'\); it is a resource's own client, resource\.meta\.client"
        ):
            DynamoDBStore("records", client=converting)

    plain = session.client("dynamodb")

    assert [DynamoDBStore("records", client=plain).client for _ in range(2)] == [plain] * 2
    sqs_consumer(MemoryStore(), sqs=session.resource("sqs").meta.client)(handle)
    S3Results("results", session.resource("s3").meta.client)


# Keys that somebody else chose.

ORDER = '{"order_id":"o-1"}'


@pytest.mark.parametrize("forged_first", [True, False])
def test_a_forged_key_reaches_no_record_of_another_consumer(forged_first: bool) -> None:
    """A message of a consumer without a namespace, stamped with another's id and its body."""
    plain, orders = MemoryStore(), MemoryStore("orders")
    orders.items = plain.items
    posted: list[str] = []
    taken: list[str] = []

    @sqs_consumer(plain)
    def post(body: str) -> None:
        posted.append(body)

    @sqs_consumer(orders, key=body_field("order_id"))
    def take(body: str) -> None:
        taken.append(body)

    stamp = {"stringValue": json.dumps({"key": "orders#o-1", "original_id": "o-1"}), "dataType": "String"}
    forged = event(sqs_record("forged", ORDER, attributes={STAMP: stamp}))
    real = event(sqs_record("real", ORDER))
    for way_in, sent in [(post, forged), (take, real)] if forged_first else [(take, real), (post, forged)]:
        answer = way_in(sent, Context())
        assert failed_ids(answer) == (["forged"] if sent is forged else [])

    assert (posted, taken) == ([], [ORDER])
    assert list(plain.items) == ["orders#o-1"]


def test_a_key_with_a_number_sign_fails_for_good_without_a_namespace_and_says_what_helps() -> None:
    """It goes to the dead-letter queue with that reason, and no request reaches the table."""
    with pytest.raises(UnusableKey, match="give the store a namespace"):
        usable("a#b", partial(record_id, MemoryStore().namespace))
    assert usable("a#b", partial(record_id, MemoryStore("n").namespace)) == "a#b"
