"""What an annotation says about a value: the class that it is of, and the annotations of its parts.

Reads annotations alone, without pydantic. An annotation that cannot be read says nothing.
"""

import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import lru_cache
from pathlib import Path
from sys import stdlib_module_names
from typing import (
    Annotated,
    Any,
    Literal,
    NewType,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

_Reader = TypeVar("_Reader", bound=Callable[..., Any])


def _remembered(function: _Reader) -> _Reader:
    """Cache by arguments. An annotation with unhashable metadata is read each time."""
    cached: Callable[..., Any] = lru_cache(maxsize=1024)(function)

    def found(*arguments: Any) -> Any:
        try:
            return cached(*arguments)
        except TypeError:
            return function(*arguments)

    return found  # type: ignore[return-value]  # the same parameters and result


@_remembered
def says(hint: Any, kind: type) -> bool:
    """Whether a value of the class `kind` is of the one class that the annotation names. One of several classes of a
    union is not, unless a field of them, the union's discriminator, names the class.
    """
    groups = alternatives(hint)
    return len(groups) == 1 and any(_names(member, kind) for member in groups[0])


@_remembered
def alternatives(hint: Any) -> tuple[tuple[Any, ...], ...]:
    """The annotation's alternatives but None. Those that a discriminator tells apart are one group."""
    return tuple(_alternatives(hint))


def _alternatives(hint: Any) -> Iterator[tuple[Any, ...]]:
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated and any(_names_a_field(each) for each in hint.__metadata__):
        yield tuple(member for group in alternatives(args[0]) for member in group)
    elif origin is Annotated or getattr(origin, "_name", None) in _QUALIFIERS:
        yield from alternatives(args[0])
    elif origin is Union or origin is types.UnionType:
        for each in args:
            yield from alternatives(each)
    elif origin is Literal:
        yield from ((kind,) for kind in dict.fromkeys(map(type, args)) if kind is not types.NoneType)
    elif isinstance(hint, NewType):
        yield from alternatives(hint.__supertype__)
    elif "TypeAliasType" in (type(hint).__name__, type(origin).__name__):
        yield from alternatives(_aliased(hint, origin, args))
    elif hint is not None and hint is not types.NoneType:
        yield (hint,)


_QUALIFIERS = ("ClassVar", "Final", "NotRequired", "ReadOnly", "Required")
"""By name, because `typing` has the last ones only in newer versions of Python."""


def _names_a_field(metadata: Any) -> bool:
    """Whether it is a discriminator that is in the JSON. A callable's tag is not."""
    return isinstance(getattr(metadata, "discriminator", None), str)


def _aliased(alias: Any, origin: Any, args: Any) -> Any:
    """What a `type` statement stands for."""
    try:
        return alias.__value__ if origin is None else origin.__value__[args]
    except Exception:  # noqa: BLE001  # it is evaluated here, and may raise anything
        return Any


def _names(member: Any, kind: type) -> bool:
    origin = get_origin(member) or member
    return origin is kind or _MADE_AS.get(origin) is kind or _is_marker(origin, kind)


_MADE_AS: Mapping[Any, type] = {Path: type(Path())}
"""The class of the objects that a class makes, if it is another."""


def _is_marker(origin: Any, kind: type) -> bool:
    """Whether the annotation is one of pydantic's, such as AwareDatetime, which no value is an object of."""
    return is_standard(kind) and str(getattr(origin, "__module__", "")).startswith("pydantic.")


def is_standard(kind: type) -> bool:
    """Whether a class is one of Python's own."""
    return str(kind.__module__).partition(".")[0] in stdlib_module_names


@_remembered
def member_for(hint: Any, kind: type) -> Any:
    """The alternative that a value of this class belongs to; Any if that cannot be told."""
    found = [member for group in alternatives(hint) for member in group if _fits(member, kind)]
    return found[0] if len(found) == 1 else Any


def _is_typed_dict(kind: Any) -> bool:
    # `typing.is_typeddict` does not know those of typing_extensions, which pydantic needs before 3.12.
    return isinstance(kind, type) and issubclass(kind, dict) and hasattr(kind, "__total__")


def _fits(member: Any, kind: type) -> bool:
    origin = get_origin(member) or member
    try:
        return kind is dict if _is_typed_dict(origin) else issubclass(kind, origin)
    except TypeError:  # not a class, or a protocol that cannot be checked
        return False


def of_entries(member: Any) -> tuple[Any, Callable[[str], Any]]:
    """The annotations of a mapping's keys, and of its values by name."""
    origin, args = get_origin(member) or member, get_args(member)
    if _is_typed_dict(origin):
        named = fields_of(origin)
        return str, lambda name: named.get(name, _UNKNOWN)[1]
    keys, values = args if len(args) == 2 else (Any, Any)
    return keys, lambda name: values


def of_elements(member: Any, count: int) -> tuple[Any, ...]:
    """The annotations of a collection's elements."""
    args = get_args(member)
    if get_origin(member) is tuple and args[-1:] != (...,):
        return args if len(args) == count else (Any,) * count
    return (args[0] if args and args[1:] in ((), (...,)) else Any,) * count


_UNKNOWN = ("", Any)


@_remembered
def fields_for(hint: Any, kind: type) -> Mapping[str, tuple[str, Any]]:
    """The fields of a value of this class, which the annotation may give the arguments of a generic class."""
    return fields_of(kind, get_args(member_for(hint, kind)))


@_remembered
def fields_of(kind: Any, args: tuple[Any, ...] = ()) -> Mapping[str, tuple[str, Any]]:
    """The fields of a model, dataclass, named tuple or TypedDict: each one's name in JSON, and its annotation. `args`
    are the arguments of a generic class.
    """
    filled = dict(zip(getattr(kind, "__parameters__", ()), args, strict=False))
    return {name: (alias, _filled(hint, filled)) for name, (alias, hint) in _declared(kind).items()}


def _declared(kind: Any) -> Mapping[str, tuple[str, Any]]:
    declared = getattr(kind, "__pydantic_fields__", None)
    if declared is not None:
        return {name: (_alias(name, each), _of_field(each)) for name, each in declared.items()}
    try:
        hints = get_type_hints(kind, include_extras=True)
    except Exception:  # noqa: BLE001  # it is evaluated here, and may raise anything
        hints = {}
    names = [each.name for each in fields(kind)] if is_dataclass(kind) else getattr(kind, "_fields", hints)
    return {name: (name, hints.get(name, Any)) for name in names}


def _alias(name: str, field: Any) -> str:
    return str(field.serialization_alias or field.alias or name)


def _of_field(field: Any) -> Any:
    return Annotated[field.annotation, field] if _names_a_field(field) else field.annotation


def _filled(hint: Any, filled: Mapping[Any, Any]) -> Any:
    """The annotation with the arguments of its generic class."""
    if isinstance(hint, TypeVar):
        return filled.get(hint, hint)
    needed = getattr(hint, "__parameters__", ())
    if isinstance(hint, type) or not any(each in filled for each in needed):
        return hint
    return hint[tuple(filled.get(each, each) for each in needed)]


def unions_in(hint: Any, path: str, seen: set[Any] | None = None) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The unions of several classes in an annotation and in the fields of its classes: the path of each, for `without`,
    and its members. Those with a discriminator are left out.
    """
    seen = set() if seen is None else seen
    for each in _nested(hint):
        members = [member for group in alternatives(each) for member in group]
        several = tuple(member for member in members if _classes(member))
        if len(alternatives(each)) > 1 and len(frozenset().union(*map(_classes, several))) > 1:
            yield path, several
        for member in members:
            kind = get_origin(member) or member
            if _has_fields(kind) and kind not in seen:
                seen.add(kind)
                for name, field in fields_of(kind, get_args(member)).values():
                    yield from unions_in(field, f"{path}.{name}", seen)


def _nested(hint: Any) -> Iterable[Any]:
    """The annotation, and those among its arguments at any depth, each once: a `type` may contain itself."""
    found: dict[Any, Any] = {}
    todo = [hint]
    while todo:
        each = todo.pop()
        if (name := _hashable(each)) not in found:
            found[name] = each
            todo.extend(arg for group in alternatives(each) for member in group for arg in get_args(member))
    return found.values()


def _hashable(hint: Any) -> Any:
    try:
        hash(hint)
    except TypeError:
        return id(hint)
    return hint


def _classes(member: Any) -> frozenset[type]:
    """The classes named in a member of a union that JSON alone may not tell apart. A TypedDict is a dict."""
    nested = (each for hint in _nested(member) for group in alternatives(hint) for each in group)
    kinds = (get_origin(each) or each for each in nested)
    return frozenset(kind for kind in kinds if _has_fields(kind) or (isinstance(kind, type) and issubclass(kind, Enum)))


def _has_fields(kind: Any) -> bool:
    if not isinstance(kind, type) or _is_typed_dict(kind):
        return False
    return is_dataclass(kind) or hasattr(kind, "__pydantic_fields__") or (issubclass(kind, tuple) and kind is not tuple)
