"""Fakes for functions that a handler calls, such as a payment API. Each records its calls and their keys."""

import asyncio
import inspect
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from functools import wraps
from inspect import getattr_static
from typing import Any, Protocol

from idempotent_receiver.handler.attempt import current_attempt
from idempotent_receiver.testing.varying import plain


@dataclass(frozen=True, slots=True)
class Call:
    """One call to a fake. `key` is the idempotency key it received, or a list with a key for each message that it
    joins; `message` is the key of the message being handled, or None.
    """

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(hash=False)
    key: object = None
    message: str | None = None
    attempt: int | None = None
    """The attempt number; None if no message was being handled."""
    run: object = field(default=None, repr=False, compare=False)
    """The handler's run. An attempt runs the handler again if data that it read has changed."""
    given: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Copies of the arguments, by parameter: the handler may change the originals later."""
    at_least_once: str | None = field(default=None, repr=False, compare=False)
    """Why the call may be repeated although the target knows no key; None if it may not."""

    def __str__(self) -> str:
        given = [_short(value) for value in self.args]
        given += [f"{name}={_short(value)}" for name, value in self.kwargs.items()]
        return f"{self.name}({', '.join(given)})"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:24]}...{text[-8:]}"


class Watcher(Protocol):
    """Decides what happens to each call while a handler is explored."""

    def promised(self, call: Call, promise: Coroutine[Any, Any, Any]) -> None:
        """A coroutine was created that makes the call when awaited."""

    def before(self, call: Call) -> float:
        """The call is about to be made. Returns the seconds to wait first."""

    def sleep(self, seconds: float) -> None:
        """Wait for `seconds` before calling a synchronous fake."""

    def arrives(self, call: Call, refuses: BaseException | None) -> None:
        """The call is about to take effect. Raises `refuses` if the call is to be refused."""

    def after(self, call: Call, raises: BaseException | None) -> None:
        """The call was made. Raises `raises` if its answer is to be lost."""


_watchers: list[Watcher] = []


def _watchers_of(no_effects: str | None) -> list[Watcher]:
    """The watchers of a fake, now and later: nobody watches a look-up."""
    return _watchers if no_effects is None else []


@contextmanager
def watched_by(watcher: Watcher) -> Iterator[None]:
    """Within the block, all calls to fakes go to the watcher, and no `Calls` records them."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


