"""The errors that users see, and what is stored about the errors that their handlers raise.

Exception
├── PermanentError              for handlers to raise: a retry cannot help
│   └── InvalidBody             the body does not match the handler's annotation
├── RetryLater                  for handlers to raise: redeliver the message after a delay
├── ConditionFailed             a transaction's condition failed, and it had no `otherwise`
├── IdempotencyError            raised by an `idempotent` function that has no result to return
│   ├── InProgress              another call under this key is still running
│   ├── FingerprintMismatch     the key was used for another payload
│   ├── LostClaim               the lease ended while the function ran, and another call took over
│   ├── StoreUnavailable        the record, or its result elsewhere, could not be read or written
│   ├── NotStarted              too little time was left to begin
│   ├── RecordUnreadable        this version cannot read the record
│   └── ResultUnavailable       the effect took place, but its result was not kept
├── ResultGone                  for a `Results` to raise: the stored result no longer exists
└── ValueError
    ├── UnusableKey             this call or message has no usable key
    │   └── MissingKey          there is nothing to make a key of
    ├── InvalidEvent            the event is not an SQS batch
    ├── InvalidRequest          the event is not an HTTP request
    └── ExpressionError         DynamoDB would refuse this expression; raised by `MemoryStore`

Invalid options raise TypeError or ValueError when a function is wrapped, before the first message.
"""

import json
import math
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, fields
from gzip import BadGzipFile
from traceback import format_exception
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from idempotent_receiver.places import codes_of, held, place_of

if TYPE_CHECKING:
    from pydantic import ValidationError


class PermanentError(Exception):
    """Do not retry this message: a retry cannot help.

    Its text is stored, logged and sent to the dead-letter queue as the reason, so leave out anything confidential.
    """


class InvalidBody(PermanentError):
    """The body does not match the handler's annotation. The text holds locations and types, never input."""


LONGEST_DELAY_SECONDS = 12 * 60 * 60
"""The longest time that SQS keeps a message invisible, counted from its receive."""


class RetryLater(Exception):
    """Nothing is wrong, but it is too early: redeliver this message in `seconds`, from 0 to 43,200 (twelve hours).

    A consumer with an SQS client sets the message's visibility timeout to this delay, at most eleven hours and forty
    minutes: SQS counts its twelve hours from the receive. Without a client, the queue's own visibility timeout applies.
    The message counts as failed, and each delay uses a receive. It is logged at INFO, not as an error.

    Its text is stored and logged as the reason, so leave out anything confidential. Raises ValueError for seconds
    outside these bounds, and TypeError for a value that is not a number.
    """

    def __init__(self, reason: str = "", *, seconds: float) -> None:
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise misuse(TypeError(f"RetryLater takes an int or a float, not {type(seconds).__name__}"))
        if not 0 <= seconds <= LONGEST_DELAY_SECONDS:  # also rejects NaN
            raise misuse(
                ValueError(
                    f"RetryLater takes 0 to {LONGEST_DELAY_SECONDS} seconds (SQS's limit is twelve hours): "
                    "for longer delays, use EventBridge Scheduler"
                )
            )
        super().__init__(reason or f"retry in {seconds:g} seconds")
        vars(self)[_DELAY] = math.ceil(seconds)


class UnusableKey(ValueError):
    """The call or message has no usable key, so it never runs: nothing runs without a key."""


class MissingKey(UnusableKey):
    """There is nothing to make a key of: no header, or none of the fields. Over HTTP, such a request runs unprotected
    if no key is `required`.
    """


_BLAME_INPUT = (
    LookupError, TypeError, ValueError, AttributeError, ArithmeticError, EOFError, RecursionError, zlib.error,
    BadGzipFile, PermanentError,
)  # fmt: skip


def blames_input(error: BaseException) -> bool:
    """Whether an error that a key callable, an envelope or a parser raised means that its input is at fault, so that no
    retry helps. Any other error, such as a throttled request's, may not occur again.

    `UnusableKey` and pydantic's ValidationError are ValueErrors. So are some errors of the network, such as
    SSLCertVerificationError, but they are also OSErrors and say nothing about the input.
    """
    return isinstance(error, _BLAME_INPUT) and not (isinstance(error, OSError) and not isinstance(error, BadGzipFile))


