"""Handlers for `explore`: right ones, and ones with a planted mistake."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

from idempotent_receiver import (
    MemoryStore,
    Message,
    PermanentError,
    RetryLater,
    Transaction,
    body_field,
    current_claim,
    idempotent,
    sqs_consumer,
)
from idempotent_receiver.testing import Table


def charge(cents: int, key: str | None = None) -> None:
    """A payment service, which tests replace."""
    raise AssertionError("a fake is in its place")


async def notify(text: str, key: str) -> None:
    """A mail service, which tests replace."""
    raise AssertionError("a fake is in its place")


services = SimpleNamespace(charge=charge, notify=notify)
balances: dict[str, int] = {}
seen: set[str] = set()


def accounts() -> dict[str, Table]:
    return {"accounts": Table("account", {"account": "alice", "balance": 100})}


ORDER = {"order": "o-1", "account": "alice", "cents": 5}
ORDERS = [ORDER, {"order": "o-2", "account": "alice", "cents": 7}]

consumer = sqs_consumer(MemoryStore())


def debit(order: dict[str, Any], tx: Transaction, otherwise: BaseException | None = None) -> None:
    tx.update(
        TableName="accounts",
        Key={"account": order["account"]},
        UpdateExpression="SET balance = balance - :cents",
        ConditionExpression="balance >= :cents",
        ExpressionAttributeValues={":cents": order["cents"]},
        otherwise=otherwise,
    )


# Right.


@consumer
def transactional(order: dict, tx: Transaction) -> None:
    debit(order, tx)


@consumer
def too_early_at_first(order: dict, message: Message, tx: Transaction) -> None:
    if message.attempt == 1:
        raise RetryLater("the shop is closed", seconds=3600)
    debit(order, tx)


@consumer
def keyed(order: dict, message: Message, tx: Transaction) -> None:
    services.charge(order["cents"], message.idempotency_key)
    debit(order, tx)


@consumer
def keyed_and_changed(order: dict, message: Message) -> None:
    services.charge(order, message.idempotency_key)
    services.charge(order, f"{message.idempotency_key}-again")
    order["cents"] = 0


@consumer
def keyed_and_dated(order: dict, message: Message) -> None:
    services.charge(uuid4(), message.idempotency_key)


@consumer
def keyed_by_order(order: dict, message: Message) -> None:
    services.charge(order["cents"], order["order"])


@consumer
def swallowing(order: dict, message: Message, tx: Transaction) -> None:
    with suppress(ConnectionError):
        services.charge(order["cents"], message.idempotency_key)
    debit(order, tx)


@sqs_consumer(MemoryStore("orders"), key=body_field("order"), concurrency=2)
async def concurrent(order: dict, tx: Transaction) -> None:
    await asyncio.sleep(0.01)
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(services.notify("sold", current_claim().idempotency_key))
        group.create_task(asyncio.to_thread(debit, order, tx))


@consumer
def large(order: dict, tx: Transaction) -> str:
    debit(order, tx)
    return "x" * 5000


@consumer
async def generating(order: dict, message: Message) -> None:
    async def parts() -> AsyncIterator[str]:
        try:
            yield "goods"
            await asyncio.sleep(1)
            yield "freight"
        finally:
            await asyncio.sleep(0)

    async for part in parts():
        await asyncio.to_thread(services.charge, order["cents"], f"{message.idempotency_key}-{part}")


turns: list[int] = []
MOST_TURNS = 1000


@consumer
def stubborn(order: dict, message: Message) -> None:
    for turn in range(MOST_TURNS):
        turns.append(turn)
        try:
            services.charge(order["cents"], message.idempotency_key)
            break
        except:  # noqa: E722  # what people write
            continue


@consumer
async def stubborn_coroutine(order: dict, message: Message) -> None:
    for turn in range(MOST_TURNS):
        turns.append(turn)
        try:
            await services.notify("sold", message.idempotency_key)
            break
        except:  # noqa: E722
            continue


@consumer
def running_a_loop(order: dict, message: Message, tx: Transaction) -> None:
    async def notify(text: str) -> None:
        await services.notify(text, f"{message.idempotency_key}-{text}")

    async def both() -> None:
        await asyncio.gather(notify("sold"), notify("sent"))

    asyncio.run(both())
    debit(order, tx)


inner = MemoryStore("inner")


@idempotent(inner.named("reserve"), key=lambda order: str(order["order"]))
def reserve(order: dict[str, Any]) -> str:
    services.charge(order["cents"], current_claim().idempotency_key)
    return "reserved"


@consumer
def nesting(order: dict, tx: Transaction) -> None:
    reserve(order)
    debit(order, tx)


# Wrong.


@consumer
def ignoring(order: dict, message: Message) -> None:
    with suppress(ValueError):
        services.charge(order["cents"], message.idempotency_key)


@consumer
def unkeyed(order: dict, tx: Transaction) -> None:
    services.charge(order["cents"])
    debit(order, tx)


@consumer
def freshly_keyed(order: dict, tx: Transaction) -> None:
    services.charge(order["cents"], str(uuid4()))
    debit(order, tx)


@consumer
def keyed_by_attempt(order: dict, message: Message) -> None:
    services.charge(order["cents"], f"{message.id}-{message.attempt}")


@consumer
def leaving_early(order: dict, message: Message) -> None:
    if message.attempt == 1:
        services.charge(order["cents"], message.idempotency_key)


@consumer
def forgetting_freight(order: dict, message: Message) -> None:
    with suppress(ConnectionError):
        services.charge(order["cents"], message.idempotency_key)
        services.charge(3, f"{message.idempotency_key}-freight")


@consumer
async def leaving_a_task(order: dict, message: Message) -> None:
    task = asyncio.create_task(services.notify("sold", message.idempotency_key))
    task.set_name("notify")


@consumer
def keyed_once_for_both(order: dict, message: Message) -> None:
    services.charge(order["cents"], message.idempotency_key)
    services.charge(3, message.idempotency_key)


@consumer
def keyed_by_account(order: dict, message: Message) -> None:
    services.charge(order["cents"], order["account"])


@consumer
def charging_more_each_time(order: dict, message: Message) -> None:
    services.charge(order["cents"] * message.attempt, message.idempotency_key)


@consumer
def keyed_by_the_second(order: dict, message: Message) -> None:
    services.charge(order["cents"], f"{message.key}-{int(time.time())}")


@consumer
def keyed_by_message_id(order: dict, message: Message) -> None:
    services.charge(order["cents"], message.id)


@consumer
def keyed_by_receipt(order: dict, message: Message) -> None:
    services.charge(order["cents"], message.receipt_handle)


@consumer
def retrying(order: dict) -> None:
    for again in range(3):
        try:
            return services.charge(order["cents"], f"{current_claim().idempotency_key}-{again}")
        except ConnectionError:
            continue
    raise ConnectionError


@consumer
def outside(order: dict) -> None:
    balances["alice"] = balances["alice"] - order["cents"]


@sqs_consumer(MemoryStore(), concurrency=2)
def racing(order: dict, message: Message) -> None:
    before = balances["alice"]
    services.charge(order["cents"], message.idempotency_key)
    balances["alice"] = before - order["cents"]


@consumer
def remembering(order: dict, tx: Transaction) -> None:
    if order["order"] not in seen:
        seen.add(order["order"])
        debit(order, tx)


@consumer
def remembering_items(order: dict, tx: Transaction) -> None:
    if order["order"] not in seen:
        seen.add(order["order"])
        tx.put(TableName="accounts", Item={"account": order["order"]})


@consumer
def overdrawing(order: dict, tx: Transaction) -> None:
    debit(order, tx, PermanentError("overdrawn"))


@consumer
def never_ready(order: dict) -> None:
    raise RetryLater("closed", seconds=3600)


@consumer
def failing(order: dict) -> None:
    raise ValueError("always")


@sqs_consumer(MemoryStore("orders"), key=lambda message: str(uuid4()))
def keyed_at_random(order: dict, tx: Transaction) -> None:
    debit(order, tx)


@sqs_consumer(MemoryStore("orders"), key=lambda message: message.id)
def keyed_by_new_id(order: dict, tx: Transaction) -> None:
    debit(order, tx)


@sqs_consumer(MemoryStore("orders"), key=lambda message: f"{message.id}-{message.receive_count}")
def keyed_by_delivery(order: dict, tx: Transaction) -> None:
    debit(order, tx)
