"""Wrong handlers, as people write them: what is wrong in a line, and what `explore` says of each, beside it."""

from __future__ import annotations

import asyncio
import functools
import http.client
import itertools
import os
import smtplib
import subprocess
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from unittest.mock import Mock
from uuid import uuid4

import boto3

from idempotent_receiver import (
    MemoryStore,
    Message,
    PermanentError,
    Transaction,
    body_field,
    current_claim,
    sqs_consumer,
)
from tests.unit.testing.explored import (
    ALIKE,
    OWN,
    STATE,
    Joined,
    balance,
    balances,
    bucket,
    journal,
    record,
    seen,
    services,
    wrong,
)
from tests.unit.testing.handlers import ORDERS, consumer, debit

ANOTHER_KEY = "with a different key"
NO_KEY = "without an idempotency key"
DIFFERENT = "the same key for different calls"

# Keys.


@wrong("keys", "a new key on each attempt", ANOTHER_KEY)
@consumer
def random_key(order: dict) -> None:
    services.charge(order["cents"], str(uuid4()))


@wrong("keys", "the time is in the key", ANOTHER_KEY)
@consumer
def key_of_the_time(order: dict, message: Message) -> None:
    services.charge(order["cents"], f"{message.id}-{datetime.now(UTC):%H:%M:%S}")


@wrong("keys", "the attempt is in the key", ANOTHER_KEY)
@consumer
def key_of_the_attempt(order: dict, message: Message) -> None:
    services.charge(order["cents"], f"{message.id}-{message.attempt}")


@wrong("keys", "each delivery has another receipt handle", ANOTHER_KEY)
@consumer
def key_of_the_receipt(order: dict, message: Message) -> None:
    services.charge(order["cents"], message.receipt_handle)


@wrong("keys", "a redriven message has another messageId", ANOTHER_KEY)
@consumer
def key_of_the_message_id(order: dict, message: Message) -> None:
    services.charge(order["cents"], message.id)


@wrong("keys", "two messages of one customer share a key", "the same key for two messages", messages=ALIKE)
@consumer
def key_of_the_account(order: dict) -> None:
    services.charge(order["cents"], order["account"])


@wrong("keys", "a date in a key, which differs when the message is redriven on another day", None)
@consumer
def key_of_the_day(order: dict) -> None:
    services.charge(order["cents"], f"{order['account']}-{datetime.now(UTC).date()}")


@wrong("keys", "a key that all messages share, if you explore one message", None)
@consumer
def key_of_all(order: dict) -> None:
    services.charge(order["cents"], "order")


@wrong("keys", "goods and freight share a key", DIFFERENT)
@consumer
def key_for_two_calls(order: dict, message: Message) -> None:
    services.charge(order["cents"], message.idempotency_key)
    services.charge(3, message.idempotency_key)


@wrong("keys", "two equal lines of an order share a key: one is charged", "the same key for two identical calls")
@consumer
def key_for_two_equal_calls(order: dict, message: Message) -> None:
    for _ in range(2):
        services.charge(order["cents"], message.idempotency_key)


numbers = itertools.count()
a_mock = Mock()


@wrong("keys", "a counter of the process is in the key", ANOTHER_KEY)
@consumer
def key_of_a_counter(order: dict, message: Message) -> None:
    services.charge(order["cents"], f"{message.id}-{next(numbers)}")


@wrong("keys", "the time that is left is in the key", ANOTHER_KEY)
@consumer
def key_of_the_time_left(order: dict, message: Message) -> None:
    services.charge(order["cents"], f"{message.idempotency_key}-{message.remaining_time_ms()}")


@wrong("keys", "the consumer's own key is another each time", "the key of message-1 changes with each delivery")
@sqs_consumer(MemoryStore("random"), key=lambda message: str(uuid4()))
def consumer_key_at_random(order: dict, tx: Transaction) -> None:
    debit(order, tx)


@wrong("keys", "the consumer's own key is lost by a redrive", "the table accounts holds")
@sqs_consumer(MemoryStore("ids"), key=lambda message: message.id)
def consumer_key_of_the_id(order: dict, tx: Transaction) -> None:
    debit(order, tx)


@wrong("keys", "the second order of a customer is dropped as a duplicate", "never acknowledged", messages=ALIKE)
@sqs_consumer(MemoryStore("accounts"), key=body_field("account"))
def consumer_key_of_the_account(order: dict, tx: Transaction) -> None:
    debit(order, tx)


