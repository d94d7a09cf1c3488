"""A worker's clients in an explored run: its store, queue and log."""

from collections.abc import Mapping, Sequence
from functools import partial
from logging import INFO
from types import SimpleNamespace
from typing import Any

from idempotent_receiver.errors import PermanentError
from idempotent_receiver.protocol.record import Change, Record, Status
from idempotent_receiver.protocol.store import ActionFailed, Commit, Conflict
from idempotent_receiver.sqs.dead_letter import stamp_of
from idempotent_receiver.testing.explored_run import ExploredRun
from idempotent_receiver.testing.explored_worker import ExploredWorker
from idempotent_receiver.testing.memory import Table
from idempotent_receiver.testing.setup import Setup
from idempotent_receiver.testing.world import START_EPOCH_SECONDS
from idempotent_receiver.transaction.outbox import STAMP
from idempotent_receiver.transaction.reads import PlainItem


class WorkerStore:
    """The run's store, as one worker sees it."""

    def __init__(self, worker: ExploredWorker, setup: Setup) -> None:
        self.namespace = setup.namespace
        self._worker, self._setup = worker, setup

    def insert(self, records: Sequence[Record]) -> list[Any]:
        """Insert claims, or the results of unclaimed runs."""

        def insert() -> list[Any]:
            answers = list(self._run.memory.insert(records))
            # An INSERT in a batch does not return the existing item.
            return [Conflict() if len(answers) > 1 and isinstance(one, Conflict) else one for one in answers]

        verb = "claims" if records[0].status == Status.INPROGRESS else self._verb(Change(records[0], None))
        what = f"{verb} {self._keys(record.id for record in records)}"
        kind = "insert" if verb == "claims" else verb
        return list(self._run.network.write(self._worker, kind, what, len(records), insert))

    def read(self, ids: Sequence[str]) -> list[Any]:
        """Read the current records."""
        effect = partial(self._read, ids)
        return list(self._run.network.read(self._worker, f"reads {self._keys(ids)}", len(ids), effect))

    def _read(self, ids: Sequence[str]) -> Sequence[Any]:
        return self._run.memory.read(ids)

    def replace(self, changes: Sequence[Change]) -> list[Any]:
        """Take over or settle claims."""
        memory, verb = self._run.memory, self._verb(changes[0])
        what = f"{verb} {self._keys(change.new.id for change in changes)}"
        return list(self._run.network.write(self._worker, verb, what, len(changes), lambda: memory.replace(changes)))

    def get(self, table: str, key: PlainItem) -> Any:
        """Read an item for a handler."""

        def get() -> list[Any]:
            return [self._run.memory.get(table, key)]

        self._run.touched = True
        (found,) = self._run.network.read(self._worker, f"reads {dict(key)} in {table}", 1, get)
        return found

    def commit(self, commits: Sequence[Commit]) -> list[Any]:
        """Commit transactions, each with its message's completion."""
        memory = self._run.memory
        self._run.touched |= any(actions for _, actions in commits)
        completes = "completes" if all(change.new.status == Status.COMPLETED for change, _ in commits) else "records"
        what = f"commits its transaction and {completes} {self._keys(change.new.id for change, _ in commits)}"

        def commit() -> Sequence[Any]:
            answers = memory.commit(commits)
            for (change, actions), answer in zip(commits, answers, strict=True):
                failed = actions[answer.index] if isinstance(answer, ActionFailed) and not answer.stale else None
                if failed is not None and isinstance(failed.otherwise, PermanentError):
                    self._run.refused_for_good(self._worker, self._setup.key_of(change.new.id))
            return answers

        return list(self._run.network.write(self._worker, "commit", what, len(commits), commit))

    def _verb(self, change: Change) -> str:
        new, seen = change
        if new.status == Status.COMPLETED:
            return "completes"
        if new.status == Status.FAILED:
            return "records the failure of"
        now_ms = (START_EPOCH_SECONDS + self._worker.world.now) * 1000
        leased = (new.in_progress_expiration or 0) > now_ms
        if new.status == Status.SENDING and seen is not None and seen.status == Status.SENDING:
            if leased and new.owner == seen.owner:
                return "records the progress of"
            return "takes over the messages to send for" if leased else "records what is left to send for"
        if new.status == Status.SENDING:
            return "records the messages to send for"
        return "takes over" if leased else "releases"

    @property
    def _run(self) -> ExploredRun:
        return self._worker.run

    def _keys(self, ids: Any) -> str:
        return ", ".join(map(self._setup.key_of, ids))


class WorkerQueue:
    """A worker's SQS client. The run keeps the dead letters; visibility changes have no effect."""

    meta = SimpleNamespace(endpoint_url="https://sqs.us-east-1.amazonaws.com")

    def __init__(self, worker: ExploredWorker) -> None:
        self._worker = worker

    def change_message_visibility_batch(self, **arguments: object) -> None:
        """Accept and ignore visibility changes."""

    def send_message(self, **arguments: Any) -> None:
        """Send a dead letter."""
        stamp = stamp_of({STAMP: {"stringValue": arguments["MessageAttributes"][STAMP]["StringValue"]}})
        assert stamp is not None, "the library stamps every message"
        id, network = stamp.original_id, self._worker.run.network
        network.send(self._worker, f"sends {id} to the dead-letter queue", partial(network.dead_letters.add, id))

    def send_message_batch(self, *, QueueUrl: str, Entries: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:  # noqa: N803
        """Send the messages of handlers' transactions."""
        run, queue = self._worker.run, QueueUrl.rpartition("/")[2]
        what = f"sends {len(Entries)} message{'s' * (len(Entries) > 1)} to {queue}"
        run.touched = True
        run.network.send(self._worker, what, partial(self._sent, QueueUrl, Entries))
        return {"Successful": [{"Id": entry["Id"]} for entry in Entries]}

    def _sent(self, queue_url: str, entries: Sequence[Mapping[str, Any]]) -> None:
        """Keep one message per key, as an idempotent consumer would, in a table that is compared like any other."""
        sent = self._worker.run.memory.tables.setdefault("messages sent", Table("key"))
        for entry in entries:
            arguments = {name: value for name, value in entry.items() if name not in ("Id", "MessageDeduplicationId")}
            stamp = stamp_of({STAMP: {"stringValue": entry["MessageAttributes"][STAMP]["StringValue"]}})
            assert stamp is not None, "the library stamps every message"
            sent.items[stamp.key,] = {"key": stamp.key, "QueueUrl": queue_url, **arguments}


class WorkerLog:
    """A worker's log, which reports to the run why a message failed."""

    log_level = INFO

    def __init__(self, worker: ExploredWorker) -> None:
        self._worker = worker

    def debug(self, text: str, *, extra: Mapping[str, Any]) -> None:
        """Ignore the text: debug texts never say why a message failed."""

    def error(self, text: str, *, extra: Mapping[str, Any]) -> None:
        """Note why a message failed."""
        if "message_id" in extra:
            why = extra.get("reason") or extra.get("why") or text
            kind = extra.get("error_type")
            self._worker.run.failed(extra["message_id"], f"{kind}: {why}" if kind else why)

    info = warning = error
