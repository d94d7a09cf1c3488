"""Lambda's emulator answers for a function whatever that does, and `make invoke` believes the answer alone."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from local import invoke
from local.emulator import running_function

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local.emulator import Function

FUNCTION = """
import os, time

if os.path.exists(os.environ["STUCK"]):
    os.unlink(os.environ["STUCK"])
    time.sleep(60)

def lambda_handler(event, context):
    match event["do"]:
        case "answer":
            return {"colour": os.environ["COLOUR"], "left_ms": context.get_remaining_time_in_millis()}
        case "raise":
            raise LookupError("no such thing")
        case "hang":
            time.sleep(60)
        case "die":
            os._exit(1)
"""


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Lambda's emulator is a program for Linux")


@pytest.fixture(scope="module")
def stuck(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where this file is, the next start of the function takes it away and does not come to its end."""
    return tmp_path_factory.mktemp("stuck") / "file"


@pytest.fixture(scope="module")
def function(tmp_path_factory: pytest.TempPathFactory, stuck: Path) -> Iterator[Function]:
    code = tmp_path_factory.mktemp("code")
    (code / "app").mkdir()
    (code / "app" / "__init__.py").write_text("")
    (code / "app" / "consumer.py").write_text(FUNCTION)
    with running_function(code=code, environment={"COLOUR": "blue", "STUCK": str(stuck)}, timeout_seconds=2) as running:
        yield running


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


@pytest.mark.parametrize(
    ("event", "told"),
    [
        ("fresh", "3 acknowledged: 3 completed."),
        ("bad-body", r"-0{11}2 (dead-lettered|failed for good): the body is not a Transfer: amount: int_type"),
        ("fifo", "-0{11}3 failed for good: account alice is unknown or cannot pay 999999999 USD"),
        ("fifo", "-0{11}4 to be tried again: it was not run"),
    ],
)
def test_what_became_of_each_message_is_told(capfd: pytest.CaptureFixture[str], event: str, told: str) -> None:
    invoke.main([str(invoke.EVENTS / f"{event}.json")])
    assert re.search(told, capfd.readouterr().err)
