"""Reconciliation can fail: each thing that must not happen is counted when it does, and nothing else is."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from harness.workload.evidence import Call, DeadLetter, Delivery, End, Entry, Line, Start
from harness.workload.reconciliation import Reconciliation
from harness.workload.transfers import Kind, TransferMessage, Workload

GOOD, DEAD, KILLED = "t-good", "t-dead", "t-killed"
SENT = {GOOD: "m-good", DEAD: "m-dead", KILLED: "m-killed"}
WORKLOAD = Workload(
    messages=(
        TransferMessage(GOOD, Kind.AGAIN, "a", "b", 10),
        TransferMessage(DEAD, Kind.OVERDRAWN, "a", "b", 1000),
        TransferMessage(KILLED, Kind.KILLED_BEFORE, "a", "b", 20),
    ),
    opening={"a": 100, "b": 0},
)


def delivery(at: int, name: str, worker: str, *, done: bool = False) -> Delivery:
    return Delivery(at_ms=at, worker=worker, name=name, done=done)


def start(at: int, name: str, worker: str, *, lease: int) -> Start:
    return Start(at_ms=at, worker=worker, name=name, lease_until_ms=lease)


def end(at: int, name: str, worker: str, *, ok: bool = True) -> End:
    return End(at_ms=at, worker=worker, name=name, ok=ok)


def call(at: int, name: str, *, done: bool = False) -> Call:
    return Call(at_ms=at, name=name, accepted=True, done=done)


def run(at: int, name: str, worker: str, *, ok: bool = True) -> list[Line]:
    """A delivery, and its handler from start to end."""
    return [
        delivery(at, name, worker),
        start(at + 1, name, worker, lease=at + 1000),
        call(at + 2, name),
        end(at + 3, name, worker, ok=ok),
    ]


LOG: list[Line] = [
    *run(100, GOOD, "i1"),
    *run(200, DEAD, "i1", ok=False),
    delivery(300, KILLED, "i2"),
    start(301, KILLED, "i2", lease=1300),  # never heard of again
    call(302, KILLED),
    *run(1300, KILLED, "i3"),
    delivery(2000, GOOD, "i4", done=True),
]


def entries(transfer: str, amount: int) -> list[Entry]:
    return [
        Entry(transfer=transfer, account="a", amount=-amount),
        Entry(transfer=transfer, account="b", amount=amount),
    ]


FOUND = Reconciliation(
    workload=WORKLOAD,
    protected=True,
    sent=SENT,
    entries=[*entries(GOOD, 10), *entries(KILLED, 20)],
    closing={"a": 70, "b": 30},
    records={"m-good": {"status": "COMPLETED"}, "m-killed": {"status": "COMPLETED"}, "m-dead": {"status": "FAILED"}},
    dead_letters=[DeadLetter(message_id="m-dead", reason="account a-1 cannot pay 5 EUR")],
    left=0,
    log=LOG,
)


def with_(**changes: Any) -> Reconciliation:
    return replace(FOUND, **changes)


def test_without_claims_two_may_run_one_message_and_it_may_run_when_it_is_done() -> None:
    beside = [*run(101, GOOD, "i9"), *LOG, *run(2100, GOOD, "i5")]
    claimed = with_(log=beside)
    assert (claimed.overlaps > 0, claimed.doubled > 0) == (True, True)
    assert "overlaps is" in str(claimed.complaints)
    allowed = with_(log=beside, without_claims=True)
    assert (allowed.line()["overlaps"], allowed.doubled, allowed.complaints) == (claimed.overlaps, 0, [])


def test_without_claims_a_transfer_is_posted_once_all_the_same() -> None:
    twice = [replace(each, times=2) for each in FOUND.entries]
    assert with_(entries=twice, without_claims=True).doubled == 2


def test_a_good_run_has_nothing_to_complain_of() -> None:
    assert FOUND.complaints == []
    assert FOUND.line() == {
        "sent": 3,
        "completed": 2,
        "dead_lettered": 1,
        "duplicates": 1,
        "taken_over": 1,
        "expected_completed": 2,
        "expected_dead_lettered": 1,
        "unaccounted": 0,
        "overlaps": 0,
        "lost": 0,
        "doubled": 0,
        "balanced": True,
    }


@pytest.mark.parametrize(
    ("counts", "lost", "doubled"),
    [
        ({GOOD: 1, KILLED: 1}, 0, 0),
        ({GOOD: 1}, 1, 0),
        ({GOOD: 2, KILLED: 1}, 0, 1),
        ({GOOD: 1, KILLED: 1, DEAD: 1}, 0, 1),
        ({GOOD: 3}, 1, 2),
    ],
)
def test_each_posted_transfer_has_one_receipt_and_no_other_has_any(
    counts: dict[str, int], lost: int, doubled: int
) -> None:
    found = with_(receipt_counts=counts)
    assert (found.line()["receipts_lost"], found.line()["receipts_doubled"]) == (lost, doubled)
    assert bool(found.complaints) == bool(lost or doubled)


def test_reasons_are_told_without_what_differs() -> None:
    assert FOUND.reasons == [(1, "payer cannot pay", "account … cannot pay … EUR")]


def test_why_a_message_died_that_sqs_moved_is_told_by_its_record() -> None:
    """On a stack without DeadLetterAtOnce no letter says it."""
    error = json.dumps({"type": "PermanentError", "text": "account a-1 cannot pay 5 EUR", "permanent": True})
    records = {**FOUND.records, "m-dead": {"id": "m-dead", "status": "FAILED", "error": error}}
    moved = [DeadLetter(message_id="m-dead", reason=None)]

    assert with_(dead_letters=moved, records=records).reasons == FOUND.reasons
    told = [(1, "payer cannot pay", "exceeded maxReceiveCount")]
    assert with_(dead_letters=moved, records={}).reasons == told


COUNTED: dict[str, tuple[dict[str, Any], dict[str, int]]] = {
    "it left no trace": ({"dead_letters": []}, {"lost": 1}),
    "it is still queued": ({"dead_letters": [], "left": 1}, {"unaccounted": 1}),
    "no record knows of its posting": ({"records": {"m-killed": {"status": "COMPLETED"}}}, {"unaccounted": 1}),
    "its record is without a posting": ({"entries": entries(KILLED, 20), "closing": {"a": 80, "b": 20}}, {"lost": 1}),
    "it is both done and dead": (
        {"dead_letters": [*FOUND.dead_letters, DeadLetter(message_id="m-good", reason="late")]},
        {"unaccounted": 1},
    ),
    "nobody sent it": ({"entries": [*FOUND.entries, *entries("t-stranger", 1)]}, {"unaccounted": 1}),
    "its dead letter is there twice": ({"dead_letters": FOUND.dead_letters * 2}, {"surplus_dead_letters": 1}),
    "nobody witnessed its second run": (
        {"records": {**FOUND.records, "m-good": {"status": "COMPLETED", "attempts": "2"}}, "witnessed": False},
        {"doubled": 1},
    ),
    "its worker may have died unseen, so nothing is said by a second attempt": (
        {
            "records": {**FOUND.records, "m-good": {"status": "COMPLETED", "attempts": "2"}},
            "witnessed": False,
            "disturbed": True,
        },
        {},
    ),
    "without protection there are no records": ({"records": {}, "protected": False}, {}),
}


@pytest.mark.parametrize("name", COUNTED)
def test_a_message_is_counted_by_what_became_of_it(name: str) -> None:
    changes, counted = COUNTED[name]
    found = with_(**changes)
    counts = ("lost", "unaccounted", "doubled", "overlaps", "surplus_dead_letters")
    assert {count: getattr(found, count) for count in counts if getattr(found, count)} == counted


def test_what_is_lost_is_named() -> None:
    found = with_(dead_letters=[])
    assert found.complaints[:2] == ["lost is 1, not 0", "not dead-lettered, but should be: t-dead"]
    assert "LOST: m-dead" in found.complaints[2]


def test_a_start_inside_a_live_lease_overlaps() -> None:
    early = [line for line in LOG if line.at_ms < 1300] + run(1299, KILLED, "i3")
    found = with_(log=[*early, delivery(2000, GOOD, "i4", done=True)])
    assert (found.overlaps, found.runs.taken_over) == (0, 1)  # the handler starts at 1300, when the lease is over
    found = with_(log=[line for line in LOG if line.at_ms < 1300] + run(1298, KILLED, "i3"))
    assert (found.overlaps, found.runs.taken_over) == (1, 0)


def test_a_start_after_a_failure_is_a_retry_and_no_overlap() -> None:
    log = [*run(10, GOOD, "i0", ok=False), *LOG]
    assert (with_(log=log).runs.retried, with_(log=log).overlaps) == (1, 0)


def test_a_delivery_that_ran_again_is_no_recognised_duplicate() -> None:
    found = with_(log=[*LOG, start(2001, GOOD, "i4", lease=3000)])
    assert found.runs.duplicates == 0
    assert "duplicates is 0: it did not happen" in found.complaints


@pytest.mark.parametrize(
    "changes",
    [
        {"closing": {"a": 69, "b": 30}},
        {"closing": {"a": 60, "b": 40}},
        {"entries": [*entries(GOOD, 10), *entries(KILLED, 20)[:1]], "closing": {"a": 70, "b": 10}},
        {"entries": [*entries(GOOD, 10), *entries(GOOD, 10), *entries(KILLED, 20)], "closing": {"a": 60, "b": 40}},
    ],
    ids=["money gone", "moved without entries", "one side only", "posted twice"],
)
def test_books_that_do_not_balance_say_so(changes: dict[str, Any]) -> None:
    found = with_(**changes)
    assert not found.balanced
    assert "the books do not balance" in found.complaints
