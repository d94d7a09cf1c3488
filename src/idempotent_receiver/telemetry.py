"""What a batch or a call reports: a log line per message, a summary, and metrics.

Bodies are never logged. Successes are logged at DEBUG, summaries and delays that a handler requests at INFO, failures
at WARNING, and anything that needs a person at ERROR.

Lines and metrics go to two small protocols, `Log` and `Metrics`. Powertools is the default for both, and is imported
only if that default is used, because it takes a large part of a consumer's cold start. Metrics also go to an
OpenTelemetry meter, if there is one.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from inspect import signature
from itertools import chain
from logging import DEBUG, ERROR, INFO, NOTSET, WARNING
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from idempotent_receiver.errors import failure_of
from idempotent_receiver.handler.outcome import Outcome
from idempotent_receiver.log_lines import Fields, Line, call_line, failure_fields, field_name, line_of
from idempotent_receiver.protocol.answers import AlreadyFailed, OtherPayload

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

    from idempotent_receiver.instruments import Instruments

COUNTS = (
    "Claimed",
    "Completed",
    "Duplicates",
    "InProgress",
    "Failed",
    "Delayed",
    "Permanent",
    "Exhausted",
    "TakenOver",
    "LostClaims",
    "Released",
    "Unsettled",
    "ClaimFailures",
    "Requests",
)
"""The counters. Every batch sends all of them, except that those in `OF_CLAIMS` are sent only where keys are claimed.
So a missing value means that nothing ran.
"""

OF_CLAIMS = frozenset({"Claimed", "TakenOver", "LostClaims", "Released"})
"""Counters that stay at 0 where nothing is claimed."""

CALL_COUNTS = (
    "Completed",
    "Duplicates",
    "InProgress",
    "Mismatches",
    "Failed",
    "LostClaims",
    "Unsettled",
    "ClaimFailures",
)
"""A call's counters. Every call sends all of them: a replay counts in `Duplicates`, a 409 in `InProgress`, a 422
in `Mismatches`.
"""

DURATION = "BatchDuration"
"""The metric of a batch's duration, in milliseconds."""

SPENT = {
    "claim": "ClaimMilliseconds",
    "read": "ReadMilliseconds",
    "handler": "HandlerMilliseconds",
    "longest_handler": "LongestHandlerMilliseconds",
    "settle": "SettleMilliseconds",
    "call": "CallMilliseconds",
}
"""The metrics that show how a batch's time was spent."""


class Log(Protocol):
    """A destination for log lines: a Powertools `Logger`, a `logging.Logger`, or anything like them.

    Its level is its `log_level` or, without one, its `getEffectiveLevel()`. A log with neither gets every line.
    With `error_texts=True`, methods that take `exc_info` get it too.
    """

    def debug(self, msg: str, /, *, extra: Fields) -> None: ...  # noqa: D102  # the standard library's
    def info(self, msg: str, /, *, extra: Fields) -> None: ...  # noqa: D102
    def warning(self, msg: str, /, *, extra: Fields) -> None: ...  # noqa: D102
    def error(self, msg: str, /, *, extra: Fields) -> None: ...  # noqa: D102


class Metrics(Protocol):
    """A destination for metrics: Powertools' `Metrics` and `EphemeralMetrics`, or anything like them. Units are
    CloudWatch's.
    """

    def add_metric(self, name: str, unit: str, value: float) -> None: ...  # noqa: D102  # Powertools'
    def flush_metrics(self) -> None: ...  # noqa: D102


def metrics_factory(metrics: Metrics | None, log: Log | None) -> Callable[[], Metrics]:
    """The source of each batch's metrics. Those of Powertools are new for each batch, because `Metrics` objects share
    their values across the process. Raises ValueError for Powertools' without a namespace.

    By default, if Powertools does the logging, its metrics are imported now, which is cheaper than during the first
    batch. Otherwise the first batch imports them.
    """
    if metrics is None:
        if log is None or "aws_lambda_powertools" in sys.modules:
            import aws_lambda_powertools.metrics  # noqa: F401, PLC0415
        return partial(_embedded, namespace="IdempotentReceiver")
    provider: Any = getattr(metrics, "provider", metrics)
    powertools = sys.modules.get("aws_lambda_powertools.metrics")
    if powertools is None or type(provider) is not powertools.EphemeralMetrics:
        return lambda: metrics
    if provider.namespace is None:
        raise ValueError('metrics has no namespace: Metrics(namespace="Shop"), or set POWERTOOLS_METRICS_NAMESPACE')
    # Flushing the caller's would send and clear what its handlers added, and then `log_metrics` may raise for none.
    return lambda: _embedded(provider.namespace, provider.service, provider)


