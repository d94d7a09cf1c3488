"""The public types, as users see them: type checkers verify this file (`test_types.py`), and nothing runs it."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any, assert_type

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.data_classes import SQSEvent, event_source
from aws_lambda_powertools.utilities.typing import LambdaContext

from idempotent_receiver import (
    DynamoDBStore,
    MemoryStore,
    Message,
    Transaction,
    body_field,
    current_claim,
    http_endpoint,
    idempotent,
    message_attribute,
    sqs_consumer,
)
from idempotent_receiver.sqs.consumer import LambdaHandler
from idempotent_receiver.sqs.options import ConsumerOptions
from idempotent_receiver.testing import Exploration, explore

store = DynamoDBStore("records", namespace="orders")
assert_type(store.named("refunds"), DynamoDBStore)
assert_type(message_attribute("order"), Callable[[Message], str])


@sqs_consumer(store, key=body_field("id"))
def take(order: dict[str, Any], message: Message, tx: Transaction) -> None:
    assert_type(message.idempotency_key, str)
    assert_type(message.remaining_time_ms(), int)
    assert_type(message.sent_at, datetime | None)
    assert_type(current_claim().attempt, int)
    tx.put(TableName="orders", Item=order)


@sqs_consumer(store)
async def take_async(order: dict[str, Any]) -> None: ...


assert_type(take, LambdaHandler)
assert_type(take_async, LambdaHandler)
assert_type(take({"Records": []}, None), dict[str, list[dict[str, str]]])
assert_type(take.options, ConsumerOptions)
assert_type(take.__wrapped__, Callable[..., Any])
assert_type(take.with_options(replace(take.options, store=MemoryStore())), LambdaHandler)
assert_type(Logger().inject_lambda_context(take), LambdaHandler)
assert_type(event_source(data_class=SQSEvent)(take)({}, LambdaContext()), dict[str, list[dict[str, str]]])
assert_type(explore(take, [{"id": "o-1"}]), Exploration)

print(take.receive)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]  # internal


@http_endpoint(store.named("http"))
def over_http(event: dict[str, Any], context: Any) -> dict[str, Any]:
    return {"statusCode": 200}


assert_type(over_http, Callable[[Any, Any], Any])


@idempotent(store.named("charge"), key=lambda order, cents: str(order), lease_seconds=60)
def charge(order: str, cents: int) -> float:
    return cents / 100


assert_type(charge("o-1", cents=5), float)
