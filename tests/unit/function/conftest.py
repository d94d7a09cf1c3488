"""A store that counts its requests, a clock that stands still, and the decorator with both."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from idempotent_receiver import MemoryStore, idempotent
from tests.counting_store import CountingStore
from tests.manual_clock import ManualClock

ORDER = {"id": "1"}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


def by_order(order: dict[str, Any], *_: object, **__: object) -> str:
    return str(order["id"])


@pytest.fixture
def within(store: CountingStore, clock: ManualClock) -> Any:
    """The decorator; the invocation says how long there is."""
    return partial(idempotent, store, key=by_order, clock=clock)


@pytest.fixture
def once(within: Any) -> Any:
    """The decorator, with a lease of a minute."""
    return partial(within, lease_seconds=60)


def record(store: MemoryStore, key: str = "1") -> dict[str, Any]:
    return store.items[f"tests#{key}"]


def never(order: dict[str, Any], context: object = None) -> None:
    raise AssertionError("never run")
