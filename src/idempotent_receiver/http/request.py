"""A common form for HTTP requests from API Gateway (REST or HTTP API), Function URLs and Application Load Balancers,
and the key and scope read from it.
"""

import base64
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any
from urllib.parse import parse_qsl, unquote_plus

from idempotent_receiver.errors import MissingKey, UnusableKey, text_of
from idempotent_receiver.http.content import content_of, parts_of
from idempotent_receiver.http.fronts import Front
from idempotent_receiver.options import key_for, made, require_text
from idempotent_receiver.payload import Document, Payload, Query

MOST_KEY_CHARACTERS = 255
"""Stripe's limit: ample for any UUID, and far below DynamoDB's limit."""

_PRINTABLE = re.compile(r"[\x20-\x7e]+")
_STRUCTURED_STRING = re.compile(r'"((?:[^"\\]|\\["\\])*)" *(?:;.*)?')
"""A quoted string, and the parameters that a structured field (RFC 9651) may have after it."""


class InvalidRequest(ValueError):
    """The event is not an HTTP request from API Gateway, a Function URL or a load balancer. No handler has run."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request. `headers` maps each lower-case name to all its values in the event.

    `query` is the query string in canonical form: decoded and sorted by name, with each name's values in order. A name
    without a value has an empty one.

    `front` says in which form it takes a response.
    """

    method: str
    path: str
    query: Query
    headers: Mapping[str, tuple[str, ...]]
    body: bytes
    front: Front = Front.FORMAT_1

    @property
    def document(self) -> Document:
        """The body's content in the form used for comparison."""
        return Document.of_bytes(self._content)

    @property
    def _content(self) -> bytes:
        return content_of(self.body, self.headers.get("content-encoding", ()))

    def fingerprint(self, payload: Payload) -> str:
        """A fingerprint of the method, path, query string, and the part of the payload that `payload` selects. The
        payload is the body's content without its coding, because a client may compress it anew for each retry. Of a
        multipart content, the parts count, but not the boundary, which changes with each retry.

        Raises UnusableKey if a selected field is missing.
        """
        content = self._content
        found = parts_of(content, self.headers.get("content-type", ()))
        if found is None:
            return payload.fingerprint(Document.of_bytes(content), self.method, self.path, query=self.query)
        kind, parts = found
        # No method contains a space, so no other body can look like these parts.
        return payload.fingerprint(Document(parts), f"{self.method} {kind}", self.path, query=self.query)


def request_of(event: object) -> Request:
    """The request in an event: payload format 1.0 (REST API, and HTTP API if configured), 2.0 (HTTP API, Function URL),
    or an Application Load Balancer's.

    Raises InvalidRequest for anything else, such as an event whose body has already been parsed.
    Source: https://docs.aws.amazon.com/elasticloadbalancing/latest/application/lambda-functions.html
    """
    fields: Any = event
    front = Front.FORMAT_1
    match fields:
        case {"requestContext": {"http": {"method": str(method), "path": str(path)}}}:
            front = Front.FORMAT_2
            raw_path, raw_query = fields.get("rawPath"), fields.get("rawQueryString")
            path = raw_path if isinstance(raw_path, str) else path
            query = _query(fields)
            if raw_query and isinstance(raw_query, str):
                query = parse_qsl(raw_query, keep_blank_values=True, errors=_NOT_TEXT)
        case {"requestContext": {"elb": _}, "httpMethod": str(method), "path": str(path)}:
            several = isinstance(fields.get("multiValueHeaders"), dict)
            front = Front.BALANCER_MULTI_VALUE if several else Front.BALANCER
            # API Gateway decodes names and values; a load balancer does not.
            query = _query(fields, partial(unquote_plus, errors=_NOT_TEXT))
        case {"httpMethod": str(method), "path": str(path)}:
            query = _query(fields)
        case _:
            raise InvalidRequest(
                "not an HTTP request: it has no method with a path, in httpMethod and path or in "
                "requestContext.http; is the function behind API Gateway, a Function URL or a load balancer?"
            )
    headers = _every_value(fields, "multiValueHeaders", "headers", str.lower)
    in_order = tuple(sorted(query, key=itemgetter(0)))
    return Request(method, path, in_order, headers, _body(fields), front)


def copied_event(event: Any) -> Any:
    """A copy of the event with new dicts and lists. Other values are shared: a decorator may have added some that
    cannot be copied.
    """
    if type(event) is dict:
        return {name: copied_event(value) for name, value in event.items()}
    if type(event) is list:
        return [copied_event(value) for value in event]
    return event


