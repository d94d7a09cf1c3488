"""The exchange between a transition and a store: read, decide, write, repeat until there is an answer.

One loop serves peeks, claims, settlements and transactions, for one record or many. `transitions.py` decides and the
store executes. This module only handles lost answers, refused writes and throttling: it reads records whose state is
unknown, retries after a pause, and gives up at a limit. An exception from a store is not an answer: it ends the
operations at once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from idempotent_receiver.clock import Deadline, Moment
from idempotent_receiver.errors import failure_of
from idempotent_receiver.protocol.answers import SettleResult
from idempotent_receiver.protocol.record import Change, Record, Unread
from idempotent_receiver.protocol.sending import TakeOver
from idempotent_receiver.protocol.store import (
    ActionFailed,
    Applied,
    Commit,
    Conflict,
    NotApplied,
    RecordStore,
    TransactionalStore,
    Unknown,
    Written,
)
from idempotent_receiver.protocol.transitions import Claim, Settlement
from idempotent_receiver.transaction.action import Action

MOST_CONFLICTS = 12
"""How many rounds an operation may lose to other workers' writes."""

CLAIM_RETRIES = 3
"""Retries of a claim while the store fails. Few, because no handler has run: a redelivery is better."""

SETTLE_RETRIES = 99
"""Retries of a settlement. The effect took place and must be recorded, so only the deadline ends the retries."""

_FIRST_PAUSE_SECONDS = 0.025
_LONGEST_PAUSE_SECONDS = 1.0

AnswerT = TypeVar("AnswerT")
AnswerT_co = TypeVar("AnswerT_co", covariant=True)


class Transition(Protocol[AnswerT_co]):
    """One intended change of one record; `transitions.py` defines them."""

    @property
    def id(self) -> str:
        """The record's id."""

    def step(self, seen: Record | None, sent_versions: Sequence[str], now_ms: int, version: str) -> Change | AnswerT_co:
        """The next write to try, or the answer."""

    def applied(self, change: Change) -> AnswerT_co:
        """The answer once `change` is known to have been written."""


def _tell_nobody(done: object) -> None: ...


@dataclass(slots=True)
class Operation(Generic[AnswerT]):
    """One transition awaiting its answer, which is reported to `on_done`.

    `seen` is the assumed record: a wrong guess only costs a round trip. The handler's own `actions` commit with the
    change. Such a change is fixed once and resent unchanged, because a transaction's token must not be reused with
    other content. The answer is Unknown if the store gave no definite answer within the limits. `in_doubt` says that
    the result of some write is unknown.
    """

    transition: Transition[AnswerT]
    seen: Record | Unread | None
    on_done: Callable[["Operation[AnswerT]"], None] = _tell_nobody
    actions: Sequence[Action] = ()
    drawn: Change | None = None
    sent_versions: list[str] = field(default_factory=list)
    change: Change | None = None
    answer: AnswerT | Unknown | None = None
    error: str | None = None
    contended: bool = False
    own: bool = False
    in_doubt: bool = False
    rounds: int = 0
    error_count: int = 0

    @property
    def answered(self) -> AnswerT | Unknown:
        """The answer, once there is one."""
        assert self.answer is not None  # called by `on_done`
        return self.answer

    def advance(self, now_ms: int, version: str) -> None:
        """Decide, from the record seen, on an answer or on the next change, which gets the fresh `version`."""
        assert not isinstance(self.seen, Unread)
        step = self.transition.step(self.seen, self.sent_versions, now_ms, version)
        if not isinstance(step, Change):
            self.answer = step
        elif self.drawn is not None and self.drawn.seen == step.seen:
            self.change = self.drawn
        else:
            self.change = step
            self.sent_versions.append(str(step.new.version))
            self.drawn = step if self.actions else None

    def apply(self, written: Written | ActionFailed) -> None:
        """Process the store's answer to the change."""
        change, self.change = self.change, None
        assert change is not None
        match written:
            case Applied():
                self.answer = self.transition.applied(change)
            case Conflict(found):
                self.seen = Unread() if found is None else found
            case Unknown(why):
                self.seen, self.error, self.in_doubt = Unread(), why, True
            case NotApplied(why, retry, contended, own):
                self.error, self.contended, self.own = why, contended, own
                self.answer = None if retry else Unknown(why, retry=False)
            case ActionFailed(stale=True) if self.in_doubt:
                # An earlier copy of this commit may still take effect.
                self.own = True
                self.answer = Unknown("data that was read has changed, and an earlier answer was lost", retry=False)
            case ActionFailed():
                self.answer = written  # type: ignore[assignment]  # only a commit can give this answer

    def count_round(self, max_retries: int) -> None:
        """Count a round without an answer, and give up at the limits. Losing to another transaction counts as a
        conflict, not as an error.
        """
        self.rounds += 1
        self.error_count += self.error is not None and not self.contended
        if self.error_count > max_retries or self.rounds > MOST_CONFLICTS + max_retries:
            self.give_up()

    def give_up(self, why: str = "too many workers contend for this key") -> None:
        """Stop trying."""
        self.answer = Unknown(self.error or why)


def ask(
    transition: Transition[AnswerT],
    assumed: Record | Unread | None,
    store: RecordStore,
    deadline: Deadline,
    *,
    max_retries: int = CLAIM_RETRIES,
    actions: Sequence[Action] = (),
) -> AnswerT | Unknown:
    """Run one transition until it has an answer, which is `Unknown` at the deadline or after `max_retries` retries.

    Never raises, whatever the store does. `assumed` and `actions` become the `seen` and `actions` of an `Operation`.
    """
    operation = Operation(transition, assumed, actions=actions)
    exchange([operation], store, deadline, max_retries=max_retries)
    return operation.answer  # type: ignore[return-value]  # a single operation is always answered


