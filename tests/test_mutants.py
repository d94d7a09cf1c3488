"""The catalogue of planted bugs fits the code, and planting works; `make mutants` plants them all."""

from __future__ import annotations

import pytest

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Mutant
from tests.mutants.planting import LIBRARY, ROOT, Gone, Killed, Survived, judge, mutated

SHORT = [
    "acknowledged although it could not be recorded",
    "a settlement names no version",
    "an orphan waits for its record's expiration",
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_planted_bug_still_fits_the_code(mutant: Mutant) -> None:
    """Its text is there once, what it becomes is Python, and its tests are there."""
    source = (ROOT / LIBRARY / mutant.file).read_text(encoding="utf-8")

    compile(mutated(mutant, source), mutant.file, "exec")

    assert all((ROOT / where).is_file() for where in mutant.where)


def test_each_promise_has_bugs_that_would_break_it_and_names_are_names() -> None:
    """From one to six."""
    assert {mutant.promise for mutant in MUTANTS} == {0, 1, 2, 3, 4, 5, 6}
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("name", SHORT)
def test_a_planted_bug_turns_a_test_red_by_what_it_asserts(name: str) -> None:
    """Three of them, as a sample."""
    (mutant,) = [mutant for mutant in MUTANTS if mutant.name == name]

    assert isinstance(judge(mutant), Killed)


def test_a_bug_that_is_none_survives_and_one_that_only_breaks_the_code_does_too() -> None:
    """An error of another kind than an assertion is no verdict."""
    where = ("tests/unit/test_clock.py",)
    harmless = Mutant(name="harmless", file="clock.py", old="The one door", new="The only door", where=where)
    old = "return self.budget_seconds - "
    breaking = Mutant(name="breaking", file="clock.py", old=old, new="return self.budget - ", where=where)

    assert isinstance(judge(harmless), Survived)
    assert isinstance(judge(breaking), Survived)


def test_a_bug_for_which_no_test_is_named_survives() -> None:
    assert isinstance(
        judge(Mutant(name="nobody's", file="clock.py", old="The one door", new="A door", where=())), Survived
    )


def test_a_scenarios_test_that_does_not_see_the_bug_that_it_names_is_told() -> None:
    """Each of them must: one that sees it does not speak for the others."""
    seeing = "tests/unit/test_clock.py::test_versions_differ_even_between_twins_that_share_their_generators_state"
    blind = "tests/unit/test_clock.py::test_a_deadline_that_is_over_has_less_than_nothing_left"
    (mutant,) = [mutant for mutant in MUTANTS if mutant.name == "a version is drawn at import"]

    verdict = judge(mutant, [seeing, blind])

    assert isinstance(judge(mutant, [seeing]), Killed)
    assert isinstance(verdict, Survived)
    assert blind in verdict.why
    assert seeing not in verdict.why


def test_a_text_that_is_gone_is_an_error() -> None:
    """As is one that is there twice."""
    for text in ("nowhere to be found", "self"):
        with pytest.raises(Gone, match="not once"):
            mutated(Mutant(name="m", file="work.py", old=text, new=""), "self, self")
