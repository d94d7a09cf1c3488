"""A proxy in front of the cloud: an unreliable network, which can be partitioned.

Workers reach the cloud only through it. Each request may meet with a fault (`network_faults.py`). What
DynamoDB really applied is logged before the worker can hear of it, so the log knows more than any worker does. As on a
network, a request that was read is handed on even if its sender is dead by then.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import urllib3

from harness.cloud import LOOPBACK
from harness.workload.evidence import Fault, Posted, Refusal, Stamped, Write, now_ms
from idempotent_receiver.local.server import ServerError
from tests.chaos.network_faults import NetworkFaults
from tests.chaos.settings import ENTRIES, RECORDS, REDRIVER
from tests.chaos.wire import Refused, fates_of, postings_of, stamps_of, writes_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.serving import Respond
    from harness.workload.evidence import Log
    from tests.chaos.network_faults import Json

NOT_FORWARDED = {"host", "content-length", "connection"}


class Proxy:
    """What all connections share."""

    def __init__(self, upstream_port: int, seed: int, log: Log) -> None:
        # A connection that the cloud has closed meanwhile is not an intended fault.
        self._upstream = urllib3.HTTPConnectionPool(LOOPBACK, upstream_port, maxsize=64, timeout=60.0)
        self._faults = NetworkFaults(seed)
        self._log = log
        self._under_way = 0
        self.requests: Counter[str] = Counter()
        """How many requests workers have sent, by their operations."""
        self.shared: Counter[int] = Counter()
        """How many transactions of so many messages workers have sent."""
        self._applied: set[str | None] = set()
        """The tokens of the transactions that were applied."""
        self._changed = threading.Condition()
        self._failure: Exception | None = None

    def respond(self, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes] | None:
        """Answer one request, if its fault allows an answer."""
        with self._changed:
            self._under_way += 1
        try:
            return self._passed_on(headers, body)
        except Exception as error:  # noqa: BLE001  # not a fault that was meant: the log is worth nothing then
            self._failure = error
            return None
        finally:
            with self._changed:
                self._under_way -= 1
                self._changed.notify_all()

    def _passed_on(self, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes] | None:
        operation, worker = headers["X-Amz-Target"].partition(".")[2], worker_of(headers)
        request = json.loads(body)
        records = len(writes_of(operation, request, RECORDS))
        with self._changed:
            if worker != REDRIVER:
                self.requests[operation] += 1
            if operation == "TransactWriteItems":
                self.shared[records] += 1
            fault = self._faults.choose(operation, request)
        if fault is None:
            return self._asked(headers, operation, request, worker, body)
        self._log.write(Fault(at_ms=now_ms(), worker=worker, fault=fault.name, records=records))
        time.sleep(fault.delay_seconds)
        arriving, answer = fault.arriving(request), None
        if arriving is not None:
            status, answered = self._asked(headers, operation, arriving, worker, json.dumps(arriving).encode())
            answer = status, json.loads(answered or b"{}")
        told = fault.answering(request, answer)
        return None if told is None else (told[0], json.dumps(told[1]).encode())

    def await_quiet(self, timeout_seconds: float) -> None:
        """Wait until every request that is on its way has arrived. Raises ServerError if not all could."""
        with self._changed:
            quiet = self._changed.wait_for(lambda: self._under_way == 0, timeout_seconds)
        if self._failure is not None:
            raise ServerError("the proxy met with a failure that was not meant") from self._failure
        if not quiet:
            raise ServerError(f"requests were still on their way after {timeout_seconds:.0f} s")

    def _asked(
        self, headers: Mapping[str, str], operation: str, request: Json, worker: str, body: bytes
    ) -> tuple[int, bytes]:
        """Ask the cloud, and log what came of writes of records."""
        writes, at_ms = writes_of(operation, request, RECORDS), now_ms()
        kept = {name: value for name, value in headers.items() if name.lower() not in NOT_FORWARDED}
        response = self._upstream.urlopen("POST", "/", body, kept, retries=False)
        status, answer = response.status, response.data
        if status == 200:
            self._posted(operation, request, worker, at_ms)
            for id, key, reason in stamps_of(operation, request, json.loads(answer or b"{}")):
                sent: Any = {"at_ms": at_ms, "done_ms": now_ms(), "worker": worker, "name": id, "key": key}
                self._log.write(Stamped(**sent, reason=reason))
        fates = fates_of(operation, status, json.loads(answer), writes) if writes else ()
        for write, fate in ((write, fate) for write, fate in zip(writes, fates, strict=True) if not write.marks):
            said: Any = {"at_ms": at_ms, "worker": worker, "name": write.key, "move": write.move}
            match fate:
                case True:
                    self._log.write(Write(**said, done_ms=now_ms(), version=write.version or ""))
                case Refused(owner):
                    self._log.write(Refusal(**said, owner=owner))
        return status, answer

    def _posted(self, operation: str, request: Json, worker: str, at_ms: int) -> None:
        """Log what the ledger has applied. A repeat under its token is answered, and not applied again."""
        postings = postings_of(operation, request, ENTRIES)
        token = request.get("ClientRequestToken")
        with self._changed:
            if not postings or token in self._applied:
                return
            self._applied |= {token} - {None}
        for transfer, moves in postings.items():
            self._log.write(Posted(at_ms=at_ms, done_ms=now_ms(), worker=worker, name=transfer, moves=moves))


def worker_of(headers: Mapping[str, str]) -> str:
    """The worker that has sent this, as it calls itself."""
    found = re.search(r"worker/(\S+)", headers.get("User-Agent", ""))
    return "nobody" if found is None else found[1]


class Service(StrEnum):
    """Services, by the prefixes of their requests' targets."""

    DYNAMODB = "DynamoDB"
    SQS = "AmazonSQS"


