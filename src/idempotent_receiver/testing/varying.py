"""Finds values that vary on their own, such as times, by comparing the results of two runs, and removes them.

A place is a path: `orders.at`, `journal[].at`, `charge(order.at`. A hidden place still shows the size of its content.
"""

import json
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any


def plain(value: object) -> Any:
    """A copy as dicts, lists and strings, to compare later, when the value itself may have changed."""
    match value:
        case Mapping():
            return {str(name): plain(held) for name, held in value.items()}
        case list() | tuple():
            return [plain(held) for held in value]
        case AbstractSet():
            return sorted(map(repr, value))
    return repr(value)


def parsed(result: str | None) -> Any:
    """A handler's result, from its JSON."""
    return None if result is None else json.loads(result)


def places(here: Any, there: Any, path: str) -> frozenset[str]:
    """The places where two values differ."""
    if here == there:
        return frozenset()
    match here, there:
        case Mapping(), Mapping() if here.keys() == there.keys():
            return frozenset().union(*(places(here[name], there[name], _within(path, name)) for name in here))
        case ((list() | tuple()), (list() | tuple())) if len(here) == len(there):
            return frozenset().union(*(places(*both, f"{path}[]") for both in zip(here, there, strict=True)))
    return frozenset({path})


def without(value: Any, hidden: AbstractSet[str], path: str) -> Any:
    """The value, with only the size of the content in each hidden place."""
    if path in hidden:
        return (
            f"varies ({len(value)})"
            if isinstance(value, Mapping | Sequence | AbstractSet) and not _text(value)
            else "varies"
        )
    match value:
        case Mapping():
            return {name: without(held, hidden, _within(path, name)) for name, held in value.items()}
        case list() | tuple():
            return [without(held, hidden, f"{path}[]") for held in value]
    return value


def _text(value: object) -> bool:
    return isinstance(value, str | bytes)


def _within(path: str, name: object) -> str:
    return f"{path}{'' if path.endswith('(') else '.'}{name}"
