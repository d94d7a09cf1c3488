"""The HTTP entry point: a client can repeat a request, which takes effect once.

Follows the IETF draft *The Idempotency-Key HTTP Header Field* and Stripe's conventions:

====================================================== ===============================================================
what the request has or finds                          response
====================================================== ===============================================================
GET, HEAD or OPTIONS, with or without a key            the unprotected handler's
no key                                                 400, or the unprotected handler's if no key is `required`
a key that cannot be used                              400
a key that could not be made now                       503 with `Retry-After`
no earlier request under its key                       the handler's, stored if its status `is_final`
the same request, answered                             the stored one, with `Idempotency-Replayed: true` (`fronts.py`)
the same request, still running                        409 with `Retry-After`, after a wait if one is configured
a different request under the same key                 422
the same request, whose response is not stored         410
a claim lost to another request while the handler ran  that request's, or 409 while it is still running
the same, but that request failed and may be retried   503 with `Retry-After`
no answer from the store or S3; too little time left   503 with `Retry-After`
a record that this version cannot read                 500
====================================================== ===============================================================
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import update_wrapper
from http import HTTPStatus
from inspect import iscoroutinefunction, signature
from typing import Any, Literal
from urllib.parse import quote

from idempotent_receiver import options
from idempotent_receiver.calls import NOT_FINAL, CallKey, CallOptions
from idempotent_receiver.clock import require_context
from idempotent_receiver.errors import MissingKey, PermanentError, UnusableKey, text_of
from idempotent_receiver.handler import outcome
from idempotent_receiver.handler.annotations import refuse_method, runnable, wants_transaction
from idempotent_receiver.handler.attempt import Attempt
from idempotent_receiver.handler.outcome import Ending
from idempotent_receiver.handler.results import ResultGone, fetched
from idempotent_receiver.http import response as responses
from idempotent_receiver.http.fronts import HttpResponse, in_form_of
from idempotent_receiver.http.request import Request, copied_event, header, made_by, request_of, scope_of
from idempotent_receiver.http.response import Headers, marked_as_replayed, replay_of, with_headers, with_numbers
from idempotent_receiver.payload import EVERYTHING, Payload
from idempotent_receiver.process_end import Lifetime, lifetime
from idempotent_receiver.protocol import namespaces
from idempotent_receiver.protocol.answers import AlreadyFailed
from idempotent_receiver.protocol.record import Record, usable
from idempotent_receiver.protocol.store import RecordStore
from idempotent_receiver.telemetry import Log, Metrics, Telemetry, metrics_factory
from idempotent_receiver.transaction.transaction import Transaction

HandlerResponse = Any
"""Anything that API Gateway accepts from a handler: a response with a status, or a body alone."""
HttpHandler = Callable[[Any, Any], HandlerResponse]

IDEMPOTENCY_KEY = header("Idempotency-Key")

_NOT_SAID: Any = object()
"""The default `scope`. (None means that all clients share their keys.)"""

_READS = ("GET", "HEAD", "OPTIONS")
"""The safe methods: they change nothing, so they need no protection. A stored response would be outdated."""
_ONLY_READS = (
    "GET, HEAD and OPTIONS requests have no record to commit this with; to write, use POST, PUT, PATCH or DELETE"
)
_WITHOUT_A_KEY = (
    "requests without a key have no record to commit this with; send a key, and refuse requests "
    "without one with required=True"
)


@dataclass(frozen=True, kw_only=True)
class http_endpoint(CallOptions):  # noqa: N801  # a decorator
    """Make a handler `(event, context)` behind API Gateway, a Function URL or an Application Load Balancer take effect
    once for each key.

    The handler may take a third argument, annotated `Transaction`: its writes commit together with the response. Each
    run then gets its own copy of the event.
    GET, HEAD and OPTIONS requests are not protected: nothing is claimed or stored, and a `Transaction` refuses writes.

    `key` finds a request's key: `header(name)`, `payload_key(...)` for clients that send no key, or a callable. The
    store needs a namespace. `scope` is a callable that returns the key's owner for an event (an authoriser's claim, an
    API key), so that no tenant ever sees another's response. By default, or with None, all clients share their keys.
    With `payload_key(...)`, `scope` must be given, because two clients may well send the same payload.
    Unless `required`, a request without a key, or without the fields that the key is made of, is not protected.
    `payload` selects the part of the body that must be the same under one key. Method, path and query string (except
    for parameters in its `without_query`) must be the same too. With `payload=None`, nothing is compared.
    `wait_seconds` is how long a request waits for one that is still running before it gets 409, and
    `retry_after_seconds` is the delay in that response.
    Every response that the handler *returns* is stored, 4xx and 5xx included, unless `is_final` rejects its status. By
    default, it rejects statuses that ask for the same request again, later or with other credentials. For those,
    the `Transaction` is not committed, and the request may be retried. 502 and 504 may follow an effect, so they are
    stored. `is_final=lambda status: True` stores all responses. If `is_final` raises, that is logged and the response
    is stored. FastAPI, Flask and Chalice return a 500 for an exception, so reject that status for their handlers.
    A handler's exception is raised to Lambda, and the request may be retried. With `on_exception="replay"`, the
    response is 500 without the exception's text, now and for every retry.
    `headers` is a callable that returns headers for the library's own responses to an event, such as CORS headers. The
    handler's responses keep their own.
    `results`, such as `S3Results(bucket, client)`, stores responses that would make a record larger than 350 KB.
    `end_process_at_deadline` ends the process: for Lambda Managed Instances, where a timeout does not stop a run.
    `metrics`, such as Powertools' `Metrics`, counts replays, conflicts and failures; without it, nothing is counted.

    Raises TypeError or ValueError at set-up for invalid options, and RuntimeError on a system where a process cannot be
    made to end at its deadline.
    """

    key: CallKey = IDEMPOTENCY_KEY
    scope: Callable[[Any], str] | None = _NOT_SAID
    required: bool = True
    wait_seconds: float = 0
    retry_after_seconds: int = responses.RETRY_AFTER_SECONDS
    on_exception: Literal["retry", "replay"] = "retry"
    is_final: Callable[[int], bool] = lambda status: status not in (401, 403, 408, 429, 503)
    headers: Headers | None = None
    end_process_at_deadline: bool = False
    logger: Log | None = None
    metrics: Metrics | None = None

    lifetime: Lifetime = field(init=False, repr=False, compare=False)
    telemetry: Telemetry = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.key, Payload) and self.payload is EVERYTHING:
            # A parameter outside the key must not cause a mismatch either.
            object.__setattr__(self, "payload", Payload(without_query=self.key.without_query))
        self.check("http_endpoint")
        options.require_kind(self.logger, "logger", "a Powertools Logger or a logging.Logger", "info", "error")
        options.require_kind(self.metrics, "metrics", "Powertools Metrics or the like", "add_metric", "flush_metrics")
        options.require_numbers(wait_seconds=self.wait_seconds)
        options.require_count(self.retry_after_seconds, "retry_after_seconds")
        options.require_flags(required=self.required, end_process_at_deadline=self.end_process_at_deadline)
        if self.scope is _NOT_SAID:
            if isinstance(self.key, Payload):
                raise ValueError(
                    "a key made from the payload needs a scope, or one client gets the response to another's identical "
                    "request: scope=lambda event: ... for the request's owner; scope=None if all clients share "
                    "responses"
                )
            object.__setattr__(self, "scope", None)
        options.require_callables(is_final=self.is_final)
        options.require_scope(self.scope, "http_endpoint")
        options.require_kind(self.headers, "headers", "a callable", "__call__")
        if self.on_exception not in ("retry", "replay"):
            raise ValueError(f"on_exception must be 'retry' or 'replay'; it is {self.on_exception!r}")
        new_metrics = None if self.metrics is None else metrics_factory(self.metrics, self.logger)
        object.__setattr__(self, "lifetime", lifetime(end_process_at_deadline=self.end_process_at_deadline))
        object.__setattr__(self, "telemetry", Telemetry(self.logger, new_metrics))

    def __call__(self, function: Callable[..., HandlerResponse]) -> HttpHandler:
        """Decorate a handler."""
        if iscoroutinefunction(function):
            raise TypeError(f"{function.__qualname__} is a coroutine function, which Lambda never awaits: use def")
        endpoint = _Endpoint(self, function, _transaction_of(function, self.store))
        namespaces.take(self.store, *namespaces.user_of("http_endpoint", function))

        def lambda_handler(event: Any, context: Any) -> HandlerResponse:
            require_context(context)
            return endpoint.response(event, context, request_of(event))

        return update_wrapper(lambda_handler, function)

    @property
    def failures_are_answers(self) -> bool:
        """Whether a FAILED record is the answer."""
        return self.on_exception == "replay"


def _transaction_of(function: Callable[..., HandlerResponse], store: RecordStore) -> str | None:
    """The name of the parameter that takes a transaction, if any. Raises TypeError for a function that cannot be called
    with a request.
    """
    name, transaction = runnable(function), wants_transaction(function, store)
    refuse_method(function, name, "http_endpoint(store)")
    try:
        signature(function).bind("event", "context", **({} if transaction is None else {transaction: "one"}))
    except TypeError as error:
        raise TypeError(f"{name} must take (event, context), or (event, context, tx: Transaction): {error}") from None
    return transaction


@dataclass(frozen=True, slots=True)
class _Endpoint:
    """A handler and its options. `transaction` names the parameter that takes a transaction."""

    options: http_endpoint
    function: Callable[..., HandlerResponse]
    transaction: str | None

    def response(self, event: Any, context: Any, request: Request) -> HandlerResponse:
        """The response to a request. Raises the handler's exception if the request may be retried."""
        if request.method in _READS:
            return self._unprotected(event, context, _ONLY_READS)
        try:
            key = self._key_of(event, request)
            fingerprint = self._fingerprint_of(request)
        except (UnusableKey, PermanentError) as error:
            if isinstance(error, MissingKey) and not self.options.required:
                return self._unprotected(event, context, _WITHOUT_A_KEY)
            self.options.telemetry.report_unusable(error, with_text=self.options.error_texts)
            return self._own(responses.unusable_key_response(error), event, request)
        except Exception as error:  # noqa: BLE001  # a user's key may ask another service, which may not answer now
            text = "not run: the key could not be made now, and the client got 503"
            self.options.telemetry.report_raised(text, error, with_text=self.options.error_texts)
            return self._own(responses.unsettled(), event, request)

        def handle(attempt: Attempt) -> HandlerResponse:
            if self.transaction is None:
                return with_numbers(self.function(event, context))
            # The handler runs again if data that it read has changed, and it may have modified its event.
            return with_numbers(self.function(copied_event(event), context, **{self.transaction: attempt.transaction}))

        call = self.options.begin(key, fingerprint, context)
        with self.options.lifetime(call.deadline):
            ended, result = call.run(handle, wait_seconds=self.options.wait_seconds, is_final=self._is_final)
            self.options.telemetry.report_call(ended, key)
            return self._response_to(ended, result, event, request, call.deadline.now_ms)

    def _unprotected(self, event: Any, context: Any, why: str) -> HandlerResponse:
        """The response to a request without a record. A handler that takes a transaction gets one that refuses writes
        and says `why`, because nothing would commit them.
        """
        refusing = Transaction()
        refusing.seal(why)
        return self.function(event, context, **({} if self.transaction is None else {self.transaction: refusing}))

    def _key_of(self, event: Any, request: Request) -> str:
        """The key, within its scope. Raises UnusableKey."""
        key = self.options.key
        made = request.fingerprint(key) if isinstance(key, Payload) else made_by(key, event, "key")
        if made is None:
            raise MissingKey("the request has no key")
        if self.options.scope is None:
            return self.options.usable(made)
        scope = scope_of(self.options.scope, event)
        # Quoting removes `#` from the scope, so no two pairs of scope and key collide.
        return self.options.usable(f"{quote(scope, safe='', errors='surrogatepass')}#{usable(made, str)}")

    def _fingerprint_of(self, request: Request) -> str | None:
        """The fingerprint to compare under the key. Raises UnusableKey."""
        payload = self.options.payload
        try:
            return None if payload is None else request.fingerprint(payload)
        except MissingKey as error:
            # The request has its key: a MissingKey would let it run unprotected.
            raise UnusableKey(text_of(error)) from None

    def _is_final(self, result: HandlerResponse) -> bool:
        try:
            return bool(self.options.is_final(_status_of(result)))
        except Exception as error:  # noqa: BLE001  # a user's policy may raise anything, perhaps after an effect
            self.options.telemetry.report_raised("is_final raised: the response is stored", error)
            return True

    def _own(self, response: HttpResponse, event: Any, request: Request) -> HttpResponse:
        """One of the library's own responses, with the user's headers, in the form that the request's front takes."""
        return in_form_of(request.front, with_headers(response, self.options.headers, event, self.options.telemetry))

    def _response_to(
        self, ended: Ending, result: HandlerResponse, event: Any, request: Request, now_ms: int
    ) -> HandlerResponse:
        match ended:
            case outcome.Completed():
                return result
            case outcome.Duplicate(record):
                return self._replayed(record, event, request)
            case AlreadyFailed():
                response = self._own(responses.generic_failure(), event, request)
                return marked_as_replayed(response, request.front)
            case outcome.Failed(failure) if failure is NOT_FINAL:
                return result
            case outcome.Failed(_, recorded, error) if error is not None:
                if not (self.options.failures_are_answers and isinstance(error, Exception)):
                    raise error
                response = responses.generic_failure() if recorded else responses.unsettled()
                return self._own(response, event, request)
            case _:
                response = responses.without_answer(ended, now_ms, self.options.retry_after_seconds)
                return self._own(response, event, request)

    def _replayed(self, record: Record, event: Any, request: Request) -> HandlerResponse:
        try:
            data = fetched(record, self.options.results)
            response = None if data is None else json.loads(data)
        except (ResultGone, ValueError) as error:
            self.options.telemetry.report_error("the stored response cannot be read", error)
            retry = isinstance(error, ResultGone) and error.retry
            return self._own(responses.unread() if retry else responses.gone(), event, request)
        return replay_of(response, request.front)


def _status_of(response: HandlerResponse) -> int:
    """The HTTP status that API Gateway derives from a handler's response."""
    status = response.get("statusCode") if isinstance(response, dict) else None
    try:
        return HTTPStatus.OK if status is None else int(status)
    except (TypeError, ValueError, OverflowError):
        return HTTPStatus.INTERNAL_SERVER_ERROR
