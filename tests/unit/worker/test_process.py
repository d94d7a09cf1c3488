"""One process of the worker on a queue in memory: what it holds, gives back and renews, and when it must end."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import threading
from queue import Empty, SimpleQueue
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from aws_lambda_powertools.metrics import EphemeralMetrics
from botocore.exceptions import ClientError, ConnectionClosedError

from idempotent_receiver import MemoryStore, Message, RetryLater, message_id, sqs_consumer
from idempotent_receiver.clock import SystemClock
from idempotent_receiver.protocol.charges import NO_CHARGE, Allowance, Charged, charged_of
from idempotent_receiver.protocol.record import Change, from_attributes
from idempotent_receiver.protocol.transitions import Claim
from idempotent_receiver.sqs.handlers import consumer_inside
from idempotent_receiver.sqs.visibility import Backoff
from idempotent_receiver.worker import process as module
from idempotent_receiver.worker.host import WorkerHost
from idempotent_receiver.worker.leases import Leases
from idempotent_receiver.worker.orphans import give_back
from idempotent_receiver.worker.process import Limits, Process, logger
from idempotent_receiver.worker.reports import Reports
from tests.manual_clock import ManualClock
from tests.metering import Metering
from tests.tracing import MESSAGE_ID, Tracing, of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SOON = 10.0
"""How long a test waits for another thread before it fails."""


class Queue:
    """A queue in memory: what was received, and what each message was answered."""

    url = "queue"

    def __init__(self) -> None:
        self.most: list[int] = []
        self.waits: list[int] = []
        self.batches: SimpleQueue[list[dict[str, Any]]] = SimpleQueue()
        self.deleted: list[str] = []
        self.changed: list[tuple[str, int]] = []
        self.answers = threading.Event()
        self.answers.set()
        self.arrives: Callable[[], None] = lambda: None

    def send(self, *messages: tuple[str, str]) -> None:
        """These are received together, each an id and a receipt handle."""
        self.batches.put([record(id, handle) for id, handle in messages])

    def receive(self, most: int, *, wait_seconds: int, **_: int) -> list[dict[str, Any]]:
        self.most.append(most)
        self.waits.append(wait_seconds)
        try:
            batch = self.batches.get(timeout=0.02)
        except Empty:
            return []
        self.arrives()
        return batch

    def delete(self, handles: Sequence[str]) -> list[str]:
        self.deleted += handles
        return []

    def change(self, visibilities: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
        self.answers.wait(SOON)
        self.changed += visibilities
        return []


def record(id: str, handle: str) -> dict[str, Any]:
    return {
        "messageId": id,
        "receiptHandle": handle,
        "body": f'"{id}"',
        "attributes": {"ApproximateReceiveCount": "1"},
        "messageAttributes": {},
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:us-east-1:123456789012:orders",
    }


def in_group(record: dict[str, Any], group: str) -> dict[str, Any]:
    """The same from a FIFO queue."""
    attributes = {**record["attributes"], "MessageGroupId": group}
    return {**record, "attributes": attributes, "eventSourceARN": record["eventSourceARN"] + ".fifo"}


class NoTimer:
    """A kernel timer that ends nothing."""

    def arm(self, seconds: float) -> None: ...

    def disarm(self) -> None: ...


class Worker:
    """A process at work on its own thread. Its handlers wait until they may return."""

    def __init__(
        self,
        *,
        asynchronous: bool = False,
        tracer: Any = None,
        meter: Any = None,
        restarts: int = 0,
        metrics: Any = None,
        key: Any = message_id,
        options: dict[str, Any] | None = None,
        **limits: Any,
    ) -> None:
        self.at_once: list[int] = []
        self.begins: Callable[[], object] = lambda: None
        self._running: set[str] = set()
        self.queue, self.store = Queue(), MemoryStore(namespace=None if key is message_id else "orders")
        self.lost: SimpleQueue[str] = SimpleQueue()
        self.started: SimpleQueue[str] = SimpleQueue()
        self.may_return: dict[str, threading.Event] = {}
        self.limits = Limits(**{"lease_seconds": 60.0, "margin_seconds": 0.1, **limits})
        clock = SystemClock()
        leases = Leases(
            self.store,
            clock,
            NoTimer(),
            lambda record_id, why: self.lost.put(why),
            lease_seconds=self.limits.lease_seconds,
            margin_seconds=self.limits.margin_seconds,
        )
        consumer = consumer_inside(
            sqs_consumer(
                self.store,
                key=key,
                concurrency=self.limits.concurrency,
                tracer=tracer,
                meter=meter,
                metrics=metrics,
                **(options or {}),
            )(self._coroutine if asynchronous else self._handle)
        )
        assert consumer is not None
        queue: Any = self.queue
        reports = Reports(None, "me")
        self.process = Process(
            consumer, queue, leases=leases, limits=self.limits, reports=reports, clock=clock, restarts=restarts
        )
        self._thread = threading.Thread(target=self.process.run, daemon=True)
        self._thread.start()

    def receives(self, *messages: tuple[str, str]) -> None:
        for id, _ in messages:
            self.may_return.setdefault(id, threading.Event())
        self.queue.send(*messages)

    def finishes(self, id: str) -> None:
        self.may_return[id].set()

    def ends(self) -> None:
        """Drain, after all handlers have returned."""
        for event in self.may_return.values():
            event.set()
        self.process.draining = True
        self._thread.join(SOON)
        assert not self._thread.is_alive()

    def _handle(self, body: str, message: Message) -> None:
        self._running.add(message.id)
        self.at_once.append(len(self._running))
        self.started.put(message.id)
        self.may_return[message.id].wait(SOON)
        self._running.discard(message.id)
        if message.id == "early":
            raise RetryLater(seconds=3600)
        if message.id == "bad":
            raise ValueError(body)

    async def _coroutine(self, body: str, message: Message) -> None:
        self.begins()
        await asyncio.to_thread(self._handle, body, message)


@pytest.fixture
def start() -> Iterator[Callable[..., Worker]]:
    workers: list[Worker] = []

    def start(**limits: Any) -> Worker:
        workers.append(Worker(**limits))
        return workers[-1]

    yield start
    for worker in workers:
        worker.queue.answers.set()
        worker.ends()


def until(done: Callable[[], object]) -> None:
    """Wait until that is so."""
    pause = threading.Event()
    for _ in range(int(SOON / 0.01)):
        if done():
            return
        pause.wait(0.01)
    raise AssertionError("it has not happened")


def test_a_message_that_comes_again_while_it_runs_here_disturbs_nothing(start: Callable[..., Worker]) -> None:
    """Its handler's success is its outcome, and the process waits for it before it ends."""
    worker = start(concurrency=2)
    worker.receives(("m", "first"))
    assert worker.started.get(timeout=SOON) == "m"
    worker.receives(("m", "second"))
    until(lambda: [one for one in worker.queue.changed if one[0] == "second"])

    worker.process.draining = True
    worker.finishes("m")
    worker.ends()

    assert worker.queue.deleted == ["first"]
    assert [item["status"] for item in worker.store.items.values()] == ["COMPLETED"]
    assert worker.started.empty()


