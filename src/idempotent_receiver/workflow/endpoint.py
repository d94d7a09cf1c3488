"""The way in for a workflow: an HTTP request under a key starts one execution, and its record is what answers.

========================================= ============================================================================
a request meets                           answer
========================================= ============================================================================
no key, no body, or one that is refused   400; nothing was stored
nothing                                   202 with its location, once an execution is started
an execution that is still running        202 with its ARN, or 409 where that was asked for
an execution that succeeded               200 with the stored result
an execution that failed                  the stored error, with its status
another request under the same key        422
a store or a Step Functions that is away  503: ask again, with the same key
========================================= ============================================================================
"""

import json
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Literal

from idempotent_receiver import options
from idempotent_receiver.clock import Deadline
from idempotent_receiver.errors import PermanentError, UnusableKey, text_of
from idempotent_receiver.handler.outcome import ClaimFailed
from idempotent_receiver.http import problem
from idempotent_receiver.http.endpoint import REPLAYED, THE_HEADER, LambdaHandler
from idempotent_receiver.http.request import MissingKey, Request, header, made_by, request_of, scope_of
from idempotent_receiver.payload import EVERYTHING, Payload, PayloadKey
from idempotent_receiver.protocol.exchange import Unavailable
from idempotent_receiver.protocol.record import Record, Status
from idempotent_receiver.protocol.transitions import AlreadyCompleted, AlreadyFailed, OtherPayload, Unreadable
from idempotent_receiver.sqs import keys
from idempotent_receiver.telemetry import Telemetry
from idempotent_receiver.workflow.executions import Answer, Running, Start, Started, Workflow, name_of

Response = dict[str, Any]
Parse = Callable[[bytes], Any]
"""Makes of a body what the machine is given, as JSON can say it. Raises PermanentError, with a text for the client."""

ASK_AGAIN_SECONDS = 5


def workflow_endpoint(
    workflow: Workflow,
    *,
    parse: Parse,
    key: Callable[[Any], str] = THE_HEADER,
    scope: Callable[[Any], str] | None = None,
    running_status: Literal[202, 409] = 202,
    payload: Payload = EVERYTHING,
) -> LambdaHandler:
    """A Lambda handler behind HTTP, as `http_endpoint` is: POST starts an execution, GET of its location asks for it.

    `key` is `header(name)` or a callable over the event. `scope` and `payload` are as for `http_endpoint`, but there is
    always something that is compared. `running_status` is what a request is answered whose execution was started by an
    earlier one and is still running.

    Raises TypeError or ValueError at set-up for what can be known to be wrong then.
    """
    _require(key, payload)
    options.require_callables(parse=parse, **({} if scope is None else {"scope": scope}))
    if running_status not in (HTTPStatus.ACCEPTED, HTTPStatus.CONFLICT):
        raise ValueError(f"running_status must be 202 or 409; it is {running_status!r}")
    telemetry = Telemetry()

    def start(event: Any, request: Request, deadline: Deadline, owner: str) -> Response:
        try:
            whose = None if scope is None else scope_of(scope, event)
            name = name_of(keys.usable(made_by(key, event, "key"), str), whose)
            fingerprint = request.fingerprint(payload)
            asked = _start_of(workflow, name, fingerprint, parse(request.body))
        except MissingKey as error:
            return problem.bad_request("No idempotency key", text_of(error))
        except UnusableKey as error:
            telemetry.report_unusable(error)
            return problem.bad_request("The idempotency key cannot be used", text_of(error))
        except PermanentError as error:
            return problem.bad_request("The request is refused", text_of(error))
        answer = workflow.accept(asked, deadline, owner)
        # Relative to the request's own address, in which a stage or a domain's base path may stand before.
        location = f"{request.path.rstrip('/').rpartition('/')[2]}/{name}"
        return _answered(answer, location, running_status, deadline.now_ms)

    def lambda_handler(event: Any, context: Any) -> Response:
        request = request_of(event)
        deadline = workflow.deadline(context.get_remaining_time_in_millis())
        if request.method == "GET":
            answer = _seen(workflow, request.path.rstrip("/").rpartition("/")[2], deadline)
        else:
            answer = start(event, request, deadline, str(getattr(context, "aws_request_id", "unknown")))
        return problem.told_to(request, answer)

    return lambda_handler


def _require(key: object, payload: object) -> None:
    if not callable(key) or key is header or isinstance(key, PayloadKey):
        raise TypeError(f"key must be header(name) or a callable from the event to a str; it is {key!r}")
    if not isinstance(payload, Payload):
        raise TypeError(f"payload must be a Payload(fields=..., without=...); it is {payload!r}")


def _answered(answer: Answer, location: str, running_status: int, now_ms: int) -> Response:
    match answer:
        case Started(execution):
            return _running(HTTPStatus.ACCEPTED, execution, location)
        case Running(execution):
            return _running(HTTPStatus(running_status), execution, location)
        case AlreadyCompleted(record):
            return _replayed(_succeeded(record))
        case AlreadyFailed(record):
            return _replayed(_failed(record))
        case OtherPayload():
            return problem.of(answer, now_ms)
        case Unreadable():
            return problem.of(answer, now_ms)
        case Unavailable():
            # It may be started by now, or be by a sweep.
            return problem.unsettled()


def _seen(workflow: Workflow, name: str, deadline: Deadline) -> Response:
    """What there is at a location."""
    found = workflow.look(name, deadline)
    if isinstance(found, Unavailable):
        return problem.of(ClaimFailed(found.why), deadline.now_ms)
    if found is None or found.unreadable is not None:
        return problem.not_found("There is no such execution", "It was never accepted, or its record has expired.")
    match found.status:
        case Status.COMPLETED:
            return _succeeded(found)
        case Status.FAILED:
            return _failed(found)
    return _running(HTTPStatus.OK, workflow.arn_of(name), None)


def _start_of(workflow: Workflow, name: str, fingerprint: str, told: Any) -> Start:
    try:
        return workflow.start_of(name, fingerprint, told)
    except UnicodeError:
        # What Python says of a text that is none would show it.
        raise PermanentError("it holds text that is not UTF-8") from None
    except ValueError as error:
        raise PermanentError(str(error)) from None


def _running(status: HTTPStatus, execution: str, location: str | None) -> Response:
    if status == HTTPStatus.CONFLICT:
        return problem.still_running(execution, ASK_AGAIN_SECONDS)
    told = {"status": "running", "execution": execution}
    headers = {"Retry-After": str(ASK_AGAIN_SECONDS)}
    if location is not None:
        told["location"] = headers["Location"] = location
    return _json(status, json.dumps(told), headers)


def _succeeded(record: Record) -> Response:
    return _json(HTTPStatus.OK, "null" if record.data is None else record.data, {})


def _failed(record: Record) -> Response:
    """The stored error, as far as it was meant to be told: a text stands in a record only if somebody chose it."""
    try:
        error = json.loads(record.error or "{}")
        status = HTTPStatus(error.get("status", HTTPStatus.INTERNAL_SERVER_ERROR))
    except (ValueError, AttributeError):
        error, status = {}, HTTPStatus.INTERNAL_SERVER_ERROR
    return problem.failed(status, str(error.get("type", "Failed")), str(error.get("text", "The execution failed.")))


def _replayed(response: Response) -> Response:
    return {**response, "headers": {**response["headers"], REPLAYED: "true"}}


def _json(status: HTTPStatus, body: str, headers: Mapping[str, str]) -> Response:
    kept = {"Content-Type": "application/json", "Cache-Control": "no-store", **headers}
    return {"statusCode": int(status), "headers": kept, "body": body, "isBase64Encoded": False}
