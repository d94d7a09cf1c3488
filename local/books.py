"""The accounts of a run: what was found, held against what the story says must be found. Pure.

What was found comes from the ledger, the records table, the queues, and the stand-in's log; never from an answer or a
log line of the worker's.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from local.standin import Call, Delivery, End, Start
from local.story import KILLS, Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from local.standin import Line
    from local.story import Story


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A line in the ledger."""

    transfer: str
    account: str
    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A message in the dead-letter queue: the id that it was sent under, and why it is there, if it says so itself."""

    message_id: str
    reason: str | None
    receipt_handle: str = ""


@dataclass(frozen=True, kw_only=True)
class Books:
    """All evidence of one run, and what follows from it."""

    story: Story
    protected: bool
    sent: Mapping[str, str]
    """The messages' keys by the parts' names: their ids, and of what was asked for over HTTP the transfers' ids."""
    entries: Sequence[Entry]
    closing: Mapping[str, int]
    records: Mapping[str, Mapping[str, Any]]
    """The records by message id."""
    dead_letters: Sequence[DeadLetter]
    left: int
    """How many messages are still in the queue."""
    log: Sequence[Line]
    replayed: int = 0
    """How many requests were answered as before."""
    witnessed: bool = True
    """Whether the stand-in saw the handlers; on a stack that is not ours, records must do instead."""

    # What became of the messages.

    @cached_property
    def posted(self) -> dict[str, list[Entry]]:
        """The entries by transfer."""
        found: dict[str, list[Entry]] = defaultdict(list)
        for entry in self.entries:
            found[entry.transfer].append(entry)
        return dict(found)

    @cached_property
    def done(self) -> frozenset[str]:
        """The transfers whose records say COMPLETED."""
        return frozenset(
            name for name, id in self.sent.items() if self.records.get(id, {}).get("status") == "COMPLETED"
        )

    @cached_property
    def completed(self) -> frozenset[str]:
        """The transfers that are posted, and whose records know it."""
        posted = frozenset(self.posted) & frozenset(self.sent)
        return posted & self.done if self.protected else posted

    @cached_property
    def dead_lettered(self) -> frozenset[str]:
        """The parts whose messages are in the dead-letter queue."""
        names = {id: name for name, id in self.sent.items()}
        return frozenset(names[letter.message_id] for letter in self.dead_letters if letter.message_id in names)

    @cached_property
    def surplus_letters(self) -> int:
        """Second dead letters of one message: its worker died after sending the first, and before saying so."""
        ours = [letter for letter in self.dead_letters if letter.message_id in set(self.sent.values())]
        return len(ours) - len(self.dead_lettered)

    @cached_property
    def _missing(self) -> frozenset[str]:
        return frozenset(self.sent) - self.completed - self.dead_lettered

    @cached_property
    def lost(self) -> int:
        """Messages that are gone from the queue with nothing done and no dead letter."""
        without_trace = self._missing - frozenset(self.posted) - self.done
        return max(0, len(without_trace) - self.left)

    @cached_property
    def unaccounted(self) -> int:
        """Messages in no place, or in two: still queued, half done, completed and dead, or nobody's."""
        both = (frozenset(self.posted) | self.done) & self.dead_lettered
        strangers = frozenset(self.posted) - frozenset(self.sent)
        return len(self._missing) - self.lost + len(both) + len(strangers)

    @cached_property
    def reasons(self) -> list[tuple[int, str, str]]:
        """How many messages of which kind died for which reason, names and amounts left out; the most first."""
        names = {id: name for name, id in self.sent.items()}
        letters = [letter for letter in self.dead_letters if letter.message_id in names]
        died = {names[letter.message_id]: letter.reason or self._recorded(letter.message_id) for letter in letters}
        kinds = self.story.kinds
        counts = Counter((str(kinds[name]), _in_general(reason)) for name, reason in sorted(died.items()))
        return [(count, kind, reason) for (kind, reason), count in counts.most_common()]

    def _recorded(self, message_id: str) -> str:
        """Why a message died that SQS itself has moved, as far as its record says."""
        error = json.loads(self.records.get(message_id, {}).get("error", "{}"))
        return str(error.get("text", "received too often"))

    # What ran.

    @cached_property
    def starts(self) -> dict[str, list[Start]]:
        """The handlers' starts, in order, by transfer."""
        found: dict[str, list[Start]] = defaultdict(list)
        for line in self.log:
            if isinstance(line, Start):
                found[line.name].append(line)
        return dict(found)

    @cached_property
    def ends(self) -> dict[tuple[str, str], End]:
        """The handlers' ends, by invocation and transfer."""
        return {(line.invocation, line.name): line for line in self.log if isinstance(line, End)}

    def _held_until_ms(self, start: Start) -> int:
        end = self.ends.get((start.invocation, start.name))
        return start.lease_until_ms if end is None else end.at_ms

    @cached_property
    def duplicates(self) -> int:
        """Deliveries of what was done already, after which no handler started."""
        ran = {(start.invocation, start.name) for starts in self.starts.values() for start in starts}
        return sum(
            1
            for line in self.log
            if isinstance(line, Delivery) and line.done and (line.invocation, line.name) not in ran
        )

    @cached_property
    def found_in_progress(self) -> int:
        """Deliveries of what another worker was busy with, after which no handler started."""
        return sum(1 for line in self.log if isinstance(line, Delivery) and self._turned_away(line))

    def _turned_away(self, line: Delivery) -> bool:
        starts = self.starts.get(line.name or "", [])
        busy = any(start.at_ms <= line.at_ms < self._held_until_ms(start) for start in starts)
        return busy and not any(start.invocation == line.invocation for start in starts)

    @cached_property
    def taken_over(self) -> int:
        """Handlers started for a worker that had started, was never heard of again, and whose lease had ended."""
        return self._following(lambda before, start: (before.invocation, before.name) not in self.ends)

    @cached_property
    def retried(self) -> int:
        """Handlers started after one that had failed."""
        return self._following(lambda before, start: not self._well(before))

    def _well(self, start: Start) -> bool:
        end = self.ends.get((start.invocation, start.name))
        return end is None or end.ok

    def _following(self, applies: Any) -> int:
        pairs = ((starts[i - 1], starts[i]) for starts in self.starts.values() for i in range(1, len(starts)))
        return sum(
            1 for before, start in pairs if start.at_ms >= self._held_until_ms(before) and applies(before, start)
        )

    @cached_property
    def overlaps(self) -> int:
        """Handlers that started inside the live lease of another for the same transfer."""
        if not self.witnessed:
            return self._attempted_again(at_once=True)
        return sum(
            1
            for starts in self.starts.values()
            for i, start in enumerate(starts)
            if any(start.at_ms < self._held_until_ms(before) for before in starts[:i])
        )

    @cached_property
    def calls(self) -> int:
        """How often the outside service was called."""
        return sum(1 for line in self.log if isinstance(line, Call))

    @cached_property
    def doubled(self) -> int:
        """Outside calls for what was done already, and transfers with more entries than two."""
        again = sum(1 for line in self.log if isinstance(line, Call) and line.done)
        again += 0 if self.witnessed else self._attempted_again(at_once=False)
        return again + sum(1 for entries in self.posted.values() if len(entries) > 2)

    def _attempted_again(self, *, at_once: bool) -> int:
        """By the records of what completed: attempts beyond the first, in a story in which no first attempt fails."""
        kinds = self.story.kinds
        names = [name for name in self.completed if (kinds[name] is Kind.AT_ONCE) == at_once]
        return sum(int(self.records[self.sent[name]].get("attempts", 1)) - 1 for name in names)

    # The money.

    @cached_property
    def balanced(self) -> bool:
        """Whether no money came or went, every transfer has two sides, and every account agrees with its entries."""
        moved: Counter[str] = Counter()
        for entry in self.entries:
            moved[entry.account] += entry.amount
        agree = all(self.closing.get(account) == was + moved[account] for account, was in self.story.opening.items())
        sided = all(
            len(entries) == 2 and sum(entry.amount for entry in entries) == 0 for entries in self.posted.values()
        )
        return agree and sided and sum(self.closing.values()) == sum(self.story.opening.values())

    # The verdict.

    @cached_property
    def complaints(self) -> list[str]:
        """What is not as promised; nothing, if all is well."""
        must_be_zero = {
            "unaccounted": self.unaccounted,
            "overlaps": self.overlaps,
            "lost": self.lost,
            "doubled": self.doubled,
        }
        kills = any(kind in KILLS for kind in self.story.kinds.values())
        must_be_more = {"duplicates": self.duplicates} | ({"taken_over": self.taken_over} if kills else {})
        found = [f"{name} is {count}, not 0" for name, count in must_be_zero.items() if count != 0]
        found += [f"{name} is 0: the story did not happen" for name, count in must_be_more.items() if count == 0]
        found += _difference("completed", self.completed, self.story.completed)
        found += _difference("dead-lettered", self.dead_lettered, self.story.dead_lettered)
        return found if self.balanced else [*found, "the books do not balance"]

    def line(self) -> dict[str, int | bool]:
        """What the last line of output says."""
        return {
            "sent": len(self.sent),
            "completed": len(self.completed),
            "dead_lettered": len(self.dead_lettered),
            "duplicates": self.duplicates,
            "taken_over": self.taken_over,
            "expected_completed": len(self.story.completed),
            "expected_dead_lettered": len(self.story.dead_lettered),
            "unaccounted": self.unaccounted,
            "overlaps": self.overlaps,
            "lost": self.lost,
            "doubled": self.doubled,
            "balanced": self.balanced,
        }


def _in_general(reason: str) -> str:
    """A reason without what differs from message to message."""
    return re.sub(r"\S*\d\S*", "…", reason)


def _difference(what: str, found: frozenset[str], expected: frozenset[str]) -> list[str]:
    missing, surplus = sorted(expected - found), sorted(found - expected)
    complaints = [f"not {what}, but should be: {_some(missing)}"] if missing else []
    return complaints + ([f"{what}, but should not be: {_some(surplus)}"] if surplus else [])


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
