"""The places in a syntax tree, and which of them a change is looking for."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.mutants.pattern import Found, Pattern

_CONDITIONS = {
    (ast.If, "test"),
    (ast.While, "test"),
    (ast.IfExp, "test"),
    (ast.match_case, "guard"),
    (ast.comprehension, "ifs"),
}
"""Where a condition stands."""

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
"""What may be left out of what it stands in."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A node's place in its parent."""

    parent: ast.AST
    field: str
    index: int | None

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


def slots(tree: ast.AST) -> Iterator[Slot]:
    """Every node below, in the tree's order."""
    for field, held in ast.iter_fields(tree):
        for index, node in enumerate(held) if isinstance(held, list) else [(None, held)]:
            if isinstance(node, ast.AST):
                yield Slot(tree, field, index)
                yield from slots(node)


def matching(tree: ast.AST, looked_for: Pattern) -> list[tuple[Slot, Found]]:
    """The nodes that are what is looked for, and what its holes stand for."""
    return [(slot, found) for slot in slots(tree) if (found := looked_for.match(slot.node)) is not None]


def statements_with(tree: ast.AST, looked_for: Pattern) -> list[tuple[Slot, Found]]:
    """Those that are what is looked for, or mention it."""
    if isinstance(looked_for.shape, ast.stmt):
        return matching(tree, looked_for)
    places = [slot for slot in slots(tree) if isinstance(slot.node, ast.stmt)]
    return [(slot, found) for slot in places if (found := looked_for.within(*head_of(slot.node))) is not None]


def head_of(node: ast.AST) -> list[ast.AST | None]:
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


def cases_with(tree: ast.AST, looked_for: Pattern) -> list[Slot]:
    """The cases of a `match` whose pattern, without its guard, mentions what is looked for."""
    places = [slot for slot in slots(tree) if isinstance(slot.node, ast.match_case)]
    return [slot for slot in places if looked_for.within(slot.node.pattern) is not None]


def blocks_with(tree: ast.AST, looked_for: Pattern) -> list[ast.AST]:
    """What has a block, under a head that mentions what is looked for."""
    nodes = [slot.node for slot in slots(tree) if isinstance(getattr(slot.node, "body", None), list)]
    return [node for node in nodes if looked_for.within(*head_of(node)) is not None]


def conditions_with(tree: ast.AST, looked_for: Pattern) -> list[Slot]:
    """The conditions that mention what is looked for."""
    places = [slot for slot in slots(tree) if (type(slot.parent), slot.field) in _CONDITIONS]
    return [slot for slot in places if looked_for.within(slot.node) is not None]


def members_with(tree: ast.AST, looked_for: Pattern) -> list[Slot]:
    """What could be left out, around each match: the smallest such thing."""
    around = {id(slot.node): slot for slot in slots(tree)}
    members = {_member(slot, around): None for slot, _ in matching(tree, looked_for)}
    return [member for member in members if member is not None]


def arguments_named(tree: ast.AST, name: str) -> Iterator[Slot]:
    """What is given under this name: to a call, or in a dict."""
    for slot in slots(tree):
        match slot.node:
            case ast.keyword(arg=arg) if arg == name:
                yield Slot(slot.node, "value", None)
            case ast.Dict(keys=keys):
                for index, key in enumerate(keys):
                    if isinstance(key, ast.Constant) and key.value == name:
                        yield Slot(slot.node, "values", index)


def leave_out_of(tree: ast.AST, slot: Slot) -> None:
    """Without the member in this place. Of two operands, the other one remains."""
    (around,) = [each for each in slots(tree) if each.node is slot.parent] or [None]
    match slot.parent:
        case ast.BinOp(left=left, right=right) if around is not None:
            around.put(right if slot.node is left else left)
        case ast.BoolOp(values=[first, second]) if around is not None:
            around.put(second if slot.node is first else first)
        case ast.Dict(keys=keys, values=values):
            del keys[slot.index], values[slot.index]
        case _:
            slot.put()


def _member(slot: Slot | None, around: dict[int, Slot]) -> Slot | None:
    while slot is not None and not isinstance(slot.node, ast.stmt):
        if (type(slot.parent), slot.field) in _MEMBERS:
            return slot
        slot = around.get(id(slot.parent))
    return None
