"""What is done when the table in `items.py` asks for it, and which event each answer is.

Round and round: an event happens, the table names an action, the action starts something on the executor, its answer
becomes the next event, by way of `handler/endings.py` where it ends the item. It all runs on the receiving thread.
"""

from collections.abc import Callable
from functools import partial
from typing import cast

from idempotent_receiver.batch.claims import Claims
from idempotent_receiver.batch.dead_letters import DeadLetters
from idempotent_receiver.batch.items import Do, Event, Item, Stage
from idempotent_receiver.batch.progress import Progress
from idempotent_receiver.batch.runs import Runs
from idempotent_receiver.batch.settings import Settings
from idempotent_receiver.batch.settlements import Settlements
from idempotent_receiver.clock import Deadline
from idempotent_receiver.handler import endings
from idempotent_receiver.handler.attempt import Handled, Returned
from idempotent_receiver.handler.outcome import DeadLettered, Failed, NotStarted
from idempotent_receiver.handler.results import fits, kept
from idempotent_receiver.protocol import transitions
from idempotent_receiver.protocol.exchange import Operations, SettleAnswer, Unavailable, Unread, commit, exchange
from idempotent_receiver.protocol.store import ActionFailed, TransactionalStore
from idempotent_receiver.protocol.transitions import Claimable, Claimed, OtherPayload, Refusal, Settled


class Answers:
    """Takes the answers of one batch in, and counts what outcomes do not tell."""

    def __init__(self, progress: Progress, settings: Settings, deadline: Deadline) -> None:
        self._progress = progress
        self._happens = progress.happens
        self._deadline = deadline
        self._largest_record_bytes = settings.largest_record_bytes
        self._error_texts = settings.error_texts
        self.claims = self.taken_over = self.releases = 0

    def claimed(self, item: Item, answer: Claimed | Claimable | Refusal | Unavailable) -> None:
        """The store answered a peek or a claim."""
        match answer:
            case Claimed():
                item.claimed = answer
                self.claims += 1
                self.taken_over += answer.taken_over
                self._happens(item, Event.CLAIMED if self._progress.may_start(item) else Event.CLAIMED_LATE)
            case Claimable(seen) if self._progress.may_start(item):
                item.assumed = seen
                self._happens(item, Event.FREE)
            case Claimable():
                self._happens(item, Event.ANSWERED, NotStarted())
            case OtherPayload():
                item.failure = endings.mismatch(answer)
                self._happens(item, Event.FAILED_FOR_GOOD)
            case _:
                self._happens(item, Event.ANSWERED, endings.as_outcome(endings.of_claim(answer)))

    def handled(self, item: Item, handled: Handled) -> None:
        """The handler returned or raised."""
        if not isinstance(handled, Returned):
            item.failure = handled.failure
            self._happens(item, Event.RAISED)
            return
        item.data, item.actions = handled.data, handled.actions
        large = item.data is not None and not fits(item.claimed, item.data, self._largest_record_bytes)
        self._happens(item, Event.RETURNED_LARGE if large else Event.RETURNED)

    def stored(self, item: Item, data: str | None) -> None:
        """A large result is stored, or was dropped: what the record says of it."""
        item.data = data
        self._happens(item, Event.STORED)

    def committed(self, item: Item, answer: SettleAnswer | ActionFailed) -> None:
        """The store answered a commit."""
        refused = endings.uncommitted(answer, item.actions, with_text=self._error_texts)
        if refused is None:
            self.completed(item, cast(SettleAnswer, answer))
        else:
            item.failure, _ = refused
            self._happens(item, Event.NOT_COMMITTED)

    def completed(self, item: Item, answer: SettleAnswer) -> None:
        """The store answered a completion."""
        ending = endings.of_completion(answer, item.claim, self._deadline)
        self._happens(item, Event.SETTLED, endings.as_outcome(ending))

    def failed(self, item: Item, answer: SettleAnswer) -> None:
        """The store answered the record of a failure."""
        item.recorded = isinstance(answer, Settled)
        if item.recorded and item.failure.permanent:
            self._happens(item, Event.FAILED_FOR_GOOD)
        else:
            ending = endings.of_failure(answer, item.failure, item.claim, self._deadline)
            self._happens(item, Event.SETTLED, endings.as_outcome(ending))

    def released(self, item: Item, answer: SettleAnswer) -> None:
        """The store answered a release."""
        self.releases += isinstance(answer, Settled)
        ending = endings.of_release(answer, item.claim, self._deadline)
        self._happens(item, Event.SETTLED, endings.as_outcome(ending))

    def sent(self, item: Item, confirmed: bool) -> None:  # positional: the executor passes what the job returned
        """A dead letter is confirmed, or will not be."""
        failed = Failed(item.failure, recorded=item.recorded)
        self._happens(item, Event.SENT, DeadLettered(item.failure) if confirmed else failed)


