"""The log: what the handler, the proxy and the event source mapping saw, a JSON object a line, a file a process.

Every line is one write to a file that is opened for appending, so it is there whole or not at all, whatever becomes of
the process a moment later. A handler's line is on the disk before the handler goes on.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from pathlib import Path

# By the handler.


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A handler was entered, in a worker whose claim is good until `lease_until_ms` unless it is settled before."""

    at_ms: int
    worker: str
    key: str
    name: str
    attempt: int
    lease_until_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """A handler returned, or raised."""

    at_ms: int
    worker: str
    key: str
    ok: bool


# By the event source mapping.


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """A worker was sent SIGKILL: at random, or because its time was over."""

    at_ms: int
    worker: str
    overdue: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Freeze:
    """A worker was sent SIGSTOP."""

    at_ms: int
    worker: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Thaw:
    """A worker was sent SIGCONT, long after its leases had ended."""

    at_ms: int
    worker: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """A batch was given to a worker; `again` says that it was given out before, as SQS may."""

    at_ms: int
    worker: str
    keys: list[str]
    again: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged:
    """A worker's answer left the message out of its failures. `deleted` is False where that was not told to SQS."""

    at_ms: int
    worker: str
    key: str
    deleted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """An answer that is none: an invocation that raised, or that listed what was not in its event."""

    at_ms: int
    worker: str
    why: str


# By the proxy.

Move = Literal["claim", "complete", "fail", "release"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """DynamoDB applied a worker's write of a record: after `at_ms`, and before `done_ms`."""

    at_ms: int
    done_ms: int
    worker: str
    key: str
    move: Move


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """DynamoDB refused a worker's write of a record, for there was another, which `owner` had claimed."""

    at_ms: int
    worker: str
    key: str
    move: Move
    owner: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A request met with a fault."""

    at_ms: int
    worker: str
    name: str


Line = Start | End | Kill | Freeze | Thaw | Invocation | Acknowledged | Broken | Write | Refusal | Fault

_LINES = {kind.__name__: kind for kind in get_args(Line)}


def now_ms() -> int:
    """The machine's clock, which all processes share."""
    return time.time_ns() // 1_000_000


class Log:
    """A file of lines; threads may share it. `durable`: a line is on the disk when `write` returns."""

    def __init__(self, path: Path, *, durable: bool) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._durable = durable

    def write(self, line: Line) -> None:
        """Append a line."""
        text = json.dumps({"line": type(line).__name__, **asdict(line)}) + "\n"
        os.write(self._file, text.encode())
        if self._durable:
            os.fsync(self._file)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def lines_of(folder: Path) -> list[Line]:
    """All lines of all files, by their time."""
    found: list[Line] = []
    for path in sorted(folder.glob("*.jsonl")):
        for text in path.read_text().splitlines():
            told = json.loads(text)
            found.append(_LINES[told.pop("line")](**told))
    return sorted(found, key=lambda line: line.at_ms)
