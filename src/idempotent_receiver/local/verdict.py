"""Judges how each message in a run ended, from its record, its handler's runs, and its effects. Pure."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from functools import cached_property
from typing import Any

from idempotent_receiver.local.effects import Changes, ContentByTable, Difference, ItemPlace, Reference, added

WitnessLine = Mapping[str, Any]
"""One of the witness's notes."""


class EffectVerdict(StrEnum):
    """How a message ended, from best to worst."""

    ONCE = "once"
    DEAD_LETTER = "dead letter"
    UNSEEN = "ran twice, effects unseen"
    UNFINISHED = "not done yet"
    UNRECORDED = "NOT RECORDED"
    TWICE = "TWICE"
    NEVER = "NEVER"


NEVER_MS = float("inf")
OVERRAN = "it takes longer than the function's timeout, which is at most 10 s here"
WITHOUT_PARTIAL = (
    "it was not completed, but Lambda deleted it with its batch: the event source mapping lacks "
    "FunctionResponseTypes: [ReportBatchItemFailures]"
)
UNRECORDED = "Lambda deleted it before its record was COMPLETED, so a duplicate would run again"
NOT_NAMED = "it was not completed, but the handler's response did not report it as failed, so Lambda deleted it"
FINE = frozenset({EffectVerdict.ONCE, EffectVerdict.DEAD_LETTER})


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What a run left behind. Messages are identified by messageId, records by record id."""

    sent: Mapping[str, str]
    """The name of each message, by messageId."""
    lines: Sequence[WitnessLine]
    records: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    dead: frozenset[str] = frozenset()
    """The ids of the messages in the dead-letter queue."""
    left: int = 0
    """The number of messages still in the queue."""
    partial: bool = True
    """Whether the mapping uses partial batch responses."""
    tables: ContentByTable = field(default_factory=dict)
    """The stack's content, except the records table: see content.py."""
    reference: Reference | None = None
    """The tables' content after fault-free runs."""

    @property
    def claims(self) -> bool:
        """Whether only one worker at a time handles a message. Without claims, two may, but only one commits."""
        return all(line.get("claims", True) for line in self.lines if line["what"] == "consumer")

    @cached_property
    def recorded(self) -> bool:
        """Whether records can be read: the handler uses this library's consumer with a table."""
        notes = [line for line in self.lines if line["what"] == "consumer"]
        return any(line.get("table") or line.get("database") for line in notes)

    @cached_property
    def differences(self) -> Sequence[Difference]:
        """The differences between the tables and the reference."""
        return [] if self.reference is None else self.reference.differences(self.tables)


@dataclass(frozen=True, kw_only=True)
class Ended:
    """One message and its duplicates, which share its key."""

    name: str
    key: str
    sent: int
    deliveries: int
    runs: int
    twice: int
    """Runs that began after the message was done, or while another run was in progress."""
    record: str | None
    tables: EffectVerdict | None
    """The verdict from what the stack holds, if the message leaves anything comparable there: once, TWICE or NEVER."""
    verdict: EffectVerdict
    why: str | None = None
    differs: tuple[str, ...] = ()
    """The differences that this message caused."""


def judged(evidence: Evidence) -> list[Ended]:
    """How each message ended, in the order sent."""
    messages = [_Message(evidence, key, ids) for key, ids in _by_key(evidence).items()]
    blamed: dict[str, list[tuple[Difference, EffectVerdict]]] = {}
    for difference in evidence.differences:
        for message, verdict in _blamed(difference, messages):
            blamed.setdefault(message.key, []).append((difference, verdict))
    return [message.ended(blamed.get(message.key, [])) for message in messages]


def unexplained(evidence: Evidence) -> list[Difference]:
    """Differences at places that no message in the run writes to in fault-free runs."""
    messages = [_Message(evidence, key, ids) for key, ids in _by_key(evidence).items()]
    return [each for each in evidence.differences if not _blamed(each, messages)]


def worst(runs: Iterable[Iterable[Ended]]) -> list[Ended]:
    """Each message's worst result: from the first run that shows it, or from the last run if all went well."""
    order, found = list(EffectVerdict), dict[str, Ended]()
    for each in (message for messages in runs for message in messages):
        before = found.setdefault(each.name, each)
        if (
            order.index(each.verdict) > order.index(before.verdict)
            or each.verdict is before.verdict is EffectVerdict.ONCE
        ):
            found[each.name] = each
    return list(found.values())


