"""What an operator sends from a record: how long that may take, and what is recorded of it however it ends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from botocore.config import Config

from idempotent_receiver import MemoryStore, PermanentError, current_claim
from idempotent_receiver.handler.callees import Callees
from idempotent_receiver.operations import unsent
from idempotent_receiver.operations.unsent import (
    LONGEST_BACKOFF_SECONDS,
    OUT_OF_TIME,
    SEND_SECONDS,
    TAKEN_BY_A_WORKER,
    GaveUp,
    send_from,
)
from idempotent_receiver.protocol.record import idempotency_key
from idempotent_receiver.protocol.store import NotApplied
from idempotent_receiver.transaction.outbox import (
    GivenUp,
    OutboxCall,
    OutboxEntry,
    Outgoing,
    confirmed,
    from_text,
    given_up,
    to_text,
)
from tests.manual_clock import START_MS, ManualClock
from tests.unit.test_process_end import armed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from idempotent_receiver.protocol.record import Change
    from idempotent_receiver.protocol.store import Written

QUEUE = "https://sqs.us-east-1.amazonaws.com/123456789012/q"
FIFO = f"{QUEUE}.fifo"
GIVEN_UP = GivenUp(QUEUE, "alice", "the queue is gone")
CONFIG = Config(connect_timeout=1, read_timeout=4, retries={"total_max_attempts": 2})
LEASE_MS = (SEND_SECONDS + 2 * (1 + 4 + LONGEST_BACKOFF_SECONDS)) * 1000


class Command:
    """The command, for a record whose lease is over. Each message takes `seconds`, and then `send` is called."""

    def __init__(self, *messages: OutboxEntry, seconds: float = 0.0) -> None:
        self.clock, self.store = ManualClock(fraction=0), MemoryStore()
        self.seconds = seconds
        self.sent: list[str] = []
        self.send: Callable[[dict[str, Any]], Any] = lambda entry: None
        ended = {"in_progress_expiration": START_MS - 1, "expiration": START_MS // 1000 + 86_400}
        outbox = to_text(messages)
        self.store.items["k"] = {
            "id": "k",
            "status": "SENDING",
            "version": "v",
            "owner": "w",
            "outbox": outbox,
            **ended,
        }

    def run(self, store: MemoryStore | None = None) -> str | None:
        sqs: Any = SimpleNamespace(send_message_batch=self._send, meta=SimpleNamespace(config=CONFIG))
        return send_from(store or self.store, sqs, "k", self.clock, 86_400)

    @property
    def item(self) -> dict[str, Any]:
        return self.store.items["k"]

    @property
    def left(self) -> list[int]:
        return [*from_text(self.item["outbox"])]

    def _send(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> Any:  # noqa: N803
        (entry,) = Entries
        self.clock.sleep(self.seconds)
        if (failed := self.send(entry)) is not None:
            return {"Failed": [{"Id": entry["Id"], **failed}]}
        self.sent.append(entry["MessageBody"])
        return {"Successful": [{"Id": entry["Id"]}]}


def message(body: str, queue: str = QUEUE, **arguments: Any) -> Outgoing:
    return Outgoing(queue, {"MessageBody": body, **arguments})


def test_the_record_is_taken_over_for_longer_than_anything_can_be_sent() -> None:
    """Nothing starts after a minute, and no request outlasts its client's timeouts."""
    command = Command(message("a"))
    seen: list[dict[str, Any]] = []
    command.send = lambda entry: seen.append(command.item)

    assert command.run() is None

    assert seen[0] == {**seen[0], "owner": "operator", "in_progress_expiration": START_MS + LEASE_MS}
    assert command.item["status"] == "COMPLETED"


