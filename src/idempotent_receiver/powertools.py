"""Keys in the format of AWS Lambda Powertools' idempotency utility, to find the records that it wrote.

A record's id is `{prefix}#{hash}`. The prefix is the store's namespace: Powertools' `key_prefix` or, by default,
`{Lambda function's name}.{module}.{decorated function's qualified name}`. This module computes the hash.

Source: aws_lambda_powertools.utilities.idempotency.persistence.base, version 3.37.
"""

import dataclasses
import hashlib
import json
from collections.abc import Callable
from typing import Any

import jmespath
from jmespath.exceptions import JMESPathError

from idempotent_receiver.errors import UnusableKey
from idempotent_receiver.payload import compiled
from idempotent_receiver.sqs.message import Message


def powertools_key(event_key_jmespath: str | None = None, *, hash_function: str = "md5") -> Callable[..., str]:
    """A key strategy, for every entry point, that makes the same keys as Powertools with these `IdempotencyConfig`
    options.

    An SQS message is hashed as the record that `process_partial_response` passes to a function. For a function, only
    the first argument counts: in Powertools, the event or the `data_keyword_argument`.

        store = DynamoDBStore("idempotency", namespace="payments.app.handler.charge")
        @idempotent(store, key=powertools_key("order_id"))

    Raises ValueError at set-up for an invalid JMESPath expression or hash function.
    """
    if event_key_jmespath is not None:
        compiled(event_key_jmespath, "powertools_key")
    if hash_function not in hashlib.algorithms_available:
        raise ValueError(f"hash_function must be one of hashlib's; it is {hash_function!r}")

    def key(*arguments: Any, **named: Any) -> str:
        data = _data_of(next(iter([*arguments, *named.values()]), None))
        if event_key_jmespath is not None:
            data = _selected(event_key_jmespath, data)
        if _is_missing(data):
            raise UnusableKey(f"no data for Powertools' key with event_key_jmespath={event_key_jmespath!r}")
        try:
            text = json.dumps(data, sort_keys=True)
        except (TypeError, ValueError, RecursionError):
            raise UnusableKey("Powertools' key needs JSON data, but the data is not JSON") from None
        return hashlib.new(hash_function, text.encode(), usedforsecurity=False).hexdigest()

    return key


def _data_of(given: Any) -> Any:
    if isinstance(given, Message):
        # As in the event.
        return {
            "messageId": given.id,
            "receiptHandle": given.receipt_handle,
            "body": given.raw_body,
            "attributes": given.attributes,
            "messageAttributes": given.message_attributes,
            "eventSourceARN": given.queue_arn,
            **given.rest,
        }
    if dataclasses.is_dataclass(given) and not isinstance(given, type):
        return dataclasses.asdict(given)
    if callable(getattr(given, "model_dump", None)):
        return given.model_dump(mode="json")
    return getattr(given, "raw_event", given)


def _selected(expression: str, data: Any) -> Any:
    # Powertools' own functions, such as powertools_json(body). Imported here because few users need them.
    from aws_lambda_powertools.utilities.jmespath_utils import PowertoolsFunctions  # noqa: PLC0415

    try:
        return jmespath.search(expression, data, options=jmespath.Options(custom_functions=PowertoolsFunctions()))
    except (JMESPathError, ValueError, TypeError):
        raise UnusableKey(f"{expression!r} cannot be evaluated on the data") from None


def _is_missing(data: Any) -> bool:
    """Whether Powertools would find no data: an empty value, or only None values. A number is data, even zero."""
    if isinstance(data, tuple | list | dict):
        return all(each is None for each in (data.values() if isinstance(data, dict) else data))
    return not data and not isinstance(data, int | float)
