"""Workers that are processes, and write to one table at the same moment."""

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

_together: Barrier | None = None


class Crowd:
    """So many processes, each with a client of its own."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def at_once(self, place: Place, method: str, wishes: Sequence[Any]) -> list[Sequence[Written]]:
        """Let each process ask its wishes of its own store by that method, all at the same moment."""
        assert len(wishes) == PROCESSES
        return list(self._pool.map(_ask, [place] * PROCESSES, [method] * PROCESSES, wishes))


@contextmanager
def crowd() -> Iterator[Crowd]:
    """The processes, for the length of the block. They are spawned: a fork would take this process's threads along."""
    context = get_context("spawn")
    together = context.Barrier(PROCESSES)
    with ProcessPoolExecutor(PROCESSES, mp_context=context, initializer=_meet, initargs=(together,)) as pool:
        yield Crowd(pool)


def _meet(together: Barrier) -> None:
    global _together  # noqa: PLW0603  # a process's share of what its pool was given
    _together = together


@cache
def _store(place: Place) -> DynamoDBStore:
    return DynamoDBStore(place.records, client=client_of(place))


def _ask(place: Place, method: str, wishes: Any) -> Sequence[Written]:
    store = _store(place)
    assert _together is not None
    # Who waits keeps its process busy, so that each of these runs in another one.
    _together.wait(LONGEST_WAIT_SECONDS)
    if method == "commit":
        return [store.commit(change, actions) for change, actions in wishes]  # type: ignore[misc]  # none fails here
    answers: Sequence[Written] = getattr(store, method)(wishes)
    return answers
