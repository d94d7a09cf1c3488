"""The changes that planted bugs are made of: each does what its name says, or says what it did not find."""

from __future__ import annotations

import ast

import pytest

from tests.mutants.address import definition
from tests.mutants.change import (
    Change,
    NotThere,
    always,
    argument,
    becomes,
    before,
    both,
    drop,
    inside,
    instead_of,
    leave_out,
    never,
    postpone,
    redirect,
    replace,
    returns,
    without_case,
)
from tests.mutants.pattern import pattern
from tests.mutants.rewriting import rewritten, without

MATCH = "match x:\n case A(): f()\n case B() if y: g()"


def same(text: str) -> str:
    return ast.unparse(ast.parse(text))


def changed(source: str, change: Change) -> str:
    tree = ast.parse(source)
    change(tree)
    return ast.unparse(tree)


@pytest.mark.parametrize(
    ("source", "change", "expected"),
    [
        ("if a.done: f()\nif b: g()", always(".done"), "if True: f()\nif b: g()"),
        ("while f(a): pass", never("f"), "while False: pass"),
        ("x = a if b else c", always("b"), "x = a if True else c"),
        ("x = [a for a in b if a.c]", never("$A.c"), "x = [a for a in b if False]"),
        (MATCH, always("y"), "match x:\n case A(): f()\n case B() if True: g()"),
        ("if a: f()\nelif a and b: g()", never("a", nth=2), "if a: f()\nelif False: g()"),
        ("x = f(a, b=1)", replace("f($A, ...)", "g($A)"), "x = g(a)"),
        ("x = f(a)", replace("f($A)", "$0 + $A"), "x = f(a) + a"),
        ("x = a + 1 + True", replace("1", "2"), "x = a + 2 + True"),
        ("try: f()\nexcept E: g()", replace("E", "D"), "try: f()\nexcept D: g()"),
        ("f(a, b(c))", leave_out("c"), "f(a, b())"),
        ("f(a, b=c)", leave_out("c"), "f(a)"),
        ("x = a and not b", leave_out("not b"), "x = a"),
        ("x = a or f(b.c.d)", leave_out("$B.c.d"), "x = a or f()"),
        ("x = a.b + c", leave_out(".b"), "x = c"),
        ("x = {a: 1, b: 2}", leave_out("b"), "x = {a: 1}"),
        ("x = f'{a}-{b}'", leave_out("a"), "x = f'-{b}'"),
        ("f(a=1)", argument("a", "2"), "f(a=2)"),
        ("f({'a': b})", argument("a", "[$0]"), "f({'a': [b]})"),
        ("return f(a)", returns("a"), "return a"),
        ("if a:\n f()\ng()", drop("f"), "if a:\n pass\ng()"),
        ("if f(a): h()\ng()", drop("f"), "pass\ng()"),
        ("x = f(a)", instead_of("f($A)", "g($A); h()"), "g(a)\nh()"),
        ("if a: f(b)", instead_of("if $X: f($Y)", "f($Y)"), "f(b)"),
        ("with f(a): g()", before("f($A)", "h($A)"), "h(a)\nwith f(a): g()"),
        ("f()\ng()\nh()", postpone("f"), "g()\nf()\nh()"),
        (MATCH, without_case("A"), "match x:\n case B() if y: g()"),
        (MATCH, redirect("B", to="A"), "match x:\n case A(): f()\n case B() if y: f()"),
        (MATCH, inside("B", replace("g", "f")), "match x:\n case A(): f()\n case B() if y: f()"),
        ("try: f()\nexcept E: f()", inside("E", replace("f", "g")), "try: f()\nexcept E: g()"),
        ("f(a)\ng(a)", both(replace("f", "h"), drop("g")), "h(a)\npass"),
        ("if a: f()\nelse: f()", inside("a", drop("f")), "if a: pass\nelse: f()"),
    ],
)
def test_a_change_does_what_its_name_says(source: str, change: Change, expected: str) -> None:
    assert changed(source, change) == same(expected)


def test_a_constant_becomes_another() -> None:
    """With a type or without."""
    for source in ("MOST = 2 * LEAST", "MOST: int = 2 * LEAST"):
        tree = ast.parse(source)

        becomes("5")(definition(tree, "MOST"))

        assert ast.unparse(tree) == source.replace("2 * LEAST", "5")


