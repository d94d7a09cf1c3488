"""Numbers in a JSON text that a double cannot hold: read, passed through expressions, and written again by their text.

Python, like most readers, reads a number with a fraction or an exponent as a double, so that 1.000000000000000001
becomes 1. Two such payloads are two, because a handler may read numbers in another way.
"""

import json
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

import jmespath
from jmespath.functions import Functions, signature


class Inexact(float):
    """A double that stands for a number which it does not hold exactly, and the number's `text`."""

    __slots__ = ("text",)
    text: str


# JMESPath looks up a value's type by the name of its class, and knows only "float" and "int" for numbers.
Inexact.__name__ = "float"


def number_of(text: str) -> float:
    """The number in a text: a float or, if that would be written as another number, an `Inexact`."""
    number = float(text)
    if repr(number) == text or _is_equal(text, number):
        return number
    inexact = Inexact(number)
    inexact.text = text
    return inexact


def _is_equal(text: str, number: float) -> bool:
    try:
        return Decimal(text) == Decimal(repr(number))
    except InvalidOperation:  # an exponent of twenty digits
        return False


def has_inexact(value: Any) -> bool:
    """Whether a JSON value contains an `Inexact`."""
    # A loop, because a value may be nested as deeply as the stack, and because every payload passes through here.
    todo = [value]
    while todo:
        each = todo.pop()
        kind = type(each)
        if kind is dict:
            todo.extend(each.values())
        elif kind is list:
            todo.extend(each)
        elif kind is Inexact:
            return True
    return False


def exact_text(value: Any, *, sort_keys: bool = False) -> str:
    """A JSON value as compact JSON, with every `Inexact` by its text. Raises RecursionError if it is nested deeply."""
    if has_inexact(value):
        return _written(value, sort_keys=sort_keys)
    return json.dumps(value, sort_keys=sort_keys, separators=(",", ":"))


def _written(value: Any, *, sort_keys: bool) -> str:
    """As `json.dumps`, which writes every float as a double."""
    if isinstance(value, dict):
        members = sorted(value.items()) if sort_keys else value.items()
        return f"{{{','.join(f'{json.dumps(name)}:{_written(each, sort_keys=sort_keys)}' for name, each in members)}}}"
    if isinstance(value, list):
        return f"[{','.join(_written(each, sort_keys=sort_keys) for each in value)}]"
    return value.text if isinstance(value, Inexact) else json.dumps(value)


class _Functions(Functions):
    """JMESPath's functions, but where JMESPath's own would lose a number's text. Arithmetic is done on doubles."""

    @signature({"types": []})
    def _func_to_string(self, argument: Any) -> Any:
        return exact_text(argument) if has_inexact(argument) else super()._func_to_string(argument)  # type: ignore[misc]

    @signature({"types": []})
    def _func_to_number(self, argument: Any) -> Any:
        number = super()._func_to_number(argument)  # type: ignore[misc]
        return number_of(argument) if isinstance(argument, str) and isinstance(number, float) else number


FUNCTIONS: Mapping[str, Any] = _Functions().FUNCTION_TABLE
"""The functions that an expression may call, by name."""

EXACT = jmespath.Options(custom_functions=_Functions())
"""How an expression is searched for in a payload: with numbers that keep their text."""
