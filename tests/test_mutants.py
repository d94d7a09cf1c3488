"""Every planted bug fits the code, and planting works; `make mutants` plants them all."""

from __future__ import annotations

import ast
import contextlib
import os
import random
import re
from functools import cache

import pytest

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import LIBRARY, ROOT, DoesNotApply, Mutant

BUILT_IN = {name for each in (str, bytes, dict, list, set, type, contextlib, os, random) for name in dir(each)}
LEFT = "clock:Deadline.left_seconds"


@cache
def words_of_the_library() -> frozenset[str]:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / LIBRARY).rglob("*.py")]
    return frozenset(word for text in texts for word in re.findall(r"\w+", text))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_planted_bug_fits_the_code(mutant: Mutant) -> None:
    tree = ast.parse(mutant.planted((ROOT / mutant.file).read_text(encoding="utf-8")))

    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert attributes - words_of_the_library() - BUILT_IN == set()
    assert [where for where in mutant.where if not (ROOT / where).is_file()] == []


def test_each_promise_has_bugs_that_would_break_it_and_names_are_unique() -> None:
    assert {mutant.promise for mutant in MUTANTS} == {0, 1, 2, 3, 4, 5, 6}
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize(
    ("edits", "before", "after"),
    [
        ([("a + b", "a")], "x = (a\n + b)", "x = (a)"),
        ([("x =", "y = 1\nx =")], "x = a", "y = 1\n        x = a"),
        ([("if …: f()", "f()"), ("g()", None)], "if a or b: f(); g()", "f(); "),
    ],
)
def test_an_edit_ignores_layout_and_keeps_the_indentation(
    edits: list[tuple[str, str | None]], before: str, after: str
) -> None:
    """One after another, and nowhere but in the definition that is named."""
    source = "def m(a):\n    {0}\n\n\nclass C:\n    def m(a):\n        {1}\n"

    assert Mutant("a bug", "clock:C.m", edits).planted(source.format(before, before)) == source.format(before, after)


@pytest.mark.parametrize(
    ("at", "edit", "why"),
    [
        ("nowhere:f", ("x", None), "there is no such module"),
        ("clock:Deadline.never", ("x", None), "it is defined 0 times, not once"),
        (LEFT, ("no such text", None), "'no such text' is there 0 times, not once"),
        (LEFT, ("self", None), "'self' is there"),
        (LEFT, ("return", "("), "'(' was never closed"),
        (LEFT, ("return", "return  "), "nothing changes"),
        (LEFT, ("return", "return gone +"), "nothing is called gone"),
    ],
)
def test_a_planted_bug_that_does_not_fit_names_itself_its_address_and_what_it_looked_for(
    at: str, edit: tuple[str, str | None], why: str
) -> None:
    mutant = Mutant("a bug", at, [edit])

    with pytest.raises(DoesNotApply, match=re.escape(f"'a bug' at {at}: {why}")):
        mutant.planted((ROOT / mutant.file).read_text(encoding="utf-8"))
