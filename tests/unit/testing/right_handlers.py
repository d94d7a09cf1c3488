"""Right handlers: `explore` has nothing to say of any."""

from __future__ import annotations

import asyncio
import functools
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
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
from idempotent_receiver.testing import sqs_event
from tests.unit.testing.explored import (
    ALIKE,
    OWN,
    STATE,
    Declined,
    Joined,
    balance,
    balances,
    bucket,
    journal,
    record,
    right,
    services,
)
from tests.unit.testing.handlers import ORDER, ORDERS, consumer, debit

together = sqs_consumer(MemoryStore(), concurrency=2)
documents, stream = Joined("index"), Joined("put_record_batch")


@right("transactions", "all of it is in the transaction")
@consumer
def transactional(order: dict, tx: Transaction) -> None:
    debit(order, tx)


@right("transactions", "and nothing claims it", messages=ORDERS)
@sqs_consumer(MemoryStore(), effects="transaction")
def unclaimed(order: dict, tx: Transaction) -> None:
    debit(order, tx)


@right("transactions", "a condition fails for good", messages={**ORDER, "cents": 500})
@consumer
def overdrawn(order: dict, tx: Transaction) -> None:
    debit(order, tx, PermanentError("overdrawn"))


@right("transactions", "it depends on the order, which a FIFO queue keeps", messages=sqs_event(*ALIKE, fifo=True))
@consumer
def in_order(order: dict, tx: Transaction) -> None:
    tx.put(TableName="accounts", Item={"account": "alice", "last": order["order"]})


@right("transactions", "what was read must still be there", messages=ORDERS)
@consumer
def read_and_checked(order: dict, tx: Transaction) -> None:
    before = balance("alice")
    tx.put(
        TableName="accounts",
        Item={"account": "alice", "balance": before - order["cents"]},
        ConditionExpression="balance = :before",
        ExpressionAttributeValues={":before": before},
        otherwise=RetryLater("another order came first", seconds=1),
    )


def read_and_update(order: dict, tx: Transaction) -> None:
    place: dict[str, Any] = {"TableName": "accounts", "Key": {"account": "alice"}}
    account = tx.get(**place, attributes=["balance", "paid"])
    values = {":left": account["balance"] - order["cents"], ":paid": {**account.get("paid", {}), order["order"]: 1}}
    tx.update(**place, UpdateExpression="SET balance = :left, paid = :paid", ExpressionAttributeValues=values)


@right("transactions", "it names what it reads, and updates that", messages=ORDERS)
@consumer
def named(order: dict, tx: Transaction) -> None:
    read_and_update(order, tx)


@right("transactions", "it does so, and nothing claims it", messages=ORDERS)
@sqs_consumer(MemoryStore(), effects="transaction")
def named_unclaimed(order: dict, tx: Transaction) -> None:
    read_and_update(order, tx)


@right("transactions", "a time is written beside it")
@consumer
def dated(order: dict, tx: Transaction) -> None:
    record(order, tx, at=uuid4().hex, details={"at": uuid4().hex, "cents": order["cents"]})


@right("retries", "later, at the handler's own wish")
@consumer
def too_early_at_first(order: dict, message: Message, tx: Transaction) -> None:
    if message.attempt == 1:
        raise RetryLater("the shop is closed", seconds=3600)
    debit(order, tx)


@right("retries", "with the same key each time")
@consumer
def same_key_each_try(order: dict, message: Message) -> None:
    for _ in range(3):
        with suppress(ConnectionError):
            return services.charge(order["cents"], message.idempotency_key)
    raise ConnectionError


@right("keys", "the message's")
@consumer
def keyed(order: dict, message: Message, tx: Transaction) -> None:
    services.charge(order["cents"], message.idempotency_key)
    debit(order, tx)


@right("keys", "one for each of two equal calls")
@consumer
def two_equal_calls(order: dict, message: Message) -> None:
    for number in range(2):
        services.charge(order["cents"], f"{message.idempotency_key}-{number}")


@right("keys", "the order's, which was sent twice", messages=[ORDER, ORDER])
@consumer
def keyed_by_order(order: dict, message: Message) -> None:
    services.charge(order["cents"], order["order"])


@right("keys", "the order's, which was sent twice, and the consumer knows that", messages=[ORDER, ORDER])
@sqs_consumer(MemoryStore("by-order"), key=body_field("order"))
def consumer_keyed_by_order(order: dict, tx: Transaction) -> None:
    debit(order, tx)


@right("keys", "a time beside it varies")
@consumer
def keyed_and_dated(order: dict, message: Message) -> None:
    services.charge(order["cents"], message.idempotency_key, at=uuid4())


@right("keys", "the time that is left varies beside it")
@consumer
def keyed_within_the_time_left(order: dict, message: Message) -> None:
    services.charge(order["cents"], message.idempotency_key, at=message.remaining_time_ms())


@right("refusals", "it ends as declined")
@consumer
def declined(order: dict, message: Message, tx: Transaction) -> None:
    try:
        services.charge(order["cents"], message.idempotency_key)
    except Declined:
        record(order, tx, "declined")
    else:
        record(order, tx)


@right("refusals", "it says that it was declined")
@consumer
def declined_in_its_result(order: dict, message: Message) -> str:
    try:
        services.charge(order["cents"], message.idempotency_key)
    except Declined:
        return "declined"
    return "paid"


@right("refusals", "it fails for good")
@consumer
def declined_for_good(order: dict, message: Message, tx: Transaction) -> None:
    try:
        services.charge(order["cents"], message.idempotency_key)
    except Declined as error:
        raise PermanentError("declined") from error
    record(order, tx)