# No key at all, and sends.


@wrong("sends", "a charge without a key", NO_KEY)
@consumer
def no_key(order: dict, tx: Transaction) -> None:
    services.charge(order["cents"])
    debit(order, tx)


@wrong("sends", "a mail before the commit", NO_KEY)
@consumer
def mail_first(order: dict, tx: Transaction) -> None:
    services.mail(f"paid {order['order']}")
    record(order, tx)


@wrong("sends", "an event whose id is a new one each time", NO_KEY)
@consumer
def event_with_its_own_id(order: dict, tx: Transaction) -> None:
    services.mail(f"{uuid4()}: paid")
    record(order, tx)


@wrong("sends", "it is not in the transaction, and nothing claims the message", NO_KEY)
@sqs_consumer(MemoryStore(), effects="transaction")
def mail_without_a_claim(order: dict, tx: Transaction) -> None:
    services.mail("paid")
    record(order, tx)


@wrong("sends", "an empty key, where the order has none", NO_KEY)
@consumer
def empty_key(order: dict) -> None:
    services.charge(order["cents"], order.get("payment", ""))


@wrong("sends", 'a call with a key that two workers make at once, with `effects="transaction"`', None)
@sqs_consumer(MemoryStore(), effects="transaction")
def call_without_a_claim(order: dict, message: Message, tx: Transaction) -> None:
    services.charge(order["cents"], message.idempotency_key)
    record(order, tx)


OVERDRAWN = {**ORDERS[0], "cents": 500}


@wrong(
    "sends",
    "what is wrong even without faults, such as a charge before the order is found to be invalid",
    None,
    messages=OVERDRAWN,
)
@consumer
def charged_and_invalid(order: dict, message: Message) -> None:
    services.charge(order["cents"], message.idempotency_key)
    raise PermanentError("invalid")


# Calls before a transaction that is refused for good.

IN_VAIN = "whose transaction was then refused for good"


@wrong("in vain", "a charge for an order that fails for good", IN_VAIN, messages=OVERDRAWN)
@consumer
def charged_and_overdrawn(order: dict, message: Message, tx: Transaction) -> None:
    services.charge(order["cents"], message.idempotency_key)
    debit(order, tx, PermanentError("overdrawn"))


@wrong("in vain", "the customer hears that the order is confirmed", IN_VAIN, messages=OVERDRAWN)
@consumer
async def confirmed_and_overdrawn(order: dict, message: Message, tx: Transaction) -> None:
    debit(order, tx, PermanentError("overdrawn"))
    await services.notify("order confirmed", message.idempotency_key)


@wrong("in vain", "a topic hears it", IN_VAIN, messages=OVERDRAWN)
@consumer
def published_and_overdrawn(order: dict, tx: Transaction) -> None:
    debit(order, tx, PermanentError("overdrawn"))
    services.publish(f"confirmed {order['order']}")


@wrong("in vain", "the second order fails for good", IN_VAIN, messages=[ORDERS[0], {**ORDERS[1], "cents": 99}])
@sqs_consumer(MemoryStore(), effects="transaction")
def second_overdrawn(order: dict, message: Message, tx: Transaction) -> None:
    services.charge(order["cents"], message.idempotency_key)
    debit(order, tx, PermanentError("overdrawn"))


# Targets that know no key.

MISSING = "was never called for"


@wrong("no key", "only the first attempt publishes", MISSING)
@consumer
def published_at_first(order: dict, message: Message, tx: Transaction) -> None:
    record(order, tx)
    if message.attempt == 1:
        services.publish(f"paid {order['order']}")


@wrong("no key", "it is published unless an attempt has begun to", "publish was refused for message-1", state=STATE)
@consumer
def published_unless_seen(order: dict) -> None:
    if order["order"] not in seen:
        seen.add(order["order"])
        services.publish(f"paid {order['order']}")


@wrong("no key", "a refusal is swallowed", "publish was refused for message-1")
@consumer
def published_or_not(order: dict, tx: Transaction) -> None:
    with suppress(Exception):
        services.publish(f"paid {order['order']}")
    record(order, tx)


@wrong("no key", "the last attempt of two calls publishes one", "was called too few times")
@consumer
def published_in_part(order: dict, message: Message, tx: Transaction) -> None:
    record(order, tx)
    if message.attempt == 1:
        services.publish(f"paid {order['order']}")
    services.publish(f"sent {order['order']}")


