"""Which dead letters an operator means, the plan that comes of it, and that plan in a file, to carry out later."""

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Self

from pydantic import ConfigDict, TypeAdapter

from idempotent_receiver.operations.dead_letters.triage import Decision, Verdict
from idempotent_receiver.operations.dead_letters.verbs import NAMED, NOT_BEGUN, End, Ends
from idempotent_receiver.sqs.dead_letter import NoRoom


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Decisions about selected dead letters: which to carry out, and which stay: only the limit prevents it, they have
    changed since they were planned, or by their verdicts.
    """

    decisions: list[Decision]
    acting: list[Decision]
    beyond: list[Decision]
    changed: list[Decision]
    staying: list[Decision]

    def clear(self) -> None:
        """Let go of the dead letters."""
        for each in (self.decisions, self.acting, self.beyond, self.changed, self.staying):
            each.clear()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLetter:
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
            body_sha256=hash_of(of.message.raw_body),
        )

    def changed(self, decision: Decision) -> str | None:
        """What about the dead letter is no longer as planned; None if nothing is."""
        now = PlannedLetter.of(decision)
        if now.body_sha256 != self.body_sha256:
            return "its body is not the one that was planned for"
        if now.verdict is not self.verdict:
            return f"its verdict was {self.verdict} in the plan and is {now.verdict} now: {decision.why}"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedPlan:
    """A plan in a file. Whoever reviews it may take dead letters out of it.

    `id` stands in the history with each act, `command` is what it is a plan for, `made_at` an ISO time; `queue` and
    `dead_letter_queue` are ARNs. `options` are those that it was made with, and is carried out with. It holds no
    bodies: of a new one, which has to be given again, it has the hash.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    id: str
    command: str
    made_at: str
    queue: str
    dead_letter_queue: str
    options: dict[str, bool]
    letters: list[PlannedLetter]
    new_body_sha256: str | None = None

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


def hash_of(body: str) -> str:
    """A body's SHA-256, by which a plan knows it again."""
    return sha256(body.encode(errors="surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which dead letters the operator means: those for which all that is given here holds.

    `matching` is a part of the reason or of the error's type, in upper or lower case. `since_ms` and `until_ms` (epoch)
    include the second that they are in, as times are listed without its fractions. `planned` are the dead letters of a
    saved plan, by messageId. `limit` bounds how many are acted on.
    """

    groups: frozenset[str] = frozenset()
    error_type: str | None = None
    matching: str | None = None
    keys: frozenset[str] = frozenset()
    ids: frozenset[str] = frozenset()
    since_ms: int | None = None
    until_ms: int | None = None
    planned: Mapping[str, PlannedLetter] | None = None
    limit: int | None = None

    @classmethod
    def of_plan(cls, letters: Iterable[PlannedLetter]) -> Self:
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
            and (self.matching is None or self.matching.casefold() in cause)
            and (not self.keys or of.key in self.keys)
            and (not self.ids or of.id in self.ids)
            and (self.since_ms is None or of.since_ms >= self.since_ms // 1000 * 1000)
            and (self.until_ms is None or of.since_ms // 1000 * 1000 <= self.until_ms)
            and (self.planned is None or of.id in self.planned)
        )

    def missing(self, seen: Collection[str]) -> list[PlannedLetter]:
        """What the saved plan has and is not among these messageIds."""
        return [each for id, each in (self.planned or {}).items() if id not in seen]

    def plan(self, decisions: list[Decision], acted: int, ends: Ends) -> Plan:
        """What to do with included dead letters once `acted` were acted on; any without an end stays."""
        due: list[Decision] = []
        changed: list[Decision] = []
        staying: list[Decision] = []
        for each in decisions:
            end = ends.get(each.verdict)
            if (why := self._changed(each)) is not None:
                changed.append(replace(each, why=why))
            elif end is None:
                unbegun = each.verdict in NOT_BEGUN and Verdict.MOVE not in ends
                staying.append(replace(each, why="no resend of it has begun") if unbegun else each)
            elif (barred := self._barred(each, end)) is not None:
                staying.append(barred)
            else:
                due.append(each)
        room = len(due) if self.limit is None else max(0, self.limit - acted)
        return Plan(decisions=decisions, acting=due[:room], beyond=due[room:], changed=changed, staying=staying)

    def _barred(self, decision: Decision, end: End) -> Decision | None:
        """The decision with why it stays although there is an end for its verdict."""
        of = decision.dead_letter
        if decision.verdict in NAMED and of.id not in self.ids and decision.group not in self.groups:
            named = self.planned is not None and of.id in self.planned
            if not named:
                why = f"{decision.why}; name it by --message-id, or by --group {decision.group}"
                return replace(decision, why=why)
        try:
            if end.copy is not None:
                end.copy(of)
        except NoRoom as error:
            return replace(decision, verdict=Verdict.NO_ROOM, why=f"it has no room for its key: {error}")
        return None

    def _changed(self, decision: Decision) -> str | None:
        return None if self.planned is None else self.planned[decision.dead_letter.id].changed(decision)
