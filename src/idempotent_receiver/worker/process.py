"""One worker process: polls the queue, runs the consumer's own pipeline, and acknowledges messages to SQS.

Batches overlap: the next is received once every message in the previous one has started and a handler slot is free. At
most one batch waits here, sized to run within a second. If a long-running handler keeps it waiting, its messages return
to the queue so that another process can run them.
"""

import logging
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from idempotent_receiver.batch.settings import AHEAD_SECONDS
from idempotent_receiver.clock import Clock, Deadline
from idempotent_receiver.sqs.consumer import Consumer
from idempotent_receiver.sqs.visibility import MOST_ENTRIES
from idempotent_receiver.worker.host import QueueAnswers, WorkerHost
from idempotent_receiver.worker.in_flight import InFlight
from idempotent_receiver.worker.leases import Leases
from idempotent_receiver.worker.polling import (
    POLL_WAIT_SECONDS,
    Acknowledgements,
    PolledQueue,
    error_name,
    send_in_tens,
)
from idempotent_receiver.worker.reports import Reports
from idempotent_receiver.worker.suspects import SUSPECTED_LEASES, Suspects

logger = logging.getLogger("idempotent_receiver.worker")

SHORTEST_RUN_SECONDS = 0.001
"""Shorter runs are treated as taking this long."""

PROCESS_LOOK_SECONDS = 0.5
"""The interval between a process's checks for draining and for overdue handlers."""

LONGEST_LOG_SECONDS = 0.5
"""How long a dying process waits for its last log line to be written."""

LONGEST_END_SECONDS = 5.0
"""How long a process waits for each batch to write its metrics, once all messages are acknowledged."""

