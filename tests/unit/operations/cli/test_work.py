"""`receiver work` hands its options to the supervisor, and ends as that does."""

from __future__ import annotations

import math
import os
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import typer

from idempotent_receiver.operations.account import UsageError
from idempotent_receiver.operations.cli import work
from idempotent_receiver.operations.cli.terminal import Exit
from idempotent_receiver.worker.supervisor import DRAIN_SECONDS

if TYPE_CHECKING:
    from tests.unit.operations.cli.stack import Receiver

OPTIONS = (
    "--processes 3 --concurrency 4 --receive 2 --lease-seconds 30 --time-limit 5 --drain-seconds 6 --health-file alive"
    " --max-messages-per-process 9"
)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What supervisors were made of."""
    found: list[Any] = []

    def supervisor(task: dict[str, Any], **options: Any) -> Any:
        found.append((task, options))
        return SimpleNamespace(run=lambda: 7)

    monkeypatch.setattr(work, "Supervisor", supervisor)
    return found


def test_each_option_reaches_the_supervisor(receiver: Receiver, made: list[Any]) -> None:
    assert receiver(f"work URL orders:handler {OPTIONS}").code == 7
    with pytest.raises(typer.Exit):
        work.work("URL", "orders:handler")
    task: dict[str, Any] = {"queue_url": "URL", "handler": "orders:handler"}
    (given, options), (by_default, rest) = made
    assert given == {
        **task,
        "limits": {
            "concurrency": 4,
            "receive": 2,
            "lease_seconds": 30.0,
            "time_limit_seconds": 5.0,
            "max_messages": 9,
        },
    }
    assert options == {"processes": 3, "drain_seconds": 6.0, "health": Path("alive")}
    assert by_default == {
        **task,
        "limits": {
            "concurrency": 1,
            "receive": 10,
            "lease_seconds": 60,
            "time_limit_seconds": 43_200,
            "max_messages": None,
        },
    }
    assert rest == {"processes": 1, "drain_seconds": DRAIN_SECONDS, "health": None}


SECONDS = ("lease_seconds", "time_limit", "drain_seconds")


@pytest.mark.parametrize("name", SECONDS)
@pytest.mark.parametrize("seconds", ["nan", "-nan", "inf", "-inf", "-1", "0", "43201"])
def test_seconds_that_cannot_be_kept_are_refused(receiver: Receiver, made: list[Any], name: str, seconds: str) -> None:
    """SQS hides a message for twelve hours at most. A worker that drains for none would kill what runs at SIGTERM."""
    option = f"--{name.replace('_', '-')}"
    ran = receiver(f"work URL orders:handler {option}={seconds}")

    assert (ran.code, made) == (2, [])
    assert option in ran.err


@pytest.mark.parametrize("name", SECONDS)
def test_what_is_no_number_of_seconds_is_refused_by_whatever_typer_is_there(made: list[Any], name: str) -> None:
    """Some of its versions take NaN for a number within every range, and then no lease is too short."""
    with pytest.raises((UsageError, typer.Exit)) as raised:
        work.work("URL", "orders:handler", **{name: math.nan})

    assert made == []
    assert f"--{name.replace('_', '-')}: nan must be more than 0, and at most 43200" in str(raised.value)


def test_a_health_file_that_cannot_be_written_is_refused(
    receiver: Receiver, made: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked of the folder, since the file is removed first. Root may write anywhere."""
    Path("folder").mkdir()
    writable: list[tuple[Path, int]] = [(Path(), os.W_OK), (Path("here"), os.W_OK)]
    allowed = SimpleNamespace(W_OK=os.W_OK, access=lambda path, mode: (path, mode) in writable)
    monkeypatch.setattr(work, "os", allowed)
    for file, code in (("alive", 7), ("here/new", 7), ("nowhere/new", Exit.USAGE), ("folder", Exit.USAGE)):
        ran = receiver(f"work URL orders:handler --health-file {file}")
        assert (ran.code, f"--health-file: {file} cannot be written" in ran.err) == (code, code == Exit.USAGE)
    assert len(made) == 2


def test_a_health_file_of_a_former_life_is_removed(receiver: Receiver, made: list[Any]) -> None:
    """By that, a start-up probe would take a worker for started that has yet to load its handler."""
    Path("alive").touch()

    assert receiver("work URL orders:handler --health-file alive").code == 7

    assert not Path("alive").exists()
    assert len(made) == 1


def test_a_process_may_not_be_replaced_before_its_first_message(receiver: Receiver, made: list[Any]) -> None:
    ran = receiver("work URL orders:handler --max-messages-per-process 0")

    assert (ran.code, made) == (2, [])
    assert "--max-messages-per-process" in ran.err
