"""Settles a batch's runs: settlements that are ready at about the same time share a request, and so do transactions.

Each store answer becomes an event in the table in `items.py`, via `handler/outcome.py` if it ends the item.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Generic

from idempotent_receiver.batch.exchanges import Exchanges
from idempotent_receiver.batch.items import Event, Item
from idempotent_receiver.batch.progress import Progress
from idempotent_receiver.batch.settings import Settings
from idempotent_receiver.batch.turns import Turns
from idempotent_receiver.clock import Deadline
from idempotent_receiver.handler import outcome
from idempotent_receiver.handler.attempt import MOST_RUNS
from idempotent_receiver.protocol import charges, sending, transitions
from idempotent_receiver.protocol.answers import ClaimLost, OtherPayload, Settled, SettleResult
from idempotent_receiver.protocol.exchange import CLAIM_RETRIES, SETTLE_RETRIES, AnswerT, Operation
from idempotent_receiver.protocol.record import Record, Status
from idempotent_receiver.protocol.store import WRITES_A_CALL, WRITES_A_COMMIT, ActionFailed, Unknown
from idempotent_receiver.protocol.transitions import Basis, Claimed, Settlement, Unclaimed

Settling = Operation[SettleResult]
Committing = Operation[SettleResult | ActionFailed]

LINGER_SECONDS = 0.002
"""Maximum seconds that a settlement waits for others: less than a round trip, and too short to add much crash risk."""


class SettleLine(Generic[AnswerT]):
    """Operations that wait to share a request of up to `most` writes. The request is sent when it is full, 2 ms after
    the oldest operation arrived, or in a hurry.
    """

    def __init__(self, most: int, leave: Callable[[Sequence[Operation[AnswerT]]], None]) -> None:
        self._most = most
        self._leave = leave
        self.waiting: list[tuple[Operation[AnswerT], int]] = []
        """The operations, each with its number of writes."""
        self._writes = 0
        self.due_seconds: float | None = None
        """When the next request must be sent, in seconds since the invocation's start; None if nothing waits."""

    def add(self, operation: Operation[AnswerT]) -> None:
        """Queue an operation."""
        writes = _writes_of(operation)
        self.waiting.append((operation, writes))
        self._writes += writes

    def flush(self, elapsed_seconds: float, *, hurry: bool) -> None:
        """Send full and overdue requests, or all if `hurry`: then nothing in progress could still join them."""
        anew = elapsed_seconds + LINGER_SECONDS
        due = anew if self.due_seconds is None else self.due_seconds
        overdue = elapsed_seconds >= due
        while self.waiting and (hurry or overdue or self._writes >= self._most):
            self._leave(self._take())
            due = anew
        self.due_seconds = due if self.waiting else None

    def _take(self) -> Sequence[Operation[AnswerT]]:
        """The next request's operations. A single operation may exceed the limit by itself."""
        taken: list[Operation[AnswerT]] = []
        total = 0
        for operation, writes in self.waiting:
            if taken and total + writes > self._most:
                break
            taken.append(operation)
            total += writes
        self._writes -= total
        del self.waiting[: len(taken)]
        return taken


def _writes_of(operation: Operation[AnswerT]) -> int:
    """The number of writes. Checks do not count: commits in one request may share them."""
    if not operation.actions:
        return 1
    return 1 + len([action for action in operation.actions if action.kind != "ConditionCheck"])


