"""An exploration's workers: each runs the consumer as deployed, with clients for the run."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from copy import deepcopy
from dataclasses import replace
from functools import partial
from string import ascii_uppercase
from typing import Any
from unittest.mock import patch

from idempotent_receiver.batch.executor import Executor
from idempotent_receiver.clock import Clock
from idempotent_receiver.handler.callees import Callees
from idempotent_receiver.sqs.consumer import Consumer
from idempotent_receiver.testing.clients import WorkerLog, WorkerQueue, WorkerStore
from idempotent_receiver.testing.explored_run import ExploredRun
from idempotent_receiver.testing.explored_worker import ExploredWorker, watched_call, watched_handler
from idempotent_receiver.testing.setup import Setup
from idempotent_receiver.testing.worker import SILENT

PlayedHandler = Callable[[Any, Any], Any]

_invoked: ContextVar[PlayedHandler] = ContextVar("_invoked")
"""The invoked worker's consumer."""


class ExploredWorkers:
    """The workers of all runs, each created once, because creating a consumer costs more than running it."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._workers: dict[str, ExploredWorker] = {}

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Make other decorators around the consumer call the invoked worker."""

        def invoked(event: Any, context: Any) -> Any:
            return _invoked.get()(event, context)

        with patch.object(self._setup.consumer, "_handle", invoked):
            yield

    def join(self, number: int, run: ExploredRun) -> ExploredWorker:
        """Worker `number`, as a new process in the run; worker 0 is named A."""
        name = ascii_uppercase[number] if number < len(ascii_uppercase) else f"W{number}"
        if name not in self._workers:
            self._workers[name] = self._made(name)
        self._workers[name].join(run)
        return self._workers[name]

    def _made(self, name: str) -> ExploredWorker:
        worker = ExploredWorker(name, self._consumer)
        consume = worker.handler

        def decorated(event: Any, context: Any) -> Any:
            """The handler as deployed, with all its decorators."""
            worker.run.received(worker, event["Records"])
            if not self._setup.decorated:
                return consume(event, context)
            _invoked.set(consume)
            return _read_by_lambda(self._setup.handler(deepcopy(event), context), event)

        worker.handler = decorated
        return worker

    def _consumer(self, worker: ExploredWorker, clock: Clock, executor: Callable[[], Executor]) -> Consumer:
        """The consumer with its deployed options, isolated in the run."""
        consumer = self._setup.consumer
        sqs: Any = None if consumer.options.sqs is None else WorkerQueue(worker)
        options = replace(
            consumer.options,
            store=WorkerStore(worker, self._setup),
            sqs=sqs,
            calls=Callees(consumer.options.callees, partial(watched_call, worker)),
            end_process_at_deadline=False,
            error_texts=True,
            logger=WorkerLog(worker),
            metrics=SILENT,
            tracer=None,
            meter=None,
        )
        function = watched_handler(consumer.__wrapped__, worker)
        return consumer.with_options(options, function, clock=clock, executor=executor)


def _read_by_lambda(response: Any, event: Any) -> Any:
    """A response as Lambda reads it: an empty one acknowledges every message; after an unknown id, all fail."""
    failures = response.get("batchItemFailures") if isinstance(response, Mapping) else response
    failed = [one.get("itemIdentifier") for one in failures or ()]
    known = [record["messageId"] for record in event["Records"]]
    named = failed if set(failed) <= set(known) else known
    return {"batchItemFailures": [{"itemIdentifier": id} for id in named]}
