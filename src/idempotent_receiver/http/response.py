"""HTTP responses that the library makes itself, and the forms in which a request's way in takes them."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from idempotent_receiver.http.request import Request

HttpResponse = dict[str, Any]
"""A response in payload format 1.0, which API Gateway and Function URLs take alike."""

REPLAYED = "Idempotency-Replayed"
"""The header that marks a stored response."""


def json_response(status: int, body: str, headers: Mapping[str, str]) -> HttpResponse:
    """A response with a JSON text as its body."""
    headers = {"Content-Type": "application/json", **headers}
    return {"statusCode": int(status), "headers": headers, "body": body, "isBase64Encoded": False}


def in_form_of(request: Request, response: HttpResponse) -> HttpResponse:
    """The response in the form that the request's way in takes. A load balancer needs a `statusDescription`, and
    ignores `headers` if it sent `multiValueHeaders`. API Gateway refuses fields that it does not know.
    """
    if not request.balanced:
        return response
    status = HTTPStatus(response["statusCode"])
    described = {**response, "statusDescription": f"{int(status)} {status.phrase}"}
    if request.multi_value:
        described["multiValueHeaders"] = {name: [value] for name, value in described.pop("headers").items()}
    return described


def marked_as_replayed(response: HttpResponse, *, multi_value: bool = False) -> HttpResponse:
    """The response with the header that says it is a stored one."""
    place, mark = ("multiValueHeaders", ["true"]) if multi_value else ("headers", "true")
    return {**response, place: {**(response.get(place) or {}), REPLAYED: mark}}
