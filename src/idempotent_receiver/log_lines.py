"""The log line of each outcome, and the metrics that count it."""

import re
from collections.abc import Mapping
from dataclasses import replace
from logging import DEBUG, ERROR, INFO, WARNING
from types import MappingProxyType
from typing import Any, NamedTuple

from idempotent_receiver.errors import ExcInfo, Failure
from idempotent_receiver.handler import outcome as ended
from idempotent_receiver.handler.outcome import Outcome
from idempotent_receiver.protocol.answers import AlreadyFailed, OtherPayload

Fields = Mapping[str, Any]


class Line(NamedTuple):
    """The log line of one message or call, and the metrics that count it."""

    level: int
    text: str
    fields: Fields = MappingProxyType({})
    counts: tuple[str, ...] = ()
    exc_info: ExcInfo | None = None


# Created once: most of a batch's lines are these two, and are only counted.
_COMPLETED = Line(DEBUG, "completed", counts=("Completed",))
_DUPLICATE = Line(DEBUG, "duplicate of a completed message", counts=("Duplicates",))


def line_of(outcome: Outcome) -> Line:
    """The log line and metrics of an outcome. A success is logged at DEBUG, so usually not at all."""
    match outcome:
        case ended.Completed():
            return _COMPLETED
        case ended.Duplicate(lost=lost):
            return _DUPLICATE._replace(counts=("Duplicates", "LostClaims")) if lost else _DUPLICATE
        case ended.HeldElsewhere(until_ms):
            lease = {"lease_until_ms": until_ms} if until_ms > 0 else {}
            return Line(WARNING, "in progress elsewhere", lease, ("InProgress",))
        case ended.NotStarted():
            return Line(WARNING, "not started: no time left, or it waited behind a failure or a long handler")
        case ended.NotSent():
            return _not_sent(outcome)
        case ended.DeadLettered(failure):
            text = f"{_end_of(failure)} and sent to the dead-letter queue"
            return Line(ERROR, text, failure_fields(failure), (_last(failure),), failure.exc_info)
        case ended.Failed(failure, recorded):
            return _failed(failure, recorded=recorded)
        case ended.ClaimLost():
            text = "the claim was lost to another worker, which has not completed yet"
            return Line(ERROR, text, {"error_type": "ClaimLost"}, ("LostClaims", "Failed"))
        case ended.SettleFailed(why):
            text = "the handler ran, but its outcome could not be recorded"
            return Line(ERROR, text, {"error_type": "SettleFailed", "why": why}, ("Unsettled", "Failed"))
        case ended.ClaimFailed(why):
            fields = {"error_type": "ClaimFailed", "why": why}
            return Line(ERROR, "not run: the record could not be claimed", fields, ("ClaimFailures", "Failed"))
        case ended.Unreadable(why):
            fields = {"error_type": "Unreadable", "why": why}
            return Line(ERROR, "not run: this version cannot read its record", fields, ("Failed",))


def call_line(outcome: Outcome | AlreadyFailed | OtherPayload) -> Line:
    """The log line of one call's end."""
    match outcome:
        case AlreadyFailed():
            return Line(DEBUG, "answered with an earlier call's failure", counts=("Duplicates",))
        case OtherPayload(expected, found):
            fields = {"expected": expected, "found": found}
            return Line(WARNING, "not run: the key was used for another payload", fields, ("Mismatches",))
        case ended.Duplicate(lost=True):
            text = "the claim was lost while it ran; answered with the winner's result"
            return Line(WARNING, text, counts=("Duplicates", "LostClaims"))
        case ended.Duplicate():
            return Line(DEBUG, "answered with an earlier call's result", counts=("Duplicates",))
        case ended.NotStarted():
            return Line(WARNING, "not run: too little time was left")
        case ended.Failed(failure):
            # Calls are not redelivered, so a delay means nothing here.
            return line_of(replace(outcome, failure=replace(failure, delay_seconds=None)))
        case _:
            return line_of(outcome)


def _not_sent(not_sent: ended.NotSent) -> Line:
    """A delivery that goes on where this one stopped is no failure, but a call that raised is one."""
    why, out_of_time = not_sent.why, not_sent.out_of_time
    if not_sent.failure is not None:
        return _not_called(not_sent.failure)
    text = "its effect took place, but its outbox is not done and recorded: the next delivery goes on"
    if out_of_time:
        return Line(WARNING, text, {"why": why})
    return Line(ERROR, text, {"error_type": "NotSent", "why": why}, ("Unsettled", "Failed"))


def _not_called(failure: Failure) -> Line:
    """Calls have raised: the next delivery makes those that are left."""
    text = "its effect took place, but calls are left: the next delivery makes them"
    if failure.delay_seconds is not None:
        return Line(INFO, text, {"reason": failure.reason, "delay_seconds": failure.delay_seconds}, ("Delayed",))
    return Line(WARNING, text, failure_fields(failure), ("Failed",), failure.exc_info)


def _failed(failure: Failure, *, recorded: bool) -> Line:
    fields = {**failure_fields(failure), "recorded": recorded}
    if failure.permanent or (failure.exhausted and recorded):
        return Line(ERROR, _end_of(failure), fields, (_last(failure), "Failed"), failure.exc_info)
    if recorded and failure.delay_seconds is not None:
        # No `error_type`, because the dashboard counts failures by it.
        fields = {"at": failure.at, "reason": failure.reason, "delay_seconds": failure.delay_seconds}
        return Line(INFO, "will be retried later, as its handler requested", fields, ("Delayed",))
    return Line(WARNING, "failed, will be retried", fields, ("Failed",), failure.exc_info)


def _last(failure: Failure) -> str:
    return "Exhausted" if failure.exhausted else "Permanent"


def _end_of(failure: Failure) -> str:
    return "failed for the last time allowed" if failure.exhausted else "failed for good"


def failure_fields(failure: Failure) -> dict[str, Any]:
    """What a line says of a failure."""
    fields: dict[str, Any] = {"error_type": failure.type, "at": failure.at, "reason": failure.reason}
    if failure.charged_attempt:
        fields["charged_attempt"] = failure.charged_attempt
    return fields if failure.traceback is None else {**fields, "traceback": failure.traceback}


def field_name(metric: str) -> str:
    """The name of a metric in a batch's log line."""
    return re.sub("(?<!^)(?=[A-Z])", "_", metric).lower()
