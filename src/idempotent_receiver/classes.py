"""The classes of a call's values that their annotations do not name. Two of them may have the same JSON form, so the
class counts beside the form, and never in it: expressions and `without` see only the form.

A value of plain JSON (dict, list, str, int, float, bool, None) has no class here, whatever its annotation.
"""

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, is_dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import Any, NamedTuple

from idempotent_receiver import hints
from idempotent_receiver.errors import UnusableKey
from idempotent_receiver.json_form import Odd, canonical, document_of, json_text, key_name
from idempotent_receiver.payload import Document, Payload

_Step = str | int | tuple[str]
"""A step to a part of a form: a name, an index, or the canonical JSON of a set's member, which has no index."""


@dataclass(frozen=True, slots=True)
class Undeclared:
    """A class and the `path` of its value in the form. The value may be the `role` "key" of that entry, or the "root"
    of the value there.
    """

    path: tuple[_Step, ...]
    role: str
    name: str


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument, or several by name: the form, and the classes that count beside it."""

    document: Document
    classes: Sequence[Undeclared] = ()

    def fingerprint(self, payload: Payload) -> str:
        """The fingerprint of the part that counts and of its classes. Raises UnusableKey if fields are missing."""
        return payload.fingerprint(self.document, *self.context(payload))

    def context(self, payload: Payload) -> list[str]:
        """The classes of what counts, as a fingerprint's context, which cannot be an HTTP request's."""
        if not self.classes:
            return []
        counting: Iterable[Undeclared] = [each for each in self.classes if not _is_left_out(each, payload)]
        if payload.fields is not None:
            counting = _selected(counting, payload, self.document)
        return sorted(json.dumps(["class", each.path, each.role, each.name]) for each in counting)

    def part(self, payload: Payload) -> "Argument":
        """The part that counts, and its classes."""
        part = payload.part(self.document)
        document = Document(json_text(part), part, is_json=True)
        return Argument(document, [each for each in self.classes if not _is_left_out(each, payload)])

    def within(self, name: str) -> Iterator[Undeclared]:
        """The classes, as those of the field `name`."""
        return (replace(each, path=(name, *each.path)) for each in self.classes)


def argument_of(value: object, name: str, hint: Any) -> Argument:
    """The argument `name`, which is annotated with `hint`."""
    document = document_of(value, name)
    return Argument(document, () if _is_plain(value) else tuple(_undeclared(value, document, hint)))


_SCALARS = frozenset({str, int, float, bool, type(None)})
_PLAIN = _SCALARS | {dict, list}


def _is_plain(value: Any) -> bool:
    """Whether the value is plain JSON throughout, as most are: then no annotation needs to be read."""
    todo, seen = [value], set()
    while todo:
        each = todo.pop()
        parts = each.values() if type(each) is dict else each if type(each) is list else None
        if parts is None or (parts is not each and not _SCALARS.issuperset(map(type, each))):
            if type(each) in _SCALARS:
                continue
            return False
        if not _SCALARS.issuperset(map(type, parts)) and id(each) not in seen:
            seen.add(id(each))
            todo.extend(parts)
    return True


class _Part(NamedTuple):
    """A value at its place in the form, and its annotation."""

    path: tuple[_Step, ...]
    role: str
    value: Any
    form: Any
    hint: Any


def _undeclared(value: object, document: Document, annotation: Any) -> Iterator[Undeclared]:
    """The classes in a value. Only what is in its form counts: a field that is excluded does not, nor what a serializer
    of the user's own hides. So this ends even where values contain each other.
    """
    todo = [_Part((), "", value, document.value if document.is_json else _UNREAD, annotation)]
    while todo:
        part = todo.pop()
        kind = type(part.value)
        if isinstance(part.form, Odd):
            continue
        if kind not in _PLAIN and not hints.says(part.hint, kind):
            yield Undeclared(part.path, part.role, _name(kind))
        parts_of = _parts_of(kind)
        if parts_of is _no_parts:
            yield Undeclared(part.path, part.role, f"{_name(kind)}.{part.value.name}")
        for role, step, each, form, hint in () if parts_of is None else parts_of(part):
            # A shortcut for most: what is plain, and what is just of the class that is annotated, with nothing in it.
            if type(each) not in _SCALARS and (type(each) is not hint or _parts_of(hint) is not None):
                todo.append(_Part((*part.path, *step), role, each, form, hint))


_UNREAD: Any = object()
"""The form of what is no JSON, such as an object with a repeated name: all of it counts."""


_Parts = Iterator[tuple[str, tuple[_Step, ...], Any, Any, Any]]
"""For each part of a value: its role, the steps to it, the part, its form and its annotation."""


def _reader_of(kind: type) -> Callable[[_Part], _Parts] | None:
    """How the parts of such a value are found; None if it has none."""
    if issubclass(kind, Enum):
        return _no_parts if _has_twins(kind) else None
    if issubclass(kind, dict):
        return _entries
    if issubclass(kind, (list, tuple, deque)):
        return _elements
    if issubclass(kind, (set, frozenset)):
        return _members
    return _fields if hasattr(kind, "__pydantic_fields__") or is_dataclass(kind) else None


_parts_of: Callable[[type], Callable[[_Part], _Parts] | None] = lru_cache(maxsize=1024)(_reader_of)
"""The same, remembered."""


def _has_twins(kind: type[Enum]) -> bool:
    """Whether two members of an Enum have one JSON form, or one has None's: then a member's name counts, too."""
    forms = [json_text(document_of(member, "").value, sort_keys=True) for member in kind]
    return b"null" in forms or len(set(forms)) < len(forms)


def _no_parts(part: _Part) -> _Parts:
    return iter(())


def _entries(part: _Part) -> _Parts:
    of_keys, of_value = hints.of_entries(hints.member_for(part.hint, type(part.value)))
    for key, each in part.value.items():
        name = key if type(key) is str else key_name(key)
        if _is_in(name, part.form):
            yield "key", (name,), key, name, of_keys
            yield "", (name,), each, _form_at(name, part.form), of_value(name)


def _elements(part: _Part) -> _Parts:
    value, form = part.value, part.form
    if form is _UNREAD or (isinstance(form, list) and len(form) == len(value)):
        for index, (each, hint) in enumerate(zip(value, _hints_of_elements(part), strict=True)):
            yield "", (index,), each, form if form is _UNREAD else form[index], hint


def _members(part: _Part) -> _Parts:
    for each, hint in zip(part.value, _hints_of_elements(part), strict=True):
        form = document_of(each, "").value
        yield "", ((canonical(form).decode(),),), each, form, hint


def _hints_of_elements(part: _Part) -> Sequence[Any]:
    kind, count = type(part.value), len(part.value)
    named = [hint for _, hint in hints.fields_of(kind).values()] if hasattr(kind, "_fields") else []
    return named if named and len(named) == count else hints.of_elements(hints.member_for(part.hint, kind), count)


def _fields(part: _Part) -> _Parts:
    value, kind = part.value, type(part.value)
    declared = hints.fields_for(part.hint, kind)
    if getattr(kind, "__pydantic_root_model__", False):
        yield f"{part.role}root", (), value.root, part.form, declared["root"][1]
        return
    # A form that pydantic could not make as a whole has a dataclass's fields by name.
    by_name = is_dataclass(kind) and isinstance(part.form, dict) and part.form.keys() == declared.keys()
    for name, (alias, hint) in declared.items():
        shown, each = name if by_name else alias, getattr(value, name, None)
        if type(each) not in _SCALARS and _is_in(shown, part.form):
            yield "", (shown,), each, _form_at(shown, part.form), hint
    for name, each in (getattr(value, "__pydantic_extra__", None) or {}).items():
        if _is_in(name, part.form):
            yield "", (name,), each, _form_at(name, part.form), Any


def _is_in(name: str, form: Any) -> bool:
    return form is _UNREAD or (isinstance(form, dict) and name in form)


def _form_at(name: str, form: Any) -> Any:
    return form if form is _UNREAD else form[name]


def _name(kind: type) -> str:
    """A class's module and name. Python itself moves its classes to private modules and back: `pathlib.Path` makes a
    `pathlib._local.PosixPath` in 3.13 only.
    """
    module = str(kind.__module__)
    if hints.is_standard(kind):
        module = ".".join(each for each in module.split(".") if not each.startswith("_"))
    return f"{module}:{kind.__qualname__}"


def _is_left_out(one: Undeclared, payload: Payload) -> bool:
    paths = (tuple(path.split(".")) for path in payload.without)
    return any(one.path[: len(path)] == path for path in paths)


def _selected(classes: Iterable[Undeclared], payload: Payload, document: Document) -> Iterator[Undeclared]:
    """The classes of values without which `fields` would select something else. Elements of one list count alike."""
    whole = payload.part(document)
    known: dict[tuple[_Step, ...], bool] = {}
    for each in classes:
        path = each.path[:-1] if each.role == "key" else each.path
        place = tuple(step if isinstance(step, str) else 0 for step in path)
        if place not in known:
            known[place] = _part_without(place, payload, document) != whole
        if known[place]:
            yield each


def _part_without(place: Sequence[_Step], payload: Payload, document: Document) -> Any:
    try:
        return payload.part(replace(document, value=_with_null(document.value, place)))
    except UnusableKey:
        return _UNREAD


def _with_null(form: Any, place: Sequence[_Step]) -> Any:
    if not place:
        return None
    step, *deeper = place
    if isinstance(form, list):
        return [_with_null(each, deeper) for each in form]
    return {**form, step: _with_null(form[step], deeper)} if isinstance(form, dict) and step in form else form