def test_after_its_messages_a_process_receives_none_and_ends_when_each_has_its_outcome(
    start: Callable[..., Worker],
) -> None:
    worker = start(concurrency=2, max_messages=3)
    worker.receives(("a", "1"), ("b", "2"))
    assert {worker.started.get(timeout=SOON) for _ in "ab"} == {"a", "b"}
    worker.finishes("a")
    worker.receives(("c", "3"))
    assert worker.started.get(timeout=SOON) == "c"
    polls = len(worker.queue.most)
    worker.receives(("d", "4"))
    worker.finishes("b")
    until(lambda: sorted(worker.queue.deleted) == ["1", "2"])
    assert worker._thread.is_alive()

    worker.finishes("c")
    worker._thread.join(SOON)

    assert not worker._thread.is_alive()
    assert sorted(worker.queue.deleted) == ["1", "2", "3"]
    assert (worker.queue.most[0], worker.queue.most[-1], len(worker.queue.most)) == (2, 1, polls)
    assert not worker.process.draining


@pytest.mark.parametrize("asynchronous", [False, True], ids=["plain", "coroutine"])
def test_a_message_has_a_span_and_an_idle_poll_has_none(start: Callable[..., Worker], asynchronous: bool) -> None:
    """Nothing is current here, so it begins a trace; and no function's trigger delivered it."""
    tracing = Tracing()
    worker = start(tracer=tracing.tracer, asynchronous=asynchronous)
    until(lambda: len(worker.queue.most) > 3)
    assert tracing.spans == []
    worker.receives(("m", "1"))
    worker.finishes("m")
    until(lambda: worker.queue.deleted == ["1"])
    worker.ends()

    assert [span.name for span in tracing.spans] == ["claim", "settle", "process orders"]
    (span,) = tracing.of_messages
    assert (of(span, MESSAGE_ID), of(span, "faas.trigger"), span.parent) == ("m", None, None)


def of_worker(metering: Metering, *names: str) -> dict[str, float]:
    values = metering.values
    return {name: values[f"idempotent_receiver.{name}"] for name in names}


