"""A night with one dead letter: commands that may be killed at any write, and a consumer on the same records.

The records are in the model of DynamoDB behind a real client, the queues and the archive in memory. Each write of a
command can be its last; the consumer's requests are not counted.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from harness.dynamodb.in_process import answered, client_of
from harness.dynamodb.tables import Tables
from idempotent_receiver import DynamoDBStore, Transaction, message_id
from idempotent_receiver.operations.dead_letters.archive import Archive
from idempotent_receiver.operations.dead_letters.dead_letter import Reader
from idempotent_receiver.operations.dead_letters.queue import DeadLetterQueue
from idempotent_receiver.operations.dead_letters.resend import NotResent, Resends
from idempotent_receiver.operations.dead_letters.run import Run, Summary
from idempotent_receiver.operations.dead_letters.selection import Selection
from idempotent_receiver.operations.dead_letters.session import Session, Source
from idempotent_receiver.operations.dead_letters.steps import Steps
from idempotent_receiver.operations.dead_letters.triage import Decision, Rules, Verdict
from idempotent_receiver.operations.dead_letters.verbs import (
    Dispositions,
    archive_dispositions,
    delete_dispositions,
    redrive_dispositions,
    resend_dispositions,
    restore_dispositions,
)
from idempotent_receiver.operations.dead_letters.workers import Workers
from idempotent_receiver.operations.unsent import send_from
from idempotent_receiver.protocol.record import DEFAULT_RETENTION_SECONDS, record_id
from idempotent_receiver.sqs.visibility import Backoff
from tests.consumers import controlled
from tests.queues import Crash
from tests.unit.operations.dead_letters.acts import create
from tests.unit.operations.dead_letters.bank import HOLD_SECONDS, Bank
from tests.unit.operations.dead_letters.bucket import Bucket

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_sqs import SQSClient


OLD, SECOND, FIX, OTHER_FIX, BAD_FIX = (
    json.dumps({"name": name}) for name in ("old", "second", "fix", "other fix", "bad fix")
)
RESENDS = {"fix": FIX, "other-fix": OTHER_FIX, "bad-fix": BAD_FIX, "as-old": OLD, "as-second": SECOND, "finish": None}
"""The commands that resend a dead letter, and their bodies."""
WRITES = frozenset(
    {
        *("send_message_batch", "delete_message_batch", "change_message_visibility_batch"),
        *("put_object", "delete_object", "PutItem", "UpdateItem", "TransactWriteItems"),
    }
)


@dataclass
class Night(Bank):
    """A bank whose records are in DynamoDB, and whose consumer refuses the old body until its cause is mended."""

    effects: str = "any"
    at_once: bool = False
    a_batch: int = 1
    refused: frozenset[str] = frozenset()
    """Bodies that the consumer refuses until their cause is mended, too."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.tables = Tables()
        own = client_of(lambda operation, body: answered(self.tables, operation, body))
        create(own, "records", "id")
        create(own, "ran", "body")
        self.namespace = None if self.key is message_id else "night"
        self.records = DynamoDBStore("records", self.namespace, own)
        self.bucket = Bucket(self)
        self.handler = controlled(
            self.records,
            key=self.key,
            effects=self.effects,
            sqs=self.sqs,
            clock=self.clock,
            backoff=Backoff(first_seconds=1),
        )(self._handle_body)

    def _handle_body(self, body: str, tx: Transaction) -> None:
        if not self.mended or body in self.refused:
            raise ConnectionError
        tx.update(
            TableName="ran",
            Key={"body": body},
            UpdateExpression="ADD often :one",
            ExpressionAttributeValues={":one": 1},
        )

    @property
    def ran(self) -> Counter[str]:
        """How often each body took effect."""
        items = self.records.client.scan(TableName="ran")["Items"]
        return Counter({each["body"]["S"]: int(each["often"]["N"]) for each in items})

    @property
    def operated(self) -> DynamoDBStore:
        """The records, as a command asks for them: each request is counted, and may be the last."""

        def answer(operation: str, body: bytes) -> tuple[int, bytes]:
            told: list[tuple[int, bytes]] = []
            self.sqs.request(operation, {}, lambda: told.append(answered(self.tables, operation, body)))
            return told[0]

        return DynamoDBStore("records", self.namespace, client_of(answer))

    def letter(self, body: str = OLD, *, known: bool, copies: int = 1) -> None:
        """One dead letter: of a message that failed, or that nobody ever claimed. A restored one may be there twice."""
        self.mended = False
        sent = {"MessageBody": body, "MessageAttributes": {}}
        if self.fifo:
            sent |= {"MessageGroupId": "g", "MessageDeduplicationId": body}
        self.sqs.send_message(QueueUrl=self.queue.url, **sent)
        self.kill_by_receives(handle=known)
        self.mended = True
        if copies > 1:
            self.do("archive")
            kept = dict(self.bucket.objects)
            self.do("to-dlq")
            self.bucket.objects.update(kept)
            self.do("to-dlq", again=True)

    def do(self, command: str, *, again: bool = False) -> str:
        """One command from beginning to end, on one dead letter. It may crash; returns how it ended."""
        if again and self.fifo:
            self.clock.sleep(301)  # else SQS takes the second copy for the first
        self.clock.sleep(HOLD_SECONDS + 1)
        if command == "stuck":
            return self._stuck()
        store = self.operated
        if command in RESENDS:
            session, dispositions = self._resend(store, RESENDS[command])
        else:
            session, dispositions = getattr(self, f"_{command.replace('-', '_')}")(store)
        with session:
            run = Run(
                session,
                dispositions,
                Steps(self.sqs, session.source),
                selection=Selection(limit=1),  # type: ignore[arg-type]
            )
            plan = run.plan()
            if len(plan.acting) and command in RESENDS:
                try:
                    dispositions[plan.acting[0].verdict].resend.planned(plan.acting[0])  # type: ignore[union-attr]
                except NotResent as error:
                    return str(error)
            run.carry_out(plan)
        return _told(run.summary)

    def killed(self, command: str, write: int) -> bool:
        """The same, killed after so many of its writes. False where it makes fewer."""
        count = 0
        request = self.sqs.request

        def counted(name: str, asked: dict[str, Any], take_effect: Callable[[], Any]) -> Any:
            nonlocal count
            if count == write:
                raise Crash  # whoever is dead asks for nothing more
            answer = request(name, asked, take_effect)
            if name in WRITES:
                count += 1
                if count == write:
                    raise Crash
            return answer

        self.sqs.request = counted  # type: ignore[method-assign]
        try:
            self.do(command)
        except Crash:
            return True
        finally:
            self.sqs.request = request  # type: ignore[method-assign]
        return False

    def settle(self) -> None:
        """What an operator does who looks at the triage, until nothing is left to be done."""
        for _ in range(4):
            self.deliver()
            self.do("redrive")
            self.do("redrive")
            if self.bucket.objects:
                self.do("to-dlq")
        self.deliver()

    def verdicts(self) -> list[Verdict]:
        """Those of all dead letters."""
        return [each.verdict for each in self.taken()]

    def taken(self) -> list[Decision]:
        """All dead letters."""
        self.clock.sleep(HOLD_SECONDS + 1)
        with self._session(self._queue(), self.records) as session:
            return session.take()

    def _queue(self) -> DeadLetterQueue:
        return DeadLetterQueue(
            self.sqs,  # type: ignore[arg-type]
            self.dead.url,
            self.clock,
            hold_seconds=HOLD_SECONDS,
            workers=Workers(1),
        )

    def _archive_of(self) -> Archive:
        return Archive(self.bucket, "archive", "dead", self.clock, Workers(1))  # type: ignore[arg-type]

    def _session(self, source: Source, store: DynamoDBStore, **rules: Any) -> Session:
        reader = Reader(queue_arn=self.queue.arn, key=self.key, record_id=lambda key: record_id(self.namespace, key))
        return Session(source=source, reader=reader, store=store, rules=Rules(queue_arn=self.queue.arn, **rules))

    def _redrive(self, store: DynamoDBStore) -> tuple[Session, Dispositions]:
        session = self._session(self._queue(), store)
        return session, redrive_dispositions(self.queue.url, self._resending(session, store))

    def _from_archive(self, store: DynamoDBStore) -> tuple[Session, Dispositions]:
        session = self._session(self._archive_of(), store, archived=True)
        return session, redrive_dispositions(self.queue.url, self._resending(session, store))

    def _to_dlq(self, store: DynamoDBStore) -> tuple[Session, Dispositions]:
        return self._session(self._archive_of(), store, archived=True), restore_dispositions(self.dead.url)

    def _archive(self, store: DynamoDBStore) -> tuple[Session, Dispositions]:
        return self._session(self._queue(), store), archive_dispositions(self._archive_of().put)

    def _delete(self, store: DynamoDBStore) -> tuple[Session, Dispositions]:
        return self._session(self._queue(), store), delete_dispositions()

    def _resend(self, store: DynamoDBStore, body: str | None) -> tuple[Session, Dispositions]:
        session = self._session(self._queue(), store)
        return session, resend_dispositions(self._resending(session, store, body))

    def _stuck(self) -> str:
        """Send what the record of a resend holds, as `stuck --send` does."""
        told = ""
        for item in self.records.client.scan(TableName="records")["Items"]:
            if item["status"]["S"] == "SENDING":
                id, sqs = item["id"]["S"], cast("SQSClient", self.sqs)
                told += f"{send_from(self.operated, sqs, id, self.clock, DEFAULT_RETENTION_SECONDS)}; "
        return told

    def _resending(self, session: Session, store: DynamoDBStore, body: str | None = None) -> Resends:
        return Resends(
            store=store,
            sqs=self.sqs,  # type: ignore[arg-type]
            clock=self.clock,
            reader=session.reader,
            queue_url=self.queue.url,
            retention_seconds=DEFAULT_RETENTION_SECONDS,
            operator="arn:aws:iam::123456789012:user/operator",
            why="a test",
            body=body,
        )


def _told(summary: Summary) -> str:
    return "; ".join(f"{each.verb or each.verdict}: {each.outcome or each.why}" for each in summary.letters)
