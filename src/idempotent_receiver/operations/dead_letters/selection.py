"""The dead letters that an operator selects, the resulting plan, and that plan saved in a file."""

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Self

from pydantic import ConfigDict, TypeAdapter

from idempotent_receiver.operations.dead_letters.history import Verb
from idempotent_receiver.operations.dead_letters.triage import Decision, Verdict
from idempotent_receiver.operations.dead_letters.verbs import NAMED, Disposition, Dispositions
from idempotent_receiver.sqs.dead_letter import NoRoom

NOT_ALL_SENT = "its effect took place, and what it sends has not all been sent"
SEND_OR_GIVE_UP = "redrive it, or receiver stuck --send KEY; what can never be sent, add --give-up N --because WHY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Decisions about selected dead letters: those to carry out, and those that stay because of the limit, a change
    since the plan was saved, or their verdict.
    """

    decisions: list[Decision]
    acting: list[Decision]
    beyond: list[Decision]
    changed: list[Decision]
    staying: list[Decision]

    def clear(self) -> None:
        """Drop all references to the dead letters."""
        for each in (self.decisions, self.acting, self.beyond, self.changed, self.staying):
            each.clear()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLetter:
    """A dead letter in a saved plan: enough to detect a change and to inform a reviewer."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    message_id: str
    key: str
    verdict: Verdict
    reason: str
    body_sha256: str

    @classmethod
    def of(cls, decision: Decision) -> Self:
        """The current state of a dead letter."""
        of = decision.dead_letter
        return cls(
            message_id=of.id,
            key=of.key,
            verdict=decision.verdict,
            reason=decision.reason,
            body_sha256=hash_of(of.message.raw_body),
        )

    def changed(self, decision: Decision) -> str | None:
        """How the dead letter differs from the plan; None if it does not."""
        now = PlannedLetter.of(decision)
        if now.key != self.key:
            return f"its key was {self.key or 'none'} in the plan and is {now.key or 'none'} now: compare --consumer"
        if now.body_sha256 != self.body_sha256:
            return "its body differs from the planned one"
        if now.verdict is not self.verdict:
            return f"its verdict was {self.verdict} in the plan and is {now.verdict} now: {decision.why}"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedPlan:
    """A plan in a file. A reviewer may remove dead letters from it.

    The history stores `id` with every act. `command` is the command that the plan is for, `made_at` an ISO 8601 time,
    `queue` and `dead_letter_queue` are ARNs. `options` come from the command that made the plan. The plan holds no
    bodies. Of a new body it holds the hash, so the body must be given again.
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
        """Write the plan durably to a new file. Raises OSError, such as FileExistsError if the file exists."""
        with file.open("xb") as opened:
            opened.write(_SAVED.dump_json(self, indent=2) + b"\n")
            opened.flush()
            os.fsync(opened.fileno())

    @classmethod
    def read(cls, file: Path) -> "SavedPlan":
        """The plan in a file. Raises OSError, or ValueError if the file contains no plan."""
        return _SAVED.validate_json(file.read_bytes())


_SAVED = TypeAdapter(SavedPlan)


def hash_of(body: str) -> str:
    """A body's SHA-256, by which a plan recognises it."""
    return sha256(body.encode(errors="surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The operator's selection: the dead letters that match every criterion given.

    `matching` is part of the reason or error type, ignoring case. `since_ms` and `until_ms` (epoch) include their whole
    second, because times are listed without fractions. `planned` are the dead letters of a saved plan, by messageId.
    `limit` is the maximum number to act on.
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
        """A selection of exactly these dead letters."""
        planned = {each.message_id: each for each in letters}
        return cls(planned=planned, limit=len(planned))

    @property
    def all(self) -> bool:
        """Whether every dead letter is selected."""
        return replace(self, limit=None) == Selection()

    def includes(self, decision: Decision) -> bool:
        """Whether this dead letter is selected."""
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
        """The dead letters of the saved plan that are not among these messageIds."""
        return [each for id, each in (self.planned or {}).items() if id not in seen]

    def plan(self, decisions: list[Decision], acted: int, dispositions: Dispositions) -> Plan:
        """A plan for the selected dead letters; `acted` others already count towards the limit."""
        due: list[Decision] = []
        changed: list[Decision] = []
        staying: list[Decision] = []
        for each in decisions:
            disposition = dispositions.get(each.verdict)
            if (why := self._changed(each)) is not None:
                changed.append(replace(each, why=why))
            elif disposition is None:
                staying.append(each)
            elif (barred := self._barred(each, disposition)) is not None:
                staying.append(barred)
            else:
                due.append(each)
        room = len(due) if self.limit is None else max(0, self.limit - acted)
        return Plan(decisions=decisions, acting=due[:room], beyond=due[room:], changed=changed, staying=staying)

    def _barred(self, decision: Decision, disposition: Disposition) -> Decision | None:
        """The decision with the reason that a dead letter stays despite its verdict; None if it need not stay."""
        of = decision.dead_letter
        if decision.verdict is Verdict.OTHER_QUEUE and not decision.orphaned:
            return replace(decision, why=f"{decision.why}; it can be archived or deleted here once that queue is gone")
        if disposition.verb is Verb.DELETED and decision.unsent:
            return replace(decision, why=f"{NOT_ALL_SENT}: {SEND_OR_GIVE_UP}")
        if decision.verdict in NAMED and of.id not in self.ids and decision.group not in self.groups:
            named = self.planned is not None and of.id in self.planned
            if not named:
                why = f"{decision.why}; select it with --message-id or --group {decision.group}"
                return replace(decision, why=why)
        try:
            if disposition.copy is not None:
                disposition.copy(of)
        except NoRoom as error:
            return replace(decision, verdict=Verdict.NO_ROOM, why=f"it has no room for its key: {error}")
        return None

    def _changed(self, decision: Decision) -> str | None:
        return None if self.planned is None else self.planned[decision.dead_letter.id].changed(decision)
