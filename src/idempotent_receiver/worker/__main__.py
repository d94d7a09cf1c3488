"""A worker process: `python -m idempotent_receiver.worker`, started by the supervisor with its task as JSON."""

import atexit
import json
import logging
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, TextIO

from botocore.exceptions import BotoCoreError, ClientError

from idempotent_receiver.clock import SystemClock, since_boot_seconds
from idempotent_receiver.process_end import Timer, die_with
from idempotent_receiver.protocol.store import RecordStore, Unknown
from idempotent_receiver.sqs.consumer import Consumer
from idempotent_receiver.worker.leases import Leases, shortest_lease_seconds
from idempotent_receiver.worker.loading import loaded
from idempotent_receiver.worker.orphans import give_back
from idempotent_receiver.worker.polling import PolledQueue
from idempotent_receiver.worker.process import Limits, Process, die, last_words, logger
from idempotent_receiver.worker.reports import Reports
from idempotent_receiver.worker.supervisor import WRONG_USAGE
from idempotent_receiver.worker.suspects import SUSPECTED_LEASES

LONGEST_EXIT_SECONDS = 10.0
"""How long what is registered for a process's exit may take."""

UNSET_LEVEL = logging.WARNING - 1
"""The root logger's level until a module sets it: it shows what its default, WARNING, does, and is told from it."""


class ReportedTimer:
    """A kernel timer, of which the supervisor is told."""

    def __init__(self, reports: Reports) -> None:
        self._timer = Timer()
        self._reports = reports

    def arm(self, seconds: float) -> None:
        """End the process that long from now."""
        self._timer.arm(seconds)
        self._reports.dead_by(since_boot_seconds() + seconds)

    def disarm(self) -> None:
        """Let it live."""
        self._timer.disarm()
        self._reports.dead_by(None)


def main(task: dict[str, Any]) -> None:
    """Work until SIGTERM. Raises ValueError or TypeError if it cannot begin."""
    if sys.platform != "linux":
        raise ValueError(
            f"receiver work needs Linux, whose timers end a process before its lease; this is {sys.platform}"
        )
    die_with(task["supervisor"])
    told = _told()
    os.register_at_fork(after_in_child=_forked)
    logging.root.setLevel(UNSET_LEVEL)
    consumer, clock = loaded(task["handler"]), SystemClock()
    _complete_logging()
    limits = limits_of(consumer, task["limits"])
    consumer = consumer.with_options(replace(consumer.options, concurrency=limits.concurrency))
    options = consumer.options
    (unique,) = clock.versions(1)
    reports = Reports(task["pipe"], f"{socket.gethostname()}/{os.getpid()}/{unique[:8]}")
    leases = Leases(
        options.store,
        clock,
        ReportedTimer(reports),
        _lost,
        lease_seconds=limits.lease_seconds,
        margin_seconds=limits.margin_seconds,
    )
    queue = queue_of(consumer, task["queue_url"])
    require_records(options.store, reports.owner)
    delays = give_back(task["orphans"], options.store, queue, clock, logger, backoff=options.backoff)
    process = Process(consumer, queue, leases=leases, limits=limits, reports=reports, clock=clock)

    def drain(*signal: object) -> None:
        process.draining = True

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, drain)
    signal.signal(signal.SIGINT, lambda *signal: None)  # of a terminal, which the supervisor has as well
    for id, seconds in task["suspects"]:
        process.run_alone(id, seconds)
    for id, delay in delays.items():
        suspected_seconds = delay + SUSPECTED_LEASES * limits.lease_seconds
        process.run_alone(id, suspected_seconds)
        reports.suspect(id, suspected_seconds)
    threading.Thread(target=_listen, args=(process, told), daemon=True).start()
    reports.works()
    process.run()


def _complete_logging() -> None:
    """Set what the handler's module has left unset: a handler of the root logger, its level, and those of boto."""
    root = logging.root
    logger.disabled = False  # as `dictConfig` leaves what was there before the module, unless it is told not to
    for library in ("boto3", "botocore"):  # each process would tell where it found its credentials and endpoints
        if logging.getLogger(library).level == logging.NOTSET:
            logging.getLogger(library).setLevel(logging.WARNING)
    if root.level == UNSET_LEVEL:
        root.setLevel(logging.WARNING if root.handlers else logging.INFO)
    if not root.handlers:
        root.addHandler(logging.StreamHandler())
    for handler in filter(_on_console, root.handlers):
        handler.addFilter(_untold)


def _on_console(handler: logging.Handler) -> bool:
    return getattr(handler, "stream", None) in {sys.stdout, sys.stderr}


