"""How the runs of a batch end: settlements and transactions, which share requests with others that end close together.

Each of the store's answers is an event of the table in `items.py`, by way of `handler/outcome.py` if it ends the item.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from idempotent_receiver.batch.exchanges import Exchanges
from idempotent_receiver.batch.items import Do, Event, Item
from idempotent_receiver.batch.progress import Progress
from idempotent_receiver.batch.settings import Settings
from idempotent_receiver.batch.turns import Turns
from idempotent_receiver.clock import Deadline
from idempotent_receiver.handler import outcome
from idempotent_receiver.handler.results import kept
from idempotent_receiver.protocol import transitions
from idempotent_receiver.protocol.exchange import (
    CLAIM_RETRIES,
    SETTLE_RETRIES,
    Operation,
    Operations,
    SettleAnswer,
    Unavailable,
)
from idempotent_receiver.protocol.store import WRITES_A_CALL, WRITES_A_COMMIT, ActionFailed
from idempotent_receiver.protocol.transaction import ActionItem, Items
from idempotent_receiver.protocol.transitions import Claimed, ClaimLost, OtherPayload, Settled, Settlement

Settling = Operation[SettleAnswer | ActionFailed]
"""A settlement on its way."""

LONGEST_WAIT_SECONDS = 0.002
"""How long a settlement may wait for company: less than a round trip, and short against a crash."""


class Line:
    """Operations that wait for company, `most` writes a request. They leave when that many wait, 2 ms after the oldest,
    or in a hurry.
    """

    def __init__(self, most: int, leave: Callable[[Operations], None]) -> None:
        self._most = most
        self._leave = leave
        self.waiting: list[Operation[Any]] = []
        self._writes = 0
        self.due_seconds: float | None = None
        """When the next request must leave, in seconds since the invocation's start; None while nothing waits."""

    def add(self, operation: Operation[Any]) -> None:
        """Let one more wait."""
        self.waiting.append(operation)
        self._writes += 1 + len(operation.actions)

    def flush(self, elapsed_seconds: float, *, hurry: bool) -> None:
        """Send the requests whose time has come; everything in a `hurry`: nothing that could join is under way."""
        anew = elapsed_seconds + LONGEST_WAIT_SECONDS
        due = anew if self.due_seconds is None else self.due_seconds
        overdue = elapsed_seconds >= due
        while self.waiting and (hurry or overdue or self._writes >= self._most):
            self._leave(self._take())
            due = anew
        self.due_seconds = due if self.waiting else None

    def _take(self) -> Operations:
        """The next request's; one alone may have more actions than others leave room for."""
        count, writes = 0, 0
        for operation in self.waiting:
            writes += 1 + len(operation.actions)
            if count and writes > self._most:
                break
            count, self._writes = count + 1, self._writes - 1 - len(operation.actions)
        taken, self.waiting = self.waiting[:count], self.waiting[count:]
        return taken


