"""What a message itself has cost, and whether it may cost more.

SQS counts receives, and a message is received for what is not its own: behind a failure in its FIFO group, while
another worker has its key, with a neighbour that kills the process, while the store is down. So a record keeps a count
of its own, `charged`, of what the message itself has failed at, and an `Allowance` limits it:

* **A recorded failure is charged**, unless its cause is not the message (`errors.NOT_CHARGED`).
* **A crash is charged only to a claim that was made alone**: a claim that nobody settled, made when nothing else was
  claimed in its process. A batch's first crash is charged to nobody, because any of its messages may be the cause. But
  what has crashed once is claimed alone from then on.
* **A cancellation at the deadline is charged as a crash is**: a neighbour that blocked the event loop may be its cause.
* **What a record sends after its commit is counted anew**, by the same two rules: the record becomes SENDING with no
  count, and a refused send is a failure.

The failure that ends the last charged attempt is *final*, and so is a permanent one. The record keeps the id of its
`message`: only that message is exhausted. Another message under its key begins anew, or a key would stay closed to all
later messages. So does a redriven dead letter: its stamp has the count at its end, which is its allowance's `base`.

**A count is tied to the version that it was written with.** A release that does not know the attribute leaves it in
place when it claims, fails or completes a record, even an expired one. Then the version differs, and nothing counts.
"""

import json
from typing import NamedTuple

from idempotent_receiver.errors import Failure
from idempotent_receiver.protocol.record import Record, Status

CRASHED = Failure(
    type="Crashed",
    text="its last claim was never settled: its process was killed, ran out of time, or could not record the outcome",
    exhausted=True,
)
"""The failure of a message whose last charged attempt was a crash."""


class Charged(NamedTuple):
    """What a record says of its message's cost: the charged `attempts` so far, and whether its claims are made `alone`.
    `message` is the messageId that a claim made alone or a final failure belongs to.
    """

    attempts: int = 0
    alone: bool = False
    message: str | None = None

    def text(self, version: str) -> str | None:
        """The record's attribute, for a write of this version; None if there is nothing to keep."""
        if self == NO_CHARGE:
            return None
        kept = {name: value for name, value in self._asdict().items() if value}
        return json.dumps({"version": version, **kept})


NO_CHARGE = Charged()


class Allowance(NamedTuple):
    """What the message with this id may cost: `most` charged attempts beyond `base`, the count at which its dead
    letter, if it was one, was redriven. None: any number. A delay that ends after `retry_until_ms` (epoch) is final.
    """

    message: str
    most: int | None
    base: int = 0
    retry_until_ms: int | None = None

    def used(self, count: int) -> int:
        """How many of the charged attempts count against this allowance. A base above the count is forged, or the
        record has expired since: it counts as zero.
        """
        return count - self.base if self.base <= count else count

    def used_up(self, before: int, count: int) -> bool:
        """Whether a charge that raised the count from `before` was the last one allowed."""
        return self.most is not None and count - (before - self.used(before)) >= self.most

    def over(self, now_ms: int, failure: Failure) -> bool:
        """Whether a failure's delay, if it requests one, would end too late."""
        if failure.delay_seconds is None or self.retry_until_ms is None:
            return False
        return now_ms + 1000 * failure.delay_seconds > self.retry_until_ms


def charged_of(record: Record) -> Charged:
    """What a record's attribute says; nothing if a release that does not know it has written the record since."""
    if record.charged is None:
        return NO_CHARGE
    try:
        kept = json.loads(record.charged)
        known = Charged(int(kept.get("attempts", 0)), bool(kept.get("alone")), kept.get("message"))
    except (ValueError, TypeError, AttributeError, RecursionError):
        return NO_CHARGE
    return known if kept.get("version") == record.version else NO_CHARGE


def crashed(record: Record) -> bool:
    """Whether a record whose lease is over was left by a worker that never ended it. A released record has no owner;
    a record of Powertools never has one.
    """
    return record.status in (Status.INPROGRESS, Status.SENDING) and (record.owner is not None or record.version is None)


def with_crash(record: Record) -> Charged:
    """What a record whose lease is over has cost, with the crash that its lease's end may mean."""
    charged = charged_of(record)
    if not crashed(record):
        return charged
    return charged._replace(attempts=charged.attempts + charged.alone, alone=True)


def ends(record: Record, allowance: Allowance | None) -> bool:
    """Whether the message with this allowance ends here: it has failed finally, or crashed or been refused as often as
    allowed. The record is FAILED, or its lease is over.
    """
    if allowance is None or allowance.most is None:
        return False
    before = charged_of(record)
    if before.message != allowance.message:
        return False
    return record.status == Status.FAILED or allowance.used_up(before.attempts, with_crash(record).attempts)


def fenced(crash: Record, owner: str, version: str, expiration: int) -> Record:
    """The record of an exhausted message whose last attempt was a crash. It is no longer the claim's, so a worker that
    is late after all cannot change it.
    """
    return crash._replace(
        status=Status.FAILED.value,
        version=version,
        error=CRASHED.to_json(),
        owner=owner,
        expiration=expiration,
        in_progress_expiration=None,
        charged=with_crash(crash).text(version),
    )


def on_claim(seen: Record | None, allowance: Allowance | None, *, alone: bool) -> Charged:
    """What a claim or a take-over keeps of the count of a record that is not live, and whether it is made alone.

    Without an allowance, nobody counts.
    """
    if allowance is None:
        return NO_CHARGE
    found = NO_CHARGE if seen is None else with_crash(seen)
    count = 0 if seen is not None and _begins_anew(seen, found, allowance) else found.attempts
    return Charged(count, alone, allowance.message if alone else None)


def _begins_anew(seen: Record, found: Charged, allowance: Allowance) -> bool:
    """Whether the count belongs to another message, which has failed finally, and not to a redrive of it."""
    if found.message in (None, allowance.message) or 0 < allowance.base <= found.attempts:
        return False
    return seen.status == Status.FAILED or allowance._replace(base=0).used_up(0, found.attempts)


def must_be_alone(seen: Record, allowance: Allowance | None) -> bool:
    """Whether a record that is not live has crashed, so that a claim of it must be made alone."""
    return allowance is not None and with_crash(seen).alone


def on_failure(
    record: Record, allowance: Allowance | None, *, charged: bool, final: bool, cancelled: bool = False
) -> Charged:
    """What a failure of the run under `record` costs. It has a `message` if the failure is the last one: `final`
    already, or the end of the last charged attempt. `cancelled`: its time was up, which another message may have used.
    """
    if allowance is None:
        return NO_CHARGE
    before = charged_of(record)
    charged = charged and (before.alone or not cancelled)
    count = before.attempts + charged
    last = final or (charged and allowance.used_up(before.attempts, count))
    return Charged(count, before.alone or cancelled, allowance.message if last else None)


def on_release(record: Record, *, crash: bool = False) -> Charged:
    """What a release keeps of the count. `crash`: the worker is known to have died in the run."""
    return with_crash(record) if crash else charged_of(record)._replace(message=None)


def carried(record: Record, version: str) -> str | None:
    """The attribute for a write of `version` that changes nothing in it."""
    return None if record.charged is None else charged_of(record).text(version)