def _untold(record: logging.LogRecord) -> bool:
    """Whether no handler below the root's writes it to the console. A Powertools Logger has one, and hides its lines
    only from what the root has when it is made.
    """
    of: logging.Logger | None = logging.getLogger(record.name)
    while of is not None and of is not logging.root:
        for handler in of.handlers:
            if _on_console(handler) and not handler.filters and record.levelno >= handler.level:
                return False
        of = of.parent
    return True


def limits_of(consumer: Consumer, wanted: dict[str, Any]) -> Limits:
    """The limits that are asked for, with the consumer's margin, as its clients allow. Raises ValueError if they allow
    none, or if the store cannot have a client.
    """
    limits = Limits(margin_seconds=consumer.options.lease_margin_seconds, **wanted)
    try:
        shortest = shortest_lease_seconds(consumer.options.store, limits.margin_seconds)
    except BotoCoreError as error:
        raise ValueError(f"the store cannot be asked: {error}") from error
    if limits.lease_seconds < shortest:
        raise ValueError(
            f"a lease of {limits.lease_seconds:g} seconds is too short: three renewals and the margin may take"
            f" {shortest:g} by the time-outs of the store's client. Use longer leases, or give the store a client with"
            f" shorter time-outs and fewer attempts"
        )
    return replace(limits, wait_seconds=_wait_seconds(consumer.options.sqs, limits))


def _wait_seconds(sqs: Any, limits: Limits) -> int:
    """How long a poll may wait: what SQS answers to a client that waits no more is hidden until its visibility ends."""
    if sqs is None:
        return limits.wait_seconds
    longest = int(sqs.meta.config.read_timeout - 1)
    if longest < 1:
        raise ValueError(
            f"the consumer's SQS client waits {sqs.meta.config.read_timeout:g} seconds for an answer, which is too"
            f" short for a poll: give it a read_timeout of 2 or more, best of {limits.wait_seconds + 1}"
        )
    return min(limits.wait_seconds, longest)


def queue_of(consumer: Consumer, url: str) -> PolledQueue:
    """The queue of that URL, by the consumer's client or a default one. Raises ValueError if it cannot be read."""
    if "://" not in url:
        example = "https://sqs.us-east-1.amazonaws.com/123456789012/orders"
        raise ValueError(f"{url!r} is not a queue's URL, such as {example}: is a variable not set?")
    import boto3  # noqa: PLC0415

    try:
        return PolledQueue.at(consumer.options.sqs or boto3.Session().client("sqs"), url)
    except (ClientError, BotoCoreError) as error:
        raise ValueError(f"the queue {url} cannot be read: {error}") from error


def require_records(store: RecordStore, id: str) -> None:
    """Raises ValueError if the store refuses to read, such as for a missing table: then no message could succeed."""
    for found in store.read([id]):
        if isinstance(found, Unknown) and not found.retry:
            raise ValueError(f"the records cannot be read: {found.why}")


def _told() -> TextIO:
    """What the supervisor says. It comes by standard input, which must be empty for handlers and their programs: one
    that reads it, as ffmpeg does, would wait for ever, and take what is said.
    """
    told = os.fdopen(os.dup(sys.stdin.fileno()))
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), sys.stdin.fileno())
    return told


def _forked() -> None:
    """In a process that a handler has forked, which shall end at SIGTERM, as `multiprocessing` expects."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


def _listen(process: Process, told: TextIO) -> None:
    """Take in what the supervisor says: ids of messages to run alone, and for how many seconds."""
    for line in told:
        process.run_alone(*json.loads(line))


def _lost(record_id: str, why: str) -> None:
    die(f"the lease of {record_id} was lost while its handler ran: {why}")


def end(status: int) -> NoReturn:
    """End this process after what is registered for its exit, and wait for no thread, such as one that the handler's
    module has started and never ends.
    """
    # Some of it waits for ever, as `multiprocessing` does for a process that a handler has left.
    threading.Thread(target=_cut_off, args=(status,), daemon=True).start()
    atexit._run_exitfuncs()  # noqa: SLF001  # the threads apart, it ends as usual
    with suppress(OSError, ValueError):  # nobody may read it any more, or a handler has closed it
        sys.stdout.flush()
    os._exit(status)


def _cut_off(status: int) -> None:
    SystemClock().sleep(LONGEST_EXIT_SECONDS)
    last_words("what is registered for a process's exit has not ended within %g seconds", LONGEST_EXIT_SECONDS)
    os._exit(status)


if __name__ == "__main__":
    status = 1
    try:
        main(json.loads(sys.argv[1]))
        status = 0
    except (ValueError, TypeError) as wrong:
        sys.stderr.write(f"{wrong}\n")
        status = WRONG_USAGE
    except Exception:  # noqa: BLE001  # it is logged, and the supervisor starts another process
        logger.exception("a worker process has failed")
    end(status)
