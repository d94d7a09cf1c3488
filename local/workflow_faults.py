"""The faults of `make run WORKFLOW=1`: laid over the functions' wiring. Runs in the functions, without this repository.

A transfer's name says where a process dies for it: `debit.after-3` in its debit, after the write. That it has died is
put down in the table of the steps, from outside of any record, so that it dies once.
"""

from __future__ import annotations

import json
import os
import signal
import time
from typing import Any, NoReturn

HELD_SECONDS = 4.0
"""How long the credit of a transfer waits that is to be stopped on its way."""


class Faults:
    """Where processes die. `dynamodb` is a client of the functions' own, `table` that of the steps."""

    def __init__(self, dynamodb: Any, table: str) -> None:
        self._dynamodb = dynamodb
        self._table = table

    def at(self, transfer: str, place: str) -> None:
        """Die here, if this is where it happens to this transfer, and it has not yet."""
        if transfer.rpartition("-")[0].removesuffix(".again") == place and self._first(f"killed#{transfer}"):
            _die()

    def hold(self, transfer: str) -> None:
        """Wait, for what is to happen to this transfer meanwhile."""
        if self._first(f"held#{transfer}"):
            time.sleep(HELD_SECONDS)

    def _first(self, id: str) -> bool:
        try:
            self._dynamodb.put_item(
                TableName=self._table, Item={"id": {"S": id}}, ConditionExpression="attribute_not_exists(id)"
            )
        except self._dynamodb.exceptions.ConditionalCheckFailedException:
            return False
        return True

    def in_steps(self, store: Any) -> None:
        """Let steps die around the write that ends them."""
        commit, replace = store.commit, store.replace

        def around(write: Any, change: Any, *args: Any) -> Any:
            namespace, _, transfer = change.new.id.partition("#")
            step = namespace.rpartition(".")[2]
            if change.new.status != "COMPLETED":
                return write(*args)
            if (transfer.rpartition("-")[0], step) == ("aborted", "credit"):
                self.hold(transfer)
            self.at(transfer, f"{step}.before")
            written = write(*args)
            self.at(transfer, f"{step}.after")
            return written

        store.commit = lambda change, actions: around(commit, change, change, actions)
        store.replace = lambda changes: around(replace, changes[0], changes)

    def in_start(self, workflow: Any) -> None:
        """Let starters die between claim and start, and between start and hand-over."""
        faults, client = self, workflow.client

        class Client:
            exceptions = client.exceptions

            def describe_execution(self, **asked: Any) -> Any:
                return client.describe_execution(**asked)

            def start_execution(self, **asked: Any) -> Any:
                transfer = json.loads(asked["input"])["payload"]["transfer_id"]
                faults.at(transfer, "start.before")
                started = client.start_execution(**asked)
                faults.at(transfer, "start.after")
                return started

        workflow.client = Client()


def _die() -> NoReturn:
    """End this process as a crash would: at once, and nothing is cleaned up."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("a killed process does not go on")
