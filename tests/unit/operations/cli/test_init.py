"""`receiver init`: a new project, or a refusal that leaves nothing."""

from __future__ import annotations

import os
import re
import shlex
import signal
from typing import TYPE_CHECKING

import pytest

from idempotent_receiver.operations.account import UsageError
from idempotent_receiver.operations.cli import init as command
from idempotent_receiver.operations.cli import receiver as command_line
from idempotent_receiver.operations.starter.project import WATCH
from idempotent_receiver.operations.starter.source import LibrarySource
from tests.ctrl_c import heeded
from tests.starter import QUEUE, made
from tests.template import WATCH as SHIPPED

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Ran:
    def __init__(self, code: int, err: str) -> None:
        self.code, self.err = code, err


@pytest.fixture
def receiver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Runs the command in an empty folder; the library is on an index."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        command, "source", lambda folder: LibrarySource("idempotent-receiver~=0.1", "the-same[cli]~=0.1")
    )

    def run(line: str) -> Ran:
        with pytest.raises(SystemExit) as ended:
            command_line.main(shlex.split(line))
        said = " ".join(capsys.readouterr().err.split())  # as it was before it was wrapped
        return Ran(int(ended.value.code or 0), said)

    return run


@pytest.mark.parametrize(("options", "choice"), [("", "plain"), (" --container", "container"), (" --sql", "sql")])
def test_it_makes_a_project_and_nothing_beside_it(
    receiver: Callable[..., Ran], tmp_path: Path, options: str, choice: str
) -> None:
    ran = receiver(f"init orders{options}")
    assert (ran.code, [each.name for each in tmp_path.iterdir()]) == (0, ["orders"])
    assert "cd orders && make test" in ran.err
    files = {str(path.relative_to(tmp_path / "orders")) for path in (tmp_path / "orders").rglob("*") if path.is_file()}
    assert files == {path.replace("order_totals", "orders") for path in made(choice)}
    assert (tmp_path / "orders").stat().st_mode & 0o777 == 0o755, "a folder like any other"


def test_every_example_in_its_help_runs(receiver: Callable[..., Ran], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command_line.main(["init", "--help"])
    lines = re.findall(r"(?m)^ *(receiver .*)$", capsys.readouterr().out)
    assert lines
    for line in lines:
        assert receiver(line.removeprefix("receiver ")).code == 0


def test_a_name_may_have_48_characters(receiver: Callable[..., Ran], tmp_path: Path) -> None:
    assert (receiver(f"init {'o' * 48}").code, [each.name for each in tmp_path.iterdir()]) == (0, ["o" * 48])


def test_a_package_that_would_hide_an_installed_one_is_not_made(receiver: Callable[..., Ran], tmp_path: Path) -> None:
    assert (receiver("init pytest").code, list(tmp_path.iterdir())) == (2, [])


def test_a_coroutine_gets_no_session(receiver: Callable[..., Ran], tmp_path: Path) -> None:
    ran = receiver("init orders --sql --async")
    assert (ran.code, list(tmp_path.iterdir())) == (2, [])
    assert "--sql lends a session to a plain function: omit --async" in ran.err


def test_an_existing_folder_is_left_alone(receiver: Callable[..., Ran], tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    ran = receiver("init orders")
    assert (ran.code, list((tmp_path / "orders").iterdir())) == (2, [])
    assert "exists: choose another name" in ran.err


def test_a_failure_on_the_way_leaves_nothing(
    receiver: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def vendor(wheel: Path, project: Path) -> None:
        assert (project / "template.yaml").exists(), "it was half made"
        raise UsageError("no room")

    monkeypatch.setattr(command, "source", lambda folder: LibrarySource("a", "b", folder / "a.whl"))
    monkeypatch.setattr(command, "vendor", vendor)
    assert (receiver("init orders").code, list(tmp_path.iterdir())) == (2, [])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_on_the_way_leaves_nothing(
    receiver: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    def source(folder: Path) -> LibrarySource:
        assert [each.name.partition("-")[0] for each in tmp_path.iterdir()] == [".orders"], "it was being made"
        os.kill(os.getpid(), number)
        return LibrarySource("a", "b")

    monkeypatch.setattr(command, "source", source)
    with heeded():
        assert (receiver("init orders").code, list(tmp_path.iterdir())) == (130, [])


@pytest.mark.parametrize("failure", [PermissionError(13, "Permission denied"), FileExistsError(17, "File exists")])
def test_a_folder_that_cannot_be_made_is_named(
    receiver: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: OSError
) -> None:
    def refuse(*_: object) -> None:
        raise failure

    monkeypatch.setattr(type(tmp_path), "rename", refuse)
    ran = receiver("init orders")
    assert (ran.code, list(tmp_path.iterdir())) == (2, [])
    assert f"orders cannot be created: {failure.strerror}" in ran.err


def test_a_fifo_queue_of_ones_own_is_recognised_by_its_name(receiver: Callable[..., Ran], tmp_path: Path) -> None:
    assert receiver(f"init orders --queue-arn {QUEUE}.fifo").code == 0
    assert receiver(f"init others --fifo --queue-arn {QUEUE}.fifo").code == 0
    written = (tmp_path / "orders/template.yaml").read_text()
    assert "BatchSize: 10\n" in written
    assert "MaximumBatchingWindowInSeconds" not in written


def test_update_replaces_what_watches_and_nothing_else(receiver: Callable[..., Ran], tmp_path: Path) -> None:
    receiver("init orders")
    assert receiver("init others --update").code == 2
    (tmp_path / "orders" / WATCH).write_text("old")
    (tmp_path / "orders/template.yaml").write_text("mine")
    assert receiver("init orders --update").code == 0
    assert (tmp_path / "orders" / WATCH).read_text() == SHIPPED.read_text()
    assert (tmp_path / "orders/template.yaml").read_text() == "mine"