def _embedded(namespace: str, service: str | None = None, like: Any = None) -> Metrics:
    """New metrics, with the dimensions of those that they are `like`."""
    from aws_lambda_powertools.metrics import EphemeralMetrics  # noqa: PLC0415

    new = EphemeralMetrics(namespace=namespace, service=service, dimension_set=dict(getattr(like, "dimension_set", {})))
    new.dimension_sets = list(getattr(like, "dimension_sets", ()))  # older versions of Powertools have none
    return new


class Telemetry:
    """The logs and metrics of one consumer or endpoint. No method raises: a report never changes an outcome."""

    def __init__(
        self,
        log: Log | None = None,
        new_metrics: Callable[[], Metrics] | None = None,
        meter: "Meter | None" = None,
    ) -> None:
        if log is None:
            from aws_lambda_powertools import Logger  # noqa: PLC0415

            log = Logger(service="idempotent-receiver")
        self._log, self._new_metrics = log, new_metrics
        self._instruments = None if meter is None else _instruments(meter)

    def report(
        self,
        outcomes: Sequence[Outcome],
        fields_of: Callable[[int], Fields],
        seconds: float,
        *,
        spent: Mapping[str, float] = MappingProxyType({}),
        claims: bool = True,
        often: bool = False,
        **untold: int,
    ) -> None:
        """Log each message, with the fields for its place in the batch, and the summary. Send the metrics.

        `spent` maps the names in `SPENT` to seconds; `claims` says whether keys are claimed. `untold` are the counts
        for `counts_of` that outcomes do not show. If batches are frequent (`often`), a single message's summary is
        logged at DEBUG, so that it does not add a line per message; a failure has a line of its own.
        """
        lines = [line_of(outcome) for outcome in outcomes]
        with self._defects_reported():
            level = self._level
            for place, line in enumerate(lines):
                if line.level >= level:
                    with self._defects_reported():
                        self._write(line, fields_of(place))
        counts = counts_of(lines, **untold)
        if not claims:
            counts = {name: count for name, count in counts.items() if name not in OF_CLAIMS}
        milliseconds = round(seconds * 1000, 3)
        times = {SPENT[name]: round(seconds * 1000, 3) for name, seconds in spent.items()}
        summary: dict[str, float] = {_FIELDS[name]: value for name, value in (counts | times).items()}
        of_batch = DEBUG if often and len(outcomes) == 1 else INFO
        with self._defects_reported():
            self._write(Line(of_batch, "batch", {"messages": len(outcomes), "milliseconds": milliseconds}), summary)
        times[DURATION] = milliseconds
        with self._defects_reported():
            assert self._new_metrics is not None, "a batch's report needs metrics"
            _send(self._new_metrics(), counts, times)
        if self._instruments is not None:
            with self._losses_reported():
                _send(self._instruments, counts, times)

    def watch(self, **values: Callable[[], int]) -> None:
        """Let the meter, if there is one, read these values of a worker outside Lambda at any time: see
        `instruments.OF_WORKER`.
        """
        if self._instruments is not None:
            with self._losses_reported():
                self._instruments.watch(**values)

    def report_call(self, outcome: Outcome | AlreadyFailed | OtherPayload, key: str) -> None:
        """Log how one call under a key ended. Send its metrics if there is a destination for them."""
        line = call_line(outcome)
        with self._defects_reported():
            if line.level >= self._level:
                self._write(line, {"key": key})
        with self._defects_reported():
            if self._new_metrics is not None:
                _send(self._new_metrics(), {name: line.counts.count(name) for name in CALL_COUNTS}, {})

    def report_unusable(self, error: Exception, *, with_text: bool = False) -> None:
        """Log the location of the error, if any, that kept a user's key strategy from making a key."""
        if error.__cause__ is not None:
            text = "not run: no key could be made from the request"
            self.report_raised(text, error.__cause__, WARNING, with_text=with_text)

    def report_raised(self, text: str, error: BaseException, level: int = ERROR, *, with_text: bool = False) -> None:
        """Log that a user's own callable raised, with the error's location, and its text if it may be disclosed."""
        self._try_to_write(level, text, failure_fields(failure_of(error, with_text=with_text)))

    def report_error(self, text: str, error: Exception) -> None:
        """Log a problem that does not affect the outcome, with the error's text, which is the library's own."""
        self._try_to_write(ERROR, text, {"error_type": type(error).__name__, "why": str(error)})

    def report_message_error(self, text: str, error: Exception, fields: Fields) -> None:
        """Log a problem that does not affect a message's outcome."""
        self._try_to_write(ERROR, text, {**fields, "error_type": type(error).__name__})

    def report_too_short(self, seconds: float, stop_margin_seconds: float) -> None:
        """Log that an invocation was too short to start any message, as all invocations of this function will be."""
        text = "the invocation is too short to start anything: raise the function's timeout above stop_margin_seconds"
        self._try_to_write(ERROR, text, {"seconds": seconds, "stop_margin_seconds": stop_margin_seconds})

    def report_left_behind(
        self, cancelled: Sequence[str], tasks: Sequence[str], generators: Sequence[str], threads: int
    ) -> None:
        """Log which tasks of coroutines were cancelled at the end of the batch, and what ran on nevertheless."""
        if cancelled:
            text = "tasks that a coroutine left behind were cancelled at the end of the batch"
            self._try_to_write(WARNING, text, {"tasks": cancelled})
        if tasks or generators or threads:
            text = "work that a coroutine left behind is still running after the wait"
            self._try_to_write(WARNING, text, {"tasks": tasks, "generators": generators, "threads": threads})

    def report_defect(self, error: Exception) -> None:
        """Log an error that should be impossible, with its location but not its text."""
        self._try_to_write(ERROR, "unexpected error in the receiver", failure_fields(failure_of(error)))

    @contextmanager
    def _defects_reported(self) -> Iterator[None]:
        """Report what the block raises: a user's logger or metrics may raise anything, each without the other."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  # as said
            self.report_defect(error)

    @contextmanager
    def _losses_reported(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001  # a meter may raise anything
            self.report_raised("the meter raised, so metrics are missing", error, WARNING)

    @property
    def _level(self) -> int:
        level: int | None = getattr(self._log, "log_level", None)
        return getattr(self._log, "getEffectiveLevel", lambda: NOTSET)() if level is None else level

    def _try_to_write(self, level: int, text: str, fields: Fields) -> None:
        with suppress(Exception):
            self._write(Line(level, text, fields), {})

    def _write(self, line: Line, fields: Fields) -> None:
        methods = {DEBUG: self._log.debug, INFO: self._log.info, WARNING: self._log.warning}
        write: Callable[..., None] = methods.get(line.level, self._log.error)
        # An error tracker makes an event of it, grouped by its place.
        raised = {"exc_info": line.exc_info} if line.exc_info is not None and _takes_exc_info(write) else {}
        write(line.text, extra={**fields, **line.fields}, **raised)


def _send(metrics: Metrics, counts: Mapping[str, int], milliseconds: Mapping[str, float]) -> None:
    for name, count in counts.items():
        metrics.add_metric(name, unit="Count", value=count)
    for name, value in milliseconds.items():
        metrics.add_metric(name, unit="Milliseconds", value=value)
    metrics.flush_metrics()


def _instruments(meter: "Meter") -> "Instruments":
    from idempotent_receiver.instruments import Instruments  # noqa: PLC0415  # most consumers have no meter

    return Instruments(meter)


def _takes_exc_info(write: Callable[..., None]) -> bool:
    try:
        signature(write).bind("", extra={}, exc_info=None)
    except (TypeError, ValueError):
        return False
    return True


def counts_of(
    lines: Iterable[Line], *, claimed: int, taken_over: int, released: int, requests: int = 0
) -> dict[str, int]:
    """The counters' values: from the lines, and from counts that outcomes do not show."""
    counts = Counter({"Claimed": claimed, "TakenOver": taken_over, "Released": released, "Requests": requests})
    counts.update(chain.from_iterable(line.counts for line in lines))
    return {name: counts[name] for name in COUNTS}


_FIELDS = {name: field_name(name) for name in (*COUNTS, *SPENT.values())}
"""The summary's field name for each metric."""
