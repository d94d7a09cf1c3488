"""The parts that all runs of a consumer share: messages, and initial tables and containers."""

import itertools
from collections.abc import Callable, Collection, Mapping, MutableMapping, MutableSequence, MutableSet, Sequence
from collections.abc import Set as AbstractSet
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from idempotent_receiver.errors import blames_input
from idempotent_receiver.protocol.record import idempotency_key, record_id
from idempotent_receiver.sqs.consumer import Consumer
from idempotent_receiver.sqs.dead_letter import Stamp, stamp_of
from idempotent_receiver.sqs.message import messages_of
from idempotent_receiver.sqs.options import ConsumerOptions
from idempotent_receiver.sqs.work import with_key
from idempotent_receiver.testing.memory import MemoryStore, Table, TableItem
from idempotent_receiver.transaction.outbox import STAMP

OwnState = tuple[Callable[[], object], Callable[[], object]]
"""Functions that reset a user's own state, such as a database, and that return its rows."""

Container = MutableMapping[Any, Any] | MutableSequence[Any] | MutableSet[Any] | MemoryStore | OwnState
RESTORABLE = (MutableMapping, MutableSequence, MutableSet, MemoryStore)
"""Types whose values can be restored."""


@dataclass(kw_only=True)
class Setup:
    """A handler, its consumer, and everything that runs need. `workers` is the number of workers that receive the
    messages at the same time, `seconds` the Lambda function's timeout. With `at_most_once`, a message may fail for good
    although it is completed in the fault-free run.
    """

    handler: Callable[..., Any]
    consumer: Consumer
    records: Sequence[TableItem]
    tables: Mapping[str, Table] | None
    state: Mapping[str, Container]
    workers: int
    seconds: float
    make_store: Callable[..., MemoryStore]
    at_most_once: bool = False
    originals: dict[str, str] = field(default_factory=dict)
    """Original messageIds, by the redriven message's messageId."""

    def __post_init__(self) -> None:
        self._items = {name: deepcopy(table.items) for name, table in (self.tables or {}).items()}
        self._containers = {
            name: one.items if isinstance(one, MemoryStore) else one
            for name, one in self.state.items()
            if not isinstance(one, tuple)
        }
        self.own: Mapping[str, OwnState] = {name: one for name, one in self.state.items() if isinstance(one, tuple)}
        self._contents = {name: _copied(name, one) for name, one in self._containers.items()}
        self.namespace: str | None = self.consumer.options.store.namespace
        self.record_ids = {record["messageId"]: record_id_of(record, self.consumer.options) for record in self.records}
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
        for reset, _ in self.own.values():
            reset()

    def rows(self) -> dict[str, list[Any]]:
        """The user's own state, as rows that are compared like a table's items."""
        return {name: _rows(name, rows_now()) for name, (_, rows_now) in self.own.items()}

    def snapshot(self) -> dict[str, Any]:
        """The state in comparable form; for a store, each record's status and result but not its owner."""
        return {
            name: {id: (item["status"], item.get("data")) for id, item in one.items.items()}
            if isinstance(one, MemoryStore)
            else deepcopy(one)
            for name, one in self.state.items()
            if name not in self.own
        }

    @property
    def decorated(self) -> bool:
        """Whether other decorators surround the consumer."""
        return self.handler is not self.consumer.lambda_handler

    def groups(self) -> Collection[list[TableItem]]:
        """The messages whose order SQS keeps, together: those of a FIFO group, or each by itself."""
        groups: dict[str, list[TableItem]] = {}
        for record in self.records:
            fifo = record["eventSourceARN"].endswith(".fifo")
            groups.setdefault(record["attributes"].get("MessageGroupId") if fifo else record["messageId"], []).append(
                record
            )
        return groups.values()

    def dealt(self) -> list[Sequence[TableItem]]:
        """The messages divided among the workers, with each FIFO group kept together."""
        parts: list[list[TableItem]] = [[] for _ in range(self.workers)]
        for part, group in zip(itertools.cycle(parts), self.groups(), strict=False):
            part.extend(group)
        return [part for part in parts if part]

    def redriven(self, record: TableItem) -> TableItem:
        """The message as redriven, with a new messageId, and its key in the stamp."""
        return self._redriven.get(record["messageId"], record)

    def keeps_its_key(self, id: str) -> bool:
        """Whether a message has the same record when it is redriven."""
        return record_id_of(self._redriven[id], self.consumer.options) == self.record_ids[id]

    def key_of(self, id: str) -> str:
        """The key in a record id, for display."""
        return id if self.namespace is None else id.removeprefix(f"{self.namespace}#")

    def named_by(self, key: object) -> str | None:
        """The key of the message whose key this is, or whose idempotency key is in it."""
        for id in self.record_ids.values():
            if id is not None and (key == self.key_of(id) or idempotency_key(id) in str(key)):
                return self.key_of(id)
        return None

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


def record_id_of(record: TableItem, options: ConsumerOptions) -> str | None:
    """The id of the message's record; None if the message has no usable key."""
    event = {"Records": [received(record, count) for count in (1, 2)]}
    try:
        messages = [with_key(one, options) for one in messages_of(event)]
    except Exception as error:
        if not blames_input(error):
            raise
        return None
    ids = {record_id(options.store.namespace, key) for _, key, _ in messages}
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


def _rows(name: str, snapshot: object) -> list[Any]:
    if isinstance(snapshot, Mapping):
        return [{key: deepcopy(value)} for key, value in snapshot.items()]
    if isinstance(snapshot, Sequence | AbstractSet) and not isinstance(snapshot, str | bytes):
        return [_row(one) for one in snapshot]
    raise TypeError(
        f"the snapshot of state {name} must be a list of rows, or a dict such as a bucket's contents by key; "
        f"it is {snapshot!r:.100}"
    )


def _row(row: Any) -> Any:
    """A copy of a row, by the names or numbers of its columns, so that each column is compared by itself."""
    if hasattr(row, "keys"):
        return {name: deepcopy(row[name]) for name in row.keys()}  # noqa: SIM118  # a sqlite3.Row yields its values
    return deepcopy(dict(enumerate(row)) if isinstance(row, tuple) else row)


def _refill(container: Any, content: Any) -> None:
    container.clear()
    if isinstance(container, MutableMapping):
        container.update(content)
    for one in () if isinstance(container, MutableMapping) else content:
        container.append(one) if isinstance(container, MutableSequence) else container.add(one)
