"""The way in for HTTP: a client may send a request again, and it takes effect once.

After the IETF's draft *The Idempotency-Key HTTP Header Field*, and what Stripe's users expect:

====================================================== ===============================================================
a request meets                                        response
====================================================== ===============================================================
no key                                                 400, or the unprotected handler's where no key is `required`
a key that cannot be used                              400
nothing                                                the handler's, kept
the same request, answered                             the kept one, byte for byte, with `Idempotency-Replayed: true`
the same request, still running                        409 with `Retry-After`, after a wait where one is configured
another request under the same key                     422
the same request, whose answer was not kept            410
a lease that ended while the handler ran               the winner's, or 409 while the winner is still running
the same, where the winner failed and may be retried   503 with `Retry-After`
a store that does not answer; too little time left     503 with `Retry-After`
a record that this version cannot read                 500
====================================================== ===============================================================
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import update_wrapper
from http import HTTPStatus
from inspect import iscoroutinefunction
from typing import Any, Literal
from urllib.parse import quote

from idempotent_receiver import options
from idempotent_receiver.calls import Calls, Key, run_once
from idempotent_receiver.clock import Clock, SystemClock
from idempotent_receiver.errors import UnusableKey
from idempotent_receiver.handler.annotations import wants_transaction
from idempotent_receiver.handler.attempt import Attempt, Handled, Returned
from idempotent_receiver.handler.endings import Ending
from idempotent_receiver.handler.outcome import Completed, Duplicate, Failed
from idempotent_receiver.handler.process_end import Lifetime, lifetime
from idempotent_receiver.handler.results import LARGEST_INLINE_BYTES, ResultGone, Results
from idempotent_receiver.handler.single_call import CallSettings
from idempotent_receiver.http import problem
from idempotent_receiver.http.request import MissingKey, Request, header, made_by, request_of, scope_of
from idempotent_receiver.http.response import HttpResponse, in_form_of, json_response, marked_as_replayed
from idempotent_receiver.payload import EVERYTHING, Payload, PayloadKey
from idempotent_receiver.protocol import namespaces
from idempotent_receiver.protocol.record import DEFAULT_RETENTION_SECONDS, Record, usable
from idempotent_receiver.protocol.store import RecordStore
from idempotent_receiver.protocol.transitions import AlreadyFailed
from idempotent_receiver.telemetry import Log, Telemetry

HandlerResponse = Any
"""Whatever API Gateway takes from a handler: a response with a status, or a body alone."""
HttpHandler = Callable[[Any, Any], HandlerResponse]

IDEMPOTENCY_KEY = header("Idempotency-Key")


def http_endpoint(
    store: RecordStore,
    *,
    key: Key = IDEMPOTENCY_KEY,
    scope: Callable[[Any], str] | None = None,
    required: bool = True,
    wait_seconds: float = 0,
    retry_after_seconds: int = problem.RETRY_AFTER_SECONDS,
    on_exception: Literal["retry", "replay"] = "retry",
    is_final: Callable[[int], bool] = lambda status: True,
    payload: Payload | None = EVERYTHING,
    results: Results | None = None,
    retention_seconds: int = DEFAULT_RETENTION_SECONDS,
    lease_margin_seconds: float = 3.0,
    stop_margin_seconds: float = 1.0,
    error_texts: bool = False,
    end_process_at_deadline: bool = False,
    logger: Log | None = None,
    clock: Clock | None = None,
) -> Callable[[Callable[..., HandlerResponse]], HttpHandler]:
    """Make a handler `(event, context)` behind API Gateway, a Function URL or an Application Load Balancer take effect
    once for each key.

    The handler may ask for a third argument, annotated `Transaction`: its writes commit together with the response.

    `key` makes an event's key: `header(name)`, `payload_key(...)` for clients that send none, or a callable. The store
    needs a namespace. `scope` is a callable over the event that says whose key it is (an authoriser's claim, an API
    key): no tenant ever sees another's response. Unless a key is `required`, a request without one is not protected.
    `payload` says which part of the body must be the same under one key, besides method, path and query string (except
    for parameters in its `without_query`); None compares nothing, not even those.
    `wait_seconds` is how long a request waits for one that is still running before it gets 409, and
    `retry_after_seconds` is when that response asks the client to retry.
    Every response that the handler *returns* is kept, 4xx and 5xx included, unless `is_final` says no to its status:
    then the request may be retried. An exception is raised to Lambda, and the request may be retried;
    with `on_exception="replay"` the response is 500, without the exception's text, now and for every retry.
    `results` is where responses go that would make a record larger than 350 KB, such as `S3Results(bucket, client)`.
    `end_process_at_deadline` is for Lambda Managed Instances, where a time-out ends nothing: the process ends itself.

    Raises TypeError or ValueError at set-up for options that cannot work, and RuntimeError on a system where a process
    cannot be made to end at its deadline.
    """
    if isinstance(key, PayloadKey) and payload is EVERYTHING:
        # A parameter that does not make another key must not make a mismatch either.
        payload = Payload(without_query=key.payload.without_query)
    calls = Calls(
        settings=CallSettings(
            store=store,
            clock=SystemClock() if clock is None else clock,
            retention_seconds=retention_seconds,
            largest_record_bytes=LARGEST_INLINE_BYTES,
            results=results,
            failures_are_answers=on_exception == "replay",
            error_texts=error_texts,
        ),
        key=key,
        payload=payload,
        lease_margin_seconds=lease_margin_seconds,
        stop_margin_seconds=stop_margin_seconds,
    )
    calls.check("http_endpoint")
    options.require_kind(logger, "logger", "a Powertools Logger or a logging.Logger", "info", "error")
    options.require_numbers(wait_seconds=wait_seconds)
    options.require_count(retry_after_seconds, "retry_after_seconds")
    options.require_flags(required=required, end_process_at_deadline=end_process_at_deadline)
    options.require_callables(is_final=is_final, **({} if scope is None else {"scope": scope}))
    options.require_one_of("on_exception", on_exception, "retry", "replay")
    settings = _Settings(
        calls=calls,
        scope=scope,
        required=required,
        wait_seconds=wait_seconds,
        retry_after_seconds=retry_after_seconds,
        is_final=is_final,
        lifetime=lifetime(end_process_at_deadline=end_process_at_deadline),
        telemetry=Telemetry(logger),
    )

    def wrap(function: Callable[..., HandlerResponse]) -> HttpHandler:
        if iscoroutinefunction(function):
            raise TypeError(f"{function.__qualname__} is a coroutine function, which Lambda never awaits: use def")
        transaction = wants_transaction(function, store)
        namespaces.take(store, *namespaces.user_of("http_endpoint", function))

        def lambda_handler(event: Any, context: Any) -> HandlerResponse:
            options.require_context(context)
            return _Invocation(settings, function, transaction, event, context, request_of(event)).response()

        return update_wrapper(lambda_handler, function)

    return wrap


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    """What `http_endpoint` was given."""

    calls: Calls
    scope: Callable[[Any], str] | None
    required: bool
    wait_seconds: float
    retry_after_seconds: int
    is_final: Callable[[int], bool]
    lifetime: Lifetime
    telemetry: Telemetry

    def key_of(self, event: Any, request: Request) -> str:
        """The key, within its scope. Raises UnusableKey."""
        key = self.calls.key
        made = request.fingerprint(key.payload) if isinstance(key, PayloadKey) else made_by(key, event, "key")
        if made is None:
            raise MissingKey("the request has no key")
        if self.scope is None:
            return self.calls.usable(made)
        scope = scope_of(self.scope, event)
        # Quoting leaves no `#` in the scope, so no two pairs of scope and key read the same.
        return self.calls.usable(f"{quote(scope, safe='', errors='surrogatepass')}#{usable(made, str)}")


@dataclass(frozen=True, slots=True)
class _Invocation:
    """One invocation of the Lambda handler; `transaction` names the parameter of `function` that takes one."""

    settings: _Settings
    function: Callable[..., HandlerResponse]
    transaction: str | None
    event: Any
    context: Any
    request: Request

    def response(self) -> HandlerResponse:
        """The response. Raises what the handler raises, if that may be retried."""
        settings, calls = self.settings, self.settings.calls
        try:
            key = settings.key_of(self.event, self.request)
            fingerprint = None if calls.payload is None else self.request.fingerprint(calls.payload)
        except UnusableKey as error:
            if isinstance(error, MissingKey) and not settings.required:
                return self.function(self.event, self.context)
            settings.telemetry.report_unusable(error, with_text=calls.settings.error_texts)
            return self._ours(problem.unusable_key(error))
        context = calls.within(self.context)
        with settings.lifetime(context.deadline):
            call = calls.begin(key, fingerprint, context)
            ended, handled = run_once(call, self._handle, wait_seconds=settings.wait_seconds, is_final=self._is_final)
            settings.telemetry.report_call(ended, key)
            return self._response_to(ended, handled, call.now_ms)

    def _handle(self, attempt: Attempt) -> HandlerResponse:
        extra = {} if self.transaction is None else {self.transaction: attempt.transaction}
        return self.function(self.event, self.context, **extra)

    def _is_final(self, handled: Handled) -> bool:
        return not isinstance(handled, Returned) or self.settings.is_final(_status_of(handled.result))

    def _response_to(self, ended: Ending, handled: Handled | None, now_ms: int) -> HandlerResponse:
        match ended:
            case Completed():
                assert isinstance(handled, Returned), "what was completed had returned"
                return handled.result
            case Duplicate(record):
                return self._replayed(record)
            case AlreadyFailed():
                return self._marked(self._ours(problem.generic_failure()))
            case Failed(error=None) if isinstance(handled, Returned):
                # It is not final, by the policy, or its transaction could not be committed.
                return self._ours(problem.unsettled()) if self._is_final(handled) else handled.result
            case Failed(_, recorded, error):
                replays = self.settings.calls.settings.failures_are_answers and isinstance(error, Exception)
                if error is not None and not replays:
                    raise error
                return self._ours(problem.generic_failure() if recorded else problem.unsettled())
            case _:
                return self._ours(problem.of(ended, now_ms, self.settings.retry_after_seconds))

    def _replayed(self, record: Record) -> HandlerResponse:
        try:
            data = self.settings.calls.result_of(record)
            response = None if data is None else json.loads(data)
        except (ResultGone, ValueError) as error:
            self.settings.telemetry.report_error("the kept answer cannot be read", error)
            return self._ours(problem.gone())
        if not isinstance(response, dict) or "statusCode" not in response:
            # Written out as API Gateway does it, so that it has headers.
            body = response if isinstance(response, str) else json.dumps(response, separators=(",", ":"))
            response = self._ours(json_response(HTTPStatus.OK, body, {}))
        return self._marked(response)

    def _marked(self, response: HttpResponse) -> HttpResponse:
        return marked_as_replayed(response, multi_value=self.request.multi_value)

    def _ours(self, response: HttpResponse) -> HttpResponse:
        """A response that is not the handler's."""
        return in_form_of(self.request, response)


def _status_of(response: HandlerResponse) -> int:
    """The HTTP status that API Gateway makes of a handler's response."""
    status = response.get("statusCode") if isinstance(response, dict) else None
    try:
        return HTTPStatus.OK if status is None else int(status)
    except (TypeError, ValueError):
        return HTTPStatus.INTERNAL_SERVER_ERROR
