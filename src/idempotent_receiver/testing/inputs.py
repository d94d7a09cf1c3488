"""Checks and converts the arguments of `explore`. Errors name the remedy."""

import sys
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import ModuleType

from idempotent_receiver.sqs.consumer import Consumer
from idempotent_receiver.sqs.handlers import consumer_inside, remedy
from idempotent_receiver.testing.events import body_of, sqs_event
from idempotent_receiver.testing.memory import MemoryStore, Table, TableItem
from idempotent_receiver.testing.setup import RESTORABLE


def consumer_in(handler: object) -> Consumer:
    """The consumer in `handler`, inside any other decorators. Raises TypeError if there is no consumer."""
    if (found := consumer_inside(handler)) is not None:
        return found
    name = getattr(handler, "__qualname__", repr(handler))
    imported: list[object] = [*sys.modules.values()]  # and whatever else has been put there
    modules = [each for each in imported if isinstance(each, ModuleType)]
    holding = [each for each in modules if any(one is handler for one in [*vars(each).values()])]
    raise TypeError(
        f"{name} is not decorated with @sqs_consumer, which explore needs: {remedy(handler, holding)}. A function "
        "decorated with @http_endpoint or @idempotent cannot be explored: call it twice with a MemoryStore"
    )


def records(messages: object) -> Sequence[TableItem]:
    """The messages as Lambda delivers them. Raises TypeError or ValueError if they cannot be delivered."""
    if isinstance(messages, Mapping) and isinstance(messages.get("Records"), list):
        records: Sequence[TableItem] = messages["Records"]
    else:
        several = isinstance(messages, Sequence | Iterator) and not isinstance(messages, str | bytes)
        bodies = typing.cast("Iterable[object]", messages) if several else [messages]
        records = sqs_event(*map(body_of, bodies))["Records"]
    if not records:
        raise ValueError("explore needs at least one message: explore(handler, [{...}]), or an event from sqs_event")
    lacking = [
        name
        for name in ("messageId", "body", "attributes", "eventSourceARN", "messageAttributes")
        if any(name not in record for record in records)
    ]
    if lacking:
        raise ValueError(f"the event's messages lack {', '.join(lacking)}: create the event with sqs_event(...)")
    ids = [record["messageId"] for record in records]
    if len(set(ids)) < len(ids):
        raise ValueError(f"messages must have distinct messageIds; they are {ids}")
    return records


def table(one: object) -> Table:
    """The given table, or a new one with the given key. Raises TypeError for anything else."""
    if isinstance(one, Table):
        return one
    if isinstance(one, str) or (isinstance(one, tuple) and one and all(isinstance(name, str) for name in one)):
        return Table(one)
    raise TypeError(f"tables must map each name to a key, {{'orders': 'order_id'}}, or to a Table; it has {one!r}")


def require_between(value: object, option: str, least: int, most: int) -> None:
    """Raise ValueError unless the value is a whole number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{option} must be a whole number from {least} to {most}; it is {value!r}")


def require_mapping(value: object, option: str) -> None:
    """Raise TypeError unless the value is a mapping or None."""
    if value is not None and not isinstance(value, Mapping):
        raise TypeError(f"{option} must be a dict keyed by name, {{'orders': ...}}; it is {value!r:.100}")


def require_store_class(store: object) -> None:
    """Raise TypeError unless `store` can create a `MemoryStore`."""
    if not callable(store) or (isinstance(store, type) and not issubclass(store, MemoryStore)):
        raise TypeError(f"store must be MemoryStore or a subclass; it is {store!r:.100}")


def require_containers(state: Mapping[str, object], tables: Collection[str]) -> None:
    """Raise TypeError for a value that cannot be restored, and ValueError for the name of a table."""
    for name, one in state.items():
        if name in tables:
            raise ValueError(f"{name} is the name of a table and of a state: give one of them another name")
        own = isinstance(one, tuple) and len(one) == 2 and all(map(callable, one))
        if not own and not isinstance(one, RESTORABLE):
            kinds = (
                "a dict, list or set, an @idempotent function's MemoryStore, an object's vars(...), or a pair of "
                "functions, (reset, snapshot)"
            )
            raise TypeError(f"state must hold values that can be restored: {kinds}; {name} is {one!r:.100}")