class Actions:
    """The actions of one batch, and what they work with. A batch that sends no `dead_letters` has none."""

    def __init__(self, settings: Settings, progress: Progress, answers: Answers, deadline: Deadline) -> None:
        executor = settings.executor
        self._settings = settings
        self._progress = progress
        self._answers = answers
        self._deadline = deadline
        self.claims = Claims(self._start_exchange, answers.claimed)
        self.settlements = Settlements(self._start_exchange)
        send = settings.send_dead_letter
        self.dead_letters = None if send is None else DeadLetters(executor, send, answers.sent)
        self.runs = Runs(
            executor,
            deadline,
            answers.handled,
            concurrency=settings.concurrency,
            asynchronous=settings.asynchronous,
            stop_margin_seconds=settings.stop_margin_seconds,
            error_texts=settings.error_texts,
        )
        progress.actions |= {
            Do.ASK: self._ask,
            Do.LINE_UP: self.claims.line_up,
            Do.AWAIT_TURN: self._await_turn,
            Do.MAKE_READY: self.runs.ready.append,
            Do.STORE: self._store,
            Do.COMPLETE: self._complete,
            Do.FAIL: self._fail,
            Do.RELEASE: self._release,
            Do.SEND: self._send,
        }

    def line_up(self) -> None:
        """Let every item that waits for no other of its key ask for it, or wait for its turn to fail."""
        for item in self._progress.order.leaders:
            if item.stage is Stage.KEYLESS:
                self._await_turn(item)
            else:
                item.assumed = Unread() if item.work.seen_before else None
                self.claims.line_up(item)

    def stop(self) -> None:
        """Start nothing more. What coroutines have handed back without starting is let go of each time."""
        if not self._progress.stopped:
            self._progress.stop()
        for item in self.runs.stop():
            self._progress.happens(item, Event.STOPPED)

    def _start_exchange(self, operations: Operations, on_done: Callable[[Operations], None], max_retries: int) -> None:
        """Have the store asked, on another thread. What met an error goes on after the others' answers are used."""
        store, deadline = self._settings.store, self._deadline

        def done(pending: Operations) -> None:
            on_done([operation for operation in operations if operation.answer is not None])
            if pending:
                self._start_exchange(pending, on_done, max_retries)

        self._settings.executor.start(lambda: exchange(operations, store, deadline, max_retries=max_retries), done)

    def _ask(self, item: Item) -> None:
        # At once, however much is claimed ahead: what is held may be waiting for this one.
        item.assumed = Unread()
        self.claims.claim_now([item])

    def _await_turn(self, item: Item) -> None:
        if item.work.group is None or self._progress.order.has_turn(item):
            self._progress.happens(item, Event.TURN)

    def _store(self, item: Item) -> None:
        # Before the completion, which then tells where it is: elsewhere, for it may take its time.
        largest, results = self._settings.largest_record_bytes, self._settings.results
        job, on_done = partial(kept, item.claimed, item.data, largest, results), partial(self._answers.stored, item)
        if results is None:
            on_done(job())
        else:
            self._settings.executor.start(job, on_done)

    def _complete(self, item: Item) -> None:
        settlement = transitions.complete(item.claimed, item.data)
        if not item.actions:
            self.settlements.add(settlement, partial(self._answers.completed, item))
            return
        store = cast(TransactionalStore, self._settings.store)

        def done(answer: SettleAnswer | ActionFailed) -> None:
            self.runs.committed(item)
            self._answers.committed(item, answer)

        self._settings.executor.start(partial(commit, settlement, item.actions, store, self._deadline), done)

    def _fail(self, item: Item) -> None:
        settlement = transitions.fail(item.claimed, item.failure.to_json(), started=item.failure.started)
        self.settlements.add(settlement, partial(self._answers.failed, item))

    def _release(self, item: Item) -> None:
        settlement = transitions.release(item.claimed, self._deadline.now_ms)
        self.settlements.add(settlement, partial(self._answers.released, item))

    def _send(self, item: Item) -> None:
        if self.dead_letters is None or not item.failure.permanent:
            self._answers.sent(item, False)
        else:
            self.dead_letters.add(item, item.failure)
