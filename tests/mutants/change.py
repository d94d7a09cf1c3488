"""The ways in which a planted bug may change a function's syntax tree.

Each takes a pattern (see pattern.py) for what is to be changed, which must be there exactly once, or at least `nth`
times. Anything else raises NotThere: the code has moved on, and the catalogue must follow.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tests.mutants.pattern import Found, Pattern, expression, pattern, statements

Change = Callable[[ast.AST], None]
"""Changes a tree in place. Raises NotThere."""

One = TypeVar("One")

_CONDITIONS = {
    (ast.If, "test"),
    (ast.While, "test"),
    (ast.IfExp, "test"),
    (ast.match_case, "guard"),
    (ast.comprehension, "ifs"),
}
_MEMBERS = {
    (ast.BinOp, "left"),
    (ast.BinOp, "right"),
    (ast.BoolOp, "values"),
    (ast.Call, "args"),
    (ast.Call, "keywords"),
    (ast.Dict, "keys"),
    (ast.Dict, "values"),
    (ast.JoinedStr, "values"),
    (ast.List, "elts"),
    (ast.Tuple, "elts"),
}


class NotThere(Exception):
    """What a change looks for is not there, or not as often as it should be."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A node's place in its parent."""

    parent: ast.AST
    field: str
    index: int | None

    @property
    def kind(self) -> tuple[type[ast.AST], str]:
        """Which part of what."""
        return type(self.parent), self.field

    @property
    def node(self) -> ast.AST:
        """What stands here."""
        held = getattr(self.parent, self.field)
        return held if self.index is None else held[self.index]

    def put(self, *nodes: ast.AST) -> None:
        """Put these here instead; several, or none, only into a list."""
        if self.index is None:
            (node,) = nodes
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index : self.index + 1] = nodes


def always(condition: str, *, nth: int | None = None) -> Change:
    """The condition (of an `if`, `while` or `case`) that mentions this is true whatever happens."""
    return _condition(condition, nth, held=True)


def never(condition: str, *, nth: int | None = None) -> Change:
    """The condition that mentions this is false whatever happens."""
    return _condition(condition, nth, held=False)


def replace(old: str, new: str, *, nth: int | None = None) -> Change:
    """One expression becomes another."""

    def change(tree: ast.AST) -> None:
        slot, found = _only(_matching(tree, pattern(old)), old, nth)
        slot.put(expression(new, found))

    return change


def leave_out(part: str, *, nth: int | None = None) -> Change:
    """An argument, operand, entry or element is gone: the smallest that mentions this."""

    def change(tree: ast.AST) -> None:
        above = {id(slot.node): slot for slot in _slots(tree)}
        members = dict.fromkeys(_member(slot, above) for slot, _ in _matching(tree, pattern(part)))
        _remove(_only([each for each in members if each is not None], part, nth), above)

    return change


def argument(name: str, value: str, *, nth: int | None = None) -> Change:
    """What is given under this name, to a call or in a dict, is another value."""

    def change(tree: ast.AST) -> None:
        slot = _only(list(_named(tree, name)), f"{name}=", nth)
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
        slot, found = _only(_statements(tree, pattern(statement)), statement, nth)
        slot.put(*statements(new, found))

    return change


def before(statement: str, new: str, *, nth: int | None = None) -> Change:
    """Something happens before the statement that mentions this."""

    def change(tree: ast.AST) -> None:
        slot, found = _only(_statements(tree, pattern(statement)), statement, nth)
        slot.put(*statements(new, found), slot.node)

    return change


def postpone(statement: str, *, nth: int | None = None) -> Change:
    """The statement that mentions this, and the one after it, change places."""

    def change(tree: ast.AST) -> None:
        slot, _ = _only(_statements(tree, pattern(statement)), statement, nth)
        assert slot.index is not None, "statements stand in lists"
        block = getattr(slot.parent, slot.field)
        if slot.index + 1 == len(block):
            raise NotThere(f"no statement follows the one that mentions {statement}")
        block[slot.index : slot.index + 2] = reversed(block[slot.index : slot.index + 2])

    return change


def without_case(case: str) -> Change:
    """The `case` that mentions this is gone: what it took goes on to the next ones."""

    def change(tree: ast.AST) -> None:
        _only(list(_cases(tree, case)), f"case {case}").put()

    return change


def redirect(case: str, *, to: str) -> Change:
    """The `case` that mentions this does what another does."""

    def change(tree: ast.AST) -> None:
        source, target = (_only(list(_cases(tree, each)), f"case {each}").node for each in (to, case))
        target.body = source.body

    return change


