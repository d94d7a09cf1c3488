"""The entry point for any function: called again with the same key, it returns its first result.

Inside Lambda, the lease follows the invocation's deadline, which comes from the context among the arguments or from the
claim that encloses the call. Outside Lambda, `lease_seconds` limits how long a claim lasts.
"""

import inspect
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial, update_wrapper
from typing import Any, TypeVar, cast

from idempotent_receiver import errors, options
from idempotent_receiver.arguments import Arguments, Given, is_context
from idempotent_receiver.calls import CallOptions, KeyedCall
from idempotent_receiver.clock import Deadline
from idempotent_receiver.durable import durable_refusal, is_durable_context
from idempotent_receiver.handler import outcome
from idempotent_receiver.handler.annotations import hints_of, runnable, wants_transaction
from idempotent_receiver.handler.attempt import Attempt, Returned, current_attempt, run_async
from idempotent_receiver.handler.outcome import Ending
from idempotent_receiver.handler.results import ResultGone, fetched
from idempotent_receiver.handler.return_type import ReturnType
from idempotent_receiver.one_argument import OneArgumentKey
from idempotent_receiver.options import Function
from idempotent_receiver.payload import Payload
from idempotent_receiver.protocol import namespaces
from idempotent_receiver.protocol.answers import AlreadyFailed, OtherPayload
from idempotent_receiver.protocol.record import Record

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class idempotent(CallOptions):  # noqa: N801  # a decorator
    """Make a function take effect once for each key: every later call returns its first result.

    `key` is called with the function's arguments and returns the key, or is a `payload_key(...)`. The store needs a
    namespace. If a parameter is annotated `Transaction`, the library supplies the argument, whose writes commit
    together with the completion. If the function runs again because data that it read has changed, it gets the same
    argument objects, so it must not change them. They are not copied, because one may be a client, a cache or `self`.
    The function may be an `async def`; then another thread waits for the store.

    `payload` says which part of the arguments must be the same under one key: by default all except a Lambda
    context and `self`, in their JSON form. An argument equal to its default counts as not given. If only the first
    required argument is given, it is the payload itself; several form an object, by name. `payload=None` compares
    nothing. Arguments without a JSON form, such as a client, must be left out by name:
    `payload=Payload(without=["session", "order.client"])`, or `key=payload_key(without=...)` if the key is made from
    the payload; on a method, a payload key must leave out `self` as well.
    `lease_seconds`, required outside Lambda, is how long a call may run before another can take over its key. Inside
    Lambda, the lease lasts until the invocation's deadline plus `lease_margin_seconds`.
    `results`, such as `S3Results(bucket, client)`, stores results that would make a record larger than 350 KB.

    A result is stored as JSON, and later calls get it as the type in the function's return annotation. An exception is
    recorded and reaches the caller; the next call runs again.

    The wrapped function raises the function's own exceptions. Without a result to return, it raises InProgress,
    FingerprintMismatch, LostClaim, StoreUnavailable, NotStarted, RecordUnreadable or ResultUnavailable. Before anything
    runs, it raises UnusableKey for arguments that cannot be distinguished from others, or for which `key`
    raises an error that blames its input, such as KeyError or ValueError; any other error of `key` reaches the caller.
    `idempotent` itself raises TypeError or ValueError at set-up for options that cannot work.
    """

    lease_seconds: float | None = None

    def __post_init__(self) -> None:
        if self.lease_seconds is not None:
            options.require_lease(self.lease_seconds)
        self.check("idempotent")

    def __call__(self, function: Function) -> Function:
        """Decorate a function."""
        wrapped = _Wrapped(function, self)
        namespaces.take(self.store, *namespaces.user_of("idempotent", function))
        called = update_wrapper(wrapped.coroutine() if wrapped.asynchronous else wrapped.plain(), function)
        called.__signature__ = wrapped.signature  # type: ignore[attr-defined]  # where inspect looks for it
        return cast(Function, called)


