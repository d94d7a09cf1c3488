"""Which dead letters an operator means, and the plan that comes of it."""

from collections.abc import Container, Sequence
from dataclasses import dataclass

from idempotent_receiver.operations.dead_letters.triage import Decision, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Decisions about selected dead letters: which to carry out, which only the limit prevents, and which stay."""

    decisions: Sequence[Decision]
    acting: Sequence[Decision]
    beyond: Sequence[Decision]
    staying: Sequence[Decision]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which dead letters the operator means. `limit` bounds how many are acted on.

    `reason` is a part of the reason or of the error's type, in upper or lower case.
    """

    reason: str | None = None
    keys: frozenset[str] = frozenset()
    limit: int | None = None

    @property
    def all(self) -> bool:
        """Whether every dead letter is meant."""
        return self.reason is None and not self.keys

    def includes(self, decision: Decision) -> bool:
        """Whether this dead letter is meant."""
        if self.keys and decision.dead_letter.key not in self.keys:
            return False
        cause = f"{decision.reason} {decision.error_type or ''}".casefold()
        return self.reason is None or self.reason.casefold() in cause

    def plan(self, decisions: Sequence[Decision], acted: int, acting: Container[Verdict]) -> Plan:
        """What to do with included dead letters once `acted` were acted on; `acting` are the verdicts that allow it."""
        acts = [each for each in decisions if each.verdict in acting]
        staying = [each for each in decisions if each.verdict not in acting]
        room = len(acts) if self.limit is None else max(0, self.limit - acted)
        return Plan(decisions=decisions, acting=acts[:room], beyond=acts[room:], staying=staying)
