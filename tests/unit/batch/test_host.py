"""What a batch tells its host, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from idempotent_receiver import MemoryStore
from idempotent_receiver.handler.outcome import Completed, NotStarted
from tests.unit.batch.test_receiver import process, work

if TYPE_CHECKING:
    from collections.abc import Sequence

    from idempotent_receiver.handler.outcome import Outcome
    from idempotent_receiver.protocol.record import Change, Record
    from idempotent_receiver.protocol.store import Written
    from idempotent_receiver.protocol.transitions import Claimed


class Host:
    """A host that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.drains = False

    def claiming(self, ids: Sequence[str]) -> None:
        self.told.append(("claiming", *ids))

    def claimed(self, claimed: Claimed) -> Claimed:
        self.told.append(("claimed", claimed.record.id))
        return claimed

    def not_claimed(self, id: str) -> None:
        self.told.append(("not claimed", id))

    def settling(self, claimed: Claimed) -> Claimed:
        self.told.append(("settling", claimed.record.id))
        return claimed

    def ended(self, index: int, outcome: Outcome) -> None:
        self.told.append(("ended", index))

    def draining(self) -> bool:
        return self.drains


class Store(MemoryStore):
    """A store in memory that tells a host's list of its writes."""

    def __init__(self, host: Host) -> None:
        super().__init__()
        self._told = host.told

    def insert(self, records: Sequence[Record]) -> Sequence[Written]:
        self._told.append(("inserted", *(record.id for record in records)))
        return super().insert(records)

    def replace(self, changes: Sequence[Change]) -> Sequence[Written]:
        self._told.append(("replaced", *(change.new.id for change in changes)))
        return super().replace(changes)


def test_the_host_hears_of_each_write_before_it_is_sent() -> None:
    host = Host()

    process(work("a"), store=Store(host), host=host)

    assert host.told == [
        ("claiming", "a"),
        ("inserted", "a"),
        ("claimed", "a"),
        ("settling", "a"),
        ("replaced", "a"),
        ("ended", 0),
    ]


def test_nothing_starts_once_the_host_drains() -> None:
    """Not even what its worker loop would take next."""
    host = Host()
    ran: list[str] = []

    def handle(id: str) -> Any:
        def run(attempt: object) -> None:
            ran.append(id)
            host.drains = True

        return run

    processed = process(work("a", handle("a")), work("b", handle("b")), store=Store(host), host=host)

    assert ran == ["a"]
    assert [type(outcome) for outcome in processed.outcomes] == [Completed, NotStarted]