class _Wrapped:
    """A wrapped function and its options."""

    def __init__(self, function: Callable[..., Any], calls: idempotent) -> None:
        self.function, self.calls = function, calls
        self.name = runnable(function)
        if isinstance(function, type | staticmethod | classmethod):
            raise TypeError(f"{self.name}: put @idempotent below @staticmethod or @classmethod, on the function itself")
        self.asynchronous = inspect.iscoroutinefunction(function)
        self.transaction = wants_transaction(function, calls.store)
        self.full_signature = inspect.signature(function)
        callers = [one for one in self.full_signature.parameters.values() if one.name != self.transaction]
        self.signature = self.full_signature.replace(parameters=callers)
        self.arguments = Arguments(function, self.name, self.signature)
        self.arguments.check(calls.key, calls.payload)
        self.return_type = ReturnType(_return_hint(function, self.name), self.name)
        # Nothing ends a process outside Lambda at the deadline, so the lease ends there and fences off a call that is
        # still running.
        self.calls_outside = replace(calls, lease_margin_seconds=0, stop_margin_seconds=0)

    def plain(self) -> Callable[..., Any]:
        """The wrapper of a plain function."""

        def called(*args: Any, **kwargs: Any) -> Any:
            call = self._call(args, kwargs)
            ended, result = call.run(lambda attempt: self._run(attempt, args, kwargs))
            return self._result(ended, call.key, result)

        return called

    def coroutine(self) -> Callable[..., Awaitable[Any]]:
        """The wrapper of a coroutine function. Another thread waits for the store."""
        # Imported here because most functions do not need it.
        import asyncio  # noqa: PLC0415

        async def called(*args: Any, **kwargs: Any) -> Any:
            call = self._call(args, kwargs)
            try:
                begun = await _to_its_end(call.claim)
            except asyncio.CancelledError:
                # The function will not run, and outside an invocation the lease may be long.
                await _to_its_end(call.release)
                raise
            if not isinstance(begun, Attempt):
                return self._result(begun, call.key)
            if call.too_late():
                # Since the claim, other code blocked the event loop, or the machine was suspended.
                await _to_its_end(call.release)
                return self._result(outcome.NotStarted(), call.key)
            result = None
            while isinstance(begun, Attempt):
                handled = await run_async(
                    lambda attempt: self._run(attempt, args, kwargs), begun, with_text=self.calls.error_texts
                )
                try:
                    begun = await _to_its_end(partial(call.settle, handled))
                except asyncio.CancelledError:
                    await _to_its_end(call.release)  # it may have been about to run again
                    raise
                result = handled.result if isinstance(handled, Returned) else None
            return await _to_its_end(partial(self._result, begun, call.key, result))

        return called

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> KeyedCall:
        if self.transaction in kwargs:
            text = f"{self.name}: {self.transaction!r} is the transaction, which the library supplies"
            raise errors.misuse(TypeError(text))
        if any(map(is_durable_context, (*args, *kwargs.values()))):
            raise errors.misuse(durable_refusal(self.name))
        calls, bound = self.calls, self._bound(args, kwargs)
        key, fingerprint = self._key_and_fingerprint(bound, args, kwargs)
        context = next(filter(is_context, (*args, *kwargs.values())), None)
        if context is not None:
            return calls.begin(key, fingerprint, context, return_type=self.return_type)
        outer = current_attempt.get()
        if outer is not None:
            return KeyedCall(calls, key, fingerprint, outer.deadline, outer.owner, return_type=self.return_type)
        if calls.lease_seconds is None:
            text = (
                f"{self.name} has no time limit: it was called outside Lambda and outside another "
                "claim. Pass lease_seconds to idempotent(...); inside Lambda, pass Lambda's context to the function, "
                "which in a durable function's step is its context.lambda_context"
            )
            raise errors.misuse(TypeError(text))
        deadline = Deadline.after(calls.clock, int(calls.lease_seconds * 1000))
        return KeyedCall(self.calls_outside, key, fingerprint, deadline, "outside Lambda", return_type=self.return_type)

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        try:
            return self.signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{self.name}{self.signature}: {error}") from None

    def _key_and_fingerprint(
        self, bound: Mapping[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[str, str | None]:
        key, payload = self.calls.key, self.calls.payload
        # The arguments are inspected only if the key or the payload uses them.
        given = self.arguments.given(bound) if isinstance(key, Payload) or payload is not None else Given({}, ())
        match key:
            case Payload():
                made = self.arguments.key(given, key)
            case OneArgumentKey():
                made = self.arguments.key_of_one(bound, key)
            case _:
                made = options.made("key", "the arguments", partial(key, *args, **kwargs))
        usable = self.calls.usable(made)
        return usable, None if payload is None else self.arguments.fingerprint(given, payload, key)

    def _run(self, attempt: Attempt, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function with the transaction inserted among the caller's arguments."""
        if self.transaction is None:
            return self.function(*args, **kwargs)
        bound = self.signature.bind(*args, **kwargs)
        given = {**bound.arguments, self.transaction: attempt.transaction}
        bound = inspect.BoundArguments(self.full_signature, OrderedDict(given))
        return self.function(*bound.args, **bound.kwargs)

    def _result(self, ended: Ending, key: str, result: Any = None) -> Any:
        """The call's result. Raises the exception for an outcome without one."""
        match ended:
            case outcome.Completed():
                return result
            case outcome.Duplicate(record):
                return self._replayed(record, key)
        raise _error(ended, key)

    def _replayed(self, record: Record, key: str) -> Any:
        try:
            data = fetched(record, self.calls.results)
        except ResultGone as error:
            text = f"the call took effect; {error}"
            if error.retry:
                raise errors.StoreUnavailable(key, text, ran=False) from error
            raise errors.ResultUnavailable(key, text) from error
        try:
            return None if data is None else self.return_type.replayed(data, of_powertools=record.version is None)
        except Exception as error:  # a user's type may raise anything, and it is not the function's error
            text = "the call took effect; its result no longer fits the function's return type"
            raise errors.ResultUnavailable(key, text) from error


def _return_hint(function: Callable[..., Any], name: str) -> Any:
    return hints_of(function, name, needed=lambda each: each == "return").get("return", inspect.Parameter.empty)


def _error(ended: Ending, key: str) -> BaseException:
    match ended:
        case outcome.HeldElsewhere(until_ms):
            return errors.InProgress(key, until_ms)
        case OtherPayload(expected, found):
            return errors.FingerprintMismatch(key, expected, found)
        case outcome.Failed(failure, error=error):
            text = f"the function ran, and {failure.reason}"
            return errors.StoreUnavailable(key, text, ran=True) if error is None else error
        case outcome.ClaimLost():
            return errors.LostClaim(key, "the lease ended while the function ran, and another call took over")
        case outcome.ClaimFailed(why):
            return errors.StoreUnavailable(key, f"nothing ran: {why}", ran=False)
        case outcome.SettleFailed(why):
            text = f"the function ran, but its outcome could not be recorded: {why}"
            return errors.StoreUnavailable(key, text, ran=True)
        case outcome.Unreadable(reason):
            return errors.RecordUnreadable(key, f"this version cannot read its record: {reason}")
        case outcome.NotStarted():
            return errors.NotStarted(key, "too little time was left to start; nothing ran")
        case outcome.Completed() | outcome.Duplicate() | outcome.DeadLettered() | outcome.NotSent() | AlreadyFailed():
            raise AssertionError("results and stored failures are not call errors, and a call sends nothing")


async def _to_its_end(job: Callable[[], Result]) -> Result:
    """Wait for the store on another thread. If the caller is cancelled meanwhile, the job still finishes first: a
    claim's answer must be known, and a run must be recorded.
    """
    # Imported here because most functions do not need it.
    import asyncio  # noqa: PLC0415

    # A future, because `asyncio.to_thread` would need a task, and a loop that ends cancels every task.
    done = asyncio.get_running_loop().run_in_executor(None, copy_context().run, job)
    cancelled: asyncio.CancelledError | None = None
    while not done.done():
        try:
            await asyncio.wait([done])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return done.result()
    done.exception()  # mark it as retrieved, or asyncio logs that it never was
    raise cancelled
