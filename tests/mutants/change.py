"""The ways in which a planted bug may change a function's syntax tree.

Each takes a pattern (see pattern.py) for what is to be changed, which must be there exactly once, or at least `nth`
times. Anything else raises NotThere: the code has moved on, and the catalogue must follow.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import TypeVar

from tests.mutants.pattern import expression, pattern, statements
from tests.mutants.tree import (
    arguments_named,
    blocks_with,
    cases_with,
    conditions_with,
    leave_out_of,
    matching,
    members_with,
    statements_with,
)

Change = Callable[[ast.AST], None]
"""Changes a tree in place. Raises NotThere."""

One = TypeVar("One")


class NotThere(Exception):
    """What a change looks for is not there, or not as often as it should be."""


def always(condition: str, *, nth: int | None = None) -> Change:
    """The condition (of an `if`, `while` or `case`) that mentions this is true whatever happens."""
    return _condition(condition, nth, held=True)


def never(condition: str, *, nth: int | None = None) -> Change:
    """The condition that mentions this is false whatever happens."""
    return _condition(condition, nth, held=False)


def replace(old: str, new: str, *, nth: int | None = None) -> Change:
    """One expression becomes another."""

    def change(tree: ast.AST) -> None:
        slot, found = _only(matching(tree, pattern(old)), old, nth)
        slot.put(expression(new, found))

    return change


def leave_out(part: str, *, nth: int | None = None) -> Change:
    """An argument, operand, entry or element is gone: the smallest that mentions this."""

    def change(tree: ast.AST) -> None:
        leave_out_of(tree, _only(members_with(tree, pattern(part)), part, nth))

    return change


def argument(name: str, value: str, *, nth: int | None = None) -> Change:
    """What is given under this name, to a call or in a dict, is another value."""

    def change(tree: ast.AST) -> None:
        slot = _only(list(arguments_named(tree, name)), f"{name}=", nth)
        slot.put(expression(value, {"0": slot.node}))

    return change


def returns(value: str, *, nth: int | None = None) -> Change:
    """The function's one `return` returns this."""
    return instead_of("return $X", f"return {value}", nth=nth)


def becomes(value: str) -> Change:
    """The constant has this value."""

    def change(tree: ast.AST) -> None:
        if not isinstance(tree, ast.Assign | ast.AnnAssign) or tree.value is None:
            raise NotThere("this is no constant")
        tree.value = expression(value, {"0": tree.value})

    return change


def drop(statement: str, *, nth: int | None = None) -> Change:
    """The statement that mentions this is gone."""
    return instead_of(statement, "pass", nth=nth)


def instead_of(statement: str, new: str, *, nth: int | None = None) -> Change:
    """Other statements stand where the one that mentions this was; of an `if`, `with` or loop, its head does so."""

    def change(tree: ast.AST) -> None:
        slot, found = _only(statements_with(tree, pattern(statement)), statement, nth)
        slot.put(*statements(new, found))

    return change


def before(statement: str, new: str, *, nth: int | None = None) -> Change:
    """Something happens before the statement that mentions this."""

    def change(tree: ast.AST) -> None:
        slot, found = _only(statements_with(tree, pattern(statement)), statement, nth)
        slot.put(*statements(new, found), slot.node)

    return change


def postpone(statement: str, *, nth: int | None = None) -> Change:
    """The statement that mentions this, and the one after it, change places."""

    def change(tree: ast.AST) -> None:
        slot, _ = _only(statements_with(tree, pattern(statement)), statement, nth)
        assert slot.index is not None, "statements stand in lists"
        block = getattr(slot.parent, slot.field)
        if slot.index + 1 == len(block):
            raise NotThere(f"no statement follows the one that mentions {statement}")
        block[slot.index : slot.index + 2] = reversed(block[slot.index : slot.index + 2])

    return change


def without_case(case: str) -> Change:
    """The `case` that mentions this is gone: what it took goes on to the next ones."""

    def change(tree: ast.AST) -> None:
        _only(cases_with(tree, pattern(case)), f"case {case}").put()

    return change


def redirect(case: str, *, to: str) -> Change:
    """The `case` that mentions this does what another does."""

    def change(tree: ast.AST) -> None:
        source, target = (_only(cases_with(tree, pattern(each)), f"case {each}").node for each in (to, case))
        target.body = source.body

    return change


def inside(head: str, change: Change, *, nth: int | None = None) -> Change:
    """A change within one block: a case, an `except`, an `if`, `with` or loop whose head mentions this."""

    def change_block(tree: ast.AST) -> None:
        block = _only(blocks_with(tree, pattern(head)), f"a block with {head}", nth)
        change(ast.Module(body=block.body, type_ignores=[]))

    return change_block


def both(first: Change, second: Change) -> Change:
    """Two changes at one address, such as that of a class: what is missing in one place happens in another."""

    def change(tree: ast.AST) -> None:
        first(tree)
        second(tree)

    return change


def _condition(text: str, nth: int | None, *, held: bool) -> Change:
    def change(tree: ast.AST) -> None:
        slot = _only(conditions_with(tree, pattern(text)), f"a condition with {text}", nth)
        if isinstance(slot.node, ast.UnaryOp) and pattern(text).match(slot.node.operand) is not None:
            raise NotThere(f"the condition is not {text} but its negation")
        slot.put(ast.Constant(held))

    return change


def _only(found: Sequence[One], what: str, nth: int | None = None) -> One:
    if nth is None and len(found) != 1:
        raise NotThere(f"{what} is there {len(found)} times, not once")
    if nth is not None and len(found) < nth:
        raise NotThere(f"{what} is there {len(found)} times, not {nth} or more")
    return found[0 if nth is None else nth - 1]
