"""Several processes that write to one table at the same moment."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import cache
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

from idempotent_receiver import DynamoDBStore
from tests.engines.engine import client_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.synchronize import Barrier

    from idempotent_receiver.protocol.store import Written
    from tests.engines.engine import Place

PROCESSES = 4
LONGEST_WAIT_SECONDS = 60

_barrier: Barrier | None = None


class StoreProcesses:
    """Processes that each have a store and a client of their own."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def at_once(self, place: Place, method: str, arguments: Sequence[Any]) -> list[Sequence[Written]]:
        """Let each process call that method of its own store with its arguments, all at the same moment."""
        assert len(arguments) == PROCESSES
        return list(self._pool.map(_call, [place] * PROCESSES, [method] * PROCESSES, arguments))


@contextmanager
def store_processes() -> Iterator[StoreProcesses]:
    """The processes, for the length of the block. They are spawned because a fork would copy this process's threads."""
    context = get_context("spawn")
    barrier = context.Barrier(PROCESSES)
    with ProcessPoolExecutor(PROCESSES, mp_context=context, initializer=_meet, initargs=(barrier,)) as pool:
        yield StoreProcesses(pool)


def _meet(barrier: Barrier) -> None:
    global _barrier  # noqa: PLW0603  # a process's share of what its pool was given
    _barrier = barrier


@cache
def _store(place: Place) -> DynamoDBStore:
    return DynamoDBStore(place.records, client=client_of(place))


def _call(place: Place, method: str, arguments: Any) -> Sequence[Written]:
    store = _store(place)
    assert _barrier is not None
    # A waiting call keeps its process busy, so that each call runs in another one.
    _barrier.wait(LONGEST_WAIT_SECONDS)
    answers: Sequence[Written] = getattr(store, method)(arguments)
    return answers
