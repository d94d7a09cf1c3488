"""Observes the shipped tables from outside: which of their rows a world reaches. The rows declare themselves.

`batch/items.py` is a table in data, so its lookups are counted. `decide` and the mappings of `handler/outcome.py` are
tables in code: each of their branches is a row. They run as they are shipped but for one mark at the start of a branch.
"""

from __future__ import annotations
import __future__

import ast
import inspect
import textwrap
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, get_args
from unittest.mock import patch

from idempotent_receiver.batch import items, progress
from idempotent_receiver.handler import outcome
from idempotent_receiver.protocol import transitions
from idempotent_receiver.protocol.exchange import Operation
from tests.simulation.reached import HINTS, declare, mark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType

    from idempotent_receiver.batch.items import Event, Item, Next, Stage

ROWS = {pair: f"{pair[0]}: {pair[1]}" for pair in items.TABLE}
"""The rows of the table of a batch's items, by stage and event."""
CODE_TABLES: dict[str, Callable[..., Any]] = {
    "decide": transitions.decide,
    "settle": transitions.Settlement.step,
    "answer": Operation.apply,
    "of_claim": outcome.of_claim,
    "of_completion": outcome.of_completion,
    "of_mark": outcome.of_mark,
    "of_stop": outcome.of_stop,
    "of_failure": outcome.of_failure,
    "of_loss": outcome.of_loss,
    "uncommitted": outcome.uncommitted,
    "mirrored": progress._mirrored,
    "over": progress._over,
}
"""The tables in code."""
MARK = "_mark_branch"


class _Marked(items.StageTable):
    """The table, with a mark at each lookup."""

    def __getitem__(self, pair: tuple[Stage, Event]) -> Next:
        found = super().__getitem__(pair)
        mark(ROWS[pair])
        return found


class _Branches(ast.NodeTransformer):
    """Puts a mark at the start of each branch of a function. Its name is the branch's condition or pattern."""

    def __init__(self, table: str) -> None:
        self.table = table
        self.places: list[str] = []

    def visit_If(self, node: ast.If) -> ast.AST:  # ast's names
        self.generic_visit(node)
        node.body.insert(0, self._mark(ast.unparse(node.test)))
        return node

    def visit_match_case(self, node: ast.match_case) -> ast.AST:
        self.generic_visit(node)
        guard = "" if node.guard is None else f" if {ast.unparse(node.guard)}"
        node.body.insert(0, self._mark(ast.unparse(node.pattern) + guard))
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.body[-1], ast.Return):
            node.body.insert(-1, self._mark("otherwise"))
        node.decorator_list = []
        return node

    def _mark(self, branch: str) -> ast.stmt:
        self.places.append(f"{self.table}: {branch}")
        return ast.parse(f"{MARK}({self.places[-1]!r})").body[0]


def _marked(table: str, function: Callable[..., Any]) -> tuple[CodeType, list[str]]:
    """A function's code with marks, and its branches."""
    branches = _Branches(table)
    tree = ast.fix_missing_locations(branches.visit(ast.parse(textwrap.dedent(inspect.getsource(function)))))
    ast.increment_lineno(tree, function.__code__.co_firstlineno - 1)
    made: dict[str, Any] = {}
    # Annotations stay texts: some of their names are imported for type checkers alone.
    code = compile(tree, function.__code__.co_filename, "exec", __future__.annotations.compiler_flag)
    exec(code, dict(function.__globals__), made)  # our own source
    return made[function.__name__].__code__, branches.places


ENDED = "calls have ended before the answer is due, unless the process is about to end"
FOREIGN = "no other program writes to the table"
EXCLUDED = {
    "calling: time_over": ENDED,
    "over: Stage.CALLING": ENDED,
    "decide: seen is not None and seen.unreadable is not None": FOREIGN,
    "decide: seen.status not in Status.__members__": FOREIGN,
    "decide: seen.status in (Status.INPROGRESS, Status.SENDING) and lease is None": FOREIGN,
    "ends: Unreadable": FOREIGN,
    "of_claim: answers.Unsent()": "a batch sends it",
    "stopping: failed_for_good": "SQS takes the contents of every message that a world sends",
    "unsent: time_over": "what is left is recorded before the answer is due",
}
"""What the worlds cannot reach, and why. A world that can takes its rows out of here, or the run fails."""
HINTS |= {
    "of_loss: answers.AlreadyFailed() as failed": ("handler: frozen", "pay: 500 again"),
    "sending: time_over": ("dead letter: slow", "dead-lettered: PermanentError"),
    "asked: time_over": ("take over: slow", "asked: claimed_late"),
}
_CODES: dict[str, CodeType] = {}
for _table, _function in CODE_TABLES.items():
    _CODES[_table], _places = _marked(_table, _function)
    declare("decisions", _places)
declare("stages and events", ROWS.values())
declare("endings", [f"ends: {kind.__name__}" for kind in get_args(outcome.Outcome)])
declare("endings", ["ends: lost Duplicate", "ends: recorded Failed"], excluded=EXCLUDED)
FOR_GOOD = ("FingerprintMismatch", "InvalidBody", "PermanentError", "UnusableKey")
FOR_NOW = (
    "CancelledError", "ConditionFailed", "Failed", "InProgress", "LostClaim", "NotStarted", "RecordChanged",
    "RuntimeError", "StoreUnavailable", "TransactionNotCommitted",
)  # fmt: skip
declare("endings", [f"fails: {why}" for why in (*FOR_GOOD, *FOR_NOW)])
declare("endings", [f"dead-lettered: {why}" for why in FOR_GOOD])


def _end(self: progress.Progress, item: Item, end: Callable[..., None] = progress.Progress.end) -> None:
    ended = item.outcome
    flags = [name for name in ("lost", "recorded") if getattr(ended, name, False)]
    mark(f"ends: {' '.join([*flags, type(ended).__name__])}")
    if isinstance(ended, (outcome.Failed, outcome.DeadLettered)):
        mark(f"{'fails' if isinstance(ended, outcome.Failed) else 'dead-lettered'}: {ended.failure.type}")
    end(self, item)


@contextmanager
def observed() -> Iterator[None]:
    """Meanwhile the tables mark what is reached. The functions stay the same objects, whoever has imported them."""
    shipped = {table: function.__code__ for table, function in CODE_TABLES.items()}
    with ExitStack() as stack:
        for table, function in CODE_TABLES.items():
            stack.enter_context(patch.dict(function.__globals__, {MARK: mark}))
            stack.callback(setattr, function, "__code__", shipped[table])
            function.__code__ = _CODES[table]
        stack.callback(setattr, items.TABLE, "__class__", items.StageTable)
        items.TABLE.__class__ = _Marked
        stack.enter_context(patch.object(progress.Progress, "end", _end))
        yield
