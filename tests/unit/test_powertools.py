"""Migrating from Powertools: records that the real library writes in this run are understood."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import uuid
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from itertools import count
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.data_classes import SQSEvent
from aws_lambda_powertools.utilities.idempotency import (
    DynamoDBPersistenceLayer,
    IdempotencyConfig,
    idempotent_function,
)
from aws_lambda_powertools.utilities.idempotency import idempotent as powertools_idempotent
from aws_lambda_powertools.utilities.idempotency.exceptions import IdempotencyPersistenceLayerError
from aws_lambda_powertools.utilities.typing import LambdaContext
from moto import mock_aws
from pydantic import BaseModel

from idempotent_receiver import (
    DynamoDBStore,
    FingerprintMismatch,
    InProgress,
    MemoryStore,
    Message,
    Transaction,
    UnusableKey,
    http_endpoint,
    idempotent,
    payload_key,
    powertools_key,
    sqs_consumer,
)
from idempotent_receiver.errors import MissingKey
from tests.contexts import Context
from tests.manual_clock import ManualClock
from tests.unit.http.api import request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
    from mypy_boto3_dynamodb import DynamoDBClient

PREFIX = "shop.handler"
DAY_SECONDS = 86_400
NUMBERS = count()


@pytest.fixture(scope="module")
def endpoint() -> Iterator[DynamoDBClient]:
    with mock_aws():
        client = boto3.client(
            "dynamodb", region_name="us-east-1", aws_access_key_id="testing", aws_secret_access_key="testing"
        )
        yield client
        client.close()


@pytest.fixture
def dynamodb(endpoint: DynamoDBClient) -> Iterator[DynamoDBClient]:
    """The client of one table with a new name: each test has its own function in the namespace."""
    name = f"idempotency-{next(NUMBERS)}"
    endpoint.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
    )
    yield endpoint
    endpoint.delete_table(TableName=name)


def table(dynamodb: DynamoDBClient) -> str:
    """The name of the only table."""
    (name,) = dynamodb.list_tables()["TableNames"]
    return name


@pytest.fixture
def store(dynamodb: DynamoDBClient) -> DynamoDBStore:
    return DynamoDBStore(table(dynamodb), namespace=PREFIX, client=dynamodb)


@pytest.fixture
def theirs(dynamodb: DynamoDBClient) -> DynamoDBPersistenceLayer:
    return DynamoDBPersistenceLayer(table_name=table(dynamodb), boto3_client=dynamodb)


def config(context: Context | None = None, **options: Any) -> IdempotencyConfig:
    """Its configuration, with an invocation that determines its leases."""
    context = Context(ManualClock()) if context is None else context
    return IdempotencyConfig(lambda_context=context, **options)  # type: ignore[arg-type]


def items(dynamodb: DynamoDBClient) -> list[dict[str, Any]]:
    return dynamodb.scan(TableName=table(dynamodb))["Items"]


def charged(theirs: DynamoDBPersistenceLayer, order: dict[str, Any], **options: Any) -> Any:
    """The result of a function in Powertools' utility."""

    @idempotent_function(
        data_keyword_argument="order",
        persistence_store=theirs,
        config=config(**options),
        key_prefix=PREFIX,
    )
    def charge(*, order: dict[str, Any]) -> dict[str, Any]:
        return {"charged": order["id"]}

    return charge(order=order)


ORDER = {"id": "o-1", "lines": [{"sku": "ä", "price": 9.5}], "at": None}


@pytest.mark.parametrize("payload_validation", ["", "lines"])
@pytest.mark.parametrize("expression", [None, "id", "[id, lines[0].sku]", "lines", "{a: id, b: at}"])
def test_what_it_completed_is_honoured(
    store: DynamoDBStore, theirs: DynamoDBPersistenceLayer, expression: str | None, payload_validation: str
) -> None:
    """Under the same key, with its stored result, with or without a fingerprint of its own kind."""
    options = {"event_key_jmespath": expression or "", "payload_validation_jmespath": payload_validation}
    first = charged(theirs, ORDER, **options)

    @idempotent(store, key=powertools_key(expression), lease_seconds=60)
    def charge(order: dict[str, Any]) -> dict[str, Any]:
        raise AssertionError("it has been charged")

    try:
        again = charge(ORDER)
    except FingerprintMismatch as mismatch:
        again = {"refused": str(mismatch)}
    assert again == first == {"charged": "o-1"}


