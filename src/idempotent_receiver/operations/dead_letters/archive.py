"""The archive: a bucket with one object per dead letter.

Each object is named after the dead-letter queue and the messageId. No consumer reads an archive, so dead letters in it
need not be held. An archive outlives its stack: a dead letter archived from one queue may be restored to another.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from idempotent_receiver.clock import Clock
from idempotent_receiver.dynamodb.codes import code_of
from idempotent_receiver.operations.dead_letters.queue import MAX_A_ROUND, MAX_BYTES_A_ROUND, Raw
from idempotent_receiver.operations.dead_letters.triage import Decision
from idempotent_receiver.operations.dead_letters.workers import RequestFailed, Workers
from idempotent_receiver.sqs.received import lambda_record, raw_message

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


SEQUENCE_DIGITS = 40
"""Wider than any FIFO sequence number."""


def document(decision: Decision) -> dict[str, Any]:
    """A dead letter as JSON: its `message` in Lambda's event format, and everything known about it except its record's
    outgoing messages.
    """
    of = decision.dead_letter
    record = None if decision.record is None else decision.record._replace(outbox=None)._asdict()
    return {
        "message": lambda_record(of.raw, of.message.queue_arn),
        "key": of.key or None,
        "source": of.source,
        **{name: getattr(decision, name) for name in ("verdict", "why", "reason", "error_type", "group")},
        "record": None if record is None else {name: value for name, value in record.items() if value is not None},
    }


class Archive:
    """The archived dead letters of one dead-letter queue, found by the queue's name. `stray` lists objects that are not
    dead letters.
    """

    more = True
    refills = False

    def __init__(
        self, s3: "S3Client", bucket: str, queue_name: str, clock: Clock, workers: Workers | None = None
    ) -> None:
        self.s3, self.bucket, self.clock = s3, bucket, clock
        self.workers = Workers() if workers is None else workers
        self.seen: set[str] = set()
        self.stray: list[str] = []
        self._prefix = f"{queue_name}/"
        self._names = self._listed()
        self._in_order = not queue_name.endswith(".fifo")

    @property
    def address(self) -> str:
        """The archive's S3 URI."""
        return f"s3://{self.bucket}/{self._prefix}"

    def put(self, decision: Decision, **told: str) -> None:
        """Store a dead letter, with the details of the act in `told`."""
        text = json.dumps({**document(decision), **told}, ensure_ascii=True)
        self.s3.put_object(
            Bucket=self.bucket,
            Key=self._name(decision.dead_letter.id),
            Body=text.encode(),
            ContentType="application/json",
        )

    def take(self, most: int = MAX_A_ROUND, stopped: Callable[[], bool] = lambda: False) -> list[Raw]:
        """Up to `most` dead letters not yet taken; those of a FIFO queue in the order of their sequence numbers."""
        if not self._in_order:
            self._names, self._in_order = self._ordered(stopped), True
        taken: list[Raw] = []
        size = 0
        while len(taken) < most and size < MAX_BYTES_A_ROUND and not stopped():
            names = list(islice(self._names, min(self.workers.count * 4, most - len(taken))))
            self.more = bool(names)
            if not names:
                break
            found = [each for each in self.workers.results(self._read, names) if each is not None]
            self.seen.update(each["MessageId"] for each in found)
            taken += found
            size += sum(len(each["Body"]) for each in found)
        return taken

    def _ordered(self, stopped: Callable[[], bool]) -> Iterator[str]:
        """The names in the order of their dead letters. S3 lists by name, and no round holds a whole archive: each
        object is read once for its place, and again in its round.
        """
        placed: list[tuple[str, str]] = []
        while not stopped() and (names := list(islice(self._names, self.workers.count * 4))):
            for name, each in zip(names, self.workers.results(self._read, names), strict=True):
                if each is not None:
                    placed.append((each["Attributes"].get("SequenceNumber", "").zfill(SEQUENCE_DIGITS), name))
        return chain([name for _, name in sorted(placed)], self._names)

    def unseen(self) -> int:
        """The number of dead letters not yet taken."""
        left = list(self._names)
        self._names = iter(left)
        return len(left)

    def still_held(self, ids: Iterable[str]) -> set[str]:
        """All of them: no consumer reads an archive."""
        return set(ids)

    def delete(self, ids: Sequence[str]) -> dict[str, str | RequestFailed]:
        """Delete dead letters; a versioned bucket keeps old versions. Returns failures by id."""
        return {id: outcome for id, outcome in self.workers.outcomes(self._delete, ids) if outcome is not None}

    def release(self) -> None:
        """Does nothing: an archive holds nothing."""

    def _delete(self, id: str) -> None:
        self.s3.delete_object(Bucket=self.bucket, Key=self._name(id))

    def _name(self, id: str) -> str:
        return f"{self._prefix}{id}.json"

    def _listed(self) -> Iterator[str]:
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=self._prefix)
        for page in pages:
            for each in page.get("Contents", []):
                yield each["Key"]

    def _read(self, name: str) -> Raw | None:
        """The dead letter in the object `name`; None if the object is stray or another command has deleted it."""
        try:
            body = self.s3.get_object(Bucket=self.bucket, Key=name)["Body"].read()
        except ClientError as error:
            if code_of(error) == "NoSuchKey":
                return None
            raise
        found = _message(body)
        if found is None or self._name(found["MessageId"]) != name:
            self.stray.append(f"s3://{self.bucket}/{name}")
            return None
        return found


def _message(text: bytes) -> Raw | None:
    try:
        found = raw_message(json.loads(text)["message"])
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    texts = [found["MessageId"], found["Body"], *found["Attributes"].values()]
    texts += map(_text_of, found["MessageAttributes"].values())
    return found if all(isinstance(each, str) for each in texts) else None


def _text_of(attribute: dict[str, Any]) -> object:
    """An attribute's text, in SQS's format."""
    return attribute.get("StringValue", "") if isinstance(attribute["DataType"], str) else None
