"""What the API answers to which request. Described for clients in `openapi.yaml`."""

import json
import re
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from pydantic import ValidationError

from app.transfer_service import State, TransferService
from app.transfers import Transfer
from idempotent_receiver import Transaction, current_claim
from idempotent_receiver.errors import invalid_body
from idempotent_receiver.http.request import request_of

Response = dict[str, Any]
Handler = Callable[..., Response]

ASKED_FOR = {"from_account", "to_account", "amount", "currency"}
"""What a client says of a transfer."""
AN_ID = "0" * 64
"""What an id looks like: a SHA-256 in hexadecimal. This one stands in where none is known yet."""


class Refused(Exception):
    """The body asks for no transfer that there can be; the text says why."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


def tenant(event: Any) -> str:
    """Whose key and whose transfers: the caller's ARN, as API Gateway knows it from the request's signature.

    The sessions of a role are one caller: a client that was started anew sends its request again in another session.
    """
    arn = str(event["requestContext"]["identity"].get("userArn") or "")
    return arn.rpartition("/")[0] if ":assumed-role/" in arn else arn


def callers(environment: Mapping[str, str]) -> Callable[[Any], str]:
    """How a request's caller is known: by its signature; under `sam local`, where there is none, from LOCAL_CALLER.

    No request can name its caller: both variables are the process's own, and a deployed function has neither.
    """
    unsigned = environment.get("LOCAL_CALLER", "") if environment.get("AWS_SAM_LOCAL") == "true" else ""
    return lambda event: tenant(event) or unsigned


def claimed_id() -> str:
    """A new transfer's id: what its claim passes downstream, the same at every attempt."""
    return current_claim().idempotency_key


def served(
    service: TransferService,
    idempotent_handler: Callable[[Handler], Handler],
    new_id: Callable[[], str] = claimed_id,
    caller: Callable[[Any], str] = tenant,
) -> Callable[[Any, Any], Response]:
    """The API's Lambda handler. `idempotent_handler` wraps the function that accepts a transfer, once for each key."""

    @idempotent_handler
    def accept(event: Any, context: Any, tx: Transaction) -> Response:
        transfer = asked_for(event, new_id())
        service.accept(transfer, caller(event), tx)
        # Relative to the request's own address, in which a stage or a domain's base path may stand before.
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
                raise LookupError(f"nothing is served at {method} {resource}: the template and this differ")

    return lambda_handler


def asked_for(event: Any, transfer_id: str = AN_ID) -> Transfer:
    """The transfer that a request asks for. Raises Refused."""
    document = request_of(event).document
    if not document.is_json or not isinstance(document.value, dict):
        raise Refused(HTTPStatus.BAD_REQUEST, "the body is not a JSON object, or it has a name twice")
    if not document.value.keys() <= ASKED_FOR:
        raise Refused(HTTPStatus.BAD_REQUEST, f"the body has other fields than {', '.join(sorted(ASKED_FOR))}")
    said = {**document.value, "transfer_id": transfer_id}
    if isinstance(said.get("amount"), float) and said["amount"].is_integer():
        said["amount"] = int(said["amount"])  # to JSON, 5.0 is the integer 5
    try:
        return Transfer.model_validate(said)
    except ValidationError as error:
        # Fields that are well each by itself, and make no transfer together.
        sound = all(each["type"] == "value_error" for each in error.errors())
        status = HTTPStatus.UNPROCESSABLE_ENTITY if sound else HTTPStatus.BAD_REQUEST
        raise Refused(status, str(invalid_body(error, Transfer.model_fields))) from None


def _checked(event: Any) -> Response | None:
    """What is answered to a body that asks for no transfer, before a key is used up for it."""
    try:
        asked_for(event)
    except Refused as refused:
        return _problem(refused.status, str(refused))
    return None


def _found(service: TransferService, transfer_id: str, tenant: str) -> Response:
    try:
        state = service.find(transfer_id, tenant) if re.fullmatch(r"[0-9a-f]{64}", transfer_id) else None
    except ConnectionError:
        return _problem(HTTPStatus.SERVICE_UNAVAILABLE, "Ask again.", **{"Retry-After": "1"})
    if state is None:
        return _problem(HTTPStatus.NOT_FOUND, "There is no such transfer.")
    return _answer(HTTPStatus.OK, _shown(state))


def _shown(state: State) -> dict[str, Any]:
    told = {**state.transfer.model_dump(exclude_defaults=True), "state": state.name}
    return told if state.reason is None else {**told, "reason": state.reason}


def _problem(status: HTTPStatus, detail: str, **headers: str) -> Response:
    told = {"type": "about:blank", "title": status.phrase, "status": int(status), "detail": detail}
    return _answer(status, told, **{"Content-Type": "application/problem+json"}, **headers)


def _answer(status: HTTPStatus, told: dict[str, Any], **headers: str) -> Response:
    headers = {"Content-Type": "application/json", "Cache-Control": "no-store", **headers}
    return {"statusCode": int(status), "headers": headers, "body": json.dumps(told)}
