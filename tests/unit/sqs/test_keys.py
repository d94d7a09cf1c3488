"""Keys and fingerprints: where they come from, what is refused, and what counts as one payload."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idempotent_receiver import (
    MemoryStore,
    Message,
    Payload,
    Transaction,
    body_field,
    event_id,
    message_attribute,
    message_id,
    sqs_consumer,
)
from idempotent_receiver.errors import UnusableKey
from idempotent_receiver.payload import EVERYTHING, Document
from idempotent_receiver.protocol.record import MOST_KEY_BYTES, record_id, usable
from idempotent_receiver.sqs.keys import envelope_opener, fingerprint_by
from idempotent_receiver.testing import lambda_context, sqs_event
from idempotent_receiver.testing.worker import failed_ids
from idempotent_receiver.transaction.outbox import STAMP
from tests.contexts import Context
from tests.manual_clock import ManualClock


def message(body: str = "{}", **attributes: Any) -> Message:
    return Message(id="id-1", body=body, raw_body=body, message_attributes=attributes)


def fingerprint(body: str) -> str:
    return EVERYTHING.fingerprint(Document.of_text(body))


def as_it_is(key: str) -> str:
    return key


def test_the_message_id_is_the_key_unless_the_message_carries_its_original_one() -> None:
    """A redriven message has a new id."""
    stamp = {"stringValue": json.dumps({"key": "original", "original_id": "id-0"})}

    assert message_id(message()) == "id-1"
    assert message_id(message(**{STAMP: stamp})) == "original"


@pytest.mark.parametrize(
    ("path", "body", "key"),
    [
        ("id", '{"id":"a"}', "a"),
        ("detail.order.id", '{"detail":{"order":{"id":"b"}}}', "b"),
        ('"order-id"', '{"order-id":"c"}', "c"),
        ("items[0].id", '{"items":[{"id":"d"}]}', "d"),
        ("join('/', [a, b])", '{"a":"e","b":"f"}', "e/f"),
    ],
)
def test_a_body_field_is_found_by_its_path(path: str, body: str, key: str) -> None:
    """JMESPath, as elsewhere at AWS."""
    assert body_field(path)(message(body)) == key


@pytest.mark.parametrize(
    ("number", "key"),
    [
        ("42", "42"),
        ("42.0", "42"),
        ("4.2e1", "42"),
        ('"42"', "42"),
        ("0", "0"),
        ("-0", "0"),
        ("-0.0", "0"),
        ("-7", "-7"),
        ("9007199254740991.0", "9007199254740991"),
        ("9007199254740993", "9007199254740993"),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
    ],
)
def test_a_whole_number_is_a_key_however_it_is_written(number: str, key: str) -> None:
    """By its digits alone, as in RFC 8785; a string of the same digits is the same key."""
    assert body_field("id")(message(f'{{"id": {number}}}')) == key


@pytest.mark.parametrize(
    "value", ["4.2", "1e400", "NaN", "-Infinity", "true", "false", "9007199254740992.0", "1e300", "[42]", '{"a":1}']
)
def test_a_number_that_may_not_be_whole_is_no_key(value: str) -> None:
    """A float beyond 2**53 stands for several numbers. The reason does not show the body."""
    kind = r"a (bool|list|dict)|a number with a fraction, or too large to be exact"
    told = rf"^'id' finds ({kind}): a key is a string or a whole number(; send it as a string)?$"
    with pytest.raises(UnusableKey, match=told) as caught:
        body_field("id")(message(f'{{"id": {value}}}'))

    assert value not in str(caught.value)


def test_a_number_and_the_string_of_its_digits_are_one_order_and_two_payloads() -> None:
    """Two producers that disagree about the type mean the same order: the second is refused and does not run."""
    runs = []

    @sqs_consumer(MemoryStore(namespace="orders"), key=body_field("id"))
    def take(order: dict[str, Any]) -> None:
        runs.append(order)

    bodies = ['{"id": 42, "sku": "a"}', '{"sku": "a", "id": 42.0}', '{"id": "42", "sku": "a"}']
    answers = [
        take({"Records": [{"messageId": f"m-{number}", "body": body}]}, Context(ManualClock()))
        for number, body in enumerate(bodies)
    ]

    assert [len(answer["batchItemFailures"]) for answer in answers] == [0, 0, 1]
    assert runs == [{"id": 42, "sku": "a"}]


def test_an_invalid_path_is_refused_at_once_with_the_remedy() -> None:
    """A hyphen is the usual reason."""
    with pytest.raises(ValueError, match="needs quotes inside"):
        body_field("order-id")


@pytest.mark.parametrize("body", ["", "no JSON", "[" * 100_000, '{"other":1}', "null", "7"])
def test_a_body_without_the_field_has_no_usable_key(body: str) -> None:
    """The reason names the path, but does not show the body."""
    with pytest.raises(UnusableKey, match=r"^(the body has no|no) 'id' to take as the key"):
        body_field("id")(message(body))


@pytest.mark.parametrize("body", ['{"id":"a","id":"b"}', '{"id":"a","id":"a"}', '{"id":"a","meta":{"x":1,"x":2}}'])
def test_a_body_with_a_name_twice_has_no_usable_key(body: str) -> None:
    """Parsers differ in which one they take, so the same message would have two keys."""
    with pytest.raises(
        UnusableKey,
        match=r"^no 'id' to take as the key: the body is not JSON, or an object in it repeats a name$",
    ):
        body_field("id")(message(body))
    with pytest.raises(UnusableKey, match="repeats a name"):
        event_id(message(body.replace("{", '{"detail-type":"x",', 1)))


def s3_record(**changes: Any) -> dict[str, Any]:
    """As in AWS's documentation, "Event message structure"; a change to None takes a field of the object away."""
    found = {
        "key": "orders/red+flower.json",
        "size": 1024,
        "eTag": "d41d8cd98f00b204e9800998ecf8427e",
        "versionId": "096fKKXTRTtl3on89fVO.nfljtsv6qko",
        "sequencer": "0055AED6DCD90281E5",
    }
    return {
        "eventVersion": "2.6",
        "eventSource": "aws:s3",
        "awsRegion": "us-west-2",
        "eventTime": "1970-01-01T00:00:00.000Z",
        "eventName": changes.pop("name", "ObjectCreated:Put"),
        "responseElements": {"x-amz-request-id": "C3D13FE58DE4C810", "x-amz-id-2": "FMyUVURIY8/IgAtTv8xRjskZQpcIZ9KG"},
        "s3": {
            "s3SchemaVersion": "1.0",
            "configurationId": "orders",
            "bucket": {"name": changes.pop("bucket", "mybucket"), "arn": "arn:aws:s3:::mybucket"},
            "object": {name: value for name, value in (found | changes).items() if value is not None},
        },
    }


