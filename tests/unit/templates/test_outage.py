"""Which alarms fire while messages keep failing, and which do not while retries succeed.

The shipped consumer reads a queue in memory, minute by minute, and the template's own alarms watch what it and SQS tell
CloudWatch. Of a dead-letter queue that was idle, CloudWatch hears as late as AWS allows.
"""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING, Any

import pytest

from harness.cloud import ROOT
from idempotent_receiver import MemoryStore
from idempotent_receiver.sqs.received import lambda_record
from tests.cloudwatch import CloudWatch
from tests.consumers import controlled
from tests.contexts import Context
from tests.manual_clock import ManualClock
from tests.queues import Queues
from tests.template import load, rendering
from tests.unit.batch.at_once import AtOnce

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.queues import Queue

MINUTE_SECONDS = 60
AWAKE_MINUTES = 15
"""How late metrics may be of a queue that was idle for six hours, such as most dead-letter queues: Amazon SQS Developer
Guide, "Monitoring Amazon SQS queues using CloudWatch".
"""
NEVER = 10**6
GIVEN = {
    "Stack": "orders",
    "Service": "orders",
    "FunctionName": "orders",
    "RoleArn": "arn:aws:iam::123456789012:role/orders",
    "LogGroup": "orders",
    "RecordsTable": "orders",
}


class Jittery(ManualClock):
    """A clock whose jitter is random, and the same in each run."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = random.Random(seed)

    def fraction(self) -> float:
        return self.random.random()


class Deployed:
    """A consumer, its queues and its alarms. `fails` says of a message's body and run whether it fails; `share` is
    the part of the batches that come to the version that does, if there is another.
    """

    def __init__(
        self,
        fails: Callable[[str, int], bool],
        *,
        receives: int = 5,
        fifo: bool = False,
        batch: int = 10,
        seed: int = 0,
    ) -> None:
        self.clock = Jittery(seed)
        self.queues, self.batch, self.share = Queues(self.clock), batch, 1.0
        self.dead_letters = self.queues.create("dead.fifo" if fifo else "dead")
        self.queue = self.queues.create("orders.fifo" if fifo else "orders", self.dead_letters)
        self.queue.most_receives = receives
        given = GIVEN | {"QueueArn": self.queue.arn, "DeadLetterQueueArn": self.dead_letters.arn}
        made = rendering(load(ROOT / "watch.yaml"), **given).rendered()["Resources"].items()
        alarms = {name: each["Properties"] for name, each in made if each["Type"] == "AWS::CloudWatch::Alarm"}
        self.cloudwatch = CloudWatch(alarms)
        self.awake_from: dict[str, int] = {}
        self._sent = 0

        logger = logging.getLogger(__name__)
        logger.setLevel(logging.CRITICAL)
        counts: dict[str, int] = {}

        def handle(body: str) -> None:
            counts[body] = counts.get(body, 0) + 1
            if fails(body, counts[body]):
                raise ConnectionError

        sqs: Any = self.queues
        options: Any = {"metrics": self, "logger": logger, "clock": self.clock, "executor": AtOnce}
        new = controlled(MemoryStore(), sqs=sqs, **options)(handle)
        self._versions = new, new.with_options(new.options, lambda_handler_of_the_version_before)

    @property
    def rung(self) -> dict[str, int]:
        """The minute at whose end each alarm turned red first."""
        return dict(reversed(self.cloudwatch.rung))

    def send(self, *bodies: str) -> None:
        for body in bodies:
            self._sent += 1
            group = {"MessageGroupId": body, "MessageDeduplicationId": str(self._sent)} if self.queue.fifo else {}
            self.queues.send_message(QueueUrl=self.queue.url, MessageBody=body, **group)

    def pass_minute(self, sent: Mapping[int, list[str]] | None = None) -> None:
        """Let a minute pass, in which messages are sent at these seconds."""
        for second in range(MINUTE_SECONDS):
            self.send(*(sent or {}).get(second, []))
            while self._poll():
                pass
            self.clock.seconds += 1
        for queue in (self.queue, self.dead_letters):
            self._sample(queue)
        self.cloudwatch.end_minute()

    def add_metric(self, name: str, unit: str, value: float) -> None:
        """What the consumer counts."""
        self.cloudwatch.put(("IdempotentReceiver", name, "service", "orders"), value)

    def flush_metrics(self) -> None:
        """Nothing is held back."""

    def _poll(self) -> bool:
        """Lambda's part: a batch, if there is one, and what of it succeeded is deleted."""
        got = self.queues.receive_message(
            QueueUrl=self.queue.url, MaxNumberOfMessages=self.batch, VisibilityTimeout=240
        )
        if not got:
            return False
        records = [lambda_record(each, self.queue.arn) for each in got["Messages"]]
        version = self._versions[self.clock.random.random() >= self.share]
        answer = version({"Records": records}, Context(self.clock))
        failed = {each["itemIdentifier"] for each in answer["batchItemFailures"]}
        done = [each["ReceiptHandle"] for each in got["Messages"] if each["MessageId"] not in failed]
        entries = [{"Id": str(place), "ReceiptHandle": receipt} for place, receipt in enumerate(done)]
        if entries:
            self.queues.delete_message_batch(QueueUrl=self.queue.url, Entries=entries)
        return True

    def _sample(self, queue: Queue) -> None:
        if queue is self.dead_letters:
            if queue.messages:
                self.awake_from.setdefault(queue.name, self.cloudwatch.minute + AWAKE_MINUTES)
            if self.cloudwatch.minute < self.awake_from.get(queue.name, NEVER):
                return
        for name, value in self.queues.metrics(queue).items():
            self.cloudwatch.put(("AWS/SQS", name, "QueueName", queue.name), value)


