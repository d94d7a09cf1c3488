"""What the explored handlers do: the explorer says how each run ends, and a transaction adds one to an entry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from idempotent_receiver import PermanentError, Transaction

if TYPE_CHECKING:
    from tests.simulation.controlled_worker import ControlledWorker


class Failed(RuntimeError):
    """The exception that a handler raises."""


def handle(worker: ControlledWorker, id: str) -> str:
    (how,) = worker.ask("run", id)
    if how == "returns":
        return "done"
    raise PermanentError("refused") if how == "refuses" else Failed("failed")


def post(worker: ControlledWorker, tx: Transaction, id: str) -> None:
    tx.update(
        otherwise=PermanentError("refused") if worker.setup.dead_letters else Failed("failed"),
        TableName="Entries",
        Key={"id": id},
        UpdateExpression="ADD times :one",
        ExpressionAttributeValues={":one": 1},
    )
