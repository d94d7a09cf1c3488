"""Our own answers to HTTP requests, as `application/problem+json` (RFC 9457). They tell a client what to do next, and
nothing of what is inside. `told_to` puts one in the form that the request's way in takes.
"""

import json
from http import HTTPStatus
from typing import Any

from idempotent_receiver.handler.endings import Ending
from idempotent_receiver.handler.outcome import ClaimLost, HeldElsewhere, Unreadable
from idempotent_receiver.http.request import Request
from idempotent_receiver.protocol.record import Status
from idempotent_receiver.protocol.transitions import OtherPayload

Response = dict[str, Any]


ASK_AGAIN_SECONDS = 1
"""When asking again is worth it, unless the user knows better: most handlers are done by then."""


def told_to(request: Request, response: Response) -> Response:
    """One of our own answers in the form that the request's way in takes. A load balancer wants a `statusDescription`,
    and ignores `headers` if it sent `multiValueHeaders`. API Gateway refuses fields that it does not know.
    """
    if not request.balanced:
        return response
    status = HTTPStatus(response["statusCode"])
    described = {**response, "statusDescription": f"{int(status)} {status.phrase}"}
    if request.multi_value:
        described["multiValueHeaders"] = {name: [value] for name, value in described.pop("headers").items()}
    return described


def of(ended: Ending, now_ms: int, retry_after_seconds: int = ASK_AGAIN_SECONDS) -> Response:
    """What a call's end is answered with where there is no answer of the handler's. Who meets another request in
    progress is told to ask again after `retry_after_seconds`, or at the end of that one's lease if that is sooner.
    """
    match ended:
        case HeldElsewhere(until_ms):
            seconds = _seconds_until(until_ms, now_ms, retry_after_seconds)
            return _conflict("A request with this key is still running", seconds)
        case ClaimLost(found) if found is not None and found.status == Status.INPROGRESS:
            seconds = _seconds_until(found.lease_until_ms or now_ms, now_ms, retry_after_seconds)
            return _conflict("Another request with this key has taken over", seconds)
        case OtherPayload():
            return _problem(
                HTTPStatus.UNPROCESSABLE_ENTITY,
                "The idempotency key was used for another request",
                "A key belongs to one request: its method, its path, its query string and its payload. Take a new key.",
            )
        case Unreadable():
            told = "It is not known whether it is done, and asking again will not help before somebody has looked."
            return _problem(HTTPStatus.INTERNAL_SERVER_ERROR, "The record of this key cannot be read", told)
        case _:
            # Its end could not be recorded; or the store could not be asked, or too little time was left, and then this
            # request has done nothing, but an earlier one with the key may have.
            return unsettled()


def bad_request(title: str, detail: str) -> Response:
    """The request has no key, or none that can be used; nothing ran."""
    return _problem(HTTPStatus.BAD_REQUEST, title, detail)


def unsettled() -> Response:
    """Whether it is done cannot be said now. Who took it for undone, and took a new key, might do it twice."""
    detail = "It is not known whether it is done. Ask again, with the same key."
    return _problem(HTTPStatus.SERVICE_UNAVAILABLE, "Service Unavailable", detail, ASK_AGAIN_SECONDS)


def generic_failure() -> Response:
    """The handler failed, and that is the last word; nothing of its exception is told."""
    return _problem(HTTPStatus.INTERNAL_SERVER_ERROR, "Internal Server Error", "The request failed, and stays so.")


def gone() -> Response:
    """The request took effect once, and its answer was not kept."""
    return _problem(HTTPStatus.GONE, "The answer was not kept", "The request took effect; its answer is not there.")


def not_found(title: str, detail: str) -> Response:
    """Nothing is known of what was asked for."""
    return _problem(HTTPStatus.NOT_FOUND, title, detail)


def still_running(execution: str, ask_again_seconds: int) -> Response:
    """The execution of an earlier request with the key has not ended."""
    return _problem(HTTPStatus.CONFLICT, "The execution is still running", execution, ask_again_seconds)


def failed(status: HTTPStatus, title: str, detail: str) -> Response:
    """The execution failed, and that is the last word. The detail was chosen to be told."""
    return _problem(status, title, detail)


def _seconds_until(lease_until_ms: int, now_ms: int, retry_after_seconds: int) -> int:
    left_seconds = -(-(lease_until_ms - now_ms) // 1000)
    return max(1, min(retry_after_seconds, left_seconds))


def _conflict(title: str, retry_after_seconds: int) -> Response:
    detail = "Ask again later: it will be answered with that request's answer."
    return _problem(HTTPStatus.CONFLICT, title, detail, retry_after_seconds)


def _problem(status: HTTPStatus, title: str, detail: str, retry_after_seconds: int | None = None) -> Response:
    told = {"type": "about:blank", "title": title, "status": int(status), "detail": detail}
    headers = {"Content-Type": "application/problem+json", "Cache-Control": "no-store"}
    if retry_after_seconds is not None:
        headers["Retry-After"] = str(retry_after_seconds)
    return {"statusCode": int(status), "headers": headers, "body": json.dumps(told), "isBase64Encoded": False}
