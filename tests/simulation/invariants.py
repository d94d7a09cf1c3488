"""The nine invariants, in words and as checks. The exploration and the random simulation both make them.

I1  No handler starts for a key while another live invocation holds an unexpired lease on it; none starts unclaimed.
I2  No handler starts for a key whose record is COMPLETED and has not expired.
I3  A COMPLETED record never changes before it expires.
I4  A message is acknowledged only if at that moment its record is COMPLETED, or SQS has confirmed its dead letter.
I5  An invocation that met no fault leaves no live claim behind.
I6  After the faults and one lease, one delivery without faults acknowledges everything.
I7  While a lease is live, only the invocation that holds the claim changes its record. No record is written that
    expires before its lease, because it would count as absent.
I8  COMPLETED or SENDING is written only after that worker's handler has succeeded for that key; but anybody may make
    SENDING COMPLETED.
I9  An invocation that nobody contends with, and that meets only transient faults of the store, acknowledges
    everything.

And of what stands on them: in a FIFO group nothing starts after a failure (FIFO); what a handler writes through its
transaction is there once if the record is COMPLETED, and else not at all (EFFECT); an answer names ids of its own
batch, each once (ANSWER). Of an answer over HTTP (HTTP): one that says done is the one that is stored, and is marked as
a replay for all but who made it; 409 is told only of a record that is in progress elsewhere; what failed for good was
raised by a handler, and is told only where that is the last word; whatever else asks the client to try again, and is
told by whom it concerns.

Of a workflow (WORKFLOW): an execution that runs has its key, so that nobody but the execution itself writes an outcome,
and its own is never refused; what is answered is what its record or its execution says; and after all faults two
sweeps, or a request and a sweep, leave no record that is not its execution's or does not say how that has ended.

Where failures are answers, FAILED is the last word as COMPLETED is, in I2, I3 and I4.

A worker that claims nothing (`effects="transaction"`) is not held to I1 and I2, since it runs what is new unread. What
it writes replaces only what was there when its handler started (SEEN), so that no run commits after another one, and
none over a failure that it has not seen. A dead letter is sent only by the worker that has recorded that failure
(LETTER), in all worlds. A message is done or dead-lettered, never both (BOTH), but for one case: its failure was
recorded and sent, and then a late duplicate, or the redriven dead letter, was run and is done.

Where charged attempts are limited, no message is claimed beyond its limit, or once it has failed for good (ATTEMPTS).
Whoever finds that may send its dead letter, but only while its record is FAILED (LETTER).

A record keeps the payload that first ran under its key, until it expires (PAYLOAD).

What a handler sends through its transaction is sent only if its record says that its effect took place, always under
one key, and at least once before that record is COMPLETED; and only what was sent is gone from its outbox (SENT).

Outside Lambda a worker that runs has not lost the lease of a handler that runs in it: it would be dead (LEASE).

"Live" allows for clocks: a lease counts as ended once some clock within the promised bound may say so.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    Item = Mapping[str, Any]
    Start = tuple[str, str, str | None]
    """A worker, the id that its handler started for, and the version of the record that was there."""

LEASE_MARGIN_SECONDS = 3.0
CLOCKS_DIFFER_SECONDS = 2.8
"""How far apart the clocks of two workers may be: less than the margin of each lease."""


class Violation(Exception):
    """An invariant does not hold. `rule` is its name."""

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(rule, what)
        self.rule = rule
        self.what = what

    def __str__(self) -> str:
        return f"{self.rule}: {self.what}"


def live(item: Item | None, now_ms: float) -> bool:
    """Whether this record's lease is unexpired by every clock within the bound."""
    if item is None or item["status"] not in ("INPROGRESS", "SENDING"):
        return False
    return bool(item["in_progress_expiration"] - CLOCKS_DIFFER_SECONDS * 1000 > now_ms)


def completed(item: Item | None, now_ms: float, *, failures: bool = False) -> bool:
    """Whether this record is COMPLETED and has not expired; or FAILED, if `failures` are final."""
    if item is None or item["expiration"] * 1000 <= now_ms:
        return False
    return bool(item["status"] == "COMPLETED" or (failures and item["status"] == "FAILED"))


def check_write(
    before: Item | None,
    after: Item | None,
    writer: str,
    now_ms: float,
    succeeded: Collection[tuple[str, str]],
    *,
    failures: bool = False,
) -> None:
    """I3, I7 and I8, for a write that took effect. `succeeded`: workers and ids whose handlers have returned."""
    if before == after:
        return
    if completed(before, now_ms, failures=failures):
        raise Violation("I3", f"{writer} changed a completed record from {shown(before)} to {shown(after)}")
    if before is not None and after is not None and before["expiration"] * 1000 > now_ms:
        payloads = before.get("validation"), after.get("validation")
        if None not in payloads and payloads[0] != payloads[1]:
            raise Violation("PAYLOAD", f"{writer} replaced another payload's record by {shown(after)}")
    if live(before, now_ms) and before is not None and before.get("owner") != writer:
        raise Violation("I7", f"{writer} changed {shown(before)} to {shown(after)} while its lease was live")
    if after is not None and after["expiration"] * 1000 < after.get("in_progress_expiration", 0):
        raise Violation(
            "I7", f"{writer} wrote {shown(after)}, which expires at {after['expiration']}, before its lease"
        )
    done = after is not None and after["status"] in ("SENDING", "COMPLETED")
    marks = before is not None and before["status"] == "SENDING"
    if after is not None and done and not marks and (writer, after["id"]) not in succeeded:
        raise Violation("I8", f"{writer} completed {after['id']}, for which its handler has not succeeded")


