"""The functions that a consumer declares in `calls=`: what a transaction may ask of them, and how a call is made.

A record has a function's name and its arguments as JSON. Any later process finds the function by that name, so what
cannot be found again, or read back equal, is refused before it is written. No error's text has an argument's value.
"""

import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any

from idempotent_receiver.errors import misuse
from idempotent_receiver.handler.annotations import classes_in, hints_of, refuse_method, runnable
from idempotent_receiver.transaction.outbox import OutboxCall
from idempotent_receiver.transaction.transaction import Transaction
from idempotent_receiver.transaction.values import named_type

OWN_KEY = "idempotency_key"
"""The parameter that gets the call's own key."""

Around = Callable[[OutboxCall, str, Callable[[], object]], object]
"""Makes a call, given as a function without arguments, under its key, and does something about it."""


def _directly(call: OutboxCall, key: str, make: Callable[[], object]) -> object:
    return make()


class Callees:
    """A consumer's functions by name: their own names or, in a mapping, those that it gives.

    `around` makes each call. Raises TypeError or ValueError, with the remedy, for what cannot be called from a record.
    """

    def __init__(self, calls: "DeclaredCalls" = (), around: Around = _directly) -> None:
        self._around = around
        self.by_name: Mapping[str, _Callee] = (
            calls.by_name
            if isinstance(calls, Callees)
            else {name: _Callee(name, each) for name, each in _declared(calls)}
        )

    def __contains__(self, name: object) -> bool:
        return name in self.by_name

    def __bool__(self) -> bool:
        return bool(self.by_name)

    @property
    def any_asynchronous(self) -> bool:
        """Whether any of them is a coroutine function."""
        return any(callee.asynchronous for callee in self.by_name.values())

    def to_call(self, function: object, arguments: Mapping[str, Any]) -> OutboxCall:
        """The call as a record holds it. Raises TypeError for an undeclared function, and for arguments that do not fit
        it or that JSON cannot hold.
        """
        for callee in self.by_name.values():
            if callee.function == function:
                return callee.to_call(arguments)
        name = getattr(function, "__qualname__", type(function).__name__)
        problem = f"{name} is not declared: sqs_consumer(store, calls=[{name}])"
        if name in self.by_name:
            problem = f"{name} is not the function that calls declares: in a test, replace what it calls instead"
        raise misuse(TypeError(f"Transaction.call: {problem}"))

    def asynchronous(self, name: str) -> bool:
        """Whether the function is a coroutine function."""
        return self.by_name[name].asynchronous

    def make(self, call: OutboxCall, key: str) -> object:
        """Make a record's call, under this key. The caller awaits what a coroutine function returns. Raises what the
        function raises, and TypeError for arguments that it no longer takes.
        """
        return self._around(call, key, partial(self.by_name[call.name].make, call.arguments, key))

    def unknown(self, call: OutboxCall) -> str | None:
        """Why a record's call cannot be made here, with the remedy; None if it can."""
        if call.name in self.by_name:
            return None
        remedy = f"declare it, under that name if it was renamed: calls={{{call.name!r}: function}}"
        return f"it has a call to {call.name!r}, which this consumer does not declare: {remedy}"


DeclaredCalls = Iterable[Callable[..., Any]] | Mapping[str, Callable[..., Any]] | Callees
"""What a consumer takes as `calls`."""


def _declared(calls: Any) -> Iterable[tuple[str, Callable[..., Any]]]:
    if isinstance(calls, str | bytes) or not isinstance(calls, Iterable):
        raise TypeError(f"calls must be a list of functions, or a mapping of names to functions; it is {calls!r}")
    if isinstance(calls, Mapping):
        for name in calls:
            if not isinstance(name, str) or not name:
                raise TypeError(f"calls maps names to functions: {name!r} is no name")
        return calls.items()
    named: dict[str, Callable[..., Any]] = {}
    for function in calls:
        name = getattr(function, "__name__", type(function).__name__)
        if name in named:
            raise ValueError(f"calls has two functions of the name {name!r}: name them, calls={{'name': function}}")
        named[name] = function
    return named.items()


