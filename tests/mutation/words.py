"""Mutants that change only how something is said or looks on the operator's screen: they are not counted.

A test that killed one would pin a sentence or a colour. What is decided, sent, deleted, refused or counted, the names
of options, keys and JSON fields, and the exit codes are no such words, and count.
"""

from __future__ import annotations

import io
import re
import token
import tokenize
from itertools import takewhile

SPOKEN = (
    "operations.cli.",
    "operations.dead_letters.",
    "operations.doctor.",
    "operations.records.",
    "operations.trace.",
)
"""Where people are spoken to. Elsewhere a text is a log line, a stored reason or a file that programs read."""
LOOKS = {"style", "overflow", "justify", "padding", "indent", "help", "epilog", "rich_help_panel"}
"""Arguments that say how something looks, or what the help says."""
TYPED = r"--|\b(aws|receiver) \w|[\s'\"(][#:]\w"
"""A text that says what to type counts, and an expression for DynamoDB, which has `#names` and `:values`."""
LAYOUT = (token.NEWLINE, tokenize.NL, token.INDENT, token.DEDENT, token.ENDMARKER, tokenize.COMMENT)

Change = tuple[str, str, str]


def only_words(change: Change) -> bool:
    """Whether a mutant changes only a sentence, or an argument that says how something looks."""
    function, *sides = change
    if not function.startswith(SPOKEN):
        return False
    was, now = map(_tokens, sides)
    same = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(was, now, strict=False))))
    rest = min(len(was), len(now)) - same
    end = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(was[::-1][:rest], now[::-1][:rest], strict=False))))
    before, changed, instead = was[:same], was[same : len(was) - end], now[same : len(now) - end]
    return _sentence(changed, instead) or _look(before, changed)


def _sentence(changed: list[str], instead: list[str]) -> bool:
    """Whether one text of several words was written otherwise; not what it puts in."""
    if not len(changed) == len(instead) == 1:
        return False
    was, now = changed[0], instead[0]
    spoken = re.search(r"[^\s'\"] [^\s'\"]", re.sub(r"{.*?}", "it", was)) and not re.search(TYPED, was)
    return all(map(_is_text, (was, now))) and _put_in(was) == _put_in(now) and bool(spoken)


def _is_text(part: str) -> bool:
    return part.lstrip("rfbRFB")[:1] in ("'", '"')


def _put_in(text: str) -> list[str]:
    """What stands in braces."""
    return re.findall(r"{(.*?)}", text)


def _look(before: list[str], changed: list[str]) -> bool:
    """Whether the value of such an argument was changed, or the argument left out."""
    named = changed[0] if len(changed) > 1 and changed[1] == "=" else before[-2] if before[-1:] == ["="] else ""
    return named in LOOKS


def _tokens(text: str) -> list[str]:
    """The tokens of some lines, which may be a part of a statement."""
    found = []
    try:
        for each in tokenize.generate_tokens(io.StringIO(text).readline):
            if each.type not in LAYOUT:
                found.append(each.string)  # noqa: PERF401  # what came before an error counts
    except (tokenize.TokenError, IndentationError):
        pass
    return found
