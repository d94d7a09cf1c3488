"""The handlers that write and notify, ported: each other side is a call, and `explore` finds nothing to say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver import DynamoDBStore, PermanentError, Transaction, sqs_consumer
from idempotent_receiver.testing import Calls, Table, explore
from tests.unit.sqs.test_sends import Sqs

if TYPE_CHECKING:
    from collections.abc import Callable

ORDER = {"n": 1, "email": "a@example.com"}


def publish(topic: str, message: str, *, deduplication_id: str) -> None:
    """A FIFO topic's."""


def put_event(detail: dict[str, Any], *, token: str) -> None:
    """EventBridge's, whose consumer knows the token."""


def send_email(address: str) -> None:
    """SES knows no key."""


def start_execution(name: str, order: int) -> None:
    """A name starts once."""


FAKES: dict[str, dict[str, Any]] = {
    "publish": {"key": "deduplication_id"},
    "put_event": {"key": "token"},
    "send_email": {"at_least_once": "SES takes no key"},
    "start_execution": {"key": "name"},
}


def notify_topic(order: int, *, idempotency_key: str) -> None:
    publish("orders", str(order), deduplication_id=idempotency_key)


def notify_bus(order: int, *, idempotency_key: str) -> None:
    put_event({"order": order}, token=idempotency_key)


def notify_buyer(email: str) -> None:
    send_email(email)


def start(order: int, *, idempotency_key: str) -> None:
    start_execution(idempotency_key, order)


def take(function: Callable[..., None], **arguments: str) -> Callable[[dict, Transaction], None]:
    """A handler that takes from the stock and calls the function, with fields of the body by their names."""

    def handler(body: dict, tx: Transaction) -> None:
        tx.update(
            TableName="stock",
            Key={"item": "a"},
            UpdateExpression="SET n = n - :one",
            ConditionExpression="n >= :one",
            ExpressionAttributeValues={":one": 1},
            otherwise=PermanentError("out of stock"),
        )
        tx.call(function, **{name: body[of] for name, of in arguments.items()})

    return handler


@pytest.mark.parametrize("effects", ["any", pytest.param("transaction", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("stock", [pytest.param(0, marks=pytest.mark.nightly), 5])
@pytest.mark.parametrize(
    ("function", "fake", "arguments"),
    [
        (notify_topic, "publish", {"order": "n"}),
        (notify_bus, "put_event", {"order": "n"}),
        (notify_buyer, "send_email", {"email": "email"}),
        (start, "start_execution", {"order": "n"}),
    ],
    ids=["SNS", "EventBridge", "e-mail", "Step Functions"],
)
def test_what_is_written_is_told_and_a_refused_order_tells_nobody(  # noqa: PLR0917
    function: Callable[..., None],
    fake: str,
    arguments: dict[str, str],
    stock: int,
    effects: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = Calls()
    monkeypatch.setattr(f"{__name__}.{fake}", calls.fake(globals()[fake], **FAKES[fake]))
    sqs: Any = Sqs()
    consumer = sqs_consumer(DynamoDBStore("records"), sqs=sqs, effects=effects, calls=[function])
    tables = {"stock": Table("item", {"item": "a", "n": stock})}

    result = explore(consumer(take(function, **arguments)), ORDER, tables=tables, faults=1)

    assert ("calls made: 1 items" in str(result)) is (stock > 0)
    assert any(fake in kind for kind, _ in result.played) is (stock > 0)