def s3_key(*records: dict[str, Any]) -> str:
    return event_id(message(json.dumps({"Records": list(records)})))


def test_an_event_of_s3_is_known_by_bucket_key_name_sequencer_and_version() -> None:
    """S3 sends each at least once, with none but these to tell it. The key fits a record's id with any name."""
    assert s3_key(s3_record()) == s3_key(s3_record()) == event_id({"Records": [s3_record()]})
    others = [
        s3_record(bucket="another"),
        s3_record(key="orders/another.json"),
        s3_record(name="ObjectCreated:Copy"),
        s3_record(sequencer="0055AED6DCD90281E6"),
        s3_record(versionId="another"),
        s3_record(versionId=None),
    ]
    assert len({s3_key(one) for one in (s3_record(), *others)}) == 1 + len(others)
    assert usable(s3_key(s3_record(key="%E6%B3%A8" * 340)), lambda key: f"orders#{key}")


def test_nothing_else_of_an_s3_event_makes_another_key() -> None:
    """Such as an ETag, which two uploads of one content share, and a version that is null."""
    assert s3_key(s3_record(eTag="another", size=7)) == s3_key(s3_record())
    null = s3_record()
    null["s3"]["object"]["versionId"] = None
    assert s3_key(null) == s3_key(s3_record(versionId=None))


