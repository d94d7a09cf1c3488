"""Lambda's emulator answers for a function whatever that does, and `make invoke` believes the answer alone."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from local import container, invoke
from local.emulator import running_function
from local.server import ServerError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local.emulator import Function

FUNCTION = """
import os, time

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
def function(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Function]:
    code = tmp_path_factory.mktemp("code")
    (code / "app").mkdir()
    (code / "app" / "__init__.py").write_text("")
    (code / "app" / "consumer.py").write_text(FUNCTION)
    with running_function(code=code, environment={"COLOUR": "blue"}, timeout_seconds=2) as running:
        yield running


def test_it_answers_with_its_own_environment_and_deadline(function: Function) -> None:
    answer = function.invoke({"do": "answer"})
    assert answer["colour"] == "blue"
    assert 0 < answer["left_ms"] <= 2_000


def test_an_exception_is_an_answer(function: Function) -> None:
    answer = function.invoke({"do": "raise"})
    assert (answer["errorType"], answer["errorMessage"]) == ("LookupError", "no such thing")


def test_a_time_out_is_an_answer_and_the_next_event_is_served(function: Function) -> None:
    answer = function.invoke({"do": "hang"})
    assert (answer["errorType"], answer["errorMessage"]) == ("Sandbox.Timedout", "Task timed out after 2.00 seconds")
    assert function.invoke({"do": "answer"})["colour"] == "blue"


def test_a_crash_is_an_answer_and_the_next_event_is_served(function: Function) -> None:
    assert function.invoke({"do": "die"})["errorType"] == "Runtime.ExitError"
    assert function.invoke({"do": "answer"})["colour"] == "blue"


def test_its_log_can_be_read(function: Function) -> None:
    function.invoke({"do": "answer"})
    assert "START RequestId" in function.log()


def test_without_a_build_it_says_what_to_do(tmp_path: Path) -> None:
    with (
        pytest.raises(ServerError, match="make build"),
        running_function(code=tmp_path, environment={}),
    ):
        pass


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


def test_the_answer_is_the_last_that_sam_prints() -> None:
    assert container.last_answer('{"level": "INFO"}\nSTART\n\n{"batchItemFailures": []}\n') == {"batchItemFailures": []}


def test_an_engine_that_does_not_answer_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\necho 'Cannot connect to the Docker daemon' >&2\nexit 1\n")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert container.engine() is None
    docker.write_text("#!/bin/sh\necho 172.17.0.1\n")
    assert container.engine() == container.Engine("172.17.0.1", "172.17.0.1")