def lambda_handler_of_the_version_before(body: str) -> None:
    """It works."""


def always(body: str, run: int) -> bool:
    return True


def bodies(minute: int, gap_seconds: float) -> dict[int, list[str]]:
    """A minute's messages, one every so many seconds."""
    start, sent = minute * MINUTE_SECONDS, dict[int, list[str]]()
    number = -(-start // gap_seconds)
    while number * gap_seconds < start + MINUTE_SECONDS:
        sent.setdefault(int(number * gap_seconds - start), []).append(f"order-{number:g}")
        number += 1
    return sent


@pytest.mark.parametrize("receives", [5, NEVER], ids=["with dead letters", "without"])
@pytest.mark.parametrize(
    ("gap_seconds", "seed"), [(5, 0), (60, 0), *((gap, seed) for gap in (180, 300) for seed in range(3))]
)
def test_messages_that_keep_failing_ring_within_some_ten_minutes(receives: int, gap_seconds: float, seed: int) -> None:
    """The age of the oldest message does not: it leaves out what was received three times. Nor do Lambda's errors."""
    deployed = Deployed(always, receives=receives, seed=seed)
    for minute in range(20):
        deployed.pass_minute(bodies(minute, gap_seconds))

    assert {name for name in deployed.rung if not name.startswith("DeadLetter")} == {"FailuresAlarm"}
    assert deployed.rung["FailuresAlarm"] <= 11


@pytest.mark.parametrize("seed", range(10))
def test_a_single_message_that_keeps_failing_rings_where_nothing_makes_it_a_dead_letter(seed: int) -> None:
    deployed = Deployed(always, receives=NEVER, seed=seed)
    deployed.send("order-1")
    for _ in range(60):
        deployed.pass_minute()

    assert deployed.rung.keys() == {"FailuresAlarm"}
    assert deployed.rung["FailuresAlarm"] <= 15


@pytest.mark.parametrize("seed", range(3))
def test_a_single_dead_letter_rings_as_one(seed: int) -> None:
    """Not as an outage."""
    deployed = Deployed(always, seed=seed)
    deployed.send("order-1")
    for _ in range(AWAKE_MINUTES + 5):
        deployed.pass_minute()

    assert deployed.rung.keys() == {"DeadLetterAlarm"}
    assert AWAKE_MINUTES < deployed.rung["DeadLetterAlarm"] <= AWAKE_MINUTES + 3


@pytest.mark.parametrize("failures", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", range(3))
def test_a_message_that_a_retry_mends_rings_nothing(failures: int, seed: int) -> None:
    deployed = Deployed(lambda body, run: run <= failures, seed=seed)
    deployed.send("order-1")
    for _ in range(20):
        deployed.pass_minute()

    assert deployed.rung == {}
    assert deployed.dead_letters.messages == []


@pytest.mark.parametrize(("gap_seconds", "one_in"), [(1, 50), (5, 10), (60, 10)])
def test_a_dependency_that_fails_now_and_then_rings_nothing(gap_seconds: float, one_in: int) -> None:
    """At any traffic, if retries mend it."""
    deployed = Deployed(lambda body, run: run == 1 and int(body.partition("-")[2]) % one_in == 0)
    for minute in range(20):
        deployed.pass_minute(bodies(minute, gap_seconds))

    assert deployed.rung == {}


def test_an_outage_that_is_over_is_green_a_quarter_of_an_hour_later() -> None:
    """With traffic and without."""
    for gap_seconds in (5, NEVER):
        down = True
        deployed = Deployed(lambda body, run: down, receives=NEVER)  # noqa: B023  # that is how it ends
        for minute in range(10):
            deployed.pass_minute(bodies(minute, 5))
        assert deployed.cloudwatch.states["FailuresAlarm"] == "ALARM"
        down = False
        for minute in range(10, 10 + 17):
            deployed.pass_minute(bodies(minute, gap_seconds))
        assert set(deployed.cloudwatch.states.values()) == {"OK"}


@pytest.mark.parametrize(("batch", "rings"), [(1, 9), (10, 5)])
def test_a_version_that_fails_is_noticed_before_it_has_all_batches(batch: int, rings: int) -> None:
    """In a gradual deployment it gets a tenth of them more each minute."""
    deployed = Deployed(always, batch=batch)
    for minute in range(10):
        deployed.share = (minute + 1) / 10
        sent = {second: [f"order-{minute}-{second}-{n}" for n in range(batch)] for second in range(0, 60, 2)}
        deployed.pass_minute(sent)

    assert deployed.rung["FailuresAlarm"] <= rings


def test_a_fifo_queues_oldest_message_is_told_however_often_it_was_received() -> None:
    """SQS keeps it in its place, so both alarms fire."""
    deployed = Deployed(always, receives=NEVER, fifo=True)
    deployed.send("group-1")
    for _ in range(60):
        deployed.pass_minute()

    assert deployed.rung.keys() == {"FailuresAlarm", "OldestMessageAlarm"}
    assert deployed.rung["OldestMessageAlarm"] == 900 // MINUTE_SECONDS + 2


def test_workers_outside_lambda_ring_by_the_same_rule() -> None:
    rules = []
    for template in ("watch.yaml", "deploy/container.yaml"):
        rule = dict(load(ROOT / template)["Resources"]["FailuresAlarm"]["Properties"])
        rules.append({name: each for name, each in rule.items() if name not in ("Namespace", "Dimensions")})

    assert rules[0] == rules[1]