class IdempotencyError(Exception):
    """The call has no result to return. `key` is the call's key."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(f"{key}: {text}")
        self.key = key


class InProgress(IdempotencyError):
    """Another call under this key is still running; its lease ends at `until_ms` (epoch)."""

    def __init__(self, key: str, until_ms: int) -> None:
        super().__init__(key, f"in progress elsewhere, until {until_ms} (epoch ms) at the latest; retry after that")
        self.until_ms = until_ms


class FingerprintMismatch(IdempotencyError):
    """The key was used for another payload (`OtherPayload` in the protocol): `expected` is the first payload's
    fingerprint, `found` this payload's.
    """

    def __init__(self, key: str, expected: str, found: str) -> None:
        super().__init__(
            key, f"the key was used for another payload (fingerprint {expected} then, {found} now): use a new key"
        )
        self.expected = expected
        self.found = found


class LostClaim(IdempotencyError):
    """The lease ended while the function ran, and another call took over but has not completed yet (`ClaimLost` in the
    protocol).
    """


class StoreUnavailable(IdempotencyError):
    """The record could not be read or written (`Unknown` in the protocol), or its result, which is stored elsewhere,
    could not be read now. `ran` says whether the function was called.
    """

    def __init__(self, key: str, text: str, *, ran: bool) -> None:
        super().__init__(key, text)
        self.ran = ran


class NotStarted(IdempotencyError):
    """Too little time was left to begin. Nothing ran, and the key is free."""


class RecordUnreadable(IdempotencyError):
    """The record cannot be read by this version. It was left untouched, and nothing ran."""


class ResultUnavailable(IdempotencyError):
    """The effect took place and nothing ran again, but the result was not stored or no longer exists."""


ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]
"""What `logging` takes as `exc_info`."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What is stored and logged about an error: never its input, and its text only if its author meant to disclose it.

    `type` is the exception's qualified name, `at` the line of the user's code that failed (`module.function:line`) and
    the one that raised. `codes` are AWS's error codes and the HTTP status, for an error without a text here. `started`
    is false if the body was rejected, before or by the handler: the attempt then does not count. `delay_seconds` is the
    delay that a `RetryLater` requests, in whole seconds. `charged` says that the message itself is the cause. Where
    charged attempts are limited, `count` is the record's count of them, and `charged_attempt` this one's number among
    those allowed, or 0 if it was not charged; `exhausted` says that it was the last one. `traceback` and `exc_info`
    (what was raised) are only for the log, and set only if all error texts may be disclosed: they contain them.
    """

    type: str
    at: str | None = None
    text: str | None = None
    permanent: bool = False
    started: bool = True
    delay_seconds: int | None = None
    charged: bool = True
    exhausted: bool = False
    count: int = 0
    charged_attempt: int = 0
    traceback: str | None = None
    codes: str | None = None
    exc_info: ExcInfo | None = field(default=None, repr=False, compare=False)

    @property
    def cancelled(self) -> bool:
        """Whether a coroutine was cancelled, as at the deadline: others that share its event loop may be the cause."""
        return self.type == "CancelledError"

    @property
    def for_good(self) -> bool:
        """Whether the message is not handled again: what is left is its dead letter."""
        return self.permanent or self.exhausted

    @property
    def reason(self) -> str:
        """One line for people: the text or, without one, the type, codes and location."""
        if self.text is not None:
            return self.text
        kind = self.type if self.codes is None else f"{self.type} ({self.codes})"
        return kind if self.at is None else f"{kind} at {self.at}"

    def to_json(self) -> str:
        """The record's `error` attribute."""
        kept = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in _NOT_STORED}
        kept = {name: value for name, value in kept.items() if value}
        return json.dumps(kept, ensure_ascii=False)


_NOT_STORED = ("started", "delay_seconds", "charged", "count", "charged_attempt", "traceback", "exc_info")

NOT_CHARGED = (RetryLater, InvalidBody, InProgress, NotStarted, StoreUnavailable)
"""What costs a message no charged attempt: it is too early, the handler did not start, or somebody else is the cause,
such as a function that it calls, or a read of its transaction that failed.

Nor does a commit that the store refused or did not answer for a cause beside its own actions, or a read that was stale
in the last run, too. A cancellation at the deadline does as a crash does: not the first. Everything else that a handler
raises does, a signal's error included.
"""

_Error = TypeVar("_Error", bound=Exception)
_SHOWN = "_idempotent_receiver_shows"
_DELAY = "_idempotent_receiver_delays"


