"""The part of a payload that counts: its canonical form, its fingerprint, and keys made from it.

All entry points use RFC 8785 (canonical JSON), so whitespace and the order of names do not matter. A payload without a
canonical form (not JSON, a repeated name in an object, a number that a double does not hold) is compared by its raw
bytes.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any

import jmespath
import rfc8785
from jmespath.exceptions import JMESPathError

from idempotent_receiver.errors import MissingKey, UnusableKey
from idempotent_receiver.json_numbers import EXACT, FUNCTIONS, exact_text, has_inexact, number_of


def json_of(text: str) -> Any:
    """The value of a JSON text. Raises RecursionError if it is nested too deeply, and ValueError if it is not JSON or
    has a repeated name in an object: parsers differ in which value they take. A number with a fraction or an exponent
    that a double does not hold is an `Inexact`.
    """
    return _DECODER.decode(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has a repeated name")
    return found


# Created once: `json.loads` with a hook creates a decoder per call, which costs more than the hook.
_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_float=number_of)


@dataclass(frozen=True, slots=True)
class Document:
    """A payload in the form used for comparison: its raw bytes and, if they are JSON without repeated names,
    its value.
    """

    raw: bytes
    value: Any = None
    is_json: bool = False

    @classmethod
    def of_text(cls, text: str) -> "Document":
        """The document in a body."""
        return cls.of_bytes(text.encode("utf-8", "surrogatepass"))

    @classmethod
    def of_bytes(cls, raw: bytes) -> "Document":
        """The document in these bytes."""
        try:
            return cls(raw, json_of(raw.decode("utf-8", "surrogatepass")), is_json=True)
        except (ValueError, RecursionError):
            return cls(raw)


Query = Sequence[tuple[str, str]]
"""The parameters of a query string, decoded and in canonical order."""


def _copied(names: object, option: str, kind: str) -> tuple[str, ...]:
    """A copy, so that later changes to the caller's list have no effect."""
    if isinstance(names, Iterable) and not isinstance(names, str):
        several = tuple(names)
        if all(isinstance(name, str) for name in several):
            return several
    raise TypeError(f'{option} takes several {kind}, such as {option}=("trace",); it is {names!r}')


@dataclass(frozen=True, slots=True)
class Payload:
    """The part of a payload that counts: all of it, the `fields` that a JMESPath expression selects, or all except
    those in `without`.

    `without` names fields to leave out, by dotted paths: `("sent_at", "meta.trace")`; missing fields are ignored. For a
    function's arguments, a path names an argument, `"session"`, or a part of one, `"order.client"`; any other path
    names a field of the single argument. `without_query` names an HTTP request's query string parameters to leave out:
    all others count, whatever `fields` selects. Two payloads are the same if the parts that count are equal. Used as a
    key strategy, a Payload makes the fingerprint the key.

    Raises ValueError if `fields` is not a JMESPath expression, and TypeError if names are not a sequence of strings.
    """

    fields: str | None = None
    without: Sequence[str] = ()
    without_query: Sequence[str] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "without", _copied(self.without, "without", "paths"))
        object.__setattr__(self, "without_query", _copied(self.without_query, "without_query", "names"))
        if self.fields is not None:
            compiled(self.fields, "fields")

    def __call__(self, message: Any) -> str:
        """The key for an SQS message; other entry points use the payload's fingerprint. Raises UnusableKey."""
        return self.fingerprint(Document.of_text(message.body))

    def fingerprint(self, document: Document, *context: str, query: Query = ()) -> str:
        """SHA-256 of the part that counts and its `context`: an HTTP request's method and path, and its `query`.

        Raises UnusableKey if the fields that count are missing.
        """
        digest = sha256()
        parameters = [part for pair in query if pair[0] not in self.without_query for part in pair]
        if parameters:
            # A request without a query adds nothing here, so that earlier records keep their fingerprints. Its hashed
            # text begins with a digit, not with `?`, so no body can imitate a query.
            digest.update(f"?{len(parameters)}:".encode())
        for part in (*parameters, *context):
            # Prefixed with its length, so that no two contexts join to the same text.
            digest.update(f"{len(part)}:".encode() + part.encode("utf-8", "surrogatepass"))
        digest.update(self._counting(document))
        return digest.hexdigest()

    def part(self, document: Document) -> Any:
        """The part of a document's value that counts. Raises UnusableKey if the fields that count are missing."""
        if not document.is_json:
            raise UnusableKey(f"the payload has no {self.fields!r}: it is not JSON, or an object in it repeats a name")
        part = document.value
        for path in self.without:
            part = _left_out(part, path.split("."))
        return part if self.fields is None else self._selected(part)

    def _counting(self, document: Document) -> bytes:
        if not document.is_json and self.fields is None:
            return document.raw
        part = self.part(document)
        if (form := _canonical(part)) is not None:
            return form
        if part is document.value and not self.without:
            return document.raw
        try:
            return exact_text(part, sort_keys=True).encode()
        except RecursionError:
            return document.raw

    def _selected(self, part: Any) -> Any:
        assert self.fields is not None
        try:
            found = jmespath.search(self.fields, part, EXACT)
        except Exception:  # noqa: BLE001  # a JMESPath function may raise anything for a payload that does not fit it
            found = None
        if _is_missing(found):
            raise MissingKey(f"the payload has no {self.fields!r}")
        require_taken(self.fields, found)
        return found


