"""Lambda's event source in memory: a queue, its dead letters, the records, and workers that may be killed.

Each invocation is a worker of its own. A handler that calls `kill` ends its worker there: the thread stays, as the
process's memory would be gone, and whatever it held is left to its lease and its visibility timeout.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing import Pipe
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from idempotent_receiver.protocol.charges import charged_of
from idempotent_receiver.protocol.record import Record, from_attributes
from idempotent_receiver.sqs.received import lambda_record
from idempotent_receiver.testing.worker import SILENT
from tests.consumers import controlled
from tests.contexts import Context
from tests.manual_clock import ManualClock
from tests.queues import ENDPOINT, Queues
from tests.unit.sqs.test_sends import Orders

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.queues import Kept

INVOCATION_SECONDS = 30.0
VISIBILITY_SECONDS = 60
MOST_POLLS = 5000


class Killed(Exception):
    """Ends a killed worker's thread once the test is over."""


class Remote:
    """What a forked worker asks its parent for: a table, queues or a list."""

    namespace = None
    meta = SimpleNamespace(endpoint_url=ENDPOINT, service_model=SimpleNamespace(service_name="sqs"))

    def __init__(self, pipe: Any, lock: threading.Lock, what: str) -> None:
        self._pipe, self._lock, self._what = pipe, lock, what

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("send_messages", "table_id"):
            raise AttributeError(name)

        def ask(*arguments: Any, **named: Any) -> Any:
            with self._lock:
                self._pipe.send((self._what, name, arguments, named))
                return self._pipe.recv()

        return ask


