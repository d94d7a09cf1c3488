"""Checks for an entry point's options. An invalid option is refused at set-up, by name and with a remedy, not on every
message.
"""

import math
from collections.abc import Callable
from copy import copy
from functools import partial
from inspect import iscoroutinefunction, signature
from typing import Any, TypeVar, cast

from idempotent_receiver.errors import PermanentError, UnusableKey, blames_input
from idempotent_receiver.payload import Payload, payload_key
from idempotent_receiver.protocol.namespaces import checked

Function = TypeVar("Function", bound=Callable[..., Any])

SHORTEST_RETENTION_SECONDS = 24 * 60 * 60
"""A record should outlive its message, which SQS may redeliver for days."""


def require_store(store: object, way_in: str) -> None:
    """Raise TypeError unless `store` is a store, and TypeError or ValueError unless its namespace is valid."""
    made = not isinstance(store, type)
    if made and way_in != "sqs_consumer" and hasattr(store, "lends"):
        raise TypeError(f"{type(store).__name__} works with sqs_consumer alone; {way_in} needs a DynamoDBStore")
    if made and all(callable(getattr(store, name, None)) for name in ("insert", "read", "replace")):
        checked(getattr(store, "namespace", None))
        return
    if made and callable(store):
        raise TypeError(f"{way_in} needs a store before it wraps a function: @{way_in}(store)")
    raise TypeError(f"store must be a store, such as DynamoDBStore('records'); it is {store!r}")


_MARKED: list[tuple[object, tuple[str, ...]]] = [(payload_key, ())]


def key_for(*ways_in: str) -> Callable[[Function], Function]:
    """Mark a key strategy as valid for these entry points only or, if none are given, as a factory of strategies."""

    def mark(function: Function) -> Function:
        _MARKED.append((function, ways_in))
        return function

    return mark


def _is_for(key: object, way_in: str) -> bool:
    return all(way_in in ways_in for marked, ways_in in _MARKED if marked is key)


def why_not_called(strategy: object, way_in: str) -> str | None:
    """Why a key or scope cannot be called for this entry point, to follow its repr; None if it can."""
    return (
        ": call it with a name" if not _is_for(strategy, way_in)
        else ", a coroutine function, which is never awaited" if _is_coroutine_function(strategy)
        else None if callable(strategy)
        else ""
    )  # fmt: skip


def _is_coroutine_function(function: object) -> bool:
    while isinstance(function, partial):
        function = function.func
    return iscoroutinefunction(function) or iscoroutinefunction(type(function).__call__)


def _takes_one(function: Any) -> bool:
    """Whether a callable can be called with one argument. If not, its TypeError would blame every message."""
    try:
        signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:  # a built-in without a signature
        pass
    return True


def made(what: str, source: str, make: Callable[[], Any]) -> Any:
    """What the user's `key` or `scope` callable (`what`) makes from `source`.

    Raises UnusableKey if the callable raises an error that `blames_input`, unless it says itself that a retry does not
    help. The original is chained; its text may quote the payload.
    """
    try:
        return make()
    except (UnusableKey, PermanentError):
        raise
    except Exception as error:
        if not blames_input(error):
            raise
        raise UnusableKey(f"no {what} could be made from {source}") from error


def require_key(key: object, store: Any, message_id: object) -> None:
    """Raise TypeError unless `key` makes keys from messages, or ValueError if it needs a namespace that the store
    lacks.
    """
    why = why_not_called(key, "sqs_consumer")
    if why is None and not _takes_one(key):
        why = ", which does not take one argument"
    if why is not None:
        raise TypeError(
            "key must be message_id, message_attribute(name), body_field(path), payload_key(fields), event_id or a "
            f"callable from Message to str; it is {key!r}{why}"
        )
    if key is not message_id:
        require_namespace(store)


def require_envelope(envelope: object) -> None:
    """Raise TypeError unless `envelope` is text, a JMESPath expression, or a plain callable."""
    if envelope is not None and not isinstance(envelope, str):
        if not callable(envelope) or isinstance(envelope, type):
            raise TypeError(f"envelope must be a JMESPath expression or a callable from str to str; it is {envelope!r}")
        if _is_coroutine_function(envelope):
            raise TypeError(f"envelope must be a plain callable: {envelope!r} is a coroutine function, never awaited")
        if not _takes_one(envelope):
            raise TypeError(f"envelope must take one argument, the body as it was sent; it is {envelope!r}")


def require_namespace(store: Any) -> None:
    """Raise ValueError for a store without a namespace."""
    if store.namespace is None:
        raise ValueError(
            "this key needs a store with a namespace, or consumers that share a table would suppress each other's "
            f'messages: {type(store).__name__}(..., namespace="payments")'
        )


def require_payload(payload: object, key: object, message_id: object) -> None:
    """Raise TypeError unless `payload` is a Payload or None, or ValueError for a Payload if messageIds are the keys."""
    require_kind(payload, "payload", "a Payload(fields=..., without=...)", "fingerprint")
    if payload is not None and key is message_id:
        raise ValueError("payload needs a key other than messageId, because SQS ties a messageId to one exact body")


