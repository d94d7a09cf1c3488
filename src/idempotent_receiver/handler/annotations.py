"""The parameters that a handler requests by annotation."""

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from idempotent_receiver.durable import (
    durable_refusal,
    is_durable_function,
    takes_durable_context,
)
from idempotent_receiver.protocol.store import TransactionalStore
from idempotent_receiver.protocol.transaction import Transaction

if TYPE_CHECKING:
    from pydantic import TypeAdapter


def function_name(function: Callable[..., Any]) -> str:
    """The function's name for messages; for a callable object without a name, its repr."""
    return getattr(function, "__qualname__", repr(function))


def wants_transaction(function: Callable[..., Any], store: object) -> str | None:
    """The name of the parameter annotated `Transaction`, if any. Raises TypeError if there are several, if one is
    annotated as optional, or if the store does not support transactions.
    """
    name = function_name(function)
    hints = hints_of(function, name)
    names = [one for one in inspect.signature(function).parameters if hints.get(one) is Transaction]
    for one in inspect.signature(function).parameters:
        # An optional parameter would never get a Transaction, so writes that depend on it would never happen.
        if Transaction in get_args(hints.get(one)):
            raise TypeError(f"{name}: annotate {one!r} as Transaction, not as optional: every call gets one")
    if len(names) > 1:
        raise TypeError(f"{name} requests several Transactions; each call has one")
    if names:
        require_transactions(store, name)
    return names[0] if names else None


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


def hints_of(function: Callable[..., Any], name: str) -> dict[str, Any]:
    """The function's annotations. Raises TypeError if one cannot be resolved, or is a durable function's context."""
    while isinstance(function, partial):
        function = function.func
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        hints = get_type_hints(target, include_extras=True)
    except NameError as error:
        raise TypeError(f"{name}: an annotation cannot be resolved ({error}); move the type to module level") from error
    if any(map(takes_durable_context, hints.values())):
        raise durable_refusal(name)
    return hints


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
