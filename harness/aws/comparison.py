"""The report of a trial on AWS: the results, and how they differ from the local cloud."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from harness.aws.results import Results


def page(aws: Results, local: Results, about: Mapping[str, str]) -> str:
    """The report in Markdown. It contains no account number."""
    checks = {
        name: (aws.checks.get(name, "not run"), local.checks.get(name, "not run")) for name in aws.checks | local.checks
    }
    differing = {name: pair for name, pair in checks.items() if pair[0] != pair[1]}
    figures = {
        name: (f"{aws.figures.get(name, '')}", f"{local.figures.get(name, '')}") for name in aws.figures | local.figures
    }
    passed = sum(verdict == "passed" for verdict in aws.checks.values())
    return "\n".join(
        [
            "# The promises on AWS",
            "",
            *(f"- {name}: {value}" for name, value in about.items()),
            f"- {passed} of {len(aws.checks)} checks passed on AWS, {len(aws.failures)} failed",
            "",
            "## What failed on AWS",
            "",
            *_lines(f"{name}: {verdict}" for name, verdict in aws.failures.items()),
            "",
            "## What differed from the local cloud",
            "",
            *_table("check", differing),
            "",
            "## Figures",
            "",
            "Each ran its own workload, so only zeros must agree.",
            "",
            *_table("figure", figures),
            "",
        ]
    )


def _lines(texts: Iterable[str]) -> list[str]:
    return [f"- {_told(text)}" for text in texts] or ["nothing"]


def _table(what: str, rows: Mapping[str, tuple[str, str]]) -> list[str]:
    if not rows:
        return ["nothing"]
    lines = (" | ".join(map(_told, (name, *pair))) for name, pair in rows.items())
    return [f"| {what} | AWS | local cloud |", "|---|---|---|", *(f"| {line} |" for line in lines)]


def _told(text: str) -> str:
    """Text reduced to one line in one table cell, because errors contain foreign text."""
    return " ".join(text.split()).replace("|", "\\|")