def test_a_process_measures_what_it_holds_renews_and_suspects_and_counts_restarts(
    start: Callable[..., Worker],
) -> None:
    """Beside what every batch measures, whenever the meter's SDK collects."""
    metering = Metering()
    worker = start(meter=metering.meter, lease_seconds=1.5, restarts=2)
    worker.receives(("m", "1"))
    worker.process.run_alone("culprit", 60.0)
    until(lambda: of_worker(metering, "renewals")["renewals"] >= 1)
    assert of_worker(metering, "in_flight", "suspects", "restarts") == {"in_flight": 1, "suspects": 1, "restarts": 2}
    assert "idempotent_receiver.completed" not in metering.values

    worker.finishes("m")
    worker.process.run_alone("culprit", 0)
    worker.ends()

    ended = of_worker(metering, "in_flight", "suspects", "completed")
    assert ended == {"in_flight": 0, "suspects": 0, "completed": 1}
    assert {metering.units[f"idempotent_receiver.{name}"] for name in ("renewals", "restarts")} == {
        "{lease}",
        "{process}",
    }


class NoMeter:
    """Its instruments cannot be created."""

    def create_counter(self, *_: object, **options: object) -> Any:
        raise OSError

    create_histogram = create_observable_gauge = create_observable_counter = create_counter
    create_observable_up_down_counter = create_counter


def test_a_process_works_with_a_meter_that_raises(start: Callable[..., Worker]) -> None:
    try:
        worker = start(meter=NoMeter())
    except OSError:
        pytest.fail("it must never raise")
    worker.receives(("m", "1"))
    worker.finishes("m")
    until(lambda: worker.queue.deleted == ["1"])


@pytest.mark.parametrize(("id", "goes_on"), [("completes", True), ("bad", False)])
def test_the_tasks_of_a_completed_message_go_on(start: Callable[..., Worker], id: str, goes_on: bool) -> None:
    """A client that the module keeps may need them. What a failed message has begun ends before its batch does."""
    kept: list[Any] = []
    worker = start(asynchronous=True)

    async def receives() -> None:
        while True:
            await asyncio.to_thread(threading.get_ident)

    worker.begins = lambda: kept.append(asyncio.create_task(receives()))
    worker.receives((id, "1"))
    worker.finishes(id)
    until(lambda: worker.queue.deleted or worker.queue.changed)
    worker.ends()

    assert [task.done() for task in kept] == [not goes_on]
    if goes_on:
        (task,) = kept
        task.get_loop().call_soon_threadsafe(task.cancel)
        until(task.cancelled)


def test_a_process_that_ends_has_written_the_metrics_of_its_last_batch(
    start: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    may_write = threading.Event()
    consume = Process._consume

    def slowly(self: Process, *given: Any) -> None:
        consume(self, *given)
        may_write.wait(SOON)

    monkeypatch.setattr(Process, "_consume", slowly)
    worker = start(max_messages=1)
    worker.receives(("m", "1"))
    worker.finishes("m")
    until(lambda: worker.queue.deleted == ["1"])
    worker._thread.join(0.2)
    assert worker._thread.is_alive()

    may_write.set()
    worker._thread.join(SOON)
    assert not worker._thread.is_alive()


def test_what_handlers_add_to_shared_metrics_is_sent_without_the_decorator_that_would(
    start: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A worker leaves out what stands around the consumer, such as Powertools' `log_metrics`."""
    metrics = EphemeralMetrics(namespace="Shop")
    handle = Worker._handle

    def counting(self: Worker, body: str, message: Message) -> None:
        metrics.add_metric("Ordered", unit="Count", value=2)
        handle(self, body, message)

    monkeypatch.setattr(Worker, "_handle", counting)
    worker = start(max_messages=1, metrics=metrics)
    worker.receives(("m", "1"))
    worker.finishes("m")
    worker._thread.join(SOON)

    sent = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each.get("Completed"), each.get("Ordered")) for each in sent] == [([1.0], None), (None, [2.0])]


def test_a_queue_that_does_not_answer_holds_up_no_lease(start: Callable[..., Worker]) -> None:
    worker = start(lease_seconds=0.9)
    worker.receives(("m", "first"))
    worker.started.get(timeout=SOON)
    worker.queue.answers.clear()
    [item] = worker.store.items.values()
    ends = item["in_progress_expiration"]

    until(lambda: next(iter(worker.store.items.values()))["in_progress_expiration"] > ends + 1_000)


