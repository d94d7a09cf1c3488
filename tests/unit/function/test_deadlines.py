"""An idempotent function has as long as its invocation has, by either clock, and leaves nothing behind it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from idempotent_receiver import NotStarted, Payload, current_claim
from tests.contexts import Context as Invocation
from tests.counting_store import CountingStore
from tests.manual_clock import START_MS, ManualClock
from tests.unit.function.conftest import ORDER, never, record


def given_back(store: CountingStore, clock: ManualClock) -> bool:
    return bool(record(store)["in_progress_expiration"] <= clock.epoch_ms())


def test_inside_lambda_the_lease_ends_with_the_invocation(
    store: CountingStore, clock: ManualClock, within: Any
) -> None:
    """The context is found among the arguments, whatever its position and name."""

    @within()
    def work(order: dict[str, Any], *, lambda_context: Invocation) -> None:
        held = record(store)
        assert (held["in_progress_expiration"], held["owner"]) == (START_MS + 33_000, "invocation-1")
        assert current_claim().remaining_time_ms() == 30_000

    work(ORDER, lambda_context=Invocation(clock))
    assert record(store)["status"] == "COMPLETED"


def test_outside_lambda_a_lease_keeps_its_parts_of_a_second(store: CountingStore, within: Any) -> None:
    @within(lease_seconds=1.75)
    def work(order: dict[str, Any]) -> None:
        assert record(store)["in_progress_expiration"] == START_MS + 1_750

    work(ORDER)
    assert record(store)["status"] == "COMPLETED"


@pytest.mark.scenario("S44", mutant="a nested claim stays the current one")
def test_a_nested_call_has_the_outer_ones_deadline_and_lease_and_a_key_of_its_own(
    store: CountingStore, clock: ManualClock, within: Any
) -> None:
    ends = [START_MS + 33_000]

    def told(name: str) -> str:
        clock.seconds += 5
        item = store.items[f"tests.inner#{name}"]
        ends.append(item["in_progress_expiration"])
        return f"{name} of {item['owner']}"

    inner = inner_of(within, store, told)

    @within()
    def outer(order: dict[str, Any], context: Invocation) -> list[str]:
        before = current_claim().key
        said = [inner("a"), inner("b"), inner("a")]
        assert current_claim().key == before
        return said

    assert outer(ORDER, Invocation(clock)) == ["a of invocation-1", "b of invocation-1", "a of invocation-1"]
    assert {*ends} == {START_MS + 33_000}
    assert {item["status"] for item in store.items.values()} == {"COMPLETED"}


def inner_of(within: Any, store: CountingStore, work: Any) -> Any:
    """A function with keys of its own that another one calls; it is told its key."""
    return within.func(store.named("inner"), key=str, clock=within.keywords["clock"])(
        lambda name: work(current_claim().key)
    )


def test_what_cannot_be_begun_claims_nothing_and_names_the_remedy(
    store: CountingStore, clock: ManualClock, within: Any
) -> None:
    """Outside Lambda without a lease, and with too little time left."""
    with pytest.raises(TypeError, match="lease_seconds"):
        within()(never)(ORDER)
    with pytest.raises(NotStarted, match="nothing ran"):
        within()(never)(ORDER, Invocation(clock, seconds=1))
    assert (store.asked, store.items) == ([], {})


@pytest.mark.parametrize(
    ("late", "seconds"),
    [((9, 0), 10), ((0, 3600), 30)],
    ids=["the claim took too long", "the machine was suspended, and its monotonic clock stood still"],
)
def test_what_was_claimed_too_late_to_start_is_given_back(
    store: CountingStore, clock: ManualClock, within: Any, late: tuple[int, int], seconds: float
) -> None:
    """By the later of the two clocks."""
    runs = []

    def slow(name: str) -> None:
        if name == "insert":
            clock.seconds += late[0]
            clock.stepped_seconds += late[1]

    @within()
    def work(order: dict[str, Any], context: object) -> int:
        runs.append(order)
        return current_claim().attempt

    store.before = slow
    with pytest.raises(NotStarted):
        work(ORDER, Invocation(clock, seconds=seconds))
    assert (runs, store.asked, given_back(store, clock)) == ([], ["insert", "replace"], True)

    store.before = lambda name: None
    assert work(ORDER, Invocation(clock)) == 1, "what was never started does not count"


def test_nothing_is_claimed_by_a_call_that_is_too_late_by_either_clock(
    store: CountingStore, clock: ManualClock, within: Any
) -> None:
    """An outer call was suspended: the next inner call claims nothing, although the monotonic clock leaves time."""
    inner = inner_of(within, store, str)

    @within()
    def outer(order: dict[str, Any], context: object) -> None:
        clock.stepped_seconds += 3600
        store.asked.clear()
        inner("a")

    with pytest.raises(NotStarted):
        outer(ORDER, Invocation(clock))
    assert store.asked == ["replace"], "the outer one's own end"
    assert record(store)["status"] == "FAILED"


def test_a_wall_clock_that_steps_back_keeps_no_call_from_its_deadline(
    store: CountingStore, clock: ManualClock, within: Any
) -> None:
    inner = inner_of(within, store, str)

    @within()
    def outer(order: dict[str, Any], context: object) -> str:
        clock.stepped_seconds -= 3600
        before = inner("a")
        clock.seconds += 29.5
        with pytest.raises(NotStarted):
            inner("b")
        return str(before)

    assert outer(ORDER, Invocation(clock)) == "a"


# Coroutines.


def test_a_coroutine_whose_loop_stood_still_after_its_claim_is_not_started(
    store: CountingStore, clock: ManualClock, within: Any
) -> None:
    """The machine was suspended in another coroutine of the loop, between this one's claim and its start."""
    runs = []

    @within()
    async def work(order: dict[str, Any], context: object) -> None:
        runs.append(order)

    async def both() -> None:
        thread = ThreadPoolExecutor(1)
        asyncio.get_running_loop().set_default_executor(thread)
        task = asyncio.create_task(work(ORDER, Invocation(clock)))
        await asyncio.sleep(0)
        thread.submit(lambda: None).result()  # it runs one job after the other, so the claim has been made
        clock.stepped_seconds += 3600
        with pytest.raises(NotStarted):
            await task

    asyncio.run(both())
    assert (runs, given_back(store, clock)) == ([], True)


