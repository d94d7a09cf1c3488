"""Every way to set up a consumer, and one invocation of it in virtual time, with everything that the oracle checks."""

from __future__ import annotations

import logging
from asyncio import CancelledError
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial, wraps
from random import Random
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from idempotent_receiver import (
    MemoryStore,
    Message,
    PermanentError,
    Transaction,
    body_field,
    event_id,
    message_attribute,
    message_id,
    payload_key,
)
from idempotent_receiver.payload import EVERYTHING
from idempotent_receiver.protocol.record import record_id
from idempotent_receiver.protocol.store import TransactionalStore
from idempotent_receiver.sqs.keys import KeyStrategy, envelope_opener, keyed
from idempotent_receiver.sqs.message import InvalidEvent, messages_of
from idempotent_receiver.testing.events import LambdaContext
from idempotent_receiver.testing.worker import SILENT
from idempotent_receiver.testing.world import World, WorldClock
from tests.fuzz.hostile import OURS, huge, mostly, nested, values
from tests.queues import Queues
from tests.simulation.world import Worker

if TYPE_CHECKING:
    from tests.queues import Kept

OWNER = "request"
PLENTY_MS = 30_000

# Handlers.


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    id: str
    amount: Decimal


class Lax(BaseModel):
    id: str = ""
    amount: float | None = None


class Unformattable(Exception):
    """An error whose text cannot be formatted."""

    def __str__(self) -> str:
        raise RuntimeError


async def never_awaited() -> None:
    """A coroutine that a handler may return by mistake."""


def unrun() -> Any:
    """A generator that a handler may return by mistake."""
    yield


Act = Callable[[Message, Transaction | None], object]


def returning(made: Callable[[], object]) -> Act:
    return lambda message, tx: made()


def raising(made: Callable[[], BaseException]) -> Act:
    def act(message: Message, tx: Transaction | None) -> object:
        raise made()

    return act


def spoiling(message: Message, tx: Transaction | None) -> object:
    """Changes everything that it was given."""
    message.attributes.clear()  # type: ignore[attr-defined]
    message.message_attributes.clear()  # type: ignore[attr-defined]
    return message.sent_at, message.receive_count, message.group_id, message.remaining_time_ms()


ENDINGS: dict[str, Act] = {
    "nothing": returning(lambda: None),
    "a text": returning(lambda: "done"),
    "NaN": returning(lambda: float("nan")),
    "bytes": returning(lambda: b"\xff"),
    "a surrogate": returning(lambda: "\ud800"),
    "a large text": returning(lambda: "x" * 2000),
    "an object": returning(object),
    "depth": returning(lambda: nested(5000)),
    "a huge number": returning(lambda: huge(5000)),
    "a coroutine": returning(never_awaited),
    "a generator": returning(unrun),
    "a model": returning(Lax),
    "an error": raising(lambda: ValueError("\ud800")),
    "a permanent error": raising(lambda: PermanentError("\ud800" * 600)),
    "an unformattable error": raising(Unformattable),
    "a keyboard's interrupt": raising(KeyboardInterrupt),
    "an exit": raising(lambda: SystemExit(1)),
    "a generator's exit": raising(GeneratorExit),
    "a cancellation": raising(CancelledError),
    "a recursion error": raising(RecursionError),
    "spoiling": spoiling,
}


def credit(tx: Transaction, amount: object = 5, **given: Any) -> None:
    tx.update(
        TableName="Accounts",
        Key={"account": "alice"},
        UpdateExpression="ADD balance :amount",
        **{"ExpressionAttributeValues": {":amount": amount}} | given,
    )


def missing(tx: Transaction, otherwise: BaseException | None) -> None:
    tx.check(
        TableName="Accounts",
        Key={"account": "nobody"},
        ConditionExpression="attribute_exists(account)",
        otherwise=otherwise,
    )


def twice(tx: Transaction) -> None:
    credit(tx)
    credit(tx)