def require_call_key(key: object, way_in: str) -> None:
    """Raise TypeError unless `key` makes keys for this entry point's calls."""
    why = why_not_called(key, way_in)
    if why is not None:
        header = "header(name), " if way_in == "http_endpoint" else ""
        raise TypeError(
            f"key must be {header}payload_key(...) or a callable that takes the call's arguments and returns a str; "
            f"it is {key!r}{why}"
        )


def require_scope(scope: object, way_in: str) -> None:
    """Raise TypeError unless `scope` can return an HTTP event's owner; None means that all callers share keys."""
    why = "" if isinstance(scope, Payload) else why_not_called(scope, way_in)
    if scope is not None and why is not None:
        raise TypeError(
            "scope must be a callable from the event to the request's owner, such as an authoriser's claim or "
            f"header('X-Tenant'); it is {scope!r}{why}"
        )


def require_callables(**options: object) -> None:
    """Raise TypeError for options that are not callable."""
    for name, value in options.items():
        if not callable(value):
            raise TypeError(f"{name} must be a callable; it is {value!r}")


def require_client(client: object, service: str, option: str) -> None:
    """Raise TypeError for None, another service's boto3 client, a boto3 resource, or a client that converts DynamoDB
    values, as a resource's own client does.
    """
    meta = getattr(client, "meta", None)
    found = getattr(getattr(meta, "service_model", None), "service_name", service)
    what = (
        "None" if client is None
        else f"one for {found}" if found != service
        else "a boto3 resource" if hasattr(meta, "client")
        else "a resource's own client, resource.meta.client, which converts values" if _converts_values(meta)
        else None
    )  # fmt: skip
    if what is not None:
        raise TypeError(f"{option} must be a boto3 client for {service}, boto3.client('{service}'); it is {what}")


def _converts_values(meta: Any) -> bool:
    """Whether boto3 has registered a converter between plain and DynamoDB values with the client's events.

    The events do not list their handlers, but they refuse a counting handler under an id registered without counting.
    The attempt is made on a copy, so it changes nothing.
    """
    events = copy(getattr(meta, "events", None))
    if events is None:
        return False
    taken = "dynamodb-attr-value-input"
    try:
        events.register(taken, lambda **event: None, unique_id=taken, unique_id_uses_count=True)
    except ValueError:
        return True
    return False


def require_dead_letter_queue(url: object, sqs: object) -> None:
    """Raise ValueError for a dead-letter queue to which nothing could be sent."""
    if url is None:
        return
    if sqs is None:
        raise ValueError("dead_letter_queue needs sqs, a boto3 client to send with: sqs=boto3.client('sqs')")
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        raise ValueError(f"dead_letter_queue must be a queue URL, not a name or ARN; it is {url!r}")


def require_max_attempts(value: object, dead_letter_queue: str | None) -> None:
    """Raise ValueError for a limit that is no positive integer, or without a queue for what has reached it."""
    if value is None:
        return
    require_count(value, "max_attempts")
    if dead_letter_queue is None:
        raise ValueError("max_attempts needs dead_letter_queue and sqs, to send what has failed that often")


def require_count(value: object, option: str) -> None:
    """Raise ValueError unless `value` is a positive integer."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{option} must be a whole number of at least 1; it is {value!r}")


def require_effects(effects: object) -> None:
    """Raise ValueError for an unknown value of `effects`."""
    if effects not in ("any", "transaction"):
        raise ValueError(
            f"effects must be 'any', or 'transaction' if all effects are in the Transaction; it is {effects!r}"
        )


def require_numbers(**seconds: object) -> None:
    """Raise ValueError for times that are negative, infinite or not numbers."""
    for name, value in seconds.items():
        if (
            isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf
        ):  # also rejects NaN
            raise ValueError(f"{name} must be a finite, non-negative number of seconds; it is {value!r}")


def require_lease(lease_seconds: object) -> None:
    """Raise ValueError for a lease that would end at once."""
    require_numbers(lease_seconds=lease_seconds)
    if not cast(float, lease_seconds) > 0:
        raise ValueError(f"lease_seconds, how long a claim lasts, must be more than 0; it is {lease_seconds!r}")


def require_flags(**flags: object) -> None:
    """Raise TypeError for flags that are not True or False, such as an environment variable's text."""
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise TypeError(f"{name} must be True or False; it is {value!r}")


def require_text(value: object, option: str, wanted: str) -> None:
    """Raise ValueError for a missing or blank string, perhaps from an unset variable."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{option} must be {wanted}; it is {value!r}, perhaps from an unset variable")


def require_queue_retention(retention_seconds: int) -> None:
    """Raise ValueError for a retention shorter than the time in which SQS may redeliver a message."""
    require_count(retention_seconds, "retention_seconds")
    if retention_seconds < SHORTEST_RETENTION_SECONDS:
        raise ValueError(
            f"retention_seconds must be at least {SHORTEST_RETENTION_SECONDS} (a day), so that no record "
            f"expires while its message can be redelivered; it is {retention_seconds}"
        )


def require_kind(value: object, option: str, wanted: str, *names: str) -> None:
    """Raise TypeError for a value that lacks one of the attributes `names`, or for a class instead of an instance.
    None is accepted: it means the default.
    """
    uncalled = isinstance(value, type) and "__call__" not in names
    if value is not None and (uncalled or not all(hasattr(value, name) for name in names)):
        raise TypeError(f"{option} must be {wanted}; it is {value!r}")
