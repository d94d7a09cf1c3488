"""What an operator sends from a record: how long that may take, and what is recorded of it however it ends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from botocore.config import Config

from idempotent_receiver import MemoryStore
from idempotent_receiver.operations import unsent
from idempotent_receiver.operations.unsent import (
    LONGEST_BACKOFF_SECONDS,
    OUT_OF_TIME,
    SEND_SECONDS,
    TAKEN_BY_A_WORKER,
    GaveUp,
    send_from,
)
from idempotent_receiver.protocol.store import NotApplied
from idempotent_receiver.transaction.outbox import GivenUp, Outgoing, confirmed, from_text, given_up, to_text
from tests.manual_clock import START_MS, ManualClock

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

    def __init__(self, *messages: Outgoing, seconds: float = 0.0) -> None:
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
