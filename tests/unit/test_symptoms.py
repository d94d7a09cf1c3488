"""docs/symptoms.md has a row for each line that is logged from INFO up, each error and each metric."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from idempotent_receiver import errors, telemetry
from idempotent_receiver.handler.outcome import DeadLettered, Failed
from idempotent_receiver.instruments import OF_WORKER
from idempotent_receiver.log_lines import line_of

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/symptoms.md").read_text()
SOURCE = ROOT / "src/idempotent_receiver"
WITH_A_SCREEN = ("local", "operations", "testing")
"""They tell people what happens; they log nothing."""

LOGS = {"error", "exception", "info", "warning"}
WRITES = {"Line", "die", "last_words", "report_error", "report_message_error", "report_raised", "_try_to_write"}


def section(name: str) -> str:
    return PAGE.partition(f"\n## {name}\n")[2].partition("\n## ")[0]


def text_of(value: ast.AST, within: ast.AST) -> str | None:
    """A text, with `{` where something is filled in: the node's own, or that of a name's assignment."""
    match value:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(str(part.value) if isinstance(part, ast.Constant) else "{" for part in parts)
        case ast.Name(id=name):
            for node in ast.walk(within) if not isinstance(within, ast.Module) else ():
                if (
                    isinstance(node, ast.Assign)
                    and isinstance(node.targets[0], ast.Name)
                    and node.targets[0].id == name
                ):
                    return text_of(node.value, within)
    return None


def logged() -> Iterator[str]:
    """The text of each call that logs, without what is filled in."""
    for file in sorted(SOURCE.rglob("*.py")):
        if file.relative_to(SOURCE).parts[0] in WITH_A_SCREEN:
            continue
        for function in ast.walk(ast.parse(file.read_text())):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module):
                continue
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and (is_log(call.func) or getattr(call.func, "id", "") in WRITES):
                    if call.args and getattr(call.args[0], "id", "") == "DEBUG":
                        continue
                    texts = [text_of(each, function) for each in call.args]
                    if text := next(filter(None, texts), None):
                        yield max(re.split(r"%\w|\{", text), key=len).strip(" :")


def is_log(called: ast.AST) -> bool:
    """Whether it is a method of a log, or of our telemetry."""
    if not isinstance(called, ast.Attribute):
        return False
    return called.attr in WRITES or (
        called.attr in LOGS and ast.unparse(called.value).rpartition(".")[2] in {"log", "logger"}
    )


def lines() -> list[str]:
    """The lines that have a row, as the page writes them: with `…` for what is filled in or left out."""
    rows = re.findall(r"(?m)^\| (`.+?`+) \|", section("Log lines"))
    return [line.strip("` ") for row in rows for line in row.split("`, `")]


LOGGED = sorted(set(logged()))


def test_the_source_is_searched() -> None:
    assert {
        "failed, will be retried",
        "not run: the record could not be claimed",
        "a worker process has failed",
    } <= set(LOGGED)


@pytest.mark.parametrize("text", LOGGED)
def test_each_log_line_has_a_row(text: str) -> None:
    named = [max(line.split("…"), key=len).strip() for line in lines()]
    assert [row for row in named if row in text or text in row], named


@pytest.mark.parametrize("exhausted", [False, True])
def test_each_failure_that_is_not_retried_has_a_row(exhausted: bool) -> None:
    failure = errors.Failure(type="KeyError", permanent=not exhausted, exhausted=exhausted)
    for outcome in (Failed(failure), DeadLettered(failure)):
        assert [line for line in lines() if line_of(outcome).text.startswith(line.removesuffix(" …"))]


def test_each_error_has_a_row() -> None:
    tree = str(errors.__doc__)
    users = set(re.findall(r"(?m)^[│├└─ ]+ (\w+)", tree)) - {"IdempotencyError", "ValueError"}
    rows = re.findall(r"(?m)^\| (`.+?`) \|", section("Errors"))
    assert set(re.findall(r"`(\w+)`", " ".join(rows))) == users


def test_each_metric_has_a_row() -> None:
    rows = re.findall(r"(?m)^\| (`.+?`) \|", section("Metrics"))
    sent = {*telemetry.COUNTS, *telemetry.CALL_COUNTS, telemetry.DURATION, *telemetry.SPENT.values(), *OF_WORKER}
    assert set(re.findall(r"`(\w+)`", " ".join(rows))) == sent