def test_its_default_prefix_is_a_namespace(dynamodb: DynamoDBClient, theirs: DynamoDBPersistenceLayer) -> None:
    """It consists of the Lambda function's name, the module and the function's qualified name."""

    def charge(order: dict[str, Any]) -> str:
        return "charged"

    wrapped = idempotent_function(charge, data_keyword_argument="order", persistence_store=theirs, config=config())
    wrapped(order=ORDER)
    namespace = f"test-func.{charge.__module__}.{charge.__qualname__}"
    (item,) = items(dynamodb)
    assert item["id"]["S"] == f"{namespace}#{powertools_key()(ORDER)}"


@pytest.mark.parametrize("hash_function", ["md5", "sha256"])
def test_its_hash_may_be_another(store: DynamoDBStore, theirs: DynamoDBPersistenceLayer, hash_function: str) -> None:
    charged(theirs, ORDER, hash_function=hash_function)

    @idempotent(store, key=powertools_key(hash_function=hash_function), lease_seconds=60)
    def charge(order: dict[str, Any]) -> Any:
        raise AssertionError("it has been charged")

    assert charge(ORDER) == {"charged": "o-1"}


class Model(BaseModel):
    id: str


@dataclass
class Data:
    id: str


class Size(Enum):
    SMALL = "s"


ID, PATH = uuid.UUID(int=5), PurePath("a/b")


@dataclass
class Full:
    """All that its encoder takes beside JSON."""

    price: Decimal = Decimal("9.90")
    none: Decimal = Decimal("NaN")
    id: uuid.UUID = ID
    at: dt.datetime = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
    day: dt.date = dt.date(2026, 1, 2)
    time: dt.time = dt.time(3, 4)
    size: Size = Size.SMALL
    path: PurePath = PATH
    model: Model = field(default_factory=lambda: Model(id="1"))
    lines: tuple[Data, ...] = (Data("1"),)
    number: float = float("nan")


class Told:
    """A class that says its data by itself, as a model of pydantic 1 does."""

    def dict(self) -> Any:
        return {"id": "1"}


TAKEN = [
    *(Model(id="1"), Data(id="1"), "text", 5, 0, ["a", None], {"id": "1"}, Full(), vars(Full()), [Full()]),
    *(
        Decimal("1.50"),
        uuid.UUID(int=5),
        dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
        Size.SMALL,
        PurePath("a"),
        float("nan"),
        False,
    ),
    *(Told(), SQSEvent({"Records": []}), {"b": 1, "a": {"nested": Data("1")}}, ("a", Decimal(1))),
]


@pytest.mark.parametrize("given", TAKEN)
def test_its_keys_are_made_of_whatever_it_takes(
    dynamodb: DynamoDBClient, theirs: DynamoDBPersistenceLayer, given: Any
) -> None:
    @idempotent_function(data_keyword_argument="it", persistence_store=theirs, key_prefix=PREFIX, config=config())
    def work(*, it: Any) -> str:
        return "done"

    work(it=given)
    (item,) = items(dynamodb)
    assert item["id"]["S"] == f"{PREFIX}#{powertools_key()(given)}"


@pytest.mark.parametrize("given", [b"text", {"at": {1, 2}}, [object()], dt.timedelta(1), {"a": 1, 2: 1}])
def test_what_it_cannot_encode_is_refused(theirs: DynamoDBPersistenceLayer, given: Any) -> None:
    with pytest.raises(UnusableKey, match="that Powertools can encode"):
        powertools_key()(given)
    with pytest.raises(IdempotencyPersistenceLayerError):
        charged(theirs, given)