def test_after_a_minute_nothing_more_is_sent_and_what_was_is_recorded() -> None:
    command = Command(*(message(text) for text in "abcde"), seconds=25.0)

    assert command.run() == OUT_OF_TIME

    assert command.sent == ["a", "b", "c"]
    assert (command.item["status"], command.left) == ("SENDING", [4, 5])
    assert command.item["in_progress_expiration"] <= command.clock.epoch_ms(), "its lease is over"
    assert command.run() is None
    assert command.sent == [*"abcde"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_whatever_stops_it_what_was_sent_is_recorded_and_the_lease_ended(error: type[BaseException]) -> None:
    def interrupt(entry: dict[str, Any]) -> None:
        if entry["MessageBody"] == "b":
            raise error

    command = Command(*(message(text) for text in "abc"))
    command.send = interrupt

    with pytest.raises(error):
        command.run()

    assert command.left == [2, 3]
    assert command.item["in_progress_expiration"] <= command.clock.epoch_ms()


def test_a_message_that_is_not_confirmed_stops_its_fifo_group_alone() -> None:
    group, other = {"MessageGroupId": "g"}, {"MessageGroupId": "h"}
    fifo = [message("a", FIFO, **group), message("b", FIFO, **group), message("c", FIFO, **other)]
    command = Command(*fifo, message("d"))
    command.send = lambda entry: {"Code": "KmsDisabled", "SenderFault": True} if entry["MessageBody"] == "a" else None

    assert command.run() == f"message 1: SQS answered KmsDisabled on {FIFO}"

    assert (command.sent, command.left) == (["c", "d"], [1, 2])


def test_tombstones_alone_are_marked() -> None:
    command = Command(message("a"))
    command.item["outbox"] = "[null,null]"

    assert command.run() is None

    assert (command.sent, command.item["status"]) == ([], "COMPLETED")


def give_up(command: Command, number: int, store: MemoryStore | None = None) -> GaveUp:
    given: Any = {"clock": command.clock, "retention_seconds": 86_400}
    return unsent.give_up(store or command.store, "k", number, GIVEN_UP, **given)


def test_a_message_is_given_up_under_a_claim_whose_lease_is_over_afterwards() -> None:
    command = Command(message("a"), message("b"))

    assert give_up(command, 1) == GaveUp(left=True)

    assert (command.left, given_up(command.item["outbox"])) == ([2], {1: GIVEN_UP})
    assert command.item["in_progress_expiration"] <= command.clock.epoch_ms()
    assert give_up(command, 1).why == "message 1 is not left to send (left: 2)"
    assert give_up(command, 2) == GaveUp()
    assert command.item["status"] == "COMPLETED"
    assert given_up(command.item.get("outbox")) == {1: GIVEN_UP, 2: GIVEN_UP}


def test_a_message_of_a_live_lease_is_not_given_up() -> None:
    """Its holder may be sending it."""
    command = Command(message("a"))
    command.item["in_progress_expiration"] = START_MS + 60_000
    before = dict(command.item)

    assert "a worker holds its claim until" in str(give_up(command, 1).why)
    assert command.item == before


class Contended(MemoryStore):
    """Before each write, `meanwhile` happens to the record."""

    def __init__(self, items: dict[str, Any], meanwhile: Callable[[int], dict[str, Any]]) -> None:
        super().__init__()
        self.items, self.meanwhile, self.writes = items, meanwhile, 0

    def replace(self, changes: Sequence[Change]) -> Sequence[Written]:
        self.writes += 1
        self.items["k"] |= self.meanwhile(self.writes)
        return super().replace(changes)


def test_what_was_sent_before_the_take_over_is_not_given_up() -> None:
    """Another sender stopped in between. Its tombstone stays, and the lease is over."""
    command = Command(message("a"), message("b"))
    sent = confirmed(command.item["outbox"], {1})
    store = Contended(command.store.items, lambda write: {"version": "theirs", "outbox": sent} if write == 1 else {})

    assert give_up(command, 1, store).why == "message 1 is not left to send (left: 2)"
    assert store.items["k"]["outbox"] == sent
    assert store.items["k"]["in_progress_expiration"] <= command.clock.epoch_ms()


def test_a_worker_that_took_the_record_over_is_not_overwritten() -> None:
    command = Command(message("a"))
    store = Contended(command.store.items, lambda write: {"version": "theirs"} if write == 2 else {})

    assert give_up(command, 1, store) == GaveUp(TAKEN_BY_A_WORKER)
    assert given_up(store.items["k"]["outbox"]) == {}


class ThrottledMark(MemoryStore):
    """Refuses the first write after the take-over."""

    writes = 0

    def replace(self, changes: Sequence[Change]) -> Sequence[Written]:
        self.writes += 1
        return [NotApplied("throttled", retry=True)] * len(changes) if self.writes == 2 else super().replace(changes)


@pytest.mark.parametrize("seconds", [1.0, 90.0])
def test_what_was_sent_is_recorded_however_long_it_took(seconds: float) -> None:
    command, store = Command(message("a"), seconds=seconds), ThrottledMark()
    store.items = command.store.items
    assert command.run(store) is None
    assert store.items["k"]["status"] == "COMPLETED"


# Calls.

CALLED: list[tuple[int, str]] = []


def notify(order: int, idempotency_key: str) -> None:
    CALLED.append((order, idempotency_key))
    if order == 2:
        raise ValueError("confidential")
    if order == 3:
        raise PermanentError("no such address")
    if order == 4:
        raise KeyboardInterrupt


async def later(order: int) -> None:
    CALLED.append((order, current_claim().idempotency_key))


def to_make(*orders: int, function: str = "notify") -> list[OutboxCall]:
    return [OutboxCall(function, {"order": order}) for order in orders]


def run_with(command: Command, *functions: Callable[..., Any]) -> str | None:
    sqs: Any = SimpleNamespace(send_message_batch=command._send, meta=SimpleNamespace(config=CONFIG))
    return send_from(command.store, sqs, "k", command.clock, 86_400, callees=Callees(functions))


@pytest.fixture(autouse=True)
def _nothing_called() -> None:
    CALLED.clear()


def test_calls_are_made_after_the_messages_under_their_keys() -> None:
    command = Command(*to_make(1), message("a"), *to_make(5, function="later"))
    assert run_with(command, notify, later) is None
    assert command.sent == ["a"]
    assert [(1, f"{idempotency_key('k')}-1"), (5, idempotency_key("k"))] == CALLED
    assert command.item["status"] == "COMPLETED"


def test_a_call_that_raises_stops_no_other_and_is_left() -> None:
    command = Command(*to_make(1, 2, 3, 5))
    why = run_with(command, notify)
    assert why is not None
    assert "call 2 (notify): ValueError at " in why
    assert "call 3 (notify): no such address" in why
    assert "confidential" not in why
    assert ([order for order, _ in CALLED], command.left) == ([1, 2, 3, 5], [2, 3])
    assert command.item["in_progress_expiration"] <= command.clock.epoch_ms(), "its lease is over"


def test_an_interrupt_during_a_call_ends_the_command_and_what_was_made_is_recorded() -> None:
    command = Command(*to_make(1, 4, 5))
    with pytest.raises(KeyboardInterrupt):
        run_with(command, notify)
    assert ([order for order, _ in CALLED], command.left) == ([1, 4], [2, 3])
    assert armed() == 0, "nothing ends this process later"


def test_without_the_code_or_for_an_unknown_name_nothing_is_taken_over() -> None:
    command = Command(message("a"), *to_make(1))
    before = dict(command.item)
    assert command.run() == "it has calls to make: give --consumer module:handler, which imports your code"
    assert "calls={'notify': function}" in str(run_with(command, later))
    assert (command.item, command.sent, CALLED) == (before, [], [])


def test_its_lease_is_longer_than_any_call() -> None:
    command = Command(*to_make(1))
    seen: list[dict[str, Any]] = []

    def notify(order: int) -> None:
        seen.append(dict(command.item))

    assert run_with(command, notify) is None
    lasts_ms = seen[0]["in_progress_expiration"] - START_MS
    assert lasts_ms == (SEND_SECONDS + unsent.CALL_SECONDS) * 1000


def test_a_call_can_be_given_up_without_the_code() -> None:
    command = Command(*to_make(1, 2))
    assert give_up(command, 1) == GaveUp(left=True)
    assert (given_up(command.item["outbox"]), command.left) == ({1: GIVEN_UP}, [2])
    assert run_with(command, notify) is not None
    assert [order for order, _ in CALLED] == [2]
