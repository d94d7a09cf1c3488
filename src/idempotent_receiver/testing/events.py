"""Lambda's side of an invocation: an SQS event, and a context whose time runs out."""

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from idempotent_receiver import options
from idempotent_receiver.clock import Clock, SystemClock

ARN_FORMAT = "arn:aws:{}:us-east-1:123456789012:{}"


def sqs_event(
    *bodies: object,
    fifo: bool = False,
    receive_count: int = 1,
    ids: Sequence[str] | None = None,
    groups: str | Sequence[str] | None = None,
    queue: str = "queue",
    attributes: Mapping[str, str | Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """An event as Lambda delivers it to an SQS consumer, with one message per body.

    A str or bytes body is used as is; anything else is written as JSON: a dict, a pydantic model, a dataclass. A list
    is refused, because it could mean several bodies: pass `*bodies`, or the text of a JSON list. `ids` are the
    messageIds (default: `message-1`, `message-2`, ...). `fifo` makes the queue a FIFO queue, with all messages in the
    group `group-1` unless `groups` names one group for all, or one for each. `attributes` are the message attributes
    of every message: strings, or values as in SendMessage's `MessageAttributes`.

    Raises TypeError for a list and for bodies that cannot be written as JSON, and ValueError unless ids are unique and
    there is one id and one group per body.
    """
    if any(isinstance(body, list | tuple | Iterator) for body in bodies):
        raise TypeError(
            "sqs_event takes each body as a separate argument, not a list: sqs_event(*bodies). "
            "Pass a body that is a JSON list as its text: json.dumps([...])"
        )
    names = _one_each("ids", bodies, ids, [f"message-{number}" for number in range(1, len(bodies) + 1)])
    if len(set(names)) < len(names):
        raise ValueError(f"ids must be unique, as messageIds are: {list(names)}")
    given = [groups] * len(bodies) if isinstance(groups, str) else groups
    group_of = _one_each("groups", bodies, given, ["group-1" if fifo else None] * len(bodies))
    carried = {name: _received(value) for name, value in (attributes or {}).items()}
    arn = ARN_FORMAT.format("sqs", queue + (".fifo" if fifo and not queue.endswith(".fifo") else ""))
    same = {"messageAttributes": carried, "eventSource": "aws:sqs", "eventSourceARN": arn, "awsRegion": "us-east-1"}
    messages = zip(names, bodies, group_of, strict=True)
    return {"Records": [{**_message(id, body, receive_count, group), **deepcopy(same)} for id, body, group in messages]}


def _one_each(option: str, bodies: Sequence[object], given: Any, otherwise: Sequence[Any]) -> Sequence[Any]:
    if given is None:
        return otherwise
    if isinstance(given, str) or len(given) != len(bodies):
        raise ValueError(f"{option} must have one value per message, {len(bodies)} in all; it is {given!r}")
    return list(given)


def _received(attribute: str | Mapping[str, Any]) -> dict[str, Any]:
    """A message attribute in the form that events use."""
    if isinstance(attribute, str):
        return {"stringValue": attribute, "dataType": "String"}
    parts = {part[0].lower() + part[1:]: value for part, value in attribute.items()}
    return {part: b64encode(value).decode() if isinstance(value, bytes) else value for part, value in parts.items()}


def _message(id: str, body: object, receives: int, group: str | None) -> dict[str, Any]:
    attributes = {
        "ApproximateReceiveCount": str(receives),
        "SentTimestamp": "1800000000000",
        "ApproximateFirstReceiveTimestamp": "1800000000001",
    }
    if group is not None:
        attributes["MessageGroupId"] = group
    return {"messageId": id, "receiptHandle": f"handle-{id}", "body": body_of(body), "attributes": attributes}


def body_of(body: object) -> str:
    """A message body as text. Raises TypeError if it cannot be written as JSON."""
    if isinstance(body, str):
        return body
    # Imported here because the in-memory store does not need it.
    from pydantic_core import PydanticSerializationError, to_json  # noqa: PLC0415

    try:
        return body.decode() if isinstance(body, bytes) else to_json(body, inf_nan_mode="constants").decode()
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise TypeError(
            f"a message body must be a str, or a value that can be written as JSON, such as a dict or a pydantic "
            f"model; {body!r:.200} is neither: {error}"
        ) from None


@dataclass
class LambdaContext:
    """Lambda's context for an invocation that times out `seconds` after its creation, according to `clock`."""

    seconds: float
    clock: Clock
    aws_request_id: str = "request-1"
    function_name: str = "consumer"
    function_version: str = "$LATEST"
    memory_limit_in_mb: str = "128"
    invoked_function_arn: str = ARN_FORMAT.format("lambda", "function:consumer")

    def __post_init__(self) -> None:
        self.ends = self.clock.monotonic_seconds() + self.seconds

    def get_remaining_time_in_millis(self) -> int:
        """The time left, in milliseconds."""
        return int((self.ends - self.clock.monotonic_seconds()) * 1000)


def lambda_context(seconds: float = 30.0) -> LambdaContext:
    """A Lambda context that times out in `seconds`. Raises ValueError unless `seconds` is positive."""
    options.require_numbers(seconds=seconds)
    if not seconds:
        raise ValueError("seconds must be more than 0: an invocation with no time left starts nothing")
    return LambdaContext(seconds, SystemClock())
