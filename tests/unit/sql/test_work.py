"""The same store in `receiver work`: no claim, no lease, and an idle transaction ends with the worker's lease."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from sqlalchemy import text
from sqlalchemy.orm import Session

from idempotent_receiver import Message, Transaction, sqs_consumer
from idempotent_receiver.clock import SystemClock
from idempotent_receiver.sqs.handlers import consumer_inside
from idempotent_receiver.worker.leases import Leases
from idempotent_receiver.worker.process import Limits, Process
from idempotent_receiver.worker.reports import Reports
from tests.unit.sql.test_batches import QUEUE, SQS
from tests.unit.worker.test_process import SOON, NoTimer, Queue, until

if TYPE_CHECKING:
    from tests.unit.sql.bank import Bank


def test_a_worker_process_runs_commits_sends_and_deletes(bank: Bank) -> None:
    """What fails comes back after a backoff; nothing is lost to a lease, since nothing has one."""
    lost: SimpleQueue[str] = SimpleQueue()
    sqs: Any = SQS()
    idle: list[str] = []

    def handle(body: str, message: Message, session: Session, tx: Transaction) -> None:
        session.execute(bank.note(message.id))
        if bank.engine.dialect.name == "postgresql":
            idle.append(session.execute(text("SHOW idle_in_transaction_session_timeout")).scalar_one())
        if message.id == "bad":
            raise ValueError
        tx.send(QueueUrl=QUEUE, MessageBody=message.id)

    consumer = consumer_inside(sqs_consumer(bank.store, sqs=sqs)(handle))
    assert consumer is not None
    clock, limits, queue = SystemClock(), Limits(lease_seconds=60.0, margin_seconds=0.1), Queue()
    given = {"lease_seconds": limits.lease_seconds, "margin_seconds": limits.margin_seconds}
    leases = Leases(bank.store, clock, NoTimer(), lambda record_id, why: lost.put(why), **given)
    process = Process(consumer, queue, leases=leases, limits=limits, reports=Reports(None, "me"), clock=clock)  # type: ignore[arg-type]
    worker = threading.Thread(target=process.run, daemon=True)
    worker.start()
    queue.send(("a", "first"), ("bad", "second"), ("c", "third"))
    until(lambda: len(queue.deleted) == 2 and queue.changed)
    process.draining = True
    worker.join(SOON)

    assert not worker.is_alive()
    assert sorted(queue.deleted) == ["first", "third"]
    assert [handle for handle, _ in queue.changed] == ["second"]
    assert bank.noted == ["a", "c"]
    assert sorted(one["MessageBody"] for one in sqs.sent) == ["a", "c"]
    assert lost.empty()
    assert set(idle) <= {"1min"}
