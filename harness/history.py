"""The history of a run: what its clients observed, as events. `checker.py` judges it.

Simulations, chaos and `make run` all write histories in this form. An event is an observation from outside the library:
by a sender, the queue, the invoker of workers, the handler, or the target of its effects. Nothing is imported here, so
a history can be made from anything: `at` is a time on one clock, in any unit, virtual or real.
"""

from __future__ import annotations

from dataclasses import dataclass

Moves = tuple[tuple[str, int], ...]
"""Accounts, and what was added to each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent(Event):
    """A message was sent, whose `payload` must take effect once under its `key`.

    In a FIFO queue, messages of one `group` are in sending order. `must`: whether it must take effect; None if a dead
    letter is also acceptable. `moves`: what its effect must be, if known. A redriven message is sent again, with its
    key and another id.
    """

    message: str
    key: str
    payload: str = ""
    group: str | None = None
    must: bool | None = None
    moves: Moves | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered(Event):
    """A worker received a message, for this receive count."""

    message: str
    worker: str
    receives: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(Event):
    """A handler was entered. With a claim, no other worker may run its key `until` then, or until it is settled."""

    message: str
    worker: str
    until: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended(Event):
    """A handler returned, or raised if not `ok`."""

    message: str
    worker: str
    ok: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled(Event):
    """A worker settled its claim, if observed. Otherwise a claim counts until its handler's end."""

    key: str
    worker: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect(Event):
    """A handler's effect was applied: not before `since`, and certainly by `at`.

    `once`: it must never be applied twice, as part of a transaction. Any other effect may be repeated, but not after it
    was reported as done. `result`: what requests must be answered.
    """

    key: str
    payload: str = ""
    worker: str | None = None
    since: float | None = None
    once: bool = True
    moves: Moves = ()
    result: str | None = None

    @property
    def earliest(self) -> float:
        return self.at if self.since is None else self.since


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged(Event):
    """A worker's answer left a message out of its failures, or deleted it. None: the queue no longer has it."""

    message: str
    worker: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLettered(Event):
    """A message is in the dead-letter queue: a worker sent it (empty if unknown), or the queue moved it (None).

    `confirmed`: the worker was told that its dead letter arrived.
    """

    message: str
    worker: str | None
    confirmed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered(Event):
    """A request, made at `since`, was answered that its payload's effect took place, with this result.

    `replayed`: that another request had caused it.
    """

    key: str
    since: float
    payload: str = ""
    result: str | None = None
    replayed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused(Event):
    """A worker was suspended. When it continues, it may act after its claims have ended: the fence stops it."""

    worker: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Left(Event):
    """At the end the message was still in its queue."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance(Event):
    """What an account had at the beginning and at the end."""

    account: str
    opening: int
    closing: int | None
