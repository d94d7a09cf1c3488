"""Requests that bypass botocore's validation, serialisation and parsing of shapes, for DynamoDB and SQS. botocore still
signs, sends and retries them, and calls every event handler and instrumentation.

botocore would visit every value in a request and its response only to find that it is a string. That would take a fifth
of a batch request's CPU time, more than half of a transaction's, and a third of a receive's.
"""

import threading
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from botocore.config import Config

ClientT = TypeVar("ClientT")

_SET_ASIDE = "idempotent-receiver-raw"

_UNPARSED = {
    "dynamodb.BatchExecuteStatement": ("Responses",),
    "dynamodb.TransactWriteItems": (),
    "sqs.ReceiveMessage": ("Messages",),
    "sqs.DeleteMessageBatch": ("Successful", "Failed"),
    "sqs.ChangeMessageVisibilityBatch": ("Successful", "Failed"),
}
"""The operations that may have raw lists, each with the lists in its response that are then returned unparsed."""


class RawList(list[Any]):
    """A list in a request that is sent as it is, and whose response's lists are returned as they came. It holds only
    JSON types, unless its JSON is given as `text`.
    """

    def __init__(self, items: Iterable[Any], text: bytes | None = None) -> None:
        super().__init__(items)
        self._text = text

    def json(self) -> bytes:
        """The list as JSON for the request."""
        return _json(self) if self._text is None else self._text


def raw_config(**more: Any) -> "Config":
    """The configuration for a client whose requests need neither validation nor a new user agent each."""
    from boto3 import __version__ as boto3_version  # noqa: PLC0415  # a user who passes a client does not need it
    from botocore.config import Config  # noqa: PLC0415

    return Config(
        # Identifies this library in CloudTrail. boto3 rebuilds its own value per request: 5% of a batch's CPU time.
        user_agent=f"idempotent-receiver Boto3/{boto3_version}",
        tcp_keepalive=True,
        # Saves a quarter of a batch's CPU time. The library checks its own values.
        parameter_validation=False,
        **more,
    )


class _Thread(threading.local):
    """Whether this thread's last call contained raw lists."""

    asks_raw = False


_thread = _Thread()


def accept_raw(client: ClientT) -> ClientT:
    """The client, changed to send raw lists as they are and everything else as before.

    A client with a protocol other than JSON serialises raw lists itself, as does a user's client-like object that has
    no events. To both, raw lists are ordinary lists.

    `before-call`, which boto3 documents for this purpose, puts the lists into the body. `before-parameter-build` sets
    them aside, after everything that inspects parameters (such as botocore's Stubber) has seen them whole. boto3's
    guide does not list that event; without it, the lists are serialised like any others.

    Likewise, `before-parse` takes lists from a response unparsed. All that is not success is left to botocore.

    Source: https://docs.aws.amazon.com/boto3/latest/guide/events.html
    """
    try:
        meta: Any = client.meta  # type: ignore[attr-defined]
        events, protocol = meta.events, _protocol(meta.service_model)
    except AttributeError:
        return client
    if protocol == "json":
        for operation in _UNPARSED:
            for event, handler in _HANDLERS.items():
                events.register(f"{event}.{operation}", handler, unique_id=f"{_SET_ASIDE}-{event}.{operation}")
    return client


def _protocol(model: Any) -> object:
    """The protocol that botocore chose; in older versions, the only one."""
    return getattr(model, "resolved_protocol", None) or model.metadata.get("protocol")


def _set_aside(params: dict[str, Any], context: dict[str, Any], **event: object) -> None:
    for name, value in params.items():
        if isinstance(value, RawList):
            context.setdefault(_SET_ASIDE, dict(params))
            params[name] = value[:1]  # botocore validates and serialises this; it refuses an empty list


def _put_back(params: dict[str, Any], context: dict[str, Any], **event: object) -> None:
    given = context.pop(_SET_ASIDE, None)
    _thread.asks_raw = given is not None
    if given is not None:
        members = [_json(name) + b":" + _of(value) for name, value in given.items()]
        params["body"] = b"{" + b",".join(members) + b"}"


def _take_answers(
    response_dict: dict[str, Any], customized_response_dict: dict[str, Any], event_name: str, **event: object
) -> None:
    # The event does not say which call it belongs to, but this handler runs on that call's thread.
    if not _thread.asks_raw or response_dict["status_code"] != HTTPStatus.OK:
        return
    from pydantic_core import from_json  # noqa: PLC0415  # as in `_json`

    try:
        answer = from_json(response_dict["body"])
    except ValueError:
        return  # botocore reports it
    names = _UNPARSED[event_name.partition(".")[2]]
    if isinstance(answer, dict) and (
        lists := {name: answer[name] for name in names if isinstance(answer.get(name), list)}
    ):
        customized_response_dict.update(lists)
        response_dict["body"] = b"{}"


_HANDLERS: dict[str, Callable[..., None]] = {
    "before-parameter-build": _set_aside,
    "before-call": _put_back,
    "before-parse": _take_answers,
}


def _of(value: Any) -> bytes:
    return value.json() if isinstance(value, RawList) else _json(value)


def _json(value: Any) -> bytes:
    # Four times as fast as `json`. Imported here because a store may be set up long before its first request.
    from pydantic_core import to_json  # noqa: PLC0415

    return to_json(value)
