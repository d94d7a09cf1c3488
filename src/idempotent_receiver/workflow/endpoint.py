"""The entry point for a workflow: an HTTP request with a key starts one execution, whose record answers every retry.

========================================= ============================================================================
what the request has or finds             response
========================================= ============================================================================
a method other than POST, GET and HEAD    405; nothing was stored
a missing or refused key or body          400; nothing was stored
no earlier request under its key          202 with its location, once an execution has started
an execution that is still running        202 with its ARN, or 409 if configured
an execution that succeeded               200 with the stored result
an execution that failed                  the stored error, with its status
a different request under the same key    422
a record that this version cannot read    500; an operator must look into it
no answer from store or Step Functions    503; retry with the same key
========================================= ============================================================================
"""

import json
from collections.abc import Callable
from http import HTTPStatus
from logging import WARNING
from typing import Any, Literal

from idempotent_receiver import options
from idempotent_receiver.clock import Deadline, require_context
from idempotent_receiver.errors import PermanentError, UnusableKey, blames_input, invalid_body, text_of
from idempotent_receiver.http import response as responses
from idempotent_receiver.http.endpoint import IDEMPOTENCY_KEY, HttpHandler
from idempotent_receiver.http.fronts import HttpResponse, in_form_of
from idempotent_receiver.http.request import Request, made_by, request_of, scope_of
from idempotent_receiver.http.response import Headers, problem
from idempotent_receiver.payload import EVERYTHING, Payload
from idempotent_receiver.protocol.answers import AlreadyCompleted, AlreadyFailed, Unreadable
from idempotent_receiver.protocol.record import Record, Status, usable
from idempotent_receiver.protocol.store import Unknown
from idempotent_receiver.telemetry import Telemetry
from idempotent_receiver.workflow.executions import Start, Workflow, name_of
from idempotent_receiver.workflow.starts import Running, StartAnswer, Started, accept

Parse = Callable[[bytes], Any]
"""Converts a body to the state machine's payload, as plain JSON values or a pydantic model. Raises PermanentError with
a message for the client. For any ValueError, such as one from `json.loads` or pydantic, the response gives at most the
locations and kinds of the problems, never values.
"""

RETRY_SECONDS = 5
"""The `Retry-After` delay while an execution is running."""


def workflow_endpoint(
    workflow: Workflow,
    *,
    parse: Parse,
    key: Callable[[Any], str] = IDEMPOTENCY_KEY,
    scope: Callable[[Any], str] | None = None,
    running_status: Literal[202, 409] = 202,
    headers: Headers | None = None,
    payload: Payload = EVERYTHING,
) -> HttpHandler:
    """A Lambda handler behind HTTP, like `http_endpoint`'s: POST starts an execution, and a GET request to its location
    reports its state.

    `parse` converts a body to the state machine's payload. If it raises an error that blames the body, such as
    PermanentError or ValueError, the response is 400; any other reaches Lambda. `key` is `header(name)` or a callable
    that takes the event. `scope` and `payload` are as for `http_endpoint`, but `payload` cannot be None.
    `running_status` is the response status while an execution that an earlier request started is still running.
    `headers` is a callable that returns headers for every response to an event, such as CORS headers.

    Raises TypeError or ValueError at set-up for invalid options.
    """
    _require(workflow, key, payload)
    options.require_callables(parse=parse)
    options.require_scope(scope, "workflow_endpoint")
    options.require_kind(headers, "headers", "a callable", "__call__")
    if running_status not in (HTTPStatus.ACCEPTED, HTTPStatus.CONFLICT):
        raise ValueError(f"running_status must be 202 or 409; it is {running_status!r}")
    telemetry = Telemetry()

    def start_for(event: Any, request: Request) -> Start:
        whose = None if scope is None else scope_of(scope, event)
        name = name_of(usable(made_by(key, event, "key"), str), whose)
        fingerprint = request.fingerprint(payload)
        parsed = _parsed(parse, request.body, telemetry)
        try:
            return workflow.start_of(name, fingerprint, parsed)
        except (UnicodeError, RecursionError) as error:
            raise _refusal(error, telemetry) from None
        except ValueError as error:
            raise PermanentError(str(error)) from None

    def post(event: Any, request: Request, deadline: Deadline, owner: str) -> HttpResponse:
        try:
            start = start_for(event, request)
        except UnusableKey as error:
            telemetry.report_unusable(error)
            return responses.unusable_key_response(error)
        except PermanentError as error:
            return problem(HTTPStatus.BAD_REQUEST, "The request is refused", text_of(error))
        # Relative to the request's URL, whose path may start with a stage or a domain's base path.
        location = start.name if request.path.endswith("/") else f"{_last_part(request.path)}/{start.name}"
        return _response_to(accept(workflow, start, deadline, owner), location, running_status, deadline.now_ms)

    def lambda_handler(event: Any, context: Any) -> HttpResponse:
        require_context(context)
        request = request_of(event)
        deadline = workflow.deadline(context.get_remaining_time_in_millis())
        if request.method == "POST":
            response = post(event, request, deadline, str(getattr(context, "aws_request_id", "unknown")))
        elif request.method in ("GET", "HEAD"):
            response = _report(workflow, _last_part(request.path), deadline)
        else:
            response = _not_allowed()
        return in_form_of(request.front, responses.with_headers(response, headers, event, telemetry))

    return lambda_handler


