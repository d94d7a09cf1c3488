"""Hostile input: events, messages, attributes, and items in the table under their keys."""

from __future__ import annotations

import json
import string
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from idempotent_receiver.testing.world import START_EPOCH_SECONDS
from idempotent_receiver.transaction.outbox import STAMP
from tests.simulation.world import FIFO, QUEUE

NOW = int(START_EPOCH_SECONDS)
NOW_MS = NOW * 1000

OURS = "the payload's own fingerprint"
"""Stands in an item for the fingerprint of the message that meets it."""

KEYS = ["1", "2", "3"]
"""A few, so that messages meet each other and items in the table."""

# Strings.


def repeated(text: str, times: int) -> str:
    """A long text with a short representation in a printed example."""
    return text * times


characters = st.text(st.characters(), max_size=8)
"""Any code points, lone surrogates and NUL among them."""

nasty = st.one_of(
    st.sampled_from(["", "\0", "\ud800", " ", "0", "null", "[]", "{}", "NaN", "1e400", "\N{GRINNING FACE}"]),
    st.builds(repeated, st.sampled_from(["k", "9", "\N{GRINNING FACE}"]), st.sampled_from([2046, 2048, 5000])),
)
texts = st.one_of(st.sampled_from(KEYS), nasty, characters)


def mostly(usual: st.SearchStrategy[Any], odd: st.SearchStrategy[Any], times: int = 5) -> st.SearchStrategy[Any]:
    """Usual values most of the time, odd ones sometimes: all odd ones would test only the first check."""
    # `one_of` would drop equal branches.
    return st.sampled_from([usual] * times + [odd]).flatmap(lambda chosen: chosen)


# JSON, and what Python accepts as JSON.


def nested(depth: int) -> list[Any]:
    """Lists in lists."""
    outermost: list[Any] = []
    innermost = outermost
    for _ in range(depth):
        innermost.append([])
        innermost = innermost[0]
    return outermost


def huge(digits: int) -> int:
    """A whole number; from 4,301 digits on Python does not print it."""
    return int(10**digits)


leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2),
    st.integers(),
    st.floats(),
    texts,
    st.builds(huge, st.sampled_from([16, 38, 400, 5000])),
)
values = st.one_of(
    st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
        max_leaves=5,
    ),
    st.builds(nested, st.sampled_from([10, 900, 5000])),
)
"""Anything that JSON can hold, and more."""


def as_json(value: object) -> str:
    """The value as JSON text, or invalid text if JSON cannot hold it."""
    try:
        return json.dumps(value)
    except (ValueError, RecursionError):
        return "{"


orders = st.fixed_dictionaries(
    {"id": mostly(st.sampled_from(KEYS), values)},
    optional={"amount": mostly(st.integers(-1, 3), values), "name": texts},
)
"""Bodies that fit the handlers, more or less."""

odd_bodies = st.one_of(
    orders.map(lambda order: as_json({"detail": order})),
    orders.map(lambda order: as_json({"Message": as_json(order)})),
    values.map(as_json),
    texts,
    st.builds(repeated, st.sampled_from(["[", '{"a":']), st.sampled_from([100, 990, 100_000])),
)
bodies = mostly(orders.map(as_json), odd_bodies, 2)

# Messages.

counts = st.one_of(
    st.integers(0, 40).map(str),
    st.sampled_from(["", "-1", "1.5", "\N{SUPERSCRIPT TWO}", "\N{ARABIC-INDIC DIGIT ONE}"]),
    texts,
)
moments = st.sampled_from([str(NOW_MS), "0", "-1", "9" * 20, "9" * 40]) | counts
groups = st.sampled_from(["g", "h"])

system_attributes = st.fixed_dictionaries(
    {"ApproximateReceiveCount": counts},
    optional={
        "SentTimestamp": moments,
        "ApproximateFirstReceiveTimestamp": moments,
        "MessageGroupId": groups | texts,
        "AWSTraceHeader": texts,
        "DeadLetterQueueSourceArn": texts,
    },
)

forged = st.fixed_dictionaries(
    {"key": texts, "original_id": texts},
    optional={"reason": texts, "first_received": texts, "function": values, "queue": texts, "other": texts},
)
stamps = st.one_of(forged.map(as_json), values.map(as_json), texts)

strings = st.builds(lambda text: {"stringValue": text, "dataType": "String"}, texts)
binaries = st.builds(
    lambda text: {"binaryValue": text, "dataType": "Binary"}, st.sampled_from(["AAE=", "", "?", "A"]) | texts
)
attribute_values = st.one_of(strings, binaries, st.fixed_dictionaries({"dataType": texts}))
stamped = st.builds(lambda text: {STAMP: {"stringValue": text, "dataType": "String"}}, stamps)
message_attributes = st.one_of(
    st.just({}),
    st.dictionaries(st.sampled_from(["k", *string.ascii_lowercase[:10]]), attribute_values, max_size=4),
    st.builds(lambda value: dict.fromkeys(string.ascii_lowercase[:10], value), attribute_values),
    st.builds(dict.__or__, st.builds(lambda value: {"k": value}, strings), stamped),
)