def test_a_coroutine_that_is_cancelled_is_recorded_as_failed(store: CountingStore, once: Any) -> None:
    @once(payload=Payload(without=["started"]))
    async def work(order: dict[str, Any], started: asyncio.Event) -> None:
        started.set()
        await asyncio.Event().wait()

    async def cancelled() -> None:
        started = asyncio.Event()
        task = asyncio.create_task(work(ORDER, started))
        await started.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()

    asyncio.run(cancelled())
    assert record(store)["status"] == "FAILED"


class Gate:
    """Blocks the first request of one name to a store, on its thread, until it is opened."""

    def __init__(self, store: CountingStore, name: str) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        self.name = name
        store.before = self._hold

    def _hold(self, name: str) -> None:
        if name == self.name and not self.reached.is_set():
            self.reached.set()
            assert self.opened.wait(10)

    async def cancel_there(self, work: Coroutine[Any, Any, object]) -> None:
        """Start some work and cancel it twice while it is blocked, as a closing loop does."""
        task = asyncio.create_task(work)
        assert await asyncio.to_thread(self.reached.wait, 10)
        for _ in range(2):
            for one in asyncio.all_tasks() - {asyncio.current_task()}:
                one.cancel()
            for _ in range(5):
                await asyncio.sleep(0)
        left = task.done()
        self.opened.set()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        assert not left, "it left a thread at work behind it"


@pytest.fixture
def work(once: Any) -> Any:
    """A coroutine function: the keys and attempts that it was run with are its `runs`."""
    runs = []

    @once(lease_seconds=3600)
    async def work(order: dict[str, Any]) -> int:
        await asyncio.sleep(0)
        runs.append((current_claim().key, current_claim().attempt))
        return current_claim().attempt

    work.runs = runs
    return work


def test_a_coroutine_function_is_awaited_and_runs_once(work: Any) -> None:
    async def twice() -> list[int]:
        return [await work(ORDER), await work(ORDER)]

    assert (asyncio.run(twice()), work.runs) == ([1, 1], [("1", 1)])


def test_a_caller_that_is_cancelled_while_it_claims_leaves_no_claim(
    store: CountingStore, clock: ManualClock, work: Any
) -> None:
    """Nothing has run, so the next call need not wait for the lease's end."""

    async def cancelled_and_called_again() -> int:
        await Gate(store, "insert").cancel_there(work(ORDER))
        assert given_back(store, clock)
        return int(await work(ORDER))

    assert asyncio.run(cancelled_and_called_again()) == 1, "what was never started does not count"


def test_a_caller_that_is_cancelled_and_has_claimed_nothing_gives_nothing_back(store: CountingStore, work: Any) -> None:
    asyncio.run(work(ORDER))
    done = record(store).copy()
    store.asked.clear()
    asyncio.run(Gate(store, "insert").cancel_there(work(ORDER)))
    assert (record(store), store.asked) == (done, ["insert"])


def test_a_caller_that_is_cancelled_while_it_settles_has_settled(store: CountingStore, work: Any) -> None:
    async def cancelled_and_called_again() -> int:
        await Gate(store, "replace").cancel_there(work(ORDER))
        assert record(store)["status"] == "COMPLETED"
        return int(await work(ORDER))

    assert (asyncio.run(cancelled_and_called_again()), len(work.runs)) == (1, 1)
