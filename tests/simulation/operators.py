"""What operators do with dead letters in the explored world, and the consumer that runs beside them.

The records are written by the shipped transitions and the shipped exchange. What stands here is what the operator's
commands must keep to: what they ask first, in which order they act, and when they delete.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from idempotent_receiver import Transaction, body_field, sqs_consumer
from idempotent_receiver.clock import Deadline
from idempotent_receiver.payload import EVERYTHING, Document
from idempotent_receiver.protocol.answers import ClaimLost, Settled
from idempotent_receiver.protocol.exchange import SETTLE_RETRIES, ask, commit
from idempotent_receiver.protocol.record import DEFAULT_RETENTION_SECONDS, Record
from idempotent_receiver.protocol.resend import (
    Resend,
    ResendClaim,
    check_open,
    complete_resend,
    put_closed,
    resending,
    resent,
    take_back,
)
from idempotent_receiver.testing.worker import SILENT, failed_ids
from tests.simulation import handlers
from tests.simulation.explored_clients import LOST, Executor, Store, context
from tests.simulation.setups import AGAIN, Act
from tests.simulation.world import FIFO, QUEUE, sqs_record

if TYPE_CHECKING:
    from tests.simulation.controlled_worker import ControlledWorker

RECORDS = "Records"
"""The table's name in transactions."""
HOUR_MS = 3_600_000
RETENTION = DEFAULT_RETENTION_SECONDS
ACTS: list[Act] = []
"""All acts that were ever played; a worker's variant is its act's place here."""


def variant_of(act: Act) -> int:
    if act not in ACTS:
        ACTS.append(act)
    return ACTS.index(act)


def id_of(body: int) -> str:
    """The id of the record of a body's key."""
    return f"m#{body}"


def text_of(body: int) -> str:
    return json.dumps({"key": str(body), "amount": body})


def fingerprint_of(body: int) -> str:
    return EVERYTHING.fingerprint(Document.of_text(text_of(body)))


def resend_of(act: Act, operator: str = "alice") -> Resend:
    return Resend(
        old_id=id_of(act.old), new_id=id_of(act.new), fingerprint=fingerprint_of(act.new), operator=operator, why="why"
    )


def play(worker: ControlledWorker) -> list[str]:
    """Deliver a message, or do what an operator does; returns what was not done."""
    if worker.receives <= AGAIN:
        return _deliver(worker)
    operator = Operator(worker, ACTS[worker.variant])
    done = {"resend": operator.resend, "take back": operator.take_back, "redrive": operator.redrive}[operator.act.verb]
    return [] if done() else [operator.act.verb]


def _deliver(worker: ControlledWorker) -> list[str]:
    setup, id = worker.setup, id_of(worker.variant)

    def handle(body: str) -> str:
        return handlers.handle(worker, id)

    def post(body: str, tx: Transaction) -> str:
        handlers.post(worker, tx, id)
        return handlers.handle(worker, id)

    consumer = sqs_consumer(
        Store(worker, "m"),
        key=body_field("key"),
        clock=worker,
        executor=lambda: Executor(worker),
        effects="transaction" if setup.unclaimed else "any",
        logger=SILENT,
        metrics=SILENT,
    )
    where: dict[str, Any] = {"queue": FIFO, "group": "g"} if setup.fifo else {"queue": QUEUE}
    record = sqs_record(id, text_of(worker.variant), receives=worker.receives, **where)
    return failed_ids(consumer(post if setup.transactional else handle)({"Records": [record]}, context()))


@dataclass
class Operator:
    """An operator who acts on one dead letter. Each method says whether it was done."""

    worker: ControlledWorker
    act: Act

    def __post_init__(self) -> None:
        self.store = Store(self.worker)
        self.deadline = Deadline.after(self.worker, HOUR_MS)

    def resend(self) -> bool:
        """Claim the old key, send the new body, complete the old key, delete the letter."""
        claimed = self._claim()
        return claimed is not None and self._send(self.act.new) and self._complete(claimed) and self._delete()

    def take_back(self) -> bool:
        """Close the new key and open the old one, or neither. The letter stays."""
        record, now_ms = self._record(self.act.old), self.deadline.moment().now_ms
        back = None if record is None else resending(record)
        if record is None or back is None:
            return False
        (version,) = self.worker.versions(1)
        closed = put_closed(back, RECORDS, now_ms, RETENTION, f"{version.replace('-', ' ')} of {back.operator}")
        return isinstance(commit(take_back(record, now_ms, RETENTION), [closed], self.store, self.deadline), Settled)

    def redrive(self) -> bool:
        """Drop a letter whose message is done, or goes on under another key; leave one that is resending."""
        record = self._record(self.act.old)
        if record is not None and resending(record) is not None:
            return False
        done = record is not None and record.status == "COMPLETED" and record.validation == fingerprint_of(self.act.old)
        return (done or self._send(self.act.old)) and self._delete()

    def _claim(self) -> Record | None:
        resend = resend_of(self.act, self.act.operator)
        claim = ResendClaim(resend, fingerprint_of(self.act.old), RETENTION)
        check = check_open(resend, RECORDS, self.deadline.moment().now_ms)
        answer = ask(claim, self._record(self.act.old), self.store, self.deadline, actions=[check])
        return answer.record if isinstance(answer, Settled) else None

    def _complete(self, claimed: Record) -> bool:
        """Whether the old key says that its message goes on: by this command, or another one with the same body."""
        settlement = complete_resend(claimed, RETENTION)
        match ask(settlement, claimed, self.store, self.deadline, max_retries=SETTLE_RETRIES):
            case Settled():
                return True
            case ClaimLost(Record() as found):
                by = resent(found)
                return by is not None and by.same_body(resend_of(self.act))
        return False

    def _record(self, body: int) -> Record | None:
        (found,) = self.store.read([id_of(body)])
        return found if isinstance(found, Record) else None

    def _send(self, body: int) -> bool:
        """Whether SQS has confirmed it. Within one act on one letter a FIFO queue takes a body once."""
        return bool(self.worker.ask("send", (body, f"{self.act.letter} as {body}")) != (LOST,))

    def _delete(self) -> bool:
        return bool(self.worker.ask("delete", self.act.letter) != (LOST,))
