"""What is stuck: claims that nobody settled, and keys that fail, for now or for good, found by reading the whole table.

A scan pays for every item that it reads, so its cost is told before it starts, it goes page by page and no faster than
it is allowed to. It reads eventually consistently, at half the price; what it then names was read again, consistently.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import nlargest, nsmallest
from math import ceil
from typing import TYPE_CHECKING, Any

from idempotent_receiver.clock import Clock
from idempotent_receiver.dynamodb.values import record_in
from idempotent_receiver.operations.letters import chunks
from idempotent_receiver.operations.verdict import given_back, lease_over, permanent
from idempotent_receiver.protocol.record import Record, Status
from idempotent_receiver.protocol.store import READS_A_CALL, RecordStore

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

BYTES_A_UNIT = 8192
"""A read unit is two eventually consistent reads of 4 KB."""

MOST_PAGES = 1_000_000
_NAMES = ("id", "status", "version", "expiration", "in_progress_expiration", "attempts", "error", "owner", "execution")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a scan will read, as far as the table says, which DynamoDB updates every six hours or so."""

    items: int
    size_bytes: int

    @property
    def read_units(self) -> int:
        """About how many read request units it takes."""
        return max(1, ceil(self.size_bytes / BYTES_A_UNIT))


def cost_of(dynamodb: "DynamoDBClient", table: str) -> Cost:
    """What a scan of the table costs."""
    found = dynamodb.describe_table(TableName=table)["Table"]
    return Cost(items=found.get("ItemCount", 0), size_bytes=found.get("TableSizeBytes", 0))


def scan(
    dynamodb: "DynamoDBClient",
    table: str,
    clock: Clock,
    *,
    units_a_second: float,
    page_items: int,
) -> Iterator[list[Record]]:
    """The table's records page by page, without their results; between pages as long a pause as the rate wants."""
    start: Any = {}
    for _ in range(MOST_PAGES):
        page = dynamodb.scan(
            TableName=table,
            Limit=page_items,
            ReturnConsumedCapacity="TOTAL",
            ProjectionExpression=", ".join(f"#{name}" for name in _NAMES),
            ExpressionAttributeNames={f"#{name}": name for name in _NAMES},
            **start,
        )
        yield [record_in(item) for item in page["Items"] if "S" in item.get("id", {})]
        if "LastEvaluatedKey" not in page:
            return
        start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}
        clock.sleep(page.get("ConsumedCapacity", {}).get("CapacityUnits", 1.0) / units_a_second)


@dataclass(slots=True)
class Findings:
    """What a survey found: counts of all, and of each kind the worst."""

    scanned: int = 0
    own: int = 0
    """How many of them are in the consumer's namespace; the other counts are of these alone."""
    unsettled_count: int = 0
    given_back_count: int = 0
    failing_count: int = 0
    permanent_count: int = 0
    workflow_count: int = 0
    unsettled: list[Record] = field(default_factory=list)
    """INPROGRESS, claimed by a worker that was never heard of again, its lease over; the longest ago first."""
    failing: list[Record] = field(default_factory=list)
    """FAILED, or tried more than once, and may be tried again; the most attempts first."""
    permanent: list[Record] = field(default_factory=list)
    """FAILED for good; the latest first."""
    workflow: list[Record] = field(default_factory=list)
    """A workflow's, of which no other kind names any: its execution FAILED, or is overdue; the latest first."""


class Survey:
    """Takes in pages of records, and keeps the `most` worst of each kind, of the ids that begin with `prefix`."""

    def __init__(self, now_ms: int, *, most: int, prefix: str = "") -> None:
        self.found = Findings()
        self._now_ms, self._most = now_ms, most
        self._prefix = prefix

    def take(self, page: Iterable[Record]) -> None:
        """Look at a page of records."""
        for record in page:
            self.found.scanned += 1
            if not record.id.startswith(self._prefix):
                continue
            self.found.own += 1
            if record.unreadable is None and not record.expired(self._now_ms):
                self._sort(record)
        self.found.unsettled = nsmallest(self._most, self.found.unsettled, key=lambda each: each.lease_until_ms or 0)
        self.found.failing = nlargest(self._most, self.found.failing, key=lambda each: each.attempts or 0)
        self.found.permanent = nlargest(self._most, self.found.permanent, key=lambda each: each.expiration or 0)
        self.found.workflow = nlargest(self._most, self.found.workflow, key=lambda each: each.expiration or 0)

    def _sort(self, record: Record) -> None:
        if record.execution is not None:
            if ended_badly(record, self._now_ms):
                self.found.workflow_count += 1
                self.found.workflow.append(record)
            return
        if unsettled(record, self._now_ms):
            self.found.unsettled_count += 1
            self.found.unsettled.append(record)
        elif given_back(record, self._now_ms):
            self.found.given_back_count += 1
        if failing(record):
            self.found.failing_count += 1
            self.found.failing.append(record)
        if permanent(record):
            self.found.permanent_count += 1
            self.found.permanent.append(record)

    def confirm(self, store: RecordStore) -> None:
        """Read what is named again, consistently, and leave out what moved on meanwhile. What cannot be read stays."""
        self.found.unsettled = self._still(self.found.unsettled, lambda each: unsettled(each, self._now_ms), store)
        self.found.failing = self._still(self.found.failing, failing, store)
        self.found.permanent = self._still(self.found.permanent, permanent, store)
        self.found.workflow = self._still(self.found.workflow, lambda each: ended_badly(each, self._now_ms), store)

    def _still(self, named: Sequence[Record], holds: Callable[[Record], bool], store: RecordStore) -> list[Record]:
        kept: list[Record] = []
        for chunk in chunks(named, READS_A_CALL):
            for before, now in zip(chunk, store.read([each.id for each in chunk]), strict=True):
                if not isinstance(now, Record | None):
                    kept.append(before)
                elif now is not None and holds(now):
                    kept.append(now)
        return kept


def ended_badly(record: Record, now_ms: int) -> bool:
    """Whether a workflow's execution failed, or ought to have ended by now."""
    return record.status == Status.FAILED or lease_over(record, now_ms)


def unsettled(record: Record, now_ms: int) -> bool:
    """Whether its worker was never heard of again; a record without version is Powertools', which names no owner."""
    return lease_over(record, now_ms) and (record.owner is not None or record.version is None)


def failing(record: Record) -> bool:
    """Whether it failed and may be tried again, or had to be and is not done yet."""
    tried_again = record.status == Status.INPROGRESS and (record.attempts or 0) > 1
    return tried_again or (record.status == Status.FAILED and not permanent(record))
