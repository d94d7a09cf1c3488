"""What a batch tells its host, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver import MemoryStore
from idempotent_receiver.batch.calling import Callings
from idempotent_receiver.batch.items import Do, Item, Stage
from idempotent_receiver.batch.progress import Order, Progress
from idempotent_receiver.batch.runs import Runs
from idempotent_receiver.batch.settings import Settings
from idempotent_receiver.batch.spent import Spent
from idempotent_receiver.batch.turns import Turns
from idempotent_receiver.clock import Deadline
from idempotent_receiver.handler.outcome import Completed, NotStarted
from tests.manual_clock import ManualClock
from tests.unit.batch.at_once import AtOnce
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
        self.slots = 1_000

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

    def keyed(self, known: Sequence[tuple[int, str]]) -> None:
        """Nothing is renewed yet."""

    def draining(self) -> bool:
        return self.drains

    def take_slot(self) -> bool:
        self.slots -= 1
        return self.slots >= 0

    def free_slot(self) -> None:
        self.slots += 1

    def releases(self, index: int) -> bool:
        return False


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


def test_the_host_hears_of_each_claim_that_is_refused() -> None:
    """Otherwise its process would be ended when that lease would end."""
    host = Host()
    store = Store(host)
    process(work("a"), store=store)
    host.told.clear()

    process(work("a"), work("b"), store=store, host=host)

    assert [told for told in host.told if "claim" in told[0]] == [
        ("claiming", "a", "b"),
        ("not claimed", "a"),
        ("claimed", "b"),
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


class Impatient(Host):
    """A host that lets nothing wait."""

    def releases(self, index: int) -> bool:
        return True


class Idle(AtOnce):
    """An executor that starts nothing yet."""

    def start(self, job: Any, then: Any) -> None: ...


def waiting(host: Host, *, running: int) -> tuple[Runs, Item, ManualClock]:
    """A work that waits while that many of two handlers run."""
    clock = ManualClock()
    deadline, progress = Deadline.after(clock, 30_000), Progress(Order([work("a")]))
    settings = Settings(store=MemoryStore(), executor=Idle(), host=host, concurrency=2)
    calls = Callings(settings, progress, deadline, Spent(), lambda item, outbox: None)
    runs = Runs(settings, progress, deadline, Turns(deadline), calls)
    progress.actions = {Do.RELEASE: lambda item: None}
    [item] = progress.order.items
    item.stage = Stage.READY
    runs.ready.append(item)
    runs.running = running
    return runs, item, clock


@pytest.mark.parametrize(
    ("running", "slots", "seconds", "stage"),
    [
        (2, 1, 1.1, Stage.RELEASING),
        (1, 0, 1.1, Stage.RELEASING),
        (2, 1, 1.0, Stage.READY),
        (1, 0, 1.0, Stage.READY),
        (1, 1, 9.0, Stage.READY),
    ],
)
def test_what_waits_is_released_when_nothing_has_started_for_a_second(
    running: int, slots: int, seconds: float, stage: Stage
) -> None:
    """And not where a handler could start: then its store may have taken long to claim it. Handlers of other batches
    may have all slots.
    """
    host = Impatient()
    host.slots = slots
    runs, item, clock = waiting(host, running=running)
    clock.seconds += seconds
    moment = runs._deadline.moment()

    runs.start(moment)
    runs.release_waiting(host, moment)

    assert (item.stage, item in runs.ready) == (stage, stage is Stage.READY)


@pytest.mark.parametrize("error", [None, SystemExit()])
def test_a_slot_is_free_again_whatever_has_become_of_its_run(error: BaseException | None) -> None:
    """Another batch may wait for it."""
    host = Host()
    left: list[int] = []

    def handle(attempt: object) -> None:
        left.append(host.slots)
        if error is not None:
            raise error

    process(work("a", handle), work("b", handle), store=Store(host), host=host)

    assert (left, host.slots) == ([999, 999], 1_000)


def test_what_its_loop_has_just_taken_is_not_released() -> None:
    """It runs, so its claim must stand."""

    class Late(Host):
        def releases(self, index: int) -> bool:
            runs.ready.popleft()
            return True

    host = Late()
    runs, item, clock = waiting(host, running=2)
    clock.seconds += 9

    runs.release_waiting(host, runs._deadline.moment())

    assert item.stage is Stage.READY
