"""Unions whose members no JSON can tell apart: a value of one would be read back as another.

A union with a discriminator (`oneOf`) is left alone.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import reduce
from hashlib import sha256
from itertools import combinations
from operator import or_
from typing import Any, Literal

from idempotent_receiver.hints import unions_in

Mode = Literal["validation", "serialization"]


def indistinguishable_in(hint: Any, path: str, mode: Mode) -> Iterator[tuple[str, str, str]]:
    """The unions with two classes of the same JSON, in an annotation and in the fields of its classes: each one's path,
    and the names of the two. What pydantic cannot describe is left out. Results are read by field names, arguments
    written by aliases.
    """
    for place, members in unions_in(hint, path):
        # Imported here because most annotations have no union of classes, and pydantic is slow to import.
        from pydantic import TypeAdapter  # noqa: PLC0415

        with suppress(Exception):  # pydantic, or a class of the user's, may raise anything
            schema = TypeAdapter(reduce(or_, members)).json_schema(mode=mode, by_alias=mode == "serialization")
            if (names := indistinguishable(schema)) is not None:
                yield (place, *names)


_ANNOTATIONS = frozenset(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "discriminator", "$comment"}
)
"""The keywords that say nothing about which values are valid. (A discriminator repeats its members' names.)"""

_BY_NAME = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs"})
"""The keywords that map names to schemas. A field may be called `title`: the names are no keywords."""

_VALUES = frozenset({"const", "enum", "required", "type"})
"""The keywords that hold plain values."""

_DEFINITION = "#/$defs/"


def indistinguishable(schema: Mapping[str, Any]) -> tuple[str, str] | None:
    """The names of two classes for which two members of a union (`anyOf`), at any depth, stand, if these members'
    schemas differ in annotations at most, such as titles and descriptions. None if there are none.
    """
    forms = _forms(schema.get("$defs", {}))
    for union in _unions(schema):
        for one, other in combinations(union, 2):
            if _form(one, forms) == _form(other, forms):
                for names in zip(_references(one), _references(other), strict=False):
                    if names[0] != names[1]:
                        return names
    return None


def _unions(schema: Any) -> Iterator[list[Any]]:
    """The members of each union, outermost first."""
    if isinstance(schema, dict) and "anyOf" in schema:
        yield schema["anyOf"]
    for each in _subschemas(schema):
        yield from _unions(each)


def _subschemas(schema: Any) -> Iterator[Any]:
    for keyword, value in schema.items() if isinstance(schema, dict) else ():
        if keyword in _BY_NAME:
            yield from value.values()
        elif keyword not in _VALUES | _ANNOTATIONS:
            yield from value if isinstance(value, list) else (value,)


def _forms(definitions: Mapping[str, Any]) -> dict[str, str]:
    """A form of each definition; equal definitions have equal forms. All count as equal at first, and each round
    separates more of them, until a round separates none: so a model that contains itself needs no end.
    """
    forms, classes = dict.fromkeys(definitions, ""), 0
    while len(set(forms.values())) > classes:
        classes = len(set(forms.values()))
        forms = {name: _form(schema, forms) for name, schema in definitions.items()}
    return forms


def _form(schema: Any, forms: Mapping[str, str]) -> str:
    """A schema's form: equal for two that allow the same, whatever they and their definitions are called."""
    if not isinstance(schema, dict):
        return _text(schema)
    parts = {word: _part(word, value, forms) for word, value in schema.items() if word not in _ANNOTATIONS}
    if parts.keys() == {"$ref"}:
        return str(parts["$ref"])
    return sha256(_text(parts).encode()).hexdigest()


def _part(keyword: str, value: Any, forms: Mapping[str, str]) -> Any:
    if keyword == "$ref":
        return forms.get(value.removeprefix(_DEFINITION), value)
    if keyword in _BY_NAME:
        return {name: _form(each, forms) for name, each in value.items()}
    if keyword in _VALUES:
        # Their order says nothing: a class that declares its fields in another order takes the same JSON.
        return sorted(map(_text, value)) if isinstance(value, list) else _text(value)
    if isinstance(value, list):
        parts = [_form(each, forms) for each in value]
        return sorted(parts) if keyword in ("anyOf", "oneOf", "allOf") else parts
    return _form(value, forms)


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=repr)


def _references(schema: Any) -> Iterator[str]:
    """The names of the definitions that a schema uses, in order; not those that these use in turn."""
    if isinstance(schema, dict) and "$ref" in schema:
        yield str(schema["$ref"]).removeprefix(_DEFINITION)
    for each in _subschemas(schema):
        yield from _references(each)