class Settlements:
    """Settles runs by group commit, with one line for settlements and one for transactions."""

    def __init__(
        self, settings: Settings, progress: Progress, deadline: Deadline, turns: Turns, exchanges: Exchanges
    ) -> None:
        self._exchanges = exchanges
        self._settings = settings
        self._progress = progress
        self._happens = progress.happens
        self._deadline = deadline
        self._settling = SettleLine[SettleResult](WRITES_A_CALL, self._send)
        self._committing = SettleLine[SettleResult | ActionFailed](WRITES_A_COMMIT, self._send_commits)
        self.lines = (self._settling, self._committing)
        self._turns = turns
        self.committing = 0
        """Transactions awaiting a store response. They may still bring messages to send."""
        self.released = 0

    def complete(self, item: Item) -> None:
        """Record that the handler succeeded, with its transaction if any."""
        if item.settled is not None:
            self._end_completed(item, item.settled)
            return
        now_ms = 0 if item.outbox is None else self._deadline.now_ms
        settlement = transitions.complete(self._settled_by(item), item.data, item.outbox, now_ms)
        self._settle(item, settlement, self._completed)

    def mark(self, item: Item) -> None:
        """Record that all in an item's outbox is done."""
        assert item.sending is not None  # it has messages
        settlement = sending.mark(self._no_longer_renewed(item.sending))
        self._settling.add(Operation(settlement, settlement.standing, partial(self._marked, item)))

    def stop(self, item: Item) -> None:
        """Record what is left of an item's outbox, and end the lease."""
        assert item.sending is not None  # it has messages
        held, not_sent = self._no_longer_renewed(item.sending), item.not_sent
        allowance, cost = item.claim.allowance, charges.on_release(held.record)
        if allowance is not None and not_sent is not None:
            asked = not_sent.failure
            final = asked is not None and allowance.over(self._deadline.now_ms, asked)
            cancelled = asked is not None and asked.cancelled
            cost = charges.on_failure(
                held.record, allowance, charged=not_sent.charged, final=final, cancelled=cancelled
            )
            if cost.message is not None:
                failure = asked or outcome.of_outbox(item.outbox)
                item.failure, item.not_sent = outcome.with_cost(failure, cost, allowance), None
            elif asked is not None:
                item.not_sent = replace(not_sent, failure=outcome.with_cost(asked, cost, allowance))
        settlement = sending.stop(held, str(item.outbox), self._deadline.now_ms, cost)
        self._settling.add(Operation(settlement, settlement.standing, partial(self._stopped, item)))

    def keep(self, item: Item, outbox: str) -> None:
        """Record what is left of an item's outbox, while more of it is being done."""
        assert item.sending is not None  # it has an outbox
        (version,) = self._deadline.clock.versions(1)
        held, host = item.sending, self._settings.host
        known = {*held.renewed, version}
        item.sending = held = replace(held, renewed=known) if host is None else host.announced(held, version)
        settlement = sending.checkpoint(held, outbox, self._deadline.now_ms, version)
        self._settling.add(Operation(settlement, settlement.standing, partial(self._kept, item)))

    def fail(self, item: Item) -> None:
        """Record that the handler failed. If no retry can help, the checks of the handler's reads are included."""
        if item.settled is not None:
            self._end_failed(item, item.settled)
            return
        basis = self._settled_by(item)
        item.failure, cost = outcome.charge(basis.record, item.failure, item.claim.allowance, self._deadline.now_ms)
        settlement = transitions.fail(basis, item.failure.to_json(), started=item.failure.started, charged=cost)
        self._settle(item, settlement, self._failed)

    def _settle(self, item: Item, settlement: Settlement, on_done: Callable[[Item, Settling], None]) -> None:
        """Send a settlement. If the item has actions, send both when the item's turn comes."""
        if item.actions:
            item.again = False
            operation: Committing = Operation(
                settlement, settlement.standing, partial(self._committed, item, on_done), item.actions
            )
            self._turns.enter(item.index, item.actions, partial(self._commit, item, operation), item.since)
        else:
            if item.again:
                # It ran again and has nothing to commit.
                item.again = False
                self._turns.leave(item.index, applied=False)
            self._settling.add(Operation(settlement, settlement.standing, partial(on_done, item)))

    def release(self, item: Item) -> None:
        """Release the claim, if any. An item that should have run again counts as failed."""
        if item.again:
            self.fail(item)
            return
        basis = self._settled_by(item)
        if isinstance(basis, Unclaimed):
            self._happens(item, Event.SETTLED, self._progress.unstarted())
            return
        settlement = transitions.release(basis, self._deadline.now_ms)
        self._settling.add(Operation(settlement, settlement.standing, partial(self._released, item, basis)))

    def _settled_by(self, item: Item) -> Basis:
        """The basis to settle. From now on, its claim's lease is not renewed."""
        if isinstance(item.basis, Claimed):
            item.basis = self._no_longer_renewed(item.basis)
        return item.basis

    def _no_longer_renewed(self, held: Claimed) -> Claimed:
        host = self._settings.host
        return held if host is None else host.settling(held)

    def _send_commits(self, operations: Sequence[Committing]) -> None:
        self._turns.close()
        self.committing += len(operations)
        self._send(operations)

    def _send(self, operations: Sequence[Operation[AnswerT]]) -> None:
        # Until its commit, an unclaimed run has no effect, so a redelivery is better than waiting for the store.
        max_retries = CLAIM_RETRIES if self._settings.unclaimed else SETTLE_RETRIES
        self._exchanges.start(operations, self._answered, max_retries=max_retries)

    def _answered(self, operations: Sequence[Operation[AnswerT]]) -> None:
        if self._settings.unclaimed:
            self._progress.unreachable = self._progress.unreachable or _unreachable(operations)
        for operation in operations:
            self.committing -= bool(operation.actions)
            operation.on_done(operation)

    def _commit(self, item: Item, operation: Committing, stale: int | None) -> None:
        """Send a commit, unless a read is already known to be stale and the item can run again."""
        if stale is None or not self._run_again(item, ActionFailed(stale, stale=True)):
            self._committing.add(operation)

    def _committed(self, item: Item, on_done: Callable[[Item, Settling], None], done: Committing) -> None:
        answer = done.answered
        if isinstance(answer, ActionFailed) and answer.stale and self._run_again(item, answer):
            return
        self._turns.leave(item.index, applied=isinstance(answer, Settled))
        if isinstance(answer, ActionFailed | Unknown):
            self._not_committed(item, answer, contended=done.contended, own=done.own)
        else:
            on_done(item, done)  # type: ignore[arg-type]  # its answer is a settlement's

    def _run_again(self, item: Item, stale: ActionFailed) -> bool:
        """Run an item again within its turn if allowed; return whether it was. Meanwhile, no other commit in this batch
        changes the data that it reads.
        """
        if item.runs >= MOST_RUNS or not self._progress.may_start(item):
            return False
        basis, host = item.basis, self._settings.host
        if isinstance(basis, Unclaimed):
            (version,) = self._deadline.clock.versions(1)
            item.basis = basis.claim.unclaimed(basis.over, self._deadline.now_ms, version)
        elif host is not None:
            resumed = host.resumed(basis)
            if resumed is None:
                return False
            item.basis = resumed
        item.failure, _ = outcome.uncommitted(stale, item.actions, with_text=self._settings.error_texts)
        item.actions, item.again = (), True
        self._happens(item, Event.STALE)
        return True

    def _not_committed(self, item: Item, answer: ActionFailed | Unknown, *, contended: bool, own: bool) -> None:
        failure, _ = outcome.uncommitted(answer, item.actions, with_text=self._settings.error_texts, own=own)
        item.actions = ()
        if isinstance(item.basis, Claimed) or not (isinstance(answer, Unknown) and answer.retry):
            item.failure = failure
            self._happens(item, Event.NOT_COMMITTED)
        elif contended:
            # Nothing is claimed or committed, so there is nothing to settle.
            self._happens(item, Event.SETTLED, outcome.Failed(failure, recorded=False))
        else:
            self._end_completed(item, answer)

    def _completed(self, item: Item, done: Settling) -> None:
        self._end_completed(item, done.answered, in_doubt=done.in_doubt)

    def _end_completed(self, item: Item, answer: SettleResult | Unknown, *, in_doubt: bool = False) -> None:
        if isinstance(answer, ClaimLost) and not in_doubt and (again := self._once_more(item, answer)) is not None:
            item.basis = again
            self._happens(item, Event.CLAIMED)
            return
        if isinstance(answer, Settled) and answer.record.status == Status.SENDING:
            self._committed_sends(item, answer.record)
            return
        ending = outcome.of_completion(answer, item.basis, self._deadline)
        if isinstance(ending, OtherPayload):
            item.failure = outcome.mismatch(ending)
            self._happens(item, Event.FAILED_FOR_GOOD)
        else:
            self._happens(item, Event.SETTLED, outcome.as_outcome(ending))

    def _committed_sends(self, item: Item, record: Record) -> None:
        """Send the messages in the record, under its lease."""
        host, held = self._settings.host, Claimed(record, item.claim)
        renewed = held if host is None else host.resumed(held)
        if renewed is None:
            item.not_sent = outcome.NotSent("its lease ends too soon to send its messages", out_of_time=True)
        item.sending = renewed or held
        self._happens(item, Event.COMMITTED)

    def _marked(self, item: Item, done: Settling) -> None:
        """End the item. A mark by another worker counts as well."""
        self._happens(
            item, Event.SETTLED, outcome.of_mark(done.answered, item.claim, self._deadline, ran=item.runs > 0)
        )

    def _kept(self, item: Item, done: Settling) -> None:
        """Go on from what is recorded now. Without an answer, later settlements find out."""
        assert item.sending is not None  # it has an outbox
        if isinstance(done.answered, Settled):
            item.sending = replace(item.sending, record=done.answered.record)

    def _stopped(self, item: Item, done: Settling) -> None:
        """End the item, or send its dead letter: only once its record says what is left."""
        if item.not_sent is None and isinstance(done.answered, Settled):
            self._happens(item, Event.FAILED_FOR_GOOD)
        else:
            not_sent = item.not_sent or outcome.NotSent(item.failure.reason)
            self._happens(item, Event.SETTLED, outcome.of_stop(done.answered, item.claim, self._deadline, not_sent))

    def _once_more(self, item: Item, lost: ClaimLost) -> Unclaimed | None:
        """The basis for running an unclaimed item again at once. None for an item in a group: a later message of the
        group may have started elsewhere.
        """
        basis = item.basis
        if isinstance(basis, Claimed) or item.work.group is not None or not self._progress.may_start(item):
            return None
        (version,) = self._deadline.clock.versions(1)
        return transitions.once_more(lost, basis, self._deadline.now_ms, version)

    def _failed(self, item: Item, done: Settling) -> None:
        self._end_failed(item, done.answered)

    def _end_failed(self, item: Item, answer: SettleResult | Unknown) -> None:
        item.recorded = isinstance(answer, Settled)
        if item.recorded and item.failure.for_good:
            self._happens(item, Event.FAILED_FOR_GOOD)
        else:
            ending = outcome.of_failure(answer, item.failure, item.basis, self._deadline)
            self._happens(item, Event.SETTLED, outcome.as_outcome(ending))

    def _released(self, item: Item, held: Claimed, done: Settling) -> None:
        self.released += isinstance(done.answered, Settled)
        ending = outcome.of_release(done.answered, held, self._deadline)
        self._happens(item, Event.SETTLED, outcome.as_outcome(ending))


def _unreachable(operations: Sequence[Operation[AnswerT]]) -> str | None:
    """Why the store failed, if it did not answer one of `operations`, or if it refused several and accepted none: the
    next request would fail too.

    Losing repeatedly to other transactions counts as an answer. So does a refused commit: its own actions may be at
    fault, and if they are not, recording its failure fails too.
    """
    about_store = [one for one in operations if not (one.contended or one.own)]
    refused = [one.answer for one in about_store if isinstance(one.answer, Unknown)]
    of_all = len(refused) == len(operations) > 1 and not any(one.actions for one in operations)
    return next((answer.why for answer in refused if answer.retry or of_all), None)
