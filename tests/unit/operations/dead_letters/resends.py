"""An operator's resends on a bank in memory: a store whose transactions may check records too, and the resends."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Any, cast

from idempotent_receiver import MemoryStore
from idempotent_receiver.operations.dead_letters.resend import Resends
from idempotent_receiver.protocol.record import DEFAULT_RETENTION_SECONDS
from idempotent_receiver.testing.memory import Table, TableItem, TableKey

if TYPE_CHECKING:
    from collections.abc import Sequence

    from idempotent_receiver.dynamodb.store import DynamoDBStore
    from idempotent_receiver.operations.dead_letters.session import Session
    from idempotent_receiver.protocol.record import Change
    from idempotent_receiver.protocol.store import ActionFailed, Commit, Written
    from tests.unit.operations.dead_letters.bank import Bank


class ByKey(MutableMapping[TableKey, TableItem]):
    """The records' items, as a transaction's table has them."""

    def __init__(self, items: dict[str, TableItem]) -> None:
        self._items = items

    def __getitem__(self, key: TableKey) -> TableItem:
        return self._items[str(key[0])]

    def __setitem__(self, key: TableKey, item: TableItem) -> None:
        self._items[str(key[0])] = item

    def __delitem__(self, key: TableKey) -> None:
        del self._items[str(key[0])]

    def __iter__(self) -> Iterator[TableKey]:
        return ((id,) for id in self._items)

    def __len__(self) -> int:
        return len(self._items)


class OperatorsStore(MemoryStore):
    """A bank's records in the operator's hands: a transaction may check records too. `answers` are those to writes of
    records with a status; `meanwhile` is done before a commit.
    """

    table_name = "records"

    def __init__(self, bank: Bank, meanwhile: Any = None, **answers: Written) -> None:
        vars(self).update(vars(bank.store))
        self.tables = {"records": Table("id")}
        self.tables["records"].items = ByKey(self.items)  # type: ignore[assignment]
        self._meanwhile, self._answers = meanwhile, answers

    def commit(self, commits: Sequence[Commit]) -> Sequence[Written | ActionFailed]:
        if self._meanwhile is not None:
            meanwhile, self._meanwhile = self._meanwhile, None
            meanwhile()
        return self._own([each.change for each in commits]) or super().commit(commits)

    def replace(self, changes: Sequence[Change]) -> Sequence[Written]:
        return self._own(changes) or super().replace(changes)

    def _own(self, changes: Sequence[Change]) -> list[Written]:
        return [self._answers[each.new.status] for each in changes if each.new.status in self._answers]


def resending(session: Session, bank: Bank, text: str | None, store: MemoryStore | None = None, **more: Any) -> Resends:
    return Resends(
        store=cast("DynamoDBStore", store or OperatorsStore(bank)),
        sqs=bank.sqs,  # type: ignore[arg-type]
        clock=bank.clock,
        reader=session.reader,
        queue_url=bank.queue.url,
        retention_seconds=DEFAULT_RETENTION_SECONDS,
        **{"operator": "alice", "why": "a typo", "body": text, **more},
    )