def test_where_it_would_run_without_idempotency_the_key_is_missing(theirs: DynamoDBPersistenceLayer) -> None:
    for given in ({}, [], [None], {"a": None}, None, "", Decimal(0), b""):
        with pytest.raises(MissingKey):
            powertools_key()(given)
        with (
            pytest.warns(UserWarning, match="No idempotency key value found"),
            contextlib.suppress(TypeError, KeyError),
        ):
            charged(theirs, given)


def by_position(order: Any) -> None: ...
def by_name(*, tenant: str = "x", order: Any, **rest: Any) -> None: ...
def with_default(tenant: str, order: Any = ORDER) -> None: ...
def in_the_rest(tenant: str = "x", **rest: Any) -> None: ...
def with_context(order: Any, context: Any) -> None: ...
def with_its_context(order: Any, _: LambdaContext) -> None: ...
def with_transaction(tx: Transaction, order: Any) -> None: ...
def only_more(*orders: Any) -> None: ...
def only_named(**orders: Any) -> None: ...
def only_context(context: Any) -> None: ...


class Shop:
    def sell(self, order: Any) -> None: ...


def keys_of(function: Any, *calls: Any, name: str | None = None) -> set[str]:
    """The keys of some calls of a function."""
    store = MemoryStore(PREFIX)
    key = powertools_key(data_keyword_argument=name)
    work = idempotent(store, key=key, payload=None, lease_seconds=60)(function)
    for args, kwargs in calls:
        work(*args, **kwargs)
    return set(store.items)


@pytest.mark.parametrize(
    ("function", "name", "calls"),
    [
        (by_position, None, [((ORDER,), {}), ((), {"order": ORDER})]),
        (by_position, "order", [((ORDER,), {}), ((), {"order": ORDER})]),
        (by_name, "order", [((), {"order": ORDER, "tenant": "y"}), ((), {"tenant": "x", "order": ORDER, "a": 1})]),
        (with_default, "order", [(("x", ORDER), {}), ((), {"order": ORDER, "tenant": "x"}), (("y",), {})]),
        (in_the_rest, "order", [((), {"order": ORDER}), ((), {"tenant": "y", "order": ORDER, "a": 1})]),
        (with_context, None, [((ORDER, Context(ManualClock())), {}), ((), {"context": None, "order": ORDER})]),
        (with_its_context, None, [((ORDER, None), {}), ((), {"_": Context(ManualClock()), "order": ORDER})]),
        (with_transaction, None, [((), {"order": ORDER})]),
        (Shop.sell, None, [((Shop(), ORDER), {}), ((), {"order": ORDER, "self": Shop()})]),
    ],
)
def test_the_argument_of_its_key_is_the_same_however_the_caller_passes_it(
    dynamodb: DynamoDBClient, theirs: DynamoDBPersistenceLayer, function: Any, name: str | None, calls: Any
) -> None:
    """The one that the caller wrote first was hashed: `tenant`, and every order of a tenant was one call."""
    charged(theirs, ORDER)
    (item,) = items(dynamodb)
    assert keys_of(function, *calls, name=name) == {item["id"]["S"]}


@pytest.mark.parametrize(
    ("function", "name", "names"),
    [
        (by_name, None, r"\['tenant', 'order', 'rest'\]"),
        (with_default, None, r"\['tenant', 'order'\]"),
        (with_default, "orders", r"\['tenant', 'order'\]; it is 'orders'"),
        (only_more, None, "orders"),
        (only_named, None, "orders"),
        (only_context, None, r"\[\]"),
        (Shop.sell, "self", "order"),
        (with_transaction, "tx", "order"),
    ],
)
def test_an_argument_that_is_not_known_is_refused_at_set_up_with_the_remedy(
    function: Any, name: str | None, names: str
) -> None:
    """Which of several to hash is for the user to say."""
    key = powertools_key(data_keyword_argument=name)
    with pytest.raises(
        TypeError, match=f"{function.__name__}: .*data_keyword_argument must be its name, one of .*{names}"
    ):
        idempotent(MemoryStore(PREFIX), key=key, lease_seconds=60)(function)


