"""When calls start and end: their needed time, the stop margin, and what is recorded while one runs long."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver import Transaction
from idempotent_receiver.batch import calling
from tests.manual_clock import ManualClock
from tests.unit.sqs.test_sends import Orders, both_modes, deliver, messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CALLED: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_called() -> None:
    CALLED.clear()


def mail(n: int) -> None:
    CALLED.append(f"mail {n}")


def left_in(store: Orders, id: str = "m0") -> list[Any]:
    return [None if entry is None else entry["Call"] for entry in json.loads(store.items[id]["outbox"])]


@both_modes
def test_a_call_needs_the_time_of_calls_and_not_of_handlers(effects: str) -> None:
    """After a handler of ten seconds in a function of fifteen, an instant call starts; another handler does not."""
    store, clock = Orders(), ManualClock()

    def handler(body: dict, tx: Transaction) -> None:
        clock.seconds += 10
        tx.call(mail, n=body["n"])

    options: dict[str, Any] = {"ms": 15_000, "clock": clock, "effects": effects, "calls": [mail]}
    assert deliver(store, None, handler, *messages(2), **options) == ["m1"]
    assert (CALLED, store.status("m0")) == (["mail 0"], "COMPLETED")


@both_modes
def test_no_call_starts_inside_the_margin_nor_with_less_time_than_the_longest_took(effects: str) -> None:
    """What could not start is left for the next delivery, at once."""
    store, clock = Orders(), ManualClock()

    def slow(n: int) -> None:
        CALLED.append(f"slow {n}")
        clock.seconds += 6

    def handler(body: dict, tx: Transaction) -> None:
        tx.call(slow, n=1)
        tx.call(mail, n=2)
        tx.call(slow, n=3)

    options: dict[str, Any] = {"ms": 13_000, "clock": clock, "effects": effects, "calls": [mail, slow]}
    assert deliver(store, None, handler, *messages(1), **options) == ["m0"]
    assert CALLED == ["slow 1"]
    assert left_in(store) == [None, "mail", "slow"]
    assert store.items["m0"]["in_progress_expiration"] <= clock.epoch_ms(), "the next delivery goes on at once"

    clock.seconds = 0
    store.items["m0"]["in_progress_expiration"] = clock.epoch_ms()
    assert deliver(store, None, handler, *messages(1, receives=2), **options) == []
    assert CALLED == ["slow 1", "mail 2", "slow 3"]


@both_modes
def test_a_late_commit_leaves_its_calls(effects: str) -> None:
    store, clock = Orders(), ManualClock()

    def handler(body: dict, tx: Transaction) -> None:
        clock.seconds += 14.5
        tx.call(mail, n=1)

    options: dict[str, Any] = {"ms": 15_000, "clock": clock, "effects": effects, "calls": [mail]}
    assert deliver(store, None, handler, *messages(1), **options) == ["m0"]
    assert (CALLED, left_in(store)) == ([], ["mail"])


@both_modes
@pytest.mark.parametrize("concurrency", [1, 2])
def test_the_batch_does_not_answer_while_a_call_runs(effects: str, concurrency: int) -> None:
    store, ended = Orders(), []

    def slow(n: int) -> None:
        time.sleep(0.3)
        ended.append(n)

    def handler(body: dict, tx: Transaction) -> None:
        tx.call(slow, n=1)

    options: dict[str, Any] = {"ms": 500, "stop_margin_seconds": 0.3, "concurrency": concurrency}
    assert deliver(store, None, handler, *messages(1), effects=effects, calls=[slow], **options) == []
    assert (ended, store.status()) == ([1], "COMPLETED")


@both_modes
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_coroutine_is_cancelled_at_the_margin_and_what_was_made_before_is_kept(
    effects: str, asynchronous: bool
) -> None:
    store, cancelled = Orders(), []

    async def hang(n: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(n)

    def handler(body: dict, tx: Transaction) -> None:
        tx.call(mail, n=1)
        tx.call(hang, n=2)
        tx.call(mail, n=3)

    async def handler_async(body: dict, tx: Transaction) -> None:
        handler(body, tx)

    options: dict[str, Any] = {"ms": 800, "stop_margin_seconds": 0.6, "effects": effects, "calls": [mail, hang]}
    function = handler_async if asynchronous else handler
    assert deliver(store, None, function, *messages(1), **options) == ["m0"]
    assert (CALLED, cancelled) == (["mail 1"], [2])
    assert left_in(store) == [None, "hang", "mail"]


class Killed:
    """Deliveries whose calls hang until the kill: their threads stay until the test ends."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.threads: list[threading.Thread] = []

    def hang(self, n: int) -> None:
        self.over.wait(20)

    def deliver(self, *arguments: Any, **options: Any) -> None:
        self.threads.append(threading.Thread(target=deliver, args=arguments, kwargs=options))
        self.threads[-1].start()