@right("refusals", "another service does it")
@consumer
def done_elsewhere(order: dict, message: Message, tx: Transaction) -> None:
    try:
        services.charge(order["cents"], message.idempotency_key)
    except Declined:
        services.backup(order["cents"], message.idempotency_key)
    record(order, tx)


@right("refusals", "the customer is told, with a key")
@consumer
async def told(order: dict, message: Message, tx: Transaction) -> None:
    try:
        services.charge(order["cents"], message.idempotency_key)
    except Declined:
        await services.notify("declined", message.idempotency_key)


@right("look-ups", "the order fails for good after one", messages={**ORDER, "cents": 500})
@consumer
def looked_up(order: dict, tx: Transaction) -> None:
    debit({**order, "cents": order["cents"] * services.rate("EUR")}, tx, PermanentError("overdrawn"))


@right("look-ups", "its answer is kept", messages=ORDERS, state=STATE)
@consumer
def looked_up_once(order: dict, tx: Transaction) -> None:
    balances["rate"] = balances.get("rate") or services.rate("EUR")
    debit(order, tx)


@right("no key", "each attempt publishes")
@consumer
def published(order: dict, tx: Transaction) -> None:
    services.publish(f"paid {order['order']}")
    record(order, tx)


@right("joined", "the documents have the messages' ids", messages=ORDERS)
@together
async def indexed(order: dict, message: Message) -> None:
    await documents.add({"id": message.key, "cents": order["cents"]})


@right("joined", "the target of several records knows no key", messages=ORDERS)
@together
async def streamed(order: dict, message: Message, tx: Transaction) -> None:
    await stream.add({"id": message.key, "at": uuid4().hex})
    record(order, tx)


@right("conditions", "one that would fail for good holds, however late a commit arrives")
@consumer
def charged_and_new(order: dict, message: Message, tx: Transaction) -> None:
    services.charge(order["cents"], message.idempotency_key)
    new = {"ConditionExpression": "attribute_not_exists(#o)", "ExpressionAttributeNames": {"#o": "order"}}
    tx.put(TableName="orders", Item={"order": order["order"]}, **new, otherwise=PermanentError("it exists"))


@right("own state", "each attempt puts the same objects", messages=ORDERS, state=OWN)
@consumer
def put_again(order: dict, tx: Transaction) -> None:
    bucket[order["order"]] = "paid"
    record(order, tx)


@right("at most once", "a second attempt fails for good", at_most_once="no mail is better than two")
@consumer
def mailed_at_most_once(order: dict, message: Message, tx: Transaction) -> None:
    if message.attempt > 1:
        raise PermanentError("it may have been mailed")
    services.mail("paid")
    record(order, tx)


@right("at most once", "of two messages, too", messages=ORDERS, at_most_once="no mail is better than two")
@consumer
def debited_at_most_once(order: dict, message: Message, tx: Transaction) -> None:
    if message.attempt > 1:
        raise PermanentError("it may have been mailed")
    services.mail(order["order"])
    debit(order, tx)


@right("coroutines", "each is awaited", messages=ORDERS)
@sqs_consumer(MemoryStore("coroutines"), key=body_field("order"), concurrency=2)
async def awaited(order: dict, tx: Transaction) -> None:
    await asyncio.sleep(0.01)
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(services.notify("sold", current_claim().idempotency_key))
        group.create_task(asyncio.to_thread(debit, order, tx))


@right("coroutines", "all are gathered")
@consumer
async def gathered(order: dict, message: Message) -> None:
    await asyncio.gather(*(services.notify(what, f"{message.idempotency_key}-{what}") for what in ("sold", "sent")))


@right("threads", "it is waited for, and has the message's key")
@consumer
def joined(order: dict, message: Message, tx: Transaction) -> None:
    thread = threading.Thread(target=services.charge, args=(order["cents"], message.idempotency_key))
    thread.start()
    thread.join()
    record(order, tx)


pool = ThreadPoolExecutor(1)


@right("threads", "a coroutine waits for a pool of its own")
@consumer
async def in_a_pool(order: dict, message: Message, tx: Transaction) -> None:
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(pool, services.charge, order["cents"], message.idempotency_key)
    record(order, tx)


@right("caches", "what is kept may be had again", state=STATE)
@consumer
def cached_token(order: dict, message: Message) -> None:
    balances.setdefault("token", 7)
    services.charge(order["cents"], message.idempotency_key)


@right("caches", "a times' journal has each order once", state=STATE)
@consumer
def journal_without_twins(order: dict, tx: Transaction) -> None:
    if order["order"] not in [one["order"] for one in journal]:
        journal.append({"order": order["order"], "at": uuid4().hex})
    record(order, tx)


def timed(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*arguments: Any) -> Any:
        return function(*arguments)

    return wrapper


@right("decorators", "they hand on what they were given, within and without", messages=ORDERS)
@timed
@consumer
@timed
def decorated(order: dict, tx: Transaction) -> None:
    debit(order, tx)


inner = MemoryStore("reservations")


@idempotent(inner, key=lambda order: str(order["order"]))
def reserve(order: dict[str, Any]) -> str:
    services.charge(order["cents"], current_claim().idempotency_key)
    return "reserved"


@right("functions", "one that is called once for each key", state={"inner": inner})
@consumer
def nesting(order: dict, tx: Transaction) -> None:
    reserve(order)
    debit(order, tx)
