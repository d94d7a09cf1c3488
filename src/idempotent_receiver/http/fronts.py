"""The fronts of a function, which send it requests, and the form in which each takes a response.

======================== ======================================= ======================================================
front                    sends requests for                      takes
======================== ======================================= ======================================================
`FORMAT_1`               REST APIs; HTTP APIs with payload       `headers` and `multiValueHeaders`, merged, and no
                         format 1.0                              unknown field
`FORMAT_2`               HTTP APIs; Function URLs                `headers` with one value a name, and `cookies`
`BALANCER`               Application Load Balancers              `headers`, whose names may differ only in case
`BALANCER_MULTI_VALUE`   the same, with multi-value headers      `multiValueHeaders`
======================== ======================================= ======================================================

A load balancer takes only text as a header, a body or a description, and only a number as a status. Format 2.0 also
takes a body alone. A function writes the form of the front that sent its request; a replay may go to another one.

Source: https://docs.aws.amazon.com/apigateway/latest/developerguide/set-up-lambda-proxy-integrations.html
Source: https://docs.aws.amazon.com/apigateway/latest/developerguide/http-api-develop-integrations-lambda.html
Source: https://docs.aws.amazon.com/lambda/latest/dg/urls-invocation.html
Source: https://docs.aws.amazon.com/elasticloadbalancing/latest/application/lambda-functions.html
Source: https://github.com/adamchainz/apig-wsgi/issues/52
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import Enum
from http import HTTPStatus
from itertools import product
from typing import Any

HttpResponse = dict[str, Any]
"""A response with a status. Each front takes the fields `statusCode`, `headers`, `body` and `isBase64Encoded`, except
that a load balancer with multi-value headers ignores `headers`.
"""


class Front(Enum):
    """What sent a request, as far as the form of its response depends on it. The value names the fields from which it
    reads headers.
    """

    FORMAT_1 = ("headers", "multiValueHeaders")
    FORMAT_2 = ("headers", "cookies")
    BALANCER = ("headers",)
    BALANCER_MULTI_VALUE = ("multiValueHeaders",)


_ALL = ("headers", "multiValueHeaders", "cookies")
_KNOWN_TO_FORMAT_1 = {"statusCode", "headers", "multiValueHeaders", "body", "isBase64Encoded"}
_COOKIE = "set-cookie"

_Pairs = list[tuple[str, str]]
"""Headers: a name and a value each, cookies included."""


def fitted(front: Front, response: HttpResponse) -> HttpResponse:
    """A function's response in the form that `front` takes. The function may have written it for another front.

    The response is unchanged if `front` sends all of it as it is, and if no front takes it. It is also unchanged if it
    has both `cookies` and `multiValueHeaders`: then it was written for several fronts, and each reads its own fields.
    """
    if response.get("cookies") and response.get("multiValueHeaders"):
        return response
    try:
        return response if _sends_all(front, response) else in_form_of(front, response)
    except ValueError:
        return response


def in_form_of(front: Front, response: HttpResponse) -> HttpResponse:
    """What a response says, in whatever form, in the form that `front` takes. Raises ValueError for a response that no
    front takes.

    Where a name can have only one value, several are joined by commas (RFC 9110, section 5.3), except cookies: to a
    load balancer without multi-value headers, they go under names that differ in case, as Mangum does.
    Source: https://github.com/Kludex/mangum/pull/186
    """
    status = _status_of(response)
    told: HttpResponse = {"statusCode": status, "isBase64Encoded": response.get("isBase64Encoded") is True}
    if front in (Front.BALANCER, Front.BALANCER_MULTI_VALUE):
        told["statusDescription"] = _description_of(response, status)
    return {**told, **_header_fields(front, _pairs(response, _ALL)), "body": _body_of(response)}


def _sends_all(front: Front, response: HttpResponse) -> bool:
    """Whether `front` takes the response as it is and sends all that it says. Raises ValueError for one that no front
    takes.
    """
    _status_of(response)
    if _counted(_pairs(response, front.value)) != _counted(_pairs(response, _ALL)):
        return False
    match front:
        case Front.FORMAT_1:
            text = isinstance(response.get("body"), str | None)
            return text and set(response) <= _KNOWN_TO_FORMAT_1 and not _repeats_a_name(response)
        case Front.FORMAT_2:
            return not _repeats_a_name(response)
        case Front.BALANCER | Front.BALANCER_MULTI_VALUE:
            texts = [response[field] for field in ("body", "statusDescription") if field in response]
            texts += [value for field in front.value for _, value in _told(response, field)]
            return type(response["statusCode"]) is int and all(isinstance(text, str) for text in texts)


def _header_fields(front: Front, pairs: _Pairs) -> dict[str, Any]:
    """The fields from which `front` reads these headers."""
    cookies = [value for name, value in pairs if name.lower() == _COOKIE]
    match front:
        case Front.FORMAT_1:
            single = {name: values[0] for name, values in _by_name(pairs).items() if len(values) == 1}
            several = {name: values for name, values in _by_name(pairs).items() if name not in single}
            return {"headers": single, **({"multiValueHeaders": several} if several else {})}
        case Front.FORMAT_2:
            return {"headers": _joined(pairs), **({"cookies": cookies} if cookies else {})}
        case Front.BALANCER:
            return {"headers": {**_joined(pairs), **dict(zip(_spellings(_COOKIE), cookies, strict=False))}}
        case Front.BALANCER_MULTI_VALUE:
            return {"multiValueHeaders": _by_name(pairs)}


def _joined(pairs: _Pairs) -> dict[str, str]:
    others = [pair for pair in pairs if pair[0].lower() != _COOKIE]
    return {name: ",".join(values) for name, values in _by_name(others).items()}


def _spellings(name: str) -> Iterator[str]:
    """A name in each combination of lower and upper case. A cookie's has 512, more than any browser accepts."""
    return ("".join(each) for each in product(*(sorted({letter, letter.upper()}, reverse=True) for letter in name)))


