"""The accounts of a run: what the log, the table and the queues say, held against what the tale says. Pure.

A run of the handler holds its key from its start until its lease's end, or until DynamoDB was asked for the write that
settled its claim and applied it, which the proxy has seen. Whoever starts in between breaks the promise. A worker that
was frozen and goes on after its lease's end has had its chance to die: it may still start what it had decided to, and
then it is only the fence that keeps it from doing harm. So its late start is counted, and whatever it writes is too.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from tests.chaos.log import Acknowledged, Broken, End, Fault, Freeze, Invocation, Kill, Refusal, Start, Write
from tests.chaos.tale import POSTING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.chaos.log import Line
    from tests.chaos.tale import Tale

ENOUGH_FOR_RARITIES = 1_000
"""Messages from which on everything must have happened that is up to the machine. A shorter run may miss some."""

SLACK_MS = 5
"""The handler's log and the consumer read the clock one after the other, and each drops fractions."""

Kept = TypeVar("Kept")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One side of a transfer in the ledger: how often it was written, and what it came to."""

    transfer: str
    account: str
    times: int
    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A message in the dead-letter queue, and when SQS had it."""

    name: str
    sent_ms: int


@dataclass(frozen=True, kw_only=True)
class Books:
    """All evidence of one run, and what follows from it."""

    tale: Tale
    protected: bool
    sent: Mapping[str, str]
    """The messages' ids by the parts' names."""
    records: Mapping[str, str]
    """The records' status by message id."""
    entries: Sequence[Entry]
    balances: Mapping[str, int]
    letters: Sequence[Letter]
    left: int
    """How many messages are still in the queue."""
    lines: Sequence[Line]
    gave_up: str | None = None

    # What became of the messages.

    @cached_property
    def posted(self) -> frozenset[str]:
        """The transfers that the ledger knows."""
        return frozenset(entry.transfer for entry in self.entries)

    @cached_property
    def done(self) -> frozenset[str]:
        """What counts as done: by its record; in the control, which has none, because it was acknowledged."""
        if not self.protected:
            acknowledged = {line.key for line in self._all(Acknowledged)}
            return frozenset(name for name, id in self.sent.items() if id in acknowledged)
        return frozenset(name for name, id in self.sent.items() if self.records.get(id) == "COMPLETED")

    @cached_property
    def completed(self) -> frozenset[str]:
        """What is done, and was done: a handler returned, and the ledger has what it is to have."""
        returned = {line.key for line in self._all(End) if line.ok}
        ran = {name for name in self.done if self.sent[name] in returned}
        return frozenset(name for name in ran if self.tale.kinds[name] not in POSTING or name in self.posted)

    @cached_property
    def dead_lettered(self) -> frozenset[str]:
        """What is in the dead-letter queue."""
        return frozenset(letter.name for letter in self.letters)

    @cached_property
    def _missing(self) -> frozenset[str]:
        return frozenset(self.sent) - self.completed - self.dead_lettered

    @cached_property
    def lost(self) -> int:
        """Messages that are gone from the queue, and not done, and no dead letters."""
        return max(0, len(self._missing - self.posted - self.done) - self.left)

    @cached_property
    def acknowledged_early(self) -> int:
        """Acknowledgements before the record was COMPLETED, or a dead letter with SQS."""
        if not self.protected:
            return 0
        names = {id: name for name, id in self.sent.items()}
        since: dict[str, int] = {}
        for line in self._all(Write):
            if line.move == "complete":
                since.setdefault(names.get(line.key, ""), line.at_ms)
        for letter in self.letters:
            since[letter.name] = min(letter.sent_ms, since.get(letter.name, letter.sent_ms))
        return sum(1 for line in self._all(Acknowledged) if line.at_ms < since.get(names[line.key], line.at_ms + 1))

    @cached_property
    def unaccounted(self) -> int:
        """Messages in no place, or in two: still queued, half done, completed and dead, or nobody's."""
        both = (self.posted | self.done) & self.dead_lettered
        strangers = (self.posted | self.dead_lettered) - frozenset(self.sent)
        return len(self._missing) - self.lost + len(both) + len(strangers)

    @cached_property
    def doubled(self) -> int:
        """Transfers that were posted more than once, and runs of what was known to be completed."""
        return len({entry.transfer for entry in self.entries if entry.times > 1}) + self._reruns

    @cached_property
    def _reruns(self) -> int:
        completed: dict[str, int] = {}
        for line in self._all(Write):
            if line.move == "complete":
                completed.setdefault(line.key, line.done_ms)
        runs = [start for start in self._all(Start) if start not in self.late_starts]
        return sum(1 for start in runs if start.at_ms > completed.get(start.key, start.at_ms))

    # The money.

    @cached_property
    def balanced(self) -> bool:
        """Whether every account is where the tale says and its entries say, and every transfer has two sides."""
        moved: Counter[str] = Counter()
        sides: dict[str, list[int]] = defaultdict(list)
        for entry in self.entries:
            moved[entry.account] += entry.amount
            sides[entry.transfer].append(entry.amount)
        told = {account: balance - moved[account] for account, balance in self.balances.items()}
        sided = all(len(amounts) == 2 and sum(amounts) == 0 for amounts in sides.values())
        return sided and dict(self.balances) == self.tale.closing and len(set(told.values())) == 1

    # What ran.

    @cached_property
    def frozen(self) -> frozenset[str]:
        """The workers that were frozen."""
        return frozenset(line.worker for line in self._all(Freeze))

    @cached_property
    def late_starts(self) -> frozenset[Start]:
        """Runs that a worker which had been frozen began after its own lease."""
        return frozenset(
            start for start in self._all(Start) if start.at_ms >= start.lease_until_ms and start.worker in self.frozen
        )

    @cached_property
    def overlaps(self) -> int:
        """Runs that began while another's claim was live, or without a live claim of their own."""
        count = 0
        for starts in self._starts.values():
            held_until = 0
            for start in starts:
                if start not in self.late_starts:
                    count += start.at_ms < held_until or start.at_ms >= start.lease_until_ms
                held_until = max(held_until, self._held_until_ms(start))
        return count

    @cached_property
    def taken_over(self) -> int:
        """Runs of what another worker had begun and never settled, once its lease had ended."""
        pairs = [pair for starts in self._starts.values() for pair in itertools.pairwise(starts)]
        return sum(
            1
            for before, start in pairs
            if before.worker != start.worker
            and start.at_ms >= self._held_until_ms(before) == before.lease_until_ms - SLACK_MS
        )

    @cached_property
    def fenced(self) -> Counter[str]:
        """Writes that came too late and were refused, for another worker had claimed the key: by who sent them."""
        return Counter(
            "frozen" if line.worker in self.frozen else "other"
            for line in self._all(Refusal)
            if line.move != "claim" and line.owner is not None and line.owner.partition(".")[0] != line.worker
        )

    @cached_property
    def duplicates(self) -> int:
        """Deliveries of what had been completed."""
        completed = {line.key: line.done_ms for line in self._all(Write) if line.move == "complete"}
        keys = [(key, line.at_ms) for line in self._all(Invocation) for key in line.keys]
        return sum(1 for key, at_ms in keys if completed.get(key, at_ms) < at_ms)

    @cached_property
    def kills(self) -> Counter[bool]:
        """Workers that were killed: whether because their time was over."""
        return Counter(line.overdue for line in self._all(Kill))

    @cached_property
    def injected(self) -> Counter[str]:
        """How many requests met with which fault."""
        return Counter(line.name for line in self._all(Fault))

    @cached_property
    def _starts(self) -> dict[str, list[Start]]:
        found: dict[str, list[Start]] = defaultdict(list)
        for start in self._all(Start):
            found[start.key].append(start)
        return found

    def _held_until_ms(self, start: Start) -> int:
        """When the claim of this run was over."""
        settled = [at_ms for at_ms in self._settled[start.worker, start.key] if at_ms >= start.at_ms]
        return min([start.lease_until_ms - SLACK_MS, *settled])

    @cached_property
    def _settled(self) -> dict[tuple[str, str], list[int]]:
        """When a worker's claim of a key was settled; in the control, which has none, when its handler was over."""
        found: dict[tuple[str, str], list[int]] = defaultdict(list)
        writes = [line for line in self._all(Write) if line.move != "claim"]
        for line in writes if self.protected else self._all(End):
            found[line.worker, line.key].append(line.at_ms)
        return found

    def _all(self, kind: type[Kept]) -> list[Kept]:
        return [line for line in self.lines if isinstance(line, kind)]

    # The verdict.

    @cached_property
    def complaints(self) -> list[str]:
        """What is not as promised, or did not happen; nothing, if all is well."""
        must_be_zero = {
            "lost": self.lost,
            "acknowledged early": self.acknowledged_early,
            "doubled": self.doubled,
            "overlaps": self.overlaps,
            "unaccounted": self.unaccounted,
            "broken answers": len(self._all(Broken)),
        }
        must_be_more = {
            "killed": self.kills[False],
            "frozen": len(self.frozen),
            "taken over": self.taken_over,
            "duplicates": self.duplicates,
            "answers dropped": self.injected["answer dropped"],
            "5xx": self.injected["5xx, applied"] * self.injected["5xx, not applied"],
            "statement errors": self.injected["statement in doubt, applied"]
            * self.injected["statement refused, not applied"],
        }
        if len(self.sent) >= ENOUGH_FOR_RARITIES:
            must_be_more["zombies' writes refused"] = self.fenced["frozen"]
        found = [f"{name} is {count}, not 0" for name, count in must_be_zero.items() if count]
        if self.protected:
            found += [f"{name} is 0: that was no chaos" for name, count in must_be_more.items() if count == 0]
        found += _difference("completed", self.completed, self.tale.completed)
        found += _difference("dead-lettered", self.dead_lettered, self.tale.dead_lettered)
        found += [] if self.balanced else ["the books do not balance"]
        return found if self.gave_up is None else [*found, f"gave up waiting: {self.gave_up}"]

    def line(self) -> dict[str, Any]:
        """What the last line of output says."""
        return {
            "sent": len(self.sent),
            "completed": len(self.completed),
            "dead_lettered": len(self.dead_lettered),
            "expected_completed": len(self.tale.completed),
            "expected_dead_lettered": len(self.tale.dead_lettered),
            "lost": self.lost,
            "acknowledged_early": self.acknowledged_early,
            "doubled": self.doubled,
            "overlaps": self.overlaps,
            "unaccounted": self.unaccounted,
            "balanced": self.balanced,
            "runs": len(self._all(Start)),
            "duplicates": self.duplicates,
            "taken_over": self.taken_over,
            "killed": self.kills[False],
            "timed_out": self.kills[True],
            "frozen": len(self.frozen),
            "fenced_frozen": self.fenced["frozen"],
            "fenced_other": self.fenced["other"],
            "late_starts": len(self.late_starts),
            "injected": dict(sorted(self.injected.items())),
        }


def _difference(what: str, found: frozenset[str], expected: frozenset[str]) -> list[str]:
    missing, surplus = sorted(expected - found), sorted(found - expected)
    complaints = [f"not {what}, but should be: {_some(missing)}"] if missing else []
    return complaints + ([f"{what}, but should not be: {_some(surplus)}"] if surplus else [])


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
