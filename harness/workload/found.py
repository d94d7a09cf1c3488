"""The evidence of a run: what it left behind and what was seen of it. It judges nothing."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from harness.workload.evidence import Stamped
from harness.workload.runs import Runs, grouped
from harness.workload.transfers import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.workload.evidence import DeadLetter, Entry, Line
    from harness.workload.transfers import Workload


@dataclass(frozen=True, kw_only=True)
class Found:
    """All evidence of one run."""

    slack_ms: ClassVar[int] = 0
    """How far the clocks of a handler's log and of its consumer may differ."""

    workload: Workload
    protected: bool
    sent: Mapping[str, str]
    """The messages' keys by name: their ids, or for those requested over HTTP, the transfers' ids."""
    entries: Sequence[Entry]
    closing: Mapping[str, int]
    records: Mapping[str, Mapping[str, Any]]
    """The records by key."""
    dead_letters: Sequence[DeadLetter]
    left: int
    """The number of messages still in the queue."""
    log: Sequence[Line]
    receipt_counts: Mapping[str, int] | None = None
    """How often the next consumer counted each transfer's receipt; None if transfers send none."""
    gave_up: str | None = None
    replayed: int = 0
    """The number of requests that were answered as before."""
    without_claims: bool = False
    witnessed: bool = True
    """Whether handlers were watched, and tables and queues belong to this run alone. Otherwise records must suffice."""
    disturbed: bool = False
    """Whether workers may have died unobserved, so that a second attempt proves nothing."""

    @cached_property
    def names(self) -> Mapping[str, str]:
        """The messages' names by key, and by the ids under which they were redriven."""
        names = {key: name for name, key in self.sent.items()}
        return names | {id: names[line.key] for id, line in self.redriven.items() if line.key in names}

    @cached_property
    def redriven(self) -> Mapping[str, Stamped]:
        """Messages that came back from the dead-letter queue, by new id, where a proxy watched."""
        sent = [line for line in self.log if isinstance(line, Stamped) and line.reason is None]
        return {line.name: line for line in reversed(sent)}

    @cached_property
    def posted(self) -> dict[str, list[Entry]]:
        return grouped((self.runs.name_of(entry.transfer), entry) for entry in self.entries)

    def posts(self, name: str) -> bool:
        return self.workload.by_name[name].kind is not Kind.NOTED

    @cached_property
    def runs(self) -> Runs:
        return Runs(log=self.log, names=self.names, protected=self.protected, slack_ms=self.slack_ms)
