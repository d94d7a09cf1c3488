"""A consumer on queues in memory, with dead letters of every kind, and what a run writes to beside SQS."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver import MemoryStore, PermanentError, message_id
from idempotent_receiver.operations.dead_letters.dead_letter import Reader
from idempotent_receiver.operations.dead_letters.history import History, Verb
from idempotent_receiver.operations.dead_letters.journal import Journal
from idempotent_receiver.operations.dead_letters.queue import DeadLetterQueue
from idempotent_receiver.operations.dead_letters.run import Run, Summary
from idempotent_receiver.operations.dead_letters.selection import PlannedLetter
from idempotent_receiver.operations.dead_letters.session import Session
from idempotent_receiver.operations.dead_letters.steps import Steps
from idempotent_receiver.operations.dead_letters.triage import Decision, Rules, Verdict
from idempotent_receiver.operations.dead_letters.verbs import Disposition, Dispositions, redrive_dispositions
from idempotent_receiver.operations.dead_letters.workers import Workers
from idempotent_receiver.protocol.record import record_id
from idempotent_receiver.sqs.dead_letter import Stamp
from idempotent_receiver.sqs.visibility import Backoff
from idempotent_receiver.transaction.outbox import STAMP
from tests.consumers import controlled
from tests.contexts import Context
from tests.manual_clock import ManualClock
from tests.queues import Queue, Queues

if TYPE_CHECKING:
    from idempotent_receiver.sqs.keys import KeyStrategy


HOLD_SECONDS = 30
START = "2027-01-15T08:00:00+00:00"
ONE_BY_ONE = 1.0
"""At a message a second, each has a send and a delete of its own."""

CONTEXT = Context()


@dataclass
class Bank:
    """A consumer on queues in memory: what it did, and what it refuses until its cause is mended.

    `at_once`: whether it sends dead letters itself.
    """

    fifo: bool = False
    at_once: bool = True
    key: KeyStrategy = message_id
    clock: ManualClock = field(default_factory=ManualClock)
    done: Counter[str] = field(default_factory=Counter)
    mended: bool = False
    tracer: Any = None
    gone: set[str] = field(default_factory=set)
    """The queues of others that no longer exist."""
    a_batch: int = 10
    """The most messages in a batch. One, if some of a batch are sent from a record while others settle: each waits a
    moment for the other, and this clock stands still.
    """
    workers: int = 1
    """How many requests a session makes at a time. With one, their order is the same at each run."""

    def __post_init__(self) -> None:
        suffix = ".fifo" if self.fifo else ""
        self.sqs = Queues(self.clock)
        self.dead = self.sqs.create(f"dead{suffix}")
        self.queue = self.sqs.create(f"transfers{suffix}", self.dead)
        self.store = MemoryStore(namespace=None if self.key is message_id else "bank")
        self.handler = controlled(
            self.store,
            key=self.key,
            sqs=self.sqs,
            dead_letter_queue=self.dead.url if self.at_once else None,
            clock=self.clock,
            backoff=Backoff(first_seconds=1),
            tracer=self.tracer,
        )(self._post)

    def _post(self, body: dict[str, Any]) -> None:
        name = body["name"]
        if name.startswith("garbage") or (name.startswith("permanent") and not self.mended):
            raise PermanentError(f"{name} cannot be posted")
        if name.startswith("flaky") and not self.mended:
            raise ConnectionError
        self.done[name] += 1

    def send(self, name: str, *, attributes: dict[str, Any] | None = None, group: str | None = None) -> str:
        sent: dict[str, Any] = {"MessageBody": json.dumps({"name": name}), "MessageAttributes": attributes or {}}
        if self.fifo:
            sent |= {"MessageGroupId": group or name, "MessageDeduplicationId": f"{name}-{group}"}
        return str(self.sqs.send_message(QueueUrl=self.queue.url, **sent)["MessageId"])

    def deliver(self) -> None:
        """Let the consumer work until its queue is empty."""
        for _ in range(200):
            self.clock.sleep(31)
            asked = {"QueueUrl": self.queue.url, "MaxNumberOfMessages": self.a_batch}
            received = self.sqs.receive_message(**asked).get("Messages", [])
            if received:
                self._acknowledge(received, self._handle(received))
            elif not self.queue.messages:
                return
        raise AssertionError("the queue did not become empty")

    def receive_once(self) -> None:
        """Let the consumer handle what it gets by one receive."""
        received = self.sqs.receive_message(QueueUrl=self.queue.url, MaxNumberOfMessages=10)["Messages"]
        self._acknowledge(received, self._handle(received))

    def kill_by_receives(self, *, handle: bool) -> None:
        """Receive everything until SQS moves it to the dead-letter queue; acknowledge nothing."""
        while self.queue.messages:
            received = self.sqs.receive_message(QueueUrl=self.queue.url, MaxNumberOfMessages=10).get("Messages", [])
            if received and handle:
                self._handle(received)
            self.clock.sleep(31)

    def _handle(self, received: list[dict[str, Any]]) -> Any:
        return self.handler({"Records": [_as_lambda(each, self.queue.arn) for each in received]}, CONTEXT)

    def _acknowledge(self, received: list[dict[str, Any]], answer: Any) -> None:
        failed = {each["itemIdentifier"] for each in answer["batchItemFailures"]}
        for each in received:
            if each["MessageId"] not in failed:
                entry = {"Id": "0", "ReceiptHandle": each["ReceiptHandle"]}
                self.sqs.delete_message_batch(QueueUrl=self.queue.url, Entries=[entry])

    def redrive(self, *, rules: dict[str, Any] | None = None, **options: Any) -> Summary:
        """One run of the redriver, from beginning to end."""
        with self.session(**(rules or {})) as session:
            run = self.run(session, **options)
            run.carry_out(run.plan())
        return run.summary

    def run(self, session: Session, **options: Any) -> Run:
        """A run that redrives, unless it is given other dispositions."""
        steps = Steps(self.sqs, session.source)  # type: ignore[arg-type]
        return Run(session, **{"dispositions": redrive_dispositions(self.queue.url), "steps": steps, **options})

    def session(self, **rules: Any) -> Session:
        return Session(
            source=DeadLetterQueue(
                self.sqs,  # type: ignore[arg-type]
                self.dead.url,
                self.clock,
                hold_seconds=HOLD_SECONDS,
                workers=Workers(self.workers),
            ),
            reader=Reader(
                queue_arn=self.queue.arn, key=self.key, record_id=lambda key: record_id(self.store.namespace, key)
            ),
            store=self.store,
            rules=Rules(queue_arn=self.queue.arn, **rules),
            gone=lambda arn: arn in self.gone,
        )

    def bodies(self, queue: Queue) -> Counter[str]:
        return Counter(json.loads(kept.sent["MessageBody"])["name"] for kept in queue.messages)


def _as_lambda(received: dict[str, Any], arn: str) -> dict[str, Any]:
    attributes = {
        name: {"dataType": held["DataType"], "stringValue": held["StringValue"]}
        for name, held in received["MessageAttributes"].items()
    }
    return {
        "messageId": received["MessageId"],
        "receiptHandle": received["ReceiptHandle"],
        "body": received["Body"],
        "attributes": received["Attributes"],
        "messageAttributes": attributes,
        "eventSourceARN": arn,
    }


def leftovers(*, fifo: bool = False, key: KeyStrategy = message_id) -> Bank:
    """A bank with one or more dead letters of every kind, each come by in the way that it comes by in life."""
    bank = Bank(fifo=fifo, key=key)
    done = bank.send("done")
    for number in range(3):
        bank.send(f"flaky-{number}", group="one")
    bank.kill_by_receives(handle=True)
    bank.send("throttled")
    bank.kill_by_receives(handle=False)
    bank.send("permanent")
    bank.send("garbage")
    forged = Stamp(key=done, original_id=done).to_json()
    bank.send("conflict", attributes={STAMP: {"DataType": "String", "StringValue": forged}})
    bank.deliver()
    bank.mended = True
    return bank


FIXABLE = {"flaky-0", "flaky-1", "flaky-2", "throttled", "permanent"}
ALL_DEAD = {*FIXABLE, "done", "garbage", "conflict"}


def settle(bank: Bank) -> None:
    """What an operator would do after a crash: redrive until there is nothing to be done."""
    bank.clock.sleep(HOLD_SECONDS + 1)
    for _ in range(2):
        bank.redrive(rules={"include_permanent": True})
        bank.deliver()


def in_balance(bank: Bank) -> None:
    """Everything that can be done was done once, and what cannot is still there."""
    assert bank.done == Counter(dict.fromkeys([*FIXABLE, "done"], 1))
    assert set(bank.bodies(bank.dead)) == {"garbage", "conflict"}
    assert bank.bodies(bank.queue) == Counter()


both_kinds = pytest.mark.parametrize("fifo", [False, True], ids=["standard", "fifo"])


@dataclass
class Aside:
    """What a run writes to beside SQS: the history's table, and a bucket. A run may crash at each write."""

    bank: Bank
    acts: dict[str, dict[str, str]] = field(default_factory=dict)
    stored: set[str] = field(default_factory=set)

    def batch_write_item(self, *, RequestItems: dict[str, Any]) -> dict[str, Any]:  # noqa: N803  # boto3's name
        def put() -> dict[str, Any]:
            items = [each["PutRequest"]["Item"] for each in RequestItems["history"]]
            assert len(items) <= 25
            texts = [{name: str(value["S"]) for name, value in item.items() if "S" in value} for item in items]
            self.acts |= {each["act"]: each for each in texts}
            return {}

        return dict(self.bank.sqs.request("batch_write_item", {}, put))

    def journal(self) -> Journal:
        return Journal(
            history=History(self, "history", self.bank.clock),  # type: ignore[arg-type]
            queue=self.bank.queue.arn,
            dead_letter_queue=self.bank.dead.arn,
            operator="arn:aws:iam::123456789012:user/operator",
            plan="plan-1",
        )

    def told(self, *outcomes: str | None) -> set[str]:
        """The messageIds of the acts with one of these outcomes; an act that was only begun has none."""
        return {each["message_id"] for each in self.acts.values() if each.get("outcome") in outcomes}

    def store(self, decision: Decision) -> None:
        self.bank.sqs.request("store", {}, lambda: self.stored.add(decision.dead_letter.id))

    def archive(self) -> Dispositions:
        """The disposition by which every dead letter is stored here, one at a time."""
        disposition = Disposition(verb=Verb.ARCHIVED, becomes="stored", keep=self.store, undeleted="it is stored")
        return dict.fromkeys(Verdict, disposition)


def completed_and_dead(key: KeyStrategy = message_id) -> Bank:
    bank = Bank(key=key)
    bank.send("paid")
    bank.kill_by_receives(handle=True)
    assert bank.done == Counter(["paid"])
    return bank


def throttled(count: int, *, fifo: bool = False, groups: int = 1, **sent: Any) -> Bank:
    """A bank with so many dead letters that no handler ever saw."""
    bank = Bank(fifo=fifo)
    for number in range(count):
        bank.send(f"throttled-{number:02}", group=str(number % groups), **sent)
    bank.kill_by_receives(handle=False)
    return bank


def counted(bank: Bank) -> Counter[str]:
    return Counter(name for name, _ in bank.sqs.calls)


def planned(bank: Bank, **rules: Any) -> list[PlannedLetter]:
    """What a redrive of everything would do now."""
    with bank.session(**rules) as session:
        return [PlannedLetter.of(each) for each in bank.run(session).plan().acting]


def names_in(queue: Queue) -> list[str]:
    return [json.loads(kept.sent["MessageBody"])["name"] for kept in queue.messages]
