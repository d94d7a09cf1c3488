"""The conversation between a transition and a store: read, decide, write, and again, until there is an answer.

One loop serves looks, claims, settlements and transactions alike, one record or many. `record.py` decides; the store
executes; what lives here is only what to do about answers that were lost, refused or throttled: read after a doubt,
try the same again after a pause, and stop at a bound. What a store raises is no answer: it ends what was asked at once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, cast

from idempotent_receiver.clock import Deadline
from idempotent_receiver.errors import failure_of
from idempotent_receiver.protocol.record import Change, Record
from idempotent_receiver.protocol.store import (
    ActionFailed,
    Applied,
    Conflict,
    NotApplied,
    RecordStore,
    TransactionalStore,
    Unknown,
    Written,
)
from idempotent_receiver.protocol.transaction import Action
from idempotent_receiver.protocol.transitions import Claim, ClaimLost, Commit, Settled, Settlement

MOST_CONFLICTS = 12
"""Turns that a wish may lose to somebody else's progress."""

CLAIM_PATIENCE = 4
"""Tries of a claim while the store is in trouble: no handler has run, and the message had better come again."""

SETTLE_PATIENCE = 100
"""Tries of a settlement: an effect is done and wants to be recorded, so it is the deadline that ends them."""

_FIRST_PAUSE_SECONDS = 0.025
_LONGEST_PAUSE_SECONDS = 1.0

Answer = TypeVar("Answer")
Answer_co = TypeVar("Answer_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Unread:
    """What is there has not been read yet, or is in doubt."""


@dataclass(frozen=True, slots=True)
class Unavailable:
    """The store could not be asked, or could not be told, within bounds. Nothing is known of what is there."""

    why: str
    retry: bool = True


class Transition(Protocol[Answer_co]):
    """What `record.py` makes: one wish about one record."""

    @property
    def id(self) -> str:
        """The record's id."""

    def step(self, seen: Record | None, wrote: Sequence[str], now_ms: int, version: str) -> Change | Answer_co:
        """The next write to try, or the answer."""

    def applied(self, change: Change) -> Answer_co:
        """The answer once `change` is known to have been written."""


Wish = tuple[Transition[Answer], Record | Unread | None]
"""A transition, and what it may assume to be there: a wrong guess costs a round trip and does no harm."""


@dataclass(slots=True)
class Operation(Generic[Answer]):
    """One transition on its way to its answer. `about` is the caller's own, to know it again by."""

    transition: Transition[Answer]
    seen: Record | Unread | None
    about: Any = None
    wrote: list[str] = field(default_factory=list)
    change: Change | None = None
    answer: Answer | Unavailable | None = None
    trouble: str | None = None
    turns: int = 0
    troubles: int = 0

    def advance(self, now_ms: int, version: str) -> None:
        """Decide by what was seen: an answer, or the next change, with the version that was drawn for it."""
        assert not isinstance(self.seen, Unread)
        step = self.transition.step(self.seen, self.wrote, now_ms, version)
        if isinstance(step, Change):
            self.change = step
            self.wrote.append(str(step.new.version))
        else:
            self.answer = step

    def absorb(self, written: Written | ActionFailed) -> None:
        """Take in what the store said of the change."""
        change, self.change = self.change, None
        assert change is not None
        match written:
            case Applied():
                self.answer = self.transition.applied(change)
            case Conflict(found):
                self.seen = Unread() if found is None else found
            case Unknown(why):
                self.seen, self.trouble = Unread(), why
            case NotApplied(why, retry):
                self.trouble = why
                self.answer = None if retry else Unavailable(why, retry=False)
            case ActionFailed():
                # Only a commit's replace answers so, and `commit` has it among its answers.
                self.answer = cast(Answer, written)

    def count(self, patience: int) -> None:
        """Count a turn that has not brought the answer, up to the bound."""
        self.turns += 1
        self.troubles += self.trouble is not None
        if self.answer is None and (self.troubles >= patience or self.turns >= MOST_CONFLICTS + patience):
            self.give_up()

    def give_up(self, why: str = "too many workers contend for this key") -> None:
        """No more is tried."""
        self.answer = Unavailable(self.trouble or why)


Operations = Sequence[Operation[Any]]
Ask = Callable[[Operations, Callable[[Operations], None], int], None]
"""`exchange`, elsewhere, until all have their answers: the courses, what takes the answered ones, and the patience."""

Replace = Callable[[Sequence[Change]], Sequence[Written | ActionFailed]]


def drive(
    wishes: Sequence[Wish[Answer]],
    store: RecordStore,
    deadline: Deadline,
    *,
    patience: int = CLAIM_PATIENCE,
    replace: Replace | None = None,
) -> list[Answer | Unavailable]:
    """Bring every wish to its answer, or to `Unavailable` at the deadline or after `patience` troubles.

    Ids must be distinct. Never raises for what the store does. `replace` stands in for the store's own.
    """
    courses = [Operation(transition, assumed) for transition, assumed in wishes]
    still = courses
    while still:
        still = exchange(still, store, deadline, patience=patience, replace=replace)
    return [cast(Answer | Unavailable, course.answer) for course in courses]


def exchange(
    courses: Sequence[Operation[Answer]],
    store: RecordStore,
    deadline: Deadline,
    *,
    patience: int,
    replace: Replace | None = None,
) -> list[Operation[Answer]]:
    """Bring the courses on until each has its answer, or until some have while others are in trouble: returns those
    others, to be brought on after their neighbours' answers have been used.
    """
    replace = store.replace if replace is None else replace
    going = list(courses)
    while True:
        if not _paused(going, deadline) or _too_late(going, deadline):
            for course in going:
                course.give_up("the time to begin is over")
            return []
        _turn(going, store, replace, deadline)
        for course in going:
            course.count(patience)
        still = [course for course in going if course.answer is None]
        if not still or (len(still) < len(going) and any(course.trouble for course in still)):
            return still
        going = still


def _paused(courses: Sequence[Operation[Answer]], deadline: Deadline) -> bool:
    """After a trouble, wait: exponential backoff with full jitter. False where there is no time for that."""
    troubles = max((course.troubles for course in courses if course.trouble is not None), default=0)
    if troubles == 0:
        return True
    longest = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2.0 ** min(troubles, 10))
    pause = longest * deadline.clock.fraction()
    if pause >= deadline.left_seconds:
        return False
    deadline.clock.sleep(pause)
    return True


