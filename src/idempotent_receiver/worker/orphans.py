"""Cleans up after a dead process: ends its leases and returns its messages to the queue.

Messages whose handlers had started become visible after a backoff, because one of them may have killed the process.
The others become visible at once, so that they are not received together with that message every time.
"""

import logging
from collections.abc import Sequence
from typing import Any

from idempotent_receiver.clock import Clock, Deadline
from idempotent_receiver.protocol import transitions
from idempotent_receiver.protocol.charges import NO_CHARGE, with_crash
from idempotent_receiver.protocol.exchange import CLAIM_RETRIES, Operation, exchange
from idempotent_receiver.protocol.record import Record, Status
from idempotent_receiver.protocol.sending import stop
from idempotent_receiver.protocol.store import RecordStore
from idempotent_receiver.protocol.transitions import Claim, Claimed
from idempotent_receiver.sqs.visibility import Backoff
from idempotent_receiver.worker.polling import PolledQueue, send_in_tens

LONGEST_SECONDS = 30


def give_back(
    orphans: Sequence[dict[str, Any]],
    store: RecordStore,
    queue: PolledQueue,
    clock: Clock,
    log: logging.Logger,
    *,
    backoff: Backoff,
    charged: bool = False,
) -> dict[str, int]:
    """Release a dead process's claims, and return its messages to the queue. Returns the visibility timeout, in
    seconds, of each message whose handler had started. Their records say that they have crashed, if crashes are
    `charged`. Best effort: if this fails, leases and timeouts run out.
    """
    try:
        _release(orphans, store, clock, charged=charged)
    except Exception as error:  # noqa: BLE001  # this process must start: its replacement would fail the same way
        log.warning("the claims of a dead process could not be released: %s", type(error).__name__)
    later = [backoff.seconds(one["receives"], clock) if one["started"] else 0 for one in orphans]
    send_in_tens(queue.change, [(one["handle"], seconds) for one, seconds in zip(orphans, later, strict=True)], log)
    return {one["id"]: seconds for one, seconds in zip(orphans, later, strict=True) if one["started"]}


def _release(orphans: Sequence[dict[str, Any]], store: RecordStore, clock: Clock, *, charged: bool) -> None:
    left = {one["record"]: one["owner"] for one in orphans if one["record"] is not None}
    started = {one["record"] for one in orphans if one["started"]}
    deadline = Deadline.after(clock, LONGEST_SECONDS * 1000)
    pending: list[Operation[Any]] = []
    for found in store.read(list(left)):
        # Another worker may have taken it over since.
        if isinstance(found, Record) and found.owner == left[found.id]:
            claim = Claim(found.id, found.validation, str(found.owner), found.lease_until_ms or 0)
            held = Claimed(found, claim)
            if found.status == Status.INPROGRESS:
                began = found.id in started
                release = transitions.release(held, deadline.now_ms, started=began, crash=charged and began)
                pending.append(Operation(release, found))
            elif found.status == Status.SENDING:
                cost = with_crash(found) if charged else NO_CHARGE
                pending.append(Operation(stop(held, str(found.outbox), deadline.now_ms, cost), found))
    while pending:
        pending = list(exchange(pending, store, deadline, max_retries=CLAIM_RETRIES).pending)
