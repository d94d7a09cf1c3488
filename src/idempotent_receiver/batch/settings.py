"""The settings that a consumer applies to all its batches."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from idempotent_receiver.batch.executor import Executor
from idempotent_receiver.batch.items import Item
from idempotent_receiver.errors import Failure
from idempotent_receiver.handler.callees import Callees
from idempotent_receiver.handler.lending import LendingStore
from idempotent_receiver.handler.outcome import Outcome
from idempotent_receiver.protocol.exchange import Operation
from idempotent_receiver.protocol.store import RecordStore
from idempotent_receiver.protocol.transitions import Claimed

AHEAD_SECONDS = 1.0
"""How many seconds of work a host receives ahead, and how long that work may wait behind unexpectedly slow handlers."""


class Host(Protocol):
    """The host of batches outside Lambda: it renews leases, gets each outcome at once, and can end batches early.

    All methods except `draining` and `free_slot` are called on the batch's own thread.
    """

    exclusive: bool
    """Whether no other batch runs in this process until this one has ended."""

    def keyed(self, known: Sequence[tuple[int, str]]) -> None:
        """Messages have usable keys: each with its index, and its record's id."""

    def claiming(self, ids: Sequence[str]) -> None:
        """Claims or take-overs of these records are about to be sent."""

    def claimed(self, claimed: Claimed) -> Claimed:
        """A claim was made. Returns it with the renewal data that its settlement needs."""

    def not_claimed(self, id: str) -> None:
        """A claim was not made, or its answer is unknown: nothing happens under it."""

    def settling(self, claimed: Claimed) -> Claimed:
        """A claim is about to be settled, so its lease is no longer renewed. Returns the claim's current state."""

    def resumed(self, claimed: Claimed) -> Claimed | None:
        """The lease is renewed from now on: the handler runs again, because data that it had read has changed, or its
        messages are being sent. Returns None if the lease ends too soon.
        """

    def announced(self, claimed: Claimed, version: str) -> Claimed:
        """The record gets this version while its lease is renewed. Returns the claim, which then knows the version."""

    def ended(self, index: int, outcome: Outcome) -> None:
        """Called when the message at `index` has ended."""

    def draining(self) -> bool:
        """Whether nothing more should start."""

    def take_slot(self) -> bool:
        """Take one of the handler slots that all concurrent batches share. Returns False if none is free."""

    def free_slot(self) -> None:
        """A slot is free again."""

    def set_apart(self, index: int) -> None:
        """The message has crashed before, and this batch is not exclusive: it is to come again, alone."""

    def releases(self, index: int) -> bool:
        """Whether to release a waiting message. Asked once no handler has started for `AHEAD_SECONDS`."""


class SendAnswer(NamedTuple):
    """Whether SQS has confirmed one message, and if not, why. `own`: the message is at fault, and no retry can help.
    `of_queue`: the cause affects all messages to the queue. `tries`: how often one batch sends a message that gets this
    answer; more than once if an immediate retry may help. `refused`: SQS or IAM has answered that it does not take it.
    """

    confirmed: bool
    why: str = ""
    own: bool = False
    of_queue: bool = False
    tries: int = 1
    refused: bool = False


ResultT = TypeVar("ResultT")


class Spans(Protocol):
    """A batch's spans, if its consumer has a tracer. Methods are called on the batch's own thread and never raise."""

    def keyed(self, known: Sequence[tuple[int, str]]) -> None:
        """Messages have usable keys: each with its index, and its record's id."""

    def exchange(self, operations: Sequence[Operation[Any]], send: Callable[[], ResultT]) -> Callable[[], ResultT]:
        """Wrap `send`, the exchange of these operations with the store, in a span."""

    def ended(self, item: Item) -> None:
        """Called when an item has ended."""


SendDeadLetter = Callable[[int, Failure], bool]
"""Sends the dead letter for the work at an index, and returns whether SQS confirmed it."""


SendMessages = Callable[[str, Sequence[tuple[str, Mapping[str, Any]]]], Sequence[SendAnswer]]
"""Sends up to ten messages to the queue at a URL. Each message is a pair: key, and SendMessage's other arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings for batches.

    `stop_margin_seconds` is the time reserved for settling and answering. `asynchronous` means that handlers are
    coroutine functions. `callees` are the functions that records may call. `unclaimed` means that handlers run without
    a claim: each record is written once, together with its handler's effects. `host` is set outside Lambda, and
    `spans` for a consumer with a tracer.
    """

    store: RecordStore
    executor: Executor
    concurrency: int = 1
    asynchronous: bool = False
    callees: Callees = Callees()  # noqa: RUF009  # never changed
    unclaimed: bool = False
    send_dead_letter: SendDeadLetter | None = None
    send_messages: SendMessages | None = None
    stop_margin_seconds: float = 1.0
    host: Host | None = None
    spans: Spans | None = None
    error_texts: bool = False

    @property
    def lender(self) -> LendingStore | None:
        """The store, if it runs handlers itself, in transactions of its own."""
        return self.store if isinstance(self.store, LendingStore) else None