def _too_late(courses: Sequence[Operation[Answer]], deadline: Deadline) -> bool:
    """Whether these are claims whose lease is about to be over, or is, before they are sent."""
    begins = any(isinstance(course.transition, Claim) for course in courses)
    return begins and deadline.left_to_start_seconds <= 0


def _turn(courses: Sequence[Operation[Answer]], store: RecordStore, replace: Replace, deadline: Deadline) -> None:
    """One turn for all: read what is in doubt, decide, and send the writes that follow."""
    for course in courses:
        course.trouble = None
    _read([course for course in courses if isinstance(course.seen, Unread)], store)
    seen = [course for course in courses if not isinstance(course.seen, Unread)]
    now_ms, versions = deadline.now_ms, deadline.clock.versions(len(seen))
    for course, version in zip(seen, versions, strict=True):
        course.advance(now_ms, version)
    changing = [(course, course.change) for course in courses if course.change is not None]
    inserting = [(course, change) for course, change in changing if change.seen is None]
    replacing = [(course, change) for course, change in changing if change.seen is not None]
    if inserting:
        _write([course for course, _ in inserting], lambda: store.insert([change.new for _, change in inserting]))
    if replacing:
        _write([course for course, _ in replacing], lambda: replace([change for _, change in replacing]))


def _read(courses: Sequence[Operation[Answer]], store: RecordStore) -> None:
    if not courses:
        return
    try:
        found = list(zip(courses, store.read([course.transition.id for course in courses]), strict=True))
    except Exception as error:  # noqa: BLE001  # whatever a store raises is a defect
        _end(courses, error)
        return
    for course, record in found:
        if isinstance(record, Unknown):
            course.trouble = record.why
            course.answer = None if record.retry else Unavailable(record.why, retry=False)
        else:
            course.seen = record


def _write(courses: Sequence[Operation[Answer]], send: Callable[[], Sequence[Written | ActionFailed]]) -> None:
    try:
        answers = list(zip(courses, send(), strict=True))
    except Exception as error:  # noqa: BLE001  # whatever a store raises is a defect
        _end(courses, error)
        return
    for course, written in answers:
        course.absorb(written)


def _end(courses: Sequence[Operation[Answer]], error: Exception) -> None:
    """No more is tried after a store has raised. It answers for its client's errors, so this is a defect of its own, of
    ours or of what it was given, which would be met again and again until the deadline. Whether a write took effect
    stays unknown: what follows must name the version that it would have replaced.
    """
    failure = failure_of(error)
    for course in courses:
        course.change = None
        course.answer = Unavailable(f"the store raised {failure.type} at {failure.at}", retry=False)


def commit(
    settlement: Settlement, actions: Sequence[Action], store: TransactionalStore, deadline: Deadline
) -> Settled | ClaimLost | ActionFailed | Unavailable:
    """Settle a claim together with a handler's own actions, or neither."""
    (version,) = deadline.clock.versions(1)
    drawn = settlement.change(deadline.now_ms, version)
    wish: Wish[Settled | ClaimLost | ActionFailed] = (Commit(drawn), settlement.held)

    def replace(changes: Sequence[Change]) -> Sequence[Written | ActionFailed]:
        return [store.commit(change, actions) for change in changes]

    (answer,) = drive([wish], store, deadline, patience=SETTLE_PATIENCE, replace=replace)
    return answer
