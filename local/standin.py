"""The outside service, as far as the consumer can tell: it is asked to do something for each transfer, and keeps a log.

It is an HTTP server on loopback, in the process of `make run`. Handlers report here that they start and end, and call
here for their outside effect; every line is stamped with this process's clock, and beside each delivery, start and
call stands whether the ledger had that transfer posted *already*, which the stand-in reads for itself. So the books
need not believe a word of the worker's about what was run twice.

It is also where faults are decided, because what happens to a message must be remembered when its worker is dead.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Protocol

from local.story import FLAKY_REFUSALS, Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HOLD_SECONDS = 6.0
"""How long a handler is held at most, so that other deliveries of its message can arrive meanwhile."""

LEASE_MARGIN_MS = 3_000
"""What the consumer adds to its deadline: until then nobody else may start, even if the worker is dead."""


class Witness(Protocol):
    """Reads the ledger."""

    def __call__(self, names: Sequence[str], /) -> frozenset[str]:
        """Return those of the transfers that are posted now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A message was handed to the function; `done` says that its transfer had been posted by then."""

    at_ms: int
    invocation: str
    message_id: str
    name: str | None
    done: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A handler was entered. Its claim may hold until `lease_until_ms`, should nobody hear of it again."""

    at_ms: int
    invocation: str
    name: str
    lease_until_ms: int
    done: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """A handler and its transaction are over; `ok` says whether the transaction was committed."""

    at_ms: int
    invocation: str
    name: str
    ok: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The outside effect was asked for, and happened if `accepted`."""

    at_ms: int
    name: str
    key: str
    accepted: bool
    done: bool


Line = Delivery | Start | End | Call


class Standin:
    """The service's state; safe to call from several threads."""

    def __init__(self, kinds: Mapping[str, Kind]) -> None:
        self._log: list[Line] = []
        self.records: dict[str, dict[str, Any]] = {}
        """The SQS records as they were first delivered, by transfer: what an operator could deliver again."""
        self.trouble: Exception | None = None
        """What kept it from answering, if anything did: then its log is not complete."""
        self._kinds = kinds
        self._witness: Witness | None = None
        self._leases: dict[str, int] = {}
        self._starts: Counter[str] = Counter()
        self._calls: Counter[str] = Counter()
        self._held = {name: threading.Event() for name, kind in kinds.items() if kind is Kind.AT_ONCE}
        self._lock = threading.Lock()

    def attach(self, witness: Witness) -> None:
        """Let the stand-in read the ledger. It must be able to before the first delivery."""
        self._witness = witness

    def let_go(self, name: str) -> None:
        """Let the handler go on that is held for the other deliveries of its message."""
        self._held[name].set()

    def lines(self) -> list[Line]:
        """What has been heard so far, in order."""
        with self._lock:
            return list(self._log)

    @property
    def started(self) -> frozenset[str]:
        """The transfers whose handler has started."""
        return frozenset(line.name for line in self.lines() if isinstance(line, Start))

    @property
    def ended(self) -> frozenset[str]:
        """The transfers whose handler has ended well."""
        return frozenset(line.name for line in self.lines() if isinstance(line, End) and line.ok)

    def answer(self, path: str, said: Mapping[str, Any]) -> dict[str, Any]:
        """Answer one request."""
        match path:
            case "/deliveries":
                return self._delivered(said)
            case "/starts":
                return self._start(said)
            case "/ends":
                return self._end(said)
            case "/calls":
                return self._call(said)
            case _:
                raise ValueError(f"nothing is served at {path}")

    def _delivered(self, said: Mapping[str, Any]) -> dict[str, Any]:
        now = _now_ms()
        names = {record["messageId"]: _name(record["body"]) for record in said["records"]}
        done = self._posted([name for name in names.values() if name is not None])
        with self._lock:
            self._leases[said["invocation"]] = said["deadline_ms"] + LEASE_MARGIN_MS
            for record in said["records"]:
                id, name = record["messageId"], names[record["messageId"]]
                if name is not None:
                    self.records.setdefault(name, record)
                line = Delivery(at_ms=now, invocation=said["invocation"], message_id=id, name=name, done=name in done)
                self._log.append(line)
        return {}

    def _start(self, said: Mapping[str, Any]) -> dict[str, Any]:
        now, name = _now_ms(), said["name"]
        done = name in self._posted([name])
        with self._lock:
            lease = self._leases[said["invocation"]]
            line = Start(at_ms=now, invocation=said["invocation"], name=name, lease_until_ms=lease, done=done)
            self._log.append(line)
            self._starts[name] += 1
            first = self._starts[name] == 1
        if not first:
            return {"die": None}
        kind = self._kinds.get(name)
        if kind is Kind.AT_ONCE:
            self._held[name].wait(HOLD_SECONDS)
        return {"die": _DEATHS.get(kind) if kind is not None else None}

    def _end(self, said: Mapping[str, Any]) -> dict[str, Any]:
        line = End(at_ms=_now_ms(), invocation=said["invocation"], name=said["name"], ok=said["ok"])
        with self._lock:
            self._log.append(line)
        return {}

    def _call(self, said: Mapping[str, Any]) -> dict[str, Any]:
        now, name = _now_ms(), said["name"]
        done = name in self._posted([name])
        with self._lock:
            self._calls[name] += 1
            accepted = self._kinds.get(name) is not Kind.FLAKY or self._calls[name] > FLAKY_REFUSALS
            self._log.append(Call(at_ms=now, name=name, key=said["key"], accepted=accepted, done=done))
        return {"accepted": accepted}

    def _posted(self, names: Sequence[str]) -> frozenset[str]:
        assert self._witness is not None, "attached before the first message is sent"
        return self._witness(names) if names else frozenset()


_DEATHS = {Kind.KILLED_BEFORE: "before", Kind.KILLED_AFTER: "after"}


class Server:
    """The stand-in's ears: `with Server(standin) as port:`."""

    def __init__(self, standin: Standin) -> None:
        self._server = _Quiet(("127.0.0.1", 0), _handler_of(standin))

    def __enter__(self) -> int:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self._server.server_port

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a handler that is held must not hold us

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of connections that break: workers are killed here. What is ours to answer for is kept."""


def _handler_of(standin: Standin) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                status, answer = 200, standin.answer(self.path, said)
            except Exception as error:  # noqa: BLE001  # kept, for whoever waits for the story's end to raise
                status, answer, standin.trouble = 500, {}, error
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing: the log that counts is the stand-in's own."""

    return Handler


def _name(body: str) -> str | None:
    """The transfer that a body names, if it can be read at all."""
    try:
        found = json.loads(body)
    except ValueError:
        return None
    name = found.get("transfer_id") if isinstance(found, dict) else None
    return name if isinstance(name, str) else None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
