"""The workers that play a trial: their stores, queues and handlers ask it at each call what happens."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from copy import deepcopy
from dataclasses import replace
from functools import partial, wraps
from logging import INFO
from string import ascii_uppercase
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from idempotent_receiver.batch.executor import Executor
from idempotent_receiver.clock import Clock
from idempotent_receiver.handler.annotations import hints_of
from idempotent_receiver.protocol.record import Change, Record, Status
from idempotent_receiver.protocol.store import Commit, Conflict
from idempotent_receiver.sqs.consumer import Consumer
from idempotent_receiver.sqs.dead_letter import STAMP, stamp_of
from idempotent_receiver.testing.memory import Item
from idempotent_receiver.testing.schedule import Schedule
from idempotent_receiver.testing.setup import Setup
from idempotent_receiver.testing.trial import Trial
from idempotent_receiver.testing.worker import SILENT, Worker
from idempotent_receiver.testing.world import START_EPOCH_SECONDS, World


class Cast:
    """The workers of all trials, each made once, because to make a consumer costs more than to run it."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.trial: Trial
        self._workers: dict[str, Player] = {}
        self._undisturbed = 0

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Let whatever decorates the consumer call the worker that is invoked."""

        def invoked(event: Any, context: Any) -> Any:
            return _invoked.get().consume(event, context)

        with patch.object(self.setup.consumer, "_handle", invoked):
            yield

    def play(self, schedule: Schedule, *, alone: bool = False, slowly: bool = False) -> Trial:
        """Play a schedule to its end, or the undisturbed course: slower each time, so that what depends on the time
        that is left varies.
        """
        self.trial = Trial(self.setup, self, schedule, alone, slowly)
        self._undisturbed += alone
        self.trial.network.round_trip_seconds *= self._undisturbed if alone else 1
        self.trial.play()
        return self.trial

    def worker(self, number: int) -> "Player":
        """The worker with that number; the first is A."""
        name = ascii_uppercase[number] if number < len(ascii_uppercase) else f"W{number}"
        if name not in self._workers:
            self._workers[name] = Player(self, name)
        return self._workers[name]

    def named(self, name: str) -> "Player | None":
        """The worker of that name; None for a name that is no worker's."""
        return self._workers.get(name)