@pytest.mark.parametrize("between", ["/", ",", ":", "#", "\n", '","', '", "', "\\", "|"])
def test_no_two_s3_events_have_one_key_however_their_names_read_when_joined(between: str) -> None:
    """Nothing keeps an object's key, or whoever else may send to the queue, from any character."""
    one = s3_record(bucket="a", key=f"b{between}c", name="d")
    others = [s3_record(bucket=f"a{between}b", key="c", name="d"), s3_record(bucket="a", key="b", name=f"c{between}d")]

    assert len({s3_key(each) for each in (one, *others)}) == 3


def test_s3_events_behind_sns_and_eventbridge_have_the_ids_that_these_gave_them() -> None:
    text = json.dumps({"Records": [s3_record()]})
    assert event_id(message(json.dumps({"Type": "Notification", "MessageId": "sns-1", "Message": text}))) == "sns-1"
    bridged = {"id": "eb-1", "detail-type": "Object Created", "source": "aws.s3", "detail": {}}
    assert event_id(message(json.dumps(bridged))) == "eb-1"


@pytest.mark.parametrize(
    ("records", "told"),
    [
        ([s3_record(), s3_record()], "several S3 events and would need several keys"),
        ([s3_record(sequencer=None)], "no sequencer to make the S3 event's key from.*EventBridge"),
        ([s3_record(sequencer="")], "no sequencer"),
        ([s3_record(sequencer=7)], "no sequencer"),
        ([s3_record(key=None)], "no sequencer"),
        ([s3_record(versionId=["v"])], "no sequencer"),
        ([s3_record(bucket=7)], "no sequencer"),
        ([{"eventSource": "aws:s3"}], "no sequencer"),
        ([], "not an event from EventBridge, SNS or S3"),
        ([{"eventSource": "aws:kinesis"}], "not an event from EventBridge, SNS or S3"),
    ],
)
def test_an_s3_event_that_cannot_be_told_from_others_has_no_usable_key(
    records: list[dict[str, Any]], told: str
) -> None:
    """An ETag or a time alone would take two events for one."""
    with pytest.raises(UnusableKey, match=told):
        s3_key(*records)


TEST_EVENT = {
    "Service": "Amazon S3",
    "Event": "s3:TestEvent",
    "Time": "2014-10-13T15:57:02.089Z",
    "Bucket": "amzn-s3-demo-bucket",
    "RequestId": "5582815E1AEA5ADF",
    "HostId": "8cLeGAmw098X5cv4Zkwcmo8vvZa3eH3eKxsPzbB9wrR+YstdA6Knx4Ip8EXAMPLE",
}


class Uploads:
    """A consumer of S3's events, plain or not, and the bodies that its function was run with."""

    def __init__(self, *, asynchronous: bool = False, **options: Any) -> None:
        self.store, self.ran = MemoryStore("uploads"), list[dict[str, Any]]()

        def plain(body: dict, tx: Transaction) -> None:
            self.ran.append(body)

        async def coroutine(body: dict, tx: Transaction) -> None:
            self.ran.append(body)

        function = coroutine if asynchronous else plain
        self.handler = sqs_consumer(self.store, **{"key": event_id} | options)(function)

    def receive(self, *bodies: dict[str, Any]) -> list[str]:
        return failed_ids(self.handler(sqs_event(*bodies), lambda_context()))


def test_a_second_notification_of_one_s3_event_is_a_duplicate_whatever_else_it_says() -> None:
    """AWS promises of the two that the sequencer is the same, and nothing of the rest. A named payload counts."""
    again = s3_record() | {"eventTime": "1970-01-01T00:00:01.000Z", "responseElements": {"x-amz-request-id": "another"}}
    both = [{"Records": [record]} for record in (s3_record(), again)]

    assert Uploads().receive(*both) == []
    assert Uploads(payload=Payload("Records[0].eventTime")).receive(*both) == ["message-2"]