# Calls that join several messages.

together = sqs_consumer(MemoryStore(), concurrency=2)
documents, stream = Joined("index"), Joined("put_record_batch")


@wrong("joined", "a new id for each document", ANOTHER_KEY, messages=ORDERS)
@together
async def indexed_at_random(order: dict, message: Message) -> None:
    await documents.add({"id": f"{message.idempotency_key}-{uuid4()}", "cents": order["cents"]})


@wrong("joined", "only the first attempt is indexed", "index was never called for message-", messages=ORDERS)
@together
async def indexed_at_first(order: dict, message: Message) -> None:
    if message.attempt == 1:
        await documents.add({"id": message.key, "cents": order["cents"]})


@wrong("joined", "the attempt is in the document", DIFFERENT, messages=ORDERS)
@together
async def indexed_attempt(order: dict, message: Message) -> None:
    await documents.add({"id": message.key, "attempt": message.attempt})


@wrong("joined", "only the first attempt is put into the stream", "put_record_batch was never called", messages=ORDERS)
@together
async def streamed_at_first(order: dict, message: Message) -> None:
    if message.attempt == 1:
        await stream.add({"id": message.key})


# A database or a bucket of one's own.

OBJECTS = "bucket holds"


@wrong("own state", "a new object on each attempt", OBJECTS, state=OWN)
@consumer
def put_at_random(order: dict, message: Message) -> None:
    bucket[f"{order['order']}-{message.attempt}"] = "paid"


@wrong("own state", "the attempt is in the object", OBJECTS, state=OWN)
@consumer
def put_attempt(order: dict, message: Message) -> None:
    bucket[order["order"]] = f"paid at {message.attempt}"


@wrong("own state", "an object is appended to", OBJECTS, state=OWN)
@consumer
def put_appended(order: dict) -> None:
    bucket["all"] = f"{bucket.get('all', '')} {order['order']}"


@wrong("own state", "only the first attempt puts", "bucket lacks", state=OWN)
@consumer
def put_at_first(order: dict, message: Message, tx: Transaction) -> None:
    record(order, tx)
    if message.attempt == 1:
        services.charge(order["cents"], message.idempotency_key)
        bucket[order["order"]] = "paid"


# At most once.

ONCE = {"at_most_once": "no mail is better than two"}


@wrong("at most once", "it mails before it looks", NO_KEY, **ONCE)
@consumer
def mailed_and_looked(order: dict, message: Message) -> None:
    services.mail("paid")
    if message.attempt > 1:
        raise PermanentError("it may have been mailed")


@wrong("at most once", "it does not look", NO_KEY, **ONCE)
@consumer
def mailed_each_time(order: dict) -> None:
    services.mail("paid")


@wrong("at most once", "it looks one attempt too late", NO_KEY, **ONCE)
@consumer
def mailed_twice(order: dict, message: Message) -> None:
    if message.attempt > 2:
        raise PermanentError("it may have been mailed")
    services.mail("paid")


@wrong("at most once", "it debits before it looks", "balances is {'alice': 90}", state=STATE, **ONCE)
@consumer
def debited_and_looked(order: dict, message: Message) -> None:
    balances["alice"] -= order["cents"]
    if message.attempt > 1:
        raise PermanentError("it may have been debited")


# Refusals: the service refuses, nothing has happened, and the order counts as paid.

REFUSED = "was refused for message-1, which ends as if the call had succeeded"


@wrong("refusals", "every error is swallowed", REFUSED)
@consumer
def passing(order: dict, message: Message, tx: Transaction) -> None:
    try:  # noqa: SIM105  # what people write
        services.charge(order["cents"], message.idempotency_key)
    except Exception:  # noqa: BLE001
        pass
    record(order, tx)


@wrong("refusals", "the error is logged, and that is all", REFUSED)
@consumer
def logging(order: dict, message: Message, tx: Transaction) -> str:
    try:
        services.charge(order["cents"], message.idempotency_key)
    except Exception as error:  # noqa: BLE001
        print("failed", error)
    record(order, tx)
    return "paid"


@wrong("refusals", "`return` in `finally` swallows it", REFUSED)
@consumer
def returning_finally(order: dict, message: Message, tx: Transaction) -> str:
    try:
        services.charge(order["cents"], message.idempotency_key)
    finally:
        record(order, tx)
        return "paid"  # noqa: B012


