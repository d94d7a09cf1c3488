"""Every page stays as short as CONTRIBUTING.md, "Pages", says."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
IN_ALL = 40_000
ROW = re.compile(r"(?m)^([\w./-]+\.md) +([\d,]+)$")


def bounds(contributing: str) -> dict[str, int]:
    """The most words that each page may have."""
    section = contributing.partition("\n## Pages\n")[2].partition("\n## ")[0]
    return {page: int(most.replace(",", "")) for page, most in ROW.findall(section)}


BOUNDS = bounds((ROOT / "CONTRIBUTING.md").read_text())


def words(page: str) -> int:
    return len((ROOT / page).read_text().split())


@pytest.mark.parametrize("page", BOUNDS)
def test_a_page_has_no_more_words_than_its_bound(page: str) -> None:
    assert words(page) <= BOUNDS[page]


def test_every_page_but_the_changelog_has_a_bound() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("events/*.md"), *ROOT.glob("docs/*.md")]
    assert {str(page.relative_to(ROOT)) for page in pages} - {"CHANGELOG.md"} == BOUNDS.keys()


def test_all_pages_together_have_few_words() -> None:
    assert sum(map(words, BOUNDS)) <= IN_ALL


def test_the_sites_contents_fit_a_screen() -> None:
    nav = tomllib.loads((ROOT / "docs/zensical.toml").read_text())["project"]["nav"]
    groups = [pages for entry in nav for pages in entry.values()]
    assert sum(1 if isinstance(pages, str) else len(pages) for pages in groups) <= 24


def test_every_page_is_in_the_sites_contents_or_linked_from_its_start() -> None:
    """`events/README.md` is beside the events, and no page of the site."""
    reached = {"README.md", "events/README.md", *re.findall(r"\]\(([\w./-]+\.md)", (ROOT / "README.md").read_text())}
    nav = (ROOT / "docs/zensical.toml").read_text()
    assert {page for page in BOUNDS.keys() - reached if f'= "{page.removeprefix("docs/")}"' not in nav} == set()


@pytest.mark.parametrize("page", BOUNDS)
def test_the_rows_of_a_table_are_whole_and_stand_together(page: str) -> None:
    """A row that is broken, or stands apart from its heading, is shown as text."""
    prose = re.sub(r"(?ms)^```.*?^```$", "", (ROOT / page).read_text())
    assert re.findall(r"(?m)^\|.*[^|\n]$", prose) == []
    tables = re.findall(r"(?m)(?:^\|.*\n)+", prose)
    assert [table for table in tables if not re.match(r"\|.*\n\|[ :|-]+\|\n", table)] == []
