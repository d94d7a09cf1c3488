"""Questions and consoles without a terminal: `test_terminal` has a real one."""

from __future__ import annotations

import io
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver.operations.cli.terminal import PIPE_WIDTH, Terminal, _console, command

if TYPE_CHECKING:
    from collections.abc import Callable

QUESTION = "Sure? [y/N] "


class AtATerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("typed_in", "agrees", "asked"),
    [
        ("y\n", True, 1),
        ("what?\n\u00fc\n YES \n", True, 3),
        ("a\nb\nc\ny\n", False, 3),
        ("no\ny\n", False, 1),
        ("\ny\n", False, 1),
        ("", False, 1),
    ],
)
def test_a_question_is_asked_until_it_is_answered_and_three_times_at_most(
    typed: Callable[[str], None], capsys: pytest.CaptureFixture[str], typed_in: str, agrees: bool, asked: int
) -> None:
    typed(typed_in)
    assert Terminal().confirm("Sure?", yes=False) is agrees
    said = capsys.readouterr().err
    assert (said.count(QUESTION), "--yes confirms in advance" in said) == (asked, not agrees)
    assert said.startswith(f"{QUESTION}\n") is (typed_in == ""), "at the end of input, a line of its own"


def test_an_offer_is_made_only_at_a_terminal(
    typed: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed("y\n")
    assert (Terminal().offer("Sure?"), capsys.readouterr().err) == (False, "")
    monkeypatch.setattr(sys, "stdin", AtATerminal("y\n"))
    assert (Terminal().offer("Sure?"), capsys.readouterr().err) == (True, QUESTION)


def test_ctrl_c_at_a_question_means_no_and_elsewhere_what_it_meant(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted(io.StringIO):
        def readline(self, size: int | None = -1, /) -> str:
            signal.raise_signal(signal.SIGINT)
            return "y\n"

    monkeypatch.setattr(sys, "stdin", Interrupted())
    noted: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: noted.append(number))
    try:
        assert Terminal().confirm("Sure?", yes=False) is False
        assert (noted, capsys.readouterr().err.startswith(f"{QUESTION}\n")) == ([], True)
        signal.raise_signal(signal.SIGINT)
        assert noted == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("columns", [None, "70"])
@pytest.mark.parametrize("stream", [AtATerminal, io.StringIO])
def test_a_pipe_is_wide_and_a_text_is_printed_as_it_is(
    monkeypatch: pytest.MonkeyPatch, columns: str | None, stream: Any
) -> None:
    """Neither markup nor names of emoji count in what others wrote, and no figure gets a colour."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    console = _console(stream())
    assert (console.width == PIPE_WIDTH) is (columns is None and stream is io.StringIO)
    console.print("[b]5[/b] :warning: 'a'")
    assert console.file.getvalue() == "[b]5[/b] :warning: 'a'\n"


@pytest.mark.parametrize(("signs", "lines"), [(61, 1), (62, 2)])
def test_a_command_takes_the_lines_that_eighty_columns_need(signs: int, lines: int) -> None:
    """The first has room for the sign that joins it with the next."""
    shown = command("receiver dlq", "x" * signs, "y").splitlines()
    parts = ["    receiver dlq", "x" * signs, "y"]
    first, rest = " ".join(parts[: 3 - lines]), " ".join(parts[3 - lines :])
    assert shown == [f"{first} \\", f"      {rest}"]
