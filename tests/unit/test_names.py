"""One name a thing: a public name that several modules define has a reason, and no more become so."""

from __future__ import annotations

import ast

from tests.names import EXCUSES, MOST_REPEATED, defined, repeated


def test_a_public_name_that_several_modules_define_has_its_reason() -> None:
    assert repeated().keys() - EXCUSES.keys() == set()


def test_no_more_names_are_repeated_than_the_bound() -> None:
    assert len(repeated()) <= MOST_REPEATED


def test_what_a_module_defines_is_its_own_public_classes_functions_and_constants() -> None:
    text = """
from elsewhere import Imported
A: int = 1
B = C = 2
_D = 3
class E:
    F = 4
def g(): ...
async def h(): ...
"""
    assert defined(ast.parse(text)) == {"A", "B", "C", "E", "g", "h"}
