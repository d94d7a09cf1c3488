"""The way in for HTTP: a client may send a request again, and it takes effect once.

By the IETF's draft *The Idempotency-Key HTTP Header Field* and by what Stripe's users expect:

===================================================== ================================================================
a request meets                                       answer
===================================================== ================================================================
no key                                                400, or the handler unprotected where no key is `required`
a key that cannot be used                             400
nothing                                               the handler's answer, kept
the same request, answered                            that answer, byte for byte, with `Idempotency-Replayed: true`
the same request, still running                       409 with `Retry-After`, after a wait where one is asked for
another request under the same key                    422
the same request, whose answer was not kept           410
a lease that ended while it ran                       the winner's answer, or 409 while the winner still runs
the same where the winner failed, and may try again   503 with `Retry-After`
a store that cannot be asked, or told; no time left   503 with `Retry-After`
a record that this version does not know              500
===================================================== ================================================================
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import update_wrapper
from http import HTTPStatus
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from idempotent_receiver import errors, options
from idempotent_receiver.clock import Clock, Deadline, SystemClock
from idempotent_receiver.handler.annotations import wants_transaction
from idempotent_receiver.handler.attempt import Attempt, Handled, Returned, run
from idempotent_receiver.handler.endings import Ending
from idempotent_receiver.handler.outcome import Completed, Duplicate, Failed
from idempotent_receiver.handler.process_end import Lifetime, lifetime
from idempotent_receiver.handler.results import LARGEST_INLINE_BYTES, ResultGone, Results, fetched
from idempotent_receiver.handler.single_call import Call, CallContext, CallSettings
from idempotent_receiver.http import problem
from idempotent_receiver.http.request import MissingKey, Request, header, made_by, request_of, scope_of
from idempotent_receiver.payload import EVERYTHING, Payload, PayloadKey, payload_key
from idempotent_receiver.protocol import namespaces
from idempotent_receiver.protocol.record import DEFAULT_RETENTION_SECONDS, Record
from idempotent_receiver.protocol.store import RecordStore, record_id
from idempotent_receiver.protocol.transitions import AlreadyFailed
from idempotent_receiver.sqs import keys
from idempotent_receiver.telemetry import Telemetry

if TYPE_CHECKING:
    from aws_lambda_powertools import Logger

Response = Any
LambdaHandler = Callable[[Any, Any], Response]
KeyOfRequest = Callable[[Any], str]

REPLAYED = "Idempotency-Replayed"
THE_HEADER = header("Idempotency-Key")


def every_status(status: int) -> bool:
    """The default policy: whatever the handler returns is the answer, 4xx and 5xx included."""
    return True


def http_endpoint(
    store: RecordStore,
    *,
    key: KeyOfRequest | PayloadKey = THE_HEADER,
    scope: Callable[[Any], str] | None = None,
    required: bool = True,
    wait_seconds: float = 0,
    retry_after_seconds: int = problem.ASK_AGAIN_SECONDS,
    on_exception: Literal["retry", "replay"] = "retry",
    is_final: Callable[[int], bool] = every_status,
    payload: Payload | None = EVERYTHING,
    results: Results | None = None,
    retention_seconds: int = DEFAULT_RETENTION_SECONDS,
    lease_margin_seconds: float = 3.0,
    stop_margin_seconds: float = 1.0,
    error_texts: bool = False,
    end_process_at_deadline: bool = False,
    logger: "Logger | None" = None,
    clock: Clock | None = None,
) -> Callable[[Callable[..., Response]], LambdaHandler]:
    """Turn a handler `(event, context)` behind API Gateway, a Function URL or an Application Load Balancer into one
    that takes effect once a key.

    The handler may ask for a third argument, annotated `Transaction`: its writes commit together with the answer.

    `key` makes the key of an event: `header(name)`, `payload_key(...)` for clients that send none, or a callable. The
    store needs a namespace. `scope` is a callable over the event that says whose key it is (an authoriser's claim, an
    API key): one tenant never sees another's answer. Without `required`, a request without a key is not protected.
    `payload` says which part of the body must be the same under one key, besides method, path and query string (but for
    parameters that its `without_query` names); None compares nothing, not even those.
    `wait_seconds` is how long a request waits for one that is still running before it is answered 409, and
    `retry_after_seconds` when it is told to ask again.
    Every answer that the handler *returns* is kept; `is_final` says for which statuses, the others may be asked for
    again. An exception is raised to Lambda and may be tried again; with `on_exception="replay"` it is answered 500,
    without its text, now and ever after.
    `results` is where answers go that would make a record larger than 350 KB, such as `S3Results(bucket, client)`.
    `end_process_at_deadline` is for Lambda Managed Instances, where a time-out ends nothing: the process ends itself.

    Raises TypeError or ValueError at set-up for what can be known to be wrong then, RuntimeError for a system on which
    a process cannot be made to end at its deadline.
    """
    options.require_store(store, "http_endpoint")
    options.require_call_key(
        key, (header, payload_key, keys.message_attribute, keys.body_field, keys.message_id, keys.event_id)
    )
    options.require_namespace(store)
    options.require_kind(payload, "payload", "a Payload(fields=..., without=...)", "fingerprint")
    options.require_kind(results, "results", "a S3Results(bucket, client)", "put", "get")
    options.require_kind(logger, "logger", "a Powertools Logger", "info", "error")
    options.require_count(retention_seconds, "retention_seconds")
    options.require_numbers(
        wait_seconds=wait_seconds, lease_margin_seconds=lease_margin_seconds, stop_margin_seconds=stop_margin_seconds
    )
    options.require_count(retry_after_seconds, "retry_after_seconds")
    options.require_flags(required=required, end_process_at_deadline=end_process_at_deadline)
    options.require_callables(is_final=is_final, **({} if scope is None else {"scope": scope}))
    options.require_one_of("on_exception", on_exception, "retry", "replay")
    if isinstance(key, PayloadKey) and payload is EVERYTHING:
        # A parameter that makes no other key must make no mismatch either.
        payload = Payload(without_query=key.payload.without_query)
    settings = _Settings(
        terms=CallSettings(
            store=store,
            clock=SystemClock() if clock is None else clock,
            retention_seconds=retention_seconds,
            largest_record_bytes=LARGEST_INLINE_BYTES,
            results=results,
            failures_are_answers=on_exception == "replay",
            error_texts=error_texts,
        ),
        key=key,
        scope=scope,
        required=required,
        wait_seconds=wait_seconds,
        retry_after_seconds=retry_after_seconds,
        is_final=is_final,
        payload=payload,
        lease_margin_seconds=lease_margin_seconds,
        stop_margin_seconds=stop_margin_seconds,
        lifetime=lifetime(end_process_at_deadline=end_process_at_deadline),
        telemetry=Telemetry(logger),
    )

    def wrap(function: Callable[..., Response]) -> LambdaHandler:
        if iscoroutinefunction(function):
            raise TypeError(f"{function.__qualname__} is a coroutine function, which Lambda never awaits: use def")
        transaction = wants_transaction(function, store)
        namespaces.take(store, *namespaces.user_of("http_endpoint", function))

        def lambda_handler(event: Any, context: Any) -> Response:
            return _Invocation(settings, event, context).answer(function, transaction)

        return update_wrapper(lambda_handler, function)

    return wrap


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    """What `http_endpoint` was given."""

    terms: CallSettings
    key: KeyOfRequest | PayloadKey
    scope: Callable[[Any], str] | None
    required: bool
    wait_seconds: float
    retry_after_seconds: int
    is_final: Callable[[int], bool]
    payload: Payload | None
    lease_margin_seconds: float
    stop_margin_seconds: float
    lifetime: Lifetime
    telemetry: Telemetry

    def key_of(self, event: Any, request: Request) -> str:
        """The key, within its scope. Raises UnusableKey."""
        made: object = (
            request.fingerprint(self.key.payload)
            if isinstance(self.key, PayloadKey)
            else made_by(self.key, event, "key")
        )
        if made is None:
            raise MissingKey("the request has no key")
        if self.scope is None:
            return keys.usable(made, self._record_id)
        scope = scope_of(self.scope, event)
        # No `#` is left in what is quoted, so no scope and key read together like another pair.
        return keys.usable(f"{quote(scope, safe='', errors='surrogatepass')}#{keys.usable(made, str)}", self._record_id)

    def _record_id(self, key: str) -> str:
        return record_id(self.terms.store, key)


class _Invocation:
    """One call of the Lambda handler."""

    def __init__(self, settings: _Settings, event: Any, context: Any) -> None:
        options.require_context(context)
        self.settings = settings
        self.event = event
        self.context = context
        self.request = request_of(event)

    def answer(self, function: Callable[..., Response], transaction: str | None) -> Response:
        """What to answer; raises what the handler raises, where that may be tried again."""
        settings = self.settings
        try:
            key = settings.key_of(self.event, self.request)
            fingerprint = self._fingerprint()
        except MissingKey as error:
            if not settings.required:
                return function(self.event, self.context)
            return self._ours(problem.bad_request("No idempotency key", errors.text_of(error)))
        except errors.UnusableKey as error:
            settings.telemetry.report_unusable(error, with_text=settings.terms.error_texts)
            return self._ours(problem.bad_request("The idempotency key cannot be used", errors.text_of(error)))
        limits = self._limits()
        with settings.lifetime(limits.deadline):
            return self._called(Call(settings.terms, key, fingerprint, limits), key, function, transaction)

    def _called(self, call: Call, key: str, function: Callable[..., Response], transaction: str | None) -> Response:
        settings = self.settings
        begun = call.claim(settings.wait_seconds)
        if not isinstance(begun, Attempt):
            return self._told(begun, call, key)
        handled = run(lambda attempt: self._run(function, transaction, attempt), begun)
        ended = call.settle(handled, keep=self._keeps(handled))
        return self._told(ended, call, key, handled)

    def _run(self, function: Callable[..., Response], transaction: str | None, attempt: Attempt) -> Response:
        lent = {} if transaction is None else {transaction: attempt.transaction}
        return function(self.event, self.context, **lent)

    def _fingerprint(self) -> str | None:
        payload, request = self.settings.payload, self.request
        return None if payload is None else request.fingerprint(payload)

    def _limits(self) -> CallContext:
        settings = self.settings
        return CallContext(
            deadline=Deadline.after(settings.terms.clock, self.context.get_remaining_time_in_millis()),
            lease_margin_seconds=settings.lease_margin_seconds,
            stop_margin_seconds=settings.stop_margin_seconds,
            owner=str(getattr(self.context, "aws_request_id", "unknown")),
        )

    def _keeps(self, handled: Handled) -> bool:
        return not isinstance(handled, Returned) or self.settings.is_final(status_of(handled.result))

    def _told(self, ended: Ending, call: Call, key: str, handled: Handled | None = None) -> Response:
        self.settings.telemetry.report_call(ended, key)
        match ended:
            case Completed():
                return _returned(handled)
            case Duplicate(record):
                return self._replayed(record)
            case AlreadyFailed():
                return self._replay_marked(self._ours(problem.generic_failure()))
            case Failed(error=None) if isinstance(handled, Returned):
                # It is not the last word, by the policy, or its transaction could not be committed.
                return self._ours(problem.unsettled()) if self._keeps(handled) else _returned(handled)
            case Failed(_, recorded, error):
                return self._raised(error, recorded=recorded)
            case _:
                return self._ours(problem.of(ended, call.now_ms, self.settings.retry_after_seconds))

    def _raised(self, error: BaseException | None, *, recorded: bool) -> Response:
        if error is not None and not (self.settings.terms.failures_are_answers and isinstance(error, Exception)):
            raise error
        return self._ours(problem.generic_failure() if recorded else problem.unsettled())

    def _replayed(self, record: Record) -> Response:
        try:
            data = fetched(record, self.settings.terms.results)
            return self._replay_marked(None if data is None else json.loads(data))
        except (ResultGone, ValueError) as error:
            self.settings.telemetry.trouble("the kept answer cannot be read", error)
            return self._ours(problem.gone())

    def _replay_marked(self, response: Response) -> Response:
        """The answer, said to be a replay where its form has headers. An answer without a status is spelt out as API
        Gateway would have done it.
        """
        if not isinstance(response, dict) or "statusCode" not in response:
            body = response if isinstance(response, str) else json.dumps(response, separators=(",", ":"))
            headers: Mapping[str, str] = {"Content-Type": "application/json"}
            spelt_out = {"statusCode": int(HTTPStatus.OK), "headers": headers, "body": body, "isBase64Encoded": False}
            response = self._ours(spelt_out)
        several = self.request.multi_value
        place, mark = ("multiValueHeaders", ["true"]) if several else ("headers", "true")
        return {**response, place: {**(response.get(place) or {}), REPLAYED: mark}}

    def _ours(self, response: problem.Response) -> Response:
        """An answer that is not the handler's, in the request's form."""
        return problem.told_to(self.request, response)


def status_of(response: Response) -> int:
    """The HTTP status that API Gateway makes of a handler's answer."""
    status = response.get("statusCode") if isinstance(response, dict) else None
    try:
        return HTTPStatus.OK if status is None else int(status)
    except (TypeError, ValueError):
        return HTTPStatus.INTERNAL_SERVER_ERROR


def _returned(handled: Handled | None) -> Response:
    assert isinstance(handled, Returned), "what was completed had returned"
    return handled.result
