"""A consumer's description for operators' commands, from its decorated handler or a JSON document.

`receiver describe` prints the document; `--consumer` and a stack's output supply it.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from typing import Any, cast

from idempotent_receiver import options
from idempotent_receiver.handler.callees import Callees
from idempotent_receiver.handler.lending import LendingStore
from idempotent_receiver.operations.account import UsageError
from idempotent_receiver.payload import EVERYTHING, Payload, compiled, json_of
from idempotent_receiver.protocol.namespaces import checked
from idempotent_receiver.sqs import keys
from idempotent_receiver.sqs.consumer import Consumer
from idempotent_receiver.sqs.options import DEFAULT_AGE_SECONDS

OUTPUT = "ConsumerDescription"
"""The stack output that holds the document."""

DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class InCode:
    """A callable in the user's code; a document holds only its name."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """A consumer's description. None means unknown; in `envelope`, `namespace` and `max_attempts`, it means not used.
    `max_age_seconds` matters with `max_attempts` only.
    """

    key: keys.KeyStrategy | InCode | None = None
    payload: Payload | InCode | None = None
    envelope: str | keys.OpenEnvelope | InCode | None = None
    namespace: str | None = None
    retention_days: float | None = None
    effects: str | None = None
    max_attempts: int | None = None
    max_age_seconds: int = DEFAULT_AGE_SECONDS
    callees: Callees | None = field(default=None, compare=False)
    """The functions that records may call, if the handler was imported. No document has them."""
    store: LendingStore | None = field(default=None, compare=False)
    """The imported handler's store, if its records are in a relational database. No document has it."""

    @classmethod
    def of(cls, consumer: Consumer) -> "Description":
        """The description of a decorated handler."""
        made_with = consumer.options
        store = made_with.store
        return cls(
            key=made_with.key,
            payload=EVERYTHING if made_with.payload is None else made_with.payload,
            envelope=made_with.envelope,
            namespace=store.namespace,
            retention_days=made_with.retention_seconds / DAY_SECONDS,
            effects=made_with.effects,
            max_attempts=made_with.max_attempts,
            max_age_seconds=made_with.max_age_seconds,
            callees=made_with.callees,
            store=store if isinstance(store, LendingStore) else None,
        )

    @property
    def retention_seconds(self) -> int | None:
        """Record retention in seconds."""
        return None if self.retention_days is None else round(self.retention_days * DAY_SECONDS)

    def document(self) -> dict[str, Any]:
        """The JSON document. A callable appears in it by name only."""
        days = self.retention_days
        return {
            "key": None if self.key is None else _key_document(self.key),
            "payload": None if self.payload is None else _payload_document(self.payload),
            "envelope": self.envelope if isinstance(self.envelope, str | None) else _named(self.envelope),
            "namespace": self.namespace,
            "retention_days": int(days) if days is not None and days % 1 == 0 else days,
            "effects": self.effects,
            "max_attempts": self.max_attempts,
            "max_age_seconds": self.max_age_seconds,
        }


class UnknownValue(ValueError):
    """A field or a value that this version does not know. A newer version may have written it."""


