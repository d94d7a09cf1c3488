"""What is told of a batch: a log line for each message, a summary, and metrics in CloudWatch's embedded format.

Bodies are never logged. A success is a DEBUG line, the summary INFO, a failure WARNING, and what wants a person ERROR.
"""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.metrics import EphemeralMetrics, Metrics, MetricUnit

from idempotent_receiver.batch.receiver import Processed
from idempotent_receiver.errors import Failure, UnusableKey, failure_of
from idempotent_receiver.handler.outcome import (
    ClaimFailed,
    ClaimLost,
    Completed,
    DeadLettered,
    Duplicate,
    Failed,
    HeldElsewhere,
    NotStarted,
    Outcome,
    SettleFailed,
    Unreadable,
)
from idempotent_receiver.protocol.transitions import AlreadyFailed, OtherPayload
from idempotent_receiver.sqs.message import Message

COUNTS = (
    "Claimed",
    "Completed",
    "Duplicates",
    "InProgress",
    "Failed",
    "Permanent",
    "TakenOver",
    "LostClaims",
    "Released",
    "Unsettled",
)
"""The metrics, all of them sent for each batch, so that a missing value means that nothing ran."""

DURATION = "BatchDuration"
"""The metric of a batch's time, in milliseconds."""


@dataclass(frozen=True, slots=True)
class Line:
    """A log line about one message."""

    level: int
    text: str
    fields: dict[str, Any]


class Telemetry:
    """Logs and metrics of one consumer."""

    def __init__(self, logger: Logger | None = None, metrics: Metrics | EphemeralMetrics | None = None) -> None:
        self._logger = Logger(service="idempotent-receiver") if logger is None else logger
        self._metrics = metrics

    def report(self, processed: Processed, message_of: Callable[[int], Message], seconds: float) -> None:
        """Log every message, by its place in the batch, and the summary, and send the metrics. Never raises: what is
        told changes no answer.
        """
        try:
            self._report(processed, message_of, seconds)
        except Exception as error:  # noqa: BLE001  # a logger or a metrics sink of the user's may raise anything
            self.defect(error)

    def _report(self, processed: Processed, message_of: Callable[[int], Message], seconds: float) -> None:
        level = self._logger.log_level
        for place, outcome in enumerate(processed.outcomes):
            # Successes are many, and their line is wanted at DEBUG alone.
            if level <= logging.DEBUG or not isinstance(outcome, (Completed, Duplicate)):
                line = line_of(outcome)
                if line.level >= level:
                    self._log(line, message_of(place))
        counts = counted(processed)
        milliseconds = round(seconds * 1000, 3)
        summary = {_snake(name): count for name, count in counts.items()}
        self._logger.info("batch", extra={"messages": len(processed.outcomes), "milliseconds": milliseconds, **summary})
        self._send(counts, milliseconds)

    def report_call(self, ended: Outcome | AlreadyFailed | OtherPayload, key: str) -> None:
        """Log how one call under a key ended. Never raises: what is told changes no answer."""
        with suppress(Exception):
            line = call_line(ended)
            if line.level >= self._logger.log_level:
                self._say(line, {"key": key})

    def report_unusable(self, error: UnusableKey, *, with_text: bool = False) -> None:
        """Log the error for which a strategy of the user's made no key, where there is one, by its place."""
        if error.__cause__ is not None:
            failure = failure_of(error.__cause__, with_text=with_text)
            with suppress(Exception):
                self._logger.warning("not run: no key could be made of the request", extra=_about(failure))

    def trouble(self, text: str, error: Exception) -> None:
        """Log what went wrong beside an answer; of the error its text, which is ours."""
        with suppress(Exception):
            self._logger.error(text, extra={"error_type": type(error).__name__, "why": str(error)})

    def left_behind(self, tasks: Sequence[str], generators: Sequence[str], threads: int) -> None:
        """Log what coroutines have left behind that still ran when the answer had to leave."""
        text = "what a coroutine left behind still runs, and was not waited for any longer"
        with suppress(Exception):
            self._logger.warning(text, extra={"tasks": tasks, "generators": generators, "threads": threads})

    def defect(self, error: Exception) -> None:
        """Log an error that should not have been possible, by its place and without its text."""
        failure = failure_of(error)
        with suppress(Exception):
            self._logger.error("unexpected error in the receiver", extra=_about(failure))

    def _send(self, counts: dict[str, int], milliseconds: float) -> None:
        # Metrics of its own where none are given: Powertools' are shared by the whole process.
        metrics = EphemeralMetrics(namespace="IdempotentReceiver") if self._metrics is None else self._metrics
        for name, count in counts.items():
            metrics.add_metric(name, unit=MetricUnit.Count, value=count)
        metrics.add_metric(DURATION, unit=MetricUnit.Milliseconds, value=milliseconds)
        metrics.flush_metrics()

    def warn(self, text: str, message: Message, error: Exception) -> None:
        """Log what went wrong beside a message's own outcome."""
        self._log(Line(logging.ERROR, text, {"error_type": type(error).__name__}), message)

    def _log(self, line: Line, message: Message) -> None:
        self._say(line, {"message_id": message.id, "key": message.key, "receive_count": message.receive_count})

    def _say(self, line: Line, about: dict[str, Any]) -> None:
        methods = {logging.DEBUG: self._logger.debug, logging.WARNING: self._logger.warning}
        methods.get(line.level, self._logger.error)(line.text, extra=about | line.fields)


