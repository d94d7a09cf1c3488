"""Which part of a payload counts: its canonical form, its fingerprint, and keys that are made of it.

One form serves all ways in: RFC 8785 (canonical JSON), so that white space and the order of names do not matter.
What has no such form (no JSON, a name twice in one object, integers over 2^53) counts by its raw bytes.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import jmespath
import rfc8785
from jmespath.exceptions import JMESPathError

from idempotent_receiver.errors import UnusableKey


def json_of(text: str) -> Any:
    """What a JSON text says. Raises ValueError for what is no JSON, or has a name twice in one object: readers differ
    in which of the two they take. Raises RecursionError for what is nested too deep.
    """
    return _DECODER.decode(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has a name twice")
    return found


# Made once: `json.loads` with a hook makes a decoder a call, which costs more than the hook.
_DECODER = json.JSONDecoder(object_pairs_hook=_unique)


@dataclass(frozen=True, slots=True)
class Document:
    """A payload as it is compared: the bytes it came in, and what they say where they are JSON that says it once."""

    raw: bytes
    value: Any = None
    is_json: bool = False

    @classmethod
    def of_text(cls, text: str) -> "Document":
        """The document that a body is."""
        return cls.of_bytes(text.encode("utf-8", "surrogatepass"))

    @classmethod
    def of_bytes(cls, raw: bytes) -> "Document":
        """The document that these bytes are."""
        try:
            return cls(raw, json_of(raw.decode("utf-8", "surrogatepass")), is_json=True)
        except (ValueError, RecursionError):
            return cls(raw)


Query = Sequence[tuple[str, str]]
"""The parameters of a query string, decoded and in their canonical order."""


def _several(names: Iterable[str] | None, option: str, kind: str) -> tuple[str, ...]:
    if names is not None and not isinstance(names, str):
        several = tuple(names)
        if all(isinstance(name, str) for name in several):
            return several
    raise TypeError(f'{option} takes several {kind}, such as {option}=("trace",); it is {names!r}')


@dataclass(frozen=True, slots=True)
class Payload:
    """What of a payload counts: all of it, the `fields` that a JMESPath expression finds, or all but some.

    `without` names fields to leave out, by dotted paths: `("sent_at", "meta.trace")`; one that is not there does no
    harm. `without_query` names parameters of an HTTP request's query string to leave out: all others count, whatever
    the `fields`. Two payloads with the same counting part are the same payload.

    Raises ValueError for what is no JMESPath expression, TypeError for names that are no sequence of texts.
    """

    fields: str | None = None
    without: Sequence[str] = ()
    without_query: Sequence[str] = ()

    def __post_init__(self) -> None:
        # A copy: what counts must not change when a caller's list does.
        object.__setattr__(self, "without", _several(self.without, "without", "paths"))
        object.__setattr__(self, "without_query", _several(self.without_query, "without_query", "names"))
        if self.fields is not None:
            compiled(self.fields, "fields")

    def fingerprint(self, document: Document, *context: str, query: Query = ()) -> str:
        """SHA-256 of the part that counts, and of the `context` it was said in, a method and a path with their `query`.

        Raises UnusableKey where the fields that should count are not there.
        """
        digest = sha256()
        asked = [part for pair in query if pair[0] not in self.without_query for part in pair]
        if asked:
            # Without a query nothing is added, so that earlier records keep their fingerprints. What is hashed then
            # begins with a digit, so no body can be written that reads like a query.
            digest.update(f"?{len(asked)}:".encode())
        for part in (*asked, *context):
            # With its length, so that no two contexts read the same end to end.
            digest.update(f"{len(part)}:".encode() + part.encode("utf-8", "surrogatepass"))
        digest.update(self._counting(document))
        return digest.hexdigest()

    def _counting(self, document: Document) -> bytes:
        if not document.is_json:
            if self.fields is None:
                return document.raw
            raise UnusableKey(
                f"the payload has no {self.fields!r}: it is not JSON, or it has a name twice in one object"
            )
        part = document.value
        for path in self.without:
            part = _left_out(part, path.split("."))
        if self.fields is not None:
            part = self._selected(part)
        try:
            return rfc8785.dumps(part)
        except (ValueError, RecursionError, rfc8785.CanonicalizationError):
            if part is document.value and not self.without:
                return document.raw
        try:
            return json.dumps(part, sort_keys=True, separators=(",", ":")).encode()
        except RecursionError:
            return document.raw

    def _selected(self, part: Any) -> Any:
        assert self.fields is not None
        try:
            found = jmespath.search(self.fields, part)
        except Exception:  # noqa: BLE001  # a JMESPath function raises what it likes over a payload that it does not fit
            found = None
        # `[a, b]` finds a list of nulls where neither is: as a key it would make all such payloads one.
        within = found.values() if isinstance(found, dict) else found if isinstance(found, list) else [found]
        if all(each is None for each in within):
            raise UnusableKey(f"the payload has no {self.fields!r}")
        return found


EVERYTHING = Payload()
"""All of the payload counts."""


def fingerprint(body: str) -> str:
    """SHA-256 of all of a body, in its canonical form."""
    return EVERYTHING.fingerprint(Document.of_text(body))


@dataclass(frozen=True, slots=True)
class PayloadKey:
    """A key strategy: the fingerprint of what counts. `payload_key` makes one."""

    payload: Payload

    def __call__(self, message: Any) -> str:
        """The key of an SQS message; other ways in call `of`. Raises UnusableKey."""
        return self.of(Document.of_text(message.body))

    def of(self, document: Document) -> str:
        """The key of a document. Raises UnusableKey."""
        return self.payload.fingerprint(document)


def payload_key(
    fields: str | None = None, *, without: Sequence[str] = (), without_query: Sequence[str] = ()
) -> PayloadKey:
    """A key made of the payload itself: of its `fields` (JMESPath), or of all of it `without` some (dotted paths).

    For clients and producers that send no key of their own: the same payload is the same request. Two requests that
    are meant to be two must then differ in something that counts. Over HTTP, method, path and query string count too,
    but for the parameters that `without_query` names; a default `payload` does not compare those either. It does
    compare the fields that make no part of the key, so that other values of them are a mismatch: tell `payload` the
    same, `payload=Payload(without=["sent_at"])`.

        payload_key("[order_id, amount]")    payload_key(without=["sent_at", "meta.trace"], without_query=["trace"])
    """
    return PayloadKey(Payload(fields, without, without_query))


def compiled(path: str, name: str) -> Any:
    """A JMESPath expression, compiled. Raises ValueError for what is none."""
    try:
        return jmespath.compile(path)
    except (JMESPathError, TypeError, AttributeError):
        raise ValueError(
            f"{name}({path!r}) is not a JMESPath expression; a name with other signs than letters, digits and _ wants "
            "quotes inside: '\"order-id\"'"
        ) from None


def _left_out(part: Any, path: Sequence[str]) -> Any:
    """The part without one field: a copy along the path, for a payload may be nested too deep to be copied whole."""
    name, *deeper = path
    if not isinstance(part, dict) or name not in part:
        return part
    if deeper:
        return {**part, name: _left_out(part[name], deeper)}
    return {each: value for each, value in part.items() if each != name}
