"""Every command has help, examples that run, and an answer for people and for scripts."""

from __future__ import annotations

import re
import shlex
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver.errors import Failure
from idempotent_receiver.operations.cli import terminal
from tests.unit.operations.cli.stack import (
    ARGUMENTS,
    CLOSED,
    COMMANDS,
    CONFLICT,
    FLAKY,
    GROUPS,
    Receiver,
    Stack,
    examples,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.mark.parametrize("command", GROUPS, ids=" ".join)
def test_no_commands_summary_is_cut_off_in_eighty_columns(
    receiver: Receiver, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    summaries = receiver(*command, "--help").out.partition("Commands:\n")[2].partition("\n\n")[0]
    assert summaries
    assert "..." not in summaries
    assert all(line.endswith(".") for line in summaries.splitlines()), "each is a sentence, in one line"


def test_it_tells_its_version(receiver: Receiver) -> None:
    ran = receiver("--version")
    assert (ran.code, ran.out, ran.err) == (0, f"receiver {version('idempotent-receiver')}\n", "")


def test_without_an_address_its_help_names_no_documentation(receiver: Receiver) -> None:
    """A checkout has the pages beside it."""
    assert "Documentation:" not in receiver("--help").out


@pytest.mark.parametrize("command", [*GROUPS, *COMMANDS], ids=" ".join)
def test_every_command_has_help(receiver: Receiver, command: tuple[str, ...]) -> None:
    ran = receiver(*command, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert "Usage: receiver" in ran.out


def test_the_exit_codes_are_documented(receiver: Receiver) -> None:
    said = re.search(r"Exit codes:.*?stopped\.", receiver("--help").out, re.DOTALL)
    assert said is not None
    assert [int(number) for number in re.findall(r"\b\d+\b", said[0])] == [each.value for each in terminal.Exit]


@pytest.mark.parametrize("command", [*GROUPS, *COMMANDS], ids=" ".join)
def test_every_example_in_the_help_runs(receiver: Receiver, command: tuple[str, ...]) -> None:
    lines = examples(receiver(*command, "--help").out)
    assert lines
    for line in lines:
        ran = receiver(*shlex.split(line)[1:])
        assert ran.code in (terminal.Exit.OK, terminal.Exit.LEFT), ran.err
        assert ran.out


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_answers_scripts_with_one_json_document(receiver: Receiver, command: tuple[str, ...]) -> None:
    argument = ARGUMENTS.get(command[-1], ["--yes"])
    assert isinstance(receiver(*command, *argument, "--stack", "transfers", "--json").json, dict)


LONG = "arn%3Aaws%3Aiam%3A%3A123456789012%3Auser%2Fclient-with-a-name/order-1"


def copied(told: Any) -> Iterator[str]:
    """What a person may want to copy from an answer: keys, ids and times."""
    for name, held in told.items() if isinstance(told, dict) else enumerate(told):
        if isinstance(held, dict | list):
            yield from copied(held)
        elif name in ("key", "message_id", "lease_until", "written_about", "since", "first_seen", "last_seen") and held:
            yield held


@pytest.fixture
def narrow(receiver: Receiver, stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Receiver:
    """In a terminal of eighty columns; a long key has failed, and died, of a long reason."""
    monkeypatch.setenv("COLUMNS", "80")
    text = "a reason of many words " * 5
    failure = Failure(type="PermanentError", text=text, permanent=True)
    stack.record(LONG, "FAILED", "long", error=failure.to_json(), attempts=3)
    stack.bury(LONG, "long", reason=text, error_type="PermanentError")
    return receiver


@pytest.mark.parametrize(
    "command",
    [
        ("show", LONG),
        ("trace", LONG),
        ("stuck", "--yes"),
        ("dlq", "list", "--group", "PermanentError"),
        ("dlq", "list", "--key", LONG),
    ],
    ids=" ".join,
)
def test_nothing_that_is_copied_is_broken_in_eighty_columns(narrow: Receiver, command: tuple[str, ...]) -> None:
    shown = narrow(*command, "--stack", "transfers").out
    parts = list(copied(narrow(*command, "--stack", "transfers", "--json").json))
    assert LONG in parts
    assert [part for part in parts if part not in shown] == []
    assert max(len(line) for line in shown.splitlines()) <= 80


@pytest.mark.parametrize("command", [*GROUPS, *COMMANDS], ids=" ".join)
def test_eighty_columns_are_enough_for_every_command_and_its_help(narrow: Receiver, command: tuple[str, ...]) -> None:
    argument = {**ARGUMENTS, "show": [LONG], "trace": [LONG]}.get(command[-1] if command else "", ["--yes"])
    asked = [] if command in GROUPS else [narrow(*command, *argument, "--stack", "transfers").out]
    for shown in [narrow(*command, "--help").out, *asked]:
        assert shown
        assert max(map(len, shown.splitlines())) <= 80


def test_the_keys_of_what_stays_are_not_broken_either(narrow: Receiver) -> None:
    shown = narrow("dlq", "redrive", "--yes", "--stack", "transfers").out
    assert {CONFLICT, CLOSED, LONG} <= set(shown.split())
    assert max(len(line) for line in shown.splitlines()) <= 80


@pytest.mark.parametrize(
    "command", [("stuck", "--yes"), ("dlq", "list", "--group", "ConnectionError@app.ledger")], ids=" ".join
)
def test_the_header_stands_above_its_columns_however_long_a_key_is(
    receiver: Receiver, stack: Stack, command: tuple[str, ...]
) -> None:
    digest = "5b5f4ee8" * 8
    stack.record(digest, "FAILED", "b", error=Failure(type="ConnectionError", at="app.ledger:7").to_json())
    stack.bury(digest, "b")
    lines = receiver(*command, "--stack", "transfers").out.splitlines()
    (place,) = (number for number, line in enumerate(lines) if line.startswith(digest))
    header = next(line for line in reversed(lines[:place]) if line.startswith("key "))
    starts = [found.start() for found in re.finditer(r"\S+( \S+)*", header)]
    rows = [line for line in lines[place - 4 : place + 4] if line.startswith((digest, FLAKY))]
    assert len(rows) == 2
    for line in rows:
        assert [found.start() for found in re.finditer(r"\S+", line)] == starts[: len(line.split())]