WRITES: dict[str, Callable[[Transaction], None]] = {
    "no write": lambda tx: None,
    "a credit": credit,
    "a float": lambda tx: credit(tx, 0.5),
    "a text for a number": lambda tx: credit(tx, "five"),
    "bad syntax": lambda tx: credit(tx, UpdateExpression="ADD ADD"),
    "two on one item": twice,
    "an unknown table": lambda tx: tx.put(TableName="Nowhere", Item={"id": "1"}),
    "a failed condition": lambda tx: missing(tx, None),
    "a failed condition, for good": lambda tx: missing(tx, PermanentError("nobody")),
}

REFUSED = {"a text for a number", "bad syntax", "two on one item", "an unknown table"}
"""The writes that a store refuses for good. Without claims, a batch stops after several: nothing could be written."""

# Keys.


def awkward(key: object) -> KeyStrategy:
    return lambda message: key  # type: ignore[return-value]


def failing(message: Message) -> str:
    raise KeyError(message.body)


FIXED_KEYS: list[KeyStrategy] = [
    message_id,
    message_attribute("k"),
    message_attribute("idempotent-receiver"),
    body_field("id"),
    body_field("detail.id"),
    body_field("ceil(amount)"),
    payload_key(),
    payload_key("[id, amount]"),
    payload_key("contains(name, id)"),
    payload_key(without=["amount", "detail.id"]),
    event_id,
    lambda message: message.body,
    lambda message: message.group_id,  # type: ignore[return-value,list-item]
    failing,
]
odd_keys = st.sampled_from(FIXED_KEYS) | values.map(awkward)
key_strategies = mostly(st.sampled_from([message_id, message_id, body_field("id")]), odd_keys, 3)

ENVELOPES = ["detail", "Message", "@", "detail || Message", "ceil(amount)", "contains(name, id)", "[0]"]
BODIES = [bytes, Strict, dict[str, Any], list[int], int, Decimal]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """One way to set up a consumer. Its handler's n-th run ends and writes as the n-th entry (modulo) says."""

    key: KeyStrategy
    namespace: str
    envelope: str | None
    body: Any
    endings: list[str]
    writes: list[str] | None
    all_in_transactions: bool
    """Whether handlers that write declare that they do nothing else; then nothing is claimed."""
    asynchronous: bool
    concurrency: int
    dead_letters: bool
    sqs: bool
    left_ms: int
    seed: int

    @property
    def claiming(self) -> bool:
        """Whether keys are claimed before they run."""
        return self.writes is None or not self.all_in_transactions


