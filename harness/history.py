"""The history of a run: what its clients saw happen, an event each. `checker.py` judges it.

Simulations, chaos and `make run` all write histories in this form. An event says what somebody outside the library saw:
whoever sends, the queue, whoever invokes workers and acts on their answers, the handler, and whatever the handler's
effects are applied to. Nothing is imported here, so a history can be made of anything: `at` is a time on one clock, in
whichever unit, virtual or real.
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
    """A message was sent: to have the effect of its `payload` under its `key`, once.

    In a FIFO queue messages of one `group` are in the order of their sending. `must`: whether it must take effect; None
    if a dead letter will do. `moves`: what its effect must be, if that is known. A redriven message is sent again, with
    its key and another id.
    """

    message: str
    key: str
    payload: str = ""
    group: str | None = None
    must: bool | None = None
    moves: Moves | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered(Event):
    """A worker was given a message, for the so many-th receive."""

    message: str
    worker: str
    receives: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(Event):
    """A handler was entered. With a claim nobody else may run its key `until` then, or until it is settled."""

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
    """A worker has given its claim up; where anybody sees that. Otherwise a claim counts until its handler's end."""

    key: str
    worker: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect(Event):
    """What a handler does to the outside was applied: not before `since`, and by `at` for certain.

    `once`: it must never be applied twice, as what went through a transaction. Any other effect may be repeated, but
    not after somebody was told that it is done. `result`: what whoever asks must be told.
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
    """A message is in the dead-letter queue: a worker sent it (empty: who knows which), or the queue moved it (None).

    `confirmed`: the worker was told that its letter is there.
    """

    message: str
    worker: str | None
    confirmed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered(Event):
    """A request, made at `since`, was told that its payload's effect is done, with this result.

    `replayed`: that another request has had it done.
    """

    key: str
    since: float
    payload: str = ""
    result: str | None = None
    replayed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused(Event):
    """A worker was stopped. What it does when it goes on, it may do after its claims have ended: they fence it."""

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
