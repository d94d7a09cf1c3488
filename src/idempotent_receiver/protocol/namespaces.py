"""Namespaces separate the functions that share a table.

A record's id is `{namespace}#{key}` or, without a namespace, the key itself. Neither a namespace nor a key without a
namespace may contain `#`, so no two pairs share an id, even if a client chose the key. Within a process, a namespace
belongs to one function.
"""

import weakref
from collections.abc import Callable
from functools import partial
from inspect import unwrap
from types import CodeType
from typing import Any


def checked(namespace: object) -> str | None:
    """A store's namespace, checked. Raises TypeError or ValueError for a namespace that would not keep ids distinct."""
    if namespace is None:
        return None
    if not isinstance(namespace, str):
        raise TypeError(f"namespace must be a string such as 'orders', or None for no namespace; it is {namespace!r}")
    if not namespace:
        raise ValueError(
            "namespace is empty, perhaps from an unset variable. Give it a name such as 'orders', "
            "or None for no namespace"
        )
    if "#" in namespace:
        raise ValueError(
            f"namespace {namespace!r} has a '#', which ends the namespace in a record's id: choose another; for a "
            "prefix that Powertools wrote, see docs/from-powertools.md"
        )
    try:
        namespace.encode()
    except UnicodeEncodeError:
        raise ValueError(f"namespace {namespace!r} has a lone surrogate, which AWS services reject") from None
    return namespace


def joined(namespace: str | None, name: str) -> str:
    """The namespace of a store's `named(name)`. Raises TypeError or ValueError for an invalid name."""
    found = checked(name)
    if found is None:
        raise TypeError(
            "the name of a store must be a string such as 'charge'; it is None, perhaps from an unset variable"
        )
    return found if namespace is None else f"{namespace}.{found}"


def take(store: Any, user: str, name: str, source: str | None = None) -> None:
    """Reserve the store's namespace for `user`. Raises ValueError, with `name` in the remedy, if another user has it.

    Two functions would mistake each other's records for their own under any key that both use. The same user, or a user
    with the same `source`, may take it again. A store without a namespace is open to all: its keys are messageIds.
    """
    if store.namespace is None:
        return
    users = _users_of(getattr(store, "table_id", store))
    first, first_source = users.setdefault(store.namespace, (user, source))
    if first != user and (source is None or source != first_source):
        remedy = f'store.named("{name}")' if hasattr(store, "named") else "a store with a namespace of its own"
        raise ValueError(
            f"one namespace, one function: {store.namespace!r} is already taken by {first}, and {user} would get that "
            f"function's results for any key that both use. Give {user} {remedy}"
        )


def user_of(way_in: str, function: Callable[..., Any]) -> tuple[str, str, str | None]:
    """The user name, the store name and the source of a wrapped function.

    The user name is the module and qualified name, because a reload, a test or a factory creates a new object for the
    same function. The source names the file, because a test may load the module under a different name. Both contain a
    lambda's first line number, because all lambdas share one name.
    """
    found: Any = function
    while isinstance(found, partial):
        found = found.func
    if not hasattr(found, "__qualname__"):
        found = type(found)
    name = found.__qualname__.rpartition(".")[2]
    code: CodeType | None = getattr(unwrap(found), "__code__", None)
    line = f":{code.co_firstlineno}" if code is not None and name == "<lambda>" else ""
    who = f"{found.__qualname__}{line} ({way_in})"
    source = None if code is None else f"{code.co_filename}: {who}"
    return f"{getattr(found, '__module__', None)}.{who}", name if name.isidentifier() else "another", source


_users: dict[str | int, dict[str, tuple[str, str | None]]] = {}
"""Each namespace's user and source, per table in this process. Tables are identified by name or by object id."""

_kept: list[object] = []
"""Tables without weak references, kept alive so that no other object gets their id."""


def _users_of(table: object) -> dict[str, tuple[str, str | None]]:
    place = table if isinstance(table, str) else id(table)
    if place not in _users and not isinstance(table, str):
        try:
            weakref.finalize(table, _users.pop, place, None).atexit = False
        except TypeError:
            _kept.append(table)
    # `setdefault` is atomic, so two threads that set up at once share one mapping.
    return _users.setdefault(place, {})