@pytest.fixture
def killed() -> Iterator[Killed]:
    deliveries = Killed()
    yield deliveries
    deliveries.over.set()
    for thread in deliveries.threads:
        thread.join()


def eventually(condition: Callable[[], bool]) -> bool:
    for _ in range(1_000):
        if condition():
            return True
        time.sleep(0.005)
    return False


@both_modes
@pytest.mark.parametrize("in_margin", [False, True])
def test_a_mail_before_a_call_that_hangs_until_the_kill_goes_out_once(
    effects: str, in_margin: bool, killed: Killed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the hang begins just before the kill, in each of five deliveries: its record says so in time."""
    store, hang = Orders(), killed.hang
    monkeypatch.setattr(calling, "CHECKPOINT_SECONDS", 100 if in_margin else 0.05)
    # The hang begins 0.1 s before the margin, and 0.9 s before the kill.
    options: dict[str, Any] = {"ms": 900, "stop_margin_seconds": 0.8} if in_margin else {"ms": 20_000}

    def handler(body: dict, tx: Transaction) -> None:
        tx.call(mail, n=1)
        tx.call(hang, n=2)

    for receives in range(1, 6):
        record = messages(1, receives=receives)
        killed.deliver(store, None, handler, *record, effects=effects, calls=[mail, hang], concurrency=2, **options)
        assert eventually(lambda: "outbox" in store.items.get("m0", {}) and left_in(store) == [None, "hang"])
        assert eventually(lambda: store.items["m0"]["in_progress_expiration"] > time.time() * 1000)
        assert store.status() == "SENDING"
        store.items["m0"]["in_progress_expiration"] = 1  # the process is dead, and its lease over
    assert CALLED == ["mail 1"]


@both_modes
def test_what_is_recorded_meanwhile_does_not_disturb_the_mark(effects: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the store answers it before the mark, after it, or never."""
    monkeypatch.setattr(calling, "CHECKPOINT_SECONDS", 0.01)

    def slow(n: int) -> None:
        time.sleep(0.15)

    def handler(body: dict, tx: Transaction) -> None:
        tx.call(mail, n=1)
        tx.call(slow, n=2)

    for seconds, lost in ((0.0, 0), (0.03, 0), (0.2, 0), (0.0, 1)):
        store = Orders()
        store.seconds, store.lost_marks = seconds, lost
        assert deliver(store, None, handler, *messages(1), effects=effects, calls=[mail, slow]) == []
        assert store.status() == "COMPLETED"
        assert "outbox" not in store.items["m0"]


def test_a_call_that_a_signal_ends_is_left() -> None:
    store = Orders()

    def interrupted(n: int) -> None:
        raise KeyboardInterrupt

    def handler(body: dict, tx: Transaction) -> None:
        tx.call(interrupted, n=1)
        tx.call(mail, n=2)

    assert deliver(store, None, handler, *messages(1), calls=[mail, interrupted]) == ["m0"]
    assert left_in(store) == ["interrupted", None]
