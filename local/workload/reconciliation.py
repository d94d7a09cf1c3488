"""Reconciliation: what a run left behind, held against what its workload says must be there. Pure.

The evidence comes from the ledger, the records table, the queues and the log of those who watched; never from an answer
or a log line of the consumer's own.

A run of the handler holds its key from its start until its lease ends, or until its claim is settled: where a proxy
watched the writes, when DynamoDB was asked for the one that it applied, else when the handler's transaction was over. A
start in between breaks the promise. A worker that was frozen beyond its lease may still start what it had decided to,
and then only the fence keeps it from doing harm: its late start is counted, and its writes must be refused.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from local.workload.evidence import Call, Delivery, End, Freeze, Start, Write
from local.workload.transfers import DEATHS, Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from local.workload.evidence import DeadLetter, Entry, Line
    from local.workload.transfers import Workload

Kept = TypeVar("Kept")


@dataclass(frozen=True, kw_only=True)
class Reconciliation:
    """All evidence of one run, and what follows from it."""

    slack_ms: ClassVar[int] = 0
    """By how much the clocks of a handler's log and of its consumer may disagree."""

    workload: Workload
    protected: bool
    sent: Mapping[str, str]
    """The messages' keys by their names: their ids; for those asked for over HTTP, the transfers' ids."""
    entries: Sequence[Entry]
    closing: Mapping[str, int]
    records: Mapping[str, Mapping[str, Any]]
    """The records by key."""
    dead_letters: Sequence[DeadLetter]
    left: int
    """How many messages are still in the queue."""
    log: Sequence[Line]
    gave_up: str | None = None
    replayed: int = 0
    """How many requests were answered as before."""
    witnessed: bool = True
    """Whether handlers were watched, and tables and queues are this run's alone. Otherwise records must do instead."""

    # What happened to the messages.

    @cached_property
    def _names(self) -> Mapping[str, str]:
        return {key: name for name, key in self.sent.items()}

    def name_of(self, key: str) -> str:
        """The message's name, by its key or by its name."""
        return self._names.get(key, key)

    @cached_property
    def posted(self) -> dict[str, list[Entry]]:
        """The entries by transfer."""
        return _grouped((self.name_of(entry.transfer), entry) for entry in self.entries)

    @cached_property
    def done(self) -> frozenset[str]:
        """What counts as done: by its record; in the control, which has none, because it is posted."""
        if not self.protected:
            return frozenset(self.posted) & frozenset(self.sent)
        completed = {key for key, record in self.records.items() if record.get("status") == "COMPLETED"}
        return frozenset(name for name, key in self.sent.items() if key in completed)

    @cached_property
    def completed(self) -> frozenset[str]:
        """What is done, and for which the ledger has what it must have."""
        return frozenset(name for name in self.done if name in self.posted or not self._posts(name))

    def _posts(self, name: str) -> bool:
        return self.workload.by_name[name].kind is not Kind.NOTED

    @cached_property
    def _died(self) -> dict[str, list[DeadLetter]]:
        known = [each for each in self.dead_letters if each.message_id in self._names]
        return _grouped((self._names[each.message_id], each) for each in known)

    @cached_property
    def dead_lettered(self) -> frozenset[str]:
        """The messages that are in the dead-letter queue."""
        return frozenset(self._died)

    @cached_property
    def surplus_dead_letters(self) -> int:
        """Second dead letters of one message: its worker died after sending the first, and before it recorded that."""
        return sum(len(each) - 1 for each in self._died.values())

    @cached_property
    def _missing(self) -> frozenset[str]:
        return frozenset(self.sent) - self.completed - self.dead_lettered

    @cached_property
    def lost(self) -> int:
        """Messages that are gone from the queue with nothing done and no dead letter."""
        return max(0, len(self._missing - frozenset(self.posted) - self.done) - self.left)

    @cached_property
    def unaccounted(self) -> int:
        """Messages in no place, or in two: still queued, half done, completed and dead, or never sent."""
        both = (frozenset(self.posted) | self.done) & self.dead_lettered
        strangers = frozenset(self.posted) - frozenset(self.sent)
        if self.witnessed:
            strangers |= {each.message_id for each in self.dead_letters} - frozenset(self._names)
        return len(self._missing) - self.lost + len(both) + len(strangers)

    @cached_property
    def reasons(self) -> list[tuple[int, str, str]]:
        """How many messages of which kind died for which reason, names and amounts left out; the most first."""
        counts = Counter(
            (str(self.workload.by_name[name].kind), _in_general(each.reason or self._recorded(each.message_id)))
            for name, (*_, each) in sorted(self._died.items())
        )
        return [(count, kind, reason) for (kind, reason), count in counts.most_common()]

    def _recorded(self, key: str) -> str:
        """Why a message died that SQS itself has moved, as far as its record says."""
        error = json.loads(self.records.get(key, {}).get("error", "{}"))
        return str(error.get("text", "received too often"))

    # What ran.

    def all(self, kind: type[Kept]) -> list[Kept]:
        """The lines of one kind, in order."""
        return [line for line in self.log if isinstance(line, kind)]

    @cached_property
    def starts(self) -> dict[str, list[Start]]:
        """The handlers' starts, in order, by message."""
        return _grouped((self.name_of(start.name), start) for start in self.all(Start))

    @cached_property
    def late_starts(self) -> frozenset[Start]:
        """Runs that a worker which had been frozen began after its own lease."""
        frozen = {line.worker for line in self.all(Freeze)}
        return frozenset(s for s in self.all(Start) if s.at_ms >= s.lease_until_ms and s.worker in frozen)

    @cached_property
    def _settled(self) -> dict[tuple[str, str], list[int]]:
        """When a worker's claim of a message was settled."""
        writes = self.all(Write) if self.protected else []
        settled = [line for line in writes if line.move != "claim"] if writes else self.all(End)
        return _grouped(((line.worker, line.name), line.at_ms) for line in settled)

    def _held_until_ms(self, start: Start) -> int:
        settled = [at_ms for at_ms in self._settled.get((start.worker, start.name), []) if at_ms >= start.at_ms]
        return min([start.lease_until_ms - self.slack_ms, *settled])

    @cached_property
    def overlaps(self) -> int:
        """Runs that began while another's claim was live, or without a live claim of their own."""
        if not self.witnessed:
            return self._attempted_again(at_once=True)
        count = 0
        for starts in self.starts.values():
            held_until = 0
            for start in starts:
                if start not in self.late_starts:
                    count += start.at_ms < held_until or start.at_ms >= start.lease_until_ms
                held_until = max(held_until, self._held_until_ms(start))
        return count

    @cached_property
    def taken_over(self) -> int:
        """Runs of what another worker had begun and never settled, once its lease had ended."""
        return sum(
            before.worker != start.worker
            and start.at_ms >= self._held_until_ms(before) == before.lease_until_ms - self.slack_ms
            for before, start in self._pairs()
        )

    @cached_property
    def retried(self) -> int:
        """Runs that began after one that had failed."""
        failed = {(end.worker, end.name) for end in self.all(End) if not end.ok}
        return sum((before.worker, before.name) in failed for before, _ in self._pairs())

    def _pairs(self) -> Iterator[tuple[Start, Start]]:
        for starts in self.starts.values():
            yield from itertools.pairwise(starts)

    @cached_property
    def _completed_ms(self) -> dict[str, int]:
        """When DynamoDB had completed a message's record, where a proxy watched."""
        found: dict[str, int] = {}
        for line in self.all(Write):
            if line.move == "complete":
                found.setdefault(self.name_of(line.name), line.done_ms)
        return found

    @cached_property
    def duplicates(self) -> int:
        """Deliveries of what was done already, after which no handler started."""
        return sum(self._done_by(line) and not self._started_by(line) for line in self.all(Delivery))

    def _done_by(self, line: Delivery) -> bool:
        return line.done or self._completed_ms.get(self.name_of(line.name or ""), line.at_ms) < line.at_ms

    def _started_by(self, line: Delivery) -> bool:
        return any(start.worker == line.worker and start.at_ms >= line.at_ms for start in self._starts_of(line))

    @cached_property
    def found_in_progress(self) -> int:
        """Deliveries of what another worker was busy with, after which no handler started."""
        return sum(
            any(start.at_ms <= line.at_ms < self._held_until_ms(start) for start in self._starts_of(line))
            and not self._started_by(line)
            for line in self.all(Delivery)
        )

    def _starts_of(self, line: Delivery) -> Sequence[Start]:
        return self.starts.get(self.name_of(line.name or ""), ())

    @cached_property
    def doubled(self) -> int:
        """Outside calls and runs for what was done already, and transfers that were posted more than once."""
        calls = sum(call.done for call in self.all(Call))
        runs = [start for start in self.all(Start) if start not in self.late_starts]
        reruns = sum(s.at_ms > self._completed_ms.get(self.name_of(s.name), s.at_ms) for s in runs)
        attempts = 0 if self.witnessed else self._attempted_again(at_once=False)
        posted = sum(len(entries) > 2 or max(e.times for e in entries) > 1 for entries in self.posted.values())
        return calls + reruns + attempts + posted

    def _attempted_again(self, *, at_once: bool) -> int:
        """By the records of what completed: attempts beyond the first, in a workload whose first attempts succeed."""
        names = [n for n in self.completed if (self.workload.by_name[n].kind is Kind.AT_ONCE) == at_once]
        return sum(int(self.records[self.sent[name]].get("attempts", 1)) - 1 for name in names)

    # The money.

    @cached_property
    def balanced(self) -> bool:
        """Whether no money came or went, transfers have two sides, and accounts agree with their entries."""
        return self.agreed and all(self._sided(name, entries) for name, entries in self.posted.items())

    @cached_property
    def agreed(self) -> bool:
        """Whether every account is where its entries say, and no money came or went."""
        moved: Counter[str] = Counter()
        for entry in self.entries:
            moved[entry.account] += entry.amount
        agree = all(self.closing.get(account) == was + moved[account] for account, was in self.workload.opening.items())
        return agree and sum(self.closing.values()) == sum(self.workload.opening.values())

    def _sided(self, name: str, entries: Sequence[Entry]) -> bool:
        """Whether these are both sides of a transfer, each written once; of one that was sent, as it was sent."""
        sides = sorted((entry.amount, entry.account) for entry in entries)
        sent = self.workload.by_name.get(name)
        once = len(sides) == 2 and all(entry.times == 1 for entry in entries)
        if sent is not None:
            return once and sides == [(-sent.amount, sent.payer), (sent.amount, sent.payee)]
        return once and sum(amount for amount, _ in sides) == 0

    # The verdict.

    @property
    def must_be_zero(self) -> dict[str, int]:
        """What must not happen."""
        return {
            "unaccounted": self.unaccounted,
            "overlaps": self.overlaps,
            "lost": self.lost,
            "doubled": self.doubled,
        }

    @property
    def must_happen(self) -> dict[str, int]:
        """What a run must have met with, or it proves nothing."""
        dying = any(message.kind in DEATHS for message in self.workload.messages)
        return {"duplicates": self.duplicates} | ({"taken_over": self.taken_over} if dying else {})

    @cached_property
    def complaints(self) -> list[str]:
        """What is not as promised, or did not happen; nothing, if all is well."""
        found = [f"{name} is {count}, not 0" for name, count in self.must_be_zero.items() if count]
        found += [f"{name} is 0: it did not happen" for name, count in self.must_happen.items() if not count]
        found += _difference("completed", self.completed, self.workload.completed)
        found += _difference("dead-lettered", self.dead_lettered, self.workload.dead_lettered)
        found += [] if self.balanced else ["the books do not balance"]
        return found if self.gave_up is None else [*found, f"gave up waiting: {self.gave_up}"]

    def line(self) -> dict[str, Any]:
        """What the last line of output says."""
        return {
            "sent": len(self.sent),
            "completed": len(self.completed),
            "dead_lettered": len(self.dead_lettered),
            "duplicates": self.duplicates,
            "taken_over": self.taken_over,
            "expected_completed": len(self.workload.completed),
            "expected_dead_lettered": len(self.workload.dead_lettered),
            "unaccounted": self.unaccounted,
            "overlaps": self.overlaps,
            "lost": self.lost,
            "doubled": self.doubled,
            "balanced": self.balanced,
        }


Key = TypeVar("Key")


def _grouped(pairs: Iterable[tuple[Key, Kept]]) -> dict[Key, list[Kept]]:
    found: dict[Key, list[Kept]] = defaultdict(list)
    for key, value in pairs:
        found[key].append(value)
    return dict(found)


def _in_general(reason: str) -> str:
    """A reason without what differs from message to message."""
    return re.sub(r"\S*\d\S*", "…", reason)


def _difference(what: str, found: frozenset[str], expected: frozenset[str]) -> list[str]:
    """A complaint for each side of a difference."""
    sides = {f"not {what}, but should be": expected - found, f"{what}, but should not be": found - expected}
    return [f"{which}: {_some(sorted(names))}" for which, names in sides.items() if names]


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
