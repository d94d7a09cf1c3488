"""What judges a schedule is judged itself: worlds and courses in which it must find what is wrong."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver import MemoryStore, Message
from idempotent_receiver.protocol.store import Applied
from idempotent_receiver.testing import explore
from idempotent_receiver.testing.baseline import Baseline
from idempotent_receiver.testing.network import Network
from idempotent_receiver.testing.schedule import SEND, Point, Schedule
from tests.unit.testing import handlers
from tests.unit.testing.handlers import ORDER, accounts, services

if TYPE_CHECKING:
    from collections.abc import Sequence

    from idempotent_receiver.protocol.store import ActionFailed, Commit, Written
    from idempotent_receiver.testing import Calls


class LosingRecords(MemoryStore):
    """A store that loses each record that it commits."""

    def commit(self, commits: Sequence[Commit]) -> Sequence[Written | ActionFailed]:
        answers = super().commit(commits)
        for commit in commits:
            self.items.pop(commit.change.new.id, None)
        return answers


class LosingEffects(MemoryStore):
    """A store that loses the effects of whoever takes a claim over."""

    def commit(self, commits: Sequence[Commit]) -> Sequence[Written | ActionFailed]:
        before = {name: dict(table.items) for name, table in self.tables.items()}
        answers = super().commit(commits)
        if any((commit.change.new.attempts or 1) > 1 for commit in commits):
            for name, items in before.items():
                self.tables[name].items.update(items)
        return answers


@pytest.mark.parametrize(
    ("store", "told"),
    [
        (LosingRecords, "message-1 was acknowledged although its record is not COMPLETED"),
        (LosingEffects, "the table accounts holds {'account': 'alice', 'balance': 100} instead of"),
    ],
)
def test_what_a_store_loses_is_found(store: type[MemoryStore], told: str) -> None:
    """An acknowledgement without any record; effects that are missing only where something goes wrong."""
    result = explore(handlers.transactional, ORDER, tables=accounts(), store=store, check=False)

    assert told in str(result)


def test_a_call_that_only_a_later_attempt_does_not_await_is_found(calls: Calls) -> None:
    calls.replace(services, "notify", key="key")

    @handlers.consumer
    async def _forgetful(order: dict, message: Message) -> None:
        promise = services.notify("sold", message.idempotency_key)
        if message.attempt == 1:
            await promise

    result = explore(_forgetful, ORDER, check=False)

    assert "notify was called for message-1 and had not been awaited" in str(result)


def test_one_call_without_its_key_beside_a_call_with_it_is_found(calls: Calls) -> None:
    """Even the only one: the attempt before has made the call."""
    calls.replace(services, "charge", key="key")

    @handlers.consumer
    def _forgets_its_key(order: dict, message: Message) -> None:
        services.charge(1, message.idempotency_key if message.attempt == 1 else None)

    result = explore(_forgets_its_key, ORDER, check=False)

    assert "charge was called once for message-1, without an idempotency key" in str(result)


def test_a_call_that_is_still_on_its_way_when_its_handler_returns_is_found(calls: Calls) -> None:
    calls.replace(services, "notify", key="key")

    @handlers.consumer
    async def _hurried(order: dict, message: Message) -> None:
        promise = asyncio.ensure_future(services.notify("sold", message.idempotency_key))
        await asyncio.sleep(0)
        assert not promise.done()

    result = explore(_hurried, ORDER, check=False)

    assert "notify was called for message-1 and had not been awaited" in str(result)


declined: set[str] = set()


def test_a_message_that_never_ends_after_a_refusal_is_found(calls: Calls) -> None:
    """It may end otherwise than without the refusal, but not never."""
    calls.replace(services, "charge", key="key", refuses=ValueError("declined"))

    @handlers.consumer
    def _offended(order: dict, message: Message) -> None:
        if order["order"] in declined:
            raise RuntimeError
        try:
            services.charge(order["cents"], message.idempotency_key)
        except ValueError:
            declined.add(order["order"])
            raise

    result = explore(_offended, ORDER, state={"declined": declined}, check=False)

    assert "message-1 is never acknowledged, but completed in the fault-free run" in str(result)


class Crashed(Exception):
    """Ends a worker."""


@pytest.mark.parametrize(
    ("chosen", "done", "answered"),
    [
        (None, True, True),
        ("lost", True, False),
        ("crash-after", True, False),
        ("refused", False, False),
        ("crash-before", False, False),
        ("timeout", False, False),
    ],
)
def test_what_goes_wrong_with_a_request_is_what_its_name_says(chosen: str | None, done: bool, answered: bool) -> None:
    """What has been done, and whether the worker gets to know it."""

    def stop() -> None:
        raise Crashed

    world: Any = SimpleNamespace(sleep=lambda seconds: None, stop=stop)
    decisions: Any = SimpleNamespace(choose=lambda *offered: chosen)
    worker: Any = SimpleNamespace(name="w", kill=lambda: None)
    network, acts, known = Network(world, decisions, []), list[str](), list[bool]()

    def act() -> list[Any]:
        acts.append("done")
        return [Applied()]

    with suppress(Crashed):
        known.append(network.write(worker, "insert", "claims", 1, act) == [Applied()])
    if chosen in (None, *SEND):
        with suppress(Crashed, ConnectionError):
            network.send(worker, "sends", lambda: acts.append("done"))
            known.append(True)

    assert len(acts) == done * (1 + (chosen in (None, *SEND)))
    assert any(known) == answered


@handlers.consumer
def _idle(order: dict) -> None: ...


def test_a_reason_for_the_network_is_none_for_doing_nothing() -> None:
    result = explore(_idle, ORDER, network="a local emulator", check=False)

    assert "has no visible effect" in str(result)


@pytest.mark.parametrize(
    ("begun", "longer"),
    [
        ("", ["0:dealt", "1:lost", "1:slow", "2:lost"]),
        ("0:dealt", ["0:dealt,1:lost", "0:dealt,1:slow", "0:dealt,2:lost"]),
        ("1:slow", ["1:slow,2:lost"]),
        ("1:lost", []),
        ("0:dealt,1:lost", []),
    ],
)
def test_what_is_no_fault_takes_the_place_of_none(begun: str, longer: list[str]) -> None:
    """Messages are dealt out, and requests are slow, beside as many faults as were asked for."""
    points = [
        Point("delivery", "d", ("dealt",)),
        Point("insert", "i", ("lost", "slow")),
        Point("commit", "c", ("lost",)),
    ]

    assert [str(one) for one in Schedule.parsed(begun).extended(points, faults=1, delays=1)] == longer


def test_a_search_that_is_cut_short_warns() -> None:
    with pytest.warns(UserWarning, match="explore ran 1 schedules, but not all"):
        assert not explore(handlers.transactional, ORDER, tables=accounts(), most_schedules=1).complete


def course(*calls: str, ends: str = "completed", items: int = 1) -> Any:
    """How messages are handled where nothing goes wrong."""
    told = [SimpleNamespace(name=name, given=()) for name in calls]
    tables = {"orders": [{"order": number} for number in range(items)]}
    return SimpleNamespace(ends={"message-1": ends}, tables=tables, calls=told, state={}, results={})


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (course("charge", ends="dead letter"), "in one run, as"),
        (course("charge", items=2), "the table orders holds 1 items after one run, 2 after the next"),
        (course(), "one run calls charge; the next calls nothing"),
        (course("charge"), "None"),
    ],
)
def test_courses_that_differ_in_more_than_values_are_compared_with_nothing(other: Any, told: str) -> None:
    courses = iter([course("charge"), other])

    assert told in str(Baseline(lambda: next(courses)).unrepeatable)
