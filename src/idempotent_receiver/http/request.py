"""An HTTP request as API Gateway (REST and HTTP API), Function URLs and Application Load Balancers hand it to a
function, in one form.
"""

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any
from urllib.parse import parse_qsl, unquote_plus

from idempotent_receiver.errors import UnusableKey, text_of
from idempotent_receiver.payload import Document, Payload, Query

MOST_KEY_CHARACTERS = 255
"""As Stripe's: enough for any UUID, and far below what DynamoDB takes."""

_PRINTABLE = re.compile(r"[\x20-\x7e]+")
_STRUCTURED_STRING = re.compile(r'"((?:[^"\\]|\\["\\])*)"')


class InvalidRequest(ValueError):
    """The event is not an HTTP request from API Gateway, a Function URL or a load balancer. Nothing has run."""


class MissingKey(UnusableKey):
    """The client has sent no key."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request. Header names are in lower case; `headers` has every value of each, as far as it is told.

    `query` is the query string in one form, however it was written and handed over: decoded, sorted by names, each
    name's values in their order. A name without a value has an empty one.

    A request that came through a load balancer (`balanced`) is answered in its form, with `multiValueHeaders` where the
    target group has multi-value headers enabled (`multi_value`).
    """

    method: str
    path: str
    query: Query
    headers: Mapping[str, tuple[str, ...]]
    body: bytes
    balanced: bool = False
    multi_value: bool = False

    @property
    def document(self) -> Document:
        """The body, to be compared."""
        return Document.of_bytes(self.body)

    def fingerprint(self, payload: Payload) -> str:
        """What makes it the same request as another: method, path, query string, and what of its payload counts.

        Raises UnusableKey where the fields that should count are not there.
        """
        return payload.fingerprint(self.document, self.method, self.path, query=self.query)


def request_of(event: object) -> Request:
    """The request that an event is: payload format 1.0 (REST API, and HTTP API on demand), 2.0 (HTTP API, URL), or an
    Application Load Balancer's.

    Raises InvalidRequest for anything else.
    Source: https://docs.aws.amazon.com/elasticloadbalancing/latest/application/lambda-functions.html
    """
    shown: Any = event
    match shown:
        case {"requestContext": {"http": {"method": str(method), "path": str(path)}}}:
            return Request(method, _raw_path(shown, path), _raw_query(shown), _headers(shown), _body(shown))
        case {"requestContext": {"elb": _}, "httpMethod": str(method), "path": str(path)}:
            multi_value = isinstance(shown.get("multiValueHeaders"), dict)
            query = _query(shown, _decoded)
            return Request(method, path, query, _headers(shown), _body(shown), balanced=True, multi_value=multi_value)
        case {"httpMethod": str(method), "path": str(path)}:
            return Request(method, path, _query(shown), _headers(shown), _body(shown))
    raise InvalidRequest(
        "not an HTTP request: neither httpMethod nor requestContext.http; is the function behind API Gateway, a "
        "Function URL or an Application Load Balancer?"
    )


def header(name: str) -> Callable[[Any], str]:
    """A key strategy for HTTP: the value of the header `name`, in whatever case it is sent.

    Taken as the IETF's draft has it, a quoted string, or as it is. Raises MissingKey where there is none or it is
    empty, UnusableKey where it is sent twice with different values, is longer than 255 characters, is not printable
    ASCII, or has a comma: HTTP APIs, Function URLs and any proxy in front join by one what was sent twice, and no event
    tells such a key from one that was sent so.
    Source: https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/
    Source: https://docs.aws.amazon.com/apigateway/latest/developerguide/http-api-develop-integrations-lambda.html
    """
    if not name:
        raise ValueError("header wants the header's name, such as 'Idempotency-Key'; it is empty")

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
                f"the header {name} has a comma, by which a header that was sent twice is joined; send it once, with a "
                "key that has no comma"
            )
        return _checked(_unquoted(value.strip()), name)

    return key