@wrong("refusals", "gather returns the errors, and nobody looks", REFUSED)
@consumer
async def gathering(order: dict, message: Message, tx: Transaction) -> None:
    await asyncio.gather(services.notify("sold", message.idempotency_key), return_exceptions=True)
    record(order, tx)


@wrong("refusals", "after three tries it counts as paid", REFUSED)
@consumer
def three_tries(order: dict, message: Message, tx: Transaction) -> None:
    for _ in range(3):
        with suppress(Exception):
            services.charge(order["cents"], message.idempotency_key)
            break
    record(order, tx)


@wrong("refusals", "a decorator of the handler swallows it", REFUSED)
@consumer
def deep_inside(order: dict, message: Message, tx: Transaction) -> None:
    def best_effort(function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            try:
                return function(*arguments)
            except Exception:  # noqa: BLE001
                return None

        return call

    best_effort(services.charge)(order["cents"], message.idempotency_key)
    record(order, tx)


@wrong("refusals", "the lines that are refused are left out", REFUSED)
@consumer
def line_by_line(order: dict, message: Message, tx: Transaction) -> None:
    for number in range(2):
        try:
            services.charge(order["cents"], f"{message.idempotency_key}-{number}")
        except Exception:  # noqa: BLE001
            continue
    record(order, tx)


# Fallbacks: what is only done where the answer was lost, and the call took effect.

FALLBACK = "but not in the fault-free run"


@wrong("fallbacks", "both services charge where an answer is lost", FALLBACK)
@consumer
def charging_elsewhere(order: dict, message: Message) -> None:
    try:
        services.charge(order["cents"], message.idempotency_key)
    except ConnectionError:
        services.backup(order["cents"], message.idempotency_key)


@wrong("fallbacks", "a refund of what is charged again later", FALLBACK)
@consumer
def refunding(order: dict, message: Message) -> None:
    try:
        services.charge(order["cents"], message.idempotency_key)
    except ConnectionError:
        services.refund(order["cents"], message.idempotency_key)
        raise


@wrong("fallbacks", "an apology for what was done", FALLBACK)
@consumer
def apologising(order: dict, message: Message, tx: Transaction) -> None:
    try:
        services.charge(order["cents"], message.idempotency_key)
    except ConnectionError:
        services.mail("sorry")
    record(order, tx)


@wrong("fallbacks", "a later attempt goes elsewhere", "never called for message-1")
@consumer
def elsewhere_later(order: dict, message: Message) -> None:
    send = services.charge if message.attempt == 1 else services.backup
    send(order["cents"], message.idempotency_key)


# Retries of their own.


@wrong("retries", "another key for each try", ANOTHER_KEY)
@consumer
def fresh_key_each_try(order: dict, message: Message) -> None:
    for again in range(3):
        with suppress(ConnectionError):
            return services.charge(order["cents"], f"{message.idempotency_key}-{again}")
    raise ConnectionError


@wrong("retries", "a second try without a key", NO_KEY)
@consumer
def tried_twice(order: dict) -> None:
    try:
        services.charge(order["cents"])
    except ConnectionError:
        services.charge(order["cents"])


@wrong("retries", "later attempts think that the first one has done it", "never called for message-1, which ended")
@consumer
def only_at_first(order: dict, message: Message) -> None:
    if message.attempt == 1:
        services.charge(order["cents"], message.idempotency_key)


@wrong("retries", "what was received before is taken for a duplicate", "the table orders lacks")
@consumer
def received_before(order: dict, message: Message, tx: Transaction) -> None:
    if message.receive_count > 1:
        return
    record(order, tx)


@wrong("retries", "it gives up silently", "the table orders lacks")
@consumer
def giving_up(order: dict, message: Message, tx: Transaction) -> None:
    if message.attempt < 3:
        record(order, tx)


@wrong("retries", "the amount grows with each attempt", DIFFERENT)
@consumer
def surcharge(order: dict, message: Message) -> None:
    services.charge(order["cents"] * message.attempt, message.idempotency_key)


# Caches.


@wrong("caches", "what was begun counts as done", "the table accounts holds", state=STATE)
@consumer
def begun_is_done(order: dict, tx: Transaction) -> None:
    if order["order"] not in seen:
        seen.add(order["order"])
        debit(order, tx)


@wrong("caches", "the same, and `explore` was not told of the cache", "correct only the first time")
@consumer
def hidden_cache(order: dict, tx: Transaction) -> None:
    if order["order"] not in seen:
        seen.add(order["order"])
        debit(order, tx)


@wrong("caches", "a function is called once in each process", "the next calls nothing")
@consumer
def cached_call(order: dict, message: Message) -> None:
    _charge_once(order["cents"], message.idempotency_key)


@functools.cache
def _charge_once(cents: int, key: str) -> None:
    services.charge(cents, key)


@wrong("caches", "a balance from memory is written", "at the end", state=STATE)
@consumer
def cached_balance(order: dict, tx: Transaction) -> None:
    balances["alice"] -= order["cents"]
    tx.put(TableName="accounts", Item={"account": "alice", "balance": balances["alice"]})


@wrong("caches", "a journal in memory has each attempt", "journal is ", state=STATE)
@consumer
def journal_of_attempts(order: dict, tx: Transaction) -> None:
    journal.append(order["order"])
    record(order, tx)


@wrong(
    "caches",
    "what waits in memory for the next message is gone",
    "for message-1, but not in the fault-free run",
    messages=ORDERS,
    state=STATE,
)
@consumer
def buffered(order: dict, message: Message) -> None:
    balances[order["order"]] = order["cents"]
    if len(balances) == 3:
        services.charge(12, f"{sorted(balances)}")


# Threads and coroutines.

UNAWAITED = "had not been awaited when the handler returned"


@wrong("threads", "a thread charges without a key", NO_KEY)
@consumer
def thread_without_key(order: dict) -> None:
    thread = threading.Thread(target=services.charge, args=(order["cents"],))
    thread.start()
    thread.join()


@wrong("threads", "a pool's thread has another key each time", ANOTHER_KEY)
@consumer
def pool_with_random_key(order: dict) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(services.charge, order["cents"], str(uuid4()))


@wrong("threads", "a refusal in a thread whose result nobody reads", None)
@consumer
def pool_without_result(order: dict, message: Message, tx: Transaction) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(services.charge, order["cents"], message.idempotency_key)
    record(order, tx)


@wrong("threads", "to_thread changes nothing of a missing key", NO_KEY)
@consumer
async def in_a_thread(order: dict) -> None:
    await asyncio.to_thread(services.charge, order["cents"])


@wrong("threads", "a task is left behind", UNAWAITED)
@consumer
async def task_left(order: dict, message: Message) -> None:
    task = asyncio.create_task(services.notify("sold", message.idempotency_key))
    task.set_name("notify")


@wrong("coroutines", "nobody awaits it", UNAWAITED)
@consumer
async def never_awaited(order: dict, message: Message, tx: Transaction) -> None:
    services.notify("sold", message.idempotency_key)
    record(order, tx)


@wrong("coroutines", "a plain function cannot await it", UNAWAITED)
@consumer
def called_by_a_plain_function(order: dict, message: Message, tx: Transaction) -> None:
    services.notify("sold", message.idempotency_key)
    record(order, tx)


@wrong("coroutines", "one of two is awaited", UNAWAITED)
@consumer
async def one_of_two(order: dict, message: Message) -> None:
    services.notify("sold", f"{message.idempotency_key}-sold")
    await services.notify("sent", f"{message.idempotency_key}-sent")


@wrong("coroutines", "a list of coroutines is made, and nothing gathers it", UNAWAITED)
@consumer
async def never_gathered(order: dict, message: Message, tx: Transaction) -> None:
    journal[:] = [services.notify("sold", f"{message.idempotency_key}-{number}") for number in range(2)]
    journal.clear()
    record(order, tx)


# Read, then write.


@wrong(
    "read, then write",
    "both messages read the same balance",
    "instead of {'account': 'alice', 'balance': 88}",
    messages=ORDERS,
)
@consumer
def read_and_put(order: dict, tx: Transaction) -> None:
    tx.put(TableName="accounts", Item={"account": "alice", "balance": balance("alice") - order["cents"]})


@wrong("read, then write", "two at once read the same balance", "balances is", messages=ORDERS, state=STATE)
@sqs_consumer(MemoryStore(), concurrency=2)
def racing(order: dict, message: Message) -> None:
    before = balances["alice"]
    services.charge(order["cents"], message.idempotency_key)
    balances["alice"] = before - order["cents"]


@wrong(
    "read, then write", "both have the same number", "instead of {'account': 'alice', 'balance': 102}", messages=ORDERS
)
@consumer
def next_number(order: dict, tx: Transaction) -> None:
    number = balance("alice")
    record(order, tx, number=number)
    tx.put(TableName="accounts", Item={"account": "alice", "balance": number + 1})


@wrong(
    "read, then write",
    "both find that there is enough",
    "completed, but failed for good in the fault-free run",
    messages=[{**one, "cents": 60} for one in ORDERS],
)
@consumer
def enough_before(order: dict, tx: Transaction) -> None:
    if balance("alice") < order["cents"]:
        raise PermanentError("overdrawn")
    tx.update(
        TableName="accounts",
        Key={"account": "alice"},
        UpdateExpression="SET balance = balance - :cents",
        ExpressionAttributeValues={":cents": order["cents"]},
    )


# Comparisons in which something varies by itself.


@wrong("varying", "the amount doubles, beside a time", DIFFERENT)
@consumer
def dated_surcharge(order: dict, message: Message) -> None:
    services.charge(order["cents"] * message.attempt, message.idempotency_key, at=uuid4())


@wrong("varying", "a journal with times has each attempt", "journal is ", state=STATE)
@consumer
def dated_journal(order: dict, tx: Transaction) -> None:
    journal.append({"order": order["order"], "at": uuid4().hex})
    record(order, tx)


@wrong("varying", "the attempt is written, in a map with the time", "the table orders holds")
@consumer
def dated_details(order: dict, message: Message, tx: Transaction) -> None:
    record(order, tx, details={"at": uuid4().hex, "attempt": message.attempt})


@wrong("varying", "a balance beside a time that was read", "balances is ", state={**STATE})
@consumer
def dated_balance(order: dict) -> None:
    balances["alice"] -= order["cents"]
    balances["at"] = uuid4().int


# Decorators.

EARLY = "was acknowledged although its record is not COMPLETED"


def without_response(function: Any) -> Any:
    @functools.wraps(function)
    def timed(event: Any, context: Any) -> None:
        function(event, context)

    return timed


def always_well(function: Any) -> Any:
    @functools.wraps(function)
    def safe(event: Any, context: Any) -> Any:
        function(event, context)
        return {"batchItemFailures": []}

    return safe


def audited(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(event: Any, context: Any) -> Any:
        services.mail(f"received {len(event['Records'])}")
        return function(event, context)

    return wrapper


def with_ids_of_its_own(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(event: Any, context: Any) -> Any:
        for one in event["Records"]:
            one["messageId"] = uuid4().hex
        return function(event, context)

    return wrapper


def counted(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(order: dict, tx: Transaction) -> None:
        services.mail("one more")
        function(order, tx)

    return wrapper


@wrong("decorators", "the response is dropped: SQS deletes every message", EARLY)
@without_response
@consumer
def response_dropped(order: dict, tx: Transaction) -> None:
    debit(order, tx)


@wrong("decorators", "every batch is called a success", EARLY)
@always_well
@consumer
def called_a_success(order: dict, tx: Transaction) -> None:
    debit(order, tx)


@wrong("decorators", "a mail for each delivery", NO_KEY)
@audited
@consumer
def mail_for_each_delivery(order: dict, tx: Transaction) -> None:
    debit(order, tx)


@wrong("decorators", "each delivery is a new message", EARLY)
@with_ids_of_its_own
@consumer
def new_ids(order: dict, tx: Transaction) -> None:
    debit(order, tx)


@wrong("decorators", "a mail for each attempt", NO_KEY)
@consumer
@counted
def mail_for_each_attempt(order: dict, tx: Transaction) -> None:
    debit(order, tx)


# Nothing that `explore` could see.

NOTHING = "has no visible effect"


@wrong("unseen", "a list of the module has each attempt, and `explore` was not told", NOTHING)
@consumer
def hidden_journal(order: dict) -> None:
    journal.append(order["order"])


@wrong("unseen", "a file has each attempt", NOTHING)
@consumer
def file(order: dict) -> None:
    with open(os.devnull, "a") as log:  # noqa: PTH123
        log.write("paid")


@wrong("unseen", "the real function is called, since no fake is in its place", NOTHING)
@consumer
def no_fake(order: dict, message: Message) -> None:
    print("charges", order["cents"], uuid4())


@wrong("unseen", "a message of each attempt in the environment", NOTHING)
@consumer
def environment(order: dict) -> None:
    os.environ["LAST_ORDER"] = f"{order['order']} {time.time()}"


@wrong("unseen", "what a program does that the handler starts, beside a transaction", None, most_schedules=20)
@consumer
def another_program(order: dict, tx: Transaction) -> None:
    subprocess.run([sys.executable, "-S", "-c", ""], check=True)
    record(order, tx)


@wrong("unseen", "a file that records each attempt, beside a transaction", None)
@consumer
def file_beside(order: dict, tx: Transaction) -> None:
    file.__wrapped__(order)
    record(order, tx)


@wrong("unseen", "a module-level counter whose value is written: it varies, as a time does", None)
@consumer
def hidden_counter(order: dict, tx: Transaction) -> None:
    record(order, tx, number=next(numbers))


@wrong("unseen", "a call to a `unittest.mock` or an HTTP mock, beside a transaction", None)
@consumer
def mocked(order: dict, tx: Transaction) -> None:
    a_mock(order["cents"])
    record(order, tx)


@wrong("unseen", "a module-level list that `state` does not name, beside a transaction", None)
@consumer
def hidden_journal_beside(order: dict, tx: Transaction) -> None:
    journal.append(order["order"])
    record(order, tx)


# Sockets, and clients of their own.

URL = "http://127.0.0.1:9/charge"
"""Where nothing listens."""


@wrong("sockets", "a POST", "connects to 127.0.0.1:9")
@consumer
def post(order: dict, tx: Transaction) -> None:
    with suppress(OSError):
        urllib.request.urlopen(URL, data=b"5", timeout=1)
    record(order, tx)


@wrong("sockets", "a request whatever happens", "connects to 127.0.0.1:9")
@consumer
def post_finally(order: dict, tx: Transaction) -> None:
    try:
        record(order, tx)
    finally:
        with suppress(OSError):
            http.client.HTTPConnection("127.0.0.1", 9, timeout=1).request("POST", "/", b"5")


@wrong("sockets", "a mail by SMTP", "connects to 127.0.0.1:9")
@consumer
def smtp(order: dict, tx: Transaction) -> None:
    with suppress(OSError):
        smtplib.SMTP("127.0.0.1", 9, timeout=1)
    record(order, tx)


@wrong("sockets", "a POST by a thread", "connects to 127.0.0.1:9")
@consumer
async def post_in_a_thread(order: dict, tx: Transaction) -> None:
    with suppress(OSError):
        await asyncio.to_thread(urllib.request.urlopen, URL, b"5", 1)
    record(order, tx)


@wrong("sockets", "a connection of asyncio's to an address", "connects to 127.0.0.1:9")
@consumer
async def asyncio_connection(order: dict, tx: Transaction) -> None:
    with suppress(Exception):
        await asyncio.open_connection("127.0.0.1", 9)
    record(order, tx)


CLIENT = "with its own client"
ACCESS = {"region_name": "us-east-1", "aws_access_key_id": "test", "aws_secret_access_key": "test"}


@wrong("clients", "a write past the transaction", CLIENT)
@consumer
def own_put(order: dict, tx: Transaction) -> None:
    dynamodb = boto3.client("dynamodb", **ACCESS)
    dynamodb.put_item(TableName="orders", Item={"order": {"S": order["order"]}})


@wrong("clients", "an SQS message, and its error is swallowed", CLIENT)
@consumer
def own_send(order: dict, tx: Transaction) -> None:
    with suppress(Exception):
        boto3.client("sqs", **ACCESS).send_message(QueueUrl="https://sqs.us-east-1.amazonaws.com/1/q", MessageBody="5")
    record(order, tx)


@wrong("clients", "an SNS message under moto", CLIENT, moto=True)
@consumer
def own_publish(order: dict, tx: Transaction) -> None:
    boto3.client("sns", **ACCESS).publish(PhoneNumber="+15550100", Message="paid")
    record(order, tx)


@wrong("clients", "an update under moto", CLIENT, moto=True)
@consumer
def own_update(order: dict, tx: Transaction) -> None:
    dynamodb = boto3.client("dynamodb", **ACCESS)
    with suppress(dynamodb.exceptions.ResourceNotFoundException):
        dynamodb.update_item(TableName="accounts", Key={"account": {"S": "alice"}})
    record(order, tx)


@wrong("clients", "a file in S3 under moto, in a helper", CLIENT, moto=True)
@consumer
def own_upload(order: dict, tx: Transaction) -> None:
    boto3.client("s3", **ACCESS).create_bucket(Bucket=f"receipts-{current_claim().attempt}")
    record(order, tx)