@pytest.mark.parametrize(
    ("source", "change", "why"),
    [
        ("x = 1", never("a"), "a condition with a is there 0 times, not once"),
        ("if a: f()\nif a: g()", always("a"), "a condition with a is there 2 times, not once"),
        ("if a: f()\nif a: g()", always("a", nth=3), "a condition with a is there 2 times, not 3 or more"),
        ("if not a.b: f()", never(".b"), "the condition is not .b but its negation"),
        ("f(a); f(b)", replace("f($A)", "$A"), "f($A) is there 2 times, not once"),
        ("f(a)\nf(a)", drop("f"), "f is there 2 times, not once"),
        ("x = a", leave_out("a"), "a is there 0 times, not once"),
        ("f(b=1)", argument("a", "2"), "a= is there 0 times, not once"),
        (MATCH, without_case("C"), "case C is there 0 times, not once"),
        (MATCH, redirect("B", to="C"), "case C is there 0 times, not once"),
        (MATCH, inside("C", drop("f")), "a block with C is there 0 times, not once"),
        (MATCH, inside("A", drop("g")), "g is there 0 times, not once"),
        ("f()", postpone("f"), "no statement follows the one that mentions f"),
        ("f()", becomes("1"), "this is no constant"),
    ],
)
def test_what_is_not_there_once_or_not_often_enough_is_an_error_that_says_what_was_looked_for(
    source: str, change: Change, why: str
) -> None:
    with pytest.raises(NotThere) as error:
        changed(source, change)

    assert str(error.value) == why


@pytest.mark.parametrize(
    ("shape", "matching", "other"),
    [
        ("$A < $B", ["a < b", "f(1) < 2"], ["a <= b", "a < b < c"]),
        ("$A + $A", ["a + a", "f(x) + f(x)"], ["a + b"]),
        (".name", ["a.name", "a.b.name"], ["name", "a.names"]),
        ("name", ["name"], ["a.name", "'name'"]),
        ("f(...)", ["f()", "f(a, b=c)"], ["f", "g()", "a.f()"]),
        ("f($A, ..., b=$B)", ["f(1, 2, b=3)", "f(1, c=4, b=3)"], ["f(b=3)", "f(1, c=3)"]),
        ("f(a)", ["f(a)"], ["f(a, b)", "f()", "f(a, b=c)"]),
        ("f'{$A}-'", ["f'{a}-'"], ["f'{a}'", "'a-'"]),
        ("1", ["1"], ["True", "1.0", "'1'"]),
    ],
)
def test_a_pattern_matches_by_shape(shape: str, matching: list[str], other: list[str]) -> None:
    def matches(text: str) -> bool:
        return pattern(shape).match(ast.parse(text, mode="eval").body) is not None

    assert [text for text in matching if not matches(text)] == []
    assert [text for text in other if matches(text)] == []


def test_an_address_finds_methods_and_functions_in_functions() -> None:
    """Wherever a block defines them."""
    tree = ast.parse("class A:\n def f(self):\n  if x:\n   def g(): return 1\n  return g\ndef g(): return 2")

    assert ast.unparse(definition(tree, "A.f.g")) == same("def g(): return 1")
    assert ast.unparse(definition(tree, "g")) == same("def g(): return 2")


@pytest.mark.parametrize("name", ["B.f", "A.g", "A.f.f"])
def test_an_address_that_finds_nothing_or_several_is_an_error(name: str) -> None:
    with pytest.raises(NotThere, match="times, not once"):
        definition(ast.parse("class A:\n def f(self): pass\n def g(self): pass\n def g(self): pass"), name)


def test_rewritten_source_has_other_variables_and_docstrings_and_the_same_parameters_and_globals() -> None:
    """Or nothing would be shown by the planted bugs that do not notice."""
    source = "X = 1\ndef f(a):\n '''Text.'''\n b = X + a  # a comment\n match b:\n  case C(d): return d.b + b"
    expected = (
        "X = 1\ndef f(a):\n 'Another text.'\n b_renamed = X + a\n"
        " match b_renamed:\n  case C(d_renamed): return d_renamed.b + b_renamed"
    )

    assert rewritten(source) == same(expected)
    assert rewritten(rewritten(source)) == rewritten(source)
    assert without(source, "f") == same("X = 1\npass")
