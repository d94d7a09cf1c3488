"""`make invoke` fails on any answer but the expected one, and tells what became of each message."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from harness import invoke

if TYPE_CHECKING:
    pass


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Lambda's emulator is a program for Linux")


@pytest.mark.parametrize(
    ("answer", "status"), [({"batchItemFailures": []}, 0), ({"batchItemFailures": None}, 1), (None, 1)]
)
def test_the_command_fails_on_another_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: object, status: int
) -> None:
    monkeypatch.setattr(invoke, "invoke", lambda _event: answer)
    assert invoke.main([str(invoke.EVENTS / "fresh.json")]) == status
    assert json.loads(capsys.readouterr().out) == answer


def test_the_command_asks_which_event(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke.main(["events/nonexistent.json"]) == 2
    assert "make invoke EVENT=" in capsys.readouterr().err


@pytest.mark.parametrize("event", ["fresh", "fifo"])
def test_where_the_emulator_does_not_run_the_cloud_itself_does(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], event: str
) -> None:
    monkeypatch.setattr(invoke, "EMULATED", False)
    monkeypatch.setattr(invoke, "running_function", None)
    status = invoke.main([str(invoke.EVENTS / f"{event}.json")])
    assert status == 0, capfd.readouterr()
