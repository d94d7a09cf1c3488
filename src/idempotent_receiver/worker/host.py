"""A batch's host outside Lambda: renews leases, and acknowledges each message to SQS as soon as it has an outcome."""

import inspect
import math
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Semaphore
from typing import TYPE_CHECKING, Any

from idempotent_receiver.batch.items import Work
from idempotent_receiver.clock import Clock
from idempotent_receiver.handler.attempt import Attempt
from idempotent_receiver.handler.outcome import SUCCEEDED, Completed, HeldElsewhere, NotStarted, Outcome
from idempotent_receiver.sqs.message import Message
from idempotent_receiver.sqs.visibility import LONGEST_VISIBILITY_SECONDS, Backoff, visibility_seconds
from idempotent_receiver.worker.in_flight import InFlight
from idempotent_receiver.worker.leases import Leases
from idempotent_receiver.worker.polling import Acknowledgements
from idempotent_receiver.worker.reports import Reports
from idempotent_receiver.worker.suspects import Suspects

if TYPE_CHECKING:
    from idempotent_receiver.batch.event_loop import Begun


@dataclass(frozen=True, slots=True)
class QueueAnswers:
    """Acknowledges each message to SQS: deletes it, or sets when it becomes visible again."""

    acknowledgements: Acknowledgements
    backoff: Backoff
    clock: Clock
    left_to_sqs: bool

    def give(self, message: Message, outcome: Outcome, most_seconds: float, failed: dict[str, int]) -> None:
        """Acknowledge one message according to its outcome, with a visibility timeout of at most `most_seconds`.

        `failed` maps each failed FIFO group to its visibility timeout: messages stopped behind a failure get the same.
        """
        if isinstance(outcome, SUCCEEDED):
            self.acknowledgements.delete(message.receipt_handle)
            return
        seconds = min(self._seconds(message, outcome), max(0, math.floor(most_seconds)))
        if message.fifo and message.group_id is not None:
            if isinstance(outcome, NotStarted):
                seconds = failed.get(message.group_id, seconds)
            else:
                failed.setdefault(message.group_id, seconds)
        self.acknowledgements.change(message.receipt_handle, seconds)

    def _seconds(self, message: Message, outcome: Outcome) -> int:
        now_ms = self.clock.epoch_ms()
        seconds = visibility_seconds(message, outcome, self.backoff, now_ms, self.clock, left_to_sqs=self.left_to_sqs)
        if isinstance(outcome, HeldElsewhere) and seconds > 0:
            # A renewed lease has no known end to wait for, and retrying often would use up receives.
            seconds = max(seconds, self.backoff.seconds(message.receive_count, self.clock))
        return seconds


class WorkerHost:
    """See `batch.settings.Host`."""

    def __init__(
        self,
        messages: Sequence[Message],
        works: list[Work],
        *,
        leases: Leases,
        batch: object,
        in_flight: InFlight,
        answers: QueueAnswers,
        reports: Reports,
        draining: Callable[[], bool],
        suspects: Suspects,
        slots: Semaphore,
        exclusive: bool = False,
        crashes_recorded: bool = False,
        suspected_seconds: float = 0.0,
    ) -> None:
        self._crashes_recorded = crashes_recorded
        self._suspected_seconds = suspected_seconds
        self.exclusive = exclusive
        self.claiming = partial(leases.claiming, batch=batch)
        self.claimed = partial(leases.claimed, batch=batch)
        self.not_claimed = partial(leases.not_claimed, batch=batch)
        self.settling = leases.settling
        self.announced = leases.announced
        self.resumed = partial(leases.resumed, batch=batch)
        self.draining = draining
        self.take_slot = partial(slots.acquire, blocking=False)
        self.free_slot = slots.release
        self._pid = os.getpid()
        self._in_flight = in_flight
        self._answers = answers
        self._reports = reports
        self._suspects = suspects
        self._messages = messages
        self._failed: dict[str, int] = {}
        self._released: set[int] = set()
        self._begun: dict[int, Begun] = {}
        self._began_seconds = answers.clock.monotonic_seconds()
        for index, work in enumerate(works):
            works[index] = work._replace(handle=partial(self._run, index, work.handle))
        in_flight.keying([messages[index].receipt_handle for index, work in enumerate(works) if callable(work.claim)])

    def keyed(self, known: Sequence[tuple[int, str]]) -> None:
        """Report which records messages' claims are for."""
        self._in_flight.keyed([self._messages[index].receipt_handle for index, _ in known])
        self._reports.claims((self._messages[index].receipt_handle, id) for index, id in known)

    def ended(self, index: int, outcome: Outcome) -> None:
        """Acknowledge a message to SQS, now that it has its outcome."""
        message, begun = self._messages[index], self._begun.pop(index, None)
        if begun is not None and isinstance(outcome, Completed):
            # Such as the connection of a client that the module keeps: unlike Lambda, this process is not frozen.
            begun.goes_on = True
        # SQS hides a message for at most twelve hours after its receive, and the handler may have used most of them.
        gone_seconds = self._answers.clock.monotonic_seconds() - self._began_seconds
        most_seconds = LONGEST_VISIBILITY_SECONDS - gone_seconds
        if index in self._released and isinstance(outcome, NotStarted) and outcome.released:
            most_seconds = 0.0  # any free worker may take it
        # Report first: once it has no messages, the process may exit, and that must not look like a crash.
        self._reports.ended(message.receipt_handle)
        if self.exclusive and self._crashes_recorded and not isinstance(outcome, NotStarted):
            self._suspects.keep(message.id, 0)  # from now on, its record says whether it runs alone
        give = partial(self._answers.give, message, outcome, most_seconds, self._failed)
        self._in_flight.answered([message.receipt_handle], give)

    def set_apart(self, index: int) -> None:
        """Suspect a message whose record says that it has crashed: once it is received again, it runs alone."""
        self._suspects.keep(self._messages[index].id, self._suspected_seconds)

    def releases(self, index: int) -> bool:
        """Whether to return a message that waits behind a long-running handler: only once, because each receive brings
        it closer to the dead-letter queue. A FIFO message keeps its place, and a suspect runs here, alone.
        """
        message = self._messages[index]
        released = message.receive_count == 1 and message.id not in self._suspects and not message.fifo
        if released:
            self._released.add(index)
        return released

    def _run(self, index: int, handle: Callable[[Attempt], Any], attempt: Attempt) -> Any:
        receipt = self._messages[index].receipt_handle
        self._in_flight.started(receipt)
        self._reports.started(receipt)
        awaited = False
        try:
            result = handle(attempt)
            awaited = inspect.isawaitable(result)
            return self._awaited(index, result) if awaited else result
        finally:
            if not awaited:
                self._returned(receipt)

    async def _awaited(self, index: int, result: Awaitable[Any]) -> Any:
        from idempotent_receiver.batch.event_loop import begun_by_handler  # noqa: PLC0415  # plain handlers need none

        try:
            if (begun := begun_by_handler()) is not None:
                self._begun[index] = begun
            return await result
        finally:
            self._returned(self._messages[index].receipt_handle)

    def _returned(self, receipt: str) -> None:
        if os.getpid() != self._pid:
            os._exit(1)  # in a process forked by the handler, returning would run the rest of the batch again
        self._in_flight.returned(receipt)
