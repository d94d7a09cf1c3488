"""What operators do with dead letters in the explored world, and the consumer that runs beside them.

The records are written by the shipped transitions and the shipped exchange. What stands here is what the operator's
commands must keep to: what they ask first, in which order they act, and when they delete.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from idempotent_receiver import Transaction, body_field
from idempotent_receiver.clock import Deadline
from idempotent_receiver.operations.unsent import Sending
from idempotent_receiver.payload import EVERYTHING, Document
from idempotent_receiver.protocol.answers import ClaimLost, Settled
from idempotent_receiver.protocol.exchange import SETTLE_RETRIES, ask
from idempotent_receiver.protocol.record import DEFAULT_RETENTION_SECONDS, Record, idempotency_key
from idempotent_receiver.protocol.resend import BeginResend, Resend, check_open, resending, resent
from idempotent_receiver.protocol.sending import mark
from idempotent_receiver.protocol.transitions import Claim, Claimed
from idempotent_receiver.testing.worker import SILENT, failed_ids
from idempotent_receiver.transaction.outbox import from_text, outgoing, to_text
from tests.consumers import controlled
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


def claim_of(act: Act) -> Claim:
    return Claim(id_of(act.old), fingerprint_of(act.old), act.operator, 0, RETENTION, lease_ms=0)


def beginning(act: Act, *, fifo: bool) -> BeginResend:
    """What a resend writes first."""
    arguments = {"MessageGroupId": "g"} if fifo else {}
    url = f"https://sqs.us-east-1.amazonaws.com/123456789012/transfers{'.fifo' if fifo else ''}"
    outbox = to_text([outgoing(url, text_of(act.new), arguments)])
    resend = Resend(new_id=id_of(act.new), operator=act.operator, why="why", message_id=str(act.letter))
    return BeginResend(claim_of(act), resend, outbox)


def play(worker: ControlledWorker) -> list[str]:
    """Deliver a message, or do what an operator does; returns what was not done."""
    if worker.receives <= AGAIN:
        return _deliver(worker)
    operator = Operator(worker, ACTS[worker.variant])
    done = operator.resend if operator.act.verb == "resend" else operator.redrive
    return [] if done() else [operator.act.verb]


def _deliver(worker: ControlledWorker) -> list[str]:
    setup, id = worker.setup, id_of(worker.variant)

    def handle(body: str) -> str:
        return handlers.handle(worker, id)

    def post(body: str, tx: Transaction) -> str:
        handlers.post(worker, tx, id)
        return handlers.handle(worker, id)

    consumer = controlled(
        Store(worker, "m"),
        key=body_field("key"),
        clock=worker,
        executor=lambda: Executor(worker),
        sqs=Queue(worker),  # type: ignore[arg-type]  # the part of it that is used
        effects="transaction" if setup.unclaimed else "any",
        logger=SILENT,
        metrics=SILENT,
    )
    where: dict[str, Any] = {"queue": FIFO, "group": "g"} if setup.fifo else {"queue": QUEUE}
    record = sqs_record(id, text_of(worker.variant), receives=worker.receives, **where)
    return failed_ids(consumer(post if setup.transactional else handle)({"Records": [record]}, context()))


@dataclass(frozen=True)
class Queue:
    """The source queue's client, of a consumer or an operator."""

    worker: ControlledWorker
    meta = SimpleNamespace(endpoint_url="https://sqs.us-east-1.amazonaws.com")

    def change_message_visibility_batch(self, **arguments: object) -> None:
        """Accepted."""

    def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803
        (entry,) = Entries
        (answer,) = self.worker.ask("send", (body_of(entry), entry.get("MessageDeduplicationId", "")))
        if answer == LOST:
            raise ConnectionError("the answer was lost")
        return {"Successful": [{"Id": entry["Id"]}]}


def body_of(entry: dict[str, Any]) -> int:
    return int(json.loads(entry["MessageBody"])["amount"])


@dataclass
class Operator:
    """An operator who acts on one dead letter. Each method says whether it was done."""

    worker: ControlledWorker
    act: Act

    def __post_init__(self) -> None:
        self.store = Store(self.worker)
        self.deadline = Deadline.after(self.worker, HOUR_MS)

    def resend(self) -> bool:
        """Write the new body to the record, send it, complete the record, delete the letter."""
        record = self._record()
        if record is None or resending(record) is None:
            record = self._begin(record)
        return record is not None and self._finish(record)

    def redrive(self) -> bool:
        """Drop a letter whose message is done or goes on under another key; finish a resend that has begun."""
        record = self._record()
        if record is not None and resending(record) is not None:
            return self._finish(record)
        done = record is not None and record.status == "COMPLETED" and record.validation == fingerprint_of(self.act.old)
        return (done or self._send_old()) and self._delete()

    def _begin(self, seen: Record | None) -> Record | None:
        begin = beginning(self.act, fifo=self.worker.setup.fifo)
        now_ms = self.deadline.moment().now_ms
        check = check_open(id_of(self.act.new), fingerprint_of(self.act.new), RECORDS, now_ms)
        answer = ask(begin, seen, self.store, self.deadline, actions=[check])
        return answer.record if isinstance(answer, Claimed) else None

    def _finish(self, record: Record) -> bool:
        """Send what is left unless somebody's lease is live, mark the record, delete the letter."""
        begun = resending(record)
        assert begun is not None  # it has begun
        if (record.lease_until_ms or 0) > self.deadline.moment().now_ms or self._may_not_end_as(begun):
            return False
        return self._send_new(record) and self._mark(record, begun) and self._delete()

    def _may_not_end_as(self, begun: Resend) -> bool:
        """Whether the operator would resend another body than the one that is going out."""
        return self.act.verb == "resend" and begun.new_id != id_of(self.act.new)

    def _send_new(self, record: Record) -> bool:
        sending = Sending(Queue(self.worker), idempotency_key(record.id), self.deadline)  # type: ignore[arg-type]
        sending.send(from_text(record.outbox))
        return sending.why is None

    def _mark(self, record: Record, begun: Resend) -> bool:
        """Whether the record says that its message goes on: by this command, or another one that sent the same."""
        marked = mark(Claimed(record, claim_of(self.act)))
        match ask(marked, record, self.store, self.deadline, max_retries=SETTLE_RETRIES):
            case Settled():
                return True
            case ClaimLost(Record() as found):
                by = resent(found)
                return by is not None and by.new_id == begun.new_id
        return False

    def _record(self) -> Record | None:
        (found,) = self.store.read([id_of(self.act.old)])
        return found if isinstance(found, Record) else None

    def _send_old(self) -> bool:
        """Whether SQS has confirmed a copy. Within one act on one letter a FIFO queue takes it once."""
        return bool(self.worker.ask("send", (self.act.old, f"redrive {self.act.letter}")) != (LOST,))

    def _delete(self) -> bool:
        return bool(self.worker.ask("delete", self.act.letter) != (LOST,))
