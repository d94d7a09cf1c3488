"""The store on DynamoDB: which request each method of the seam becomes.

======== ==================================================== ====================================================
         one record                                           many
======== ==================================================== ====================================================
insert   PutItem if absent; a conflict shows what is there    BatchExecuteStatement, INSERT, 25 a request
read     BatchGetItem, consistent                             the same, 100 a request
replace  UpdateItem with a condition; likewise                BatchExecuteStatement, UPDATE, 25 a request
commit   TransactWriteItems, the record's Update first
======== ==================================================== ====================================================

`protocol/` decides what to ask for, and what follows from an answer.
"""

import re
from collections.abc import Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Self, TypeVar

from idempotent_receiver.dynamodb.requests import Item, Requests
from idempotent_receiver.dynamodb.statements import Replacement, replacement_of, unsendable
from idempotent_receiver.dynamodb.transactions import token_of, transact_items
from idempotent_receiver.options import require_client
from idempotent_receiver.protocol.namespaces import checked, joined
from idempotent_receiver.protocol.record import Change, Record, attributes
from idempotent_receiver.protocol.store import READS_A_CALL, WRITES_A_CALL, ActionFailed, NotApplied, Unknown, Written
from idempotent_receiver.protocol.transaction import Action

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

Write = TypeVar("Write", Item, Replacement)


class DynamoDBStore:
    """A `TransactionalStore` in the DynamoDB table `table_name`, whose only key is the string `id`.

    `namespace` keeps this consumer's keys apart from those of others in the table. Without a `client`, one is built on
    first use, with time-outs that suit a function: a request takes about 8 seconds at worst. If you pass a client, its
    configuration bounds its requests. Safe to call from several threads.

    Raises ValueError for a `table_name` that is not a table's name (an ARN is not, since PartiQL takes none), and for a
    namespace that is empty or has a `#`.
    """

    def __init__(self, table_name: str, namespace: str | None = None, client: "DynamoDBClient | None" = None) -> None:
        if not table_name or not re.fullmatch(r"[A-Za-z0-9_.-]{1,255}", table_name):
            remedy = " (an ARN is not one either)" if table_name else ": is a variable not set?"
            raise ValueError(f"{table_name!r} is not a DynamoDB table's name{remedy}")
        if client is not None:
            require_client(client, "dynamodb", "client")
        self.table_name = table_name
        self.namespace = checked(namespace)
        self._requests = Requests(table_name, client)

    def named(self, name: str) -> Self:
        """The same table and client under a namespace of its own, for one more function: `orders` becomes
        `orders.{name}`.
        """
        other = copy(self)
        other.namespace = joined(self.namespace, name)
        return other

    @property
    def table_id(self) -> str:
        """What all stores of this table in this process have in common."""
        return self.table_name

    @property
    def client(self) -> "DynamoDBClient":
        """The boto3 client that this store uses."""
        return self._requests.client

    def insert(self, records: Sequence[Record]) -> Sequence[Written]:
        """Put each record where its id has none."""
        items = [attributes(record) for record in records]
        reasons = unsendable([(record.id, item.values()) for record, item in zip(records, items, strict=True)])
        return _written(items, reasons, self._requests.put, self._requests.execute_inserts)

    def replace(self, changes: Sequence[Change]) -> Sequence[Written]:
        """Write each change whose expected attributes still stand."""
        replacements = [replacement_of(change) for change in changes]
        return _written(replacements, _unsendable(replacements), self._requests.update, self._requests.execute_updates)

    def read(self, ids: Sequence[str]) -> Sequence[Record | Unknown | None]:
        """What is there now, consistently."""
        # What could not be written is not there, and asking for it would fail the other keys of its request.
        reasons = unsendable((id, ()) for id in ids)
        askable = [id for id, reason in zip(ids, reasons, strict=True) if reason is None]
        found: dict[str, Record | Unknown] = {}
        for start in range(0, len(askable), READS_A_CALL):
            found |= self._requests.get(askable[start : start + READS_A_CALL])
        return [found.get(id) for id in ids]

    def commit(self, change: Change, actions: Sequence[Action]) -> Written | ActionFailed:
        """Write the change and all actions, or nothing."""
        replacement = replacement_of(change)
        (reason,) = _unsendable([replacement])
        if reason is not None:
            return NotApplied(reason, retry=False)
        items = transact_items(actions, table=self.table_name, id=change.new.id)
        if isinstance(items, NotApplied):
            return items
        return self._requests.transact(replacement, token_of(change), items, actions)


def _unsendable(replacements: Sequence[Replacement]) -> list[str | None]:
    return unsendable([(id, (*put.values(), *standing.values())) for id, _, put, standing in replacements])


def _written(
    writes: Sequence[Write],
    reasons: Sequence[str | None],
    one: Callable[[Write], Written],
    many: Callable[[Sequence[Write]], list[Written]],
) -> list[Written]:
    """An answer to each write, in order: those with a reason not to be sent get it, the others go 25 at a time."""
    sendable = [write for write, reason in zip(writes, reasons, strict=True) if reason is None]
    answers: list[Written] = []
    for start in range(0, len(sendable), WRITES_A_CALL):
        chunk = sendable[start : start + WRITES_A_CALL]
        answers += [one(chunk[0])] if len(chunk) == 1 else many(chunk)
    sent = iter(answers)
    return [next(sent) if reason is None else NotApplied(reason, retry=False) for reason in reasons]
