"""The JSON form of a Python value, used to compare arguments: pydantic's form, but with sets as sorted lists.

A value without a JSON form cannot be distinguished from others of its type. `Odd` stands in for it.
"""

import json
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from math import isfinite
from typing import Any

import rfc8785

from idempotent_receiver.payload import Document, json_of


@dataclass(frozen=True, slots=True)
class Odd:
    """A value without a JSON form: its path, for `without`, and its type."""

    path: str
    kind: str

    def __str__(self) -> str:
        # JMESPath's `to_string` would turn all such values into the same text.
        raise TypeError("a value without a JSON form has no text")


def document_of(value: object, path: str) -> Document:
    """The form of an argument, or of its part at `path`. The document's value may contain `Odd`."""
    try:
        nested = list(_nested(value))
        if any(each is value for each in nested[1:]):
            raise ValueError("it contains itself")
        if not _is_misread(value) and not any(_is_misread(each) or _is_cut(each) for each in nested[1:]):
            with suppress(*_NO_FORM):
                return Document.of_bytes(_pydantic_json(value))
        form = _form(value, path)
        return Document(json_text(form), form, is_json=True)
    except _NO_FORM:
        odd = _odd(value, path)
        return Document(json_text(odd), odd, is_json=True)


def odd_in(form: Any) -> Iterator[Odd]:
    """The `Odd` values in a form."""
    if isinstance(form, Odd):
        yield form
    elif isinstance(form, (dict, list)):
        for each in form.values() if isinstance(form, dict) else form:
            yield from odd_in(each)


def json_text(form: Any, *, sort_keys: bool = False) -> bytes:
    """The form as JSON; null for values that have no JSON form."""
    text = json.dumps(form, ensure_ascii=False, separators=(",", ":"), sort_keys=sort_keys, default=lambda odd: None)
    return text.encode("utf-8", "surrogatepass")


def key_name(key: object) -> str:
    """The name that a dict's key gets in JSON."""
    (name,) = json_of(_pydantic_json({key: None}).decode())
    return str(name)


def canonical(form: Any) -> bytes:
    """The form's canonical JSON, by which the members of a set are sorted."""
    try:
        return rfc8785.dumps(form)
    except (ValueError, RecursionError, rfc8785.CanonicalizationError):
        return json_text(form, sort_keys=True)


_NO_FORM = (ValueError, TypeError, AttributeError, RecursionError)
"""The exceptions by which pydantic and users' own classes refuse a value."""


_SCALARS = frozenset({str, int, bool, type(None)})


def _is_misread(value: object) -> bool:
    """Whether pydantic's JSON cannot be compared: a set has no order, an iterator is exhausted, a secret is masked."""
    return isinstance(value, (set, frozenset, Iterator)) or hasattr(type(value), "get_secret_value")


def _is_cut(part: object) -> bool:
    """Whether pydantic may serialise the value only in part when it is a model's field. It omits what the value's type
    adds to the declared type, which may be the bare `BaseModel`, and writes null for an infinite number.
    """
    bases = type(part).__mro__[1:]
    return isinstance(part, float) or _is_model(part) or any(hasattr(each, "__dataclass_fields__") for each in bases)


def _is_finite(value: object) -> bool:
    return isinstance(value, float) and isfinite(value)


def _nested(value: object) -> Iterator[object]:
    """The value and everything it contains, each once; the value again if it contains itself."""
    # Kept alive, so that no temporary object's id is reused.
    seen: dict[int, object] = {}
    todo = [value]
    while todo:
        each = todo.pop()
        if id(each) not in seen:
            seen[id(each)] = each
            todo.extend(part for part in _parts(each) if type(part) not in _SCALARS and not _is_finite(part))
        elif each is not value:
            continue
        yield each


def _parts(value: Any) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, (list, tuple, set, frozenset, deque)):
        return value
    if _is_model(value):
        return [*vars(value).values(), *(value.__pydantic_extra__ or {}).values()]
    if is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, each.name, None) for each in fields(value)]
    return ()


def _form(value: Any, path: str) -> Any:
    """The form of a value that pydantic cannot serialise as a whole, built from its parts. Raises one of `_NO_FORM`."""
    if isinstance(value, (list, tuple, deque)):
        return [_part(each, _within(path, ".")) for each in value]
    if isinstance(value, (set, frozenset)):
        return sorted((_part(each, _within(path, ".")) for each in value), key=canonical)
    if isinstance(value, dict):
        named = {key_name(name): _part(each, _within(path, key_name(name))) for name, each in value.items()}
        if len(named) != len(value):
            raise ValueError("a repeated name")
        return named
    if _is_model(value):
        return _model(value, path)
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: _part(getattr(value, each.name), _within(path, each.name)) for each in fields(value)}
    raise TypeError(f"a {type(value).__qualname__} has no JSON form")


def _part(value: Any, path: str) -> Any:
    document = document_of(value, path)
    return document.value if document.is_json else _odd(value, path)


def _odd(value: object, path: str) -> Odd:
    return Odd(path.removesuffix(_CLOSED), type(value).__qualname__)


def _within(path: str, name: str) -> str:
    """The path to the part `name`; if no `without` path can reach that part, the parent's path, closed."""
    if path.endswith(_CLOSED):
        return path
    return f"{path}{_CLOSED}" if "." in name else f"{path}.{name}"


_CLOSED = "[]"
"""Ends the path to a list's elements or to a name that contains dots."""


def _is_model(value: object) -> bool:
    return hasattr(type(value), "__pydantic_root_model__")


def _model(model: Any, path: str) -> Any:
    """A model's form, field by field, with each field's alias and serializer as in pydantic. For a model with its own
    serializer, the form of what the serializer returns.
    """
    kind = type(model)
    decorators = kind.__pydantic_decorators__
    if decorators.model_serializers:
        return _part(kind.__pydantic_serializer__.to_python(model, by_alias=True), path)
    if kind.__pydantic_root_model__:
        return _part(model.root, path)
    form: dict[str, Any] = {}
    serialized = {name for each in decorators.field_serializers.values() for name in each.info.fields}
    # PlainSerializer and WrapSerializer in a field's annotation.
    serialized |= {n for n, each in kind.model_fields.items() if any(hasattr(m, "when_used") for m in each.metadata)}
    for name, field in {**kind.model_fields, **kind.model_computed_fields}.items():
        value, alias = getattr(model, name), getattr(field, "serialization_alias", None) or field.alias or name
        is_misread = any(_is_misread(each) or _is_cut(each) for each in _nested(value))
        if name in serialized or not is_misread:
            with suppress(*_NO_FORM):
                form.update(json_of(_pydantic_json(model, include={name}).decode()))
                continue
        if not getattr(field, "exclude", None):
            form[alias] = _part(value, _within(path, alias))
    for name, value in (model.__pydantic_extra__ or {}).items():
        form[name] = _part(value, _within(path, name))
    return form


def _pydantic_json(value: object, **options: Any) -> bytes:
    # Imported here because queue consumers do not need it.
    from pydantic_core import to_json  # noqa: PLC0415

    return to_json(value, inf_nan_mode="constants", **options)
