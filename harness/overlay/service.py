"""Talks to the fake service from inside the functions. A file next to this one holds its address."""

from __future__ import annotations

import http.client
import json
import os
import signal
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SETTINGS = Path(__file__).with_name("settings.json")
TIMEOUT_SECONDS = 8.0

settings: dict[str, Any] = json.loads(SETTINGS.read_text())
"""`host`, `port`, `protection` and the URL of the queue for `receipts` of this run."""
worker = str(os.getpid())
"""This process, or the id of its one invocation if the handler's wrapper sets it."""
_thread = threading.local()
_reported = threading.Condition()
_under_way = 0
"""The number of writes that are not reported yet. Nobody dies meanwhile: they would be applied, and not be evidence."""


class ServiceUnavailable(Exception):
    """The outside service refused the request; a later attempt may succeed."""


def say(path: str, **said: object) -> dict[str, Any]:
    """Report to the fake service; returns its answer. Each thread keeps its connection."""
    connection: http.client.HTTPConnection | None = getattr(_thread, "connection", None)
    if connection is None:
        connection = http.client.HTTPConnection(settings["host"], settings["port"], timeout=TIMEOUT_SECONDS)
        _thread.connection = connection
    connection.request("POST", path, json.dumps(said))
    response = connection.getresponse()
    answer: dict[str, Any] = json.loads(response.read())
    if response.status != http.client.OK:
        raise ConnectionError(f"the fake service answered {path} with {response.status}")
    return answer


def call(name: str) -> None:
    """Cause the outside effect of a transfer. Raises ServiceUnavailable."""
    if not say("/calls", name=name)["accepted"]:
        raise ServiceUnavailable(f"the outside service refused {name}")


def reach(name: str, place: str) -> None:
    """Reach a place with a transfer: the process may be held there, or die like in a crash, without cleanup."""
    if say("/places", name=name, place=place, worker=worker)["die"]:
        with _reported:
            _reported.wait_for(lambda: not _under_way, timeout=2)
            os.kill(os.getpid(), signal.SIGKILL)


def watch(store: Any) -> None:
    """Report which record writes DynamoDB has applied, according to its answers to this process."""
    store.insert = _watched(store.insert, lambda records: [(record, None) for record in records])
    store.replace = _watched(store.replace, lambda changes: changes)
    store.commit = _watched(store.commit, lambda commits: [each.change for each in commits])


def _watched(write: Any, changed: Callable[..., Any]) -> Any:
    def watched(*arguments: Any) -> Any:
        with _reporting():
            at_ms = time.time_ns() // 1_000_000
            found = write(*arguments)
            pairs = zip(changed(*arguments), found, strict=True)
            applied = [
                _told(*change) for change, answer in pairs if type(answer).__name__ == "Applied" and not _marks(*change)
            ]
            say("/writes", worker=worker, at_ms=at_ms, writes=applied)
            return found

    return watched


@contextmanager
def _reporting() -> Iterator[None]:
    global _under_way  # noqa: PLW0603  # one process, one count
    with _reported:
        _under_way += 1
    try:
        yield
    finally:
        with _reported:
            _under_way -= 1
            _reported.notify_all()


def _marks(new: Any, seen: Any) -> bool:
    """Whether a write only records who sends what the committed one has to send, or what of it was sent."""
    return seen is not None and seen.status == "SENDING" and new.status in ("SENDING", "COMPLETED")


def _told(new: Any, seen: Any) -> dict[str, Any]:
    """A write as evidence: a release removes the owner, and a claim that replaces another's is a take-over."""
    namespace, _, key = new.id.rpartition("#")
    move = {"COMPLETED": "complete", "SENDING": "complete", "FAILED": "fail"}.get(
        new.status, "claim" if new.owner else "release"
    )
    over = seen.owner if move == "claim" and seen is not None and seen.status == "INPROGRESS" else None
    return {"name": key, "step": namespace.rpartition(".")[2], "move": move, "attempt": new.attempts, "over": over}