def description_in(text: str) -> Description:
    """The description in a document. Raises a ValueError that names an invalid field and its valid values."""
    try:
        found = json_of(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004  # the text is wrong, not an argument's type
    if unknown := sorted(found.keys() - _READ.keys()):
        raise UnknownValue(f"unknown field {', '.join(unknown)}: use {', '.join(_READ)}")
    said = Description(**{name: _read(name, value) for name, value in found.items() if value is not None})
    if said.namespace is None and said.key not in (None, keys.message_id):
        raise ValueError("namespace is missing: with this key strategy, give the store's namespace")
    return said


def stated(outputs: Mapping[str, str], stack: str | None) -> Description | None:
    """The description in a stack's outputs, if there is one. Raises UsageError if it cannot be read."""
    if OUTPUT not in outputs:
        return None
    try:
        return description_in(outputs[OUTPUT])
    except ValueError as error:
        newer = "upgrade `receiver` if a newer version wrote it, or " if isinstance(error, UnknownValue) else ""
        remedy = f"{newer}set it to what `receiver describe` prints, or give --consumer"
        raise UsageError(f"output {OUTPUT} of stack {stack}: {error}; {remedy}") from None


def differences(code: Description, stated: Description) -> dict[str, tuple[str, str]]:
    """The fields in which two descriptions differ, with both values as JSON. Compares only fields known in both."""
    ours, theirs = code.document(), stated.document()
    return {
        name: (json.dumps(ours[name]), json.dumps(theirs[name]))
        for name in ours
        if ours[name] != theirs[name]
        if name in ("envelope", "namespace") or None not in (ours[name], theirs[name])
    }


_PARTS = [each.name for each in fields(Payload)]


def _payload(said: object) -> Payload | InCode:
    match said:
        case {"callable": name, **others} if not others:
            return InCode(name)
        case dict() if not said.keys() - _PARTS:
            return Payload(**said)
    raise UnknownValue(f"{json.dumps(said)} is not a payload: use {{}} for the whole body, or {', '.join(_PARTS)}")


def _envelope(said: object) -> str | InCode:
    match said:
        case {"callable": str(name), **others} if not others:
            return InCode(name)
    compiled(cast(str, said), "envelope")  # it refuses anything else
    return cast(str, said)


_BY_NAME: Mapping[str, keys.KeyStrategy] = {"message_id": keys.message_id, "event_id": keys.event_id}
_MADE: Mapping[str, Callable[[Any], keys.KeyStrategy | InCode]] = {
    "message_attribute": keys.message_attribute,
    "body_field": keys.body_field,
    "payload_key": _payload,
    "callable": InCode,
}
"""Key strategies by name in the document: without an argument, and with one."""


def _key(said: object) -> keys.KeyStrategy | InCode:
    match said:
        case str() if said in _BY_NAME:
            return _BY_NAME[said]
        case dict() if len(said) == 1 and said.keys() <= _MADE.keys():
            ((name, argument),) = said.items()
            return _MADE[name](argument)
    known = [*map(json.dumps, _BY_NAME), *(f'{{"{name}": ...}}' for name in _MADE)]
    raise UnknownValue(f"{json.dumps(said)} is not a key strategy: use {', '.join(known)}")


def _key_document(key: keys.KeyStrategy | InCode) -> object:
    for name, strategy in _BY_NAME.items():
        if key is strategy:
            return name
    if isinstance(key, keys.Made):
        return {key.by: key.argument}
    return {"payload_key": _payload_document(key)} if type(key) is Payload else _named(key)


def _payload_document(payload: Payload | InCode) -> dict[str, Any]:
    if type(payload) is not Payload:
        return _named(payload)
    return {name: value if isinstance(value, str) else [*value] for name, value in asdict(payload).items() if value}


def _named(given: Any) -> dict[str, str]:
    if isinstance(given, InCode):
        return {"callable": given.name}
    named = given if hasattr(given, "__qualname__") else type(given)
    return {"callable": f"{named.__module__}:{named.__qualname__}"}


def _retention_days(said: Any) -> float:
    options.require_numbers(retention_days=said)
    if not said > 0:
        raise ValueError("it must be more than 0")
    return float(said)


def _passing(check: Callable[[Any], object]) -> Callable[[Any], Any]:
    """A reader that returns a value unchanged if it passes the check."""

    def read(said: Any) -> Any:
        check(said)
        return said

    return read


_READ: Mapping[str, Callable[[object], object]] = {
    "key": _key,
    "payload": _payload,
    "envelope": _envelope,
    "namespace": checked,
    "retention_days": _retention_days,
    "effects": _passing(options.require_effects),
    "max_attempts": _passing(partial(options.require_count, option="max_attempts")),
    "max_age_seconds": _passing(partial(options.require_count, option="max_age_seconds")),
}


def _read(name: str, value: object) -> Any:
    try:
        return _READ[name](value)
    except (TypeError, ValueError, OverflowError) as error:
        kind = UnknownValue if isinstance(error, UnknownValue) or name == "effects" else ValueError
        raise kind(f"{name}: {error}") from None