LONGEST_POLL_PAUSE_SECONDS = 5.0
"""The longest pause after a failed poll; pauses average half of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """A worker process's limits; times are in seconds. It receives at most `receive` messages per poll, and
    `max_messages` in total.
    """

    concurrency: int = 1
    lease_seconds: float = 60.0
    margin_seconds: float = 3.0
    time_limit_seconds: float = 12 * 60 * 60
    wait_seconds: int = POLL_WAIT_SECONDS
    receive: int = MOST_ENTRIES
    max_messages: int | None = None


class Process:
    """Polls one queue until it must drain, or has received `max_messages`. `restarts` is the number of dead processes
    that it counts.
    """

    def __init__(
        self,
        consumer: Consumer,
        queue: PolledQueue,
        *,
        leases: Leases,
        limits: Limits,
        reports: Reports,
        clock: Clock,
        restarts: int = 0,
    ) -> None:
        self.draining = False
        """Set to drain: no more handlers start, and `run` returns once none are running."""
        self._queue = queue
        self._leases = leases
        self._limits = limits
        self._reports = reports
        self._clock = clock
        self._consumer = consumer
        self._in_flight = InFlight(clock)
        self._acknowledgements = Acknowledgements(queue, logger)
        self._suspects = Suspects(clock)
        self._received = 0
        self._batches: list[threading.Thread] = []
        left_to_sqs = consumer.options.dead_letter_queue is None
        answers = QueueAnswers(self._acknowledgements, consumer.options.backoff, clock, left_to_sqs)
        self._new_host = partial(
            WorkerHost,
            leases=leases,
            in_flight=self._in_flight,
            answers=answers,
            reports=reports,
            draining=lambda: self.draining,
            suspects=self._suspects,
            crashes_recorded=consumer.options.max_attempts is not None,
            suspected_seconds=SUSPECTED_LEASES * limits.lease_seconds,
            slots=threading.Semaphore(limits.concurrency),
        )
        self._over = False
        consumer.options.telemetry.watch(
            InFlight=lambda: len(self._in_flight.handles),
            Renewals=lambda: leases.renewals,
            Restarts=lambda: restarts,
            Suspects=lambda: len(self._suspects.left()),
        )

    def run(self) -> None:
        """Work until `draining` is set, or until `max_messages` have been received and have their outcomes."""
        # Concurrent: an unresponsive queue must delay neither renewals nor the time limit.
        self._every(self._leases.renewal_seconds, self._leases.renew)
        self._every(self._leases.renewal_seconds, self._renew_visibilities)
        self._every(PROCESS_LOOK_SECONDS, self._end_overdue)
        while not self.draining and self._left() > 0:
            room = self._in_flight.room(self._limits.concurrency, PROCESS_LOOK_SECONDS)
            if room > 0 and (records := self._receive(room)):
                self._handle(records)
        while not self._in_flight.emptied(PROCESS_LOOK_SECONDS):
            pass
        for batch in self._batches:
            batch.join(LONGEST_END_SECONDS)
        self._over = True
        self._acknowledgements.close(self._limits.lease_seconds)

    def run_alone(self, id: str, seconds: float) -> None:
        """For `seconds` from now, run this message alone whenever it is received, because a process died running it.

        With zero `seconds`, run it normally again.
        """
        self._suspects.keep(id, seconds)

    def _receive(self, room: int) -> list[dict[str, Any]]:
        """The messages of a poll and, if it brought as many as a request can, those of one more that waits for none:
        they share their claims and settlements. After any smaller poll, what was received starts at once.
        """
        most = self._most(room)
        records = self._poll(min(most, self._limits.receive), self._limits.wait_seconds)
        if most > len(records) == MOST_ENTRIES:
            records += self._poll(most - MOST_ENTRIES, 0)
        return records

    def _poll(self, most: int, wait_seconds: int) -> list[dict[str, Any]]:
        """Receive messages, and hold them from now on, so that a slow request after this one hides none too briefly."""
        visibility_seconds = round(self._limits.lease_seconds)
        try:
            records = self._queue.receive(most, wait_seconds=wait_seconds, visibility_seconds=visibility_seconds)
        except Exception as error:  # noqa: BLE001  # after any error, the next poll may succeed
            logger.warning("the queue %s could not be polled: %s", self._queue.url, error_name(error))
            if wait_seconds > 0:  # else messages of the poll before it wait for this one
                self._clock.sleep(LONGEST_POLL_PAUSE_SECONDS * self._clock.fraction())
            return []
        if self.draining:
            send_in_tens(self._queue.change, [(record["receiptHandle"], 0) for record in records], logger)
            return []
        self._in_flight.hold(records)
        self._received += len(records)
        self._reports.received(
            (record["messageId"], record["receiptHandle"], int(record["attributes"]["ApproximateReceiveCount"]))
            for record in records
        )
        return records

    def _most(self, room: int) -> int:
        """How many messages to receive for a batch: as many as can start now or, if more, as should finish within a
        second at measured speed. Receives none ahead until a run has been measured: the first may last for hours.

        Only one while there are suspects: messages received together with one that kills the process use up a receive.
        A FIFO queue would deliver the suspect with its group's next messages.
        """
        if self._suspects:
            return 1
        run_seconds = self._in_flight.run_seconds
        ahead = 0 if run_seconds is None else int(room * AHEAD_SECONDS / max(run_seconds, SHORTEST_RUN_SECONDS))
        return min(max(room, ahead), self._left())

    def _left(self) -> int:
        """How many more messages this process may receive, up to those of two full polls."""
        most = self._limits.max_messages
        return 2 * MOST_ENTRIES if most is None else min(most - self._received, 2 * MOST_ENTRIES)

    def _handle(self, records: list[dict[str, Any]]) -> None:
        together, alone = self._apart(records)
        if together:
            self._begin(together)
        for place, batch in enumerate(alone):
            left = sum(map(len, alone[place:]))
            while not (self._in_flight.emptied(PROCESS_LOOK_SECONDS, but=left) or self.draining):
                pass
            self._begin(batch, exclusive=True).join()

    def _apart(self, records: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[list[dict[str, Any]]]]:
        """The records that may run together, and those that run alone afterwards: each suspect, on a FIFO queue with
        its group. No record is returned to SQS, because each receive brings a message closer to the dead-letter queue.
        """
        alone: dict[str, list[dict[str, Any]]] = {
            _line(record): [] for record in records if record["messageId"] in self._suspects
        }
        together: list[dict[str, Any]] = []
        for record in records:
            alone.get(_line(record), together).append(record)
        return together, list(alone.values())

    def _begin(self, records: list[dict[str, Any]], *, exclusive: bool = False) -> threading.Thread:
        batch = threading.Thread(target=self._consume, args=(records, exclusive), name="batch", daemon=True)
        batch.start()
        self._batches = [*(each for each in self._batches if each.is_alive()), batch]
        return batch

    def _consume(self, records: list[dict[str, Any]], exclusive: bool = False) -> None:
        deadline = Deadline.after(self._clock, int(self._limits.time_limit_seconds * 1000))
        context = Context(lambda: int(deadline.left_seconds * 1000), self._reports.owner)
        lease_ms = int(self._limits.lease_seconds * 1000)
        batch = object()
        try:
            new_host = partial(self._new_host, batch=batch, exclusive=exclusive)
            self._consumer.receive({"Records": records}, context, lease_ms, new_host)
            self._flush_handlers_metrics()
        finally:
            # A batch that failed as a whole reports no outcomes: its messages become visible again when their
            # visibility timeouts end.
            running = self._in_flight.answered([record["receiptHandle"] for record in records])
            self._leases.ended(batch)
            if running:
                die(f"the batch failed while these messages were being handled: {', '.join(running)}")

    def _flush_handlers_metrics(self) -> None:
        """Send what handlers added to the consumer's Powertools metrics. On Lambda, `log_metrics` does."""
        metrics: Any = self._consumer.options.metrics
        if getattr(metrics, "metric_set", None):
            with suppress(Exception):  # another batch may be adding to them; then the next one sends them
                metrics.flush_metrics()

    def _every(self, seconds: float, job: Callable[[], None]) -> None:
        def run() -> None:
            while not self._over:
                self._clock.sleep(seconds)
                job()

        threading.Thread(target=run, name=job.__name__, daemon=True).start()

    def _renew_visibilities(self) -> None:
        self._acknowledgements.renew(lambda: self._in_flight.handles, round(self._limits.lease_seconds))

    def _end_overdue(self) -> None:
        limit = self._limits.time_limit_seconds
        for id in self._in_flight.overdue(limit):
            die(f"the handler for {id} has run for more than {limit:g} seconds")


def _line(record: dict[str, Any]) -> str:
    """The unit that must stay in order: the message group on a FIFO queue, otherwise only the message itself."""
    fifo = record["eventSourceARN"].endswith(".fifo")
    return str(record["attributes"]["MessageGroupId"] if fifo else record["receiptHandle"])


def die(why: str) -> None:
    """Kill this process at once, with everything running in it."""
    last_words("%s; this process ends", why)
    os.kill(os.getpid(), signal.SIGKILL)


def last_words(text: str, *values: object) -> None:
    """Log an error without waiting long, because the log's reader may be gone."""
    log = threading.Thread(target=logger.error, args=(text, *values), daemon=True)
    log.start()
    log.join(LONGEST_LOG_SECONDS)


@dataclass(frozen=True, slots=True)
class Context:
    """A stand-in for Lambda's context."""

    get_remaining_time_in_millis: Callable[[], int]
    aws_request_id: str
    function_name: str = "receiver work"
