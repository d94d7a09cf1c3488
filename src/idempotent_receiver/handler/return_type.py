"""A function's return type: how a replay reads a stored result, and whether it would be the first result again.

JSON is narrower than Python: a union, an alias or a validator can turn a stored result into another value. So each
result is read back before it is recorded, and compared with the one that the function returned.
"""

import inspect
import json
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, time
from decimal import Decimal
from functools import cached_property
from types import UnionType
from typing import TYPE_CHECKING, Any, Never, NoReturn, Union, get_args, get_origin

from idempotent_receiver.transaction.reads import ReadItem
from idempotent_receiver.unions import indistinguishable_in

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_JSON = (dict, list, str, int, float, bool, None, type(None), NoReturn, Never)
_OF_SEVERAL = (dict, list, Union, UnionType)


class ReturnType:
    """The return annotation `hint` of the function `name`; `inspect.Parameter.empty` if it has none.

    JSON's own types are read without pydantic. Without an annotation, and for Any, a replay is the result's JSON form.
    Raises TypeError for a type that no stored result can be read back as.
    """

    def __init__(self, hint: Any, name: str) -> None:
        self._hint = hint
        self._is_json, self._is_any = _is_json(hint), hint in (Any, inspect.Parameter.empty)
        if not (self._is_json or self._is_any):
            self._check(name)

    def replayed(self, data: str, *, of_powertools: bool = False) -> Any:
        """The result in `data`, as a replay returns it: read by field names, or by aliases if Powertools stored it.
        Raises whatever the type raises.
        """
        if self._is_json or self._is_any:
            return json.loads(data)
        if of_powertools:
            return self._adapter.validate_json(data)
        return self._adapter.validate_json(data, by_alias=False, by_name=True)

    def difference(self, result: object, data: str) -> str | None:
        """How a replay of `data` would differ from the `result`: by places and types, never values. None if it would
        not.
        """
        if self._is_any:
            return None
        try:
            found = difference_of(result, self.replayed(data))
        except Exception as error:  # noqa: BLE001  # a user's validator or comparison may raise anything
            return f"a replay would raise {type(error).__name__}"
        return None if found is None else f"a replay would differ: result{found[0]} {found[1]}"

    def _check(self, name: str) -> None:
        from pydantic import PydanticUserError  # noqa: PLC0415  # as for the adapter

        try:
            adapter = self._adapter
        except PydanticUserError as error:
            raise TypeError(self._refusal(name, str(error).splitlines()[0].rstrip("."))) from error
        if not adapter.pydantic_complete:
            return  # a class that it refers to does not exist yet
        self._is_any = adapter.core_schema["type"] == "any"
        if (kind := next(_unreadable_keys(adapter.core_schema), None)) is not None:
            raise TypeError(self._refusal(name, f"a dict's key of type {kind} is stored as a text"))
        for _, one, other in indistinguishable_in(self._hint, "result", "validation"):
            text = f"{one} and {other} have the same JSON, and one would be read as the other: add a discriminator"
            raise TypeError(f"{name}: in its return type {self._hint!r}, {text}")

    def _refusal(self, name: str, why: str) -> str:
        return (
            f"{name}: its return type {self._hint!r} cannot be read back from JSON for a replay: {why}. Return data, "
            "such as a model, a dataclass or a dict, or leave the annotation out: then a replay returns the result's "
            "JSON form"
        )

    @cached_property
    def _adapter(self) -> "TypeAdapter[Any]":
        # Imported here because it is the largest part of a cold start.
        from pydantic import TypeAdapter  # noqa: PLC0415

        return TypeAdapter(self._hint)


_NO_KEYS = ("tuple", "named-tuple", "call", "model", "dataclass", "frozenset", "none")
"""What pydantic calls the types that, as a dict's keys, become texts that it does not read. (A NamedTuple was a `call`
before 2.13.)
"""


def _is_json(hint: Any) -> bool:
    """Whether a type has only JSON's own values, which come back as they are, with text as its dicts' keys."""
    if get_origin(hint) not in _OF_SEVERAL:
        return hint in _JSON
    arguments = get_args(hint)
    if get_origin(hint) is dict and arguments[0] is not str:
        return False
    return all(each is Any or _is_json(each) for each in arguments)


def _unreadable_keys(schema: object) -> Iterator[str]:
    """The kinds of keys, in any dict of a type's pydantic schema, that are stored as texts and cannot be read back."""
    if isinstance(schema, Mapping):
        keys = schema.get("keys_schema")
        if isinstance(keys, Mapping) and keys.get("type") in _NO_KEYS and "serialization" not in keys:
            yield keys["type"]
        schema = list(schema.values())
    for part in schema if isinstance(schema, list) else ():
        yield from _unreadable_keys(part)


def difference_of(first: Any, again: Any) -> tuple[str, str] | None:
    """Where, within a result, a replay would differ from it by type or value, and how; None if it would not."""
    if type(first) is type(again) and type(first) in _ATOMS:
        return None if first == again else _another_value(first)
    if _class_of(first) is not _class_of(again):
        return "", f"is of type {type(first).__qualname__} and would be read as {type(again).__qualname__}"
    parts, others = _parts(first), _parts(again)
    if parts is None or others is None:
        # A comparison may return anything, such as an array.
        return None if (first == again) is True else _another_value(first)
    if parts.keys() != others.keys():
        return _another_value(first)
    for name, part in parts.items():
        if (found := difference_of(part, others[name])) is not None:
            return _place(name) + found[0], found[1]
    return None


_ATOMS = frozenset({str, int, float, bool, type(None), Decimal})
"""The most common types without parts."""


def _another_value(first: object) -> tuple[str, str]:
    return "", f"is of type {type(first).__qualname__} and would have another value"


def _class_of(value: object) -> type:
    """The value's class; for a generic model, the class without its parameters, as pydantic compares models; for what
    was read through a transaction, dict, as which it behaves once its handler has ended.
    """
    if isinstance(value, ReadItem):
        return dict
    generic = getattr(type(value), "__pydantic_generic_metadata__", None) or {}
    return generic.get("origin") or type(value)


def _parts(value: Any) -> dict[Any, Any] | None:
    """What a value consists of, by place; None if it has no parts. Excluded and private fields do not count, because
    they are not stored.
    """
    if isinstance(value, dict):
        # Also by the keys' types: 1 and True are the same key.
        items = {(type(key), key): each for key, each in value.items()}
        return {**items, "default_factory": value.default_factory} if isinstance(value, defaultdict) else items
    if isinstance(value, deque):
        return {**dict(enumerate(value)), "maxlen": value.maxlen}
    if isinstance(value, list | tuple):
        return dict(enumerate(value))
    if isinstance(value, set | frozenset):
        return {(type(each), each): None for each in value}
    if (declared := getattr(type(value), "__pydantic_fields__", None)) is not None:
        stored = {name: getattr(value, name) for name, each in declared.items() if not each.exclude}
        extra = getattr(value, "__pydantic_extra__", None)
        return {**stored, **(_parts(extra) or {})}
    if isinstance(value, datetime | time):
        # A time zone comes back as its offset, and `==` would be false in the hour that a clock repeats.
        naive = value.tzinfo is None
        return {"isoformat": value.isoformat(), "naive": naive, "fold": value.fold if naive else 0}
    if is_dataclass(value):
        return {each.name: getattr(value, each.name) for each in fields(value)}
    return None


def _place(name: object) -> str:
    """A part's place: a field's name, which is the type's. A dict's key is the caller's, and may be confidential."""
    return f".{name}" if isinstance(name, str) else "[*]"
