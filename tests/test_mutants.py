"""Every planted bug fits the code; `make mutants` plants them all."""

from __future__ import annotations

import ast
import contextlib
import os
import random
import re
from functools import cache

import pytest

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import LIBRARY, ROOT, Mutant

BUILT_IN = {name for each in (str, bytes, dict, list, set, type, contextlib, os, random) for name in dir(each)}


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
