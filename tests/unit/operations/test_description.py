"""What a consumer is, said once: by its code, by a document, and by the operator's commands that read its messages."""

from __future__ import annotations

import json
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver import (
    MemoryStore,
    body_field,
    event_id,
    message_attribute,
    message_id,
    payload_key,
)
from idempotent_receiver.operations.account import UsageError
from idempotent_receiver.operations.cli.common_options import Options
from idempotent_receiver.operations.cli.deployment import Deployment, Queue
from idempotent_receiver.operations.description import OUTPUT, Description, InCode, description_in, differences, stated
from idempotent_receiver.payload import Payload
from idempotent_receiver.sqs.received import lambda_record
from tests.consumers import controlled
from tests.contexts import Context
from tests.manual_clock import ManualClock
from tests.queues import Queues

if TYPE_CHECKING:
    from pathlib import Path

    from idempotent_receiver.sqs.consumer import Consumer

QUEUE = "arn:aws:sqs:us-east-1:123456789012:orders"
ORDER = {"id": "o-1", "sent_at": "2026-11-23", "amount": 5}
EVENT = {"detail-type": "Order", "id": "e-1", "detail": ORDER, "sent_at": "2026-11-24"}
S3 = {"bucket": {"name": "b"}, "object": {"key": "k", "sequencer": "1"}}
FROM_S3 = {"Records": [{"eventSource": "aws:s3", "eventName": "ObjectCreated:Put", "s3": S3}], "sent_at": "2026-11-24"}
ENVELOPES, PAYLOADS = (
    (None, "detail"),
    (None, Payload(), Payload(without=("sent_at",)), Payload(fields="id || sent_at")),
)
KEYS = (
    message_attribute("order"),
    body_field("id"),
    payload_key("id"),
    payload_key(without=["sent_at", "meta.trace"], without_query=["q"]),
)
MADE = [
    *product([message_id], [None], ENVELOPES, [None, "bank"], [EVENT]),
    *product(KEYS, PAYLOADS, ENVELOPES, ["bank"], [EVENT]),
    *product([event_id], PAYLOADS, ENVELOPES, ["bank"], [EVENT, FROM_S3]),
]
CONSUMERS: list[tuple[dict[str, Any], str | None, Any]] = [
    ({"key": key, "payload": payload, "envelope": envelope}, namespace, body)
    for key, payload, envelope, namespace, body in MADE
]


def consumer(store: MemoryStore | None = None, **given: Any) -> Consumer:
    @controlled(MemoryStore(namespace="bank") if store is None else store, **given)
    def handle(body: dict) -> None:
        raise ConnectionError

    return handle


@pytest.mark.parametrize(("given", "namespace", "body"), CONSUMERS)
def test_commands_read_a_message_as_the_consumer_that_a_document_describes(
    tmp_path: Path, given: dict[str, Any], namespace: str | None, body: Any
) -> None:
    """Its record's id and its fingerprint are those that the consumer itself has written."""
    store, clock = MemoryStore(namespace=namespace), ManualClock()
    handler = consumer(store, clock=clock, **given)
    attributes = {"order": {"DataType": "String", "StringValue": "o-1"}}
    raw = {"MessageId": "m-1", "ReceiptHandle": "r", "Body": json.dumps(body), "Attributes": {"SentTimestamp": "1"}}
    raw |= {"MessageAttributes": attributes}
    handler({"Records": [lambda_record(raw, QUEUE)]}, Context(clock))
    ((id, record),) = store.items.items()

    file = tmp_path / "orders.json"
    file.write_text(json.dumps(Description.of(handler).document()))
    deployment = Deployment(Options(consumer=str(file)))
    deployment.__dict__["queue"] = Queue("url", QUEUE)
    letter = deployment.reader().read(raw, 0)

    assert (letter.record_id, letter.fingerprint) == (id, record["validation"])
    assert deployment.described


def test_a_document_has_what_a_decorator_leaves_to_its_defaults() -> None:
    assert Description.of(consumer(MemoryStore())).document() == {
        "key": "message_id",
        "payload": {},
        "envelope": None,
        "namespace": None,
        "retention_days": 30,
        "effects": "any",
        "max_attempts": None,
        "max_age_seconds": 259_200,
    }


