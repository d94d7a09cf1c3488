"""The 72 scenarios are all tests, and each names the planted bug that makes it fail; see `make mutants`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.mutants.catalogue import MUTANTS
from tests.mutants.scenarios import NUMBERS, scenario_marks, scenario_tests

if TYPE_CHECKING:
    from tests.mutants.scenarios import ScenarioMark


@pytest.fixture(scope="module")
def marks() -> list[ScenarioMark]:
    return scenario_marks()


def test_every_scenario_is_a_test_and_no_other_number_is_one(marks: list[ScenarioMark]) -> None:
    assert sorted({each.scenario for each in marks}) == NUMBERS


def test_every_scenarios_test_names_a_bug_of_the_catalogue_or_says_why_none_can_make_it_fail(
    marks: list[ScenarioMark],
) -> None:
    """One of the two, and by the bug's very name."""
    names = {mutant.name for mutant in MUTANTS}

    assert [each for each in marks if (each.mutant is None) == (each.why_none is None)] == []
    assert {each.mutant for each in marks if each.mutant is not None} - names == set()


def test_every_bug_has_a_test_that_should_fail(marks: list[ScenarioMark]) -> None:
    assert [mutant.name for mutant in MUTANTS if not mutant.where and not scenario_tests(mutant.name, marks)] == []