arns = st.sampled_from([QUEUE, QUEUE, FIFO, FIFO, "", "x", "a:b:c.fifo", "arn:aws:kinesis:::s"])


deliverable = st.fixed_dictionaries(
    {
        "messageId": mostly(st.sampled_from([*KEYS, "4", "5", "6"]), texts.filter(bool)),
        "body": bodies,
        "attributes": system_attributes,
    },
    optional={
        "messageAttributes": message_attributes,
        "eventSourceARN": arns,
        "receiptHandle": texts,
        "eventSource": st.just("aws:sqs"),
    },
)
"""Messages in Lambda's form, every part of the right type."""


@st.composite
def batches(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Batches that SQS might deliver, with some messages twice, also with another body; often of one queue."""
    drawn = draw(st.lists(deliverable, min_size=1, max_size=6))
    if draw(st.booleans()):
        group = {"MessageGroupId": draw(groups)}
        drawn = [one | {"eventSourceARN": FIFO, "attributes": group | one["attributes"]} for one in drawn]
    for again in draw(st.lists(st.sampled_from(drawn), max_size=2)):
        drawn.append(again | draw(st.just({}) | st.fixed_dictionaries({"body": bodies})))
    return drawn


GONE = object()

PARTS = ["messageId", "body", "attributes", "messageAttributes", "eventSourceARN", "receiptHandle", "eventSource"]


@st.composite
def broken(draw: st.DrawFn) -> list[Any]:
    """A batch in which some parts are missing or have a wrong type."""
    records: list[Any] = [dict(record) for record in draw(batches())]
    for _ in range(draw(st.integers(1, 3))):
        place, what = draw(st.integers(0, len(records) - 1)), draw(st.sampled_from([*PARTS, "all of it"]))
        instead = draw(values | st.just(GONE) | st.dictionaries(texts, values, max_size=2))
        if what == "all of it" or not isinstance(records[place], dict):
            records[place] = None if instead is GONE else instead
        elif instead is GONE:
            records[place].pop(what, None)
        else:
            records[place][what] = instead
    return records


events = st.one_of(
    broken().map(lambda records: {"Records": records}),
    st.builds(lambda records: {"Records": records}, values),
    values,
    st.dictionaries(st.sampled_from(["Records", "records", "detail"]), values),
)
"""Anything at all."""

# Items of the table.

numbers = st.one_of(
    st.integers(-2, 10**6).map(lambda past: NOW - past),
    st.integers(60, 10**6).map(lambda ahead: NOW + ahead),
    st.sampled_from([0, -1, -(10**37), 10**38 - 1, Decimal(NOW + 60), Decimal("9.99e125"), Decimal("-9.99e125")]),
)
milliseconds = st.one_of(
    st.integers(0, 10**9).map(lambda past: NOW_MS - past),
    st.integers(60_000, 10**9).map(lambda ahead: NOW_MS + ahead),
    numbers,
)
foreign = st.one_of(
    st.none(),
    st.booleans(),
    st.binary(max_size=3),
    st.decimals(allow_nan=False, allow_infinity=False, places=2),
    texts,
    st.lists(texts, max_size=2),
    st.dictionaries(texts, texts, max_size=2),
    st.sets(st.integers(), min_size=1, max_size=2),
    st.sampled_from([Decimal("1.5"), Decimal("1e-130"), 0, -1]),
)
"""Values of all DynamoDB types, as boto3 returns them."""

statuses = st.sampled_from(["INPROGRESS", "COMPLETED", "FAILED"])
ours = st.fixed_dictionaries(
    {
        "status": statuses,
        "version": characters.filter(bool),
        "expiration": mostly(st.integers(60, 10**6).map(lambda ahead: NOW + ahead), numbers, 2),
        "attempts": mostly(st.integers(1, 5), numbers),
    },
    optional={
        "in_progress_expiration": milliseconds,
        "validation": st.sampled_from([OURS, OURS, OURS, "another"]),
        "owner": texts,
        "data": texts,
        "error": texts,
        "tenant": foreign,
    },
)
powertools = st.fixed_dictionaries(
    {"status": statuses},
    optional={
        "expiration": numbers,
        "in_progress_expiration": milliseconds,
        "data": texts,
        "validation": st.just(OURS) | st.just(""),
    },
)
anything = st.dictionaries(
    st.sampled_from(
        ["status", "version", "expiration", "in_progress_expiration", "attempts", "data", "validation", "owner", "x"]
    ),
    foreign | statuses | numbers,
)
items: st.SearchStrategy[dict[str, Any] | None] = mostly(st.none() | ours, powertools | anything, 2)
"""The items that may already be under a key."""
