"""Which dead letters an operator means, the plan that comes of it, and that plan in a file, to carry out later."""

import os
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Self

from pydantic import ConfigDict, TypeAdapter

from idempotent_receiver.operations.dead_letters.triage import Decision, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Decisions about selected dead letters: which to carry out, and which stay: only the limit prevents it, they have
    changed since they were planned, or by their verdicts.
    """

    decisions: Sequence[Decision]
    acting: Sequence[Decision]
    beyond: Sequence[Decision]
    changed: Sequence[Decision]
    staying: Sequence[Decision]


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A dead letter in a saved plan: as much as tells whether it is still the same, and what a reviewer has to know."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    message_id: str
    key: str
    verdict: Verdict
    reason: str
    body_sha256: str

    @classmethod
    def of(cls, decision: Decision) -> Self:
        """A dead letter as it is now."""
        of = decision.dead_letter
        return cls(
            message_id=of.id,
            key=of.key,
            verdict=decision.verdict,
            reason=decision.reason,
            body_sha256=sha256(of.message.raw_body.encode(errors="surrogatepass")).hexdigest(),
        )

    def changed(self, decision: Decision) -> str | None:
        """What about the dead letter is no longer as planned; None if nothing is."""
        now = Planned.of(decision)
        if now.body_sha256 != self.body_sha256:
            return "its body is not the one that was planned for"
        if now.verdict is not self.verdict:
            return f"its verdict was {self.verdict} in the plan and is {now.verdict} now: {decision.why}"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedPlan:
    """A plan in a file. Whoever reviews it may take dead letters out of it.

    `id` stands in the history with each act, `command` is what it is a plan for, `made_at` an ISO time; `queue` and
    `dead_letter_queue` are ARNs. `include_permanent` and `force` are the rules by which the verdicts were found. It
    holds no bodies.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    id: str
    command: str
    made_at: str
    queue: str
    dead_letter_queue: str
    include_permanent: bool
    force: bool
    letters: list[Planned]

    def write(self, file: Path) -> None:
        """Write it to a new file, to the disk. Raises FileExistsError rather than replace one, and other OSErrors."""
        with file.open("xb") as opened:
            opened.write(_SAVED.dump_json(self, indent=2) + b"\n")
            opened.flush()
            os.fsync(opened.fileno())

    @classmethod
    def read(cls, file: Path) -> "SavedPlan":
        """The plan in a file. Raises OSError, and ValueError where there is none in it."""
        return _SAVED.validate_json(file.read_bytes())


_SAVED = TypeAdapter(SavedPlan)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which dead letters the operator means: those for which all that is given here holds.

    `reason` is a part of the reason or of the error's type, in upper or lower case. `since_ms` and `until_ms` (epoch)
    include the second that they are in, as times are listed without its fractions. `planned` are the dead letters of a
    saved plan, by messageId. `limit` bounds how many are acted on.
    """

    groups: frozenset[str] = frozenset()
    error_type: str | None = None
    reason: str | None = None
    keys: frozenset[str] = frozenset()
    ids: frozenset[str] = frozenset()
    since_ms: int | None = None
    until_ms: int | None = None
    planned: Mapping[str, Planned] | None = None
    limit: int | None = None

    @classmethod
    def of_plan(cls, letters: Iterable[Planned]) -> Self:
        """Exactly these dead letters."""
        planned = {each.message_id: each for each in letters}
        return cls(planned=planned, limit=len(planned))

    @property
    def all(self) -> bool:
        """Whether every dead letter is meant."""
        return replace(self, limit=None) == Selection()

    def includes(self, decision: Decision) -> bool:
        """Whether this dead letter is meant."""
        of = decision.dead_letter
        cause = f"{decision.reason} {decision.error_type or ''}".casefold()
        return (
            (not self.groups or decision.group in self.groups)
            and (self.error_type is None or decision.error_type == self.error_type)
            and (self.reason is None or self.reason.casefold() in cause)
            and (not self.keys or of.key in self.keys)
            and (not self.ids or of.id in self.ids)
            and (self.since_ms is None or of.since_ms >= self.since_ms // 1000 * 1000)
            and (self.until_ms is None or of.since_ms // 1000 * 1000 <= self.until_ms)
            and (self.planned is None or of.id in self.planned)
        )

    def missing(self, seen: Collection[str]) -> list[Planned]:
        """What the saved plan has and is not among these messageIds."""
        return [each for id, each in (self.planned or {}).items() if id not in seen]

    def plan(self, decisions: Sequence[Decision], acted: int, acting: Container[Verdict]) -> Plan:
        """What to do with included dead letters once `acted` were acted on; `acting` are the verdicts that allow it."""
        due: list[Decision] = []
        changed: list[Decision] = []
        staying: list[Decision] = []
        for each in decisions:
            if (why := self._changed(each)) is not None:
                changed.append(replace(each, why=why))
            else:
                (due if each.verdict in acting else staying).append(each)
        room = len(due) if self.limit is None else max(0, self.limit - acted)
        return Plan(decisions=decisions, acting=due[:room], beyond=due[room:], changed=changed, staying=staying)

    def _changed(self, decision: Decision) -> str | None:
        return None if self.planned is None else self.planned[decision.dead_letter.id].changed(decision)
