"""What a handler sends, in virtual time: who sends it, in which order, and what a stop, a kill or a pause costs."""

from __future__ import annotations

import json
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver import Message, Transaction, sqs_consumer
from idempotent_receiver.testing.worker import SILENT
from idempotent_receiver.transaction.outbox import STAMP
from idempotent_receiver.worker.process import Limits
from tests.simulation.scenario import Scenario
from tests.simulation.sqs_client import SqsClient
from tests.simulation.sqs_model import QueueModel
from tests.simulation.worker_process import Sqs, WorkerProcess, threads_of
from tests.simulation.world import sqs_record

if TYPE_CHECKING:
    from tests.simulation.world import Worker

OUT = "https://sqs.us-east-1.amazonaws.com/123456789012/out.fifo"
LEASE_SECONDS, LONG_SECONDS = 60.0, 100_000.0
both_modes = pytest.mark.parametrize("effects", ["any", "transaction"])


class Post(SqsClient):
    """Queues that take messages in `seconds` a request."""

    def __init__(self, world: Any, seconds: float) -> None:
        super().__init__(world)
        self.seconds = seconds
        self.bodies: list[str] = []
        self.keys: list[str] = []
        self.requests = 0
        self.hangs: set[str] = set()
        """The bodies that are taken without an answer."""
        self.refuses = False

    def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803
        self.requests += 1
        self.world.sleep(self.seconds / 2)
        if self.refuses:
            raise ConnectionError
        for entry in Entries:
            self.bodies.append(entry["MessageBody"])
            self.keys.append(json.loads(entry["MessageAttributes"][STAMP]["StringValue"])["key"])
        if any(entry["MessageBody"] in self.hangs for entry in Entries):
            self.world.sleep(LONG_SECONDS)
        self.world.sleep(self.seconds / 2)
        return {"Successful": [{"Id": entry["Id"]} for entry in Entries], "Failed": []}


class Sending(Scenario):
    """A handler that sends `count` messages to one FIFO group, each of which takes `seconds`."""

    def __init__(self, effects: str, count: int, seconds: float) -> None:
        super().__init__()
        self.count, self.effects = count, effects
        self.post = Post(self.world, seconds)
        self.handled = 0

    def handle(self, body: dict, tx: Transaction) -> None:
        self.handled += 1
        for number in range(self.count):
            tx.send(QueueUrl=OUT, MessageBody=str(number), MessageGroupId="g")

    def receive(self, receives: int, seconds: float = 30.0, after: float = 0.0) -> Worker:
        """Deliver the one order, in a process of its own."""
        record = sqs_record("m", receives=receives)
        return self.deliver(self.handle, record, sqs=self.post, effects=self.effects, seconds=seconds, after=after)

    @property
    def in_order(self) -> list[str]:
        return [str(number) for number in range(self.count)]

    @property
    def lease_seconds(self) -> float:
        """How long the lease lasts from now; none if it is over."""
        until_ms = self.memory.items["m"]["in_progress_expiration"]
        return max(0.0, until_ms / 1000 - self.epoch_seconds)


# Who sends.


@both_modes
def test_of_two_workers_that_find_a_record_unsent_one_sends(effects: str) -> None:
    """The other one finds it held elsewhere."""
    sending = Sending(effects, 10, 0.02)
    first = sending.receive(1)
    sending.world.spawn(first.kill, after=0.02)
    again = [sending.receive(2, after=40 + number / 1000) for number in range(2)]
    sending.run()

    assert sending.handled == 1
    assert sorted(answer for worker in again for answer in worker.answers) == [[], ["m"]]
    assert sending.post.bodies[-10:] == sending.in_order
    assert len(sending.post.bodies) <= 11
    assert sending.status("m") == "COMPLETED"
    assert sending.memory.items["m"]["owner"] in {worker.name for worker in again}


@both_modes
def test_what_a_worker_has_taken_over_the_late_one_cannot_mark(effects: str) -> None:
    """Its machine was suspended while it sent, beyond its lease."""
    sending = Sending(effects, 3, 0.02)
    late = sending.receive(1)
    sending.world.spawn(lambda: late.suspend(50.0), after=0.04)
    other = sending.receive(2, after=40)
    sending.world.spawn(other.kill, after=40.05)
    sending.run()

    assert late.answers == [["m"]]
    assert (sending.status("m"), sending.memory.items["m"]["owner"]) == ("SENDING", other.name)


# A delivery that stops.


@both_modes
def test_what_is_too_much_for_one_delivery_is_sent_in_three_each_message_once(effects: str) -> None:
    """Each delivery that stops says when the next one is due: soon. The lease has ended by then."""
    sending = Sending(effects, 400, 0.02)
    first = sending.receive(1, seconds=5.0)
    sending.run()
    assert first.answers == [["m"]]
    assert sending.lease_seconds == 0
    assert sending.post.visibilities["m"] <= 2
    for receives in (2, 3):
        sending.receive(receives, seconds=5.0)
        sending.run()

    assert (sending.status("m"), sending.handled) == ("COMPLETED", 1)
    assert sending.post.bodies == sending.in_order
    assert len(set(sending.post.keys)) == 400
    assert sending.post.requests == 400
    assert len(sending.store.calls) <= 10


@both_modes
def test_a_kill_costs_the_messages_of_its_own_delivery_alone(effects: str) -> None:
    sending = Sending(effects, 400, 0.02)
    sending.receive(1, seconds=5.0)
    sending.run()
    before = len(sending.post.bodies)
    killed = sending.receive(2, seconds=5.0)
    sending.world.spawn(killed.kill, after=2.0)
    sending.run()
    costs = len(sending.post.bodies) - before
    assert 0 < costs <= 101
    assert sending.lease_seconds > 0, "nobody ends the lease of a dead worker"
    for receives in (3, 4):
        sending.receive(receives, seconds=5.0, after=10.0)
        sending.run()

    assert sending.status("m") == "COMPLETED"
    assert sending.post.bodies == [*sending.in_order[: before + costs], *sending.in_order[before:]]
    assert len(set(sending.post.keys)) == 400