def _require(workflow: object, key: object, payload: object) -> None:
    if not isinstance(workflow, Workflow):
        raise TypeError(
            "workflow_endpoint needs a Workflow(store, client=..., state_machine_arn=..., timeout_seconds=...); "
            f"it is {workflow!r}"
        )
    why = "" if isinstance(key, Payload) else options.why_not_called(key, "workflow_endpoint")
    if why is not None:
        raise TypeError(f"key must be header(name) or a callable from the event to a str; it is {key!r}{why}")
    if not isinstance(payload, Payload):
        raise TypeError(f"payload must be a Payload(fields=..., without=...); it is {payload!r}")


def _parsed(parse: Parse, body: bytes, telemetry: Telemetry) -> Any:
    """The state machine's payload. Raises PermanentError for a body that is not one, and any other error of `parse`."""
    try:
        return parse(body)
    except PermanentError:
        raise
    except Exception as error:
        if not blames_input(error):
            raise
        raise _refusal(error, telemetry) from None


def _refusal(error: Exception, telemetry: Telemetry) -> PermanentError:
    """The client's error for a body that could not be parsed. The original error's text may quote the body."""
    # Imported here: code that raised a ValidationError has already imported it.
    from pydantic_core import ValidationError  # noqa: PLC0415

    match error:
        case json.JSONDecodeError():
            return PermanentError("the body is not JSON")
        case UnicodeError():
            return PermanentError("the body is not UTF-8")
        case RecursionError():
            return PermanentError("the body is nested too deeply")
        case ValidationError():
            # All names are shown: only the client sees them, and unknown ones are the client's own.
            return invalid_body(error, {str(part) for each in error.errors() for part in each["loc"]})
        case _:
            telemetry.report_raised("not run: parse raised, and the client got 400", error, WARNING)
            return PermanentError("the body does not match this workflow's input")


def _not_allowed() -> HttpResponse:
    detail = "POST starts an execution, and a GET request to its location reports its state."
    refusal = problem(HTTPStatus.METHOD_NOT_ALLOWED, "Method Not Allowed", detail)
    return {**refusal, "headers": {**refusal["headers"], "Allow": "GET, HEAD, POST"}}


def _last_part(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _response_to(answer: StartAnswer, location: str, running_status: int, now_ms: int) -> HttpResponse:
    match answer:
        case Started(execution):
            return _running(HTTPStatus.ACCEPTED, execution, location)
        case Running(execution):
            return _running(HTTPStatus(running_status), execution, location)
        case AlreadyCompleted(record) | AlreadyFailed(record):
            return responses.marked_as_replayed(_ended(record))
        case _:
            # If the answer is unknown, the execution may have started, or a sweep may still start it.
            return responses.without_answer(answer, now_ms)


def _report(workflow: Workflow, name: str, deadline: Deadline) -> HttpResponse:
    """The state of the execution at a location."""
    found = workflow.record_of(name, deadline)
    if isinstance(found, Unknown):
        return responses.without_answer(found, deadline.now_ms)
    if found is not None and found.unreadable is not None:
        return responses.without_answer(Unreadable(found.unreadable), deadline.now_ms)
    if found is None:
        detail = "It was never accepted, or its record has expired."
        return problem(HTTPStatus.NOT_FOUND, "There is no such execution", detail)
    if found.status in (Status.COMPLETED, Status.FAILED):
        return _ended(found)
    return _running(HTTPStatus.OK, workflow.arn_of(name), None)


def _running(status: HTTPStatus, execution: str, location: str | None) -> HttpResponse:
    if status == HTTPStatus.CONFLICT:
        return problem(HTTPStatus.CONFLICT, "The execution is still running", execution, RETRY_SECONDS)
    body = {"status": "running", "execution": execution}
    headers = {"Cache-Control": "no-store", "Retry-After": str(RETRY_SECONDS)}
    if location is not None:
        body["location"] = headers["Location"] = location
    return responses.json_response(status, json.dumps(body), headers)


def _ended(record: Record) -> HttpResponse:
    """The stored result or error. A record contains an error's text only if its author chose to disclose it."""
    if record.status == Status.COMPLETED:
        body = "null" if record.data is None else record.data
        return responses.json_response(HTTPStatus.OK, body, {"Cache-Control": "no-store"})
    try:
        error = json.loads(record.error or "{}")
        status = HTTPStatus(error.get("status", HTTPStatus.INTERNAL_SERVER_ERROR))
    except (ValueError, AttributeError):
        error, status = {}, HTTPStatus.INTERNAL_SERVER_ERROR
    return problem(status, str(error.get("type", "Failed")), str(error.get("text", "The execution failed.")))
