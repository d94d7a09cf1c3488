"""How programs of the local cloud end: whatever comes between, with a word and a status."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from botocore.exceptions import NoCredentialsError, NoRegionError

from idempotent_receiver.local.server import ServerError
from local.program import ENDING, IN_VAIN, INTERRUPTED, run_to_its_end

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from local.workload.report import Report


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """The signals are the tests' again afterwards."""
    before = {each: signal.getsignal(each) for each in ENDING}
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


def raising(error: BaseException) -> Callable[[Report], int]:
    def perform(report: Report) -> int:
        raise error

    return perform


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("N is a whole number"), "N is a whole number"),
        (ServerError("the server ended"), "the server ended"),
        (NoRegionError(), "You must specify a region. Set AWS_DEFAULT_REGION"),
        (NoCredentialsError(), "Unable to locate credentials Set AWS_DEFAULT_REGION, and AWS_PROFILE"),
    ],
)
def test_a_failure_is_told_in_a_line(error: Exception, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_to_its_end(raising(error)) == IN_VAIN
    assert said in capsys.readouterr().out


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_is_answered_at_once(number: signal.Signals, capfd: pytest.CaptureFixture[str]) -> None:
    def perform(report: Report) -> int:
        os.kill(os.getpid(), number)
        raise AssertionError("it goes on")

    assert run_to_its_end(perform) == INTERRUPTED
    told = capfd.readouterr()
    assert "clearing up" in told.err
    assert "stopped, and cleared up" in told.out


def test_a_mistake_of_ours_is_not_hidden() -> None:
    with pytest.raises(KeyError):
        run_to_its_end(raising(KeyError("a mistake")))
