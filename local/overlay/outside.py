"""Talking to the stand-in from inside the function. Where it listens is said by a file that is laid beside this one."""

from __future__ import annotations

import http.client
import json
import os
import signal
import threading
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

SETTINGS = Path(__file__).with_name("settings.json")
TIMEOUT_SECONDS = 8.0


class Refused(Exception):
    """The outside service did not do what it was asked for; it may later."""


@cache
def settings() -> dict[str, Any]:
    """`host`, `port` and `protection` of this run."""
    found: dict[str, Any] = json.loads(SETTINGS.read_text())
    return found


_thread = threading.local()


def say(path: str, **said: object) -> dict[str, Any]:
    """Tell the stand-in something; return its answer. Each thread keeps its connection."""
    connection: http.client.HTTPConnection | None = getattr(_thread, "connection", None)
    if connection is None:
        connection = http.client.HTTPConnection(settings()["host"], settings()["port"], timeout=TIMEOUT_SECONDS)
        _thread.connection = connection
    connection.request("POST", path, json.dumps(said))
    response = connection.getresponse()
    answer: dict[str, Any] = json.loads(response.read())
    if response.status != http.client.OK:
        raise ConnectionError(f"the stand-in answered {path} with {response.status}")
    return answer


def call(name: str, key: str) -> None:
    """The outside effect of a transfer, under its idempotency key. Raises Refused."""
    if not say("/calls", name=name, key=key)["accepted"]:
        raise Refused(f"the outside service refused {name}")


def die() -> NoReturn:
    """End this process as a crash would: at once, and nothing is cleaned up."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("a killed process does not go on")
