"""The books of a chaos run can fail: each thing that must not happen is counted when it does, and nothing else is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.chaos.books import Books, Entry, Letter
from tests.chaos.log import (
    Acknowledged,
    Broken,
    End,
    Fault,
    Freeze,
    Invocation,
    Kill,
    Line,
    Move,
    Refusal,
    Start,
    Thaw,
    Write,
)
from tests.chaos.tale import ACCOUNTS, OPENING_BALANCE, Kind, Part, Tale

PAYER, PAYEE = ACCOUNTS[:2]
TALE = Tale(
    tuple(
        Part(name, kind, PAYER, PAYEE, 10)
        for name, kind in [("good", Kind.POSTED), ("noted", Kind.NOTED), ("dead", Kind.REFUSED)]
    )
)
SENT = {"good": "m-good", "noted": "m-noted", "dead": "m-dead"}


def start(at: int, worker: str, name: str, lease: int | None = None, attempt: int = 1) -> Start:
    lease_ms = at + 100 if lease is None else lease
    return Start(at_ms=at, worker=worker, key=SENT[name], name=name, attempt=attempt, lease_until_ms=lease_ms)


def write(at: int, worker: str, name: str, move: Move) -> Write:
    return Write(at_ms=at, done_ms=at + 1, worker=worker, key=SENT[name], move=move)


def run(at: int, worker: str, name: str, *, ends: Move = "complete") -> list[Line]:
    """A claim, a run and its settlement."""
    return [
        write(at, worker, name, "claim"),
        start(at + 2, worker, name),
        End(at_ms=at + 5, worker=worker, key=SENT[name], ok=ends == "complete"),
        write(at + 6, worker, name, ends),
    ]


def acknowledged(at: int, name: str) -> Acknowledged:
    return Acknowledged(at_ms=at, worker="w2", key=SENT[name], deleted=True)


ZOMBIE: list[Line] = [
    write(100, "w1", "good", "claim"),
    start(102, "w1", "good", lease=200),
    Freeze(at_ms=103, worker="w1"),
    *run(300, "w2", "good"),
    Thaw(at_ms=400, worker="w1"),
    End(at_ms=401, worker="w1", key="m-good", ok=True),
    Refusal(at_ms=402, worker="w1", key="m-good", move="complete", owner="w2.1"),
]
"""A worker that is frozen until another has taken its claim over and has completed it."""

LINES: list[Line] = [
    *ZOMBIE,
    *run(310, "w2", "noted"),
    *run(320, "w2", "dead", ends="fail"),
    *[acknowledged(340, name) for name in SENT],
    Invocation(at_ms=350, worker="w3", keys=["m-good"], again=True),
    Kill(at_ms=360, worker="w3", overdue=False),
    *[
        Fault(at_ms=100, worker="w1", name=name)
        for name in (
            "answer dropped",
            "5xx, applied",
            "5xx, not applied",
            "statement in doubt, applied",
            "statement refused, not applied",
        )
    ],
]

BOOKS = Books(
    tale=TALE,
    protected=True,
    sent=SENT,
    records={"m-good": "COMPLETED", "m-noted": "COMPLETED", "m-dead": "FAILED"},
    entries=[
        Entry(transfer="good", account=PAYER, times=1, amount=-10),
        Entry(transfer="good", account=PAYEE, times=1, amount=10),
    ],
    balances={
        **dict.fromkeys(ACCOUNTS, OPENING_BALANCE),
        PAYER: OPENING_BALANCE - 10,
        PAYEE: OPENING_BALANCE + 10,
    },
    letters=[Letter(name="dead", sent_ms=330)],
    left=0,
    lines=LINES,
)


def with_(*more: Line, **changes: Any) -> Books:
    lines = sorted([*changes.pop("lines", LINES), *more], key=lambda line: line.at_ms)
    return replace(BOOKS, lines=lines, **changes)


def test_a_good_run_has_nothing_to_complain_of() -> None:
    assert BOOKS.complaints == []
    assert (BOOKS.taken_over, BOOKS.duplicates, BOOKS.fenced["frozen"], BOOKS.late_starts) == (1, 1, 1, frozenset())


def test_a_message_that_left_no_trace_is_lost() -> None:
    books = with_(letters=[])
    assert (books.lost, books.unaccounted) == (1, 0)


def test_a_message_that_is_still_queued_is_not_lost_but_unaccounted() -> None:
    books = with_(letters=[], left=1)
    assert (books.lost, books.unaccounted) == (0, 1)


def test_a_record_that_says_completed_where_no_handler_returned_is_unaccounted() -> None:
    books = with_(lines=[line for line in LINES if not (isinstance(line, End) and line.key == "m-noted")])
    assert (books.lost, books.unaccounted) == (0, 1)


def test_a_record_without_its_posting_is_unaccounted() -> None:
    books = with_(entries=[])
    assert (books.lost, books.unaccounted, books.balanced) == (0, 1, False)


def test_a_posting_that_no_record_knows_of_is_unaccounted() -> None:
    books = with_(records={**BOOKS.records, "m-good": "FAILED"})
    assert (books.lost, books.unaccounted) == (0, 1)


def test_a_message_both_done_and_dead_is_unaccounted() -> None:
    assert with_(letters=[*BOOKS.letters, Letter(name="good", sent_ms=330)]).unaccounted == 1


@pytest.mark.parametrize(("name", "at"), [("good", 299), ("noted", 315), ("dead", 329)])
def test_an_acknowledgement_before_anything_was_recorded_is_early(name: str, at: int) -> None:
    assert BOOKS.acknowledged_early == 0
    assert with_(acknowledged(at, name)).acknowledged_early == 1


def test_an_acknowledgement_of_what_never_was_recorded_is_early() -> None:
    assert with_(letters=[]).acknowledged_early == 1


def test_a_transfer_that_was_posted_twice_is_doubled_and_unbalances_the_books() -> None:
    books = with_(
        entries=[replace(entry, times=2, amount=2 * entry.amount) for entry in BOOKS.entries],
        balances={**BOOKS.balances, PAYER: OPENING_BALANCE - 20, PAYEE: OPENING_BALANCE + 20},
    )
    assert (books.doubled, books.balanced) == (1, False)


def test_money_that_no_entry_explains_unbalances_the_books() -> None:
    assert not with_(balances={**BOOKS.balances, ACCOUNTS[5]: 0}).balanced
    assert not with_(entries=BOOKS.entries[:1]).balanced


def test_a_run_of_what_is_completed_is_doubled() -> None:
    assert with_(start(350, "w4", "noted")).doubled == 1


def test_a_start_inside_a_live_lease_is_an_overlap() -> None:
    assert with_(start(150, "w4", "good")).overlaps == 1


def test_a_start_after_the_claim_was_settled_is_none_although_its_lease_would_live() -> None:
    books = with_(*run(330, "w4", "dead", ends="fail"))
    assert books.overlaps == 0


def test_a_start_before_the_claim_was_settled_is_an_overlap_although_the_handler_was_over() -> None:
    assert with_(start(325, "w4", "dead")).overlaps == 1


def test_a_claim_that_another_worker_settled_still_counts() -> None:
    lines = [replace(line, worker="w9") if line == write(326, "w2", "dead", "fail") else line for line in LINES]
    assert with_(start(330, "w4", "dead"), lines=lines).overlaps == 1


def test_a_start_after_ones_own_lease_is_an_overlap_unless_one_had_been_frozen() -> None:
    """The process should have been dead by then. One that was frozen may start, and is fenced."""
    late = start(301, "w4", "good", lease=200)
    assert with_(late).overlaps == 1
    books = with_(late, Freeze(at_ms=150, worker="w4"))
    assert (books.overlaps, books.late_starts) == (0, frozenset({late}))


def test_a_take_over_takes_a_lease_that_has_ended_unsettled() -> None:
    assert with_(lines=[line for line in LINES if line not in ZOMBIE]).taken_over == 0
    assert with_(write(150, "w1", "good", "fail")).taken_over == 0


def test_a_write_that_ones_own_earlier_one_kept_out_is_not_fenced() -> None:
    own = Refusal(at_ms=327, worker="w2", key="m-dead", move="fail", owner="w2.1")
    race = Refusal(at_ms=299, worker="w4", key="m-good", move="claim", owner="w2.1")
    assert with_(own, race).fenced.total() == BOOKS.fenced.total() == 1
    dead = Refusal(at_ms=327, worker="w5", key="m-dead", move="fail", owner="w2.1")
    assert with_(dead).fenced["other"] == 1


def test_an_answer_that_is_none_is_complained_of() -> None:
    assert with_(Broken(at_ms=1, worker="w1", why="raised")).complaints == ["broken answers is 1, not 0"]


@pytest.mark.parametrize("kind", [Kill, Freeze, Refusal, Fault, Invocation])
def test_a_run_without_chaos_proves_nothing(kind: type[Line], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.chaos.books.ENOUGH_FOR_RARITIES", 0)
    complaints = with_(lines=[line for line in LINES if not isinstance(line, kind)]).complaints
    assert complaints
    assert all("that was no chaos" in complaint for complaint in complaints)


def test_waiting_in_vain_is_complained_of() -> None:
    assert with_(gave_up="nothing moved").complaints == ["gave up waiting: nothing moved"]


def test_the_control_goes_by_what_was_acknowledged() -> None:
    books = with_(protected=False, records={}, lines=[line for line in LINES if line != acknowledged(340, "noted")])
    assert books.completed == {"good"}
    assert "not completed, but should be: noted" in books.complaints