def commit(
    settlement: Settlement, actions: Sequence[Action], store: TransactionalStore, deadline: Deadline
) -> SettleResult | Unknown | ActionFailed:
    """Settle a claim together with a handler's own actions: all of it, or nothing."""
    return ask(settlement, settlement.standing, store, deadline, max_retries=SETTLE_RETRIES, actions=actions)


class Exchanged(NamedTuple):
    """The operations still without an answer, and the number of store calls made."""

    pending: Sequence[Operation[Any]]
    requests: int


def exchange(
    operations: Sequence[Operation[AnswerT]],
    store: RecordStore,
    deadline: Deadline,
    *,
    max_retries: int,
) -> Exchanged:
    """Repeat rounds until every operation has an answer. If some are answered while others must pause after an error,
    returns the others, so that the answered ones need not wait. Ids must be distinct.
    """
    pending, requests = list(operations), 0
    while True:
        rounds = [operation.rounds for operation in pending if operation.error is not None]
        in_time = not rounds or _paused(max(rounds), deadline)
        moment = deadline.moment()
        if not in_time or (moment.left_to_start_seconds <= 0 and _claims_any(pending)):
            for operation in pending:
                operation.give_up("no time was left to send the request")
            return Exchanged([], requests)
        requests += _round(pending, store, deadline, moment)
        unanswered = [operation for operation in pending if operation.answer is None]
        for operation in unanswered:
            operation.count_round(max_retries)
        still = [operation for operation in unanswered if operation.answer is None]
        if not still or (len(still) < len(pending) and any(operation.error for operation in still)):
            return Exchanged(still, requests)
        pending = still


def _paused(rounds: int, deadline: Deadline) -> bool:
    """Pause after a round: exponential backoff with full jitter. Returns False at once if too little time is left."""
    longest = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2.0 ** min(rounds, 10))
    pause = longest * deadline.clock.fraction()
    if pause >= deadline.left_seconds:
        return False
    deadline.clock.sleep(pause)
    return True


def _claims_any(operations: Sequence[Operation[AnswerT]]) -> bool:
    """Whether any operation writes a lease: it is not sent once that lease has ended or is about to end."""
    return any(isinstance(operation.transition, Claim | TakeOver) for operation in operations)


def _round(operations: Sequence[Operation[AnswerT]], store: RecordStore, deadline: Deadline, moment: Moment) -> int:
    """One round for all operations: read the records in doubt, decide, and send the resulting writes. Returns the
    number of store calls.
    """
    for operation in operations:
        operation.error, operation.contended, operation.own = None, False, False
    if unread := [operation for operation in operations if isinstance(operation.seen, Unread)]:
        _read(unread, store)
        moment = deadline.moment()
    seen = [operation for operation in operations if not isinstance(operation.seen, Unread)]
    for operation, version in zip(seen, deadline.clock.versions(len(seen)), strict=True):
        operation.advance(moment.now_ms, version)
    inserting: list[tuple[Operation[AnswerT], Change]] = []
    replacing: list[tuple[Operation[AnswerT], Change]] = []
    committing: list[tuple[Operation[AnswerT], Change]] = []
    for operation in seen:
        if (change := operation.change) is not None:
            line = committing if operation.actions else inserting if change.seen is None else replacing
            line.append((operation, change))
    if inserting:
        _write(inserting, lambda: store.insert([change.new for _, change in inserting]))
    if replacing:
        _write(replacing, lambda: store.replace([change for _, change in replacing]))
    if committing:
        _write(committing, lambda: _commit(store, [Commit(change, one.actions) for one, change in committing]))
    return sum(map(bool, (unread, inserting, replacing, committing)))


def _commit(store: RecordStore, commits: Sequence[Commit]) -> Sequence[Written | ActionFailed]:
    return store.commit(commits)  # type: ignore[attr-defined, no-any-return]  # without transactions, no commits exist


def _read(operations: Sequence[Operation[AnswerT]], store: RecordStore) -> None:
    try:
        found = list(zip(operations, store.read([one.transition.id for one in operations]), strict=True))
    except Exception as error:  # noqa: BLE001  # anything a store raises is a defect
        _end(operations, error)
        return
    for operation, record in found:
        if isinstance(record, Unknown):
            operation.error = record.why
            operation.answer = None if record.retry else Unknown(record.why, retry=False)
        else:
            operation.seen = record


def _write(
    changing: Sequence[tuple[Operation[AnswerT], Change]], send: Callable[[], Sequence[Written | ActionFailed]]
) -> None:
    operations = [operation for operation, _ in changing]
    try:
        answers = list(zip(operations, send(), strict=True))
    except Exception as error:  # noqa: BLE001  # anything a store raises is a defect
        _end(operations, error)
        return
    for operation, written in answers:
        operation.apply(written)


def _end(operations: Sequence[Operation[AnswerT]], error: Exception) -> None:
    """Stop the operations after the store has raised an exception.

    A store must turn its client's errors into answers. So an exception is a defect in the store, this library or the
    input, and would recur until the deadline. Whether a write took effect remains unknown, so a later write must name
    the version that the uncertain write would have replaced.
    """
    failure = failure_of(error)
    for operation in operations:
        operation.change = None
        operation.answer = Unknown(f"the store raised {failure.type} at {failure.at}", retry=False)
