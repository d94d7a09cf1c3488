"""A worker that is killed after any of its requests: whoever comes next sends what it committed, and nothing else."""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from tests.unit.sqs.test_sends import Orders, Sqs, both_modes, deliver, key_of, messages, post

if TYPE_CHECKING:
    from collections.abc import Callable

MESSAGES = 12
"""More than one request of SendMessageBatch takes."""


class Killed(Exception):
    """Ends the dead worker's threads once the test is over."""


class Worker:
    """A worker's requests, which end after so many: whatever thread asks then, or waits for an answer, stays."""

    def __init__(self, most: int) -> None:
        self.requests = 0
        self.over = threading.Event()
        self._most = most
        self._is_dead = threading.Event()
        self._lock = threading.Lock()

    def asks(self, request: Callable[..., Any]) -> Callable[..., Any]:
        def asked(*arguments: Any, **more: Any) -> Any:
            with self._lock:
                if not self._is_dead.is_set():
                    self.requests += 1
                    answer = request(*arguments, **more)
                    if self.requests < self._most:
                        return answer
                    self._is_dead.set()
            self.over.wait()
            raise Killed

        return asked

    def works(self, store: Orders, sqs: Sqs, effects: str) -> bool:
        """Let it work until it is done or dead; returns whether it has died."""
        for client, names in ((store, ("insert", "commit", "read", "replace")), (sqs, ("send_message_batch",))):
            for name in names:
                setattr(client, name, self.asks(getattr(client, name)))
        thread = threading.Thread(target=self._deliver, args=(store, sqs, effects))
        thread.start()
        while thread.is_alive() and not self._is_dead.wait(0.001):
            pass
        return self._is_dead.is_set()

    def _deliver(self, store: Orders, sqs: Sqs, effects: str) -> None:
        with contextlib.suppress(Killed):
            deliver(store, sqs, post, *messages(MESSAGES), effects=effects)


@both_modes
def test_what_a_killed_worker_committed_is_sent_under_one_key_and_nothing_else(effects: str) -> None:
    """Killed after its first request, its second, and so on, until it has made them all."""
    for most in range(1, 100):
        store, first, second, worker = Orders(), Sqs(), Sqs(), Worker(most)
        died = worker.works(store, first, effects)
        committed = {f'{{"order":{order}}}' for order in store.orders}
        assert {*first.bodies} <= committed

        for name in ("insert", "commit", "read", "replace"):  # another process, which lives
            delattr(store, name)
        for record in store.items.values():
            record["in_progress_expiration"] = 0
        assert deliver(store, second, post, *messages(MESSAGES, receives=2), effects=effects) == []
        worker.over.set()

        sent = defaultdict(set)
        for each in (first, second):
            for body, key in zip(each.bodies, each.keys, strict=True):
                sent[body].add(key)
        assert sent == {f'{{"order":{number}}}': {key_of(f"m{number}")} for number in range(MESSAGES)}
        assert sorted(store.orders) == sorted(f"{number}" for number in range(MESSAGES))
        assert {store.status(f"m{number}") for number in range(MESSAGES)} == {"COMPLETED"}
        if not died:
            assert worker.requests > 3
            return
    raise AssertionError