setups = st.builds(
    Setup,
    key=key_strategies,
    namespace=mostly(st.just("n"), st.just("n" * 2047), 20),
    envelope=mostly(st.none(), st.sampled_from(ENVELOPES), 3),
    body=mostly(st.sampled_from([dict, str, Lax, Any]), st.sampled_from(BODIES), 2),
    endings=st.lists(mostly(st.just("a text"), st.sampled_from([*ENDINGS]), 2), min_size=1, max_size=3),
    writes=mostly(
        st.none(), st.lists(mostly(st.just("a credit"), st.sampled_from([*WRITES]), 1), min_size=1, max_size=2), 1
    ),
    all_in_transactions=st.booleans(),
    asynchronous=st.booleans(),
    concurrency=st.integers(1, 4),
    dead_letters=st.booleans(),
    sqs=st.booleans(),
    left_ms=mostly(st.just(PLENTY_MS), st.sampled_from([-1, 0, 1, 1000, 1001, 900_000]), 9),
    seed=st.integers(0, 2**16),
)


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the handler."""

    record_id: str
    message_id: str
    body: str


class Logs:
    """A logger that keeps its messages."""

    log_level = logging.DEBUG

    def __init__(self) -> None:
        self.texts: list[str] = []

    def _keep(self, text: str, **told: Any) -> None:
        self.texts.append(text)

    debug = info = warning = error = _keep


@dataclass(slots=True)
class Received:
    """The result of an event: the answer or the exception, and all side effects."""

    setup: Setup
    event: Any
    store: MemoryStore
    before: dict[str, dict[str, Any]]
    queues: Queues
    answer: Any = None
    raised: BaseException | None = None
    runs: list[Run] = field(default_factory=list)
    logs: Logs = field(default_factory=Logs)

    @property
    def dead_letters(self) -> list[Kept]:
        """The confirmed messages of the dead-letter queue."""
        return [kept for queue in self.queues.queues.values() if queue.name == "dead" for kept in queue.messages]


def known_messages(setup: Setup, event: object) -> list[tuple[Message, str | None, str]]:
    """The event's messages, each with its record's id (None if it has none) and its fingerprint.

    A repeated message counts once, as it came last: SQS ties attributes to an id, so copies have the same.
    """
    store = MemoryStore(setup.namespace)
    known: dict[tuple[str, str], tuple[Message, str | None, str]] = {}
    try:
        messages = messages_of(event)
    except InvalidEvent:
        return []
    id_of, open_envelope = partial(record_id, store.namespace), envelope_opener(setup.envelope)
    for each in messages:
        message, id = each, None
        try:
            message, key, fingerprint = keyed(each, setup.key, EVERYTHING, open_envelope, id_of)
            id = id_of(key)
        except Exception:  # noqa: BLE001  # whatever the strategy raises: no key
            id, fingerprint = None, ""
        known[message.id, message.raw_body] = (message, id, fingerprint)
    return list(known.values())


def received(
    setup: Setup,
    event: Any,
    items: list[dict[str, Any] | None],
    wrapped: Callable[[MemoryStore], TransactionalStore] = lambda store: store,
) -> Received:
    """One invocation. `items` are in the table under the keys of the event's messages, in order."""
    world, store = World(Random(setup.seed).random), MemoryStore(setup.namespace, tables={"Accounts": "account"})
    for (_, id, fingerprint), item in zip(known_messages(setup, event), items, strict=False):
        if id is not None and item is not None:
            store.items[id] = {
                "id": id,
                **{name: fingerprint if value == OURS else value for name, value in item.items()},
            }
    queues = Queues(WorldClock(world))  # type: ignore[arg-type]  # as far as a clock is asked for
    queues.create("transfers"), queues.create("transfers.fifo")
    seen = Received(setup, event, store, deepcopy(store.items), queues)
    options: dict[str, Any] = {}
    if setup.sqs or setup.dead_letters:
        options["sqs"] = queues
    if setup.dead_letters:
        options["dead_letter_queue"] = queues.create("dead").url
    worker = Worker(
        world,
        wrapped(store),
        _function(setup, seen),
        key=setup.key,
        envelope=setup.envelope,
        concurrency=setup.concurrency,
        effects="any" if setup.claiming else "transaction",
        logger=seen.logs,
        metrics=SILENT,
        **options,
    )

    def invoke() -> None:
        try:
            seen.answer = worker.handler(
                event, LambdaContext(setup.left_ms / 1000, WorldClock(world), aws_request_id=OWNER)
            )
        except BaseException as error:  # noqa: BLE001  # for the oracle to check
            seen.raised = error

    world.spawn(invoke)
    world.run()
    return seen


def _function(setup: Setup, seen: Received) -> Callable[..., Any]:
    """The handler, with the annotations of the set-up."""

    def run(message: Message, tx: Transaction | None = None) -> object:
        number = len(seen.runs)
        seen.runs.append(Run(message.record_id, message.id, message.raw_body))
        if tx is not None and setup.writes is not None:
            WRITES[setup.writes[number % len(setup.writes)]](tx)
        return ENDINGS[setup.endings[number % len(setup.endings)]](message, tx)

    def plain(body: Any, message: Message) -> object:
        return run(message)

    def transactional(body: Any, message: Message, tx: Transaction) -> object:
        return run(message, tx)

    function = plain if setup.writes is None else transactional
    function.__annotations__ = {**function.__annotations__, "body": setup.body, "message": Message}
    if setup.writes is not None:
        function.__annotations__["tx"] = Transaction
    return coroutine(function) if setup.asynchronous else function


def coroutine(function: Callable[..., object]) -> Callable[..., Any]:
    """The same as a coroutine."""

    @wraps(function)
    async def run(*args: Any, **given: Any) -> object:
        return function(*args, **given)

    return run