def test_a_document_says_how_many_attempts_a_message_has_and_until_when() -> None:
    document = Description.of(consumer(max_age_seconds=3600, **LIMITED)).document()
    assert (document["max_attempts"], document["max_age_seconds"]) == (10, 3600)
    assert description_in(json.dumps(document)).document() == document


@pytest.mark.parametrize("seconds", [86_400, 100_000, 30 * 86_400])
def test_a_retention_is_the_same_to_the_second(seconds: int) -> None:
    document = json.dumps(Description.of(consumer(retention_seconds=seconds)).document())
    assert description_in(document).retention_seconds == seconds


class Odd:
    def fingerprint(self, document: object) -> str:
        return "odd"


def by_customer(message: Any) -> str:
    return "alice"


def unwrapped(body: str) -> str:
    """The body in an envelope that is made in code."""
    if not body.startswith("wrapped:"):
        raise KeyError(body)
    return body.removeprefix("wrapped:")


def test_a_callable_is_named_and_stays_a_name_in_a_document() -> None:
    handler = consumer(key=by_customer, payload=Odd(), envelope=unwrapped)
    document = Description.of(handler).document()
    assert document["key"] == {"callable": f"{__name__}:by_customer"}
    assert document["payload"] == {"callable": f"{__name__}:Odd"}
    assert document["envelope"] == {"callable": f"{__name__}:unwrapped"}
    read = description_in(json.dumps(document))
    assert read.envelope == InCode(f"{__name__}:unwrapped")
    assert (read.key, read.payload) == (InCode(f"{__name__}:by_customer"), InCode(f"{__name__}:Odd"))
    assert read.document() == document
    assert differences(Description.of(handler), read) == {}


