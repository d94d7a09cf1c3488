"""Every planted bug fits the code, and planting works; `make mutants` plants them all."""

from __future__ import annotations

import ast
import contextlib
import os
import random
import re
from functools import cache

import pytest

from tests.mutants.address import LIBRARY, ROOT, DoesNotApply, file_of, mutated
from tests.mutants.catalogue import MUTANTS
from tests.mutants.change import drop, never, replace, returns
from tests.mutants.mutant import Mutant
from tests.mutants.planting import Killed, Survived, run_mutant
from tests.mutants.rewriting import rewritten, without

SHORT = [
    "acknowledged although it could not be recorded",
    "a settlement names no version",
    "an orphan waits for its record's expiration",
]
BUILT_IN = {name for each in (str, bytes, dict, list, set, type, contextlib, os, random) for name in dir(each)}

every_mutant = pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)


def source_of(mutant: Mutant) -> str:
    return (ROOT / file_of(mutant)).read_text(encoding="utf-8")


@cache
def planted(mutant: Mutant) -> str:
    return mutated(mutant, source_of(mutant))


@cache
def words_of_the_library() -> frozenset[str]:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / LIBRARY).rglob("*.py")]
    return frozenset(word for text in texts for word in re.findall(r"\w+", text))


@every_mutant
def test_every_planted_bug_fits_the_code(mutant: Mutant) -> None:
    """What it changes is there, the result compiles and uses no attribute that is gone, and its tests are there."""
    tree = ast.parse(planted(mutant))

    compile(tree, mutant.at, "exec")

    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert attributes - words_of_the_library() - BUILT_IN == set()
    assert [where for where in mutant.where if not (ROOT / where).is_file()] == []


@pytest.mark.nightly
@every_mutant
def test_renamed_variables_and_other_layout_comments_and_docstrings_leave_every_planted_bug_as_it_is(
    mutant: Mutant,
) -> None:
    """The bug in the rewritten code is the rewritten bug."""
    assert rewritten(mutated(mutant, rewritten(source_of(mutant)))) == rewritten(planted(mutant))


@pytest.mark.nightly
@every_mutant
def test_a_planted_bug_whose_function_is_gone_is_an_error(mutant: Mutant) -> None:
    """It names the bug and the address."""
    source = without(source_of(mutant), mutant.at.partition(":")[2])

    with pytest.raises(DoesNotApply, match=re.escape(f"{mutant.name!r} at {mutant.at}")):
        mutated(mutant, source)


def test_each_promise_has_bugs_that_would_break_it_and_names_are_unique() -> None:
    """From one to six."""
    assert {mutant.promise for mutant in MUTANTS} == {0, 1, 2, 3, 4, 5, 6}
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.nightly
@pytest.mark.parametrize("name", SHORT)
def test_a_planted_bug_makes_an_assertion_fail(name: str) -> None:
    """Three of them, as a sample."""
    (mutant,) = [mutant for mutant in MUTANTS if mutant.name == name]

    assert isinstance(run_mutant(mutant), Killed)


@pytest.mark.nightly
def test_a_change_that_harms_nothing_survives_and_one_that_only_breaks_the_code_does_too() -> None:
    """An error of another kind than an assertion does not count."""
    where = ("tests/unit/test_clock.py",)
    harmless = Mutant("clock:Deadline.left_seconds", replace("$A - $B", "-$B + $A"), where=where)
    breaking = Mutant("clock:Deadline.left_seconds", returns("self.clock.budget"), where=where)

    assert isinstance(run_mutant(harmless), Survived)
    assert isinstance(run_mutant(breaking), Survived)


def test_a_bug_for_which_no_test_is_named_survives() -> None:
    assert isinstance(run_mutant(Mutant("clock:Deadline.left_seconds", returns("0.0"), where=())), Survived)


@pytest.mark.nightly
def test_a_scenarios_test_that_does_not_see_the_bug_that_it_names_is_reported() -> None:
    """Each of them must: one that sees it does not speak for the others."""
    seeing = "tests/unit/test_clock.py::test_versions_differ_even_between_twins_that_share_their_generators_state"
    blind = "tests/unit/test_clock.py::test_a_deadline_that_is_over_has_less_than_nothing_left"
    (mutant,) = [mutant for mutant in MUTANTS if mutant.name == "a version is drawn at import"]

    result = run_mutant(mutant, [seeing, blind])

    assert isinstance(run_mutant(mutant, [seeing]), Killed)
    assert isinstance(result, Survived)
    assert blind in result.why
    assert seeing not in result.why


@pytest.mark.parametrize(
    ("mutant", "why"),
    [
        (Mutant("nowhere:f", drop("x"), name="a bug"), "'a bug': there is no module 'nowhere'"),
        (Mutant("clock:Deadline.never", drop("x"), name="a bug"), "'a bug' at clock:Deadline.never: never is defined"),
        (Mutant("clock:Deadline", never("'none'"), name="a bug"), "a condition with 'none' is there 0 times, not once"),
    ],
)
def test_a_planted_bug_that_no_longer_fits_names_itself_its_address_and_what_it_looked_for(
    mutant: Mutant, why: str
) -> None:
    with pytest.raises(DoesNotApply, match=re.escape(why)):
        mutated(mutant, source_of(mutant))