@key_for()
def header(name: str) -> Callable[[Any], str]:
    """A key strategy for HTTP: the value of the header `name`, ignoring case.

    The value is a quoted string, as in the IETF draft, or a plain one. Parameters after a quoted string (`"k";v=1`) are
    not part of the key. The strategy raises MissingKey if the header is missing or empty. It raises UnusableKey if the
    header was sent twice with different values, or if the key is longer than 255 characters, is not printable ASCII, or
    contains a comma. HTTP APIs, Function URLs and proxies join a repeated header's values with commas, so an event
    does not show whether a comma is part of the key.
    Source: https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/
    Source: https://docs.aws.amazon.com/apigateway/latest/developerguide/http-api-develop-integrations-lambda.html
    """
    require_text(name, "name", "the name of a header, such as 'Idempotency-Key'")

    def key(event: Any) -> str:
        request = request_of(event)
        values = set(request.headers.get(name.lower(), ()))
        if not any(value.strip() for value in values):
            raise MissingKey(f"the request has no header {name}")
        if len(values) > 1:
            raise UnusableKey(f"the request has the header {name} more than once")
        value = values.pop()
        if "," in value:
            raise UnusableKey(
                f"the header {name} has a comma, which also joins the values of a header that was sent twice; send it "
                "once, with a key without a comma"
            )
        value = value.strip()
        if (quoted := _STRUCTURED_STRING.fullmatch(value)) is not None:
            value = re.sub(r"\\(.)", r"\1", quoted[1])
        if not value:
            raise MissingKey(f"the header {name} is empty")
        if len(value) > MOST_KEY_CHARACTERS:
            raise UnusableKey(f"the header {name} has {len(value)} characters; the limit is {MOST_KEY_CHARACTERS}")
        if _PRINTABLE.fullmatch(value) is None:
            raise UnusableKey(f"the header {name} has characters other than printable ASCII")
        return value

    return key


def made_by(strategy: Callable[[Any], Any], event: Any, name: str) -> Any:
    """The value that the user's `key` or `scope` callable (`name`) returns for an event.

    Raises UnusableKey for an error that `blames_input`, without that error's own text, and any other as it is.
    """
    return made(name, "the request", partial(strategy, event))


def scope_of(strategy: Callable[[Any], Any], event: Any) -> str:
    """The key's owner. Raises UnusableKey if there is none: all requests without an owner would share the key."""
    try:
        scope = made_by(strategy, event, "scope")
    except MissingKey as error:
        # The scope is missing, not the key: a MissingKey would let the request run unprotected if the key is optional.
        raise UnusableKey(f"the request has no owner: {text_of(error)}") from None
    if scope is not None and not isinstance(scope, str):
        raise UnusableKey(f"the request has no owner: its scope is of type {type(scope).__name__}, not a string")
    if not scope:
        raise UnusableKey("the request has no owner: its scope is empty")
    return scope


def _query(event: Mapping[str, Any], decode: Callable[[str], str] = str) -> list[tuple[str, str]]:
    found = _every_value(event, "multiValueQueryStringParameters", "queryStringParameters", decode)
    return [(name, decode(value)) for name, values in found.items() for value in values]


_NOT_TEXT = "surrogateescape"
"""Preserves bytes that are not UTF-8: with a replacement character, different values would look the same."""


def _every_value(
    event: Mapping[str, Any], several: str, single: str, normalise: Callable[[str], str]
) -> dict[str, tuple[str, ...]]:
    """All values of each name. Format 1.0 has all values in the mapping `several` and the last value in `single`."""
    all_values, last_values = event.get(several), event.get(single)
    found: dict[str, list[str]] = {}
    for name, values in all_values.items() if isinstance(all_values, dict) else ():
        found.setdefault(normalise(name), []).extend(str(value) for value in values or ())
    complete = frozenset(found)
    for name, value in last_values.items() if isinstance(last_values, dict) else ():
        if value is not None and normalise(name) not in complete:
            found.setdefault(normalise(name), []).append(str(value))
    return {name: tuple(values) for name, values in found.items()}


def _body(event: Mapping[str, Any]) -> bytes:
    body = event.get("body")
    if body is None:
        return b""
    if not isinstance(body, str):
        # If it were treated as an empty body, all requests would look the same.
        raise InvalidRequest(
            f"the body is of type {type(body).__name__}, not text as API Gateway sends it: parse it "
            "after http_endpoint or workflow_endpoint"
        )
    if event.get("isBase64Encoded") is True:
        with suppress(ValueError):  # not Base64 after all
            return base64.b64decode(body, validate=True)
    return body.encode("utf-8", "surrogatepass")
