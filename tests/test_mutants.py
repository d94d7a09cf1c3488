"""Every planted bug fits the code; `make mutants` plants them all."""

from __future__ import annotations

import ast
import contextlib
import os
import random
import re
from functools import cache

import pytest
from greenlet import greenlet
from mutmut.state import state

from idempotent_receiver.protocol.record import Record
from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import LIBRARY, ROOT, DoesNotApply, Mutant
from tests.mutants.swapping import observed, swap_of

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


EXPIRED = Mutant("nothing expires", "protocol.record:Record.expired", [("self.expiration * 1000 <= now_ms", "False")])
RECORD = Record("k", "COMPLETED", expiration=1)


def test_a_bug_is_planted_in_an_imported_function_and_taken_out_again() -> None:
    swap = swap_of(EXPIRED)
    assert swap.changed == {"protocol.record:Record.expired"}

    swap.do()
    planted = RECORD.expired(2000)
    swap.undo()

    assert (planted, RECORD.expired(2000)) == (False, True)


def test_a_bug_outside_of_a_functions_body_is_not_planted_there() -> None:
    with pytest.raises(DoesNotApply, match="no function's body changes"):
        swap_of(Mutant("no unknown status", "protocol.record:Record.unreadable", [("None = None", "None = ''")]))


def test_a_function_tells_that_it_is_called_within_a_greenlet_too() -> None:
    (swap,) = observed({"protocol.record:Record.expired"})
    swap.do()
    greenlet(RECORD.expired).switch(2000)
    swap.undo()
    RECORD.differs(None)

    assert state()._stats == {"protocol.record:Record.expired"}
    state()._stats.clear()
