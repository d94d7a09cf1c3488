"""idemkit's conformance vectors, with our claims, settlements and renewals as their backend: on every engine that
several workers can use together.
"""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from idemkit.conformance import BackendConformance, backend
from idemkit.core.state import ClaimResult, ClaimResultType, State, StoredRecord

from idempotent_receiver import MemoryStore
from idempotent_receiver.clock import Deadline
from idempotent_receiver.protocol import transitions
from idempotent_receiver.protocol.answers import AlreadyCompleted, HeldElsewhere, Settled
from idempotent_receiver.protocol.exchange import ask
from idempotent_receiver.protocol.peek import Peek
from idempotent_receiver.protocol.record import Unread
from idempotent_receiver.protocol.renewal import Renewal
from idempotent_receiver.protocol.transitions import Claim, Claimed
from tests.manual_clock import ManualClock

if TYPE_CHECKING:
    from idempotent_receiver.protocol.record import Record
    from idempotent_receiver.protocol.store import RecordStore
    from tests.engines.engine import Engine

POLL_SECONDS = 0.05
VECTORS = 13


class Backend:
    """What idemkit asks of a backend, by our protocol. A claim's token is the version that it wrote."""

    def __init__(self, store: RecordStore) -> None:
        self.clock = ManualClock()
        self._store = store
        self._claims: dict[str, Claimed] = {}
        """The last claim of each key, as renewals have left it."""
        self._tokens: dict[str, Claimed] = {}

    async def claim(self, key: str, fingerprint: str, fingerprint_version: int, lease_seconds: float) -> ClaimResult:
        claim = Claim(key, fingerprint, "worker", lease_until_ms=0, lease_ms=int(lease_seconds * 1000))
        match answer := await self._asked(claim):
            case Claimed(record):
                self._claims[key] = self._tokens[str(record.version)] = answer
                kind = ClaimResultType.LEASE_RECLAIMED if answer.taken_over else ClaimResultType.NEW_CLAIMED
                return ClaimResult(kind, _stored(record), record.version)
            case AlreadyCompleted(record):
                return ClaimResult(ClaimResultType.ALREADY_COMPLETED, _stored(record))
            case HeldElsewhere():
                return ClaimResult(ClaimResultType.ALREADY_CLAIMED, _stored(self._read(key)))
        raise AssertionError(answer)

    async def complete(  # noqa: PLR0917  # idemkit passes them by position
        self, key: str, token: str, status: int, headers: dict[str, str], body: bytes, retention_seconds: float
    ) -> bool:
        held = self._held(key, token)
        held = replace(held, claim=held.claim._replace(retention_seconds=round(retention_seconds)))
        data = json.dumps({"status": status, "headers": headers, "body": body.decode()})
        return isinstance(await self._asked(transitions.complete(held, data)), Settled)

    async def release(self, key: str, token: str) -> bool:
        return isinstance(
            await self._asked(transitions.release(self._held(key, token), self.clock.epoch_ms())), Settled
        )

    async def renew(self, key: str, token: str, lease_seconds: float) -> bool:
        held = self._held(key, token)
        answer = await self._asked(Renewal(held.record, int(lease_seconds * 1000), held.claim.retention_seconds))
        if isinstance(answer, Settled):
            self._tokens[token] = replace(held, record=answer.record)
        return isinstance(answer, Settled)

    async def wait_for_completion(self, key: str, timeout_seconds: float) -> StoredRecord | None:
        ends = self.clock.seconds + timeout_seconds
        while self.clock.seconds < ends:
            answer = await self._asked(Peek(self._claims[key].claim))
            if isinstance(answer, AlreadyCompleted):
                return _stored(answer.record)
            await self.sleep(POLL_SECONDS)
        return None

    async def sleep(self, seconds: float) -> None:
        """Let others go on, and the time pass. Records end in whole seconds, and so does a wait for the end of one."""
        await asyncio.sleep(0)
        self.clock.seconds += seconds
        if seconds > 1:
            self.clock.seconds = math.ceil(self.clock.seconds)

    def _held(self, key: str, token: str) -> Claimed:
        """What the token claimed. Whoever forges one is refused by the store, not by us."""
        last = self._claims[key]
        return self._tokens.get(token) or replace(last, record=last.record._replace(version=token))

    async def _asked(self, transition: Any) -> Any:
        standing = getattr(transition, "standing", getattr(transition, "held", None))
        seen = Unread() if isinstance(transition, Peek) else standing
        return await asyncio.to_thread(ask, transition, seen, self._store, Deadline.after(self.clock, 60_000))

    def _read(self, key: str) -> Any:
        (record,) = self._store.read([key])
        return record


def _stored(record: Record) -> StoredRecord:
    said = json.loads(record.data or "{}")
    return StoredRecord(
        effective_key=record.id,
        state=State.COMPLETED if record.status == "COMPLETED" else State.CLAIMED,
        fingerprint=record.validation or "",
        fingerprint_version=1,
        claim_token=str(record.version),
        claimed_at=0.0,
        lease_until=(record.in_progress_expiration or 0) / 1000,
        response_status=said.get("status"),
        response_headers=said.get("headers", {}),
        response_body=said.get("body", "").encode(),
    )


class Forgetful(Backend):
    """The control: a renewal that nobody sends."""

    async def renew(self, key: str, token: str, lease_seconds: float) -> bool:
        return token in self._tokens


def failures(under_test: Backend, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The vectors that fail, in the time of the backend's clock."""
    monkeypatch.setattr(backend, "asyncio", SimpleNamespace(sleep=under_test.sleep, gather=asyncio.gather))
    report = asyncio.run(BackendConformance(under_test).run())
    assert report.total == VECTORS
    return [f"{one.vector_id}: {one.error}" for one in report.failures]


def test_every_vector_passes(shared_engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims, fencing, leases that end, waiting, retention and renewals."""
    assert failures(Backend(shared_engine.store), monkeypatch) == []


def test_it_does_not_matter_how_often_a_slow_engine_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time takes a part of a second, and the record that is to end begins within one."""
    slow = Backend(MemoryStore())
    slow.clock.seconds += 6 * POLL_SECONDS
    assert failures(slow, monkeypatch) == []


def test_the_vectors_can_fail(shared_engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease that is not renewed is taken over."""
    (failure,) = failures(Forgetful(shared_engine.store), monkeypatch)

    assert failure.startswith("renew-extends-lease")
