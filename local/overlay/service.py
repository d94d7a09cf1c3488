"""Talks to the fake service from inside the functions. A file beside this one says where it listens."""

from __future__ import annotations

import http.client
import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

SETTINGS = Path(__file__).with_name("settings.json")
TIMEOUT_SECONDS = 8.0

settings: dict[str, Any] = json.loads(SETTINGS.read_text())
"""`host`, `port` and `protection` of this run."""
_thread = threading.local()


class ServiceUnavailable(Exception):
    """The outside service did not do what it was asked for; it may later."""


def say(path: str, **said: object) -> dict[str, Any]:
    """Tell the fake service something; return its answer. Each thread keeps its connection."""
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
    """The outside effect of a transfer. Raises ServiceUnavailable."""
    if not say("/calls", name=name)["accepted"]:
        raise ServiceUnavailable(f"the outside service refused {name}")


def reach(name: str, place: str) -> None:
    """Come to a place with a transfer: a process may be held there, or may die as by a crash, with no cleanup."""
    if say("/places", name=name, place=place)["die"]:
        os.kill(os.getpid(), signal.SIGKILL)