def _blamed(difference: Difference, messages: Sequence["_Message"]) -> list[tuple["_Message", EffectVerdict]]:
    """The messages that may have caused a difference, and how: of all that write to its place, those with the strongest
    evidence against them.
    """
    writers = [each for each in messages if difference.place in each.changes]
    able = [(each, each.blamed(difference)) for each in writers if each.share(difference)] or [
        (each, each.blamed(difference)) for each in writers
    ]
    likely = [
        (each, how) for each, how in able if (each.ran_again if how is EffectVerdict.TWICE else not each.finished)
    ]
    size = abs(added(difference.expected, difference.found))
    return [pair for pair in likely if abs(pair[0].share(difference)) == size] or likely or able


def _by_key(evidence: Evidence) -> dict[str, list[str]]:
    keys = {line["id"]: line["key"] for line in evidence.lines if line["what"] == "keyed"}
    found: dict[str, list[str]] = {}
    for id in evidence.sent:
        found.setdefault(keys.get(id, id), []).append(id)
    return found


def kills(lines: Iterable[WitnessLine]) -> list[str]:
    """The points at which workers were killed."""
    return [line["place"] for line in lines if line["what"] == "killed"]


@dataclass(frozen=True)
class _Message:
    evidence: Evidence
    key: str
    ids: Sequence[str]

    def ended(self, blamed: Sequence[tuple[Difference, EffectVerdict]]) -> Ended:
        record, tables = self._record(), self._tables([how for _, how in blamed])
        verdict = self._verdict(tables)
        return Ended(
            name=self.evidence.sent[self.ids[0]],
            key=self.key,
            sent=len(self.ids),
            deliveries=sum(id in line["ids"] for line in self._all("delivered") for id in self.ids),
            runs=len(self.own("started")),
            twice=self._twice(),
            record=record.get("status"),
            tables=tables,
            verdict=verdict,
            why=self._why(verdict),
            differs=tuple(str(each) for each, _ in blamed),
        )

    # Effects on the tables.

    @cached_property
    def changes(self) -> Changes:
        """The message's changes in fault-free runs."""
        reference, found = self.evidence.reference, dict[ItemPlace, Mapping[str, Decimal]]()
        for id in self.ids:
            found.update({} if reference is None else reference.changes.get(self.evidence.sent[id], {}))
        return found

    def share(self, difference: Difference) -> Decimal:
        """The amount that the message adds in fault-free runs to the value that differs."""
        return self.changes[difference.place].get(difference.path, Decimal(0))

    def blamed(self, difference: Difference) -> EffectVerdict:
        """How the message ended if it caused this difference: done more than once, or not at all."""
        more, number = added(difference.expected, difference.found), (Decimal, type(None))
        if isinstance(difference.expected, number) and isinstance(difference.found, number) and self.share(difference):
            return EffectVerdict.TWICE if more * self.share(difference) > 0 else EffectVerdict.NEVER
        return EffectVerdict.TWICE if self.finished else EffectVerdict.NEVER

    def _tables(self, blamed: Sequence[EffectVerdict]) -> EffectVerdict | None:
        if not self.changes:
            return None
        return max(blamed, key=list(EffectVerdict).index, default=EffectVerdict.ONCE)

    # The witness's notes on the message.

    def _all(self, what: str) -> list[WitnessLine]:
        return [line for line in self.evidence.lines if line["what"] == what]

    def own(self, what: str) -> list[WitnessLine]:
        """The notes about the message's runs."""
        return [line for line in self._all(what) if line["key"] == self.key]

    def _record(self) -> Mapping[str, Any]:
        ids = [line["record"] for line in (*self.own("spoiled"), *self.own("started"))]
        return self.evidence.records.get(ids[-1], {}) if ids else {}

    @property
    def ran_again(self) -> bool:
        """Whether the handler ran more than once."""
        return len(self.own("started")) > 1

    @property
    def finished(self) -> bool:
        """Whether the message is done, according to its record or, if records cannot be read, to a finished run."""
        return self._record().get("status") == "COMPLETED" if self.evidence.recorded else bool(self._done())

    def _succeeded(self) -> list[WitnessLine]:
        return [line for line in self.own("ended") if line["error"] is None]

    def _acknowledged(self) -> list[WitnessLine]:
        """The responses that did not report the message as failed, even if they did not reach Lambda."""
        answers = [*self._all("answered"), *self._all("killed")]
        return [line for line in answers if {*line["ids"], *line.get("lost", ())} & {*self.ids}]

    def _done(self) -> list[int]:
        """The times at which a process that had run the message successfully acknowledged it, or was about to."""
        runs = [(line["process"], line["at_ms"]) for line in self._succeeded()]
        return [
            line["at_ms"]
            for line in self._acknowledged()
            if any(process == line["process"] and at <= line["at_ms"] for process, at in runs)
        ]

    def _twice(self) -> int:
        done_at = min(self._done(), default=None)
        runs = [(line["at_ms"], self._over(line)) for line in self.own("started")]
        again = [at for at, _ in runs if done_at is not None and at > done_at]
        beside = [at for at, _ in runs if any(begun < at < over for begun, over in runs)]
        return len({*again, *beside})

    def _end(self, start: WitnessLine) -> float:
        """The time at which a run ended, or its worker was killed."""
        ends = [
            line["at_ms"]
            for line in (*self.own("ended"), *self._all("killed"))
            if line["process"] == start["process"] and line["at_ms"] >= start["at_ms"]
        ]
        return min(ends, default=NEVER_MS)

    def _over(self, start: WitnessLine) -> float:
        """The time at which a run was certainly over, because it had ended or its batch's time was up."""
        batches = [line for line in self._all("delivered") if line["process"] == start["process"]]
        times = [line.get("until_ms", NEVER_MS) for line in batches if line["at_ms"] <= start["at_ms"]]
        return min([self._end(start), *map(float, times[-1:])])

    def _overran(self) -> bool:
        """Whether a run was stopped because its time was up."""
        return any(self._end(start) == NEVER_MS != self._over(start) for start in self.own("started"))

    # The verdict.

    def _verdict(self, tables: EffectVerdict | None) -> EffectVerdict:
        judged_by_runs = self.evidence.claims and (self.evidence.recorded or tables is None)
        if tables is EffectVerdict.TWICE or (self._twice() and judged_by_runs):
            return EffectVerdict.TWICE
        if self.finished:
            # Until there is something to compare with, the runs say nothing about effects.
            unseen = self.ran_again and self.evidence.reference is not None
            return tables or (EffectVerdict.UNSEEN if unseen else EffectVerdict.ONCE)
        if self.evidence.dead & {*self.ids}:
            return EffectVerdict.NEVER if self._overran() else EffectVerdict.DEAD_LETTER  # not an intended dead letter
        if not self._acknowledged():
            return EffectVerdict.UNFINISHED if self.evidence.left else EffectVerdict.NEVER
        return (
            EffectVerdict.UNRECORDED if self._succeeded() and tables is not EffectVerdict.NEVER else EffectVerdict.NEVER
        )

    def _why(self, verdict: EffectVerdict) -> str | None:
        failures = [line for line in self.own("ended") if line["error"] is not None]
        error = json.loads(self._record().get("error") or "{}")
        # A record holds an error's text only if it may be disclosed; with local sample events, any text may be shown.
        reason = error.get("text") or (failures[-1]["error"] if failures else error.get("type"))
        if reason is None and self._overran():
            reason = OVERRAN
        if verdict is EffectVerdict.DEAD_LETTER:
            return str(reason or "exceeded maxReceiveCount")
        if verdict is EffectVerdict.UNRECORDED:
            return UNRECORDED
        if verdict is EffectVerdict.NEVER and self._acknowledged() and not self.finished:
            return NOT_NAMED if self.evidence.partial else WITHOUT_PARTIAL
        if verdict is EffectVerdict.NEVER:
            return reason and f"its handler fails: {reason}"
        if verdict is EffectVerdict.UNFINISHED:
            return f"its handler fails: {reason}" if reason else "its handler has not run"
        if self.ran_again and verdict in (EffectVerdict.ONCE, EffectVerdict.UNSEEN):
            return self._why_again(failures)
        return None

    def _why_again(self, failures: Sequence[WitnessLine]) -> str:
        """Why the message ran more than once."""
        if failures:
            return f"first run failed: {failures[0]['error']}"
        if self._twice():
            return "it ran more than once but took effect once"
        return "its first worker was killed before recording the result"