def counted(processed: Processed) -> dict[str, int]:
    """The metrics' values: every outcome under its name, and what outcomes do not tell from the receiver's counts."""
    counts = Counter({"Claimed": processed.claimed, "TakenOver": processed.taken_over, "Released": processed.released})
    counts.update(chain.from_iterable(map(_names, processed.outcomes)))
    return {name: counts[name] for name in COUNTS}


def _names(outcome: Outcome) -> list[str]:
    match outcome:
        case Completed():
            return ["Completed"]
        case Duplicate(lost=lost):
            return ["Duplicates", "LostClaims"] if lost else ["Duplicates"]
        case HeldElsewhere():
            return ["InProgress"]
        case ClaimLost():
            return ["LostClaims", "Failed"]
        case SettleFailed():
            return ["Unsettled", "Failed"]
        case DeadLettered():
            return ["Permanent"]
        case Failed(failure=failure):
            return ["Permanent", "Failed"] if failure.permanent else ["Failed"]
        case ClaimFailed() | Unreadable():
            return ["Failed"]
        case NotStarted():
            return []


def line_of(outcome: Outcome) -> Line:
    """What the log says of an outcome."""
    match outcome:
        case Completed():
            return Line(logging.DEBUG, "completed", {})
        case Duplicate():
            return Line(logging.DEBUG, "duplicate of a completed message", {})
        case HeldElsewhere(until_ms):
            return Line(logging.WARNING, "in progress elsewhere", {"lease_until_ms": until_ms})
        case NotStarted():
            return Line(logging.WARNING, "not started: no time left, or an earlier message of its group failed", {})
        case DeadLettered(failure):
            return Line(logging.ERROR, "failed for good and sent to the dead-letter queue", _about(failure))
        case Failed(failure, recorded):
            fields = {**_about(failure), "recorded": recorded}
            level = logging.ERROR if failure.permanent else logging.WARNING
            return Line(level, "failed for good" if failure.permanent else "failed, to be tried again", fields)
        case ClaimLost():
            return Line(logging.ERROR, "the claim was lost to another worker, which has not completed it", {})
        case SettleFailed(why):
            return Line(logging.ERROR, "the handler ran, but its end could not be recorded", {"why": why})
        case ClaimFailed(why):
            return Line(logging.ERROR, "not run: the record could not be claimed", {"why": why})
        case Unreadable(reason):
            return Line(logging.ERROR, "not run: its record is not one that this version knows", {"why": reason})


def call_line(ended: Outcome | AlreadyFailed | OtherPayload) -> Line:
    """What the log says of one call's end."""
    match ended:
        case AlreadyFailed():
            return Line(logging.DEBUG, "answered with an earlier call's failure", {})
        case OtherPayload(expected, found):
            fields = {"expected": expected, "found": found}
            return Line(logging.WARNING, "not run: the key was used for another payload", fields)
        case Duplicate(lost=True):
            return Line(logging.WARNING, "the claim was lost while it ran; answered with the winner's result", {})
        case Duplicate():
            return Line(logging.DEBUG, "answered with an earlier call's result", {})
        case NotStarted():
            return Line(logging.WARNING, "not run: too little time was left", {})
        case _:
            return line_of(ended)


def _about(failure: Failure) -> dict[str, Any]:
    return {"error_type": failure.type, "at": failure.at, "reason": failure.reason}


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")
