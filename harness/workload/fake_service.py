"""A fake of the outside service that handlers call: it does something for each transfer, and keeps a log.

It is an HTTP server on loopback, in the run's process. Handlers report their starts and ends here, and call here for
their outside effect. Every line has a timestamp of this process's clock. Each delivery and call also records whether
the ledger had *already* posted that transfer. The service reads this itself, so reconciliation need not trust the
worker about what ran twice.

Faults are decided here as well, because a message's fault must be remembered after its worker's death.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeAlias

from harness.workload.evidence import Call, Delivery, End, Kill, Start, Write, now_ms
from harness.workload.transfers import DEATHS, HOLDS, Kind, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from harness.workload.evidence import Line

HOLD_SECONDS = 6.0
"""The longest time that a process is held for something to happen to its message."""

FLAKY_REFUSALS = 2
"""How often a flaky transfer is refused before it is accepted."""

LEASE_MARGIN_MS = 3_000
"""What the consumer adds to its deadline: no other worker may start before then, even if this one is dead."""


Ledger: TypeAlias = "Callable[[Sequence[str]], frozenset[str]]"
"""Tells which of these transfers are posted now."""


class FakeService:
    """The service's state. Thread-safe."""

    def __init__(self, ledger: Ledger | None = None, *, hold_seconds: float = HOLD_SECONDS) -> None:
        self._hold_seconds = hold_seconds
        self.ledger = ledger
        """Must be set before the first delivery."""
        self.records: dict[str, dict[str, Any]] = {}
        """The SQS records of first deliveries, by transfer: what an operator could deliver again."""
        self.failure: Exception | None = None
        """What kept it from answering, if anything: then its log is incomplete."""
        self.deaths = 0
        self._log: list[Line] = []
        self._names: dict[str, str] = {}
        self._leases: dict[str, int] = {}
        self._calls: Counter[str] = Counter()
        self._reached: dict[tuple[str, str], threading.Event] = {}
        self._lock = threading.Lock()

    def reached(self, name: str, place: str) -> bool:
        """Whether a process has reached this place with this transfer."""
        with self._lock:
            return (name, place) in self._reached

    def let_go(self, name: str) -> None:
        """Release the process held with this transfer."""
        self._reached[name, HOLDS[kind_of(name)]].set()

    def lines(self) -> list[Line]:
        with self._lock:
            return list(self._log)

    def is_done(self, name: str) -> bool:
        """Whether a transfer's handler has succeeded, or a delivery has found it posted: its worker may have died
        between the two.
        """
        lines = [line for line in self.lines() if isinstance(line, (End, Delivery)) and line.name == name]
        return any(line.ok if isinstance(line, End) else line.done for line in lines)

    def respond(self, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        try:
            return 200, json.dumps(self.answer(path, json.loads(body))).encode()
        except Exception as error:  # noqa: BLE001  # kept for the driver to raise
            self.failure = error
            return 500, b"{}"

    def answer(self, path: str, said: Mapping[str, Any]) -> dict[str, Any]:
        match path:
            case "/deliveries":
                return self._delivered(**said)
            case "/starts":
                return self._started(**said)
            case "/ends":
                return self._note(End(at_ms=now_ms(), **said))
            case "/calls":
                return self._called(**said)
            case "/writes":
                return self._written(**said)
            case "/places":
                return {"die": self._dies_at(**said)}
            case _:
                raise ValueError(f"no such path: {path}")

    def _note(self, *lines: Line) -> dict[str, Any]:
        with self._lock:
            self._log.extend(lines)
        return {}

    def _delivered(self, worker: str, deadline_ms: int, records: Sequence[dict[str, Any]]) -> dict[str, Any]:
        now, names = now_ms(), [_name(record["body"]) for record in records]
        done = self._posted([name for name in names if name is not None])
        self._leases[worker] = deadline_ms + LEASE_MARGIN_MS
        for record, name in zip(records, names, strict=True):
            if name is not None:
                self.records.setdefault(name, record)
                self._names[record["messageId"]] = name
        told = [{"name": name, "done": name in done, **_told(each)} for each, name in zip(records, names, strict=True)]
        return self._note(*(Delivery(at_ms=now, worker=worker, **each) for each in told))

    def _started(self, worker: str, name: str) -> dict[str, Any]:
        self._note(Start(at_ms=now_ms(), worker=worker, name=name, lease_until_ms=self._leases[worker]))
        return {"die": self._dies_at(name, "handler")}

    def _called(self, name: str) -> dict[str, Any]:
        now, done = now_ms(), name in self._posted([name])
        with self._lock:
            self._calls[name] += 1
            accepted = kind_of(name) is not Kind.FLAKY or self._calls[name] > FLAKY_REFUSALS
        self._note(Call(at_ms=now, name=name, accepted=accepted, done=done))
        return {"accepted": accepted}

    def _written(self, worker: str, at_ms: int, writes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        lines = [{**each, "name": self._names.get(each["name"], each["name"])} for each in writes]
        return self._note(*(Write(at_ms=at_ms, done_ms=now_ms(), worker=worker, **each) for each in lines))

    def _dies_at(self, name: str, place: str, worker: str = "") -> bool:
        """Whether a process dies that reaches this place with this transfer: the first one does, or is held there."""
        kind = kind_of(name)
        with self._lock:
            if (name, place) in self._reached:
                return False
            go_on = self._reached[name, place] = threading.Event()
            dies = DEATHS.get(kind) == place
            self.deaths += dies
            if dies:
                self._log.append(Kill(at_ms=now_ms(), worker=worker, overdue=False, name=name, place=place))
        if HOLDS.get(kind) == place:
            go_on.wait(self._hold_seconds)
        return dies

    def _posted(self, names: Sequence[str]) -> frozenset[str]:
        assert self.ledger is not None, "attached before the first message is sent"
        return self.ledger(names) if names else frozenset()


def _told(record: Mapping[str, Any]) -> dict[str, Any]:
    """What an SQS record says about its message."""
    said = {"SentTimestamp": 0, "ApproximateReceiveCount": 0, **record.get("attributes", {})}
    times = {"sent_ms": int(said["SentTimestamp"]), "receives": int(said["ApproximateReceiveCount"])}
    return {"key": record["messageId"], **times}


def _name(body: str) -> str | None:
    """The transfer that a body names, if it can be read."""
    try:
        found = json.loads(body)
    except ValueError:
        return None
    name = found.get("transfer_id") if isinstance(found, dict) else None
    return name if isinstance(name, str) else None