class Settlements:
    """How runs end, as group commit: settlements that end close together share a request, and so do transactions."""

    def __init__(self, settings: Settings, progress: Progress, deadline: Deadline, turns: Turns) -> None:
        self._exchanges = Exchanges(settings, deadline)
        self._settings = settings
        self._progress = progress
        self._happens = progress.happens
        self._deadline = deadline
        self._settling = Line(WRITES_A_CALL, self._send)
        self._committing = Line(WRITES_A_COMMIT, self._send)
        self.lines = (self._settling, self._committing)
        self._items = Items()
        self._turns = turns
        turns.begin = self._committing.add
        self.released = 0
        progress.actions |= {
            Do.STORE: self._store,
            Do.COMPLETE: self._complete,
            Do.FAIL: self._fail,
            Do.RELEASE: self._release,
        }

    def _send(self, operations: Operations) -> None:
        # What nothing has claimed has done nothing yet, either: it had better come again than wait for the store.
        max_retries = SETTLE_RETRIES if self._settings.claiming else CLAIM_RETRIES
        self._exchanges.start(operations, self._answered, max_retries=max_retries)

    def _answered(self, operations: Operations) -> None:
        if not self._settings.claiming:
            self._progress.unreachable = self._progress.unreachable or _unreachable(operations)
        for operation in operations:
            operation.context(operation)

    def _add(self, item: Item, settlement: Settlement, on_answer: Callable[[Item, Settling], None]) -> None:
        self._settling.add(Operation(settlement, settlement.standing, partial(on_answer, item)))

    def _held(self, item: Item) -> Claimed:
        if self._settings.host is not None and item.claimed.written:
            item.claimed = self._settings.host.settling(item.claimed)
        return item.claimed

    def _store(self, item: Item) -> None:
        # Before the completion, which then tells where it is: elsewhere, for it may take its time.
        results = self._settings.results
        job, on_done = (
            partial(kept, item.claimed, item.data, self._settings.largest_record_bytes, results),
            self._stored,
        )
        if results is None:
            on_done(item, job())
        else:
            self._settings.executor.start(job, partial(on_done, item))

    def _stored(self, item: Item, data: str | None) -> None:
        item.data = data
        self._happens(item, Event.STORED)

    def _complete(self, item: Item) -> None:
        settlement = transitions.complete(self._held(item), item.data)
        if item.actions:
            items = tuple(dict.fromkeys(self._items.of(item.actions)))
            committed = partial(self._committed, item, items)
            self._turns.enter(Operation(settlement, settlement.standing, committed, item.actions), items)
        else:
            self._add(item, settlement, self._completed)

    def _committed(self, item: Item, items: Sequence[ActionItem], done: Settling) -> None:
        self._turns.leave(item.index, items)
        answer = done.answer
        assert answer is not None  # it is told of when it has one
        refused = outcome.uncommitted(answer, item.actions, with_text=self._settings.error_texts)
        if refused is None:
            self._completed(item, done)
        elif item.claimed.written or not (isinstance(answer, Unavailable) and answer.retry):
            item.failure, _ = refused
            self._happens(item, Event.NOT_COMMITTED)
        elif done.contended:
            # Nothing is claimed and nothing done, so there is nothing to settle.
            self._happens(item, Event.SETTLED, outcome.Failed(refused[0], recorded=False))
        else:
            self._completed(item, done)

    def _completed(self, item: Item, done: Settling) -> None:
        answer: SettleAnswer = done.answer  # type: ignore[assignment]  # a failed action is a failure
        if isinstance(answer, ClaimLost) and not done.in_doubt and (claimed := self._once_more(item, answer)):
            item.claimed = claimed
            self._happens(item, Event.CLAIMED)
            return
        ending = outcome.of_completion(answer, item.claimed, self._deadline)
        if isinstance(ending, OtherPayload):
            item.failure = outcome.mismatch(ending)
            self._happens(item, Event.FAILED_FOR_GOOD)
        else:
            self._happens(item, Event.SETTLED, outcome.as_outcome(ending))

    def _once_more(self, item: Item, lost: ClaimLost) -> Claimed | None:
        """The claim with which a run may begin again at once. Of a group none does: what follows it may have begun
        elsewhere.
        """
        if item.work.group is not None or not self._progress.may_start(item):
            return None
        (version,) = self._deadline.clock.versions(1)
        return transitions.once_more(lost, item.claimed, self._deadline.now_ms, version)

    def _fail(self, item: Item) -> None:
        failure = item.failure
        self._add(item, transitions.fail(self._held(item), failure.to_json(), started=failure.started), self._failed)

    def _failed(self, item: Item, done: Settling) -> None:
        answer: SettleAnswer = done.answer  # type: ignore[assignment]
        item.recorded = isinstance(answer, Settled)
        if item.recorded and item.failure.permanent:
            self._happens(item, Event.FAILED_FOR_GOOD)
        else:
            ending = outcome.of_failure(answer, item.failure, item.claimed, self._deadline)
            self._happens(item, Event.SETTLED, outcome.as_outcome(ending))

    def _release(self, item: Item) -> None:
        if not item.claimed.written:
            self._happens(item, Event.SETTLED, self._progress.unstarted())
            return
        self._add(item, transitions.release(self._held(item), self._deadline.now_ms), self._released)

    def _released(self, item: Item, done: Settling) -> None:
        answer: SettleAnswer = done.answer  # type: ignore[assignment]
        self.released += isinstance(answer, Settled)
        ending = outcome.of_release(answer, item.claimed, self._deadline)
        self._happens(item, Event.SETTLED, outcome.as_outcome(ending))


def _unreachable(operations: Operations) -> str | None:
    """Why the store did not answer one of these, or refused all of several: then it would do so with the next, too. To
    lose to others' transactions again and again is an answer. So is a commit that is refused: its own actions may be at
    fault, and if not, its failure cannot be recorded either.
    """
    about_store = [one for one in operations if not (one.contended or one.own)]
    refused = [one.answer for one in about_store if isinstance(one.answer, Unavailable)]
    of_all = len(refused) == len(operations) > 1 and not any(one.actions for one in operations)
    return next((answer.why for answer in refused if answer.retry or of_all), None)
