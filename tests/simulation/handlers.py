"""What the explored handlers do: the explorer says how each run ends, and a transaction adds one to an entry."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from idempotent_receiver import PermanentError, Transaction
from tests.simulation.setups import HOT
from tests.simulation.sqs_model import SENT

if TYPE_CHECKING:
    from tests.simulation.controlled_worker import ControlledWorker
    from tests.simulation.setups import Setup


CANCELLED = "cancelled"


class Failed(RuntimeError):
    """The exception that a handler raises."""


def handle(worker: ControlledWorker, id: str) -> str:
    (how,) = worker.ask("run", id)
    if how == CANCELLED:
        raise asyncio.CancelledError
    if how == "returns":
        return done(worker.variant)
    raise PermanentError("refused") if how == "refuses" else Failed("failed")


def done(payload: int) -> str:
    return f"done {payload}" if payload else "done"


def post(worker: ControlledWorker, tx: Transaction, id: str) -> None:
    error = PermanentError("refused") if worker.setup.dead_letters else Failed("failed")
    own = {"TableName": "Entries", "Key": {}, "UpdateExpression": "ADD times :one"}
    update: dict[str, Any] = worker.shared if worker.setup.shares else {}
    update |= own | {"Key": update.get("Key", {}), "ExpressionAttributeValues": {":one": 1}}
    for entry in worker.setup.entries_of(id):
        update["Key"]["id"] = entry
        tx.update(otherwise=error, **update)
    update["Key"]["id"] = "another"
    for number in range(worker.setup.sent if worker.setup.sent_by(worker.receives) else 0):
        if number < worker.setup.calls:
            tx.call(worker.announce, id=id)
        else:
            tx.send(QueueUrl=SENT, MessageBody=id)
    if worker.setup.reads:
        _write_what_follows(tx, worker.setup, id)


def _write_what_follows(tx: Transaction, setup: Setup, id: str) -> None:
    """Read an entry, and write what follows from it."""
    own, other = ("odd", "even") if id.endswith("1") else ("even", "odd")
    read, written = (other, own) if setup.reads == "skew" else (HOT, HOT)
    found = tx.get(TableName="Entries", Key={"id": read}, attributes=["times"])
    times = 0 if found is None else found["times"]
    if setup.reads == "count":
        values = {":times": times + 1}
        expression = "SET times = :times"
        tx.update(TableName="Entries", Key={"id": HOT}, UpdateExpression=expression, ExpressionAttributeValues=values)
    elif found is None:
        tx.put(TableName="Entries", Item={"id": written, "times": 1})
