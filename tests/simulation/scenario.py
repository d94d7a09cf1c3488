"""A scenario: a world with a table, an SQS client and workers, and the rules that hold in every scenario.

- When a handler runs, its record is INPROGRESS and owned by its worker, and no other run for that key is under way;
  but for workers without claims, `effects="transaction"`.
- When an invocation answers, each message that it acknowledges is COMPLETED in the table or a confirmed dead letter.
- A completed record never changes before it expires.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from functools import wraps
from inspect import iscoroutinefunction
from random import Random
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger

from idempotent_receiver import MemoryStore, Message, Transaction, current_claim
from idempotent_receiver.testing.worker import SILENT
from idempotent_receiver.testing.world import START_EPOCH_SECONDS, World
from idempotent_receiver.transaction.outbox import STAMP
from tests.simulation.faults import FaultyStore
from tests.simulation.sqs_client import SqsClient
from tests.simulation.world import Worker, sqs_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from idempotent_receiver.handler.attempt import Attempt

_quiet = Logger(service="scenario", level="CRITICAL")


def ids(count: int) -> list[str]:
    return [str(number) for number in range(count)]


def batch(count: int, **options: Any) -> list[dict[str, Any]]:
    return [sqs_record(id, f'{{"id":{id}}}', **options) for id in ids(count)]


def under(key: str, place: int, *, receives: int = 1, **body: Any) -> dict[str, Any]:
    """A message of a business key, which `by_key` takes from its body."""
    return sqs_record(f"m{place}", json.dumps({"k": key} | body), receives=receives)


def add_one(tx: Transaction, id: str) -> None:
    add = {"UpdateExpression": "ADD times :one", "ExpressionAttributeValues": {":one": 1}}
    tx.update(TableName="Entries", Key={"id": id}, **add)


def instant(body: dict[str, Any]) -> int:
    return 1


@dataclass
class Run:
    key: str
    worker: str
    attempt: int
    started: float
    ended: float | None = None


class Reported:
    log_level = 10

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.errors: list[tuple[str, str]] = []

    def add_metric(self, name: str, unit: object, value: float) -> None:
        self.counts[name] += int(value)

    def flush_metrics(self) -> None: ...

    def error(self, text: str, extra: dict[str, object]) -> None:
        self.errors.append((text, str(extra.get("why"))))

    def info(self, text: str, extra: dict[str, object]) -> None: ...

    debug = warning = info


class Immutable(MemoryStore):
    """A table that reports a change of a completed record that has not expired."""

    def __init__(self, scenario: Scenario, namespace: str | None) -> None:
        super().__init__(namespace)
        self.scenario = scenario

    def _write(self, change: Any) -> Any:
        before = self.items.get(change.new.id)
        answer = super()._write(change)
        after = self.items.get(change.new.id)
        if before is not None and before != after and before["status"] == "COMPLETED":
            self.scenario.require(
                before["expiration"] <= self.scenario.epoch_seconds, f"{before} was changed to {after}"
            )
        return answer


class Scenario:
    """One world, one table, one SQS client; any number of workers."""

    def __init__(self, *, namespace: str | None = None, seed: int = 0, **options: Any) -> None:
        self.options = options
        """The options of every worker that is not given its own."""
        self.world = World(Random(seed).random)
        self.memory = Immutable(self, namespace)
        self.store = FaultyStore(self.memory, self.world)
        self.sqs = SqsClient(self.world)
        self.runs: list[Run] = []
        self.workers: list[Worker] = []
        self.dead: set[str] = set()
        """The workers that were killed, or that a test declares dead: their runs do not count as under way."""
        self.unclaimed: set[str] = set()
        """The workers without claims."""
        self.keys_of: dict[str, tuple[str, ...]] = {}
        """The ids of a message's records, by its messageId, if they differ from it."""
        self._violations: list[str] = []

    def require(self, holds: bool, otherwise: str) -> None:
        """Record a violation. Raising it here would not do: the code under test handles any exception."""
        if not holds:
            self._violations.append(otherwise)

    def worker(self, function: Callable[..., Any], *, queue_client: bool = False, **options: Any) -> Worker:
        """Add a process; its name is the owner of its claims."""
        options = self.options | options
        options.setdefault("name", f"w{len(self.workers)}")
        options.setdefault("logger", _quiet)
        options.setdefault("metrics", SILENT)
        store = options.pop("store", self.store)
        if queue_client or "dead_letter_queue" in options:
            options["sqs"] = self.sqs
        if options.get("effects") == "transaction":
            self.unclaimed.add(options["name"])
        worker = Worker(self.world, store, self._recorded(function, options["name"]), **options)
        worker.handler = self._checked(worker.handler)
        self.workers.append(worker)
        return worker

    def deliver(
        self,
        function: Callable[..., Any],
        *records: dict[str, Any],
        seconds: float = 30.0,
        after: float = 0.0,
        **options: Any,
    ) -> Worker:
        """Add a process that is invoked with these messages."""
        worker = self.worker(function, **options)
        worker.deliver(*records, seconds=seconds, after=after)
        return worker

    def answers_of(self, worker: Worker) -> list[Any]:
        self.run()
        return worker.answers

    def answer(self, function: Callable[..., Any], *records: dict[str, Any], **options: Any) -> list[str]:
        answers = self.answers_of(self.deliver(function, *records, **options))
        assert len(answers) == 1, "the process was killed before it answered"
        assert isinstance(answers[0], list)
        return answers[0]

    def taking(self, seconds: float = 0.0, error: Any = None, *ids: str) -> Callable[..., str]:
        """A handler that takes its time, and then fails if it is to, for all messages or for these. Without claims it
        adds one to the message's entry, too.
        """

        def handle(body: dict[str, Any], message: Message) -> str:
            self.world.sleep(seconds)
            if error is not None and (not ids or message.id in ids):
                raise error
            return "done"

        def posting(body: dict[str, Any], message: Message, tx: Transaction) -> str:
            add_one(tx, message.id)
            return handle(body, message)

        return posting if self.options.get("effects") == "transaction" else handle

    @property
    def times(self) -> dict[str, int]:
        """How often each message's effect is there."""
        table = self.memory.tables.get("Entries")
        return {} if table is None else {item["id"]: int(item["times"]) for item in table.items.values()}

    def run(self) -> None:
        self.world.run()
        assert self._violations == []

    @property
    def epoch_seconds(self) -> float:
        return START_EPOCH_SECONDS + self.world.now

    @property
    def keys_run(self) -> list[str]:
        return [run.key for run in self.runs]

    def status(self, id: str) -> str | None:
        item = self.memory.items.get(id)
        return None if item is None else item["status"]

    def live_claims(self) -> list[str]:
        now_ms = self.epoch_seconds * 1000
        items = self.memory.items.items()
        return [id for id, item in items if item["status"] == "INPROGRESS" and item["in_progress_expiration"] > now_ms]

    def error(self, id: str) -> dict[str, Any]:
        error: dict[str, Any] = json.loads(self.memory.items[id]["error"])
        return error

    def requests(self) -> list[tuple[str, int]]:
        """The store's calls since the last time, and the number of records of each."""
        calls, self.store.calls = self.store.calls, []
        return calls

    def request_names(self) -> list[str]:
        return [name for name, _ in self.requests()]

    def dead_letters(self) -> dict[str, dict[str, Any]]:
        """The stamps of the dead letters, by their messages' original ids."""
        stamps = [json.loads(sent["MessageAttributes"][STAMP]["StringValue"]) for sent in self.sqs.sent]
        return {stamp["original_id"]: stamp for stamp in stamps}

    def _recorded(self, function: Callable[..., Any], worker: str) -> Callable[..., Any]:
        def start() -> Run:
            claim = current_claim()
            if worker not in self.unclaimed:
                self._require_claimed(worker, claim)
            self.runs.append(Run(claim.key, worker, claim.attempt, self.world.now))
            return self.runs[-1]

        @wraps(function)
        def plain(*arguments: Any) -> Any:
            run = start()
            try:
                return function(*arguments)
            finally:
                run.ended = self.world.now

        @wraps(function)
        async def coroutine(*arguments: Any) -> Any:
            run = start()
            try:
                return await function(*arguments)
            finally:
                run.ended = self.world.now

        return coroutine if iscoroutinefunction(function) else plain

    def _require_claimed(self, worker: str, claim: Attempt) -> None:
        item = self.memory.items[claim.id]
        ours = (item["status"], item.get("owner")) == ("INPROGRESS", worker)
        self.require(ours, f"{worker} runs without a claim: {item}")
        not_counted = self.dead | self.unclaimed
        under_way = [run for run in self.runs if run.ended is None and run.worker not in not_counted]
        overlapping = [run for run in under_way if run.key == claim.key]
        self.require(not overlapping, f"{worker} runs {claim.key} while {overlapping} is under way")

    def kill(self, worker: Worker) -> None:
        self.dead.add(worker.name)
        worker.kill()

    def _checked(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        def checked(event: Any, context: Any) -> Any:
            response = handler(event, context)
            failed = [failure["itemIdentifier"] for failure in response["batchItemFailures"]]
            ids = [record["messageId"] for record in event["Records"]]
            self.require(len(set(failed)) == len(failed), f"an id is named twice: {failed}")
            self.require(set(failed) <= set(ids), f"an id is not of this event: {failed}")
            for id in set(ids) - set(failed) - set(self.dead_letters()):
                done = [key for key in self._keys_of(event, id) if self.status(key) == "COMPLETED"]
                self.require(bool(done), f"{id} was acknowledged, and no record of it is completed")
            return response

        return checked

    def _keys_of(self, event: dict[str, Any], id: str) -> tuple[str, ...]:
        if "key" not in self.options:
            return self.keys_of.get(id, (id,))
        (body,) = {record["body"] for record in event["Records"] if record["messageId"] == id}
        return self.keys_of.get(id, (f"{self.memory.namespace}#{json.loads(body)['k']}",))
