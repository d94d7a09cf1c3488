"""Keys in the format of AWS Lambda Powertools' idempotency utility, to find the records that it wrote.

A record's id is `{prefix}#{hash}`. The prefix is the store's namespace: Powertools' `key_prefix` or, by default,
`{Lambda function's name}.{module}.{decorated function's qualified name}`. This module computes the hash.

Source: aws_lambda_powertools.utilities.idempotency.persistence.base, version 3.37.
"""

import dataclasses
import datetime as dt
import hashlib
import json
from collections.abc import Callable
from enum import Enum
from functools import cache, partial
from pathlib import PurePath
from typing import Any
from uuid import UUID

import jmespath
from jmespath.exceptions import JMESPathError

from idempotent_receiver.errors import MissingKey, UnusableKey, blames_input
from idempotent_receiver.one_argument import OneArgumentKey
from idempotent_receiver.options import key_for
from idempotent_receiver.payload import compiled, require_taken
from idempotent_receiver.sqs.message import Message


@key_for()
def powertools_key(
    event_key_jmespath: str | None = None, *, hash_function: str = "md5", data_keyword_argument: str | None = None
) -> Callable[..., str]:
    """A key strategy, for every entry point, that makes the same keys as Powertools with these `IdempotencyConfig`
    options.

    An SQS message is hashed as the record that `process_partial_response` passes to a function, and a request as its
    event. For a function, one argument counts, however the caller passes it: `data_keyword_argument`, as in
    `idempotent_function`, or the only one. `self`, `cls`, a Lambda context and a `Transaction` are not counted; a
    function with several others is refused at set-up.

        store = DynamoDBStore("idempotency", namespace="payments.app.handler.charge")
        @idempotent(store, key=powertools_key("order_id", data_keyword_argument="order"))

    The data may be what Powertools takes: JSON, dataclasses, models, Decimal, UUID, dates, enums and paths. The key
    raises MissingKey where Powertools would run without idempotency: if there is no data, or the expression finds none.
    Raises ValueError at set-up for an invalid JMESPath expression or hash function.
    """
    if event_key_jmespath is not None:
        compiled(event_key_jmespath, "powertools_key", functions=None)  # Powertools has more
    if hash_function not in hashlib.algorithms_available:
        raise ValueError(f"hash_function must be one of hashlib's; it is {hash_function!r}")
    make = partial(_key_of, expression=event_key_jmespath, hash_function=hash_function)
    return OneArgumentKey(make, data_keyword_argument)


def _key_of(given: Any, *, expression: str | None, hash_function: str) -> str:
    """The key of an event, a message or an argument. Raises UnusableKey."""
    try:
        data = _data_of(given)
        if expression is not None:
            data = _selected(expression, data)
        if _is_missing(data):
            raise MissingKey(  # noqa: TRY301  # it says itself why
                f"no data for Powertools' key with event_key_jmespath={expression!r}"
            )
        text = json.dumps(data, sort_keys=True, default=_encoded)
    except UnusableKey:
        raise
    except Exception as error:
        if not blames_input(error):
            raise
        raise UnusableKey("Powertools' key needs data that Powertools can encode as JSON") from None
    return hashlib.new(hash_function, text.encode(), usedforsecurity=False).hexdigest()


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
    # Powertools' own event classes, or a model of pydantic 1.
    if callable(getattr(given, "dict", None)):
        return given.dict()
    return getattr(given, "raw_event", given)


def _encoded(value: Any) -> Any:
    """A value within the data, as Powertools' encoder for keys has it."""
    # Imported here because plain data does not need it.
    from aws_lambda_powertools.shared.json_encoder import Encoder  # noqa: PLC0415

    try:
        return Encoder().default(value)  # type: ignore[no-untyped-call]  # it has no annotations
    except TypeError:
        if isinstance(value, Enum):
            return value.value
        if isinstance(value, dt.date | dt.time):
            return value.isoformat()
        if isinstance(value, UUID | PurePath):
            return str(value)
        raise


def _selected(expression: str, data: Any) -> Any:
    options = _with_functions()
    try:
        found = jmespath.search(expression, data, options)
    except (JMESPathError, ValueError, TypeError):
        raise UnusableKey(f"{expression!r} cannot be evaluated on the data") from None
    if not _is_missing(found):
        require_taken(expression, found, options)
    return found


@cache
def _with_functions() -> jmespath.Options:
    """Powertools' own functions, such as powertools_json(body)."""
    # Imported here because few users need them.
    from aws_lambda_powertools.utilities.jmespath_utils import PowertoolsFunctions  # noqa: PLC0415

    return jmespath.Options(custom_functions=PowertoolsFunctions())


def _is_missing(data: Any) -> bool:
    """Whether Powertools would find no data: an empty value, or only None values. A number is data, even zero."""
    if isinstance(data, tuple | list | dict):
        return all(each is None for each in (data.values() if isinstance(data, dict) else data))
    return not data and not isinstance(data, int | float)
