"""What must be true after chaos, beside what must be true after every run; and that the faults did happen."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from typing import Any, ClassVar

from harness.workload.evidence import Acknowledged, Broken, Delivery, End, Fault, Freeze, Kill, Refusal, Reply, Start
from harness.workload.reconciliation import Reconciliation
from harness.workload.runs import grouped
from tests.chaos.settings import Cast

ENOUGH_FOR_RARITIES = 1_000
"""From this many messages on, what depends on the machine must have happened too. A shorter run may miss some."""


@dataclass(frozen=True, kw_only=True)
class ChaosReconciliation(Reconciliation):
    """All evidence of a run of chaos. Its log names messages by their keys."""

    slack_ms: ClassVar[int] = 5
    """The handler's log and the consumer read the clock one after the other, and each drops fractions."""

    cast: Cast = Cast.STANDARD
    swept: Counter[str] = field(default_factory=Counter)
    """What sweeps have done, or found."""
    requests: Counter[str] = field(default_factory=Counter)
    """How many requests workers have sent, by their operations."""
    shared: Counter[int] = field(default_factory=Counter)
    """How many transactions of so many messages they have sent."""

    @property
    def requests_a_message(self) -> float:
        return self.requests.total() / max(1, len(self.sent))

    @cached_property
    def done(self) -> frozenset[str]:
        """What counts as done: by its record; in the control, which has none, because it was acknowledged."""
        if self.protected:
            return super().done
        return frozenset(self.runs.name_of(line.name) for line in self.runs.all(Acknowledged)) & frozenset(self.sent)

    @cached_property
    def completed(self) -> frozenset[str]:
        """What is done, and for which a handler returned, and the ledger has what it must have."""
        if self.cast is Cast.WORKFLOW:
            return super().completed
        returned = {self.runs.name_of(line.name) for line in self.runs.all(End) if line.ok}
        return super().completed & returned

    @cached_property
    def acknowledged_early(self) -> int:
        """Acknowledgements before the effect, or a dead letter with SQS."""
        return self._found("EARLY") if self.protected else 0

    @cached_property
    def frozen(self) -> frozenset[str]:
        return frozenset(line.worker for line in self.runs.all(Freeze))

    @cached_property
    def fenced(self) -> Counter[str]:
        """Writes that came too late and were refused, because another worker had claimed the key, by sender."""
        return Counter(
            "frozen" if line.worker in self.frozen else "other"
            for line in self.runs.all(Refusal)
            if line.move != "claim" and line.owner is not None and line.owner.partition(".")[0] != line.worker
        )

    @cached_property
    def held_back(self) -> int:
        """Messages that did not start in a worker in which an earlier one of their group, given to it too, failed."""
        groups = {each.name: each.group for each in self.workload.messages}
        given = grouped((line.worker, line) for line in self.runs.all(Delivery))
        started = {(start.worker, self.names.get(start.name, start.name)) for start in self.runs.all(Start)}
        return sum(
            groups.get(self.runs.name_of(line.name or "")) == groups[self.runs.name_of(end.name)]
            and line.at_ms <= end.at_ms
            and (end.worker, self.runs.name_of(line.name or "")) not in started
            for end in self.runs.all(End)
            if not end.ok and groups[self.runs.name_of(end.name)] is not None
            for line in given.get(end.worker, ())
        )

    @cached_property
    def kills(self) -> Counter[bool]:
        """Killed workers, and whether their time was up."""
        return Counter(line.overdue for line in self.runs.all(Kill))

    @cached_property
    def redriven_in_vain(self) -> int:
        """Deliveries of what was redriven to workers that were killed or frozen, then or later."""
        mortal = self.frozen | {line.worker for line in self.runs.all(Kill)}
        return sum(line.name in self.redriven and line.worker in mortal for line in self.runs.all(Delivery))

    @cached_property
    def injected(self) -> Counter[str]:
        return Counter(line.fault for line in self.runs.all(Fault))

    @cached_property
    def shared_faults(self) -> int:
        """Transactions of several messages that met with a fault."""
        return sum("transaction" in line.fault and line.records > 1 for line in self.runs.all(Fault))

    @property
    def must_be_zero(self) -> dict[str, int]:
        more = {"acknowledged early": self.acknowledged_early, "broken answers": len(self.runs.all(Broken))}
        return super().must_be_zero | more

    @property
    def must_happen(self) -> dict[str, int]:
        if not self.protected:
            return {}
        if self.cast is Cast.WORKFLOW:
            return self._asked_must_happen
        statements = {"statement errors": self._each("statement in doubt, applied", "statement refused, not applied")}
        rare = statements | {
            "zombies' writes refused": self.fenced["frozen"],
            "faults of transactions of several messages": self.shared_faults,
            "transactions of several messages refused": self.injected["transaction invalid"],
            "redrives interrupted": self.swept["interrupted"],
            "redriven to a worker that was killed or frozen": self.redriven_in_vain,
        }
        # Without claims few requests are batches of statements.
        usual = {} if self.without_claims else statements
        kept = {"held back behind a failure": self.held_back} if self.cast is Cast.FIFO else {}
        return (
            self._always_happen
            | usual
            | kept
            | (rare if len(self.sent) >= ENOUGH_FOR_RARITIES else {})
            | {
                "taken over": self.runs.taken_over,
                "duplicates": self.runs.duplicates,
                "redriven": len(self.redriven),
                "answers dropped": self.injected["answer dropped"],
                "transactions in doubt": self._each("transaction's answer dropped", "transaction delayed"),
                "sends in doubt": self._each("send's answer dropped", "send delayed", "send refused"),
                "messages not sent at first": self.injected["entries not sent"],
                "transactions cancelled": self._each("transaction cancelled", "transaction cancelled, one reason"),
            }
        )

    @property
    def _always_happen(self) -> dict[str, int]:
        each = self._each("5xx, applied", "5xx, not applied")
        return {"killed": self.kills[False], "frozen": len(self.frozen), "5xx": each}

    @property
    def _asked_must_happen(self) -> dict[str, int]:
        """What must have happened to a workflow."""
        replies = Counter(line.status for line in self.runs.all(Reply))
        rare = {"starts delayed": self.injected["start delayed"], "zombies' writes refused": self.fenced["frozen"]}
        return (
            self._always_happen
            | (rare if len(self.sent) >= ENOUGH_FOR_RARITIES else {})
            | {
                "answered as running": replies[HTTPStatus.ACCEPTED],
                "answered from the record": replies[HTTPStatus.OK],
                "not answered for sure": replies[HTTPStatus.SERVICE_UNAVAILABLE],
                "started or found by sweeps": self.swept["Started"] + self.swept["Running"],
                "starts' answers dropped": self.injected["start's answer dropped"],
            }
        )

    def _each(self, *faults: str) -> int:
        """How often the rarest of these was met."""
        return min(self.injected[fault] for fault in faults)

    def line(self) -> dict[str, Any]:
        return super().line() | {
            "acknowledged_early": self.acknowledged_early,
            "runs": len(self.runs.all(Start)),
            "killed": self.kills[False],
            "timed_out": self.kills[True],
            "frozen": len(self.frozen),
            "fenced_frozen": self.fenced["frozen"],
            "fenced_other": self.fenced["other"],
            "held_back": self.held_back,
            "redriven": len(self.redriven),
            "redriven_in_vain": self.redriven_in_vain,
            "swept": dict(sorted(self.swept.items())),
            "late_starts": len(self.runs.late_starts),
            "run_again": self.repeated,
            "requests": self.requests.total(),
            "requests_a_message": round(self.requests_a_message, 2),
            "shared": dict(sorted(self.shared.items())),
            "shared_faults": self.shared_faults,
            "operations": dict(sorted(self.requests.items())),
            "injected": dict(sorted(self.injected.items())),
        }
