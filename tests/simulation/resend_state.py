"""A state of the world of operators: the table, both queues, the workers, and the requests still on the wire."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from hashlib import blake2b
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from idempotent_receiver.testing.world import START_EPOCH_SECONDS
from tests.simulation.operators import RECORDS, beginning, fingerprint_of, id_of
from tests.simulation.setups import Act
from tests.simulation.state import WireRequest
from tests.simulation.worker_state import FAR, OVER_MS, WorkerState

if TYPE_CHECKING:
    from tests.simulation.setups import Setup

    Item = dict[str, Any]

LONG_MS = 1_000_000_000
"""A lease that no worker lives to see the end of."""
VERSION = re.compile(r"\b([a-z]\d+)-(\d+)")


@dataclass(slots=True)
class ResendState:
    """The world at one moment. Bodies have numbers, and a dead letter is a number with its body."""

    setup: Setup
    workers: list[WorkerState]
    faults: int
    items: dict[str, Item]
    letters: frozenset[tuple[int, int]]
    newest: int = 9
    """The newest dead letter's number. Numbers are messageIds, so none comes twice."""
    now: float = 0.0
    entries: dict[str, int] = field(default_factory=dict)
    wire: tuple[WireRequest, ...] = ()
    queued: tuple[int, ...] = ()
    """The bodies in the source queue, the oldest first."""
    sent: frozenset[str] = frozenset()
    """FIFO only: the deduplication ids that the queue has seen."""
    ever: frozenset[int] = frozenset()
    """The bodies that were ever in the source queue. A standard queue may deliver each at any time."""
    done: frozenset[int] = frozenset()
    """The bodies that took effect."""

    def copy(self) -> ResendState:
        copy = ResendState(*_values_of(self))
        copy.workers = [worker.copy() for worker in self.workers]
        return copy

    @property
    def now_ms(self) -> float:
        return (START_EPOCH_SECONDS + self.now) * 1000

    @property
    def dead_lettered(self) -> frozenset[tuple[int, int]]:
        return self.letters

    @property
    def over(self) -> bool:
        """Whether nobody acts any more, and nobody can start."""
        return not any(worker.live or self.may_start(worker) for worker in self.workers)

    def may_start(self, worker: WorkerState) -> bool:
        """Whether a worker has its letter before it, or something that it may receive."""
        if worker.history is not None or worker.over:
            return False
        act = self.act_of(worker)
        return bool(self.deliverable) if act is None else any(act.letter == number for number, _ in self.letters)

    def act_of(self, worker: WorkerState) -> Any:
        """What an operator does; None for a worker of the consumer."""
        number = int(worker.name[1:])
        return self.setup.acts[number] if worker.name[0] == "o" and number < len(self.setup.acts) else None

    @property
    def deliverable(self) -> list[int]:
        """The bodies that may be delivered now. A FIFO queue delivers the first one, alone."""
        if not self.setup.fifo:
            return sorted(self.ever)
        busy = any(worker.live and worker.name[0] == "c" for worker in self.workers)
        return [] if busy else list(self.queued[:1])

    def named(self, name: str) -> WorkerState:
        return next(worker for worker in self.workers if worker.name == name)

    def key(self) -> bytes:
        """Equal for two states from which the same can happen."""
        live = {worker.name for worker in self.workers if worker.live}
        wire = [(one.kind, _plain(one.part), one.writer in live and one.writer) for one in self.wire]
        text = repr(
            (
                self.faults,
                [self._item(self.items[id]) for id in sorted(self.items)],
                [self._worker(worker) for worker in self.workers],
                wire,
                sorted(self.letters),
                self.newest,
                self.queued if self.setup.fifo else sorted(self.queued),
                sorted(self.sent),
                sorted(self.ever),
                sorted(self.done),
                sorted(self.entries.items()),
            )
        )
        others: dict[str, str] = {}
        named = VERSION.sub(
            lambda found: found[0] if found[1] in live else others.setdefault(found[0], f"v{len(others)}"), text
        )
        return blake2b(named.encode(), digest_size=16).digest()

    def _item(self, item: Item) -> list[Any]:
        lease = item.get("in_progress_expiration")
        if lease is not None:
            left = lease - self.now_ms
            lease = LONG_MS if left > LONG_MS else max(left, -OVER_MS)
        owner = item.get("owner")
        owner = owner if owner is None or owner.isalpha() or self.named(owner).live else "another"
        dropped = ("expiration", "in_progress_expiration", "owner")
        return [sorted((name, value) for name, value in item.items() if name not in dropped), lease, owner]

    def _worker(self, worker: WorkerState) -> Any:
        if not worker.live:
            return worker.over
        assert worker.history is not None, "it is live"
        return worker.name, worker.variant, worker.history.number, worker.since(self.now), worker.answers, worker.names


def _plain(part: Any) -> str:
    return re.sub(r"expiration=\d+|owner='[a-z]\d+'", "", repr(part))


def written_to(part: Any) -> str:
    """The id of the record that a statement changes."""
    return str(getattr(part, "new", part[0].new if type(part).__name__ == "Commit" else part).id)


def far_items(items: dict[str, Item]) -> dict[tuple[str], Item]:
    """The table as a transaction sees it."""
    assert all(item["expiration"] >= FAR for item in items.values()), f"nothing in {RECORDS} expires here"
    return {(id,): item for id, item in items.items()}


def begun(*, fifo: bool) -> dict[str, Any]:
    """What a resend that crashed after its send has made of the record."""
    begin = beginning(Act("resend"), fifo=fifo)
    told = {"owner": "alice", "resent": begin.resend.to_json(), "outbox": begin.outbox}
    return {"status": "SENDING", "in_progress_expiration": int(START_EPOCH_SECONDS * 1000), **told}


def failed(body: int) -> dict[str, Any]:
    """The record of a dead letter's key."""
    return {
        "id": id_of(body),
        "status": "FAILED",
        "version": f"v0-{body}",
        "validation": fingerprint_of(body),
        "error": '{"type": "Refused", "permanent": true}',
        "attempts": 1,
        "expiration": max(FAR, int(START_EPOCH_SECONDS)),
    }


_values_of = attrgetter(*ResendState.__slots__)