class Player(Worker):
    """One worker, whose store, queue and handler ask the trial what happens."""

    def __init__(self, cast: Cast, name: str) -> None:
        self._cast = cast
        consumer = cast.setup.consumer
        sqs: Any = None if consumer.options.sqs is None else _Queue(self, cast)
        options = replace(
            consumer.options,
            store=_Store(self, cast),
            sqs=sqs,
            results=None,
            end_process_at_deadline=False,
            error_texts=True,
            logger=_Log(cast),
            metrics=SILENT,
        )
        function = self._watched(consumer.__wrapped__)

        def made(clock: Clock, executor: Callable[[], Executor]) -> Consumer:
            return consumer.with_options(replace(options, clock=clock, executor=executor), function)

        super().__init__(World(), made, name)
        self.consume, self.handler = self.handler, self._decorated

    def _decorated(self, event: Any, context: Any) -> Any:
        """The handler as it is deployed, with all that decorates the consumer."""
        self._cast.trial.received(self, event["Records"])
        setup = self._cast.setup
        if not setup.decorated:
            return self.consume(event, context)
        _invoked.set(self)
        return _read_by_lambda(setup.handler(deepcopy(event), context), event)

    def answered(self, records: Sequence[Item], answer: list[str] | Exception) -> None:
        """For the trial."""
        self._cast.trial.answered(self, records, answer)

    def timed_out(self) -> None:
        """For the trial."""
        self._cast.trial.timed_out(self)
        self.kill()

    def _watched(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, which tells the trial when it starts and ends."""
        cast = self._cast

        def plain(*args: Any) -> Any:
            cast.trial.started(self)
            try:
                result = function(*args)
            except BaseException as error:
                cast.trial.raised(self, error)
                raise
            cast.trial.returned(self)
            return result

        async def coroutine(*args: Any) -> Any:
            cast.trial.started(self)
            try:
                result = await function(*args)
            except BaseException as error:
                cast.trial.raised(self, error)
                raise
            cast.trial.returned(self)
            return result

        called = type(function).__call__
        asynchronous = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)
        watched = wraps(function)(coroutine if asynchronous else plain)
        watched.__annotations__ = hints_of(function, repr(function))
        return watched


_invoked: ContextVar[Player] = ContextVar("_invoked")
"""Whose handler runs."""


def _read_by_lambda(response: Any, event: Any) -> Any:
    """What of a response Lambda acts on: no answer acknowledges everything, and names that it does not know nothing."""
    failures = response.get("batchItemFailures") if isinstance(response, Mapping) else response
    failed = [one.get("itemIdentifier") for one in failures or ()]
    known = [record["messageId"] for record in event["Records"]]
    named = failed if set(failed) <= set(known) else known
    return {"batchItemFailures": [{"itemIdentifier": id} for id in named]}


class _Log:
    """The log of a worker, which tells the trial why a message has failed."""

    log_level = INFO

    def __init__(self, cast: Cast) -> None:
        self._cast = cast

    def debug(self, text: str, *, extra: Mapping[str, Any]) -> None:
        """Nothing that says why."""

    def error(self, text: str, *, extra: Mapping[str, Any]) -> None:
        """How a message has ended."""
        if "message_id" in extra:
            why = extra.get("reason") or extra.get("why") or text
            kind = extra.get("error_type")
            self._cast.trial.failed(extra["message_id"], f"{kind}: {why}" if kind else why)

    info = warning = error


class _Store:
    """The trial's store, as one worker sees it."""

    def __init__(self, worker: Player, cast: Cast) -> None:
        self.namespace = cast.setup.namespace
        self._worker, self._cast = worker, cast

    def insert(self, records: Sequence[Record]) -> list[Any]:
        """Claims; and how handlers ended that nothing had claimed."""

        def insert() -> list[Any]:
            answers = list(self._trial.memory.insert(records))
            # A batch's INSERT does not say what it has met.
            return [Conflict() if len(answers) > 1 and isinstance(one, Conflict) else one for one in answers]

        verb = "claims" if records[0].status == Status.INPROGRESS else self._verb(records[0])
        what = f"{verb} {self._keys(record.id for record in records)}"
        kind = "insert" if verb == "claims" else verb
        return list(self._trial.network.write(self._worker, kind, what, len(records), insert))

    def read(self, ids: Sequence[str]) -> list[Any]:
        """What is there."""
        effect = partial(self._read, ids)
        return list(self._trial.network.read(self._worker, f"reads {self._keys(ids)}", len(ids), effect))

    def _read(self, ids: Sequence[str]) -> Sequence[Any]:
        return self._trial.memory.read(ids)

    def replace(self, changes: Sequence[Change]) -> list[Any]:
        """Take-overs, releases, and how handlers ended."""
        memory, verb = self._trial.memory, self._verb(changes[0].new)
        what = f"{verb} {self._keys(change.new.id for change in changes)}"
        return list(self._trial.network.write(self._worker, verb, what, len(changes), lambda: memory.replace(changes)))

    def commit(self, commits: Sequence[Commit]) -> list[Any]:
        """Transactions, each with its message's completion."""
        memory = self._trial.memory
        self._trial.touched |= any(actions for _, actions in commits)
        what = f"commits its transaction and completes {self._keys(change.new.id for change, _ in commits)}"
        effect = partial(memory.commit, commits)
        return list(self._trial.network.write(self._worker, "commit", what, len(commits), effect))

    def _verb(self, new: Record) -> str:
        if new.status == Status.COMPLETED:
            return "completes"
        if new.status == Status.FAILED:
            return "records the failure of"
        now_ms = (START_EPOCH_SECONDS + self._worker.world.now) * 1000
        return "takes over" if (new.in_progress_expiration or 0) > now_ms else "releases"

    @property
    def _trial(self) -> Trial:
        return self._cast.trial

    def _keys(self, ids: Any) -> str:
        return ", ".join(map(self._cast.setup.key_of, ids))


class _Queue:
    """The SQS client of a worker: dead letters are the trial's, visibilities change nothing here."""

    meta = SimpleNamespace(endpoint_url="https://sqs.us-east-1.amazonaws.com")

    def __init__(self, worker: Player, cast: Cast) -> None:
        self._worker, self._cast = worker, cast

    def change_message_visibility_batch(self, **arguments: object) -> None:
        """Accepted."""

    def send_message(self, **arguments: Any) -> None:
        """A dead letter."""
        stamp = stamp_of({STAMP: {"stringValue": arguments["MessageAttributes"][STAMP]["StringValue"]}})
        assert stamp is not None, "the library stamps each"
        self._cast.trial.network.send(self._worker, stamp.original_id)