def _by_name(pairs: _Pairs) -> dict[str, list[str]]:
    """All values of each header, under the first spelling of its name."""
    spelled: dict[str, str] = {}
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        found.setdefault(spelled.setdefault(name.lower(), name), []).append(value)
    return found


def _counted(pairs: _Pairs) -> Counter[tuple[str, str]]:
    return Counter((name.lower(), value) for name, value in pairs)


def _repeats_a_name(response: HttpResponse) -> bool:
    """Whether names in `headers` differ only in case. Only a load balancer is sure to send each."""
    names = [name for name, _ in _told(response, "headers")]
    return len({name.lower() for name in names}) < len(names)


def _pairs(response: HttpResponse, fields: Sequence[str]) -> _Pairs:
    """The headers in these fields. One that is in both mappings counts once, as API Gateway merges them."""
    told = {
        field: [(name, _text(value)) for name, value in _told(response, field) if value is not None] for field in fields
    }
    single, several, cookies = (told.get(field, []) for field in _ALL)
    listed = _counted(several)
    return [*(pair for pair in single if (pair[0].lower(), pair[1]) not in listed), *several, *cookies]


def _told(response: HttpResponse, field: str) -> list[tuple[str, Any]]:
    """The names and values in a field. Raises ValueError for another form than the field's."""
    match field, response.get(field) or None:
        case _, None:
            return []
        case "headers", dict(headers):
            return list(headers.items())
        case "multiValueHeaders", dict(headers) if all(isinstance(values, list) for values in headers.values()):
            return [(name, value) for name, values in headers.items() for value in values]
        case "cookies", list(cookies):
            return [("Set-Cookie", cookie) for cookie in cookies]
    raise ValueError(f"{field} is not in the form of any front")


def _text(value: Any) -> str:
    """A header's value as API Gateway sends it."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    raise ValueError(f"a header has a value of type {type(value).__name__}")


def _body_of(response: HttpResponse) -> str:
    body = response.get("body")
    if body is None:
        return ""
    return body if isinstance(body, str) else as_json(body)


def as_json(value: Any) -> str:
    """A value as the JSON text of a body."""
    return json.dumps(value, separators=(",", ":"))


def _status_of(response: HttpResponse) -> int:
    try:
        return int(response["statusCode"])
    except (TypeError, ValueError, OverflowError):
        raise ValueError("the status is not a number") from None


def _description_of(response: HttpResponse, status: int) -> str:
    """The response's own description, or its status with the reason phrase."""
    told = response.get("statusDescription")
    if told and isinstance(told, str):
        return told
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"{status} Unknown"