@pytest.mark.parametrize("effects", ["any", "transaction"])
@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("carried", ["plainly", "by SNS"])
def test_the_test_event_that_s3_sends_first_is_completed_without_the_function(
    carried: str, asynchronous: bool, effects: str
) -> None:
    """S3 sends it when a notification is configured. It is a message, and no event: its key is its messageId."""
    uploads = Uploads(asynchronous=asynchronous, effects=effects)
    enveloped = {"Type": "Notification", "MessageId": "sns-1", "Message": json.dumps(TEST_EVENT)}
    sent = TEST_EVENT if carried == "plainly" else enveloped
    upload = {"Records": [s3_record()]}

    assert uploads.receive(sent, upload) == []
    assert uploads.ran == [upload]
    assert uploads.store.items["uploads#message-1"]["status"] == "COMPLETED"
    assert uploads.receive(sent) == []


@pytest.mark.parametrize(
    "body",
    [
        {**TEST_EVENT, "Service": "another"},
        {**TEST_EVENT, "Event": "s3:ObjectCreated:Put", "Note": "s3:TestEvent"},
        {"Records": ["s3:TestEvent"]},
        {"Type": "Notification", "Message": "s3:TestEvent"},
        {"Type": "Notification", "s3:TestEvent": 1},
        {"Type": "Notification", "Message": {"Event": "s3:TestEvent"}},
    ],
)
def test_what_only_mentions_a_test_event_is_none(body: dict[str, Any]) -> None:
    """It fails for want of a key, and is not passed over."""
    uploads = Uploads()

    assert uploads.receive(body) == ["message-1"]
    assert not uploads.store.items


def test_a_consumer_with_another_key_gets_a_test_event_like_any_message() -> None:
    uploads = Uploads(key=message_id)

    assert uploads.receive(TEST_EVENT) == []
    assert uploads.ran == [TEST_EVENT]


def test_an_envelope_with_a_name_twice_is_not_opened() -> None:
    """Opening it would drop one of the two."""
    body = '{"detail":{"id":"a","id":"b"}}'
    assert envelope_opener("detail")(body) == body


def test_a_function_of_the_path_that_meets_a_foreign_type_has_no_usable_key() -> None:
    """JMESPath raises for it."""
    with pytest.raises(UnusableKey):
        body_field("join('/', a)")(message('{"a":7}'))


def test_a_message_attributes_string_is_the_key() -> None:
    """The reason names a missing attribute."""
    assert message_attribute("order")(message(order={"stringValue": "a"})) == "a"
    with pytest.raises(UnusableKey, match=r"^the message has no attribute 'order'$"):
        message_attribute("order")(message())