class _Callee:
    """One declared function."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        if not (inspect.isfunction(function) or inspect.ismethod(function)) or function.__name__ == "<lambda>":
            text = "a later process must find it by its name: define a function with `def`"
            raise TypeError(f"calls: {name!r} is {function!r}, not a function with a name; {text}")
        self.function, self._name = function, runnable(function)
        self._known_as = name
        self.asynchronous = inspect.iscoroutinefunction(function)
        self._signature = inspect.signature(function)
        refuse_method(function, self._name, "calls=")
        hints = hints_of(function, self._name, needed=lambda parameter: parameter != "return")
        for parameter in self._signature.parameters.values():
            self._check(parameter, hints)
        self._own_key = OWN_KEY in self._signature.parameters
        names = [name for name in self._signature.parameters if name != OWN_KEY]
        self._types = {name: _ArgumentType(hints[name], f"calls: {self._name}: parameter {name!r}") for name in names}

    def _check(self, parameter: inspect.Parameter, hints: Mapping[str, Any]) -> None:
        where = f"calls: {self._name}: parameter {parameter.name!r}"
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"{where} must have a name to be called by, so not *, ** or positional-only")
        if parameter.name not in hints:
            raise TypeError(f"{where} has no annotation: annotate it with a type that pydantic can validate")
        if any(issubclass(each, Transaction) for each in classes_in(hints[parameter.name])):
            raise TypeError(f"{where} is a Transaction, but a call is made after the commit: write in the handler")
        if parameter.name == OWN_KEY and hints[OWN_KEY] is not str:
            raise TypeError(f"{where} gets the call's key: annotate it as str")

    def to_call(self, arguments: Mapping[str, Any]) -> OutboxCall:
        if self._own_key and OWN_KEY in arguments:
            raise misuse(TypeError(f"Transaction.call: {self._name} gets its {OWN_KEY} by itself: leave it out"))
        self._bind(arguments, "Transaction.call: ")
        return OutboxCall(self._known_as, {name: self._stored(name, argument) for name, argument in arguments.items()})

    def _stored(self, name: str, argument: object) -> Any:
        from idempotent_receiver.handler.return_type import difference_of  # noqa: PLC0415  # most consumers call nothing

        where = f"Transaction.call: {self._name}'s argument {name}"
        remedy = "pass what pydantic serialises to JSON and reads back equal"
        try:
            stored = self._types[name].stored(argument)
            found = difference_of(argument, self._types[name].read(stored))
        except Exception as error:  # noqa: BLE001  # a user's type may raise anything
            text = f"{where} is {named_type(argument)}, and raises {type(error).__name__} on its way to JSON and back"
            raise misuse(TypeError(f"{text}: {remedy}")) from None
        if found is not None:
            raise misuse(TypeError(f"{where}{found[0]} {found[1]}: {remedy}"))
        return stored

    def make(self, arguments: Mapping[str, Any], key: str) -> object:
        where = f"the record's call to {self._known_as!r} no longer fits: "
        remedy = "accept what it was called with, or deploy the new function under another name"
        given: dict[str, Any] = {}
        for name, stored in arguments.items():
            if name not in self._types:
                raise misuse(TypeError(f"{where}{self._name} takes no {name}: {remedy}"))
            try:
                given[name] = self._types[name].read(stored)
            except Exception as error:  # noqa: BLE001  # as above
                what = f"{self._name}'s argument {name} raises {type(error).__name__}"
                raise misuse(TypeError(f"{where}{what}: {remedy}")) from None
        self._bind(given, where)
        result = self.function(**given, **({OWN_KEY: key} if self._own_key else {}))
        if self.asynchronous:
            return _awaited(result)
        # Dropped, but for what has not run: that is refused.
        return result if inspect.isawaitable(result) or inspect.isgenerator(result) else None

    def _bind(self, arguments: Mapping[str, Any], where: str) -> None:
        try:
            self._signature.bind(**arguments, **({OWN_KEY: ""} if self._own_key else {}))
        except TypeError as error:
            raise misuse(TypeError(f"{where}{self._name}: {error}")) from None


async def _awaited(result: Awaitable[object]) -> None:
    await result


class _ArgumentType:
    """How an argument with this annotation becomes JSON and is read again. Raises TypeError, which begins with `where`,
    for one that pydantic does not know.
    """

    def __init__(self, hint: Any, where: str) -> None:
        # Imported here because most consumers declare no calls, and it is the largest part of a cold start.
        from pydantic import PydanticUserError, TypeAdapter  # noqa: PLC0415

        try:
            self._adapter: TypeAdapter[Any] = TypeAdapter(hint)
        except PydanticUserError as error:
            raise TypeError(f"{where}: pydantic cannot validate it: {str(error).splitlines()[0]}") from error

    def stored(self, argument: object) -> Any:
        """The argument in JSON's values. Raises an exception if there are none."""
        text = self._adapter.dump_json(argument, by_alias=False, round_trip=True, warnings=False)
        stored = json.loads(text)
        json.dumps(stored, ensure_ascii=False).encode()  # raises for a lone surrogate, which no AWS service takes
        return stored

    def read(self, stored: object) -> Any:
        """The argument again. Raises what its type raises."""
        return self._adapter.validate_json(json.dumps(stored), by_alias=False, by_name=True)
