"""How many operators a DynamoDB expression has, however it is written.

Comparators, AND, OR, NOT, BETWEEN, IN, functions, + and - count as operators; parentheses, commas and an update's
assignments do not. DynamoDB refuses an expression with too many, but only at the commit.
"""

import re

MOST_OPERATORS = 300
"""DynamoDB's maximum number of operators and functions in an expression."""

_TOKEN = re.compile(r"([#:]?\w+)(\s*\()?|<>|[<>]=?|[=+-]", re.ASCII)
_WORDS = frozenset({"AND", "OR", "NOT", "IN"})
"""The operators that are words. BETWEEN is counted by its AND."""


def operators_in(expression: str, *, update: bool = False) -> int:
    """The number of operators in a condition, or in an `update`."""
    return sum(_counts(token, update=update) for token in _TOKEN.finditer(expression))


def too_many_operators(expression: str, *, update: bool = False) -> int:
    """The number of operators, if that is too many; otherwise 0."""
    # Most expressions are shorter than any with too many.
    count = operators_in(expression, update=update) if len(expression) > MOST_OPERATORS else 0
    return count if count > MOST_OPERATORS else 0


def _counts(token: re.Match[str], *, update: bool) -> bool:
    word, call = token.groups()
    if word is None:
        return not (update and token[0] == "=")
    return word.upper() in _WORDS or (call is not None and word.upper() != "BETWEEN")