@pytest.mark.parametrize("key", ["a", "x" * MOST_KEY_BYTES, "é" * (MOST_KEY_BYTES // 2), "\x00", "😀", " "])
def test_what_dynamodb_can_hold_is_usable(key: str) -> None:
    """To the byte."""
    assert usable(key, as_it_is) == key


@pytest.mark.parametrize("key", [None, 7, b"a", ["a"], object(), "", "x" * 2049, "é" * 1025, "\ud800"])
def test_what_dynamodb_cannot_hold_is_not(key: object) -> None:
    """Such a message never runs unclaimed."""
    with pytest.raises(UnusableKey, match="key"):
        usable(key, as_it_is)


def test_a_namespace_counts_towards_the_limit() -> None:
    """DynamoDB stores the record's id, which contains both."""
    store = MemoryStore(namespace="n")

    assert usable("x" * 2046, lambda key: record_id(store.namespace, key))
    with pytest.raises(UnusableKey, match="2049 bytes"):
        usable("x" * 2047, lambda key: record_id(store.namespace, key))


def test_a_records_id_is_the_key_or_the_key_in_its_namespace() -> None:
    """`{namespace}#{key}`."""
    assert record_id(MemoryStore().namespace, "a") == "a"
    assert record_id(MemoryStore(namespace="n").namespace, "a") == "n#a"


PARTS = st.text("ab#.", min_size=1, max_size=4)


@given(st.none() | PARTS, PARTS, st.none() | PARTS, PARTS)
def test_no_two_namespaces_and_keys_have_one_id(
    one: str | None, one_key: str, other: str | None, other_key: str
) -> None:
    """An ambiguous combination is refused, whoever chose the key."""
    try:
        ids = [record_id(MemoryStore(one).namespace, one_key), record_id(MemoryStore(other).namespace, other_key)]
    except ValueError:  # an UnusableKey is one
        assert "#" in f"{one}{other}" or any(
            "#" in key for key, of in ((one_key, one), (other_key, other)) if of is None
        )
        return

    assert (ids[0] == ids[1]) == ((one, one_key) == (other, other_key))


@pytest.mark.parametrize(
    ("one", "other"),
    [('{"a":1,"b":2}', '{ "b": 2, "a": 1 }'), ("1.0", "1"), (r'"\u00e9"', '"é"'), ("[1 , 2]", "[1,2]"), ("1e2", "100")],
)
def test_one_payload_written_in_two_ways_has_one_fingerprint(one: str, other: str) -> None:
    """Canonical JSON decides."""
    assert fingerprint(one) == fingerprint(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a":1}', '{"a":2}'),
        ("[1,2]", "[2,1]"),
        ('"1"', "1"),
        ("null", "{}"),
        ("9007199254740993", "9007199254740992"),
    ],
)
def test_two_payloads_have_two_fingerprints(one: str, other: str) -> None:
    """Also beyond the integers that JSON numbers can distinguish."""
    assert fingerprint(one) != fingerprint(other)


def test_a_message_ids_fingerprint_is_of_the_very_bytes_and_of_the_envelope_too() -> None:
    """SQS ties the two together."""
    sent = Message(id="1", body="inner", raw_body="outer")

    assert fingerprint_by(message_id, sent) == sha256(b"outer").hexdigest()
    odd = Message(id="1", body="", raw_body="\ud800")
    assert fingerprint_by(message_id, odd) == sha256(b"\xed\xa0\x80").hexdigest()
    assert fingerprint_by(body_field("id"), sent) == sha256(b"inner").hexdigest()


ANYTHING = st.one_of(
    st.text(),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
    ).map(json.dumps),
)


@pytest.mark.slow
@given(ANYTHING)
def test_no_body_whatsoever_makes_a_fingerprint_or_an_envelope_raise(body: str) -> None:
    """They run before any handler, where one message's error would fail the whole batch."""
    assert len(fingerprint(body)) == 64
    assert isinstance(envelope_opener("detail || Message || @")(body), str)


@pytest.mark.parametrize("depth", [10, 500, 900, 950, 975, 990, 1000, 5000, 100_000])
def test_no_depth_of_a_body_makes_a_fingerprint_or_an_envelope_raise(depth: int) -> None:
    """Parsers differ in the depth that they accept."""
    for body in ("[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth, "[" * depth):
        assert len(fingerprint(body)) == 64
        assert isinstance(envelope_opener("a || @")(body), str)


@pytest.mark.parametrize(
    "body", ['{"amount": 0.12345678901234567890123, "x": 1e400}', '{"a":1, "a":2}', " [1 ]", "7", "no JSON", ""]
)
@pytest.mark.parametrize("path", ["detail || Message || @", "detail", "@"])
def test_a_body_in_no_envelope_stays_as_it_came_to_the_byte(path: str, body: str) -> None:
    """Parsing and formatting it would change its numbers."""
    assert envelope_opener(path)(body) == body


def test_without_an_envelope_every_body_stays() -> None:
    """It is not even parsed."""
    assert envelope_opener(None)('{"detail":1}') == '{"detail":1}'


def test_an_envelope_gives_its_text_as_it_is_and_its_object_as_json() -> None:
    """SNS holds text, EventBridge an object."""
    assert envelope_opener("Message")('{"Message":"{\\"a\\": 1}"}') == '{"a": 1}'
    assert json.loads(envelope_opener("detail")('{"detail":{"a":1}}')) == {"a": 1}
