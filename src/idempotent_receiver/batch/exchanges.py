"""Sends a batch's store requests on other threads, and makes peeks, claims and take-overs in chunks.

Each answer becomes an event in the table in `items.py`, via `handler/outcome.py` if it ends the item. An operation's
answer affects only its own item, unless a whole request failed.
"""

from collections.abc import Callable, Sequence
from functools import partial
from heapq import heappop, heappush

from idempotent_receiver.batch.apart import Apart
from idempotent_receiver.batch.items import Event, Item, Stage
from idempotent_receiver.batch.progress import NOT_SENT, Progress
from idempotent_receiver.batch.settings import Settings
from idempotent_receiver.batch.spent import Spent
from idempotent_receiver.clock import Deadline
from idempotent_receiver.handler import outcome
from idempotent_receiver.handler.outcome import NotSent, NotStarted
from idempotent_receiver.protocol.answers import (
    Claimable,
    ClaimableAlone,
    Exhausted,
    OtherPayload,
    Refusal,
    Unsent,
)
from idempotent_receiver.protocol.charges import must_be_alone
from idempotent_receiver.protocol.exchange import CLAIM_RETRIES, AnswerT, Exchanged, Operation, exchange
from idempotent_receiver.protocol.peek import Peek, PeekAnswer
from idempotent_receiver.protocol.record import Record, Unread
from idempotent_receiver.protocol.sending import TakeOver
from idempotent_receiver.protocol.store import READS_A_CALL, WRITES_A_CALL, Unknown
from idempotent_receiver.protocol.transitions import ClaimAnswer, Claimed, Settlement
from idempotent_receiver.transaction.outbox import NO_CLIENT, calls_in, from_text, sends_in

TakeOverAnswer = Claimable | ClaimAnswer

CLAIMS_A_CALL = WRITES_A_CALL
"""Maximum claims in a chunk. Each chunk is one request."""

MOST_CLAIMED_AHEAD = 8 * CLAIMS_A_CALL
"""Maximum claims that are held or in progress for unstarted items: at the deadline, eight requests release them."""

MOST_PEEKED = 8 * READS_A_CALL
"""Maximum items read at once: each request takes a thread and a connection."""


class Exchanges:
    """Sends requests to the store on other threads."""

    def __init__(self, settings: Settings, deadline: Deadline, spent: Spent) -> None:
        self._executor = settings.executor
        self._spans = settings.spans
        self._store, self._deadline, self._spent = settings.store, deadline, spent

    def start(
        self,
        operations: Sequence[Operation[AnswerT]],
        on_answers: Callable[[Sequence[Operation[AnswerT]]], None],
        *,
        max_retries: int,
    ) -> None:
        """Send `operations`. Those without an answer are retried once the others have been passed to `on_answers`."""

        def send() -> tuple[Exchanged, float]:
            began_seconds = self._deadline.elapsed_seconds
            exchanged = exchange(operations, self._store, self._deadline, max_retries=max_retries)
            return exchanged, self._deadline.elapsed_seconds - began_seconds

        def done(answered: tuple[Exchanged, float]) -> None:
            (pending, requests), seconds = answered
            self._spent.requests += requests
            transition: object = operations[0].transition
            if isinstance(transition, Settlement):
                self._spent.settle += seconds
            else:
                self._spent.claim += seconds
            on_answers([operation for operation in operations if operation.answer is not None])
            if pending:
                self.start(pending, on_answers, max_retries=max_retries)

        self._executor.start(send if self._spans is None else self._spans.exchange(operations, send), done)