EVERYTHING = Payload()
"""All of the payload counts."""


def payload_key(
    fields: str | None = None, *, without: Sequence[str] = (), without_query: Sequence[str] = ()
) -> Payload:
    """A key made from the payload itself: its `fields` (JMESPath), or all except those in `without` (dotted paths).

    For clients and producers that send no key of their own: the same payload is the same request, so two distinct
    requests must differ in something that counts. Over HTTP, method, path and query string count too, except
    for parameters in `without_query`, which the default `payload` also ignores. But the default `payload` compares
    fields that are not part of the key, and a difference in them is a mismatch: give `payload` the same exceptions,
    `payload=Payload(without=["sent_at"])`. For a function, `without` must name `self` and values without a JSON form.

        payload_key("[order_id, amount]")    payload_key(without=["sent_at", "meta.trace"], without_query=["trace"])
    """
    return Payload(fields, without, without_query)


def compiled(path: str, name: str, *, functions: Mapping[str, Any] | None = FUNCTIONS) -> Any:
    """A compiled JMESPath expression. Raises ValueError if `path` is not one, or if it calls a function that is not one
    of `functions` (None: any is), because then it would find nothing in any payload.
    """
    try:
        expression = jmespath.compile(path)
    except (JMESPathError, TypeError, AttributeError):
        raise ValueError(
            f"{name}({path!r}) is not a JMESPath expression; a name with characters other than letters, digits and _ "
            "needs quotes inside: '\"order-id\"'"
        ) from None
    if functions is not None:
        for called, count in _calls_in(expression.parsed):
            if called not in functions:
                raise ValueError(f"{name}({path!r}): JMESPath has no function {called!r}")
            takes = functions[called]["signature"]
            if count < len(takes) or (count > len(takes) and not takes[-1].get("variadic")):
                raise ValueError(f"{name}({path!r}): the function {called!r} takes {len(takes)} arguments, not {count}")
    return expression


def _calls_in(node: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """The functions that a parsed expression calls, each with its number of arguments."""
    if node["type"] == "function_expression":
        yield node["value"], len(node["children"])
    for each in node["children"]:
        yield from _calls_in(each)


def require_taken(path: str, found: Any, options: jmespath.Options = EXACT) -> None:
    """Raise MissingKey if a JMESPath expression, with these options, has taken what it found from no payload: it finds
    the same in an empty one. As a key, it would merge all payloads without its fields.
    """
    nothing = _found_in_nothing(path, options)
    # By their forms, because True is 1 for Python.
    if found == nothing and _canonical(found) == _canonical(nothing):
        raise MissingKey(
            f"{path!r} takes nothing from the payload: it gives the same for an empty one. Name a field that every "
            "payload has, and give it no default"
        )


@lru_cache
def _found_in_nothing(path: str, options: jmespath.Options) -> Any:
    """What an expression finds in an empty payload; None if it raises, because then it needs a field."""
    try:
        return jmespath.search(path, {}, options)
    except Exception:  # noqa: BLE001  # as for any payload
        return None


def _is_missing(found: Any) -> bool:
    """Whether an expression found nothing but nulls: `[a, b]` yields a list of them if both fields are missing."""
    todo = [found]
    while todo:
        each = todo.pop()
        if isinstance(each, dict | list) and (each or each is found):
            todo.extend(each.values() if isinstance(each, dict) else each)
        elif each is not None:
            return False
    return True


def _canonical(part: Any) -> bytes | None:
    """The form of RFC 8785; None for a value without one."""
    if not has_inexact(part):
        with suppress(ValueError, RecursionError, rfc8785.CanonicalizationError):
            return rfc8785.dumps(part)
    return None


def _left_out(part: Any, path: Sequence[str]) -> Any:
    """The part without one field: copies only along the path, because a payload may be nested too deeply to copy
    whole.
    """
    name, *deeper = path
    if not isinstance(part, dict) or name not in part:
        return part
    if deeper:
        return {**part, name: _left_out(part[name], deeper)}
    return {each: value for each, value in part.items() if each != name}