def misuse(error: _Error, *, shown: str | None = None) -> _Error:
    """Mark an error as one that this library raises for a handler's mistake. Its text, or `shown` if given, is
    stored and logged, so it may name arguments, attributes and types but must not contain a value.
    """
    vars(error)[_SHOWN] = str(error) if shown is None else shown
    return error


def failure_of(error: BaseException, *, with_text: bool = False) -> Failure:
    """What may be stored about `error`. Its text is included for a `PermanentError`, a `RetryLater` or a `misuse`, or
    if `with_text` is true, which also adds the traceback.

    An exception group is represented by the error that decides on a retry, with the whole group's traceback.
    """
    raised, error = error, _telling(error)
    permanent = isinstance(error, PermanentError)
    its = held(error)
    shown: str | None = its.get(_SHOWN)
    delay_seconds = None if permanent else its.get(_DELAY)
    text = None if shown is None else _fitting(shown)
    text = text_of(error) if permanent or delay_seconds is not None or with_text else text
    # A refused body's traceback could quote it.
    is_told = with_text and not isinstance(error, InvalidBody)
    return Failure(
        type=type(error).__qualname__,
        # A body is rejected in the library's own code, so the location would say nothing.
        at=None if isinstance(error, InvalidBody) else place_of(error.__traceback__, of_caller=shown is not None),
        text=text,
        permanent=permanent,
        started=not isinstance(error, InvalidBody),
        delay_seconds=delay_seconds,
        charged=delay_seconds is None and not isinstance(error, NOT_CHARGED),
        traceback=_traceback_of(raised) if is_told else None,
        codes=codes_of(error) if text is None else None,
        exc_info=(type(raised), raised, raised.__traceback__) if is_told else None,
    )


def _telling(error: BaseException) -> BaseException:
    """The error itself; for a group, such as `asyncio.TaskGroup` raises, the member that decides on a retry.

    A permanent error wins, because it makes a retry useless. If all errors are delays, the longest delay wins.
    """
    single: list[BaseException] = []
    left = [error]
    while left:
        one = left.pop(0)
        if isinstance(one, BaseExceptionGroup):
            left.extend(BaseExceptionGroup.exceptions.__get__(one))
        else:
            single.append(one)
    return min(single, key=_rank)


def _rank(error: BaseException) -> tuple[bool, bool, int]:
    delay_seconds = held(error).get(_DELAY)
    return not isinstance(error, PermanentError), delay_seconds is not None, -(delay_seconds or 0)


def invalid_body(error: "ValidationError", names: Collection[str]) -> InvalidBody:
    """The permanent error for a body that pydantic rejected: locations and kinds of problems, never values.

    `names` are the type's field names. Other names in a location come from the sender (a mapping's key, an extra field)
    and become `*`.
    """
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    places = [f"{_place(problem['loc'], names)}: {problem['type']}" for problem in problems[:_MOST_PLACES]]
    more = f" and {len(problems) - _MOST_PLACES} more" if len(problems) > _MOST_PLACES else ""
    return InvalidBody(f"the body is not a {error.title}: {'; '.join(places)}{more}")


def _place(location: Sequence[int | str], names: Collection[str]) -> str:
    parts = [str(part) if isinstance(part, int) or part in names else "*" for part in location]
    return ".".join(parts) or "body"


_MOST_PLACES = 10
_MOST_TEXT = 500
"""The longest stored text, in characters: it keeps a record within one DynamoDB write unit (1 KB)."""
_MOST_TRACEBACK = 10_000


def text_of(error: BaseException) -> str:
    """An error's text, truncated to the maximum stored length and without characters that AWS would refuse. Never
    raises.
    """
    try:
        return _fitting(str(error))
    except BaseException:  # noqa: BLE001  # the user's own __str__ may raise anything, even SystemExit
        return "(its text could not be read)"


def _traceback_of(error: BaseException) -> str | None:
    """The end of an error's traceback, as Python prints it; None if it was never raised. Never raises."""
    if error.__traceback__ is None:
        return None
    try:
        return "".join(format_exception(error))[-_MOST_TRACEBACK:].encode("utf-8", "replace").decode("utf-8")
    except BaseException:  # noqa: BLE001  # as above: it runs the user's own code
        return None


def _fitting(text: str) -> str:
    # A lone surrogate cannot be sent to any AWS service.
    return text[:_MOST_TEXT].encode("utf-8", "replace").decode("utf-8")
