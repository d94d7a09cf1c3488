"""The API's routes and responses. `openapi.yaml` describes them for clients."""

import json
import re
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from pydantic import ValidationError

from app.transfer_service import State, TransferService
from app.transfers import Transfer
from idempotent_receiver import Transaction, current_claim, invalid_body
from idempotent_receiver.http import request_of

Response = dict[str, Any]
Handler = Callable[..., Response]

REQUEST_FIELDS = {"from_account", "to_account", "amount", "currency"}
"""The fields of a request body."""
PLACEHOLDER_ID = "0" * 64
"""A placeholder for an id that is not known yet. Real ids are SHA-256 digests in hexadecimal."""


class Refused(Exception):
    """The body does not describe a valid transfer; the text says why."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


def tenant(event: Any) -> str:
    """The owner of keys and transfers: the caller's ARN, which API Gateway derives from the request's signature.

    All of a role's sessions count as one caller, because a restarted client retries its request in a new session.
    """
    arn = str(event["requestContext"]["identity"].get("userArn") or "")
    return arn.rpartition("/")[0] if ":assumed-role/" in arn else arn


def callers(environment: Mapping[str, str]) -> Callable[[Any], str]:
    """Identify callers by their signature, or by LOCAL_CALLER under `sam local`, where requests are unsigned.

    A request cannot choose its caller: LOCAL_CALLER and AWS_SAM_LOCAL are set for the process, never in a deployment.
    """
    unsigned = environment.get("LOCAL_CALLER") if environment.get("AWS_SAM_LOCAL") == "true" else None
    return lambda event: tenant(event) or unsigned or ""


def claimed_id() -> str:
    """A new transfer's id: its claim's idempotency key, which is the same on every attempt."""
    return current_claim().idempotency_key


def served(
    service: TransferService,
    idempotent_handler: Callable[[Handler], Handler],
    new_id: Callable[[], str] = claimed_id,
    caller: Callable[[Any], str] = tenant,
) -> Callable[[Any, Any], Response]:
    """The API's Lambda handler. `idempotent_handler` makes the function that accepts a transfer run once per key."""

    @idempotent_handler
    def accept(event: Any, context: Any, tx: Transaction) -> Response:
        transfer = requested_transfer(event, new_id())
        service.accept(transfer, caller(event), tx)
        # Relative to the request's URL, whose path may begin with a stage or a custom domain's base path.
        return _answer(
            HTTPStatus.ACCEPTED, _shown(State(transfer, "accepted")), Location=f"transfers/{transfer.transfer_id}"
        )

    def lambda_handler(event: Any, context: Any) -> Response:
        match event["httpMethod"], event["resource"]:
            case "POST", "/transfers":
                return _checked(event) or accept(event, context)
            case "GET", "/transfers/{transfer_id}":
                return _found(service, event["pathParameters"]["transfer_id"], caller(event))
            case method, resource:
                raise LookupError(f"no route for {method} {resource}: template.yaml and this module differ")

    return lambda_handler


def requested_transfer(event: Any, transfer_id: str = PLACEHOLDER_ID) -> Transfer:
    """The transfer that a request describes. Raises Refused."""
    document = request_of(event).document
    if not document.is_json or not isinstance(document.value, dict):
        raise Refused(HTTPStatus.BAD_REQUEST, "the body is not a JSON object, or repeats a name")
    if not document.value.keys() <= REQUEST_FIELDS:
        raise Refused(HTTPStatus.BAD_REQUEST, f"the body has fields other than {', '.join(sorted(REQUEST_FIELDS))}")
    fields = {**document.value, "transfer_id": transfer_id}
    amount = fields.get("amount")
    # In JSON, 5.0 is the integer 5. A fraction that a double does not hold comes as another type than float.
    if type(amount) is float and amount.is_integer():
        fields["amount"] = int(amount)
    try:
        return Transfer.model_validate(fields)
    except ValidationError as error:
        # Only Transfer's own validator, which compares valid fields, raises a `value_error`.
        fields_valid = all(each["type"] == "value_error" for each in error.errors())
        status = HTTPStatus.UNPROCESSABLE_ENTITY if fields_valid else HTTPStatus.BAD_REQUEST
        raise Refused(status, str(invalid_body(error, Transfer.model_fields))) from None


def _checked(event: Any) -> Response | None:
    """The response to an invalid body, sent before the request claims its key; None if the body is valid."""
    try:
        requested_transfer(event)
    except Refused as refused:
        return _problem(refused.status, str(refused))
    return None


def _found(service: TransferService, transfer_id: str, tenant: str) -> Response:
    try:
        state = service.find(transfer_id, tenant) if re.fullmatch(r"[0-9a-f]{64}", transfer_id) else None
    except ConnectionError:
        return _problem(HTTPStatus.SERVICE_UNAVAILABLE, "Retry the request.", **{"Retry-After": "1"})
    if state is None:
        return _problem(HTTPStatus.NOT_FOUND, "There is no such transfer.")
    return _answer(HTTPStatus.OK, _shown(state))


def _shown(state: State) -> dict[str, Any]:
    shown = {**state.transfer.model_dump(exclude_defaults=True), "state": state.name}
    return shown if state.reason is None else {**shown, "reason": state.reason}


def _problem(status: HTTPStatus, detail: str, **headers: str) -> Response:
    problem = {"type": "about:blank", "title": status.phrase, "status": int(status), "detail": detail}
    return _answer(status, problem, **{"Content-Type": "application/problem+json"}, **headers)


def _answer(status: HTTPStatus, body: dict[str, Any], **headers: str) -> Response:
    headers = {"Content-Type": "application/json", "Cache-Control": "no-store", **headers}
    return {"statusCode": int(status), "headers": headers, "body": json.dumps(body)}
