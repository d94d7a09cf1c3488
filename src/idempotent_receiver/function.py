"""The way in for any function: called again with the same key, it answers with its first result.

Inside Lambda the lease ends with the invocation: the deadline comes from the context among the arguments, or from the
claim that the call is made in. Outside, `lease_seconds` says how long a call may hold its key.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from contextvars import copy_context
from dataclasses import dataclass
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, TypeVar, cast

from idempotent_receiver import errors, options
from idempotent_receiver.clock import Clock, Deadline, SystemClock
from idempotent_receiver.handler.annotations import hints_of, wants_transaction
from idempotent_receiver.handler.attempt import Attempt, Handled, current_attempt, run, run_async
from idempotent_receiver.handler.endings import Ending
from idempotent_receiver.handler.outcome import (
    ClaimFailed,
    ClaimLost,
    Completed,
    DeadLettered,
    Duplicate,
    Failed,
    HeldElsewhere,
    NotStarted,
    SettleFailed,
    Unreadable,
)
from idempotent_receiver.handler.results import LARGEST_INLINE_BYTES, ResultGone, Results, fetched
from idempotent_receiver.handler.single_call import Call, CallContext, CallSettings
from idempotent_receiver.payload import EVERYTHING, Document, Payload, PayloadKey, payload_key
from idempotent_receiver.protocol import namespaces
from idempotent_receiver.protocol.record import DEFAULT_RETENTION_SECONDS, Record
from idempotent_receiver.protocol.store import RecordStore, record_id
from idempotent_receiver.protocol.transitions import AlreadyFailed, OtherPayload
from idempotent_receiver.sqs import keys

if TYPE_CHECKING:
    from pydantic import TypeAdapter

Function = TypeVar("Function", bound=Callable[..., Any])
Result = TypeVar("Result")


def idempotent(
    store: RecordStore,
    *,
    key: Callable[..., str],
    payload: Payload | None = EVERYTHING,
    lease_seconds: float | None = None,
    results: Results | None = None,
    retention_seconds: int = DEFAULT_RETENTION_SECONDS,
    lease_margin_seconds: float = 3.0,
    stop_margin_seconds: float = 1.0,
    error_texts: bool = False,
    clock: Clock | None = None,
) -> Callable[[Function], Function]:
    """Make a function take effect once for each key: its first result is what every later call returns.

    `key` is called with the function's arguments; it returns the key, or is a `payload_key(...)`. The store needs a
    namespace. A parameter annotated `Transaction` is not the caller's to give: its writes commit together with the
    completion. The function may be an `async def`; then the store is asked on another thread.

    `payload` says which part of the arguments must be the same under one key: by default everything in them that is
    JSON (models and dates included; what is not, such as a client or `self`, never counts). A single such argument is
    the payload itself, several are an object by their names. None compares nothing.
    `lease_seconds`, needed outside Lambda, is how long a call may run before another may take its key over. Inside,
    the lease lasts until the invocation's deadline and `lease_margin_seconds`.
    `results` is where results go that would make a record larger than 350 KB, such as `S3Results(bucket, client)`.

    A result is kept as JSON and comes back as what the function's annotation says it returns. An exception is raised
    to its caller and recorded; the next call runs again.

    The wrapped function raises what the function raises, and InProgress, OtherPayload, LostClaim,
    StoreUnavailable, NotStarted, RecordUnreadable or ResultUnavailable instead of a result. Raises TypeError or
    ValueError at set-up for what can be known to be wrong then.
    """
    options.require_store(store, "idempotent")
    options.require_call_key(key, (payload_key, keys.message_attribute, keys.body_field, keys.message_id))
    options.require_namespace(store)
    options.require_kind(payload, "payload", "a Payload(fields=..., without=...)", "fingerprint")
    options.require_kind(results, "results", "a S3Results(bucket, client)", "put", "get")
    options.require_count(retention_seconds, "retention_seconds")
    options.require_numbers(lease_margin_seconds=lease_margin_seconds, stop_margin_seconds=stop_margin_seconds)
    if lease_seconds is not None:
        options.require_numbers(lease_seconds=lease_seconds)
    terms = CallSettings(
        store=store,
        clock=SystemClock() if clock is None else clock,
        retention_seconds=retention_seconds,
        largest_record_bytes=LARGEST_INLINE_BYTES,
        results=results,
        error_texts=error_texts,
    )
    lease = _Lease(terms.clock, lease_seconds, lease_margin_seconds, stop_margin_seconds)

    def wrap(function: Function) -> Function:
        wrapped = _Wrapped(function, terms, key, payload, lease)
        namespaces.take(store, *namespaces.user_of("idempotent", function))
        called = update_wrapper(wrapped.coroutine() if wrapped.asynchronous else wrapped.plain(), function)
        called.__signature__ = wrapped.signature  # type: ignore[attr-defined]  # where inspect looks for it
        return cast(Function, called)

    return wrap


@dataclass(frozen=True, slots=True)
class _Lease:
    """How long a call may hold its key."""

    clock: Clock
    seconds: float | None
    margin_seconds: float
    stop_margin_seconds: float

    def begin(self, arguments: Mapping[str, Any], name: str) -> CallContext:
        """The limits of a call that begins now."""
        for argument in arguments.values():
            if _is_context(argument):
                deadline = Deadline.after(self.clock, argument.get_remaining_time_in_millis())
                return self._within(deadline, str(getattr(argument, "aws_request_id", "unknown")))
        outer = current_attempt()
        if outer is not None:
            return self._within(outer.deadline, outer.owner)
        if self.seconds is None:
            raise TypeError(
                f"{name} does not know how long it may run: it was called outside Lambda and outside another claim, "
                "so give idempotent(...) its lease_seconds; inside Lambda, pass it the context"
            )
        # Nobody ends this process at the deadline, so the lease ends there, and what is still running is fenced off.
        deadline = Deadline.after(self.clock, int(self.seconds * 1000))
        return CallContext(deadline=deadline, lease_margin_seconds=0, stop_margin_seconds=0, owner="outside Lambda")

    def _within(self, deadline: Deadline, owner: str) -> CallContext:
        return CallContext(
            deadline=deadline,
            lease_margin_seconds=self.margin_seconds,
            stop_margin_seconds=self.stop_margin_seconds,
            owner=owner,
        )


class _Wrapped:
    """A function, and how its calls are taken."""

    def __init__(
        self,
        function: Callable[..., Any],
        terms: CallSettings,
        key: Callable[..., str],
        payload: Payload | None,
        lease: _Lease,
    ) -> None:
        self.function = function
        self.name = getattr(function, "__qualname__", repr(function))
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"{self.name} is a generator: its body would never run; return a value instead of yielding")
        if isinstance(function, type | staticmethod | classmethod):
            raise TypeError(f"{self.name}: put @idempotent below @staticmethod or @classmethod, on the function itself")
        self.asynchronous = inspect.iscoroutinefunction(function)
        self.terms, self.key, self.payload, self.lease = terms, key, payload, lease
        self.transaction = wants_transaction(function, terms.store)
        signature = inspect.signature(function)
        self.signature = signature.replace(
            parameters=[one for name, one in signature.parameters.items() if name != self.transaction]
        )
        self.transaction_place = _place(signature, self.transaction)
        self.result_type = hints_of(function, self.name).get("return", Any)
        self._adapter: TypeAdapter[Any] | None = None

    def plain(self) -> Callable[..., Any]:
        """The function to be called instead."""

        def called(*args: Any, **kwargs: Any) -> Any:
            call, key = self._call(args, kwargs)
            begun = call.claim()
            if not isinstance(begun, Attempt):
                return self._answer(begun, key)
            handled = run(lambda attempt: self._run(attempt, args, kwargs), begun)
            return self._ended(call, handled, key)

        return called

    def coroutine(self) -> Callable[..., Awaitable[Any]]:
        """The same for a coroutine function. What waits for the store does so on another thread."""
        # Imported where it is used: most functions start without it.
        import asyncio  # noqa: PLC0415

        async def called(*args: Any, **kwargs: Any) -> Any:
            call, key = self._call(args, kwargs)
            try:
                begun = await _to_its_end(call.claim)
            except asyncio.CancelledError:
                # Nobody is there to run it, and where no invocation ends it the lease may be long.
                await _to_its_end(call.release)
                raise
            if not isinstance(begun, Attempt):
                return self._answer(begun, key)
            if call.too_late:
                # The loop stood still since the claim, in a handler that did not await or in a suspended machine.
                await _to_its_end(call.release)
                return self._answer(NotStarted(), key)
            handled = await run_async(lambda attempt: self._run(attempt, args, kwargs), begun)
            return await _to_its_end(lambda: self._ended(call, handled, key))

        return called

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Call, str]:
        bound = self.signature.bind(*args, **kwargs).arguments
        document = _document(bound)
        raw = self.key.of(document) if isinstance(self.key, PayloadKey) else self.key(*args, **kwargs)
        key = keys.usable(raw, lambda key: record_id(self.terms.store, key))
        fingerprint = None if self.payload is None else self.payload.fingerprint(document)
        return Call(self.terms, key, fingerprint, self.lease.begin(bound, self.name)), key

    def _run(self, attempt: Attempt, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function, with its transaction in its place among the caller's arguments."""
        name, place = self.transaction, self.transaction_place
        if name is None:
            return self.function(*args, **kwargs)
        if place is not None and len(args) > place:
            return self.function(*args[:place], attempt.transaction, *args[place:], **kwargs)
        return self.function(*args, **kwargs, **{name: attempt.transaction})

    def _ended(self, call: Call, handled: Handled, key: str) -> Any:
        ended = call.settle(handled)
        if isinstance(ended, Completed):
            return handled.result  # type: ignore[union-attr]  # what was completed had returned
        return self._answer(ended, key)

    def _answer(self, ended: Ending, key: str) -> Any:
        """The result, or the exception, that an outcome means for the caller."""
        match ended:
            case Completed(record) | Duplicate(record=record):
                return self._replayed(record, key)
            case HeldElsewhere(until_ms):
                raise errors.InProgress(key, until_ms)
            case OtherPayload(expected, found):
                raise errors.FingerprintMismatch(key, expected, found)
            case Failed(failure, _, error):
                if error is None:
                    raise errors.StoreUnavailable(key, f"the function ran, and {failure.reason}", ran=True)
                raise error
            case ClaimLost():
                raise errors.LostClaim(key, "the lease ended while the function ran, and another call took over")
            case ClaimFailed(why):
                raise errors.StoreUnavailable(key, f"nothing ran: {why}", ran=False)
            case SettleFailed(why):
                raise errors.StoreUnavailable(
                    key, f"the function ran, and its end could not be recorded: {why}", ran=True
                )
            case Unreadable(reason):
                raise errors.RecordUnreadable(key, f"its record is not one that this version knows: {reason}")
            case NotStarted():
                raise errors.NotStarted(key, "too little time is left to begin; nothing ran")
            case DeadLettered() | AlreadyFailed():
                raise AssertionError("a function has no dead letters, and its failures are no answers")

    def _replayed(self, record: Record, key: str) -> Any:
        try:
            data = fetched(record, self.terms.results)
        except ResultGone as error:
            raise errors.ResultUnavailable(key, f"the effect is done; {error}") from error
        if data is None:
            return None
        try:
            return self._read(data)
        except ValueError as error:
            told = f"the effect is done; its result is no {self.result_type!r} any more"
            raise errors.ResultUnavailable(key, told) from error

    def _read(self, data: str) -> Any:
        if self._adapter is None:
            # Imported where it is used: the first call of a key needs none of it.
            from pydantic import TypeAdapter  # noqa: PLC0415

            self._adapter = TypeAdapter(self.result_type)
        return self._adapter.validate_json(data)


