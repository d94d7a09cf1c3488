"""Every command has help, examples that run, and an answer for people and for scripts."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver.errors import Failure
from idempotent_receiver.operations.cli import terminal
from tests.unit.operations.cli.stack import (
    CLOSED,
    COMMANDS,
    CONFLICT,
    FLAKY,
    TRANSIENT,
    Receiver,
    Stack,
    denied,
    examples,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

GROUPS = ["", "dlq"]
every_command = pytest.mark.parametrize("line", COMMANDS)


def named(line: str) -> str:
    """The command that a line begins with."""
    return " ".join(line.split()[: 2 if line.startswith("dlq") else 1])


@pytest.mark.parametrize("command", [*GROUPS, *map(named, COMMANDS)])
def test_every_command_has_help_in_eighty_columns_and_examples_that_run(
    receiver: Receiver, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    told = receiver(f"{command} --help")
    assert (told.code, told.err) == (0, "")
    assert "Usage: receiver" in told.out
    assert max(map(len, told.out.splitlines())) <= 80
    if command in GROUPS:
        summaries = told.out.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
        assert summaries
        assert all(line.endswith(".") and "..." not in line for line in summaries), "a sentence each, in one line"
    assert "Documentation:" not in told.out, "a checkout has the pages beside it"
    assert re.search(r"(?m)^ *Examples?:$", told.out)
    lines = examples(told.out)
    assert ("Example:" in told.out) is (len(lines) == 1)
    for line in lines:
        ran = receiver(line.removeprefix("receiver "))
        assert ran.code in (terminal.Exit.OK, terminal.Exit.LEFT), ran.err
        assert ran.out


def test_its_version_and_its_exit_codes_are_told(receiver: Receiver) -> None:
    assert receiver("--version").out == f"receiver {version('idempotent-receiver')}\n"
    said = re.search(r"Exit codes:.*?stopped\.", receiver("--help").out, re.DOTALL)
    assert said is not None
    assert [int(number) for number in re.findall(r"\b\d+\b", said[0])] == [each.value for each in terminal.Exit]


@pytest.mark.parametrize("line", [line for line in COMMANDS if not line.startswith("trace")])
def test_without_any_permission_a_command_says_what_aws_refused_and_nothing_is_changed(
    receiver: Receiver, stack: Stack, line: str
) -> None:
    """A trace tells the rest of the story, and has tests of its own."""
    with denied():
        ran = receiver.on(line)
    assert (ran.code, ran.out) == (terminal.Exit.AWS, "")
    assert "AccessDenied" in ran.err
    assert "Traceback" not in ran.err
    assert not list(Path().glob("letters*"))
    assert stack.untouched()


def test_it_is_a_module_to_run() -> None:
    command = [sys.executable, "-m", "idempotent_receiver", "dlq", "redrive", "--help"]
    assert "Usage: receiver dlq redrive" in subprocess.run(command, capture_output=True, text=True, check=True).stdout


# In eighty columns.

LONG = "arn%3Aaws%3Aiam%3A%3A123456789012%3Auser%2Fclient-with-a-name/order-1"
COPIED = ("key", "message_id", "lease_until", "written_about", "since", "first_seen", "last_seen")


def copied(told: Any) -> Iterator[str]:
    """What a person may want to copy from an answer: keys, ids and times."""
    for name, held in told.items() if isinstance(told, dict) else enumerate(told):
        if isinstance(held, dict | list):
            yield from copied(held)
        elif name in COPIED and held:
            yield held


@pytest.fixture
def narrow(receiver: Receiver, stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Receiver:
    """A long key has failed, and died, of a long reason."""
    monkeypatch.setenv("COLUMNS", "80")
    text = "a reason of many words " * 5
    failure = Failure(type="PermanentError", text=text, permanent=True)
    stack.record(LONG, "FAILED", "long", error=failure.to_json(), attempts=3)
    stack.bury(LONG, "long", reason=text, error_type="PermanentError")
    return receiver


@pytest.mark.parametrize(
    "line",
    [f"trace {LONG}", "stuck --yes", "dlq list --group PermanentError", f"dlq list --key {LONG}"],
)
def test_nothing_that_is_copied_is_broken_in_eighty_columns(narrow: Receiver, line: str) -> None:
    shown = narrow.on(line).out
    parts = list(copied(narrow.on(f"{line} --json").json))
    assert LONG in parts
    assert [part for part in parts if part not in shown] == []


@every_command
def test_eighty_columns_are_enough(narrow: Receiver, line: str) -> None:
    shown = narrow.on(line.replace(FLAKY, LONG) if line.startswith("trace") else line).out
    assert 0 < max(map(len, shown.splitlines())) <= 80
    if line == "dlq redrive --yes":
        assert {CONFLICT, CLOSED, LONG} <= set(shown.split()), "the keys of what stays are whole"


@pytest.mark.parametrize("line", ["stuck --yes", "dlq list --group ConnectionError@app.ledger"])
def test_the_header_stands_above_its_columns_however_long_a_key_is(receiver: Receiver, stack: Stack, line: str) -> None:
    digest = "5b5f4ee8" * 8
    stack.record(digest, "FAILED", error=TRANSIENT)
    stack.bury(digest)
    lines = receiver.on(line).out.splitlines()
    (place,) = (number for number, line in enumerate(lines) if line.startswith(digest))
    header = next(line for line in reversed(lines[:place]) if line.startswith("key "))
    starts = [found.start() for found in re.finditer(r"\S+( \S+)*", header)]
    rows = [line for line in lines[place - 4 : place + 4] if line.startswith((digest, FLAKY))]
    assert len(rows) == 2
    for row in rows:
        assert [found.start() for found in re.finditer(r"\S+", row)] == starts[: len(row.split())]
