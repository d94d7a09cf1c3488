"""The clients that request transfers over HTTP in CAST=workflow, and the schedule of the sweep.

A client that gets no answer, or an inconclusive one, asks again under its key. Of those that are told that
their execution is running, every other one asks until it has ended; the others leave it to the workflow.
"""

from __future__ import annotations

import heapq
import json
import threading
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from harness.workload.evidence import DeadLetter, End, Reply, Start, now_ms
from harness.workload.stack_client import Backlog, StackClient
from harness.workload.transfers import Kind
from idempotent_receiver.workflow import name_of
from tests.chaos.event_source_mapping import Batch, Batches, EventSourceMapping
from tests.chaos.machine import NAMESPACE, ORPHANS
from tests.chaos.settings import RECORDS

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence

    from harness.workload.evidence import Line
    from harness.workload.transfers import TransferMessage
    from tests.chaos.settings import Settings
    from tests.chaos.worker_process import WorkerProcess

PATIENCE_SECONDS = 5.0
"""How long a client waits for an answer: longer than a function may run."""
PAUSE_SECONDS = 0.7


def key_of(message: TransferMessage) -> str:
    """The id of its record."""
    return f"{NAMESPACE}#{name_of(message.name)}"


def request_of(message: TransferMessage) -> dict[str, Any]:
    payload = {
        "transfer_id": message.name,
        "payer": message.payer,
        "payee": message.payee,
        "debit": str(-message.amount),
        "credit": str(message.amount),
        "refused": message.kind is Kind.REFUSED,
    }
    headers = {"Idempotency-Key": message.name}
    path, body = "/workflows/transfers", json.dumps(payload)
    return {"httpMethod": "POST", "path": path, "headers": headers, "body": body, "requestContext": {}}


class Requests(Batches):
    """The requests to send, and when; threads may share it. `pending` are the keys without a final answer."""

    sweep_seconds = 1.5

    def __init__(self, client: StackClient, settings: Settings) -> None:
        super().__init__(client, settings)
        self._lock = threading.Lock()
        self._due: list[tuple[float, str]] = []
        self._events: dict[str, dict[str, Any]] = {}
        self.pending: dict[str, int] = {}
        """When each was first requested, in milliseconds."""

    def add(self, message: TransferMessage) -> str:
        key = key_of(message)
        with self._lock:
            self._events[key] = {"Records": [{"messageId": key}], "request": request_of(message)}
            self.pending[key] = now_ms()
            heapq.heappush(self._due, (0.0, key))
        return key

    def _received(self) -> Batch | None:
        now = time.monotonic()
        with self._lock:
            while self._due and self._due[0][0] <= now:
                _, key = heapq.heappop(self._due)
                if key in self.pending:
                    heapq.heappush(self._due, (now + PATIENCE_SECONDS, key))
                    return Batch(self._events[key], self)
        return None

    def rests(self, since: float) -> bool:
        """Its sweeps never end."""
        return True

    def again(self, key: str) -> None:
        """Ask again soon."""
        with self._lock:
            heapq.heappush(self._due, (time.monotonic() + PAUSE_SECONDS, key))

    def over(self, key: str) -> None:
        with self._lock:
            self.pending.pop(key, None)


class Clients(EventSourceMapping):
    """All of them, with the workers that answer them, which are killed and frozen like others."""

    def act_on(self, worker: WorkerProcess, batch: Batch, answer: Any, chance: random.Random) -> None:
        (key,), requests = batch.keys, batch.source
        assert isinstance(requests, Requests)
        status, since = answer.get("statusCode", 0), requests.pending.get(key, 0)
        known = {"worker": worker.name, "name": key, "status": status, "result": str(answer.get("body", answer))}
        self.note(Reply(at_ms=now_ms(), since_ms=since, **known))
        left_alone = status == HTTPStatus.ACCEPTED and int(name_of(key)[0], 16) % 2
        if status in (HTTPStatus.OK, HTTPStatus.UNPROCESSABLE_ENTITY) or left_alone:
            requests.over(key)
        else:
            requests.again(key)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowClient(StackClient):
    """The cloud from outside: what is pending counts as queued, and what has failed as a dead letter."""

    requests: list[Requests] = field(default_factory=list)

    def sources(self, common: Settings, port: int) -> list[Requests]:
        self.requests.append(Requests(self, common.of(self.stack.outputs, port)))
        return self.requests

    def send(self, messages: Sequence[TransferMessage], attributes: Sequence[Any] = ()) -> dict[str, str]:
        return {message.name: self.requests[0].add(message) for message in messages}

    def backlog(self, queue: str) -> Backlog:
        if queue != self.queue:
            return Backlog(waiting=0, in_flight=0)
        pending = sum(len(requests.pending) for requests in self.requests)
        return Backlog(waiting=pending, in_flight=0 if pending else self._in_progress())

    def _in_progress(self) -> int:
        found = self.dynamodb.query(
            TableName=RECORDS,
            IndexName=ORPHANS,
            KeyConditionExpression="#status = :inprogress",
            ExpressionAttributeNames={"#status": "status"},
            ExpressionAttributeValues={":inprogress": {"S": "INPROGRESS"}},
            Select="COUNT",
        )
        return int(found["Count"])

    def dead_letters(self) -> list[DeadLetter]:
        """Records that say that their execution has failed."""
        pages = self.dynamodb.get_paginator("scan").paginate(TableName=RECORDS, ConsistentRead=True)
        items = [item for page in pages for item in page["Items"] if item["status"]["S"] == "FAILED"]
        return [DeadLetter(message_id=each["id"]["S"], reason=json.loads(each["error"]["S"])["text"]) for each in items]

    def told(self, lines: Sequence[Line], sent: Mapping[str, str]) -> list[Line]:
        """The log, with executions as the runs of what they do."""
        names = {key: name for name, key in sent.items()}
        pages = self.clients.client("stepfunctions").get_paginator("list_executions")
        runs: list[Line] = []
        for each in pages.paginate(stateMachineArn=self.stack.outputs["StateMachine"]).search("executions[]"):
            began, ended = (int(each[when].timestamp() * 1000) for when in ("startDate", "stopDate"))
            who = {"worker": "", "name": names[f"{NAMESPACE}#{each['name']}"]}
            runs.append(Start(at_ms=began, lease_until_ms=ended + 1, **who))
            runs.append(End(at_ms=ended + 1, ok=each["status"] == "SUCCEEDED", **who))
        return [*lines, *runs]