class Pipeline:
    """A consumer of a queue. `runs` are the bodies that its handler has started with, in order."""

    def __init__(
        self,
        handle: Callable[..., None],
        *,
        fifo: bool = False,
        batch: int = 10,
        most_receives: int = 50,
        store: Any = None,
        forks: bool = False,
        **options: Any,
    ) -> None:
        self.forks = forks
        """Whether each invocation is a process of its own, which `kill` really ends."""
        self.clock = ManualClock()
        self.queues, self.batch = Queues(self.clock), batch
        ending = ".fifo" if fifo else ""
        self.dead_letters = self.queues.create("dead" + ending)
        self.queue = self.queues.create("orders" + ending, self.dead_letters)
        self.queue.most_receives = most_receives
        self.store: Any = Orders() if store is None else store
        self.runs: list[str] = []
        self.done: list[str] = []
        self.answers: list[list[str]] = []
        """The bodies that each invocation reported as failed; none if it was killed."""
        self._handle = handle
        self._over, self._killed = threading.Event(), threading.Event()
        self._threads: list[threading.Thread] = []
        self._sent = 0
        sqs: Any = self.queues
        given = {"sqs": sqs, "clock": self.clock, "logger": SILENT, "metrics": SILENT, **options}
        given.setdefault("dead_letter_queue", self.dead_letters.url)
        self.new = controlled(self.store, **given)(self._run)

    def _run(self, body: str) -> None:
        self.runs.append(body)
        self._handle(body, self)
        self.done.append(body)

    def kill(self) -> None:
        """End this worker. Nothing that it would do from now on happens before the test is over."""
        if self.forks:
            os._exit(9)
        self._killed.set()
        self._over.wait()
        raise Killed

    def close(self) -> None:
        """Let the threads of killed workers end."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    def send(self, *bodies: str, group: str | None = None) -> None:
        for body in bodies:
            self._sent += 1
            grouped = {"MessageGroupId": group or body, "MessageDeduplicationId": str(self._sent)}
            self.queues.send_message(QueueUrl=self.queue.url, MessageBody=body, **(grouped if self.queue.fifo else {}))

    def poll(self, consumer: Any = None) -> bool:
        """Receive and handle a batch, if there is one; what of it succeeded is deleted."""
        received: list[dict[str, Any]] = []
        while len(received) < self.batch:
            most = min(10, self.batch - len(received))
            url = self.queue.url
            got = self.queues.receive_message(
                QueueUrl=url, MaxNumberOfMessages=most, VisibilityTimeout=VISIBILITY_SECONDS
            )
            received += got.get("Messages", [])
            if len(got.get("Messages", [])) < most:
                break
        if not received:
            return False
        answer = self._invoke(consumer or self.new, [lambda_record(each, self.queue.arn) for each in received])
        if answer is None:
            self.answers.append([])
            return True
        failed = {each["itemIdentifier"] for each in answer["batchItemFailures"]}
        self.answers.append([each["Body"] for each in received if each["MessageId"] in failed])
        done = [each["ReceiptHandle"] for each in received if each["MessageId"] not in failed]
        for start in range(0, len(done), 10):
            entries = [{"Id": str(place), "ReceiptHandle": one} for place, one in enumerate(done[start : start + 10])]
            self.queues.delete_message_batch(QueueUrl=self.queue.url, Entries=entries)
        return True

    def _invoke(self, consumer: Any, records: list[dict[str, Any]]) -> Any:
        answers: list[Any] = []
        ended = threading.Event()

        def work() -> None:
            answers.append(consumer({"Records": records}, Context(self.clock, INVOCATION_SECONDS)))
            ended.set()

        self._killed.clear()
        if self.forks:
            return self._forked(consumer, records)
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        while not (ended.is_set() or self._killed.is_set()):
            ended.wait(0.0005)
        if not ended.is_set():
            self._threads.append(thread)
            return None
        return answers[0]

    def _forked(self, consumer: Any, records: list[dict[str, Any]]) -> Any:
        """An invocation in a forked process, which asks this one for all that it shares with others."""
        ours, theirs = Pipe()
        if (pid := os.fork()) == 0:
            ours.close()
            remote = partial(Remote, theirs, threading.Lock())
            self.runs, self.done = remote("runs"), remote("done")  # type: ignore[assignment]
            options = replace(consumer.options, store=remote("store"), sqs=remote("queues"))
            answer = consumer.with_options(options)({"Records": records}, Context(self.clock, INVOCATION_SECONDS))
            theirs.send(("answer", "", (answer,), {}))
            os._exit(0)
        theirs.close()
        answer = None
        with suppress(EOFError):
            while True:
                what, name, arguments, named = ours.recv()
                if what == "answer":
                    (answer,) = arguments
                else:
                    ours.send(getattr(getattr(self, what), name)(*arguments, **named))
        os.waitpid(pid, 0)
        return answer

    def pass_time(self, seconds: float = 5.0) -> None:
        self.clock.seconds += seconds

    def run(self, until: Callable[[], bool] | None = None) -> None:
        """Poll until the queue is empty, or until the condition holds."""
        for _ in range(MOST_POLLS):
            if not self.queue.messages or (until is not None and until()):
                return
            if not self.poll():
                visible = min((kept.visible_seconds for kept in self.queue.messages), default=0.0)
                self.clock.seconds = max(visible, self.clock.seconds + 1)
        raise AssertionError([kept.sent["MessageBody"] for kept in self.queue.messages])

    # What is there.

    @property
    def dead(self) -> list[str]:
        return [kept.sent["MessageBody"] for kept in self.dead_letters.messages]

    def kept(self, body: str) -> Kept:
        """The message with this body in the queue."""
        return next(kept for kept in self.queue.messages if kept.sent["MessageBody"] == body)

    def record(self, key: str) -> Record:
        return from_attributes(self.store.items[key])

    def charged(self, key: str) -> int:
        return charged_of(self.record(key)).attempts

    @property
    def most_charged(self) -> dict[str, int]:
        """What each record says that its message has cost, if anything."""
        counts = {id: charged_of(from_attributes(item)).attempts for id, item in self.store.items.items()}
        return {id: count for id, count in counts.items() if count}