def made_by(strategy: Callable[[Any], Any], event: Any, name: str) -> Any:
    """What a strategy of the user's makes of an event: its `key`, or its `scope`.

    Raises UnusableKey for whatever it raises, caused by it: the client has sent what the strategy did not expect, and
    asking again does not help. The error's own text is not for the client.
    """
    try:
        return strategy(event)
    except UnusableKey:
        raise
    except Exception as error:
        raise UnusableKey(f"no {name} could be made of the request") from error


def scope_of(strategy: Callable[[Any], Any], event: Any) -> str:
    """Whose key it is. Raises UnusableKey for nobody's, which would be shared by all who have none."""
    try:
        scope = made_by(strategy, event, "scope")
    except MissingKey as error:
        # What lacks is not the key: without it the request would run unprotected where none is required.
        raise UnusableKey(f"the request belongs to nobody: {text_of(error)}") from None
    if not isinstance(scope, str) or not scope:
        raise UnusableKey("the request belongs to nobody: its scope is empty")
    return scope


def _unquoted(value: str) -> str:
    quoted = _STRUCTURED_STRING.fullmatch(value)
    return value if quoted is None else re.sub(r"\\(.)", r"\1", quoted[1])


def _checked(value: str, name: str) -> str:
    if not value:
        raise MissingKey(f"the header {name} is empty")
    if len(value) > MOST_KEY_CHARACTERS:
        raise UnusableKey(f"the header {name} has {len(value)} characters; up to {MOST_KEY_CHARACTERS} are taken")
    if _PRINTABLE.fullmatch(value) is None:
        raise UnusableKey(f"the header {name} has other characters than printable ASCII")
    return value


def _raw_path(event: Mapping[str, Any], path: str) -> str:
    raw = event.get("rawPath")
    return raw if isinstance(raw, str) else path


def _raw_query(event: Mapping[str, Any]) -> Query:
    raw = event.get("rawQueryString")
    if not isinstance(raw, str) or not raw:
        return _query(event)
    return _sorted(parse_qsl(raw, keep_blank_values=True, errors=_NOT_TEXT))


def _query(event: Mapping[str, Any], told: Callable[[str], str] = str) -> Query:
    """API Gateway has decoded names and values, a load balancer has not."""
    found = _every_value(event, "multiValueQueryStringParameters", "queryStringParameters", told)
    return _sorted([(name, told(value)) for name, values in found.items() for value in values])


def _decoded(text: str) -> str:
    return unquote_plus(text, errors=_NOT_TEXT)


_NOT_TEXT = "surrogateescape"
"""What is not UTF-8 stays what it is: replaced, it would be the same as any other."""


def _sorted(pairs: list[tuple[str, str]]) -> Query:
    return tuple(sorted(pairs, key=itemgetter(0)))


def _headers(event: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    return _every_value(event, "multiValueHeaders", "headers", str.lower)


def _every_value(
    event: Mapping[str, Any], several: str, single: str, told: Callable[[str], str]
) -> dict[str, tuple[str, ...]]:
    """Every value of each name, as `told`. Format 1.0 has all values in one mapping and the last in another."""
    all_values, last_values = event.get(several), event.get(single)
    found: dict[str, list[str]] = {}
    for name, values in all_values.items() if isinstance(all_values, dict) else ():
        found.setdefault(told(name), []).extend(str(value) for value in values or ())
    complete = frozenset(found)
    for name, value in last_values.items() if isinstance(last_values, dict) else ():
        if value is not None and told(name) not in complete:
            found.setdefault(told(name), []).append(str(value))
    return {name: tuple(values) for name, values in found.items()}


def _body(event: Mapping[str, Any]) -> bytes:
    body = event.get("body")
    if not isinstance(body, str):
        return b""
    if event.get("isBase64Encoded") is True:
        try:
            return base64.b64decode(body, validate=True)
        except (binascii.Error, ValueError):
            pass
    return body.encode("utf-8", "surrogatepass")
