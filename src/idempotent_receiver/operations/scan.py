"""Finds stuck work by reading the whole table: claims that were never settled, and keys that fail.

DynamoDB charges for every item scanned, so the cost is estimated first and pages are read at a limited rate. The scan
uses eventually consistent reads at half the price, then rereads the listed records consistently.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from heapq import nlargest
from math import ceil
from typing import TYPE_CHECKING, Self

from idempotent_receiver.clock import Clock
from idempotent_receiver.dynamodb.statements import record_in
from idempotent_receiver.operations.records import failing, lease_over, released, unreadable, unsent
from idempotent_receiver.protocol.record import ATTRIBUTES, Record, Status, permanent
from idempotent_receiver.protocol.resend import resending, resent
from idempotent_receiver.protocol.store import RecordStore, Unknown

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

BYTES_A_UNIT = 8192
"""One read unit covers two eventually consistent reads of 4 KB."""

MIN_ITEM_BYTES = 100
"""Assumed while DynamoDB reports no size for the table."""

MAX_PAGE_ITEMS = 1000
_NAMES = tuple(name for name in ATTRIBUTES if name not in ("data", "input", "validation", "outbox"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a scan will read, according to DescribeTable. DynamoDB updates these figures about every six hours."""

    items: int
    size_bytes: int

    @property
    def read_units(self) -> int:
        """The approximate number of read request units."""
        return max(1, ceil(self.size_bytes / BYTES_A_UNIT))

    def page_items(self, units_a_second: float) -> int:
        """Items per page: as many as one second's units can read."""
        item_bytes = max(MIN_ITEM_BYTES, self.size_bytes / max(1, self.items))
        return max(1, min(MAX_PAGE_ITEMS, int(units_a_second * BYTES_A_UNIT / item_bytes)))


def cost_of(dynamodb: "DynamoDBClient", table: str) -> Cost:
    """The cost of scanning the table."""
    found = dynamodb.describe_table(TableName=table)["Table"]
    return Cost(items=found["ItemCount"], size_bytes=found["TableSizeBytes"])


def pages(
    dynamodb: "DynamoDBClient", table: str, clock: Clock, *, units_a_second: float, page_items: int
) -> Iterator[list[Record]]:
    """The table's records, page by page, without their results. Pauses between pages to keep to the rate."""
    found = dynamodb.get_paginator("scan").paginate(
        TableName=table,
        PaginationConfig={"PageSize": page_items},
        ReturnConsumedCapacity="TOTAL",
        ProjectionExpression=", ".join(f"#{name}" for name in _NAMES),
        ExpressionAttributeNames={f"#{name}": name for name in _NAMES},
    )
    for page in found:
        yield [record_in(item) for item in page["Items"] if "S" in item.get("id", {})]
        if "LastEvaluatedKey" in page:
            clock.sleep(page.get("ConsumedCapacity", {}).get("CapacityUnits", 1.0) / units_a_second)


class About(StrEnum):
    """What a scanned record can be about."""

    UNREADABLE = "unreadable"
    RESEND = "resend"
    WORKFLOW = "workflow"
    MESSAGE = "message"

    @classmethod
    def of(cls, record: Record, now_ms: int) -> Self:
        """What the record is about: the first match."""
        if unreadable(record, now_ms) is not None:
            return cls("unreadable")
        if resending(record) is not None:
            return cls("resend")
        return cls("message" if record.execution is None else "workflow")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of record to look for. The highest-ranking records are listed."""

    name: str
    about: About
    rank: Callable[[Record], int]
    holds: Callable[[Record, int], bool] = lambda record, now_ms: True

    def includes(self, record: Record, now_ms: int) -> bool:
        """Whether the record is of this kind."""
        return About.of(record, now_ms) is self.about and self.holds(record, now_ms)


KINDS = (
    # Oldest first.
    Kind(
        "unsettled",
        About.MESSAGE,
        lambda record: -(record.lease_until_ms or 0),
        lambda record, now_ms: lease_over(record, now_ms) and not released(record, now_ms),
    ),
    # Oldest first.
    Kind("unsent", About.MESSAGE, lambda record: -(record.lease_until_ms or 0), unsent),
    Kind("failing", About.MESSAGE, lambda record: record.attempts or 0, lambda record, now_ms: failing(record)),
    # Newest first.
    Kind("permanent", About.MESSAGE, lambda record: record.expiration or 0, lambda record, now_ms: permanent(record)),
    Kind(
        "workflow",
        About.WORKFLOW,
        lambda record: record.expiration or 0,
        lambda record, now_ms: record.status == Status.FAILED or lease_over(record, now_ms),
    ),
    # Oldest first.
    Kind("resending", About.RESEND, lambda record: -(record.expiration or 0)),
    Kind("unreadable", About.UNREADABLE, lambda record: record.expiration or 0),
)


class Scan:
    """Totals for the pages read so far: the count of each kind, and the `most` highest-ranking records of each.

    Only records whose ids begin with `prefix` count; `own` is their number among all `scanned`. `resent_count` counts
    completed records whose message was resent under another key.
    """

    def __init__(self, now_ms: int, *, most: int, prefix: str = "") -> None:
        self.scanned = self.own = self.released_count = self.resent_count = 0
        self.counts = {kind.name: 0 for kind in KINDS}
        self.named: dict[str, list[Record]] = {kind.name: [] for kind in KINDS}
        self._now_ms, self._most, self._prefix = now_ms, most, prefix

    def take(self, page: Iterable[Record]) -> None:
        """Add a page of records."""
        for record in page:
            self.scanned += 1
            if record.id.startswith(self._prefix):
                self.own += 1
                if unreadable(record, self._now_ms) is not None or not record.expired(self._now_ms):
                    self._sort(record)
        for kind in KINDS:
            self.named[kind.name] = nlargest(self._most, self.named[kind.name], key=kind.rank)

    def _sort(self, record: Record) -> None:
        self.released_count += record.execution is None and released(record, self._now_ms)
        self.resent_count += resent(record) is not None
        for kind in KINDS:
            if kind.includes(record, self._now_ms):
                self.counts[kind.name] += 1
                self.named[kind.name].append(record)

    def confirm(self, store: RecordStore) -> None:
        """Reread the listed records consistently. Drop those that no longer match; keep those that cannot be reread."""
        for kind in KINDS:
            before = {record.id: record for record in self.named[kind.name]}
            again = zip(before, store.read(list(before)), strict=True)
            found = (before[id] if isinstance(now, Unknown) else now for id, now in again)
            self.named[kind.name] = [each for each in found if each is not None and kind.includes(each, self._now_ms)]