def test_a_call_without_the_argument_runs_nothing() -> None:
    with pytest.raises(MissingKey, match="the call has no argument 'order'"):
        keys_of(in_the_rest, ((), {"tenant": "x"}), name="order")


def interrupted(theirs: DynamoDBPersistenceLayer, context: Context) -> None:
    """A function in its utility that dies half-way, so that its record stays in progress."""

    class Died(BaseException):
        pass

    def work(event: dict[str, Any], context: Any) -> None:
        raise Died

    its = config(context, event_key_jmespath="id")
    with pytest.raises(Died):
        powertools_idempotent(work, persistence_store=theirs, config=its, key_prefix=PREFIX)(ORDER, context)  # type: ignore[arg-type]


def test_its_live_lease_is_respected_and_taken_over_when_it_is_over(
    store: DynamoDBStore, theirs: DynamoDBPersistenceLayer, dynamodb: DynamoDBClient
) -> None:
    interrupted(theirs, Context(ManualClock(), seconds=20))
    (item,) = items(dynamodb)
    assert item["status"]["S"] == "INPROGRESS"
    ends_ms = int(item["in_progress_expiration"]["N"])

    class At(ManualClock):
        def epoch_ms(self) -> int:
            return ends_ms + int(self.seconds * 1000) - 1

    clock = At()

    @idempotent(store, key=powertools_key("id"), lease_seconds=60, clock=clock)
    def work(order: dict[str, Any]) -> str:
        return "done"

    with pytest.raises(InProgress) as caught:
        work(ORDER)
    assert caught.value.until_ms == ends_ms

    clock.seconds += 1
    assert work(ORDER) == "done"
    (item,) = items(dynamodb)
    assert (item["status"]["S"], item["attempts"]["N"]) == ("COMPLETED", "2")


def test_its_expired_record_counts_as_absent(store: DynamoDBStore, theirs: DynamoDBPersistenceLayer) -> None:
    charged(theirs, ORDER, expires_after_seconds=-1)

    @idempotent(store, key=powertools_key(), lease_seconds=60)
    def charge(order: dict[str, Any]) -> str:
        return "charged anew"

    assert charge(ORDER) == "charged anew"


def test_its_kept_http_answer_is_replayed(store: DynamoDBStore, theirs: DynamoDBPersistenceLayer) -> None:
    answer = {"statusCode": 201, "headers": {"a": "b"}, "body": "made"}
    its = config(event_key_jmespath='headers."Idempotency-Key"')
    event, context = request("k-1"), Context(ManualClock())
    powertools_idempotent(lambda event, context: answer, persistence_store=theirs, config=its, key_prefix=PREFIX)(
        event,
        context,  # type: ignore[arg-type]
    )

    @http_endpoint(store, key=powertools_key('headers."Idempotency-Key"'))
    def handler(event: Any, context: Any) -> Any:
        raise AssertionError("it has been answered")

    again = handler(event, Context(ManualClock()))
    assert again == {**answer, "headers": {"a": "b", "Idempotency-Replayed": "true"}}


RECORD = {
    "messageId": "m-1",
    "receiptHandle": "r-1",
    "body": '{"order": 7}',
    "attributes": {
        "ApproximateReceiveCount": "1",
        "SentTimestamp": "1795221600000",
        "SenderId": "AROAEXAMPLEEXAMPLEEXA:producer",
        "ApproximateFirstReceiveTimestamp": "1795221600012",
    },
    "messageAttributes": {
        "tenant": {"stringValue": "t-1", "stringListValues": [], "binaryListValues": [], "dataType": "String"}
    },
    "md5OfBody": "8ee4ba8f1d5ad1f7c5f4ff8a7c8a5f3a",
    "md5OfMessageAttributes": "c3b2a1d4e5f60718293a4b5c6d7e8f90",
    "eventSource": "aws:sqs",
    "eventSourceARN": "arn:aws:sqs:us-east-1:123456789012:orders",
    "awsRegion": "us-east-1",
}
"""Every field of a message in Lambda's event."""


