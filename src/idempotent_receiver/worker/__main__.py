"""A worker process, which the supervisor starts as `python -m idempotent_receiver.worker` with its task as JSON."""

import atexit
import json
import logging
import os
import signal
import socket
import sys
import threading
from _thread import start_new_thread  # before a handler's module can patch it
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from botocore.exceptions import BotoCoreError

from idempotent_receiver.clock import SystemClock, since_boot_seconds
from idempotent_receiver.process_end import Timer, die_with
from idempotent_receiver.protocol.store import RecordStore, Unknown
from idempotent_receiver.raw_requests import raw_config
from idempotent_receiver.sqs.consumer import Consumer
from idempotent_receiver.worker.leases import Leases, shortest_lease_seconds
from idempotent_receiver.worker.loading import loaded
from idempotent_receiver.worker.orphans import give_back
from idempotent_receiver.worker.polling import PolledQueue
from idempotent_receiver.worker.process import Limits, Process, die, last_words, logger
from idempotent_receiver.worker.reports import Reports
from idempotent_receiver.worker.supervisor import WRONG_USAGE
from idempotent_receiver.worker.suspects import SUSPECTED_LEASES

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

LONGEST_EXIT_SECONDS = 10.0
"""The time limit for exit handlers."""

UNSET_LEVEL = logging.WARNING - 1
"""The root logger's level until a module sets one: acts like the default, WARNING, but can be told apart from it."""


class ReportedTimer:
    """A kernel timer that reports to the supervisor."""

    def __init__(self, reports: Reports) -> None:
        self._timer = Timer()
        self._reports = reports

    def arm(self, seconds: float) -> None:
        """Kill the process after `seconds`."""
        self._timer.arm(seconds)
        self._reports.dead_by(since_boot_seconds() + seconds)

    def disarm(self) -> None:
        """Cancel the timer."""
        self._timer.disarm()
        self._reports.dead_by(None)


def main(task: dict[str, Any]) -> None:
    """Work until SIGTERM. Raises ValueError or TypeError if the worker cannot start."""
    if sys.platform != "linux":
        raise ValueError(
            f"receiver work needs Linux, whose timers kill a process before its lease ends; this is {sys.platform}"
        )
    die_with(task["supervisor"])
    told = _told()
    os.register_at_fork(after_in_child=_forked)
    logging.root.setLevel(UNSET_LEVEL)
    consumer, clock = loaded(task["handler"]), SystemClock()
    require_threads(task["handler"])
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
    charged = options.max_attempts is not None
    orphans = task["orphans"]
    delays = give_back(orphans, options.store, queue, clock, logger, backoff=options.backoff, charged=charged)
    process = Process(
        consumer, queue, leases=leases, limits=limits, reports=reports, clock=clock, restarts=task["restarts"]
    )

    def drain(*signal: object) -> None:
        process.draining = True

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, drain)
    signal.signal(signal.SIGINT, lambda *signal: None)  # sent by a terminal; the supervisor handles it
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
    """Set what the handler's module left unset: a root handler, the root level, and the levels of boto's loggers."""
    root = logging.root
    logger.disabled = False  # by default, `dictConfig` disables existing loggers
    for library in (
        "boto3",
        "botocore",
    ):  # otherwise each process would log where it found credentials
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
    """Whether no handler below the root writes the record to the console. A Powertools Logger has such a handler, and
    hides its lines only from root handlers that existed when the Logger was created.
    """
    of: logging.Logger | None = logging.getLogger(record.name)
    while of is not None and of is not logging.root:
        for handler in of.handlers:
            if _on_console(handler) and not handler.filters and record.levelno >= handler.level:
                return False
        of = of.parent
    return True


def limits_of(consumer: Consumer, wanted: dict[str, Any]) -> Limits:
    """The requested limits with the consumer's lease margin, within what its clients' timeouts allow. Raises ValueError
    if the lease or a timeout is too short, or if the store's client cannot be created.
    """
    limits = Limits(margin_seconds=consumer.options.lease_margin_seconds, **wanted)
    try:
        shortest = shortest_lease_seconds(consumer.options.store, limits.margin_seconds)
    except BotoCoreError as error:
        raise ValueError(f"the store cannot be used: {error}") from error
    if limits.lease_seconds < shortest:
        raise ValueError(
            f"a lease of {limits.lease_seconds:g} seconds is too short: three renewals and the margin may take"
            f" {shortest:g} with the store client's timeouts. Use longer leases, or give the store a client with"
            f" shorter timeouts and fewer attempts"
        )
    return replace(limits, wait_seconds=_wait_seconds(consumer.options.sqs, limits))


