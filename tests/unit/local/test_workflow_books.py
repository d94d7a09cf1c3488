"""The books of the workflow's run notice whatever is not as promised, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from local.stage import FIRST_LEG, SECOND_LEG
from local.workflow_books import Ended, Posted, WorkflowBooks
from local.workflow_story import FAILS, KILLS, OPENING, Mishap, tell

MISHAPS = list(Mishap)


def legs(part: Any, *, arrived: bool) -> dict[str, Posted]:
    """What the ledger has for a transfer that has come to its end."""
    if part.mishap is Mishap.POOR:
        return {}
    to = part.payee if arrived else part.payer
    posted = {
        f"{part.name}{FIRST_LEG}": Posted(part.name, part.payer, -part.amount),
        f"{part.name}{SECOND_LEG}": Posted(part.name, to, part.amount),
    }
    return posted | ({f"{part.name}##receipt": Posted(part.name, part.payee, 0)} if arrived else {})


@pytest.fixture
def books() -> WorkflowBooks:
    """Every mishap once, and all of it as it must be."""
    parts = tell(1, len(MISHAPS))
    entries: dict[str, Posted] = {}
    for part in parts:
        entries |= legs(part, arrived=part.mishap not in FAILS)
    closing = dict(OPENING)
    for entry in entries.values():
        closing[entry.account] += entry.amount
    return WorkflowBooks(
        parts=parts,
        protected=True,
        repeats=2,
        executions=[
            Ended(
                part.name,
                "ABORTED" if part.mishap is Mishap.ABORTED else "SUCCEEDED",
                "FAILED" if part.mishap in FAILS else "COMPLETED",
            )
            for part in parts
        ],
        entries=entries,
        closing=closing,
        killed=len(KILLS),
        swept=2,
        dead_letters=0,
    )


def test_a_seed_tells_one_story_with_every_mishap_in_it() -> None:
    assert tell(7, 40) == tell(7, 40) != tell(8, 40)
    assert {part.mishap for part in tell(7, 40)} == set(Mishap)
    assert len({part.name for part in tell(7, 40)}) == 40


def test_what_is_as_promised_gives_no_complaint(books: WorkflowBooks) -> None:
    assert books.complaints == []
    line = books.line()
    assert (line["asked"], line["as_expected"], line["balanced"], line["doubled"]) == (17, 17, True, 0)
    assert (line["completed"], line["failed"]) == (17 - len(FAILS), len(FAILS))


def without_second_leg(books: WorkflowBooks) -> dict[str, Any]:
    part = next(part for part in books.parts if part.mishap is Mishap.NONE)
    entries = {id: entry for id, entry in books.entries.items() if id != f"{part.name}{SECOND_LEG}"}
    closing = {**books.closing, part.payee: books.closing[part.payee] - part.amount}
    return {"entries": entries, "closing": closing}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda books: {"executions": [*books.executions, books.executions[0]]}, "doubled: 1"),
        (lambda books: {"executions": books.executions[1:]}, "unfinished: 1"),
        (lambda books: {"executions": [replace(each, record="INPROGRESS") for each in books.executions]}, "unfinished"),
        (
            lambda books: {"executions": [replace(each, record="FAILED") for each in books.executions]},
            "not as expected",
        ),
        (lambda books: {"closing": {**books.closing, "alice": 0}}, "do not balance"),
        (without_second_leg, "do not balance"),
        (lambda books: {"killed": 0}, "kills that did not happen"),
        (lambda books: {"dead_letters": 1}, "dead letters: 1"),
        (
            lambda books: {"entries": {id: each for id, each in books.entries.items() if "receipt" not in id}},
            "receipts missing",
        ),
        (
            lambda books: {"executions": [replace(each, status="SUCCEEDED") for each in books.executions]},
            "aborts that did not happen",
        ),
    ],
)
def test_what_is_not_as_promised_is_a_complaint(books: WorkflowBooks, change: Any, said: str) -> None:
    broken = replace(books, **change(books))
    assert any(said in complaint for complaint in broken.complaints), broken.complaints