@both_modes
def test_a_worker_that_stood_still_beyond_its_lease_sends_no_more_and_changes_nothing(effects: str) -> None:
    """Another one has gone on where the record says. What was under way is sent twice, under one key."""
    sending = Sending(effects, 400, 0.02)
    late = sending.receive(1, seconds=5.0)
    sending.world.spawn(lambda: late.suspend(20.0), after=2.0)
    other = sending.receive(2, seconds=10.0, after=15.0)
    sending.run()

    assert (late.answers, other.answers) == ([["m"]], [[]])
    assert sending.memory.items["m"]["owner"] == other.name
    assert set(sending.post.bodies) == set(sending.in_order)
    assert len(sending.post.bodies) - 400 <= 101, "what it had sent before, and one that was on its way"
    assert len(set(sending.post.keys)) == 400


@both_modes
def test_what_sqs_took_without_an_answer_is_the_only_message_sent_twice(effects: str) -> None:
    sending = Sending(effects, 20, 0.02)
    sending.post.hangs = {"7"}
    sending.receive(1, seconds=5.0)
    sending.run()
    assert sending.post.visibilities["m"] > 2, "a queue that does not answer is given more time"
    sending.post.hangs = set()
    sending.receive(2, seconds=5.0)
    sending.run()

    assert sending.status("m") == "COMPLETED"
    assert Counter(sending.post.bodies) == Counter([*sending.in_order, "7"])


@both_modes
def test_a_queue_that_never_answers_keeps_no_other_queue_from_being_sent_to_once(effects: str) -> None:
    """Though it has more messages than requests may be in progress."""
    sending = Sending(effects, 0, 0.02)
    sending.post.hangs = {str(number) for number in range(300)}

    def handle(body: dict, tx: Transaction) -> None:
        for number in range(300):
            tx.send(QueueUrl="https://sqs.us-east-1.amazonaws.com/123456789012/dead", MessageBody=str(number))
        for number in range(300, 400):
            tx.send(QueueUrl="https://sqs.us-east-1.amazonaws.com/123456789012/good", MessageBody=str(number))

    for receives in (1, 2, 3):
        record = sqs_record("m", receives=receives)
        sending.deliver(handle, record, sqs=sending.post, effects=effects, seconds=5.0)
        sending.run()

    times = Counter(sending.post.bodies)
    assert sending.status("m") == "SENDING"
    assert all(times[str(number)] == 1 for number in range(300, 400))


@both_modes
@pytest.mark.parametrize("seconds", [30.0, 60.0, 300.0])
def test_the_delivery_after_one_that_failed_sends_at_once_whatever_the_lease_was(effects: str, seconds: float) -> None:
    sending = Sending(effects, 2, 0.02)
    sending.post.refuses = True
    failed = sending.receive(1, seconds=seconds)
    sending.run()
    assert (failed.answers, sending.lease_seconds) == ([["m"]], 0)
    assert 0 < sending.post.visibilities["m"] <= 4
    sending.post.refuses = False

    again = sending.receive(2, seconds=seconds)
    sending.run()
    assert again.answers == [[]]
    assert sending.post.bodies == ["0", "1"]


# Outside Lambda.


class Working(Sending):
    """The same with `receiver work`, on a queue."""

    def __init__(self, effects: str, count: int, seconds: float, *, processes: int = 2) -> None:
        super().__init__(effects, count, seconds)
        self.model = QueueModel(Random(0), False, visibility_seconds=0.0, most_receives=1000)
        self.model.send("m", None, 0.0)
        limits = Limits(lease_seconds=LEASE_SECONDS, time_limit_seconds=10_000.0)

        def handle(body: str, message: Message, tx: Transaction) -> None:
            self.handle({}, tx)

        own: dict[str, Any] = {"effects": effects, "logger": SILENT, "metrics": SILENT}
        client = Sqs(self.world, self.model)
        consumer = sqs_consumer(self.store, sqs=self.post, **own)(handle)  # type: ignore[arg-type]  # what is used of it
        self.processes = [WorkerProcess(self.world, consumer, client, f"p{n}", limits) for n in range(processes)]

    def work(self, seconds: float) -> None:
        for process in self.processes:
            self.world.spawn(process.stop, after=seconds)
        with threads_of(self.world):
            self.run()

    @property
    def killed(self) -> list[str]:
        return [process.killed_because for process in self.processes if process.killed_because is not None]


@both_modes
def test_a_worker_that_sends_for_longer_than_its_lease_renews_it(effects: str) -> None:
    """The message is delivered to the other worker as well, which waits."""
    working = Working(effects, 100, 2.0)
    working.model.duplicates = 0.5

    working.work(seconds=600)

    assert working.post.bodies == working.in_order
    assert working.killed == []
    assert working.model.empty
    assert working.status("m") == "COMPLETED"


@both_modes
def test_a_worker_that_is_parted_from_its_store_while_it_sends_is_dead_before_its_lease_ends(effects: str) -> None:
    working = Working(effects, 100, 2.0)
    working.world.spawn(lambda: working.store.down("replace", "read"), after=20)
    working.world.spawn(working.store.up, after=90)

    working.work(seconds=800)

    assert working.killed == ["the timer"]
    assert working.post.bodies[-100:] == working.in_order, "the other one begins when the first one is dead"
    assert working.status("m") == "COMPLETED"
