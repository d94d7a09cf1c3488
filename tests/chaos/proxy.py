"""The way to the cloud, behind which the network is unreliable: `python -m tests.chaos.proxy PORT`, on loopback.

Workers reach the cloud only through this process. Each request may meet with a fault (`network_faults.py`). What
DynamoDB really applied is logged before the worker can hear of it, so the log knows more than any worker does. As on a
network, a request that was read is handed on even if its sender is dead by then.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import urllib3

from local.cloud import LOOPBACK
from local.server import ServerError
from local.serving import server_of
from local.workload.evidence import Fault, Log, Refusal, Write, now_ms
from tests.chaos.network_faults import NetworkFaults
from tests.chaos.settings import RECORDS, Settings
from tests.chaos.wire import Applied, Refused, fates_of, writes_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.chaos.network_faults import Json

QUIET = "/quiet"
"""A request for this is answered once no other request is on its way."""
NOT_FORWARDED = {"host", "content-length", "connection"}


class Proxy:
    """What all connections share."""

    def __init__(self, upstream_port: int, seed: int, log: Log) -> None:
        # A connection that the cloud has closed meanwhile is no fault that was meant.
        self._upstream = urllib3.HTTPConnectionPool(LOOPBACK, upstream_port, maxsize=64, timeout=60.0)
        self._faults = NetworkFaults(seed)
        self._log = log
        self._under_way = 0
        self._changed = threading.Condition()
        self._failure: Exception | None = None

    def respond(self, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes] | None:
        """Answer one request, if the fault that it meets with lets it be answered."""
        if path == QUIET:
            return self._quiet()
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
        operation, worker = headers["X-Amz-Target"].partition(".")[2], _worker_of(headers)
        request = json.loads(body)
        with self._changed:
            fault = self._faults.choose(operation, request)
        if fault is None:
            return self._asked(headers, operation, request, worker, body)
        self._log.write(Fault(at_ms=now_ms(), worker=worker, fault=fault.name))
        time.sleep(fault.delay_seconds)
        arriving, answer = fault.arriving(request), None
        if arriving is not None:
            status, answered = self._asked(headers, operation, arriving, worker, json.dumps(arriving).encode())
            answer = status, json.loads(answered or b"{}")
        told = fault.told(request, answer)
        return None if told is None else (told[0], json.dumps(told[1]).encode())

    def _quiet(self) -> tuple[int, bytes]:
        with self._changed:
            self._changed.wait_for(lambda: self._under_way == 0)
        return (200, b"") if self._failure is None else (500, repr(self._failure).encode())

    def _asked(
        self, headers: Mapping[str, str], operation: str, request: Json, worker: str, body: bytes
    ) -> tuple[int, bytes]:
        """Ask the cloud, and log what came of writes of records."""
        writes, at_ms = writes_of(operation, request, RECORDS), now_ms()
        kept = {name: value for name, value in headers.items() if name.lower() not in NOT_FORWARDED}
        response = self._upstream.urlopen("POST", "/", body, kept, retries=False)
        status, answer = response.status, response.data
        fates = fates_of(operation, status, json.loads(answer), len(writes)) if writes else ()
        for write, fate in zip(writes, fates, strict=True):
            match fate:
                case Applied():
                    line = Write(at_ms=at_ms, done_ms=now_ms(), worker=worker, name=write.key, move=write.move)
                    self._log.write(line)
                case Refused(owner):
                    self._log.write(Refusal(at_ms=at_ms, worker=worker, name=write.key, move=write.move, owner=owner))
        return status, answer


def _worker_of(headers: Mapping[str, str]) -> str:
    found = re.search(r"worker/(\S+)", headers.get("User-Agent", ""))
    return "nobody" if found is None else found[1]


@dataclass(frozen=True, slots=True)
class Program:
    """How the proxy is started, and how it says that it is ready."""

    settings: Settings

    def command(self, port: int) -> Sequence[str]:
        """Return the command line."""
        return [sys.executable, "-m", "tests.chaos.proxy", str(port)]

    def environment(self, port: int) -> Mapping[str, str]:
        """Return where it leads to, and where it writes."""
        return self.settings.environment()

    def ready(self, port: int) -> bool:
        """Say whether it answers."""
        try:
            await_quiet(port, timeout_seconds=1)
        except ServerError:
            return False
        return True


def await_quiet(port: int, *, timeout_seconds: float) -> None:
    """Wait until every request that is on its way has arrived. Raises ServerError if not all could."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=timeout_seconds)
    with contextlib.closing(connection):
        try:
            connection.request("POST", QUIET)
            response = connection.getresponse()
            said = response.read().decode()
        except (OSError, http.client.HTTPException) as error:
            raise ServerError("the proxy does not answer") from error
    if response.status != http.client.OK:
        raise ServerError(f"the proxy met with a fault that was not meant: {said}")


def main(port: int) -> None:
    """Serve until somebody ends this process."""
    settings = Settings.from_environment()
    proxy = Proxy(settings.port, settings.seed, Log(Path(settings.log)))
    with server_of(proxy.respond, port) as server, contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]))
