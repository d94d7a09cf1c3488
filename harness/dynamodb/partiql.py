"""A strict parser for the two PartiQL statements that write one record conditionally. All others are refused.

Grammar: `INSERT INTO "table" VALUE {'name': ?, ...}` and
`UPDATE "table" SET "name"=? ... REMOVE "name" ... WHERE "key"=? AND "name"=? AND "name" IS MISSING ...`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache


class BadStatement(ValueError):
    """DynamoDB would refuse this statement, or it is not supported here."""


@dataclass(frozen=True, slots=True)
class Insert:
    """Inserts an item; one parameter for each of `names`."""

    table: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Update:
    """Changes an item that is as expected. Parameters: the values of `put`, then of `expected` (keys included)."""

    table: str
    put: tuple[str, ...]
    removed: tuple[str, ...]
    expected: tuple[str, ...]
    missing: tuple[str, ...]


_INSERT = re.compile(r'INSERT INTO "([^"]+)" VALUE \{(.*)\}', re.DOTALL)
_PAIR = re.compile(r"'([^']+)': \?")
_UPDATE = re.compile(r'UPDATE "([^"]+)" (.*) WHERE (.*)', re.DOTALL)
_CLAUSE = re.compile(r'SET "([^"]+)"=\?|REMOVE "([^"]+)"')
_CONDITION = re.compile(r'"([^"]+)"=\?|"([^"]+)" IS MISSING')


@lru_cache(maxsize=256)
def parsed(text: str) -> Insert | Update:
    """The meaning of a statement. Raises BadStatement."""
    if (found := _INSERT.fullmatch(text)) is not None:
        return Insert(found[1], tuple(pair[1] for pair in _matches(_PAIR, found[2].split(", "))))
    if (found := _UPDATE.fullmatch(text)) is not None:
        clauses = _matches(_CLAUSE, re.split(r" (?=SET |REMOVE )", found[2]))
        conditions = _matches(_CONDITION, found[3].split(" AND "))
        return Update(
            found[1],
            put=tuple(clause[1] for clause in clauses if clause[1]),
            removed=tuple(clause[2] for clause in clauses if clause[2]),
            expected=tuple(condition[1] for condition in conditions if condition[1]),
            missing=tuple(condition[2] for condition in conditions if condition[2]),
        )
    raise BadStatement(f"statement not supported here: {text}")


def _matches(pattern: re.Pattern[str], parts: list[str]) -> list[re.Match[str]]:
    found = [pattern.fullmatch(part) for part in parts]
    if any(match is None for match in found):
        raise BadStatement(f"not supported here: {parts}")
    return [match for match in found if match is not None]
