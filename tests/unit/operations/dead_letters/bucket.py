"""The archive's bucket, in memory."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from idempotent_receiver.operations.dead_letters.archive import Archive
from idempotent_receiver.operations.dead_letters.selection import Selection
from idempotent_receiver.operations.dead_letters.triage import Rules
from idempotent_receiver.operations.dead_letters.verbs import (
    archive_dispositions,
    redrive_dispositions,
    restore_dispositions,
)
from idempotent_receiver.operations.dead_letters.workers import Workers
from tests.unit.operations.dead_letters.bank import ONE_BY_ONE, leftovers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from idempotent_receiver.operations.dead_letters.run import Run
    from idempotent_receiver.operations.dead_letters.verbs import Dispositions
    from tests.unit.operations.dead_letters.bank import Bank

TOLD = {"operator": "arn:aws:iam::123456789012:user/operator", "archived_at": "2027-01-15T09:00:00Z"}


class Bucket:
    """An S3 client with one bucket. Its requests are counted and crash like those to the bank's queues."""

    def __init__(self, bank: Bank) -> None:
        self.bank = bank
        self.objects: dict[str, bytes] = {}

    def put_object(self, *, Key: str, Body: bytes, **more: Any) -> Any:  # noqa: N803
        assert more == {"Bucket": "archive", "ContentType": "application/json"}
        assert Body.isascii()
        return self.bank.sqs.request("put_object", {}, lambda: self.objects.update({Key: Body}))

    def get_object(self, *, Bucket: str, Key: str) -> Any:  # noqa: N803
        assert Bucket == "archive"
        if Key not in self.objects:
            raise ClientError({"Error": {"Code": "NoSuchKey", "Message": "it does not exist"}}, "GetObject")
        self.bank.sqs.request("get_object", {}, dict)
        return {"Body": io.BytesIO(self.objects[Key])}

    def delete_object(self, *, Bucket: str, Key: str) -> Any:  # noqa: N803
        assert Bucket == "archive"
        return self.bank.sqs.request("delete_object", {}, lambda: self.objects.pop(Key, None))

    def get_paginator(self, operation: str) -> Bucket:
        assert operation == "list_objects_v2"
        return self

    def paginate(self, *, Bucket: str, Prefix: str) -> Iterator[dict[str, Any]]:  # noqa: N803
        assert Bucket == "archive"
        # In the order of their names, which in life are random.
        names = sorted((name for name in self.objects if name.startswith(Prefix)), reverse=True)
        for start in range(0, len(names), 3):
            yield {"Contents": [{"Key": name} for name in names[start : start + 3]]}

    def archive(self) -> Archive:
        return Archive(self, "archive", self.bank.dead.name, self.bank.clock, Workers(1))  # type: ignore[arg-type]

    def documents(self) -> list[dict[str, Any]]:
        return [json.loads(body) for body in self.objects.values()]


def gone_through(bank: Bank, dispositions: Dispositions, selection: Selection | None = None) -> Run:
    """A run over the dead-letter queue, from beginning to end."""
    with bank.session() as session:
        run = bank.run(session, dispositions=dispositions, rate=ONE_BY_ONE, selection=selection or Selection())
        run.carry_out(run.plan())
    return run


def archived(bank: Bank, bucket: Bucket) -> Run:
    return gone_through(bank, archive_dispositions(partial(bucket.archive().put, **TOLD)))


def from_archive(bank: Bank, bucket: Bucket, *, to_dlq: bool = True, **rules: bool) -> Run:
    """A redrive from the archive, from beginning to end."""
    ours = Rules(queue_arn=bank.queue.arn, archived=True, **rules)
    dispositions = restore_dispositions(bank.dead.url) if to_dlq else redrive_dispositions(bank.queue.url)
    with replace(bank.session(), source=bucket.archive(), rules=ours) as session:
        run = bank.run(session, dispositions=dispositions, rate=ONE_BY_ONE)
        run.carry_out(run.plan())
    return run


def archived_leftovers(*, fifo: bool = False) -> tuple[Bank, Bucket]:
    """Everything that was dead, in the archive."""
    bank = leftovers(fifo=fifo)
    bucket = Bucket(bank)
    archived(bank, bucket)
    return bank, bucket
