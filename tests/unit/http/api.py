"""A wrapped handler, the events of requests to it in each format, and what its responses must look like."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import parse_qs

from idempotent_receiver import http_endpoint
from tests.contexts import Context as Invocation
from tests.counting_store import CountingStore
from tests.manual_clock import ManualClock

WITHOUT_A_QUERY = "c4b77a97d73c9c35f47ab971e3f82956ea62f9d6882ab0427cd6f8ca54324ec1"
"""The fingerprint of `request()`, pinned."""

TELL_ALL = ("rest", "http", "url", "alb-multi")
"""The forms in which all values of one parameter are told."""

FORMATS = (*TELL_ALL, "alb")

UNKNOWN = "It is unknown whether the request took effect. "
PROBLEMS = {
    (
        409,
        "A request with this key is still running",
    ): "Try again later: you will get that request's response.",
    (
        409,
        "Another request with this key has taken over",
    ): "Try again later: you will get that request's response.",
    (410, "The response was not stored"): "The request took effect, but its response is gone.",
    (422, "The idempotency key was used for another request"): (
        "A key belongs to one request: its method, path, query string and payload. Use a new key."
    ),
    (500, "Internal Server Error"): "The request failed. A retry with the same key gets this response again.",
    (500, "The record for this key cannot be read"): f"{UNKNOWN}Do not retry before an operator has looked into it.",
    (503, "Service Unavailable"): f"{UNKNOWN}Try again with the same key.",
}
"""What a client is told to do next, by status and title."""

ANSWER = {
    "statusCode": 201,
    "headers": {"Content-Type": "application/json", "X-Own": "a"},
    "multiValueHeaders": {"Set-Cookie": ["a=1", "b=2"]},
    "cookies": ["c=3"],
    "body": '{"a": 1,\n "b": "ü"}',
    "isBase64Encoded": False,
}


def request(
    key: str | None = "k-1",
    body: Any = None,
    *,
    form: str = "rest",
    method: str = "POST",
    path: str = "/transfers",
    query: str | None = None,
    headers: dict[str, str] | None = None,
) -> dict[str, Any]:
    """The event that API Gateway's REST and HTTP APIs, Function URLs or Application Load Balancers make of a request
    with this query string.
    """
    asked = parse_qs(query or "", keep_blank_values=True)
    text = json.dumps({"amount": 5} if body is None else body)
    sent = {**({} if key is None else {"Idempotency-Key": key}), **(headers or {})}
    if form == "rest":
        return {
            "httpMethod": method,
            "path": path,
            "queryStringParameters": {name: values[-1] for name, values in asked.items()} or None,
            "multiValueQueryStringParameters": asked or None,
            "headers": sent,
            "multiValueHeaders": {name: [value] for name, value in sent.items()},
            "body": text,
            "isBase64Encoded": False,
            "requestContext": {"identity": {}},
        }
    if form.startswith("alb"):
        return _balanced(method, path, query or "", sent, text, several=form == "alb-multi")
    return {
        "version": "2.0",
        "rawPath": path,
        "rawQueryString": query or "",
        **({"queryStringParameters": {name: ",".join(values) for name, values in asked.items()}} if asked else {}),
        "headers": {name.lower(): value for name, value in sent.items()},
        "requestContext": {"http": {"method": method, "path": path}},
        "body": base64.b64encode(text.encode()).decode() if form == "url" else text,
        "isBase64Encoded": form == "url",
    }


def _balanced(
    method: str, path: str, query: str, headers: dict[str, str], body: str, *, several: bool
) -> dict[str, Any]:
    """A load balancer's event: its parameters are encoded as sent, in one of two mappings, according to the target
    group's setting.
    """
    told: dict[str, list[str]] = {}
    for name, _, value in (part.partition("=") for part in query.split("&") if part):
        told.setdefault(name, []).append(value)
    lower = {name.lower(): value for name, value in headers.items()}
    last = {name: values[-1] for name, values in told.items()}
    return {
        "requestContext": {
            "elb": {"targetGroupArn": "arn:aws:elasticloadbalancing:us-east-1:123456789012:targetgroup/a/1"}
        },
        "httpMethod": method,
        "path": path,
        **({"multiValueQueryStringParameters": told} if several else {"queryStringParameters": last}),
        **({"multiValueHeaders": {name: [value] for name, value in lower.items()}} if several else {"headers": lower}),
        "body": body,
        "isBase64Encoded": False,
    }


class Api:
    """A wrapped handler that counts its runs, on a clock and a store of its own."""

    def __init__(self, **options: Any) -> None:
        self.clock = ManualClock()
        self.store = CountingStore()
        self.runs: list[dict[str, Any]] = []
        self.does: Any = lambda event: {**ANSWER, "headers": {**ANSWER["headers"], "X-Run": str(len(self.runs))}}  # type: ignore[dict-item]

        @http_endpoint(self.store, clock=self.clock, **options)
        def handler(event: dict[str, Any], context: object) -> Any:
            assert isinstance(context, Invocation)
            self.runs.append(event)
            return self.does(event)

        self.handler = handler

    def __call__(self, event: dict[str, Any], seconds: float = 30) -> Any:
        return self.handler(event, Invocation(self.clock, seconds))

    @property
    def untouched(self) -> bool:
        """Whether neither the handler nor the store was asked."""
        return (self.runs, self.store.asked) == ([], [])


def replayed(response: dict[str, Any]) -> bool:
    """Whether a response is marked as a replay, in the mapping where its form has headers."""
    several = response.get("multiValueHeaders", {}).get("Idempotency-Replayed")
    return several == ["true"] or response["headers"].get("Idempotency-Replayed") == "true"


def problem(response: dict[str, Any], status: int) -> dict[str, Any]:
    """The problem details of a response, checked for their form."""
    assert response["statusCode"] == status
    headers = response.get("headers") or {name: value for name, [value] in response["multiValueHeaders"].items()}
    assert (headers["Content-Type"], headers["Cache-Control"]) == ("application/problem+json", "no-store")
    told: dict[str, Any] = json.loads(response["body"])
    assert told.keys() == {"type", "title", "status", "detail"}
    assert (told["type"], told["status"]) == ("about:blank", status)
    assert status == 400 or told["detail"] == PROBLEMS[status, told["title"]]
    return told


def raising(error: BaseException) -> Any:
    """A handler, key or scope that raises this."""

    def raises(event: Any) -> str:
        raise error

    return raises
