"""A worker that is killed after any of its requests, or in any of its calls: whoever comes next makes the calls of what
it committed, and no others.
"""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from idempotent_receiver import Transaction
from tests.unit.sqs.test_sends import Orders, both_modes, deliver, key_of, messages
from tests.unit.sqs.test_sends_killed import Killed, Worker

if TYPE_CHECKING:
    from collections.abc import Callable

MESSAGES = 5


class Service:
    """Counts its calls by order and key, in two worlds: before the kill, and after it."""

    def __init__(self, asks: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        self.calls: dict[int, list[str]] = defaultdict(list)
        self._asked = asks(self._count)

    def _count(self, order: int, key: str) -> None:
        self.calls[order].append(key)

    @property
    def functions(self) -> list[Any]:
        def notify(order: int, *, idempotency_key: str) -> None:
            self._asked(order, idempotency_key)

        def bill(order: int, *, idempotency_key: str) -> None:
            self._asked(order, idempotency_key)

        return [notify, bill]


def handler_of(notify: Any, bill: Any) -> Callable[..., None]:
    def handler(body: dict, tx: Transaction) -> None:
        tx.put(TableName="orders", Item={"order": str(body["n"])})
        tx.call(notify, order=body["n"])
        tx.call(bill, order=body["n"])

    return handler


class Caller(Worker):
    """A worker whose calls are requests too."""

    def calls(self, store: Orders, service: Service, effects: str) -> bool:
        for name in ("insert", "commit", "read", "replace"):
            setattr(store, name, self.asks(getattr(store, name)))
        thread = threading.Thread(target=self._call, args=(store, service, effects))
        thread.start()
        while thread.is_alive() and not self._is_dead.wait(0.001):
            pass
        return self._is_dead.is_set()

    def _call(self, store: Orders, service: Service, effects: str) -> None:
        functions = service.functions
        with contextlib.suppress(Killed):
            deliver(store, None, handler_of(*functions), *messages(MESSAGES), effects=effects, calls=functions)


@both_modes
def test_what_a_killed_worker_committed_is_called_under_one_key_and_nothing_else(effects: str) -> None:
    """Killed after its first request or call, its second, and so on, until it has made them all."""
    for most in range(1, 100):
        store, worker = Orders(), Caller(most)
        first, second = Service(worker.asks), Service(lambda request: request)
        died = worker.calls(store, first, effects)
        assert first.calls.keys() <= set(map(int, store.orders)), "never for what did not commit"

        for name in ("insert", "commit", "read", "replace"):  # another process, which lives
            delattr(store, name)
        for record in store.items.values():
            record["in_progress_expiration"] = 0
        functions = second.functions
        again = messages(MESSAGES, receives=2)
        assert deliver(store, None, handler_of(*functions), *again, effects=effects, calls=functions) == []
        worker.over.set()

        for order in range(MESSAGES):
            keys = [key_of(f"m{order}", number) for number in (1, 2)]
            made = [*first.calls[order], *second.calls[order]]
            assert set(made) == set(keys), "never missing for what did, each under its key"
            assert all(made.count(key) <= 2 for key in keys)
        assert sorted(store.orders) == sorted(f"{number}" for number in range(MESSAGES))
        assert {store.status(f"m{number}") for number in range(MESSAGES)} == {"COMPLETED"}
        if not died:
            assert worker.requests > 2 * MESSAGES
            return
    raise AssertionError
