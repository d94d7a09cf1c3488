"""`make aws` leaves nothing behind without a word, and says what is wrong before it makes anything."""

from __future__ import annotations

import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from botocore.exceptions import ClientError, WaiterError

import harness.aws.__main__ as trial
from harness import program, run
from harness.aws import places, steps
from harness.aws.steps import Results
from harness.program import REFUSED, run_to_its_end

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.workload.report import Report

NAME = "receiver-proof-1"


def refused(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "no"}}, "DescribeStacks")


@pytest.fixture(autouse=True)
def undisturbed() -> Any:
    """The signals are the tests' again."""
    before = {each: signal.getsignal(each) for each in program.ENDING}
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


def ended(perform: Callable[[Report], int], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    status = run_to_its_end(perform)
    return status, " ".join(capsys.readouterr().out.split())


def raising(error: BaseException) -> Callable[..., NoReturn]:
    def fails(*_: object) -> NoReturn:
        raise error

    return fails


@pytest.mark.parametrize(
    ("perform", "given", "told"),
    [
        (run.perform, {"N": "5"}, "N must be at least 20"),
        (trial.perform, {"MINUTES": "-1"}, "MINUTES is a whole number, at least 0; it is '-1'"),
        (trial.perform, {"REHEARSAL": "yes"}, "REHEARSAL is only, or left out; it is 'yes'"),
        (trial.perform, {}, "You must specify a region. Set AWS_DEFAULT_REGION, and AWS_PROFILE"),
    ],
)
def test_what_is_wrong_is_told_by_its_key_before_anything_is_made(
    perform: Callable[[Report], int],
    given: dict[str, str],
    told: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run, "on_local_cloud", raising(AssertionError("it is deployed")))
    for name in ("AWS_DEFAULT_REGION", "AWS_PROFILE", "MINUTES", "REHEARSAL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {
        "AWS_CONFIG_FILE": "/nowhere",
        "AWS_STS_REGIONAL_ENDPOINTS": "legacy",
        **given,
    }.items():
        monkeypatch.setenv(name, value)
    status, said = ended(perform, capsys)
    assert (status, told in said) == (2, True), said


@pytest.mark.parametrize("code", sorted(REFUSED))
def test_credentials_that_have_expired_are_told_with_the_remedy(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, said = ended(raising(refused(code)), capsys)
    assert (status, "AWS_PROFILE or other credentials" in said) == (2, True)


def test_a_second_ctrl_c_is_not_said_to_have_cleared_up(capsys: pytest.CaptureFixture[str]) -> None:
    def impatient(_: Report) -> int:
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            signal.raise_signal(signal.SIGINT)
        return 0

    assert ended(impatient, capsys) == (130, "stopped while it was clearing up: what it had made may be left")


@pytest.mark.parametrize("error", [WaiterError("StackDeleteComplete", "it failed", {}), refused("AccessDenied")])
def test_what_is_left_is_named_although_the_stack_could_not_be_deleted(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = Results()
    monkeypatch.setattr(places, "LISTED_SECONDS", 0.01)
    monkeypatch.setattr(places, "delete_stack", raising(error))
    monkeypatch.setattr(places, "left_of", lambda clients, name: iter(["table orders"]))
    with pytest.raises(KeyboardInterrupt), places._removed(None, NAME, results):  # type: ignore[arg-type]
        raise KeyboardInterrupt
    assert results.checks["removal"].startswith("failed: left ")
    assert "table orders" in results.checks["removal"]


def test_what_ctrl_c_has_left_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def left(name: str, region: str, results: Results) -> NoReturn:
        results.checks["removal"] = "failed: left table orders"
        raise KeyboardInterrupt

    monkeypatch.setattr(trial, "_agreed", lambda report, minutes: "us-east-1")
    monkeypatch.setattr(trial, "on_local_cloud", lambda name, results: threading.Lock())
    monkeypatch.setattr(steps, "take", lambda *_: None)
    monkeypatch.setattr(trial, "on_aws", left)
    monkeypatch.setattr(trial, "FOLDER", tmp_path)
    monkeypatch.setattr(trial, "ROOT", tmp_path)
    status, said = ended(trial.perform, capsys)
    assert status == 130
    assert "removal: failed: left table orders" in said


def test_a_step_that_is_stopped_has_undone_what_it_did_before_its_stack_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, undone = tmp_path / "begun", tmp_path / "undone"
    script = tmp_path / "step.py"
    script.write_text(
        f"import time, pathlib\ntry:\n    pathlib.Path({str(begun)!r}).touch()\n    time.sleep(60)\n"
        f"finally:\n    time.sleep(1)\n    pathlib.Path({str(undone)!r}).touch()\n"
    )

    def interrupt() -> None:
        while not begun.exists():
            time.sleep(0.01)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)  # it is reading

    signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        steps._run(Path(sys.executable).name, str(script), environment={})
    thread.join()
    assert undone.exists()


def test_a_contract_of_which_nothing_ran_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def skipping(*command: str, environment: object) -> steps.subprocess.CompletedProcess[str]:
        path = command[-1].partition("=")[2]
        Path(path).write_text('<a><testcase name="t[named]"><skipped/></testcase></a>')
        return steps.subprocess.CompletedProcess(command, 0, "")

    monkeypatch.setattr(steps, "_run", skipping)
    results = Results()
    steps._contract(results, NAME, {"AWS_REGION": "us-east-1"})
    assert results.failures == {"contract": "failed: no test ran"}