class Cut(StrEnum):
    """What a worker cut off from a service notices."""

    REQUESTS_HANG = "requests hang"
    ANSWERS_HANG = "answers hang"
    """The requests take effect at once."""
    CONNECTIONS_BREAK = "connections break"


class Partition(NamedTuple):
    """For a while nothing passes between a worker and one service, and nobody else notices anything. Nothing that hangs
    is lost: a request goes on when its partition ends, though its sender has given up long before, and may be dead.

    `worker` is a part of the names of those who are parted: of one process, or of all that a supervisor has.
    """

    worker: str
    service: Service
    cut: Cut
    ends_seconds: float


class Partitions:
    """Stands in front of what responds."""

    def __init__(self, respond: Respond) -> None:
        self._respond = respond
        self._partitions: list[Partition] = []
        self._lock = threading.Lock()
        self.met: Counter[tuple[Service, Cut]] = Counter()
        """How many requests and answers met with a partition."""

    def part(self, worker: str, service: Service, cut: Cut, seconds: float) -> None:
        """Let nothing pass between them from now on."""
        now = time.monotonic()
        with self._lock:
            lasting = [one for one in self._partitions if one.ends_seconds > now]
            self._partitions = [*lasting, Partition(worker, service, cut, now + seconds)]

    def await_end(self) -> None:
        """Wait until nobody is parted from anything."""
        now = time.monotonic()
        time.sleep(max((one.ends_seconds - now for one in self._partitions if one.ends_seconds > now), default=0.0))

    def respond(self, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes] | None:
        """Let one request pass, and its answer, as soon as both may."""
        if not self._passes(headers, always=Cut.ANSWERS_HANG):
            return None
        answer = self._respond(path, headers, body)
        return answer if self._passes(headers) else None

    def _passes(self, headers: Mapping[str, str], *, always: Cut | None = None) -> bool:
        partition = self._between(headers)
        if partition is None or partition.cut is always:
            return True
        with self._lock:
            self.met[partition.service, partition.cut] += 1
        if partition.cut is Cut.CONNECTIONS_BREAK:
            return False
        time.sleep(max(0.0, partition.ends_seconds - time.monotonic()))
        return True

    def _between(self, headers: Mapping[str, str]) -> Partition | None:
        workers, target, now = worker_of(headers).split("/"), headers["X-Amz-Target"], time.monotonic()
        for one in self._partitions:
            if one.worker in workers and target.startswith(one.service) and one.ends_seconds > now:
                return one
        return None
