"""Reconciliation of chaos can fail: each thing that must not happen is counted when it does, and nothing else is."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from harness.workload.evidence import (
    Acknowledged,
    Broken,
    DeadLetter,
    Delivery,
    End,
    Entry,
    Fault,
    Freeze,
    Kill,
    Line,
    Move,
    Posted,
    Refusal,
    Stamped,
    Start,
    Thaw,
    Write,
)
from harness.workload.transfers import Kind, TransferMessage, Workload
from tests.chaos.reconciliation import ChaosReconciliation

PAYER, PAYEE, OTHER = "payer", "payee", "other"
OPENING = {PAYER: 1000, PAYEE: 1000, OTHER: 1000}
KINDS = {"good": Kind.GOOD, "noted": Kind.NOTED, "dead": Kind.REFUSED, "back": Kind.BANK_AWAY}
MESSAGES = tuple(TransferMessage(name, kind, PAYER, PAYEE, 10) for name, kind in KINDS.items())
SENT = {name: f"m-{name}" for name in KINDS}
AGAIN = "m-again"
"""The id under which the last comes back."""


def start(at: int, worker: str, name: str, lease: int | None = None) -> Start:
    lease_ms = at + 100 if lease is None else lease
    return Start(at_ms=at, worker=worker, name=SENT[name], lease_until_ms=lease_ms)


def write(at: int, worker: str, name: str, move: Move) -> Write:
    return Write(at_ms=at, done_ms=at + 1, worker=worker, name=SENT[name], move=move)


def run(at: int, worker: str, name: str, *, ends: Move = "complete", id: str | None = None) -> list[Line]:
    """A delivery, a claim, a run and its settlement."""
    who: Any = {"worker": worker, "name": id or SENT[name]}
    return [
        Delivery(at_ms=at, **who),
        write(at, worker, name, "claim"),
        Start(at_ms=at + 2, lease_until_ms=at + 102, **who),
        End(at_ms=at + 5, ok=ends == "complete", **who),
        write(at + 6, worker, name, ends),
    ]


def acknowledged(at: int, name: str) -> Acknowledged:
    return Acknowledged(at_ms=at, worker="w2", name=SENT.get(name, name), deleted=True)


def stamped(at: int, name: str, id: str, reason: str | None = "refused") -> Stamped:
    return Stamped(at_ms=at, done_ms=at + 2, worker="w2", name=id, key=SENT[name], reason=reason)


POSTED = Posted(at_ms=306, done_ms=307, worker="w2", name="good", moves=((PAYER, -10), (PAYEE, 10)))
ZOMBIE: list[Line] = [
    Delivery(at_ms=100, worker="w1", name="m-good"),
    write(100, "w1", "good", "claim"),
    start(102, "w1", "good", lease=200),
    Freeze(at_ms=103, worker="w1"),
    *run(300, "w2", "good"),
    POSTED,
    Thaw(at_ms=400, worker="w1"),
    End(at_ms=401, worker="w1", name="m-good", ok=True),
    Refusal(at_ms=402, worker="w1", name="m-good", move="complete", owner="w2.1"),
]
"""A worker that is frozen until another has taken its claim over and has completed it."""

INJECTED = [
    *("answer dropped", "5xx, applied", "5xx, not applied"),
    *("statement in doubt, applied", "statement refused, not applied", "transaction's answer dropped"),
    *("transaction delayed", "transaction invalid", "transaction cancelled", "transaction cancelled, one reason"),
    *("send's answer dropped", "send delayed", "send refused", "entries not sent"),
]
POSTED_AGAIN = replace(POSTED, at_ms=376, done_ms=377, name="back")
LINES: list[Line] = [
    *ZOMBIE,
    *run(310, "w2", "noted"),
    *run(320, "w2", "dead", ends="fail"),
    stamped(328, "dead", "d-1"),
    *run(320, "w2", "back", ends="fail"),
    stamped(328, "back", "d-2"),
    stamped(345, "back", AGAIN, None),
    Delivery(at_ms=350, worker="w3", name=AGAIN),
    *run(370, "w2", "back", id=AGAIN),
    POSTED_AGAIN,
    acknowledged(380, AGAIN),
    *[acknowledged(340, name) for name in SENT],
    Delivery(at_ms=350, worker="w3", name="m-good", again=True),
    Kill(at_ms=360, worker="w3", overdue=False),
    *[Fault(at_ms=100, worker="w1", fault=fault, records=2) for fault in INJECTED],
]

FOUND = ChaosReconciliation(
    workload=Workload(messages=MESSAGES, opening=OPENING),
    protected=True,
    sent=SENT,
    records={id: {"status": "FAILED" if id == "m-dead" else "COMPLETED"} for id in SENT.values()},
    entries=[Entry(transfer=name, account=a, amount=cents) for name in ("good", "back") for a, cents in POSTED.moves],
    closing={**OPENING, PAYER: OPENING[PAYER] - 20, PAYEE: OPENING[PAYEE] + 20},
    dead_letters=[DeadLetter(message_id="m-dead", reason="refused", sent_ms=328)],
    left=0,
    log=LINES,
    swept=Counter({"interrupted": 1}),
)


def with_(*more: Line, **changes: Any) -> ChaosReconciliation:
    lines = sorted([*changes.pop("log", LINES), *more], key=lambda line: line.at_ms)
    return replace(FOUND, log=lines, **changes)


def test_a_good_run_has_nothing_to_complain_of() -> None:
    assert FOUND.complaints == []
    runs = FOUND.runs
    assert (runs.taken_over, runs.duplicates, FOUND.fenced["frozen"], len(runs.late_starts)) == (1, 1, 1, 0)


@pytest.mark.parametrize(("name", "at"), [("good", 299), ("noted", 315), ("dead", 329), (AGAIN, 375)])
def test_an_acknowledgement_before_anything_was_recorded_is_early(name: str, at: int) -> None:
    """What was redriven as well, though its dead letter was confirmed."""
    assert with_(acknowledged(at, name)).acknowledged_early == 1


def test_a_start_after_ones_own_lease_is_an_overlap_unless_one_had_been_frozen() -> None:
    """The process should have been dead by then. One that was frozen may start, and is fenced."""
    late = start(301, "w4", "good", lease=200)
    assert with_(late).overlaps == 1
    found = with_(late, Freeze(at_ms=150, worker="w4"))
    assert (found.overlaps, found.runs.late_starts) == (0, frozenset({late}))


def test_a_take_over_takes_a_lease_that_has_ended_unsettled() -> None:
    assert with_(log=[line for line in LINES if line not in ZOMBIE]).runs.taken_over == 0
    assert with_(write(150, "w1", "good", "fail")).runs.taken_over == 0
    assert with_(stamped(347, "back", "m-other", None), *run(500, "w4", "back", id="m-other")).runs.taken_over == 1


def test_a_write_that_ones_own_earlier_one_kept_out_is_not_fenced() -> None:
    own = Refusal(at_ms=327, worker="w2", name="m-dead", move="fail", owner="w2.1")
    race = Refusal(at_ms=299, worker="w4", name="m-good", move="claim", owner="w2.1")
    assert with_(own, race).fenced.total() == FOUND.fenced.total() == 1
    dead = Refusal(at_ms=327, worker="w5", name="m-dead", move="fail", owner="w2.1")
    assert with_(dead).fenced["other"] == 1


def test_an_answer_that_is_none_and_waiting_in_vain_are_complained_of() -> None:
    complaints = with_(Broken(at_ms=1, worker="w1", why="raised"), gave_up="nothing moved").complaints
    assert complaints == ["broken answers is 1, not 0", "gave up waiting: nothing moved"]


@pytest.mark.parametrize("kind", [Kill, Freeze, Refusal, Fault])
def test_a_run_without_chaos_proves_nothing(kind: type[Line], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.chaos.reconciliation.ENOUGH_FOR_RARITIES", 0)
    complaints = with_(log=[line for line in LINES if not isinstance(line, kind)]).complaints
    assert complaints
    assert all("it did not happen" in complaint for complaint in complaints)


def test_a_run_without_redrives_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.chaos.reconciliation.ENOUGH_FOR_RARITIES", 0)
    found = with_(log=[line for line in LINES if not isinstance(line, Stamped)], swept=Counter())
    rare = {"redrives interrupted", "redriven to a worker that was killed or frozen"}
    assert {name for name, count in found.must_happen.items() if not count} == {"redriven", *rare}


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"more": [stamped(347, "back", "m-other", None), *run(390, "w4", "back", id="m-other")]}, "AGAIN"),
        ({"more": [replace(POSTED_AGAIN, at_ms=390, done_ms=391)]}, "DOUBLED"),
        ({"without": [POSTED_AGAIN]}, "LOST"),
        ({"more": [*run(371, "w4", "back", ends="fail"), replace(stamped(377, "back", "d-3"), worker="w4")]}, "BOTH"),
    ],
)
def test_what_was_redriven_is_judged_with_what_died(changes: dict[str, list[Line]], rule: str) -> None:
    """Under one key. Its run may follow the one that died, and never one that was done."""
    log = [line for line in LINES if line not in changes.get("without", ())]
    assert rule in {finding.rule for finding in with_(*changes.get("more", ()), log=log).findings}


@pytest.mark.parametrize("without_claims", [False, True])
def test_a_record_that_two_different_writes_completed_is_doubled(without_claims: bool) -> None:
    """Even where the handler wrote nothing. One that was sent again under its token is the same."""
    first, again, other = (
        replace(write(at, "w2", "noted", "complete"), version=each) for at, each in [(316, "1"), (317, "1"), (318, "2")]
    )
    log = [line for line in LINES if line != write(316, "w2", "noted", "complete")]
    assert with_(first, again, log=log, without_claims=without_claims).doubled == 0
    assert with_(first, other, log=log, without_claims=without_claims).doubled == 1


def test_requests_are_counted_per_message_that_was_sent() -> None:
    assert with_(requests=Counter({"PutItem": 4, "TransactWriteItems": 4})).requests_a_message == 2


def test_the_control_goes_by_what_was_acknowledged() -> None:
    found = with_(protected=False, records={}, log=[line for line in LINES if line != acknowledged(340, "noted")])
    assert found.completed == {"good", "back"}
    assert "not completed, but should be: noted" in found.complaints