def _wait_seconds(sqs: Any, limits: Limits) -> int:
    """How long a poll may wait. If the client gave up first, SQS would hide the messages until their visibility timeout
    ends.
    """
    if sqs is None:
        return limits.wait_seconds
    longest = int(sqs.meta.config.read_timeout - 1)
    if longest < 1:
        raise ValueError(
            f"the consumer's SQS client waits {sqs.meta.config.read_timeout:g} seconds for a response, which is too"
            f" short for a poll: give it a read_timeout of at least 2, ideally {limits.wait_seconds + 1}"
        )
    return min(limits.wait_seconds, longest)


def require_threads(handler: str) -> None:
    """Raises ValueError if gevent has replaced threads: batches, renewals and time limits would never run."""
    patches = sys.modules.get("gevent.monkey")
    if patches is not None and patches.is_module_patched("threading"):
        raise ValueError(
            f"the module in {handler!r} has replaced threads by gevent's, which run nothing while this process polls:"
            f" leave monkey.patch_all() out, or use monkey.patch_all(thread=False)"
        )


def queue_of(consumer: Consumer, url: str) -> PolledQueue:
    """The queue at this URL, using the consumer's client or a default one. Raises ValueError if it cannot be read."""
    if "://" not in url:
        example = "https://sqs.us-east-1.amazonaws.com/123456789012/orders"
        raise ValueError(f"{url!r} is not a queue URL, such as {example}; a variable may be unset")
    try:
        return PolledQueue.at(consumer.options.sqs or _default_client(), url)
    except Exception as error:  # what is patched into the client may raise anything, in the next process again
        raise ValueError(f"the queue {url} cannot be read: {error}{_remedy(error)}") from error


def _remedy(error: Exception) -> str:
    if type(error).__name__ != "SegmentNotFoundException":
        return ""
    return (
        "; X-Ray's context_missing is RUNTIME_ERROR, which fails each call to AWS outside a segment, and only Lambda"
        " opens one: set AWS_XRAY_CONTEXT_MISSING=LOG_ERROR"
    )


def _default_client() -> "SQSClient":
    """A client with SQS's usual timeouts, which allow for a poll's wait, and botocore's usual number of attempts."""
    import boto3  # noqa: PLC0415

    config = raw_config(retries={"mode": "standard", "total_max_attempts": 5})
    return boto3.Session().client("sqs", config=config)


def require_records(store: RecordStore, id: str) -> None:
    """Raises ValueError if the store refuses reads, perhaps because the table is missing: no message could succeed."""
    for found in store.read([id]):
        if isinstance(found, Unknown) and not found.retry:
            raise ValueError(f"the records cannot be read: {found.why}")


def _told() -> TextIO:
    """The supervisor's messages. They arrive on standard input, which is then replaced with an empty stream: otherwise
    a program started by a handler, such as ffmpeg, might read it, hang, and consume the messages.
    """
    told = os.fdopen(os.dup(sys.stdin.fileno()))
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), sys.stdin.fileno())
    return told


def _forked() -> None:
    """Reset signal handling in a process that a handler forked: SIGTERM must end it, as `multiprocessing` expects."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


def _listen(process: Process, told: TextIO) -> None:
    """Apply the supervisor's messages: the id of a message to run alone, and for how many seconds."""
    for line in told:
        process.run_alone(*json.loads(line))


def _lost(record_id: str, why: str) -> None:
    die(f"the lease of {record_id} was lost while its handler ran: {why}")


def end(status: int) -> NoReturn:
    """End this process after its exit handlers, without waiting for threads: the handler's module may have started one
    that never ends.
    """
    # Some exit handlers wait forever, as `multiprocessing` does for a process that a handler left running.
    start_new_thread(_cut_off, (status,))
    atexit._run_exitfuncs()  # noqa: SLF001  # a normal exit, except that it joins no threads
    with suppress(OSError, ValueError):  # its reader may be gone, or a handler may have closed it
        sys.stdout.flush()
    os._exit(status)


def _cut_off(status: int) -> None:
    SystemClock().sleep(LONGEST_EXIT_SECONDS)
    last_words("exit handlers did not finish within %g seconds", LONGEST_EXIT_SECONDS)
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
