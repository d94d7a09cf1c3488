"""`explore` for the tables of wrong and right handlers: what it finds, what it does not, and that it refuses nothing
that is right.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from moto import mock_aws

from idempotent_receiver.testing import explore, search
from tests.unit.testing import explored, right_handlers, wrong_handlers
from tests.unit.testing.explored import RIGHT, WRONG, Row

if TYPE_CHECKING:
    from idempotent_receiver.testing import Calls

assert right_handlers
assert wrong_handlers
pytestmark = pytest.mark.filterwarnings("ignore:explore ran")
MOST_SCHEDULES = 120
"""Each fault alone, and some of the pairs of slow calls."""
TESTING = Path(__file__).resolve().parents[3] / "docs/testing.md"


def verdict_of(row: Row, calls: Calls) -> str:
    """What `explore` says; empty where it finds nothing."""
    explored.begin(calls)
    options: dict[str, Any] = {"most_schedules": MOST_SCHEDULES, **row.options}
    with ExitStack() as stack:
        if options.pop("moto", False):
            stack.enter_context(mock_aws())
        try:
            explore(row.handler, row.messages, tables=explored.tables, **options)
        except AssertionError as error:
            return str(error)
    return ""


@pytest.mark.parametrize("row", RIGHT, ids=str)
def test_no_right_handler_is_refused(row: Row, calls: Calls) -> None:
    assert verdict_of(row, calls) == ""


@pytest.mark.parametrize("row", WRONG, ids=str)
def test_of_each_wrong_handler_the_verdict_is_as_in_its_row(
    row: Row, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MOST_VIOLATIONS", 1)
    verdict = verdict_of(row, calls)
    assert verdict == "" if row.told is None else row.told in verdict, verdict


def test_the_remedy_for_what_was_read_and_put_back_names_the_data_and_updates_it(
    calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MOST_VIOLATIONS", 1)
    (row,) = (row for row in WRONG if row.handler is wrong_handlers.read_and_put)
    verdict = " ".join(verdict_of(row, calls).split())
    assert "name the data that effects depend on in `tx.get(..., attributes=[...])`" in verdict
    assert "and write it with `tx.update`" in verdict


def test_the_tables_have_enough_of_each_kind() -> None:
    """So that a kind of mistake is not judged by one handler."""
    assert len(WRONG) >= 79
    assert len(RIGHT) >= 32
    kinds = Counter(row.kind for row in WRONG)
    assert {kind for kind, rows in kinds.items() if rows < 4} == set()
    assert len({row.handler.__name__ for row in (*WRONG, *RIGHT)}) == len(WRONG) + len(RIGHT)


def test_the_documents_list_just_what_is_not_found_and_what_helps_instead() -> None:
    """And that is not much: of 59 wrong handlers, at least 50 are found."""
    section = TESTING.read_text().partition("\n## What it does not find\n")[2].partition("\n## ")[0]
    listed = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")][1:]
    missed = [row.why for row in WRONG if row.told is None]
    assert sorted(what for what, _ in listed) == sorted(missed)
    assert all(help for _, help in listed)
    assert len(missed) / len(WRONG) <= 9 / 59
