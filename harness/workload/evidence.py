"""The evidence of a run: what its observers saw, a line each, and what was found in the ledger and among dead letters.

Observers are handlers, the fake service, a proxy and an event source mapping.

A file of lines belongs to one process. Every line is one write to a file that is opened for appending, so it is there
whole or not at all, whatever happens to the process a moment later.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What every line says: when it happened."""

    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenOfWorker(Seen):
    """`worker` is the name of a process; where processes have none, the id of its invocation."""

    worker: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery(SeenOfWorker):
    """A message was given to a worker. `done` says that its transfer had been posted by then, if anybody looked.

    Here and below, `name` is the transfer's id or the message's key, whichever the observer knew; None if neither.
    """

    name: str | None
    done: bool = False
    again: bool = False
    """Whether an event source mapping gave the same batch out before, as SQS may."""
    key: str | None = None
    sent_ms: int = 0
    receives: int = 0
    """The message's id, when SQS says that it was sent, and how often it was received; by whoever saw its record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start(SeenOfWorker):
    """A handler was entered. Its claim may hold until `lease_until_ms` unless it is settled before."""

    name: str
    lease_until_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class End(SeenOfWorker):
    """A handler is over. For the fake service so is its transaction, and `ok` says that it was committed."""

    name: str
    ok: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Seen):
    """The outside effect was asked for, and happened if `accepted`; `done`: its transfer had been posted by then."""

    name: str
    accepted: bool
    done: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill(SeenOfWorker):
    """A worker was sent SIGKILL: at random, or because its time was over. `place`: where the fault of `name` lay."""

    overdue: bool
    name: str | None = None
    place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Freeze(SeenOfWorker):
    """A worker was sent SIGSTOP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thaw(SeenOfWorker):
    """A worker was sent SIGCONT, long after its leases had ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged(SeenOfWorker):
    """A worker's answer left the message out of its failures. `deleted` is False if SQS was not told."""

    name: str
    deleted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken(SeenOfWorker):
    """An invocation raised, or listed what was not in its event."""

    why: str


Move = Literal["claim", "complete", "fail", "release"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Write(SeenOfWorker):
    """DynamoDB applied a worker's write of a record: after `at_ms`, and before `done_ms`.

    A claim is the key's `attempt`, and takes it `over` from a worker that never settled. `step`: of the workflow.
    `version` is what it put, where that was seen.
    """

    done_ms: int
    name: str
    move: Move
    attempt: int = 0
    over: str | None = None
    step: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Posted(SeenOfWorker):
    """The ledger applied a transfer, after `at_ms` and before `done_ms`: what it moved, account by account."""

    done_ms: int
    name: str
    moves: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked(SeenOfWorker):
    """A worker has got a request."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply(SeenOfWorker):
    """What a request was answered that was made first at `since_ms`."""

    since_ms: int
    name: str
    status: int
    result: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal(SeenOfWorker):
    """DynamoDB refused a worker's write of a record because of another record, which `owner` had claimed."""

    name: str
    move: Move
    owner: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamped(SeenOfWorker):
    """SQS took a message with its `key`, as `name`: a worker's dead letter, or, without a `reason`, one redriven."""

    done_ms: int
    name: str
    key: str
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault(SeenOfWorker):
    """A request met with a fault on its way; it was to write so many records."""

    fault: str
    records: int = 0


Line = (
    Delivery
    | Start
    | End
    | Call
    | Kill
    | Freeze
    | Thaw
    | Acknowledged
    | Broken
    | Write
    | Posted
    | Asked
    | Reply
    | Refusal
    | Stamped
    | Fault
)

_LINES = {kind.__name__: kind for kind in get_args(Line)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One side of a transfer in the ledger; `times` is how often it was written, where the ledger counts that."""

    transfer: str
    account: str
    amount: int
    times: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A message in the dead-letter queue: the id that it was sent under, and why it is there, if it says so itself."""

    message_id: str
    reason: str | None
    sent_ms: int = 0
    receipt_handle: str = ""


def now_ms() -> int:
    """The machine's clock, which all processes share."""
    return time.time_ns() // 1_000_000


class Log:
    """A file of lines; threads may share it. `durable`: a line is on the disk when `write` returns."""

    def __init__(self, path: Path, *, durable: bool = False) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._durable = durable

    def write(self, line: Line) -> None:
        text = json.dumps({"line": type(line).__name__, **asdict(line)}) + "\n"
        os.write(self._file, text.encode())
        if self._durable:
            os.fsync(self._file)

    def close(self) -> None:
        os.close(self._file)


def lines_of(folder: Path) -> list[Line]:
    """All lines of all files, by their time."""
    found: list[Line] = []
    for path in sorted(folder.glob("*.jsonl")):
        for text in path.read_text().splitlines():
            told = json.loads(text)
            found.append(_LINES[told.pop("line")](**told))
    return sorted(found, key=lambda line: line.at_ms)
