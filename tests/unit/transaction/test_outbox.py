"""What a transaction sends: what is taken, what is refused, and how a record holds it."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel, Field

from idempotent_receiver import Transaction
from idempotent_receiver.transaction.outbox import (
    MOST_OUTBOX_BYTES,
    NO_CLIENT,
    NOBODY_REDELIVERS,
    STAMP,
    GivenUp,
    OutboxCall,
    Outgoing,
    calls_in,
    confirmed,
    from_text,
    given_up,
    sends_in,
    to_text,
    with_reason,
    without_messages,
)

QUEUE = "https://sqs.us-east-1.amazonaws.com/123456789012/shipments"
TEXT = {"DataType": "String", "StringValue": "a"}
FIFO = {"QueueUrl": f"{QUEUE}.fifo", "MessageGroupId": "g"}


class Ship(BaseModel):
    """As a handler would declare it."""

    order: int = Field(alias="orderId")


@dataclass
class Plain:
    """Pydantic serialises it too."""

    order: int


def sent(**arguments: Any) -> Outgoing:
    tx = Transaction()
    tx.send(**{"QueueUrl": QUEUE, "MessageBody": "a", **arguments})
    return tx.outbox[0]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("plain", "plain"),
        (Ship(orderId=5), '{"orderId":5}'),
        (Plain(5), '{"order":5}'),
        ({"a": [1, None]}, '{"a":[1,null]}'),
        (7, "7"),
        (["NaN", "Infinity"], '["NaN","Infinity"]'),
        ("\U0001f600\n", "\U0001f600\n"),
    ],
)
def test_a_body_is_text_or_what_pydantic_serialises(body: object, text: str) -> None:
    assert sent(MessageBody=body) == Outgoing(QUEUE, {"MessageBody": text})


def test_a_record_holds_all_that_is_sent() -> None:
    binary = {"DataType": "Binary", "BinaryValue": b"\x00\xff"}
    one = sent(
        MessageAttributes={"text": TEXT, "bytes": binary, "base64": TEXT},
        MessageSystemAttributes={"AWSTraceHeader": TEXT},
        DelaySeconds=5,
    )
    other = sent(QueueUrl=f"{QUEUE}.fifo", MessageGroupId="g", MessageBody='"é\ud7ff"')

    assert from_text(to_text([one, other])) == {1: one, 2: other}
    assert '": ' not in to_text([one, other]), "a record has no room to waste"
    assert one.arguments["MessageAttributes"]["bytes"] == binary
    assert [one.fifo, other.fifo] == [False, True]


def test_a_confirmed_message_leaves_a_tombstone_and_the_others_keep_their_numbers() -> None:
    """Their keys have those numbers. A record with tombstones alone has nothing left, and is readable."""
    one, two, three = (sent(MessageBody=text) for text in ("1", "é", "3"))
    text = to_text([one, two, three])

    some = confirmed(text, {1, 3})
    assert some == f"[null,{to_text([two])[1:-1]},null]"
    assert from_text(some) == {2: two}
    assert confirmed(some, {2}) == "[null,null,null]"
    assert from_text(confirmed(some, {2})) == {}
    assert confirmed(text, set()) == text


def test_a_message_that_is_given_up_leaves_the_reason_in_its_place() -> None:
    """What is confirmed later changes neither. The completed record keeps the reason, and no message."""
    one, two, three = (sent(MessageBody=text) for text in "123")
    why = GivenUp(QUEUE, "alice", "the queue is gone")

    some = with_reason(to_text([one, two, three]), 2, why)
    assert from_text(some) == {1: one, 3: three}
    assert given_up(some) == {2: why}
    done = confirmed(some, {1, 3})
    assert (from_text(done), given_up(done)) == ({}, {2: why})
    for text in (some, done):
        assert json.loads(str(without_messages(text))) == [None, {"GivenUp": why._asdict()}]
    assert from_text(with_reason(done, 2, why)) == {}


@pytest.mark.parametrize(
    "text",
    [None, to_text([Outgoing(QUEUE, {"MessageBody": '[{"GivenUp":{}}]'})]), "[null]", "no", "5", '[{"GivenUp":5}]'],
)
def test_an_outbox_without_a_reason_leaves_nothing_in_a_completed_record(text: str | None) -> None:
    assert given_up(text) == {}
    assert without_messages(text) is None


@pytest.mark.parametrize(
    "text",
    [
        *(None, "", "no", "[]", "{}", "null", "[1]", "[{}]", "[" * 100_000),
        '[{"QueueUrl": 5, "MessageBody": "a"}]',
        '[{"QueueUrl": "https://example.com/q.fifo", "MessageBody": "a"}]',
        '[{"QueueUrl": "https://example.com/q", "MessageBody": "a", "MessageAttributes": null}]',
        '[{"QueueUrl": "https://example.com/q", "MessageBody": "a", "Id": "1"}]',
    ],
)
def test_what_somebody_has_made_of_an_outbox_is_refused(text: str | None) -> None:
    with pytest.raises((ValueError, TypeError, LookupError, AttributeError, RecursionError)):
        from_text(text)


def test_later_changes_change_nothing() -> None:
    attributes = {"text": dict(TEXT)}
    message = sent(MessageAttributes=attributes)
    attributes["text"]["StringValue"] = "b"
    assert message.arguments["MessageAttributes"] == {"text": TEXT}


@pytest.mark.parametrize(
    ("wrong", "error", "told"),
    [
        ({"QueueUrl": None}, TypeError, "QueueUrl takes a queue URL; it is None"),
        ({"QueueUrl": ""}, TypeError, "QueueUrl takes a queue URL"),
        ({"QueueUrl": f"{QUEUE}.fifo"}, ValueError, "it needs a MessageGroupId"),
        ({"MessageDeduplicationId": "d"}, TypeError, "takes no MessageDeduplicationId: the message's key is"),
        ({"Typo": 1}, TypeError, "takes no Typo: see SendMessage"),
        ({"DelaySeconds": True}, TypeError, "DelaySeconds takes an int; it is a bool"),
        ({"DelaySeconds": "5"}, TypeError, "DelaySeconds takes an int"),
        ({"DelaySeconds": -1}, ValueError, "DelaySeconds takes 0 to 900"),
        ({"DelaySeconds": 901}, ValueError, "DelaySeconds takes 0 to 900"),
        (
            {**FIFO, "DelaySeconds": 5},
            ValueError,
            "shipments.fifo is a FIFO queue, where only the queue sets the delay",
        ),
        ({"MessageGroupId": 5}, TypeError, "MessageGroupId takes a str"),
        ({"MessageAttributes": {"a": "b"}}, TypeError, "MessageAttributes takes names and values like"),
        ({"MessageAttributes": {"a": {"DataType": "String"}}}, TypeError, "takes names and values like"),
        ({"MessageAttributes": {"a": {**TEXT, "BinaryValue": b""}}}, TypeError, "takes names and values like"),
        ({"MessageSystemAttributes": {"a": 1}}, TypeError, "MessageSystemAttributes takes names and values like"),
        ({"QueueUrl": "arn:aws:sqs:us-east-1:123456789012:q"}, TypeError, "QueueUrl takes a queue URL"),
        ({"QueueUrl": f"{QUEUE}\ud800"}, TypeError, "QueueUrl takes a queue URL"),
        ({"MessageGroupId": ""}, ValueError, "MessageGroupId takes 1 to 128"),
        ({"MessageGroupId": "a b"}, ValueError, "MessageGroupId takes 1 to 128"),
        ({"MessageAttributes": {"a b": TEXT}}, TypeError, "takes names and values like"),
        *(
            ({"MessageAttributes": {name: TEXT}}, TypeError, "takes names and values like")
            for name in (5, ".a", "a.", "a..b", "AWS.a", "amazon.a", "a" * 257)
        ),
        *(
            ({"MessageAttributes": {"a": {**TEXT, "DataType": kind}}}, TypeError, "takes names and values like")
            for kind in ("", "Text", "string", "Binary", "Number", "String.", "String.\ud800", "String.a b")
        ),
        (
            {"MessageAttributes": {"a": {"DataType": "String", "BinaryValue": b"a"}}},
            TypeError,
            "takes names and values like",
        ),
        ({"MessageSystemAttributes": {"a": TEXT}}, TypeError, "MessageSystemAttributes takes names and values like"),
        ({"MessageAttributes": {"a": {**TEXT, "StringValue": ""}}}, TypeError, "takes names and values like"),
        ({"MessageAttributes": {"a": {**TEXT, "StringValue": "\ud800"}}}, TypeError, "takes names and values like"),
        (
            {"MessageAttributes": {STAMP: TEXT}},
            ValueError,
            "besides 'idempotent-receiver', which holds the message's key",
        ),
        ({"MessageAttributes": {str(n): TEXT for n in range(10)}}, ValueError, "takes up to 9 attributes"),
        ({"MessageBody": None}, TypeError, "a str, or a value that pydantic serialises to JSON; it is None"),
        ({"MessageBody": b"a"}, TypeError, "it is a bytes"),
        ({"MessageBody": object()}, TypeError, "is an object, which pydantic cannot serialise"),
        ({"MessageBody": {"NaN": float("nan")}}, TypeError, "is a dict, which pydantic cannot serialise to JSON"),
        ({"MessageBody": float("-inf")}, TypeError, "is a float, which pydantic cannot serialise to JSON"),
        ({"MessageBody": ""}, ValueError, "MessageBody is empty"),
        ({"MessageBody": "a\x00"}, ValueError, "characters that SQS rejects"),
        ({"MessageBody": "a\ud800"}, ValueError, "characters that SQS rejects"),
        ({"MessageBody": "a" * MOST_OUTBOX_BYTES}, ValueError, "exceeds 64 KB"),
    ],
)
def test_what_sqs_would_refuse_is_refused_at_the_call(wrong: dict[str, Any], error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        sent(**wrong)


@pytest.mark.parametrize("delay", [0, 900])
def test_what_sqs_takes_at_its_limits_is_not_refused(delay: int) -> None:
    numbers = {f"n{text}": {"DataType": "Number", "StringValue": text} for text in ("0", "-1.5", "1e-5", "+.5")}
    labels = {"a.b-c_D": {**TEXT, "DataType": "String.iso-8601"}, "Awsome.a": TEXT, "a" * 256: TEXT}
    attributes = {name.replace("+", "p"): one for name, one in {**numbers, **labels}.items()}
    one = sent(DelaySeconds=delay, MessageAttributes=attributes)
    assert from_text(to_text([one])) == {1: one}
    assert sent(**FIFO, DelaySeconds=0).arguments["DelaySeconds"] == 0


def test_nine_attributes_leave_room_for_the_key() -> None:
    assert len(sent(MessageAttributes={str(n): TEXT for n in range(9)}).arguments["MessageAttributes"]) == 9


def test_all_messages_of_a_transaction_share_the_room() -> None:
    tx = Transaction()
    for _ in range(2):
        tx.send(QueueUrl=QUEUE, MessageBody="a" * (MOST_OUTBOX_BYTES // 2 - 200))
    with pytest.raises(ValueError, match="the outbox of one transaction exceeds 64 KB"):
        tx.send(QueueUrl=QUEUE, MessageBody="a" * 500)
    assert len(tx.outbox) == 2


@pytest.mark.parametrize("character", ["a", "é", "€"])
def test_the_room_is_counted_in_bytes_to_the_last_one(character: str) -> None:
    room = MOST_OUTBOX_BYTES - len(to_text([sent(MessageBody="a")])) + 1
    count, rest = divmod(room, len(character.encode()))
    body = character * count + "a" * rest

    def fits(body: str) -> bool:
        with suppress(ValueError):
            return bool(sent(MessageBody=body))
        return False

    assert [fits(body), fits(body + "a")] == [True, False]


@pytest.mark.parametrize("why", [NO_CLIENT, NOBODY_REDELIVERS])
def test_where_nobody_would_send_it_is_refused(why: str) -> None:
    tx = Transaction(no_sends=why)
    with pytest.raises(RuntimeError) as raised:
        tx.send(QueueUrl=QUEUE, MessageBody="a")
    assert why in str(raised.value)


def test_after_the_handler_nothing_is_sent() -> None:
    tx = Transaction()
    tx.seal()
    with pytest.raises(RuntimeError, match="the handler has already returned"):
        tx.send(QueueUrl=QUEUE, MessageBody="a")


def test_a_call_and_a_message_share_numbers_tombstones_and_room() -> None:
    one, call = sent(MessageBody="1"), OutboxCall("notify", {"order": 1, "of": {"a": [None, "é"]}})
    text = to_text([one, call])

    assert text.endswith('{"Call":"notify","Arguments":{"order":1,"of":{"a":[null,"é"]}}}]')
    assert from_text(text) == {1: one, 2: call}
    assert (sends_in(from_text(text)), calls_in(from_text(text))) == ({1: one}, {2: call})
    assert from_text(confirmed(text, {1})) == {2: call}
    assert from_text(with_reason(text, 2, GivenUp("notify", "alice", "gone"))) == {1: one}

    tx = Transaction(to_call=lambda function, arguments: OutboxCall("notify", arguments))
    tx.send(QueueUrl=QUEUE, MessageBody="a" * (MOST_OUTBOX_BYTES - 200))
    with pytest.raises(ValueError, match=r"Transaction.call: the outbox of one transaction exceeds 64 KB"):
        tx.call(print, text="a" * 200)
    tx.call(print, text="a")
    assert tx.outbox[1:] == (OutboxCall("notify", {"text": "a"}),)


@pytest.mark.parametrize(
    "text",
    [
        '[{"Call": 5, "Arguments": {}}]',
        '[{"Call": "notify"}]',
        '[{"Call": "notify", "Arguments": []}]',
        '[{"Call": "notify", "Arguments": {}, "QueueUrl": "https://example.com/q"}]',
    ],
)
def test_what_somebody_has_made_of_a_call_is_refused(text: str) -> None:
    with pytest.raises((ValueError, LookupError)):
        from_text(text)


def test_where_nobody_redelivers_no_call_is_taken() -> None:
    with pytest.raises(RuntimeError, match="its calls are not redelivered: use an sqs_consumer"):
        Transaction().call(print)


def test_after_the_handler_nothing_is_called() -> None:
    tx = Transaction(to_call=lambda function, arguments: OutboxCall("notify", arguments))
    tx.seal()
    with pytest.raises(RuntimeError, match="the handler has already returned"):
        tx.call(print)