class Calls:
    """Creates fakes, and records their calls in `made`, in order.

    While `explore` runs, it watches all calls itself, and `made` does not record them.
    """

    def __init__(self, replace: Callable[[Any, str, Any], None] | None = None) -> None:
        self.made: list[Call] = []
        self._replace = replace

    def fake(
        self,
        of: str | Callable[..., Any],
        *,
        key: str | Callable[..., object] | None = None,
        returns: Any = None,
        raises: BaseException | type[BaseException] | None = None,
        refuses: BaseException | type[BaseException] | None = None,
        at_least_once: str | None = None,
        no_effects: str | None = None,
    ) -> Callable[..., Any]:
        """A function to call instead of `of`, which is a function or its name. The fake is `async` if the function is.

        `key` names the parameter that holds the idempotency key, or is a callable that takes the arguments and returns
        the key. Without a key, or with an empty one, two calls for one message count as two effects. A list holds one
        key for each message that the call joins, as a bulk request does: `message.key`, or a text with
        `message.idempotency_key` in it. The call then belongs to all these messages. `returns` is the
        return value (each call gets its own copy of a dict, list or set), or a callable that takes the arguments and
        returns the value. `raises` is the error that the caller sees if the call took effect but its answer was lost;
        `explore` then tries that, too. `refuses` is the error that the caller sees if the call is refused without
        effect, such as a declined card; `explore` then tries one refusal, and repeated refusals until a redrive.

        Two declarations take a reason. `at_least_once="SES takes no key"` allows repeated calls without a key, or with
        another: `explore` then checks only that the call is never missing. `no_effects="it only reads"` makes the fake
        a look-up, which `explore` leaves alone.

        Raises TypeError for a `key` that is not one of the function's parameters, for a blank reason, and for a look-up
        with a key or an error. The fake raises TypeError for a call that the real function would not accept.
        """
        name = of if isinstance(of, str) else getattr(of, "__name__", type(of).__name__)
        signature = None if isinstance(of, str) else inspect.signature(of)
        _require_key(key, name, signature)
        lost, refusal = _error("raises", raises), _error("refuses", refuses)
        _require_reasons(name, at_least_once, no_effects, others=[key, raises, refuses])
        watchers = _watchers_of(no_effects)

        def called(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
            return _call(name, signature, key, args, kwargs, at_least_once=at_least_once)

        def effect(call: Call) -> Any:
            for watcher in watchers:
                watcher.arrives(call, refusal)
            if not _watchers:
                self.made.append(call)
            return returns(*call.args, **call.kwargs) if callable(returns) else _as_new(returns)

        def answer(call: Call, result: Any) -> Any:
            for watcher in watchers:
                watcher.after(call, lost)
            return result

        def fake(*args: Any, **kwargs: Any) -> Any:
            call = called(args, kwargs)
            for watcher in watchers:
                watcher.sleep(watcher.before(call))
            return answer(call, effect(call))

        async def awaited(call: Call) -> Any:
            for watcher in watchers:
                await asyncio.sleep(watcher.before(call))
            result = effect(call)
            return answer(call, await result if inspect.isawaitable(result) else result)

        def async_fake(*args: Any, **kwargs: Any) -> Any:
            call = called(args, kwargs)
            return _promised(watchers, call, awaited(call))

        chosen = _marked(async_fake) if inspect.iscoroutinefunction(of) else fake
        return chosen if isinstance(of, str) else wraps(of)(chosen)

    def replace(self, target: Any, name: str, **how: Any) -> None:
        """Replace `target.name` with a fake until the test ends; `how` is as in `fake`. For the `calls` fixture."""
        if self._replace is None:
            raise TypeError(
                "replace needs pytest's monkeypatch: use the `calls` fixture, or write "
                f"monkeypatch.setattr(..., {name!r}, calls.fake(...))"
            )
        fake: Any = self.fake(getattr(target, name), **how)
        static = isinstance(target, type) and isinstance(getattr_static(target, name), staticmethod | classmethod)
        self._replace(target, name, staticmethod(fake) if static else fake)


def _as_new(returns: Any) -> Any:
    """A copy of a container, so that a handler's changes to one call's answer do not affect other calls."""
    return deepcopy(returns) if isinstance(returns, dict | list | set) else returns


def _require_key(key: object, name: str, signature: inspect.Signature | None) -> None:
    if key is not None and not isinstance(key, str) and not callable(key):
        raise TypeError(
            f"key must name a parameter of {name}, or be a callable that takes its arguments; it is {key!r}"
        )
    if not isinstance(key, str) or signature is None:
        return
    parameters = signature.parameters.values()
    if key not in signature.parameters and all(one.kind is not one.VAR_KEYWORD for one in parameters):
        raise TypeError(
            f"{name} has no parameter {key!r} to hold its idempotency key: it has {[*signature.parameters]}"
        )


def require_reason(why: object, option: str) -> None:
    """Raise TypeError unless `why` is a non-blank str or None."""
    if why is not None and (not isinstance(why, str) or not why.strip()):
        raise TypeError(f"{option} must be a reason, a str such as 'a local emulator'; it is {why!r:.100}")


def _require_reasons(name: str, at_least_once: object, no_effects: object, *, others: list[object]) -> None:
    require_reason(at_least_once, "at_least_once")
    require_reason(no_effects, "no_effects")
    if no_effects is not None and any(one is not None for one in (at_least_once, *others)):
        raise TypeError(
            f"{name} cannot have no_effects with key, raises, refuses or at_least_once: a look-up is neither repeated "
            "nor refused by explore; leave out no_effects, or the others"
        )


def _error(option: str, given: object) -> BaseException | None:
    """The error to raise. Raises TypeError for a value that is not an error, or an error class that needs arguments."""
    if given is None or isinstance(given, BaseException):
        return given
    try:
        if isinstance(given, type) and issubclass(given, BaseException):
            return given()
    except TypeError:
        pass
    raise TypeError(f"{option} must be an error, such as {option}=TimeoutError('...'); it is {given!r:.100}")


def _call(
    name: str,
    signature: inspect.Signature | None,
    key: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    at_least_once: str | None,
) -> Call:
    given = _given(signature, args, kwargs)
    found = key(*args, **kwargs) if callable(key) else None if key is None else given.get(key)
    found = None if found == "" else found
    attempt = current_attempt.get()
    if attempt is None:
        return Call(name, args, kwargs, found, given=plain(given), at_least_once=at_least_once)
    return Call(name, args, kwargs, found, attempt.key, attempt.attempt, attempt, plain(given), at_least_once)


def _promised(watchers: Sequence[Watcher], call: Call, promise: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
    for watcher in watchers:
        watcher.promised(call, promise)
    return promise


def _marked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function that returns a coroutine as a coroutine function."""
    if sys.version_info >= (3, 12):
        return inspect.markcoroutinefunction(function)
    function._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]  # noqa: SLF001  # asyncio's mark
    return function


def _given(signature: inspect.Signature | None, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments by parameter, or by position without a signature. Raises TypeError for a call that the signature
    does not allow.
    """
    if signature is not None:
        return {**kwargs, **signature.bind(*args, **kwargs).arguments}
    return {**{str(number): value for number, value in enumerate(args)}, **kwargs}
