"""What a run says fits into 80 columns; and a control says that it is one, and what it cost."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from local.workload import report as tables
from local.workload.driver import Progress
from local.workload.evidence import DeadLetter
from local.workload.report import UNHARMED, Report
from local.workload.stack_client import Backlog
from local.workload.transfers import generate
from tests.unit.local.test_harm import ENTRIES, FOUND

if TYPE_CHECKING:
    from pathlib import Path

    from local.workload.reconciliation import Reconciliation

WORKLOAD = generate(1, 500)
SENT = {name: f"m-{name}" for name in WORKLOAD.by_name}
BUSY = replace(
    FOUND,
    workload=WORKLOAD,
    sent=SENT,
    dead_letters=[DeadLetter(message_id=key, reason=f"{'the reason is long ' * 9}{key}") for key in SENT.values()],
)
HARMED = replace(
    FOUND,
    entries=[*ENTRIES[:2], *(replace(each, amount=2 * each.amount, times=2) for each in ENTRIES[2:])],
    closing={"a": 40, "b": 20, "c": 50},
)


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def concluded(found: Reconciliation, timeline: Path | None = None) -> int:
    report, shown = Report(), {"Messages": tables.messages(found), "Books": tables.money(found)}
    report.begin("500 transfers, seed 1", "from the queue to the ledger by a plain partial-batch handler", timeline)
    return report.conclude(found, shown, "all is well")


def lines(text: str) -> list[str]:
    """What a terminal shows, without colors, and without what moves its cursor."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "\n").splitlines()


@pytest.mark.parametrize("terminal", [False, True])
def test_80_columns_are_enough(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, terminal: bool
) -> None:
    """But for the last line, which is for programs."""
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.chdir(tmp_path)
    report = Report()
    report.step("local cloud")("http://127.0.0.1:56789, in a process of its own")
    report.note("the queue's visibility timeout was set from 120 to 15 s after deployment " * 3)
    report.opened(WORKLOAD)
    with report.progress(500) as say:
        backlog, extra = Backlog(waiting=123, in_flight=40), {"redelivered": 30, "killed": 1234, "frozen": 99}
        say(Progress(sent=500, queue=backlog, dead_letters=backlog, extra=extra))
    concluded(BUSY, tmp_path / ".build" / "run" / "timeline-workflow-control-500-1234567.html")
    *shown, last = lines(capsys.readouterr().out)
    assert json.loads(last)["sent"] == 500
    assert max(map(len, shown)) <= 80
    assert any("frozen" in line for line in shown)


def test_a_control_that_came_to_harm_says_what_it_cost_and_that_it_must_fail(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert concluded(HARMED) == 1
    told = " ".join(capsys.readouterr().out.split())
    for words in (
        "100 cents before the sum",
        "110 cents after 10 more",
        "10 cents created",
        "0 cents destroyed",
        "25 cents paid again to 1 payees",
        "This was the control",
        "The harm is expected",
    ):
        assert words in told


def test_a_control_that_came_to_no_harm_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert concluded(FOUND) == UNHARMED
    assert "it shows nothing" in capsys.readouterr().out


@pytest.mark.parametrize(("after", "told"), [(100, "the same"), (101, "1 more"), (95, "5 fewer")])
def test_sums_that_differ_are_not_called_the_same(after: int, told: str) -> None:
    rows: list[Any] = tables.money(replace(FOUND, closing={"a": after - 35, "b": 10, "c": 25}))
    assert (after, "cents after", told) in rows


def test_a_protected_run_that_came_to_harm_is_no_control(capsys: pytest.CaptureFixture[str]) -> None:
    assert concluded(replace(HARMED, protected=True)) == 1
    told = capsys.readouterr().out
    assert "the books do not balance" in told
    assert "control" not in told
