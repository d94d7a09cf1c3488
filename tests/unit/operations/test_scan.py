"""A scan: what it costs and asks, which records it names first, and what it reads again."""

from __future__ import annotations

from typing import Any

import pytest

from idempotent_receiver import MemoryStore
from idempotent_receiver.errors import Failure
from idempotent_receiver.operations.scan import Cost, Scan, cost_of, pages
from idempotent_receiver.protocol.record import Record
from idempotent_receiver.protocol.resend import Resend
from idempotent_receiver.protocol.store import Unknown
from tests.manual_clock import START_MS, ManualClock

LASTING = START_MS // 1000 + 86_400
ERROR, FOR_GOOD = (Failure(type="E", permanent=permanent).to_json() for permanent in (False, True))
ASKED = ["id", "status", "version", "error", "owner", "execution", "resent", "charged"]
ASKED += ["expiration", "in_progress_expiration", "attempts"]


@pytest.mark.parametrize(
    ("items", "size_bytes", "units_a_second", "read_units", "page_items"),
    [
        (0, 0, 1, 1, 81),  # it knows nothing yet: items of 100 bytes are assumed
        (10, 8192, 1, 1, 10),
        (10, 8193, 1, 2, 9),
        (10, 8192, 25, 1, 250),
        (1000, 50_000, 1, 7, 81),
        (1, 400_000, 1, 49, 1),
        (1, 16_384, 2, 2, 1),
        (10, 8192, 1000, 1, 1000),
    ],
)
def test_a_scan_costs_a_unit_for_8_kb_and_a_page_is_what_a_second_reads(
    items: int, size_bytes: int, units_a_second: float, read_units: int, page_items: int
) -> None:
    cost = Cost(items=items, size_bytes=size_bytes)
    assert (cost.read_units, cost.page_items(units_a_second)) == (read_units, page_items)


class Table:
    """DynamoDB with one table, which a scan gives out in these pages."""

    def __init__(self, *pages: dict[str, Any], **described: int) -> None:
        self.pages, self.described = pages, described

    def describe_table(self, *, TableName: str) -> Any:  # noqa: N803
        assert TableName == "records"
        return {"Table": self.described}

    def get_paginator(self, operation: str) -> Table:
        assert operation == "scan"
        return self

    def paginate(self, **asked: Any) -> Any:
        self.asked = asked
        return self.pages


def test_a_scan_asks_for_all_but_results_and_pauses_between_pages_for_what_they_cost() -> None:
    first = {"Items": [{"id": {"S": "a"}, "status": {"S": "FAILED"}}, {"other": {"S": "no record"}}]}
    second, third = {"Items": [{"id": {"N": "1"}}]}, {"Items": [{"id": {"S": "b"}}]}
    more, cost = {"LastEvaluatedKey": {}}, {"ConsumedCapacity": {"CapacityUnits": 3.0}}
    table, clock = Table({**first, **more, **cost}, {**second, **more}, {**third, **cost}), ManualClock()

    found = list(pages(table, "records", clock, units_a_second=2, page_items=7))  # type: ignore[arg-type]

    assert [[record.id for record in page] for page in found] == [["a"], [], ["b"]]
    assert clock.sleeps == [1.5, 0.5], "a local cloud that does not tell the cost has a unit reckoned"
    assert table.asked == {
        "TableName": "records",
        "PaginationConfig": {"PageSize": 7},
        "ReturnConsumedCapacity": "TOTAL",
        "ProjectionExpression": ", ".join(f"#{name}" for name in ASKED),
        "ExpressionAttributeNames": {f"#{name}": name for name in ASKED},
    }
    assert cost_of(Table(ItemCount=3, TableSizeBytes=500), "records") == Cost(items=3, size_bytes=500)  # type: ignore[arg-type]


def record(id: str, status: str, **attributes: Any) -> Record:
    return Record(id=id, status=status, **{"version": "v", "expiration": LASTING, **attributes})


def claim(id: str, until_ms: int, **attributes: Any) -> Record:
    return record(id, "INPROGRESS", **{"in_progress_expiration": until_ms, "owner": "w", **attributes})