def inside(head: str, change: Change, *, nth: int | None = None) -> Change:
    """A change within one block: a case, an `except`, an `if`, `with` or loop whose head mentions this."""
    looked_for = pattern(head)

    def change_block(tree: ast.AST) -> None:
        blocks = [slot.node for slot in _slots(tree) if hasattr(slot.node, "body")]
        block = _only([each for each in blocks if looked_for.within(*_head(each))], f"a block with {head}", nth)
        change(ast.Module(body=block.body, type_ignores=[]))

    return change_block


def _condition(text: str, nth: int | None, *, held: bool) -> Change:
    def change(tree: ast.AST) -> None:
        looked_for = pattern(text)
        conditions = [slot for slot in _slots(tree) if slot.kind in _CONDITIONS and looked_for.within(slot.node)]
        _only(conditions, f"a condition with {text}", nth).put(ast.Constant(held))

    return change


def _only(found: Sequence[One], what: str, nth: int | None = None) -> One:
    if nth is None and len(found) != 1:
        raise NotThere(f"{what} is there {len(found)} times, not once")
    if nth is not None and len(found) < nth:
        raise NotThere(f"{what} is there {len(found)} times, not {nth} or more")
    return found[0 if nth is None else nth - 1]


def _slots(tree: ast.AST) -> Iterator[Slot]:
    """Every node below, in the tree's order."""
    for field, held in ast.iter_fields(tree):
        for index, node in enumerate(held) if isinstance(held, list) else [(None, held)]:
            if isinstance(node, ast.AST):
                yield Slot(tree, field, index)
                yield from _slots(node)


def _matching(tree: ast.AST, looked_for: Pattern) -> list[tuple[Slot, Found]]:
    return [(slot, found) for slot in _slots(tree) if (found := looked_for.match(slot.node)) is not None]


def _statements(tree: ast.AST, looked_for: Pattern) -> list[tuple[Slot, Found]]:
    """Those that are what is looked for, or mention it."""
    if isinstance(looked_for.shape, ast.stmt):
        return _matching(tree, looked_for)
    slots = [slot for slot in _slots(tree) if isinstance(slot.node, ast.stmt)]
    return [(slot, found) for slot in slots if (found := looked_for.within(*_head(slot.node))) is not None]


def _head(node: ast.AST) -> list[ast.AST | None]:
    """The part of a statement, case or `except` that is not its block; the whole of a statement that has none."""
    match node:
        case ast.If() | ast.While():
            return [node.test]
        case ast.For() | ast.AsyncFor():
            return [node.target, node.iter]
        case ast.With() | ast.AsyncWith():
            return list(node.items)
        case ast.Match():
            return [node.subject]
        case ast.match_case():
            return [node.pattern, node.guard]
        case ast.ExceptHandler():
            return [node.type]
        case ast.stmt() if not hasattr(node, "body"):
            return [node]
        case _:
            return []


def _cases(tree: ast.AST, case: str) -> Iterator[Slot]:
    looked_for = pattern(case)
    for slot in _slots(tree):
        if isinstance(slot.node, ast.match_case) and looked_for.within(slot.node.pattern):
            yield slot


def _named(tree: ast.AST, name: str) -> Iterator[Slot]:
    for slot in _slots(tree):
        match slot.node:
            case ast.keyword(arg=arg) if arg == name:
                yield Slot(slot.node, "value", None)
            case ast.Dict(keys=keys):
                for index, key in enumerate(keys):
                    if isinstance(key, ast.Constant) and key.value == name:
                        yield Slot(slot.node, "values", index)


def _member(slot: Slot | None, above: dict[int, Slot]) -> Slot | None:
    """The smallest thing around this place that can be left out."""
    while slot is not None and not isinstance(slot.node, ast.stmt):
        if slot.kind in _MEMBERS:
            return slot
        slot = above.get(id(slot.parent))
    return None


def _remove(slot: Slot, above: dict[int, Slot]) -> None:
    match slot.parent:
        case ast.BinOp(left=left, right=right):
            above[id(slot.parent)].put(right if slot.node is left else left)
        case ast.Dict(keys=keys, values=values):
            del keys[slot.index], values[slot.index]
        case ast.BoolOp(values=[_, _]):
            slot.put()
            above[id(slot.parent)].put(slot.parent.values[0])
        case _:
            slot.put()
