"""A history (`history.py`) grouped by key, for `checker.py` to judge. This module judges nothing."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from harness.history import (
    Acknowledged,
    Answered,
    DeadLettered,
    Delivered,
    Effect,
    Ended,
    Event,
    Left,
    Paused,
    Sent,
    Settled,
    Started,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

Kind = TypeVar("Kind", bound=Event)
NEVER = float("inf")


@dataclass
class Run:
    """A run of the handler. Its claim holds the key until `holds_until`."""

    start: Started
    end: Ended | None = None
    settled: Settled | None = None
    holds_until: float = 0.0

    @property
    def failed(self) -> bool:
        return self.end is not None and not self.end.ok


@dataclass
class Key:
    """Everything that happened to a key."""

    name: str
    sent: list[Sent] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    acknowledged: list[Acknowledged] = field(default_factory=list)
    letters: list[DeadLettered] = field(default_factory=list)
    answers: list[Answered] = field(default_factory=list)

    def maker(self, effect: Effect) -> Run | None:
        """The run that produced an effect: its worker's latest with that payload, preferably one that has not
        failed.
        """
        of = {sent.message for sent in self.sent if sent.payload == effect.payload}
        theirs = [run for run in self.runs if run.start.worker == effect.worker and run.start.message in of]
        begun = [run for run in theirs if run.start.at <= effect.at]
        return next((run for run in begun[::-1] if not run.failed), begun[-1] if begun else None)

    @property
    def made(self) -> list[Effect]:
        """The effects, except those of failed handlers, after which a key is not done."""
        return [effect for effect in self.effects if (run := self.maker(effect)) is None or not run.failed]


class ByKey:
    """A history by key. `strangers`: events of messages not sent, not given to that worker or not started, with the
    reason.
    """

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = events
        self.sent = {event.message: event for event in self.all(Sent)}
        self.keys: dict[str, Key] = {}
        self.strangers: list[tuple[str, str, Event]] = []
        self.left = {event.message for event in self.all(Left)}
        self.watched = bool(self.all(Started))
        self.delivered: dict[tuple[str, str], list[float]] = defaultdict(list)
        self.paused: dict[str, list[float]] = defaultdict(list)
        self._latest: dict[tuple[str, str], Run] = {}
        for event in events:
            self._take(event)
        for key in self.keys.values():
            for run in key.runs:
                run.holds_until = self._holds_until(run, key)

    def all(self, kind: type[Kind]) -> list[Kind]:
        return [event for event in self.events if type(event) is kind]

    def _take(self, event: Event) -> None:
        match event:
            case Sent(key=key):
                self._key(key).sent.append(event)
            case Effect(key=key):
                self._apply(self._key(key), event)
            case Answered(key=key):
                self._key(key).answers.append(event)
            case Settled(key=key, worker=worker):
                self._settle(key, worker, event)
            case Delivered(message=message, worker=worker):
                self.delivered[message, worker].append(event.at)
                self._known(event, message)
            case Paused(worker=worker):
                self.paused[worker].append(event.at)
            case Started(message=message, worker=worker) if self._known(event, message, worker):
                run = self._latest[message, worker] = Run(event)
                self._key(self.sent[message].key).runs.append(run)
            case Ended():
                self._end(event)
            case Left(message=message):
                self._known(event, message)
            case Acknowledged(message=message, worker=worker) if self._known(event, message, worker):
                self._key(self.sent[message].key).acknowledged.append(event)
            case DeadLettered(message=message, worker=worker) if self._known(event, message, worker):
                self._key(self.sent[message].key).letters.append(event)

    def _key(self, name: str) -> Key:
        return self.keys.setdefault(name, Key(name))

    def _known(self, event: Event, message: str, worker: str | None = None) -> bool:
        """Whether this message was sent, and given to that worker."""
        sent = self.sent.get(message)
        if sent is None or sent.at > event.at:
            self._stranger(message, "was not sent", event)
        elif worker and (message, worker) not in self.delivered:
            self._stranger(message, f"was not given to {worker}", event)
        return sent is not None

    def _stranger(self, of: str, what: str, event: Event) -> None:
        self.strangers.append((of, what, event))

    def _apply(self, key: Key, event: Effect) -> None:
        key.effects.append(event)
        if not any(sent.payload == event.payload for sent in key.sent):
            self._stranger(key.name, "took effect, but was not sent", event)
        elif event.worker and self.watched and key.maker(event) is None:
            self._stranger(key.name, f"took effect, but {event.worker} had not started it", event)

    def _end(self, event: Ended) -> None:
        run = self._latest.get((event.message, event.worker))
        if run is None:
            self._stranger(event.message, "ended, but had not started", event)
        else:
            run.end = event

    def _settle(self, key: str, worker: str, event: Settled) -> None:
        for run in self._key(key).runs:
            if run.start.worker == worker and run.settled is None:
                run.settled = event

    def _holds_until(self, run: Run, key: Key) -> float:
        """A claim ends when it is settled after its handler's end; if that was not observed, with that end or its
        effect.
        """
        until = NEVER if run.start.until is None else run.start.until
        ended = None if run.end is None else run.end.at
        if any(other.settled for other in key.runs):
            return min(until, until if run.settled is None else max(run.settled.at, ended or run.settled.at))
        own = (effect.earliest for effect in key.effects if effect.once and effect.worker == run.start.worker)
        return min(until, min((at for at in own if at >= run.start.at), default=NEVER if ended is None else ended))

    def paused_before(self, run: Run) -> bool:
        """Whether its worker was suspended between delivery and start."""
        given = self.delivered[run.start.message, run.start.worker]
        since = given[bisect_right(given, run.start.at) - 1] if given else 0.0
        return any(since <= at <= run.start.at for at in self.paused.get(run.start.worker, ()))