def resend(id: str, status: str, **attributes: Any) -> Record:
    told = Resend(old_id=id, new_id="n", fingerprint="f", operator="o", why="w").to_json()
    until = {"in_progress_expiration": LASTING * 1000}
    return record(id, status, resent=told, owner="o", attempts=3, error=ERROR, **until, **attributes)


FOUND = [
    *(claim(f"lapsed-{number}", START_MS - number) for number in range(3)),  # 0: at this very moment
    *(
        record(f"unsent-{number}", "SENDING", in_progress_expiration=START_MS - number, attempts=2)
        for number in (0, 3, 2)
    ),
    record("sending", "SENDING", in_progress_expiration=START_MS + 1, owner="w", attempts=2),
    claim("held", START_MS + 1),
    claim("released", START_MS - 1, owner=None),
    claim("powertools", START_MS, owner=None, version=None),  # it never records an owner
    record("once", "FAILED", error=ERROR),
    *(record(f"flaky-{number}", "FAILED", error=ERROR, attempts=number) for number in (1, 3, 2)),
    *(claim(f"again-{number}", START_MS + 1, attempts=number) for number in (1, 4, 2)),
    *(record(f"closed-{number}", "FAILED", error=FOR_GOOD, expiration=LASTING + number) for number in (1, 3, 2)),
    *(record(f"flow-{number}", "FAILED", execution="arn", expiration=LASTING + number) for number in (1, 3, 2)),
    claim("overdue", START_MS - 1, execution="arn"),
    claim("runs", START_MS + 1, execution="arn"),
    *(record(f"paused-{number}", "PAUSED", expiration=LASTING + number) for number in (1, 3, 2)),
    record("typed", "FAILED", error=ERROR, unreadable="unexpected type of attempts"),
    record("expired", "FAILED", expiration=START_MS // 1000),
    record("done", "COMPLETED"),
    # Three attempts and an error do not make these fail: their letters are being sent again.
    *(resend(f"old-{number}", "INPROGRESS", expiration=LASTING + number) for number in (1, 3, 2)),
    resend("sent", "COMPLETED"),
]
COUNTS = {"unsettled": 4, "unsent": 3, "failing": 6, "permanent": 3, "workflow": 4, "resending": 3, "unreadable": 4}
FIRST = {
    "unsettled": ["lapsed-2", "lapsed-1"],
    "unsent": ["unsent-3", "unsent-2"],
    "failing": ["again-4", "flaky-3"],
    "permanent": ["closed-3", "closed-2"],
    "workflow": ["flow-3", "flow-2"],
    "resending": ["old-1", "old-2"],
    "unreadable": ["paused-3", "paused-2"],
}


def named(scan: Scan) -> dict[str, list[str]]:
    return {kind: [each.id for each in records] for kind, records in scan.named.items()}


@pytest.mark.parametrize("size", [1, 4, 100])
def test_each_record_is_counted_under_its_one_kind_and_the_worst_are_named_whatever_the_pages(size: int) -> None:
    scan = Scan(START_MS, most=2)
    for start in range(0, len(FOUND), size):
        scan.take(FOUND[start : start + size])
    assert (scan.counts, named(scan)) == (COUNTS, FIRST)
    assert (scan.scanned, scan.own, scan.released_count, scan.resent_count) == (len(FOUND), len(FOUND), 1, 1)
    of_flows = Scan(START_MS, most=2, prefix="flow-")
    of_flows.take(FOUND)
    assert (of_flows.scanned, of_flows.own, of_flows.counts["workflow"]) == (len(FOUND), 3, 3)


def test_what_has_moved_on_is_not_named_and_what_cannot_be_read_again_is(monkeypatch: pytest.MonkeyPatch) -> None:
    now = {each.id: each for each in FOUND}
    moved_on = {"lapsed-1": record("lapsed-1", "COMPLETED"), "flaky-3": None, "closed-3": Unknown("throttled")}
    store = MemoryStore()
    monkeypatch.setattr(store, "read", lambda ids: [{**now, **moved_on}[id] for id in ids])
    scan = Scan(START_MS, most=2)
    scan.take(FOUND)
    scan.confirm(store)
    assert named(scan) == {**FIRST, "unsettled": ["lapsed-2"], "failing": ["again-4"]}
