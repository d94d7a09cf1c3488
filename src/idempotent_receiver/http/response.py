"""The library's own HTTP responses, and replays of a function's.

Errors are `application/problem+json` (RFC 9457). They tell a client what to do next and disclose no internals.
"""

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from http import HTTPStatus
from typing import Any

from idempotent_receiver.errors import MissingKey, PermanentError, UnusableKey, misuse, text_of
from idempotent_receiver.handler import outcome
from idempotent_receiver.handler.outcome import Ending
from idempotent_receiver.http.fronts import Front, HttpResponse, as_json, fitted, in_form_of
from idempotent_receiver.protocol.answers import OtherPayload
from idempotent_receiver.protocol.record import Status
from idempotent_receiver.protocol.store import Unknown
from idempotent_receiver.telemetry import Telemetry

Headers = Callable[[Any], Mapping[str, str]]
"""Returns headers for the library's own response to an event."""

REPLAYED = "Idempotency-Replayed"
"""The header that marks a replayed response."""

RETRY_AFTER_SECONDS = 1
"""The default delay before a retry: most handlers finish within that time."""


def json_response(status: int, body: str, headers: Mapping[str, str]) -> HttpResponse:
    """A response whose body is JSON text."""
    headers = {"Content-Type": "application/json", **headers}
    return {"statusCode": int(status), "headers": headers, "body": body, "isBase64Encoded": False}


def problem(status: HTTPStatus, title: str, detail: str, retry_after_seconds: int | None = None) -> HttpResponse:
    """A problem document."""
    document = {"type": "about:blank", "title": title, "status": int(status), "detail": detail}
    headers = {"Content-Type": "application/problem+json", "Cache-Control": "no-store"}
    if retry_after_seconds is not None:
        headers["Retry-After"] = str(retry_after_seconds)
    return json_response(status, json.dumps(document), headers)


def with_numbers(response: Any) -> Any:
    """A handler's response with each Decimal replaced by the number that Lambda would send. Otherwise, a Decimal
    would be a string in the replay. A response with non-JSON numbers, or one nested too deeply, is unchanged.
    """
    try:
        return _with_numbers(response)
    except (ArithmeticError, RecursionError):
        return response


def _with_numbers(value: Any) -> Any:
    match value:
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case dict():
            return {name: _with_numbers(part) for name, part in value.items()}
        case list() | tuple():
            return [_with_numbers(part) for part in value]
    return value


def with_headers(response: HttpResponse, headers: Headers | None, event: Any, telemetry: Telemetry) -> HttpResponse:
    """The response with the headers that `headers` returns for the event. The response's own headers win. If `headers`
    raises or returns anything but str, that is logged and the response is sent without them, because its content
    matters more.
    """
    if headers is None:
        return response
    try:
        made = _checked(headers(event))
    except Exception as error:  # noqa: BLE001  # a user's callable may raise anything
        telemetry.report_raised("the `headers` callable raised: the response is sent without its headers", error)
        return response
    own = {name.lower() for name in response["headers"]}
    added = {name: value for name, value in made.items() if name.lower() not in own}
    return {**response, "headers": {**response["headers"], **added}}


def _checked(made: Any) -> dict[str, str]:
    if not isinstance(made, Mapping) or not all(isinstance(part, str) for pair in made.items() for part in pair):
        raise misuse(TypeError("headers must return a mapping of str to str"))
    return dict(made)


def replay_of(stored: Any, front: Front) -> HttpResponse:
    """A function's stored response, which may be a body alone, as a replay in the form that `front` takes."""
    if isinstance(stored, dict) and "statusCode" in stored:
        return marked_as_replayed(fitted(front, stored), front)
    # Expanded as payload format 2.0 does, so that there are headers to add the mark to.
    body = stored if isinstance(stored, str) else as_json(stored)
    return marked_as_replayed(in_form_of(front, json_response(HTTPStatus.OK, body, {})), front)


def marked_as_replayed(response: HttpResponse, front: Front = Front.FORMAT_1) -> HttpResponse:
    """The response with the header that marks it as replayed, unless its headers are not in the form of any front."""
    place, mark = ("multiValueHeaders", ["true"]) if front is Front.BALANCER_MULTI_VALUE else ("headers", "true")
    headers = response.get(place) or {}
    return {**response, place: {**headers, REPLAYED: mark}} if isinstance(headers, dict) else response


def without_answer(
    ended: Ending | Unknown, now_ms: int, retry_after_seconds: int = RETRY_AFTER_SECONDS
) -> HttpResponse:
    """The response if the handler returned nothing. If another request is in progress, the response asks the client to
    retry after `retry_after_seconds`, or when the other request's lease ends if that is sooner.
    """
    match ended:
        case outcome.HeldElsewhere(until_ms):
            title, left_ms = "A request with this key is still running", until_ms - now_ms
        case outcome.ClaimLost(found) if found is not None and found.status == Status.INPROGRESS:
            title = "Another request with this key has taken over"
            left_ms = (found.lease_until_ms or now_ms) - now_ms
        case OtherPayload():
            title = "The idempotency key was used for another request"
            detail = "A key belongs to one request: its method, path, query string and payload. Use a new key."
            return problem(HTTPStatus.UNPROCESSABLE_ENTITY, title, detail)
        case outcome.Unreadable():
            detail = (
                "It is unknown whether the request took effect. Do not retry before an operator has looked into it."
            )
            return problem(HTTPStatus.INTERNAL_SERVER_ERROR, "The record for this key cannot be read", detail)
        case _:
            # The outcome could not be recorded, the transaction could not be committed, the store could not be reached,
            # or too little time was left. In the last two cases, this request had no effect, but an earlier
            # request with the same key may have had one.
            return unsettled()
    retry_after_seconds = max(1, min(retry_after_seconds, -(-left_ms // 1000)))
    detail = "Try again later: you will get that request's response."
    return problem(HTTPStatus.CONFLICT, title, detail, retry_after_seconds)


def unusable_key_response(error: UnusableKey | PermanentError) -> HttpResponse:
    """The response to a request without a usable key. Nothing ran."""
    title = "No idempotency key" if isinstance(error, MissingKey) else "The idempotency key cannot be used"
    return problem(HTTPStatus.BAD_REQUEST, title, text_of(error))


def unsettled() -> HttpResponse:
    """It is not yet known whether the request took effect. A client that assumes it did not and uses a new key might
    repeat the effect.
    """
    detail = "It is unknown whether the request took effect. Try again with the same key."
    return problem(HTTPStatus.SERVICE_UNAVAILABLE, "Service Unavailable", detail, RETRY_AFTER_SECONDS)


def generic_failure() -> HttpResponse:
    """The handler failed for good. Nothing about its exception is disclosed."""
    detail = "The request failed. A retry with the same key gets this response again."
    return problem(HTTPStatus.INTERNAL_SERVER_ERROR, "Internal Server Error", detail)


def unread() -> HttpResponse:
    """The request took effect once, but its response cannot be read now."""
    detail = "The request took effect, but its response cannot be read now. Try again with the same key."
    return problem(HTTPStatus.SERVICE_UNAVAILABLE, "Service Unavailable", detail, RETRY_AFTER_SECONDS)


def gone() -> HttpResponse:
    """The request took effect once, but its response was not stored."""
    return problem(HTTPStatus.GONE, "The response was not stored", "The request took effect, but its response is gone.")
