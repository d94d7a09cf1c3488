"""The evidence of a run: what its observers saw, one line each, and the contents of the ledger and dead-letter queue.

Observers are handlers, the fake service, a proxy and an event source mapping.

A file of lines belongs to one process. Every line is one write to a file opened for appending, so it is recorded whole
or not at all, whatever happens to the process afterwards.
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
    """Common to every line: when it happened."""

    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenOfWorker(Seen):
    """`worker` is the name of a process or, if processes have none, the id of its invocation."""

    worker: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery(SeenOfWorker):
    """A worker received a message. `done` tells that its transfer had been posted by then, if checked.

    Here and below, `name` is the transfer's id or the message's key, whichever the observer knew; None if neither.
    """

    name: str | None
    done: bool = False
    again: bool = False
    """Whether an event source mapping delivered the same batch before, as SQS may."""
    key: str | None = None
    sent_ms: int = 0
    receives: int = 0
    """The message's id, SQS's sent timestamp and the receive count; known if its record was seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start(SeenOfWorker):
    """A handler was entered. Its claim may hold until `lease_until_ms` unless settled earlier."""

    name: str
    lease_until_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class End(SeenOfWorker):
    """A handler has ended. For the fake service, so has its transaction; `ok` tells that it was committed."""

    name: str
    ok: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Seen):
    """The outside effect was requested, and happened if `accepted`; `done`: its transfer had been posted by then."""

    name: str
    accepted: bool
    done: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill(SeenOfWorker):
    """A worker was sent SIGKILL, at random or because its time was up. `place`: where the fault of `name` lay."""

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
    """An invocation raised, or listed a message that was not in its event."""

    why: str


Move = Literal["claim", "complete", "fail", "release"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Write(SeenOfWorker):
    """DynamoDB applied a worker's write of a record: after `at_ms`, and before `done_ms`.

    A claim is the key's `attempt`, and takes it `over` from a worker that never settled. `step`: of the workflow.
    `version` is the one written, if observed.
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
    """A worker received a request."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply(SeenOfWorker):
    """The answer to a request first made at `since_ms`."""

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
    """SQS accepted a message with its `key`, as `name`: a worker's dead letter or, without a `reason`, a redriven
    message.
    """

    done_ms: int
    name: str
    key: str
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault(SeenOfWorker):
    """A request met a fault on its way; it was meant to write this many records."""

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
    """One side of a transfer in the ledger; `times` is how often it was written, if the ledger counts that."""

    transfer: str
    account: str
    amount: int
    times: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A message in the dead-letter queue: its original id, and its own reason, if any."""

    message_id: str
    reason: str | None
    sent_ms: int = 0
    receipt_handle: str = ""


def now_ms() -> int:
    """The machine's clock, shared by all processes."""
    return time.time_ns() // 1_000_000


class Log:
    """A file of lines; threads may share it. `durable`: a line is on disk when `write` returns."""

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
    """All lines of all files, by time."""
    found: list[Line] = []
    for path in sorted(folder.glob("*.jsonl")):
        for text in path.read_text().splitlines():
            told = json.loads(text)
            found.append(_LINES[told.pop("line")](**told))
    return sorted(found, key=lambda line: line.at_ms)
