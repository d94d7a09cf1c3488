"""What a trial has shown: how often each message ran, and whether it took effect once, twice or never. Pure."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Line = Mapping[str, Any]
"""What a witness has noted."""


class Verdict(StrEnum):
    """How it ended for a message."""

    ONCE = "once"
    TWICE = "TWICE"
    NEVER = "NEVER"
    DEAD_LETTER = "dead letter"
    UNFINISHED = "not done yet"


NEVER_MS = float("inf")
OVERRAN = "it takes longer than the function's time-out, which is 10 s here at most"
FINE = frozenset({Verdict.ONCE, Verdict.DEAD_LETTER})


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What is left after a trial. Messages are named by their ids, records by their own."""

    sent: Mapping[str, str]
    """The names of the messages."""
    lines: Sequence[Line]
    records: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    dead: frozenset[str] = frozenset()
    """What is in the dead-letter queue."""
    left: int = 0
    """How many messages are still in the queue."""

    @property
    def claims(self) -> bool:
        """Whether one worker at a time runs a message. Without claims two may, and one of them commits."""
        return all(line.get("claims", True) for line in self.lines if line["what"] == "consumer")


@dataclass(frozen=True, kw_only=True)
class Ended:
    """One message, with its duplicates: all that have its key."""

    name: str
    key: str
    sent: int
    deliveries: int
    runs: int
    twice: int
    """Runs that began when it was done, or while another was going on."""
    record: str | None
    verdict: Verdict
    why: str | None = None


def judged(evidence: Evidence) -> list[Ended]:
    """How it ended for each message, in the order of sending."""
    return [_Message(evidence, key, ids).ended() for key, ids in _by_key(evidence).items()]


def _by_key(evidence: Evidence) -> dict[str, list[str]]:
    keys = {line["id"]: line["key"] for line in evidence.lines if line["what"] == "keyed"}
    found: dict[str, list[str]] = {}
    for id in evidence.sent:
        found.setdefault(keys.get(id, id), []).append(id)
    return found


def fine(messages: Iterable[Ended]) -> bool:
    """Whether each ended as it may, and not all as dead letters: then the events are not the handler's."""
    verdicts = {each.verdict for each in messages}
    return verdicts <= FINE and Verdict.ONCE in verdicts


def kills(lines: Iterable[Line]) -> list[str]:
    """The moments at which a worker was killed."""
    return [line["place"] for line in lines if line["what"] == "killed"]


@dataclass(frozen=True)
class _Message:
    evidence: Evidence
    key: str
    ids: Sequence[str]

    def ended(self) -> Ended:
        starts, record = self._own("started"), self._record()
        verdict = self._verdict()
        return Ended(
            name=self.evidence.sent[self.ids[0]],
            key=self.key,
            sent=len(self.ids),
            deliveries=sum(id in line["ids"] for line in self._all("delivered") for id in self.ids),
            runs=len(starts),
            twice=self._twice(),
            record=record.get("status"),
            verdict=verdict,
            why=self._why(verdict),
        )

    def _all(self, what: str) -> list[Line]:
        return [line for line in self.evidence.lines if line["what"] == what]

    def _own(self, what: str) -> list[Line]:
        return [line for line in self._all(what) if line["key"] == self.key]

    def _record(self) -> Mapping[str, Any]:
        ids = [line["record"] for line in self._own("started")]
        return self.evidence.records.get(ids[-1], {}) if ids else {}

    def _done(self) -> list[int]:
        """When an answer left it out of its failures, or was about to."""
        answers = [*self._all("answered"), *self._all("killed")]
        return [line["at_ms"] for line in answers if {*line["ids"], *line.get("lost", ())} & {*self.ids}]

    def _twice(self) -> int:
        done_at = min(self._done(), default=None)
        runs = [(line["at_ms"], self._over(line)) for line in self._own("started")]
        again = [at for at, _ in runs if done_at is not None and at > done_at]
        beside = [at for at, _ in runs if any(begun < at < over for begun, over in runs)]
        return len({*again, *beside})

    def _end(self, start: Line) -> float:
        """When a run ended, or its worker was killed."""
        ends = [
            line["at_ms"]
            for line in (*self._own("ended"), *self._all("killed"))
            if line["process"] == start["process"] and line["at_ms"] >= start["at_ms"]
        ]
        return min(ends, default=NEVER_MS)

    def _over(self, start: Line) -> float:
        """When a run was over at the latest: the time of its batch was up."""
        batches = [line for line in self._all("delivered") if line["process"] == start["process"]]
        times = [line.get("until_ms", NEVER_MS) for line in batches if line["at_ms"] <= start["at_ms"]]
        return min([self._end(start), *map(float, times[-1:])])

    def _overran(self) -> bool:
        """Whether a run was ended because its time was up."""
        return any(self._end(start) == NEVER_MS != self._over(start) for start in self._own("started"))

    def _verdict(self) -> Verdict:
        completed = self._record().get("status") == "COMPLETED"
        dead = bool(self.evidence.dead & {*self.ids})
        if self._twice() and self.evidence.claims:
            return Verdict.TWICE
        if dead and not completed:
            return Verdict.NEVER if self._overran() else Verdict.DEAD_LETTER  # nobody meant it to
        if self._done():
            return Verdict.ONCE
        return Verdict.UNFINISHED if self.evidence.left else Verdict.NEVER

    def _why(self, verdict: Verdict) -> str | None:
        starts, failures = self._own("started"), [line for line in self._own("ended") if line["error"] is not None]
        error = json.loads(self._record().get("error") or "{}")
        # The record has no texts but an author's own; on this machine, and of its own events, a trial may tell all.
        reason = error.get("text") or (failures[-1]["error"] if failures else error.get("type"))
        if reason is None and self._overran():
            reason = OVERRAN
        if verdict is Verdict.DEAD_LETTER:
            return str(reason or "received too often")
        if verdict is Verdict.NEVER:
            return reason and f"its handler fails: {reason}"
        if verdict is Verdict.UNFINISHED:
            return f"its handler fails: {reason}" if reason else "its handler has not come to it"
        if len(starts) > 1 and verdict is Verdict.ONCE:
            return self._why_again(failures)
        return None

    def _why_again(self, failures: Sequence[Line]) -> str:
        """Why it ran more than once."""
        if failures:
            return f"first run failed: {failures[0]['error']}"
        if self._twice():
            return "it ran more than once, without claims, and one run committed"
        return "its first worker was killed before it was recorded"