def test_without_its_code_no_key_is_computed_of_what_is_in_an_envelope(tmp_path: Path) -> None:
    """Not even one that needs no body. With `--consumer`, the envelope is opened as the consumer does."""
    handler = consumer(key=body_field("id"), envelope=unwrapped)
    deployment = Deployment(Options())
    deployment.__dict__.update({"queue": Queue("url", QUEUE), "description": Description.of(handler)})
    raw = {"MessageId": "m-1", "ReceiptHandle": "r", "Attributes": {"SentTimestamp": "1"}}
    letter = deployment.reader().read({**raw, "Body": f"wrapped:{json.dumps(ORDER)}"}, 0)
    assert (letter.key, letter.unkeyed) == ("o-1", None)
    letter = deployment.reader().read({**raw, "Body": "{}"}, 0)
    assert (letter.key, letter.unkeyed) == ("", "no body could be made from the envelope: KeyError")

    for key in ("message_id", {"body_field": "id"}):
        document = Description.of(handler).document() | {"key": key}
        deployment = Deployment(Options())
        said = description_in(json.dumps(document))
        deployment.__dict__.update({"queue": Queue("url", QUEUE), "description": said})
        with pytest.raises(UsageError, match=f"^the envelope is {__name__}:unwrapped, .* give --consumer"):
            deployment.reader()


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ("", "it is not JSON"),
        ('{"key": "message_id", "key": "event_id"}', "it is not JSON: an object has a repeated name"),
        ("[]", "it is not a JSON object"),
        ('{"keys": "message_id"}', "unknown field keys: use key, payload, envelope, namespace"),
        (
            '{"key": "guess"}',
            'key: "guess" is not a key strategy: use "message_id", "event_id", {"message_attribute": ',
        ),
        ('{"key": {"body_field": "id", "message_attribute": "id"}}', "is not a key strategy"),
        ('{"key": ["message_id"]}', "is not a key strategy"),
        ('{"key": {"body_field": "a-b c"}}', "key: body_field('a-b c') is not a JMESPath expression"),
        ('{"key": {"body_field": 1}}', "key: body_field(1) is not a JMESPath expression"),
        ('{"key": {"message_attribute": 1}}', "key: message_attribute needs the attribute's name"),
        ('{"key": {"message_attribute": ""}}', "key: message_attribute needs the attribute's name"),
        ('{"key": {"payload_key": {"with": "id"}}}', 'key: {"with": "id"} is not a payload'),
        ('{"key": {"body_field": "id"}}', "namespace is missing"),
        (
            '{"payload": "everything"}',
            'payload: "everything" is not a payload: use {} for the whole body, or fields, without',
        ),
        ('{"payload": {"without": "sent_at"}}', "payload: without takes several paths"),
        ('{"payload": {"fields": "a-b c"}}', "payload: fields('a-b c') is not a JMESPath expression"),
        ('{"envelope": "[["}', "envelope: envelope('[[') is not a JMESPath expression"),
        ('{"envelope": 1}', "envelope: envelope(1) is not a JMESPath expression"),
        ('{"namespace": "a#b"}', "namespace: namespace 'a#b' has a '#'"),
        ('{"namespace": 1}', "namespace: namespace must be a string"),
        *(
            (f'{{"retention_days": {days}}}', "retention_days: ")
            for days in ("-5", "0", "NaN", '"30"', "true", "1e999")
        ),
        ('{"effects": "some"}', "effects: effects must be 'any', or 'transaction'"),
        ('{"max_attempts": 0}', "max_attempts: max_attempts must be a whole number of at least 1"),
        ('{"max_age_seconds": "a day"}', "max_age_seconds: max_age_seconds must be a whole number of at least 1"),
    ],
)
def test_a_document_that_cannot_be_meant_is_refused_by_its_field(document: str, says: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011  # the table has the texts
        description_in(document)
    assert says in str(refused.value)
    remedy = "set it to what `receiver describe` prints, or give --consumer"
    with pytest.raises(UsageError, match=f"output {OUTPUT} of stack shop: .*; .*{remedy}$"):
        stated({OUTPUT: document}, "shop")


@pytest.mark.parametrize(
    ("document", "newer"),
    [
        ('{"key": "message_id", "calls": ["charge"]}', True),
        ('{"key": {"header": "id"}}', True),
        ('{"payload": {"hashed": true}}', True),
        ('{"effects": "saga"}', True),
        ("no JSON", False),
        ('{"retention_days": -5}', False),
        ('{"key": {"body_field": "id"}}', False),
    ],
)
def test_the_remedy_for_a_newer_stacks_description_is_a_newer_receiver(document: str, *, newer: bool) -> None:
    with pytest.raises(UsageError) as refused:
        stated({OUTPUT: document}, "shop")
    assert ("; upgrade `receiver` if a newer version wrote it, or " in str(refused.value)) == newer


LIMITED: dict[str, Any] = {"max_attempts": 10, "dead_letter_queue": "https://sqs/1/dead", "sqs": Queues()}
CODE = Description.of(consumer(key=body_field("id"), payload=Payload(without=("sent_at",)), **LIMITED))


@pytest.mark.parametrize(
    ("output", "different"),
    [
        (CODE.document(), {}),
        ({"key": {"body_field": "id"}, "namespace": "bank"}, {}),  # what it does not say is not compared
        ({**CODE.document(), "payload": {}}, {"payload": ('{"without": ["sent_at"]}', "{}")}),
        ({**CODE.document(), "envelope": "detail"}, {"envelope": ("null", '"detail"')}),
        ({**CODE.document(), "max_attempts": 3}, {"max_attempts": ("10", "3")}),
        ({**CODE.document(), "retention_days": 7.5}, {"retention_days": ("30", "7.5")}),
        ({"key": "message_id"}, {"key": ('{"body_field": "id"}', '"message_id"'), "namespace": ('"bank"', "null")}),
    ],
)
def test_what_differs_between_code_and_document_is_told_with_both_values(output: Any, different: Any) -> None:
    assert differences(CODE, description_in(json.dumps(output))) == different


@pytest.mark.parametrize(
    ("document", "known"),
    [
        ({"key": "message_id"}, True),
        ({"key": {"body_field": "id"}, "namespace": "bank", "payload": {}}, True),
        ({"key": {"body_field": "id"}, "namespace": "bank"}, False),
        ({}, False),
    ],
)
def test_it_is_known_whether_a_consumer_says_which_part_of_a_body_counts(
    tmp_path: Path, document: Any, known: bool
) -> None:
    """A messageId goes with all of its body, whatever is said."""
    file = tmp_path / "orders.json"
    file.write_text(json.dumps(document))
    assert Deployment(Options(consumer=str(file))).described is known