@pytest.mark.parametrize(
    "expression",
    [
        *("messageId", "body", "powertools_json(body).order", "md5OfBody", "awsRegion", "eventSource"),
        *("md5OfMessageAttributes", "[messageId, awsRegion, md5OfBody]", None),
        "{a: md5OfMessageAttributes, b: messageAttributes.tenant.stringValue, c: attributes.SenderId}",
    ],
)
@pytest.mark.parametrize("batched", [True, False])
def test_its_record_of_a_message_acknowledges_the_message(
    store: DynamoDBStore, theirs: DynamoDBPersistenceLayer, expression: str | None, batched: bool
) -> None:
    """As a dict, or as its batch utility passes it to a function."""
    its, event = config(event_key_jmespath=expression or ""), {"Records": [RECORD]}

    @idempotent_function(data_keyword_argument="record", persistence_store=theirs, config=its, key_prefix=PREFIX)
    def handle(record: SQSRecord | dict[str, Any]) -> None: ...

    if batched:
        processor = BatchProcessor(event_type=EventType.SQS)
        process_partial_response(event, lambda record: handle(record=record), processor, Context(ManualClock()))
    else:
        handle(record=RECORD)

    @sqs_consumer(store, key=powertools_key(expression))
    def consumer(body: dict) -> None:  # type: ignore[type-arg]
        raise AssertionError("it has been handled")

    assert consumer(event, Context(ManualClock())) == {"batchItemFailures": []}


def test_a_step_makes_the_key_of_its_message_too_whatever_its_handler_did_to_it(store: DynamoDBStore) -> None:
    """The handler's message is its own object, with the same fields."""
    key, made = powertools_key("[md5OfBody, messageAttributes]"), []

    @sqs_consumer(store, key=lambda message: made.append(message) or key(message))  # type: ignore[func-returns-value]
    def consumer(body: dict, message: Message) -> None:  # type: ignore[type-arg]
        assert key(message) == key(made[0])
        message.message_attributes["tenant"]["stringValue"] = "another"  # type: ignore[index]
        assert key(message) != key(made[0])

    attributes = {"tenant": {"stringValue": "t-1", "dataType": "String"}}
    record = {"messageId": "m", "body": "{}", "md5OfBody": "99914b932bd37a50b983c5e7c90ae93b"}
    event = {"Records": [{**record, "messageAttributes": attributes}]}
    assert consumer(event, Context(ManualClock())) == {"batchItemFailures": []}


@pytest.mark.parametrize("given", [None, {}, {"other": 1}, {"id": None}, {"id": ""}])
def test_without_a_key_nothing_runs(store: DynamoDBStore, given: Any) -> None:
    @idempotent(store, key=powertools_key("id"), lease_seconds=60)
    def work(order: Any) -> None:
        raise AssertionError("never run")

    with pytest.raises(UnusableKey):
        work(given)


def test_what_cannot_be_meant_is_said_at_set_up() -> None:
    with pytest.raises(ValueError, match="JMESPath"):
        powertools_key("a-b")
    with pytest.raises(ValueError, match="hashlib"):
        powertools_key(hash_function="none")
    with pytest.raises(TypeError, match="key must be"):
        idempotent(MemoryStore(PREFIX), key=powertools_key)


def test_the_two_libraries_keys_differ_unless_configured(
    store: DynamoDBStore, theirs: DynamoDBPersistenceLayer
) -> None:
    """As a control: with another strategy its record is not found."""
    charged(theirs, ORDER)

    @idempotent(store, key=payload_key(), lease_seconds=60)
    def charge(order: dict[str, Any]) -> str:
        return json.dumps("charged twice")

    assert charge(ORDER) == '"charged twice"'


@pytest.mark.parametrize("expression", ["to_string(order)", "not_null(order, 'none')", "powertools_json('1')", "'all'"])
def test_an_expression_that_takes_nothing_from_the_data_makes_no_key(expression: str) -> None:
    """Powertools would give all strangers one key, and the second one the first's result."""
    with pytest.raises(UnusableKey, match="takes nothing from the payload"):
        powertools_key(expression)({"other": 1})
