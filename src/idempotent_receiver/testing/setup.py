"""The parts that all runs of a consumer share: messages, and initial tables and containers."""

import itertools
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, MutableSet, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from idempotent_receiver.errors import UnusableKey
from idempotent_receiver.protocol.outbox import STAMP
from idempotent_receiver.protocol.record import record_id, usable
from idempotent_receiver.sqs.consumer import Consumer
from idempotent_receiver.sqs.dead_letter import Stamp, stamp_of
from idempotent_receiver.sqs.message import messages_of
from idempotent_receiver.testing.memory import MemoryStore, Table, TableItem

Container = MutableMapping[Any, Any] | MutableSequence[Any] | MutableSet[Any] | MemoryStore
RESTORABLE = (MutableMapping, MutableSequence, MutableSet, MemoryStore)
"""Types whose values can be restored."""


@dataclass(kw_only=True)
class Setup:
    """A handler, its consumer, and everything that runs need. `workers` is the number of workers that receive the
    messages at the same time, `seconds` the Lambda function's timeout.
    """

    handler: Callable[..., Any]
    consumer: Consumer
    records: Sequence[TableItem]
    tables: Mapping[str, Table] | None
    state: Mapping[str, Container]
    workers: int
    seconds: float
    make_store: Callable[..., MemoryStore]
    originals: dict[str, str] = field(default_factory=dict)
    """Original messageIds, by the redriven message's messageId."""

    def __post_init__(self) -> None:
        self._items = {name: deepcopy(table.items) for name, table in (self.tables or {}).items()}
        self._containers = {
            name: one.items if isinstance(one, MemoryStore) else one for name, one in self.state.items()
        }
        self._contents = {name: _copied(name, one) for name, one in self._containers.items()}
        self.namespace: str | None = self.consumer.options.store.namespace
        self.record_ids = {record["messageId"]: self._record_id(record) for record in self.records}
        self._redriven = {record["messageId"]: self._copy(record) for record in self.records}

    def new_store(self) -> MemoryStore:
        """A new run's store, with all tables and containers in their initial state."""
        self.restore()
        return self.make_store(self.namespace, None if self.tables is None else dict(self.tables))

    def restore(self) -> None:
        """Restore everything that a run has changed."""
        for name, items in self._items.items():
            assert self.tables is not None, "items come from tables"
            _refill(self.tables[name].items, deepcopy(items))
        for name, content in self._contents.items():
            _refill(self._containers[name], deepcopy(content))

    def snapshot(self) -> dict[str, Any]:
        """The state in comparable form; for a store, each record's status and result but not its owner."""
        return {
            name: {id: (item["status"], item.get("data")) for id, item in one.items.items()}
            if isinstance(one, MemoryStore)
            else deepcopy(one)
            for name, one in self.state.items()
        }

    @property
    def decorated(self) -> bool:
        """Whether other decorators surround the consumer."""
        return self.handler is not self.consumer.lambda_handler

    def dealt(self) -> list[Sequence[TableItem]]:
        """The messages divided among the workers, with each FIFO group kept together."""
        groups: dict[str, list[TableItem]] = {}
        for record in self.records:
            fifo = record["eventSourceARN"].endswith(".fifo")
            groups.setdefault(record["attributes"].get("MessageGroupId") if fifo else record["messageId"], []).append(
                record
            )
        parts: list[list[TableItem]] = [[] for _ in range(self.workers)]
        for part, group in zip(itertools.cycle(parts), groups.values(), strict=False):
            part.extend(group)
        return [part for part in parts if part]

    def redriven(self, record: TableItem) -> TableItem:
        """The message as redriven, with a new messageId, and its key in the stamp."""
        return self._redriven.get(record["messageId"], record)

    def key_of(self, id: str) -> str:
        """The key in a record id, for display."""
        return id if self.namespace is None else id.removeprefix(f"{self.namespace}#")

    def _copy(self, record: TableItem) -> TableItem:
        id = record["messageId"]
        key = self.key_of(self.record_ids[id] or id)
        found = stamp_of(record["messageAttributes"])
        stamp = Stamp(key=key, original_id=id if found is None else found.original_id)
        new_id = f"{id}-redriven"
        self.originals[new_id] = id
        attribute = {"stringValue": stamp.to_json(), "dataType": "String"}
        return {
            **record,
            "messageId": new_id,
            "messageAttributes": {**record["messageAttributes"], STAMP: attribute},
        }

    def _record_id(self, record: TableItem) -> str | None:
        """The id of the message's record; None if the message has no usable key."""
        options = self.consumer.options
        copies = [received(record, count) for count in (1, 2)]
        messages = messages_of({"Records": copies}, options.open_envelope)
        try:
            id_of = partial(record_id, self.namespace)
            ids = {id_of(usable(options.key(one), id_of)) for one in messages}
        except UnusableKey:
            return None
        if len(ids) > 1:
            raise AssertionError(
                f"the key of {record['messageId']} changes with each delivery, so no duplicate is ever recognised: "
                f"{', '.join(sorted(ids))}"
            )
        return ids.pop()


def received(record: TableItem, count: int) -> TableItem:
    """The message on its `count`th receive. SQS gives it a new receipt handle each time."""
    attributes = {**record["attributes"], "ApproximateReceiveCount": str(count)}
    return {**record, "attributes": attributes, "receiptHandle": f"handle-{record['messageId']}-{count}"}


def _copied(name: str, container: Any) -> Any:
    """A copy of the container. Raises TypeError if it cannot be copied."""
    try:
        return deepcopy(container)
    except TypeError as error:
        raise TypeError(
            f"state {name} cannot be restored, because something in it cannot be copied ({error}): pass a dict, list "
            "or set that holds only the handler's data"
        ) from error


def _refill(container: Any, content: Any) -> None:
    container.clear()
    if isinstance(container, MutableMapping):
        container.update(content)
    for one in () if isinstance(container, MutableMapping) else content:
        container.append(one) if isinstance(container, MutableSequence) else container.add(one)
