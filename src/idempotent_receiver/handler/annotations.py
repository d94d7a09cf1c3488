"""What a handler asks for by its annotations."""

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from idempotent_receiver.protocol.store import TransactionalStore
from idempotent_receiver.protocol.transaction import Transaction

if TYPE_CHECKING:
    from pydantic import TypeAdapter


def function_name(function: Callable[..., Any]) -> str:
    """What to call it; an object that is called has no name of its own."""
    return getattr(function, "__qualname__", repr(function))


def wants_transaction(function: Callable[..., Any], store: object) -> str | None:
    """The name of the parameter that is annotated `Transaction`, if there is one. Raises TypeError where there are
    several, where one is annotated as optional, or where the store has none to give.
    """
    name = function_name(function)
    hints = hints_of(function, name)
    names = [one for one in inspect.signature(function).parameters if hints.get(one) is Transaction]
    for one in inspect.signature(function).parameters:
        # It would be given none, and what it writes "if there is one" would be written never.
        if Transaction in get_args(hints.get(one)):
            raise TypeError(f"{name}: annotate {one!r} with Transaction alone, not as optional: every call gets one")
    if len(names) > 1:
        raise TypeError(f"{name} asks for several Transactions; there is one a call")
    if names:
        require_transactions(store, name)
    return names[0] if names else None


def require_transactions(store: object, name: str) -> None:
    """Raise TypeError for a store that has no transactions."""
    if not isinstance(store, TransactionalStore):
        raise TypeError(f"{name} asks for a Transaction, and {type(store).__name__} has none")


def runnable(function: Callable[..., Any]) -> str:
    """The function's name. Raises TypeError for a generator."""
    name = function_name(function)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{name} is a generator: its body would never run; return a value instead of yielding")
    return name


def hints_of(function: Callable[..., Any], name: str) -> dict[str, Any]:
    """The function's annotations. Raises TypeError where one cannot be resolved."""
    while isinstance(function, partial):
        function = function.func
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        return get_type_hints(target, include_extras=True)
    except NameError as error:
        raise TypeError(f"{name}: an annotation cannot be resolved ({error}); move the type to module level") from error


def field_names(adapter: "TypeAdapter[Any]") -> frozenset[str]:
    """The names of a type's fields, as a body has them; none where pydantic has no schema of the type to tell."""
    try:
        schema = adapter.json_schema()
    except Exception:  # noqa: BLE001  # a user's type may refuse in its own way; then its names stay unknown
        return frozenset()
    return frozenset(_properties(schema))


def _properties(schema: object) -> Iterator[str]:
    if isinstance(schema, dict):
        properties = schema.get("properties")
        yield from properties if isinstance(properties, dict) else ()
        schema = list(schema.values())
    for part in schema if isinstance(schema, list) else ():
        yield from _properties(part)
