"""Drives a workload: sends it, and waits until nothing is left to do. Every wait is bounded."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from harness.workload.stack_client import Backlog, StackClient
    from harness.workload.transfers import TransferMessage, Workload

MESSAGES_A_CALL = 10
QUIET_POLLS = 3
"""How many times in a row the queue must report that it is empty: SQS counts approximately."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often to look, and for how long. `stall_seconds` is the longest time without any change."""

    poll_seconds: float
    stall_seconds: float
    limit_seconds: float
    limit_seconds_a_message: float = 0.1
    most_queued: int | None = None
    """The number of messages in the queue at which sending pauses."""
    burst: int = MESSAGES_A_CALL
    """How many messages are sent at a time. A pause follows fewer than the limit, so that they share a batch."""


LOCAL = Pace(poll_seconds=0.25, stall_seconds=45.0, limit_seconds=120.0)
REMOTE = Pace(poll_seconds=2.0, stall_seconds=180.0, limit_seconds=900.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The visible progress of a workload; `extra` counts what the run does besides."""

    sent: int
    queue: Backlog
    dead_letters: Backlog
    extra: Mapping[str, int]


class Cast(Protocol):
    """What a run adds to the messages: how they are sent, and what happens to them on the way."""

    def send(self, messages: Sequence[TransferMessage]) -> dict[str, str]:
        """Send up to ten messages; returns their keys by name."""

    def act(self, sent: Mapping[str, str], *, all_sent: bool) -> None:
        """Do what is due now. Raises if the evidence has become worthless."""

    @property
    def at_rest(self) -> bool:
        """Whether nothing outside the queue is in progress or still to come."""

    @property
    def counts(self) -> Mapping[str, int]:
        """What has been done so far."""


def drive(
    client: StackClient, workload: Workload, cast: Cast, pace: Pace, say: Callable[[Progress], None]
) -> tuple[dict[str, str], str | None]:
    """Send everything and wait for the end. Returns the messages' keys by name, and what the wait timed out on."""
    sent: dict[str, str] = {}

    def look() -> Observation:
        cast.act(sent, all_sent=len(sent) == len(workload.messages))
        at_rest = cast.at_rest  # checked before the queue: a message held outside it may return to it
        queue, receipts = client.backlog(client.queue), client.receipts_left()
        room = pace.most_queued is None or queue.total < pace.most_queued
        waiting = workload.messages[len(sent) : len(sent) + pace.burst] if room else ()
        if waiting:
            sent.update(cast.send(waiting))
        dead_letters = client.backlog(client.dead_letter_queue)
        extra = {**cast.counts, **({"receipts left": receipts} if receipts else {})}
        seen = Progress(sent=len(sent), queue=queue, dead_letters=dead_letters, extra=extra)
        say(seen)
        over = at_rest and not waiting and queue.total + receipts == 0 and len(sent) == len(workload.messages)
        told = f"{queue.waiting} messages in the queue and {queue.in_flight} in flight" + (
            "" if at_rest else ", and messages held or still to be redelivered"
        )
        told += f", and {receipts} receipts in theirs" if receipts else ""
        return Observation(seen=seen, over=over, told=told, at_once=bool(waiting) and pace.burst == MESSAGES_A_CALL)

    return sent, wait(look, pace, number=len(workload.messages))


def collect(client: StackClient, workload: Workload, sent: Mapping[str, str], *, alone: bool = True) -> dict[str, Any]:
    """What a reconciliation needs from tables and queues; `alone`: they belong to this run and are read as a whole."""
    names = [*workload.by_name, *sent.values()]
    return {
        "workload": workload,
        "sent": sent,
        "entries": client.all_entries() if alone else client.entries_of(names),
        "closing": client.balances(list(workload.opening)),
        "records": client.records(list(sent.values())),
        "dead_letters": client.dead_letters(),
        "left": client.backlog(client.queue).total,
        "receipt_counts": client.receipt_counts(),
    }


def until(over: Callable[[], bool], limit_seconds: float, poll_seconds: float = 0.2) -> bool:
    """Poll until it is true; returns whether it was in time."""
    ends = time.monotonic() + limit_seconds
    while not (so := over()) and time.monotonic() < ends:
        time.sleep(poll_seconds)
    return so


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What is visible, in values and in words; `at_once`: there is more to do before a pause."""

    seen: object
    over: bool
    told: str
    at_once: bool = False


def wait(look: Callable[[], Observation], pace: Pace, *, number: int) -> str | None:
    """Look until it is over, several times in a row; returns None, or what the wait timed out on."""
    limit_seconds = pace.limit_seconds + number * pace.limit_seconds_a_message
    begun = changed = time.monotonic()
    before, quiet = None, 0
    while True:
        found, now = look(), time.monotonic()
        changed = changed if found.seen == before else now
        before = found.seen
        quiet = quiet + 1 if found.over else 0
        if quiet == QUIET_POLLS:
            return None
        if now - changed > pace.stall_seconds:
            return f"for {pace.stall_seconds:.0f} s nothing changed: {found.told}"
        if now - begun > limit_seconds:
            return f"after {limit_seconds:.0f} s it had not finished: {found.told}"
        if not found.at_once:
            time.sleep(pace.poll_seconds)