def test_a_renewal_that_is_under_way_undoes_no_give_back(
    start: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would hide the message for as long as a lease: SQS keeps what it is told last."""
    renews, lands = threading.Event(), threading.Event()
    worker = start(lease_seconds=0.9)

    def change(visibilities: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
        if ("1", 1) in visibilities:
            renews.set()
            lands.wait(SOON)
        worker.queue.changed += visibilities
        return []

    monkeypatch.setattr(worker.queue, "change", change)
    worker.receives(("early", "1"))
    assert renews.wait(SOON)
    worker.finishes("early")
    until(lambda: [item["status"] for item in worker.store.items.values()] == ["FAILED"])
    threading.Event().wait(0.1)  # a give-back that waits for nothing has left by now
    lands.set()

    until(lambda: ("1", 3600) in worker.queue.changed)
    until(lambda: ("1", 1) in worker.queue.changed)
    assert worker.queue.changed[-1] == ("1", 3600)


def test_a_key_that_is_never_made_keeps_no_process_from_receiving(start: Callable[..., Worker]) -> None:
    """Its message waits, as one whose handler hangs would, and takes no handler from the others."""
    may_end = threading.Event()

    def key(message: Message) -> str:
        if message.id == "hangs":
            may_end.wait(2 * SOON)
        return message.id

    worker = start(key=key, concurrency=2)
    worker.receives(("hangs", "a"))
    try:
        until(lambda: len(worker.queue.most) > 1)
        worker.receives(("next", "b"))
        until(lambda: not worker.started.empty())
    finally:
        may_end.set()

    assert worker.started.get() == "next"


def test_draining_gives_back_at_once_what_has_not_started(start: Callable[..., Worker]) -> None:
    """However long the handler that runs goes on, and nothing starts after it."""
    worker = start()
    worker.receives(("runs", "1"), ("waits", "2"))
    worker.started.get(timeout=SOON)

    worker.process.draining = True
    until(lambda: [one for one in worker.queue.changed if one[0] == "2"])
    assert worker.queue.deleted == []
    worker.ends()

    assert worker.queue.deleted == ["1"]
    assert worker.started.empty()


def test_what_a_poll_brings_after_draining_has_begun_goes_back_at_once_and_does_not_start(
    start: Callable[..., Worker],
) -> None:
    worker = start()
    worker.queue.arrives = lambda: setattr(worker.process, "draining", True)
    worker.receives(("a", "1"), ("b", "2"))

    until(lambda: worker.queue.changed)
    worker.ends()

    assert worker.queue.changed == [("1", 0), ("2", 0)]
    assert worker.started.empty()


def numbered(first: int, count: int) -> list[tuple[str, str]]:
    return [(f"m{number}", str(number)) for number in range(first, first + count)]


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many messages each batch of the process had."""
    sizes: list[int] = []
    handle = Process._handle

    def counted(self: Process, records: list[dict[str, Any]]) -> None:
        sizes.append(len(records))
        handle(self, records)

    monkeypatch.setattr(Process, "_handle", counted)
    return sizes


def test_two_full_receives_are_one_batch_and_the_second_waits_for_no_message(
    batches: list[int], start: Callable[..., Worker]
) -> None:
    """What the first brought is held meanwhile: the second may take as long as the client lets it."""
    worker, held = start(concurrency=25), list[int]()
    worker.queue.arrives = lambda: held.append(len(worker.process._in_flight.handles))
    until(lambda: worker.queue.most)
    polls = len(worker.queue.most)
    worker.receives(*numbered(0, 10))
    worker.receives(*numbered(10, 8))

    until(lambda: worker.started.qsize() == 18)
    worker.ends()

    assert batches == [18]
    assert held == [0, 10]
    place = worker.queue.waits.index(0)
    assert place >= polls
    assert (worker.queue.most[place - 1 : place + 1], worker.queue.waits.count(0)) == ([10, 10], 1)


@pytest.mark.parametrize(("limits", "count"), [({}, 9), ({}, 1), ({"receive": 9}, 9), ({"max_messages": 10}, 10)])
def test_a_receive_that_is_not_full_is_handled_without_another(
    batches: list[int], start: Callable[..., Worker], limits: dict[str, int], count: int
) -> None:
    """A lone message waits for none. Nor does the last that a process may receive."""
    worker = start(concurrency=25, **limits)
    worker.receives(*numbered(0, count))

    until(lambda: worker.started.qsize() == count)
    worker.ends()

    assert batches == [count]
    assert 0 not in worker.queue.waits


def test_a_second_receive_that_fails_neither_loses_nor_delays_the_first(
    batches: list[int], start: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    worker, receive, pauses = start(concurrency=25), Queue.receive, list[float]()

    def refuse(self: Queue, most: int, *, wait_seconds: int, **given: int) -> list[dict[str, Any]]:
        if wait_seconds == 0:
            raise ConnectionClosedError(endpoint_url="https://sqs.test")
        return receive(self, most, wait_seconds=wait_seconds, **given)

    monkeypatch.setattr(Queue, "receive", refuse)
    monkeypatch.setattr(SystemClock, "fraction", lambda clock: pauses.append(1.0) or 0.0)
    worker.receives(*numbered(0, 10))

    until(lambda: worker.started.qsize() == 10)
    monkeypatch.undo()
    worker.ends()

    assert batches == [10]
    assert "could not be polled: ConnectionClosedError" in caplog.text
    assert pauses == []


def test_draining_during_a_second_receive_gives_back_what_both_brought(
    batches: list[int], start: Callable[..., Worker]
) -> None:
    worker = start(concurrency=25)
    worker.queue.arrives = lambda: setattr(worker.process, "draining", bool(worker.process._in_flight.handles))
    worker.receives(*numbered(0, 10))
    worker.receives(*numbered(10, 3))

    until(lambda: len(worker.queue.changed) == 13)
    worker.ends()

    assert {handle for handle, _ in worker.queue.changed} == {str(number) for number in range(13)}
    assert worker.started.empty()


def test_a_message_comes_again_when_its_handler_said_and_its_group_with_it(start: Callable[..., Worker]) -> None:
    worker = start()
    worker.may_return |= {id: threading.Event() for id in ("early", "behind", "elsewhere")}
    group = {"early": "g", "behind": "g", "elsewhere": "h"}
    worker.queue.batches.put([in_group(record(id, id), group[id]) for id in group])
    assert worker.started.get(timeout=SOON) == "early"
    worker.finishes("early")
    worker.finishes("elsewhere")

    until(lambda: {("early", 3600), ("behind", 3600)} <= set(worker.queue.changed))
    until(lambda: worker.queue.deleted == ["elsewhere"])
    assert [item["status"] for item in worker.store.items.values()].count("FAILED") == 1


def test_suspects_run_alone_after_their_neighbours_and_nothing_goes_back(start: Callable[..., Worker]) -> None:
    """What is sent back has used up a receive: after a few of those it would be a dead letter, without a run."""
    worker = start(concurrency=3, lease_seconds=0.9)
    worker.receives(("long", "1"))
    assert worker.started.get(timeout=SOON) == "long"
    worker.process.run_alone("first", 60)
    worker.process.run_alone("second", 60)
    worker.receives(("first", "2"), ("neighbour", "3"), ("second", "4"))

    assert worker.started.get(timeout=SOON) == "neighbour"
    until(lambda: {("2", 1), ("3", 1), ("4", 1)} <= set(worker.queue.changed))
    worker.finishes("neighbour")
    assert worker.started.empty()
    worker.finishes("long")
    assert worker.started.get(timeout=SOON) == "first"
    until(lambda: worker.queue.changed.count(("4", 1)) > 1)
    assert worker.started.empty()
    worker.finishes("first")
    assert worker.started.get(timeout=SOON) == "second"
    assert {seconds for _, seconds in worker.queue.changed} == {1}


def test_a_suspect_of_a_fifo_queue_runs_with_what_follows_it_in_its_group(start: Callable[..., Worker]) -> None:
    """One after another, so its group keeps its order; other groups run before."""
    worker = start(concurrency=3)
    worker.process.run_alone("head", 60)
    for id in ("head", "other", "tail"):
        worker.may_return[id] = threading.Event()
    group = {"head": "g", "tail": "g", "other": "h"}
    worker.queue.batches.put([in_group(record(id, id), group[id]) for id in ("head", "other", "tail")])

    assert worker.started.get(timeout=SOON) == "other"
    worker.finishes("other")
    assert worker.started.get(timeout=SOON) == "head"
    worker.finishes("head")
    assert worker.started.get(timeout=SOON) == "tail"


def test_while_there_is_a_suspect_one_message_is_received_at_a_time(start: Callable[..., Worker]) -> None:
    """What is received together with it would lose a receive by each death: the next of its group, above all."""
    worker = start(concurrency=3)
    until(lambda: 3 in worker.queue.most[-1:])

    worker.process.run_alone("suspect", 60)
    until(lambda: worker.queue.most[-1] == 1)
    worker.process.run_alone("suspect", 0)
    until(lambda: worker.queue.most[-1] == 3)


def test_a_suspect_runs_alone_each_time_that_it_comes(start: Callable[..., Worker]) -> None:
    """Until the supervisor says that its run has ended."""
    worker = start(concurrency=2)
    worker.process.run_alone("suspect", 60)
    worker.receives(("suspect", "1"))
    assert worker.started.get(timeout=SOON) == "suspect"
    worker.finishes("suspect")
    worker.receives(("suspect", "2"), ("neighbour", "3"))
    assert worker.started.get(timeout=SOON) == "neighbour"
    assert "2" not in worker.queue.deleted
    worker.finishes("neighbour")

    until(lambda: "2" in worker.queue.deleted)


def limited() -> dict[str, Any]:
    sent: list[Any] = []
    sqs: Any = SimpleNamespace(
        send_message=lambda **arguments: sent.append(arguments),
        change_message_visibility_batch=lambda **arguments: None,
        meta=SimpleNamespace(endpoint_url="", service_model=SimpleNamespace(service_name="sqs")),
        sent=sent,
    )
    return {"max_attempts": 2, "sqs": sqs, "dead_letter_queue": "https://sqs/123456789012/dead"}


def crashed(store: MemoryStore, id: str) -> None:
    """The record that a whole machine left behind, of which no supervisor knows."""
    store.items[id] = {"id": id, "status": "INPROGRESS", "version": "v", "owner": "gone", "attempts": 1}
    store.items[id] |= {"in_progress_expiration": 1, "expiration": 2**33}


def test_what_its_record_says_has_crashed_comes_again_and_runs_alone(start: Callable[..., Worker]) -> None:
    """Among others, it would take them with it, and pay for their crash. It is a suspect until it has run."""
    worker = start(concurrency=3, options=limited())
    crashed(worker.store, "crashed")
    worker.receives(("crashed", "1"), ("neighbour", "2"))
    assert worker.started.get(timeout=SOON) == "neighbour"
    worker.finishes("neighbour")
    until(lambda: [handle for handle, _ in worker.queue.changed] == ["1"])
    assert worker.store.items["crashed"]["owner"] == "gone", "it was not claimed"

    worker.receives(("crashed", "3"), ("other", "4"))
    assert worker.started.get(timeout=SOON) == "other"
    assert worker.started.empty()
    worker.finishes("other")
    assert worker.started.get(timeout=SOON) == "crashed"
    assert charged_of(from_attributes(worker.store.items["crashed"])) == Charged(0, True, "crashed")
    worker.finishes("crashed")
    until(lambda: "3" in worker.queue.deleted)
    until(lambda: worker.queue.most[-1] > 1)


def test_the_message_that_a_process_died_running_pays_once_it_ran_alone(start: Callable[..., Worker]) -> None:
    """Its first death is charged to nobody, and what had not started is in none of them."""
    worker = start(concurrency=1, options=limited())
    store, queue, clock = worker.store, worker.queue, SystemClock()
    worker.ends()
    crashed(store, "m"), crashed(store, "behind")
    for cost in (Charged(0, True), Charged(1, True, "m"), Charged(2, True, "m")):
        orphans = [
            {"id": id, "handle": id, "receives": 1, "record": id, "started": id == "m", "owner": "gone"}
            for id in ("m", "behind")
        ]
        give_back(orphans, store, queue, clock, logger, backoff=Backoff(), charged=True)
        left = from_attributes(store.items["m"])
        assert charged_of(left) == cost
        assert (left.owner, left.status) == (None, "INPROGRESS")
        assert charged_of(from_attributes(store.items["behind"])) == NO_CHARGE
        claim = Claim("m", None, "gone", 0, allowance=Allowance("m", 2), alone=True)
        (change,) = [claim.step(left, (), clock.epoch_ms(), f"claim-{cost.attempts}")]
        assert isinstance(change, Change)
        store.replace([change])
        store.items["behind"]["owner"] = "gone"
    assert store.items["m"]["status"] == "FAILED", "the fence, before its dead letter"


def test_suspects_that_wait_for_their_turn_go_back_when_the_process_drains(start: Callable[..., Worker]) -> None:
    worker = start()
    worker.process.run_alone("first", 60)
    worker.process.run_alone("second", 60)
    worker.receives(("first", "1"), ("second", "2"))
    assert worker.started.get(timeout=SOON) == "first"
    worker.process.draining = True
    worker.finishes("first")

    until(lambda: "2" in [handle for handle, seconds in worker.queue.changed if seconds <= 2])
    assert worker.started.empty()


@pytest.mark.parametrize("asynchronous", [False, True])
def test_batches_that_overlap_share_the_handlers_that_may_run_at_once(
    start: Callable[..., Worker], *, asynchronous: bool
) -> None:
    """What waits starts as soon as a handler of another batch has ended."""
    worker = start(concurrency=3, asynchronous=asynchronous)
    worker.receives(("a", "a"), ("b", "b"))
    assert {worker.started.get(timeout=SOON), worker.started.get(timeout=SOON)} == {"a", "b"}
    worker.receives(("c", "c"), ("d", "d"), ("e", "e"))
    until(lambda: len(worker.at_once) == 3)
    threading.Event().wait(0.1)  # what waits for nobody has started by now
    worker.finishes("a")
    until(lambda: len(worker.at_once) == 4)

    assert worker.at_once == [1, 2, 3, 3]


def test_a_lease_and_a_time_limit_keep_their_parts_of_a_second(start: Callable[..., Worker]) -> None:
    worker = start(lease_seconds=60.75, time_limit_seconds=100.95)
    given: SimpleQueue[tuple[int, int]] = SimpleQueue()
    consumer: Any = SimpleNamespace(
        options=worker.process._consumer.options,
        receive=lambda event, context, lease_ms, host: given.put((lease_ms, context.get_remaining_time_in_millis())),
    )
    worker.process._consumer = consumer

    worker.receives(("m", "1"))
    lease_ms, left_ms = given.get(timeout=SOON)

    assert lease_ms == 60_750
    assert 100_000 < left_ms <= 100_950


def test_a_handler_that_outlives_the_time_limit_ends_the_process(
    start: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: SimpleQueue[str] = SimpleQueue()
    monkeypatch.setattr(module, "die", ends.put)
    worker = start(time_limit_seconds=2.0)
    worker.receives(("hangs", "1"))

    until(lambda: not ends.empty())
    assert ends.get() == "the handler for hangs has run for more than 2 seconds"


def test_a_batch_that_fails_as_a_whole_ends_the_process_if_handlers_run(
    start: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would settle them, and their leases would be renewed for ever."""
    ends: SimpleQueue[str] = SimpleQueue()
    monkeypatch.setattr(module, "die", ends.put)

    def fail(*_: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(WorkerHost, "ended", fail)
    worker = start(concurrency=2)
    worker.receives(("runs", "1"), ("ends", "2"))
    assert {worker.started.get(timeout=SOON), worker.started.get(timeout=SOON)} == {"runs", "ends"}
    worker.finishes("ends")

    assert worker.lost.get(timeout=SOON) == "its batch has failed"
    assert ends.get(timeout=SOON) == "the batch failed while these messages were being handled: runs"


@pytest.mark.parametrize("error", [KeyError("Failed"), ConnectionClosedError(endpoint_url="https://sqs.example.com")])
def test_what_sqs_raises_ends_no_thread(
    start: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Not even if it is botocore's for a connection that broke, whose response is None."""
    worker = start()
    refused: list[Sequence[str]] = []

    def refuse(handles: Sequence[str]) -> list[str]:
        refused.append(handles)
        raise error

    monkeypatch.setattr(worker.queue, "delete", refuse)
    worker.receives(("a", "1"))
    worker.finishes("a")
    until(lambda: len(refused) == 2)  # together, and alone
    monkeypatch.undo()
    worker.receives(("b", "2"))
    worker.finishes("b")

    until(lambda: worker.queue.deleted == ["2"])


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ClientError({"Error": {"Code": "ExpiredToken"}}, "ReceiveMessage"), "ExpiredToken"),
        (ConnectionClosedError(endpoint_url="https://sqs.example.com"), "ConnectionClosedError"),
    ],
)
def test_a_queue_that_refuses_polls_is_named_with_sqs_reason(
    start: Callable[..., Worker],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    reason: str,
) -> None:
    """It is asked again, and works on when it answers."""
    worker = start()

    def refuse(most: int, **_: int) -> list[dict[str, Any]]:
        monkeypatch.undo()
        raise error

    monkeypatch.setattr(SystemClock, "fraction", lambda clock: 0.0)
    monkeypatch.setattr(worker.queue, "receive", refuse)
    until(lambda: f"the queue queue could not be polled: {reason}" in caplog.text)
    worker.receives(("m", "1"))

    assert worker.started.get(timeout=SOON) == "m"


@pytest.mark.parametrize(
    ("ids", "told"),
    [
        (["a"], {"completed": "DEBUG", "batch": "DEBUG"}),
        (["a", "b"], {"completed": "DEBUG", "batch": "INFO"}),
        (["bad"], {"failed, will be retried": "WARNING", "batch": "DEBUG"}),
        (["early"], {"will be retried later, as its handler requested": "INFO", "batch": "DEBUG"}),
    ],
)
def test_only_a_batch_of_several_has_a_summary_at_info(
    start: Callable[..., Worker], caplog: pytest.LogCaptureFixture, ids: list[str], told: dict[str, str]
) -> None:
    """A busy process that receives one message at a time would write a line for each. What fails has its own line."""
    caplog.set_level(logging.DEBUG, "idempotent-receiver")
    worker = start(concurrency=2)
    worker.receives(*[(id, id) for id in ids])
    for id in ids:
        worker.finishes(id)

    until(lambda: "batch" in caplog.messages)
    assert {one.message: one.levelname for one in caplog.records if one.name == "idempotent-receiver"} == told


def test_a_log_that_does_not_answer_keeps_no_process_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a pipe that is full, because whoever takes the container's output waits for its own service."""
    answers = threading.Event()
    done: list[object] = []

    def log(*_: object) -> None:
        answers.wait(SOON)
        done.append("logged")

    monkeypatch.setattr(logger, "error", log)
    monkeypatch.setattr("os.kill", lambda pid, number: done.append((pid, number)))

    module.die("it must end")

    assert done == [(os.getpid(), signal.SIGKILL)]
    answers.set()


# What a dead process has left.


ORPHAN = {"id": "a", "handle": "1", "receives": 1, "record": "r", "started": True, "owner": "dead"}


def given_back(store: MemoryStore, *orphans: dict[str, Any], fraction: float = 0.0) -> list[tuple[str, int]]:
    """The visibilities that the next process gives a dead one's messages."""
    queue = Queue()
    give_back(orphans, store, queue, ManualClock(fraction), logger, backoff=Backoff())  # type: ignore[arg-type]
    return queue.changed


def test_of_two_messages_with_one_record_the_one_that_had_started_counts() -> None:
    """Else its attempt and the fingerprint of what it ran with were forgotten."""
    store = MemoryStore()
    store.items["r"] = {
        "id": "r",
        "status": "INPROGRESS",
        "version": "v",
        "owner": "dead",
        "attempts": 1,
        "validation": "f",
        "in_progress_expiration": ManualClock().epoch_ms() + 5_000,
        "expiration": ManualClock().epoch_ms(),
    }

    changed = given_back(store, ORPHAN, ORPHAN | {"id": "b", "handle": "2", "started": False})

    assert (store.items["r"]["attempts"], store.items["r"]["validation"]) == (1, "f")
    assert changed[1] == ("2", 0)


def test_beside_one_that_had_started_an_attempt_that_never_did_does_not_count() -> None:
    store = MemoryStore()
    record = {"status": "INPROGRESS", "version": "v", "owner": "dead", "attempts": 1, "validation": "f"}
    later = {"in_progress_expiration": ManualClock().epoch_ms() + 5_000, "expiration": ManualClock().epoch_ms()}
    store.items |= {id: {"id": id, **record, **later} for id in ("r", "s")}

    given_back(store, ORPHAN, ORPHAN | {"id": "b", "handle": "2", "record": "s", "started": False})

    assert [store.items[id].get("attempts") for id in ("r", "s")] == [1, 0]


def test_what_had_started_comes_again_after_a_backoff_and_its_neighbours_at_once() -> None:
    """A message that ends every process would else take its neighbours along, receive by receive."""
    orphans = [
        ORPHAN | {"record": None},
        ORPHAN | {"record": None, "id": "b", "handle": "2", "receives": 4},
        ORPHAN | {"record": None, "id": "c", "handle": "3", "receives": 4, "started": False},
    ]

    assert given_back(MemoryStore(), *orphans, fraction=0.5) == [("1", 2), ("2", 16), ("3", 0)]


def test_what_a_dead_process_was_sending_is_sent_by_the_next_one_at_once() -> None:
    """With all that its record has left to send: what SQS had confirmed since, nobody knows."""
    store, now_ms = MemoryStore(), ManualClock().epoch_ms()
    sending = {"id": "r", "status": "SENDING", "version": "v", "owner": "dead", "outbox": "[null,1]", "attempts": 3}
    store.items["r"] = {**sending, "in_progress_expiration": now_ms + 5_000, "expiration": now_ms}
    theirs = {**store.items["r"], "id": "s", "owner": "another"}
    store.items["s"] = dict(theirs)

    given_back(store, ORPHAN, ORPHAN | {"id": "b", "handle": "2", "record": "s"})

    kept = {name: store.items["r"][name] for name in ("status", "outbox", "attempts")}
    assert kept == {"status": "SENDING", "outbox": "[null,1]", "attempts": 3}
    assert store.items["r"]["in_progress_expiration"] <= now_ms
    assert store.items["s"] == theirs


def test_what_another_worker_has_taken_over_is_not_released() -> None:
    """And what comes after it is."""
    store = MemoryStore()
    theirs = {"id": "r", "status": "INPROGRESS", "version": "v", "owner": "another", "in_progress_expiration": 5}
    store.items |= {"r": dict(theirs), "s": theirs | {"id": "s", "owner": "dead"}}

    given_back(store, ORPHAN, ORPHAN | {"id": "b", "handle": "2", "record": "s"})

    assert store.items["r"] == theirs
    assert store.items["s"]["version"] != "v"


def test_only_what_had_started_is_suspect() -> None:
    """What merely waited has ended no process, and need not run alone."""
    orphans: Any = [ORPHAN, ORPHAN | {"id": "b", "handle": "2", "record": None, "started": False}]
    queue: Any = Queue()

    later = give_back(orphans, MemoryStore(), queue, ManualClock(), logger, backoff=Backoff())

    assert [*later] == [ORPHAN["id"]]


def test_what_a_store_raises_keeps_no_process_from_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()

    def fail(ids: Sequence[str]) -> Sequence[Any]:
        raise RuntimeError("a defect")

    monkeypatch.setattr(store, "read", fail)

    assert [handle for handle, _ in given_back(store, ORPHAN)] == ["1"]


def test_its_recurring_jobs_end_with_it() -> None:
    """They would go on in whatever process it is a part of, such as that of these tests."""
    before = set(threading.enumerate())
    worker = Worker(lease_seconds=0.3, margin_seconds=0.01)

    worker.ends()

    until(
        lambda: not [thread for thread in threading.enumerate() if thread not in before and thread.name != "MainThread"]
    )