class ClaimLine:
    """A batch's unclaimed items, the number of claims made, and how many of the claims took over from a worker that
    never settled its claim.
    """

    def __init__(self, settings: Settings, progress: Progress, deadline: Deadline, exchanges: Exchanges) -> None:
        self._exchanges = exchanges
        self._unclaimed = settings.unclaimed
        self._lent = settings.lender is not None
        self._sends, self._callees = settings.send_messages is not None, settings.callees
        self._host = settings.host
        self._deadline = deadline
        self._progress = progress
        self.unread: list[tuple[int, Item]] = []
        self.waiting: list[tuple[int, Item]] = []
        self.apart = Apart(progress.order)
        self.unsent: list[Item] = []
        """Items whose records must be taken over before their messages are sent and their calls made."""
        self._peeking = 0
        self.asking = 0
        """Items awaiting a store response."""
        self.claimed = self.taken_over = 0

    def line_up(self, item: Item) -> None:
        """Queue an item, in batch order, to be read or claimed, alone or with others. A store that runs handlers reads
        by itself.
        """
        if self._lent:
            item.assumed = None
        if item.stage is Stage.WAITING and not isinstance(item.assumed, Unread) and item.claim.alone:
            self.apart.add(item)
            return
        line = self.unread if isinstance(item.assumed, Unread) else self.waiting
        heappush(line, (item.index, item))

    def peek(self) -> None:
        """Read items that were received before: a completed one costs one read and no write."""
        while self.unread and self._peeking < MOST_PEEKED and (chunk := self._take(self.unread, READS_A_CALL)):
            self._peek(chunk)

    def claim(self, ahead: int) -> None:
        """Claim the next items in batch order, unless too many claims are held (`ahead`) or in progress.

        No claims are sent while peeks are in progress: on a standard queue, messages with the most receives go first.
        Batch order prevents deadlock: items claimed ahead wait only for earlier items, which were requested first.
        Items that were set apart come last, each alone.
        """
        if self.apart:
            for item in self.apart.freed():
                heappush(self.waiting, (item.index, item))
            if self.apart.busy:
                return
        while self.waiting and not self.unread and self._peeking == 0:
            if self._unclaimed:
                self._begin_unclaimed(self._take(self.waiting, len(self.waiting)))
            elif MOST_CLAIMED_AHEAD - ahead - self.asking < min(CLAIMS_A_CALL, len(self.waiting)):
                return
            elif chunk := self._take(self.waiting, CLAIMS_A_CALL):
                self._claim(chunk)
        if self.apart and not self.unread and (alone := self.apart.next()) is not None:
            self._claim_alone(alone)

    def _claim_alone(self, item: Item) -> None:
        """Claim an item that may kill this process, or leave all that are set apart to their next delivery: outside
        Lambda, if other batches would die with it. On Lambda, a killed batch acknowledges nothing, and would send its
        dead letters again.
        """
        host = self._host
        if self._progress.dead_lettered if host is None else not host.exclusive:
            for each in [item, *self.apart.clear()]:
                if each.stage is Stage.WAITING:
                    if host is not None and each.claim.alone:
                        host.set_apart(each.index)
                    self._progress.happens(each, Event.STOPPED, NotStarted())
            return
        self._progress.happens(item, Event.ASKS)
        self._claim([item])

    def take_over(self) -> None:
        """Take over the records of unsent items. Once the batch has stopped, no time is left to send."""
        unsent, self.unsent = self.unsent, []
        if self._progress.stopped:
            for item in unsent:
                self._progress.happens(item, Event.ANSWERED, NotSent(NOT_SENT, out_of_time=True))
            return
        for start in range(0, len(unsent), CLAIMS_A_CALL):
            chunk = unsent[start : start + CLAIMS_A_CALL]
            self.asking += len(chunk)
            self._announce(chunk)
            operations: list[Operation[TakeOverAnswer]] = [
                Operation(TakeOver(item.claim), item.assumed, partial(self._took_over, item)) for item in chunk
            ]
            self._exchanges.start(operations, self._answered, max_retries=CLAIM_RETRIES)

    def line_up_unsent(self, item: Item) -> None:
        """Queue an item to be taken over, if this consumer can send and call what its record has."""
        assert isinstance(item.assumed, Record)  # it was read
        if (why := self._cannot_send(item.assumed)) is not None:
            self._progress.happens(item, Event.ANSWERED, NotSent(why))
        elif must_be_alone(item.assumed, item.claim.allowance) and not item.claim.alone:
            self._set_apart(item, item.assumed)
        else:
            self.unsent.append(item)

    def _cannot_send(self, found: Record) -> str | None:
        try:
            left = from_text(found.outbox)
        except Exception as error:  # noqa: BLE001  # it may have been edited by hand; no other message is affected
            return f"its record's outbox cannot be read: {type(error).__name__}"
        if sends_in(left) and not self._sends:
            return f"it has messages to send: {NO_CLIENT}"
        return next(filter(None, map(self._callees.unknown, calls_in(left).values())), None)

    def ask(self, item: Item) -> None:
        """Read or claim an item at once, even if many are claimed ahead: claimed items may be waiting for this one."""
        if self._lent:
            item.assumed = None
            self._begin_unclaimed([item])
            return
        item.assumed = Unread()
        self._peek([item]) if self._unclaimed else self._claim([item])

    def _take(self, line: list[tuple[int, Item]], most: int) -> list[Item]:
        """The next items in line, without those that have ended or wait behind an item that is set apart."""
        taken: list[Item] = []
        apart = self.apart if line is self.waiting and self.apart else None
        while line and len(taken) < most:
            _, item = heappop(line)
            if item.stage is Stage.WAITING and (apart is None or not apart.holds_up(item)):
                self._progress.happens(item, Event.ASKS)
                taken.append(item)
        return taken

    def _begin_unclaimed(self, chunk: Sequence[Item]) -> None:
        now_ms, versions = self._deadline.now_ms, self._deadline.clock.versions(len(chunk))
        for item, version in zip(chunk, versions, strict=True):
            assert not isinstance(item.assumed, Unread)  # it was read
            item.basis = item.claim.unclaimed(item.assumed, now_ms, version)
            self._progress.happens(item, Event.CLAIMED)

    def _peek(self, chunk: Sequence[Item]) -> None:
        self._peeking += len(chunk)
        self.asking += len(chunk)
        operations: list[Operation[PeekAnswer]] = [
            Operation(Peek(item.claim), Unread(), partial(self._peeked, item)) for item in chunk
        ]
        self._exchanges.start(operations, self._peeks_answered, max_retries=CLAIM_RETRIES)

    def _claim(self, chunk: Sequence[Item]) -> None:
        self.asking += len(chunk)
        self._announce(chunk)
        operations = [Operation(item.claim, item.assumed, partial(self._claimed, item)) for item in chunk]
        self._exchanges.start(operations, self._answered, max_retries=CLAIM_RETRIES)

    def _announce(self, chunk: Sequence[Item]) -> None:
        if self._host is not None:
            self._host.claiming([item.claim.id for item in chunk])

    def _peeks_answered(self, operations: Sequence[Operation[PeekAnswer]]) -> None:
        self._peeking -= len(operations)
        self._answered(operations)

    def _answered(self, operations: Sequence[Operation[AnswerT]]) -> None:
        self.asking -= len(operations)
        for operation in operations:
            operation.on_done(operation)
        if (self.unread or self.waiting or self.apart) and (silence := _out_of_reach(operations)) is not None:
            # Further requests would only delay the other items.
            for item in self.apart.clear():
                heappush(self.waiting, (item.index, item))
            for item in [*self._take(self.unread, len(self.unread)), *self._take(self.waiting, len(self.waiting))]:
                self._refused(item, silence)

    def _claimed(self, item: Item, done: Operation[ClaimAnswer]) -> None:
        answer, host = done.answered, self._host
        if not isinstance(answer, Claimed):
            self._refused(item, answer)
            return
        item.basis = answer if host is None else host.claimed(answer)
        self.claimed += 1
        self.taken_over += answer.taken_over
        self._progress.happens(item, Event.CLAIMED if self._progress.may_start(item) else Event.CLAIMED_LATE)

    def _took_over(self, item: Item, done: Operation[TakeOverAnswer]) -> None:
        answer, host = done.answered, self._host
        if isinstance(answer, Claimed):
            item.sending = answer if host is None else host.claimed(answer)
            self._progress.happens(item, Event.COMMITTED)
        elif isinstance(answer, Claimable):
            # The record has expired or failed in the meantime.
            self._not_claimed(item)
            self._free(item, answer)
        else:
            self._refused(item, answer)

    def _peeked(self, item: Item, done: Operation[PeekAnswer]) -> None:
        answer = done.answered
        if not isinstance(answer, Claimable):
            self._refused(item, answer)
        else:
            self._free(item, answer)

    def _free(self, item: Item, answer: Claimable) -> None:
        if self._progress.may_start(item):
            item.assumed = answer.seen
            self._progress.happens(item, Event.FREE)
        else:
            self._progress.happens(item, Event.ANSWERED, self._progress.unstarted())

    def _set_apart(self, item: Item, seen: Record) -> None:
        item.claim = item.claim._replace(alone=True)
        self._free(item, Claimable(seen))

    def _refused(self, item: Item, answer: Refusal | Unknown) -> None:
        self._not_claimed(item)
        if not isinstance(answer, ClaimableAlone):
            refuse(self._progress, item, answer)
        elif self._unclaimed:
            self._free(item, Claimable(answer.seen))  # a crash had no effect: only what is recorded counts
        else:
            self._set_apart(item, answer.seen)

    def _not_claimed(self, item: Item) -> None:
        if self._host is not None:
            self._host.not_claimed(item.claim.id)


def refuse(progress: Progress, item: Item, answer: Refusal | Unknown) -> None:
    """Continue with an item whose handler does not run, because its record or the store's failure decides."""
    if isinstance(answer, Unsent):
        item.assumed = answer.record
        progress.happens(item, Event.LEFT_UNSENT)
    elif isinstance(answer, Exhausted):
        item.failure, item.recorded = outcome.of_exhausted(answer.record), True
        progress.happens(item, Event.FAILED_FOR_GOOD)
    elif isinstance(answer, OtherPayload):
        item.failure = outcome.mismatch(answer)
        progress.happens(item, Event.FAILED_FOR_GOOD)
    else:
        progress.happens(item, Event.ANSWERED, outcome.as_outcome(outcome.of_claim(answer)))


def _out_of_reach(operations: Sequence[Operation[AnswerT]]) -> Unknown | None:
    """The answer for all waiting items if a whole request failed, otherwise None. A lone operation that was refused at
    once may itself be at fault.
    """
    silent = [operation.answer for operation in operations if isinstance(operation.answer, Unknown)]
    of_all = len(silent) == len(operations) and (len(operations) > 1 or silent[0].retry)
    return silent[0] if of_all else None
