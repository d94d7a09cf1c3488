"""A store's default client, request lists that bypass botocore's serialiser, and workarounds for moto.

botocore would visit every value in a statement or action only to find that it is a string. That would take a fifth of a
batch request's CPU time, and more than half of a transaction's.
"""

import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from botocore.config import Config
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef

_SET_ASIDE = "idempotent-receiver-raw"


def default_client() -> "DynamoDBClient":
    """A client with the default configuration. It has its own session, because boto3's default session is not
    thread-safe.
    """
    # Imported here because a user who passes a client does not need it.
    from boto3.session import Session  # noqa: PLC0415

    return Session().client("dynamodb", config=client_config())


def client_config() -> "Config":
    """The default client's configuration, for a client that you create from your own session."""
    from boto3 import __version__ as boto3_version  # noqa: PLC0415
    from botocore.config import Config  # noqa: PLC0415

    return Config(
        # Identifies this library in CloudTrail. boto3 rebuilds its own value per request: 5% of a batch's CPU time.
        user_agent=f"idempotent-receiver Boto3/{boto3_version}",
        connect_timeout=1,
        read_timeout=3,
        retries={"mode": "standard", "total_max_attempts": 2},
        max_pool_connections=32,
        tcp_keepalive=True,
        # Saves a quarter of a batch's CPU time. The store and `Transaction` check their own values.
        parameter_validation=False,
    )


_one_at_a_time = threading.Lock()


def answered_by_moto() -> bool:
    """Whether moto's `mock_aws` currently answers this process's requests. moto does not support statement batches."""
    stubber = getattr(sys.modules.get("moto.core.models"), "botocore_stubber", None)
    return getattr(stubber, "enabled", False)


def turn() -> AbstractContextManager[object]:
    """The context manager for a request: under moto, one request at a time. In moto, a failed transaction restores
    whole tables and so overwrites what other threads have written.
    """
    return _one_at_a_time if answered_by_moto() else nullcontext()


class _Thread(threading.local):
    """Whether this thread's last call contained raw lists."""

    asks_raw = False


_thread = _Thread()


class RawList(list[Any]):
    """A list in a request that a client sends unchanged."""

    def json(self) -> bytes:
        """The list as JSON for the request."""
        raise NotImplementedError


class RawStatements(RawList):
    """One request's statements, built only from JSON types."""

    def json(self) -> bytes:
        """The list as JSON for the request."""
        return _json(self)


class RawActions(RawList):
    """One transaction's actions, with their JSON, which the caller has already encoded."""

    def __init__(self, actions: "Iterable[TransactWriteItemTypeDef]", text: bytes) -> None:
        super().__init__(actions)
        self._text = text

    def json(self) -> bytes:
        """The list as JSON for the request."""
        return self._text


def accept_raw(client: "DynamoDBClient") -> "DynamoDBClient":
    """The client, changed to send raw lists as they are and everything else as before.

    A client with a protocol other than JSON serialises raw lists itself, as does a user's client-like object that has
    no events. To both, raw lists are ordinary lists.

    `before-call`, which boto3 documents for this purpose, puts the lists into the body. `before-parameter-build` sets
    them aside, after everything that inspects parameters (such as botocore's Stubber) has seen them whole. boto3's
    guide does not list that event; without it, the lists are serialised like any others.

    Likewise, `before-parse` returns the responses to raw statements unparsed: botocore would visit each of them, which
    takes a tenth of a batch's CPU time.

    Source: https://docs.aws.amazon.com/boto3/latest/guide/events.html
    """
    try:
        events, protocol = client.meta.events, _protocol(client.meta.service_model)
    except AttributeError:
        return client
    if protocol == "json":
        for event, handler in _HANDLERS.items():
            events.register(event, handler, unique_id=f"{_SET_ASIDE}-{event}")
    return client


def _protocol(model: Any) -> object:
    """The protocol that botocore chose; in older versions, the only one."""
    return getattr(model, "resolved_protocol", None) or model.metadata.get("protocol")


def _set_aside(params: dict[str, Any], context: dict[str, Any], **event: object) -> None:
    for name, value in params.items():
        if isinstance(value, RawList):
            context[_SET_ASIDE] = dict(params)
            params[name] = value[:1]  # botocore validates and serialises this; it refuses an empty list


def _put_back(params: dict[str, Any], context: dict[str, Any], **event: object) -> None:
    given = context.pop(_SET_ASIDE, None)
    _thread.asks_raw = given is not None
    if given is not None:
        members = [_json(name) + b":" + _of(value) for name, value in given.items()]
        params["body"] = b"{" + b",".join(members) + b"}"


def _take_answers(response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **event: object) -> None:
    # The event does not say which call it belongs to, but this handler runs on that call's thread.
    if not _thread.asks_raw or response_dict["status_code"] != HTTPStatus.OK:
        return
    from pydantic_core import from_json  # noqa: PLC0415  # as in `_json`

    try:
        answer = from_json(response_dict["body"])
    except ValueError:
        return  # botocore reports it
    if isinstance(answer, dict) and isinstance(answer.get("Responses"), list):
        customized_response_dict["Responses"] = answer["Responses"]
        response_dict["body"] = b"{}"


_HANDLERS: dict[str, Callable[..., None]] = {
    "before-parameter-build.dynamodb.BatchExecuteStatement": _set_aside,
    "before-parameter-build.dynamodb.TransactWriteItems": _set_aside,
    "before-call.dynamodb.BatchExecuteStatement": _put_back,
    "before-call.dynamodb.TransactWriteItems": _put_back,
    "before-parse.dynamodb.BatchExecuteStatement": _take_answers,
}


def _of(value: Any) -> bytes:
    return value.json() if isinstance(value, RawList) else _json(value)


def _json(value: Any) -> bytes:
    # Four times as fast as `json`. Imported here because a store may be set up long before its first request.
    from pydantic_core import to_json  # noqa: PLC0415

    return to_json(value)
