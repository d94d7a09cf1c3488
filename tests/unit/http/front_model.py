"""What each front makes of a function's response, in AWS's words and as people have seen it, and the response that a
function gives which knows its front.

It shares nothing with the library: only the mark of a replay and header names are compared without case.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import product
from typing import Any

from tests.unit.http.api import request

FRONTS = ("rest", "http-1.0", "http", "url", "alb", "alb-multi")

MARK = "idempotency-replayed"

BAD_GATEWAY = "502 Bad Gateway"


@dataclass(frozen=True)
class Answer:
    """What a function has to say."""

    status: int = 201
    headers: tuple[tuple[str, str], ...] = ()
    cookies: tuple[str, ...] = ()
    body: bytes | None = None
    binary: bool = False


@dataclass
class Seen:
    """What a client sees: a status, the values of each header in their order, the cookies and the body's bytes."""

    status: int
    headers: dict[str, list[str]] = field(default_factory=dict)
    cookies: list[str] = field(default_factory=list)
    body: bytes = b""
    binary: bool = False
    replayed: bool = False


def event_of(front: str, **options: Any) -> dict[str, Any]:
    """The event of the same request through a front."""
    if front == "http-1.0":
        return {**request(form="rest", **options), "version": "1.0"}
    return request(form=front, **options)


def written_for(front: str, answer: Answer) -> dict[str, Any]:
    """The response of a function that knows its front, as Mangum, Chalice and Powertools write it."""
    response: dict[str, Any] = {"statusCode": answer.status, "isBase64Encoded": answer.binary}
    if answer.body is not None:
        response["body"] = base64.b64encode(answer.body).decode() if answer.binary else answer.body.decode()
    several: dict[str, list[str]] = {}
    for name, value in answer.headers:
        several.setdefault(name, []).append(value)
    joined = {name: ",".join(values) for name, values in several.items()}
    cookies = {"Set-Cookie": list(answer.cookies)} if answer.cookies else {}
    match front:
        case "rest" | "http-1.0":
            single = {name: value for name, [value, *more] in several.items() if not more}
            left = {name: values for name, values in several.items() if name not in single}
            return {**response, "headers": single, "multiValueHeaders": {**left, **cookies}}
        case "http" | "url":
            return {**response, "headers": joined, **({"cookies": list(answer.cookies)} if answer.cookies else {})}
        case "alb":
            spelled = ("".join(each) for each in product(*((a.lower(), a.upper()) for a in "set")))
            varied = {f"{name}-cookie": value for name, value in zip(spelled, answer.cookies, strict=False)}
            return {**response, "statusDescription": described(answer.status), "headers": {**joined, **varied}}
        case _:
            description = described(answer.status)
            return {**response, "statusDescription": description, "multiValueHeaders": {**several, **cookies}}


def described(status: int) -> str:
    return f"{status} {HTTPStatus(status).phrase}"


def seen_through(front: str, response: Any) -> Seen | str:
    """What a client sees of a function's response through a front, or BAD_GATEWAY for a malformed one."""
    response = json.loads(json.dumps(response))  # as Lambda sends it
    try:
        match front:
            case "rest" | "http-1.0":
                pairs = _format_1(response)
            case "http" | "url":
                if not isinstance(response, dict) or "statusCode" not in response:
                    body = response if isinstance(response, str) else json.dumps(response)
                    return Seen(200, {"content-type": ["application/json"]}, [], body.encode())
                pairs = _format_2(response)
            case _:
                pairs = _balancer(response, several=front == "alb-multi")
        return _seen(response, pairs)
    except Malformed:
        return BAD_GATEWAY


class Malformed(Exception):
    pass


def require(that: object) -> None:
    if not that:
        raise Malformed


def _format_1(response: Any) -> list[tuple[str, Any]]:
    """`headers` and `multiValueHeaders` are merged; a pair in both is there once. Any other field is malformed."""
    require(isinstance(response, dict))
    require(set(response) <= {"isBase64Encoded", "statusCode", "headers", "multiValueHeaders", "body"})
    require(str(response.get("statusCode")).isdigit())
    single, several = response.get("headers") or {}, response.get("multiValueHeaders") or {}
    require(isinstance(single, dict) and isinstance(several, dict))
    require(all(isinstance(values, list) for values in several.values()))
    require(all(isinstance(value, str | int | float | None) for value in single.values()))
    listed = [(name.lower(), _text(value)) for name, values in several.items() for value in values]
    once = {(name.lower()): (name.lower(), _text(value)) for name, value in reversed(single.items())}  # the first one
    return [*(pair for pair in reversed(once.values()) if pair not in listed), *listed]


def _format_2(response: dict[str, Any]) -> list[tuple[str, Any]]:
    """It has no `multiValueHeaders`. Each of the `cookies` becomes a `set-cookie` header."""
    once = {name.lower(): _text(value) for name, value in (response.get("headers") or {}).items()}
    return [*once.items(), *(("set-cookie", cookie) for cookie in response.get("cookies") or ())]


def _balancer(response: Any, *, several: bool) -> list[tuple[str, Any]]:
    """It reads one of the two mappings. Names that differ in case are two headers to it. It wants a number for a
    status, and text for what else is there.
    """
    require(isinstance(response, dict) and type(response.get("statusCode")) is int)
    description = response.get("statusDescription", "200 OK")
    require(isinstance(description, str) and isinstance(response.get("body", ""), str))
    if "statusDescription" in response:
        require(description.startswith(f"{response['statusCode']} "))
    told = response.get("multiValueHeaders" if several else "headers") or {}
    pairs = [(name, value) for name, values in told.items() for value in (values if several else [values])]
    require(all(isinstance(value, str) for _, value in pairs))
    return pairs


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _seen(response: dict[str, Any], pairs: list[tuple[str, Any]]) -> Seen:
    body, binary = response.get("body") or "", response.get("isBase64Encoded") is True
    require(isinstance(body, str))
    seen = Seen(int(response["statusCode"]), body=base64.b64decode(body) if binary else body.encode(), binary=binary)
    for name, value in pairs:
        if name.lower() == "set-cookie":
            seen.cookies.append(value)
        elif name.lower() == MARK:
            seen.replayed = value == "true"
        else:
            # Values of one name may be joined by commas on the way (RFC 9110, section 5.3).
            seen.headers.setdefault(name.lower(), []).extend(value.split(","))
    return seen