def _place(signature: inspect.Signature, name: str | None) -> int | None:
    """Which of the positional arguments a parameter is; None for one that is given by its name alone."""
    for place, parameter in enumerate(signature.parameters.values()):
        if parameter.name == name and parameter.kind is not parameter.KEYWORD_ONLY:
            return place
    return None


async def _to_its_end(job: Callable[[], Result]) -> Result:
    """Do on another thread what waits for the store. A caller that is cancelled meanwhile is so once it is done: what
    was claimed must be known, and what was run recorded.
    """
    # Imported where it is used: most functions start without it.
    import asyncio  # noqa: PLC0415

    # A future and no task, as `asyncio.to_thread` would make: a loop that ends cancels every task that it finds.
    done = asyncio.get_running_loop().run_in_executor(None, copy_context().run, job)
    cancelled: asyncio.CancelledError | None = None
    while not done.done():
        try:
            await asyncio.wait([done])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return done.result()
    done.exception()  # looked at, or asyncio would complain that nobody did
    raise cancelled


def _is_context(argument: object) -> bool:
    """Whether it is Lambda's context, or does for one."""
    return callable(getattr(argument, "get_remaining_time_in_millis", None))


def _document(arguments: Mapping[str, Any]) -> Document:
    """What of the arguments is JSON: the one argument that is, or an object of several by their names."""
    # Imported where it is used: consumers of a queue need none of it.
    from pydantic_core import PydanticSerializationError, to_json  # noqa: PLC0415

    parts: dict[str, bytes] = {}
    for name, value in arguments.items():
        if _is_context(value):
            continue
        try:
            parts[name] = to_json(value, inf_nan_mode="constants")
        except (PydanticSerializationError, ValueError, RecursionError, TypeError):
            continue
    if len(parts) == 1:
        return Document.of_bytes(next(iter(parts.values())))
    pairs = [f'"{name}":'.encode() + part for name, part in sorted(parts.items())]
    return Document.of_bytes(b"{" + b",".join(pairs) + b"}")