def check_start(
    id: str,
    worker: str,
    item: Item | None,
    now_ms: float,
    running: Iterable[str],
    *,
    failures: bool = False,
    waived: Collection[str] = (),
) -> None:
    """I1 and I2, for a handler that starts. `running`: the live workers, within their leases, that run this key.

    The rules in `waived` do not hold of this worker.
    """
    if "I2" not in waived and completed(item, now_ms, failures=failures):
        raise Violation("I2", f"{worker} starts {id}, which is completed: {shown(item)}")
    if "I1" in waived:
        return
    for other in running:
        raise Violation("I1", f"{worker} starts {id} while {other} runs it")
    if item is None or item["status"] != "INPROGRESS" or item.get("owner") != worker:
        raise Violation("I1", f"{worker} starts {id} without a claim: {shown(item)}")


def check_settled(before: Item | None, after: Item, writer: str) -> None:
    """I7, for a worker with claims: only a claim is written where there is no record. One that was deleted stays so."""
    if before is None and after["status"] != "INPROGRESS":
        raise Violation("I7", f"{writer} settles {after['id']}, whose record is gone: {shown(after)}")


def check_seen(before: Item | None, after: Item, writer: str, starts: Collection[Start]) -> None:
    """SEEN, for a write that took effect of a worker without claims. `starts`: what its handlers started with."""
    version = None if before is None else before.get("version")
    if (writer, after["id"], version) not in starts:
        raise Violation("SEEN", f"{writer} replaced {shown(before)}, which was not there when its handler started")


def check_dead_letter(id: str, worker: str, recorded: Collection[tuple[str, str]]) -> None:
    """LETTER, for a dead letter that is sent. `recorded`: the workers and ids whose failures have been recorded."""
    if (worker, id) not in recorded:
        raise Violation("LETTER", f"{worker} sends a dead letter of {id}, whose failure it has not recorded")


def check_both(id: str, worker: str, *, overruled: bool) -> None:
    """BOTH, for a run that completes a record and a dead letter of it. `overruled`: the run had started before the
    failure was recorded that the dead letter tells of.
    """
    if overruled:
        raise Violation("BOTH", f"{id} is done by {worker}, and a dead letter of a later failure was sent")


def check_sent(
    before: Item | None, after: Item, writer: str, sent: Collection[str], *, sends: bool = True, count: int = 1
) -> None:
    """SENT, for a write of the record of a handler that sends `count` messages. `sent`: the keys that SQS has taken.
    A writer of the release before that `sends` nothing, and leaves SENDING alone.
    """
    was = None if before is None else before["status"]
    if was == "SENDING" and before is not None:
        kept = [[item.get(name) for name in ("data", "validation", "attempts")] for item in (before, after)]
        goes_on = sends and after["status"] == "SENDING" and _only_confirmed(before["outbox"], after["outbox"], sent)
        if not (after["status"] == "COMPLETED" or goes_on) or kept[0] != kept[1]:
            raise Violation("SENT", f"{writer} replaced {shown(before)}, whose messages wait, by {shown(after)}")
    if after["status"] == "COMPLETED" and ((was == "SENDING") is not sends or (sends and len(sent) < count)):
        raise Violation("SENT", f"{writer} completed {after['id']}, whose message is not sent")


def _only_confirmed(before: str, after: str, sent: Collection[str]) -> bool:
    """Whether nothing but messages that SQS has taken is gone from an outbox."""
    pairs = enumerate(zip(json.loads(before), json.loads(after), strict=True), 1)
    return all(is_ == was or (is_ is None and any(key.endswith(f"-{n}") for key in sent)) for n, (was, is_) in pairs)


def check_answer(batch: Sequence[str], failed: Sequence[str]) -> None:
    """ANSWER, for the ids that an invocation reports as failed."""
    if len(set(failed)) < len(failed) or not set(failed) <= set(batch):
        raise Violation("ANSWER", f"of the batch {list(batch)} these are reported as failed: {list(failed)}")


def check_acknowledged(
    id: str, worker: str, item: Item | None, now_ms: float, dead_lettered: Collection[str], *, failures: bool = False
) -> None:
    """I4, for a message that an answer acknowledges. `dead_lettered`: the ids whose dead letters SQS has confirmed."""
    if id not in dead_lettered and not completed(item, now_ms, failures=failures):
        raise Violation("I4", f"{worker} acknowledged {id}: {shown(item)}")


def check_left_behind(worker: str, items: Iterable[Item | None], now_ms: float) -> None:
    """I5, for an invocation that met no fault and has answered."""
    for item in items:
        # A released record has no owner, and no live lease either.
        handed_over = item is not None and item.get("execution") is not None
        if live(item, now_ms) and item is not None and item.get("owner") in (worker, None) and not handed_over:
            raise Violation("I5", f"{worker} met no fault and leaves its claim behind: {shown(item)}")


def check_progress(worker: str, failed: Sequence[str]) -> None:
    """I9, for an invocation without contention, or I6, for one after all faults."""
    if failed:
        raise Violation("I9", f"{worker}, uncontended, reports {list(failed)} as failed")


def check_effect(id: str, item: Item | None, times: int) -> None:
    """EFFECT, for the number of times that a handler's own writes are there."""
    done = 1 if item is not None and item["status"] in ("SENDING", "COMPLETED") else 0
    if times != done:
        raise Violation("EFFECT", f"the effect of {id} is there {times} times: {shown(item)}")


def shown(item: Item | None) -> str:
    if item is None:
        return "no record"
    until = f" until {item['in_progress_expiration']}" if "in_progress_expiration" in item else ""
    return f"{item['status']} of {item.get('owner', 'nobody')}{until} (version {item.get('version')})"
