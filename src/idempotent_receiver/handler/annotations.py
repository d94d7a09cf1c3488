"""The parameters that a handler requests by annotation."""

import inspect
import re
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

from idempotent_receiver.durable import (
    durable_refusal,
    is_durable_function,
    takes_durable_context,
)
from idempotent_receiver.protocol.store import TransactionalStore
from idempotent_receiver.transaction.transaction import Transaction

if TYPE_CHECKING:
    from pydantic import TypeAdapter


def function_name(function: Callable[..., Any]) -> str:
    """The function's name for messages; for a callable object without a name, its repr."""
    return getattr(function, "__qualname__", repr(function))


def wants_transaction(function: Callable[..., Any], store: object) -> str | None:
    """The name of the parameter annotated `Transaction`, if any. Raises TypeError if there are several, if one is
    annotated otherwise, such as optional, or if the store does not support transactions.
    """
    name = function_name(function)
    hints = hints_of(function, name, needed=lambda parameter: False)
    names = [one for one in inspect.signature(function).parameters if hints.get(one) is Transaction]
    for one in inspect.signature(function).parameters:
        require_plain(hints.get(one), Transaction, one, name)
    if len(names) > 1:
        raise TypeError(f"{name} requests several Transactions; each call has one")
    if names:
        require_transactions(store, name)
    return names[0] if names else None


def require_plain(hint: Any, supplied: type, parameter: str, function: str) -> None:
    """Raise TypeError for a parameter whose annotation names what the library supplies in another way than as such: in
    a union, an alias, a list, or by a subclass. It would get none.
    """
    if hint is not supplied and any(issubclass(each, supplied) for each in classes_in(hint)):
        kind = supplied.__name__
        raise TypeError(
            f"{function}: annotate {parameter!r} as {kind}, not as optional, a list or otherwise: every call gets one"
        )


def classes_in(hint: Any) -> Iterator[type]:
    """The classes that an annotation names, within unions, aliases, containers and `Annotated` too."""
    todo, seen = [hint], set()
    while todo:
        each = todo.pop()
        if id(each) in seen:
            continue  # a `type` alias may contain itself
        seen.add(id(each))
        if isinstance(each, type) and not get_args(each):
            yield each
        todo += [*get_args(each), get_origin(each)]
        todo += [getattr(each, "__supertype__", None), getattr(each, "__value__", None)]


def refuse_method(function: Callable[..., Any], name: str, wrap: str) -> None:
    """Raise TypeError for a method that is not bound to its object. `wrap` is the call that decorates."""
    first = next(iter(inspect.signature(function).parameters.values()), None)
    if first is not None and first.name in ("self", "cls") and first.annotation is first.empty:
        raise TypeError(
            f"{name} is a method, and nothing gives it its {first.name!r}: wrap it once it is bound, as in "
            f"{wrap}(service.handle)"
        )


def require_transactions(store: object, name: str) -> None:
    """Raise TypeError if the store does not support transactions."""
    if not isinstance(store, TransactionalStore):
        raise TypeError(f"{name} requests a Transaction, which {type(store).__name__} does not support")


def runnable(function: Callable[..., Any]) -> str:
    """The function's name. Raises TypeError for a generator function or a durable function."""
    name = function_name(function)
    if is_durable_function(function):
        raise durable_refusal(name)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{name} is a generator: its body would never run; return a value instead of yielding")
    return name


def hints_of(
    function: Callable[..., Any], name: str, *, needed: Callable[[str], bool] = lambda parameter: True
) -> dict[str, Any]:
    """The function's annotations, without those that cannot be resolved and are not `needed`.

    Raises TypeError for one that is needed, for a parameter's `Transaction` that cannot be resolved, and for a durable
    function's context.
    """
    while isinstance(function, partial):
        function = function.func
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        hints = get_type_hints(target, include_extras=True)
    except Exception:  # noqa: BLE001  # an annotation is evaluated, so it may raise anything
        hints = _resolved_one_by_one(target, name, needed)
    if any(map(takes_durable_context, hints.values())):
        raise durable_refusal(name)
    return hints


_SUPPLIED = re.compile(r"\bTransaction\b")
"""What every decorator supplies: a function that asks for it must get it."""


def _resolved_one_by_one(function: Callable[..., Any], name: str, needed: Callable[[str], bool]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each, annotation in function.__annotations__.items():
        alone = SimpleNamespace(__annotations__={each: annotation})
        try:
            found |= get_type_hints(alone, globalns=function.__globals__, include_extras=True)
        except Exception as error:
            if needed(each) or (each != "return" and _SUPPLIED.search(str(annotation))):
                text = f"{name}: the annotation of {each!r} cannot be resolved ({error}): {_remedy(error)}"
                raise TypeError(text) from error
    return found


def _remedy(error: Exception) -> str:
    if isinstance(error, NameError):  # imported only for type checkers, or local
        return "import its type at run time, not only `if TYPE_CHECKING`, and define it at module level, above"
    return "name a type there"


def field_names(adapter: "TypeAdapter[Any]") -> frozenset[str]:
    """The names of a type's fields, as they appear in a body; empty if pydantic has no schema for the type."""
    try:
        schema = adapter.json_schema()
    except Exception:  # noqa: BLE001  # a user's type may raise anything; then its names stay unknown
        return frozenset()
    return frozenset(_properties(schema))


def _properties(schema: object) -> Iterator[str]:
    if isinstance(schema, dict):
        properties = schema.get("properties")
        yield from properties if isinstance(properties, dict) else ()
        schema = list(schema.values())
    for part in schema if isinstance(schema, list) else ():
        yield from _properties(part)
