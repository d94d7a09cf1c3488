"""The command in a terminal: questions, a bar, and Ctrl-C."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import signal
import sys
import time
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from rich.cells import cell_len

from idempotent_receiver.local.samples import TrialError
from idempotent_receiver.operations.account import UsageError
from idempotent_receiver.operations.cli import local, terminal
from idempotent_receiver.operations.cli import receiver as command_line
from idempotent_receiver.operations.dead_letters.history import NotKept
from tests.unit.operations.cli.stack import FLAKY, Stack


class Keyboard:
    """The command in a pseudo-terminal: what it shows, and what is typed when it has shown something."""

    def __init__(self, *arguments: str) -> None:
        self.shown = ""
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            # What was open is not its own: a pipe that it held would look to its reader as if we still had it.
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))
            self._be_the_command(arguments)

    def _be_the_command(self, arguments: tuple[str, ...]) -> NoReturn:
        code = 70
        try:
            sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115  # numbers
            command_line.main(arguments)
        except SystemExit as ended:
            code = int(ended.code or 0)
            sys.stdout.flush()
        finally:
            os._exit(code)

    def until(self, text: str) -> Keyboard:
        """Read until this is shown."""
        while text not in self.shown:
            self._read()
        return self

    def type(self, text: str) -> Keyboard:
        os.write(self.terminal, text.encode())
        return self

    def interrupt(self, expected: str) -> Keyboard:
        """Press Ctrl-C until this is shown.

        Once more, as a person would: a signal that comes just before the program goes to sleep in a read is seen only
        when the read is over.
        """
        while expected not in self.shown:
            self.type("\x03")
            deadline = time.monotonic() + 5
            while expected not in self.shown and self._wait(deadline - time.monotonic()):
                self._read()
        return self

    def _wait(self, seconds: float) -> bool:
        return bool(select.select([self.terminal], [], [], max(0.0, seconds))[0])

    def _read(self) -> None:
        if not self._wait(20):
            os.kill(self.pid, signal.SIGKILL)
            pytest.fail(f"nothing more came after: {self.shown}")
        try:
            more = os.read(self.terminal, 65536)
        except OSError:  # Linux says so where the other end is closed
            more = b""
        if not more:
            raise EOFError(self.shown)
        self.shown += more.decode()

    def end(self) -> int:
        """Read to the end; the exit code."""
        with contextlib.suppress(EOFError):
            while True:
                self._read()
        os.close(self.terminal)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


in_a_terminal = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # fork, beside moto's threads


@in_a_terminal
@pytest.mark.parametrize(
    ("line", "asked", "code", "shown"),
    [
        (f"trace {FLAKY}", "", 0, ["ConnectionError at app.ledger:7"]),
        ("dlq list", "", 0, ["account closed"]),
        ("stuck", "Scan? [y/N]", 0, ["Claims that were never settled"]),
        (
            "dlq redrive --rate 10",
            "Move or drop 2 dead letters? [y/N]",
            1,
            ["moving", "2/2", "1 moved, 1 dropped as done, 2 left in place."],
        ),
    ],
)
def test_it_shows_asks_and_moves_with_a_bar(stack: Stack, line: str, asked: str, code: int, shown: list[str]) -> None:
    keyboard = Keyboard(*line.split(), "--stack", "transfers")
    if asked:
        keyboard.until(asked).type("y\n")
    assert keyboard.end() == code
    assert [text for text in shown if text not in keyboard.shown] == []


@in_a_terminal
def test_a_redrive_of_nothing_draws_no_bar(stack: Stack) -> None:
    keyboard = Keyboard("dlq", "redrive", "--stack", "transfers", "--key", "nosuch")
    assert (keyboard.end(), "0/0" in keyboard.shown) == (1, False)


@in_a_terminal
def test_ctrl_d_and_ctrl_c_at_the_question_do_nothing(stack: Stack) -> None:
    keyboard = Keyboard("stuck", "--stack", "transfers")
    assert keyboard.until("[y/N]").type("\x04").end() == 1
    assert "[y/N] \r\nNot confirmed" in keyboard.shown
    keyboard = Keyboard("dlq", "redrive", "--stack", "transfers")
    assert keyboard.until("[y/N]").interrupt("Not confirmed: nothing was done.").end() == 1
    assert stack.untouched()


@in_a_terminal
def test_ctrl_c_while_it_moves_stops_between_two_requests(stack: Stack) -> None:
    for number in range(20):
        stack.bury(f"m-{number}")
    keyboard = Keyboard("dlq", "redrive", "--stack", "transfers", "--rate", "4", "--yes")
    assert keyboard.until("/22").type("\x03").end() == terminal.Exit.STOPPED
    told = re.search(r"(\d+) moved, ([01]) dropped as done, (\d+) left in place", keyboard.shown)
    assert told is not None
    moved, dropped, left = map(int, told.groups())
    assert moved < 20, "it stopped before the end"
    assert moved + dropped + left == 24, "each is counted"


@pytest.mark.parametrize(
    ("answers", "confirmed"), [(["perhaps", "y"], True), (["perhaps"] * 3 + ["y"], False), (["no", "y"], False)]
)
def test_a_question_is_asked_three_times_at_most(answers: list[str], confirmed: bool) -> None:
    left = iter(answers)
    console: Any = SimpleNamespace(input=lambda *asked, **options: next(left), print=lambda *shown: None)
    assert terminal.Terminal(err=console).confirm("Scan?", yes=False) is confirmed


def test_a_first_ctrl_c_is_noted_and_a_second_stops_at_once() -> None:
    def press_twice() -> None:
        with terminal.Terminal().stoppable() as stopped:
            signal.raise_signal(signal.SIGINT)
            assert stopped()
            signal.raise_signal(signal.SIGINT)
            pytest.fail("it goes on")

    with pytest.raises(KeyboardInterrupt):
        press_twice()


def test_columns_stand_below_each_other_whatever_the_letters() -> None:
    """Chinese letters take two columns each."""
    shown: Any = terminal.listing(
        ("key", "state"), [(("\u8a02\u55ae\u7de8\u865f-1", "DONE"), ()), (("order-1", "DONE"), ())]
    )
    lines = [each.plain for each in shown.renderables]
    assert {
        cell_len(each[: each.index(word)]) for each, word in zip(lines, ("state", "DONE", "DONE"), strict=True)
    } == {12}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("no such queue"), 2),
        (NotKept("the history table refuses"), 3),
        (ClientError({"Error": {"Code": "AccessDenied"}}, "Scan"), 3),
        (EndpointConnectionError(endpoint_url="there"), 3),
        (KeyboardInterrupt(), 130),
        (ZeroDivisionError(), 70),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_script_can_tell_why_a_command_ended(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, code: int
) -> None:
    """Only a bug has a traceback."""

    def fails(**given: object) -> NoReturn:
        raise error

    monkeypatch.setattr(command_line, "app", fails)
    with pytest.raises(SystemExit) as ended:
        command_line.main(["stuck"])
    assert ended.value.code == code
    assert ("Traceback" in capsys.readouterr().err) is (code == 70)


def test_nohup_keeps_a_command_when_its_terminal_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with terminal.interruptible():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGHUP, before)
    assert signal.getsignal(signal.SIGTERM) is not signal.default_int_handler


def test_json_controls_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    told = {"why": "\x9b2J\u202eevil"}
    terminal.Terminal(as_json=True).answer(told, "")
    out = capsys.readouterr().out
    assert all(each.isprintable() or each == "\n" for each in out)
    assert json.loads(out)["why"] == told["why"]


def test_a_parameters_value_may_have_an_equals_sign() -> None:
    assert local._parameters(["Filter=a=b", "Empty="]) == {"Filter": "a=b", "Empty": ""}
    for wrong in ("Filter", "=b"):
        with pytest.raises(TrialError, match="write it as NAME=VALUE"):
            local._parameters([wrong])
