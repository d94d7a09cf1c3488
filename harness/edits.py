"""Applies documented template edits to a template's text, so that tests and deployments can try them.

An edit is a diff in a page, without line numbers. A line of `...` stands for everything up to the next blank line.
"""

from __future__ import annotations

import re

from harness.cloud import ROOT

PAGES = ("deploying.md", "component.md")
REST = "..."


class EditError(Exception):
    """The edit does not fit the template."""


def edits() -> dict[str, list[str]]:
    """The diffs under each heading of all pages."""
    found: dict[str, list[str]] = {}
    for page in PAGES:
        heading = ""
        text = (ROOT / "docs" / page).read_text()
        for part in re.finditer(r"(?ms)^#+ (?P<heading>.+?)$|^```diff\n(?P<diff>.*?)^```$", text):
            if part["heading"]:
                heading = part["heading"]
            else:
                found.setdefault(heading, []).append(part["diff"])
    return found


def edited(template: str, *headings: str) -> str:
    """The template with the edits under these headings, in order. Raises EditError if one does not fit."""
    for heading in headings:
        for diff in edits()[heading]:
            template = applied(template, diff)
    return template


def applied(template: str, diff: str) -> str:
    """The template with one diff. Blank lines separate hunks; each hunk must fit exactly one place."""
    lines = template.split("\n")
    for hunk in re.split(r"\n(?:\s*\n)+", diff.strip("\n")):
        asked = hunk.split("\n")
        found = [made for at in range(len(lines)) if (made := _at(lines, at, asked)) is not None]
        if len(found) != 1:
            raise EditError(f"an edit fits {len(found)} places, not one:\n{hunk}")
        (lines,) = found
    return "\n".join(lines)


def _at(lines: list[str], at: int, hunk: list[str]) -> list[str] | None:
    """The lines with the hunk applied here; None if it does not fit. A trailing comment may be left out."""
    made = lines[:at]
    for change, wanted in ((line[:1], line[1:]) for line in hunk):
        if change == "+":
            made.append(wanted)
            continue
        if wanted.strip() == REST:
            after = next((place for place in range(at, len(lines)) if not lines[place].strip()), len(lines)) + 1
        elif at < len(lines) and re.fullmatch(rf"{re.escape(wanted)}( #.*)?", lines[at]):
            after = at + 1
        else:
            return None
        made += [] if change == "-" else lines[at:after]
        at = after
    return made + lines[at:]


def with_values(template: str, **values: object) -> str:
    """The template with new values for properties that occur exactly once: Timeout=10."""
    for name, value in values.items():
        template, found = re.subn(rf"(?m)^( +{name}:) [^\s#]+", rf"\1 {value}", template)
        if found != 1:
            raise EditError(f"the template has {found} properties {name}, not one")
    return template
