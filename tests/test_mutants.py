"""Every planted bug fits the code; `make mutants` plants them all."""

from __future__ import annotations

import contextlib
import os
import random
import re
from functools import cache
from typing import TYPE_CHECKING

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import LIBRARY, ROOT, DoesNotApply, Mutant

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

BUILT_IN = {name for each in (str, bytes, dict, list, set, type, contextlib, os, random) for name in dir(each)}


@cache
def words_of_the_library() -> frozenset[str]:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / LIBRARY).rglob("*.py")]
    return frozenset(word for text in texts for word in re.findall(r"\w+", text))


@cache
def source_of(file: Path) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


def misfits(mutants: Iterable[Mutant]) -> Iterator[str]:
    """Of each planted bug that does not fit the code, its name and why."""
    for mutant in mutants:
        try:
            mutant.planted(source_of(mutant.file))
        except DoesNotApply as error:
            yield str(error)
            continue
        attributes = {name for _, new in mutant.edits for name in re.findall(r"\.([a-z_]\w*)", new or "")}
        for unknown in sorted(attributes - words_of_the_library() - BUILT_IN):
            yield f"{mutant.name!r} at {mutant.at}: the library has no {unknown}"
        for where in mutant.where:
            if not (ROOT / where).is_file():
                yield f"{mutant.name!r} at {mutant.at}: there is no {where}"


def test_every_planted_bug_fits_the_code() -> None:
    found = list(misfits(MUTANTS))

    assert found == [], "\n".join(found)


def test_all_planted_bugs_that_do_not_fit_are_named() -> None:
    at, now = "clock:SystemClock.epoch_ms", "time.time_ns()"
    found = misfits(
        [
            Mutant("in no module", "sundial:Sundial", [(now, "0")]),
            Mutant("that fits", at, [(now, "0")]),
            Mutant("of other code", at, [("sundial()", "0")]),
            Mutant("that changes nothing", at, [(now, f"({now})")]),
            Mutant("that calls no function", at, [(now, "sundial()")]),
            Mutant("that calls no method", at, [(now, "time.sundial()")]),
            Mutant("that no test sees", at, [(now, "0")], where=("tests/test_sundial.py",)),
        ]
    )

    assert list(found) == [
        "'in no module' at sundial:Sundial: there is no such module",
        f"'of other code' at {at}: 'sundial()' is there 0 times, not once",
        f"'that changes nothing' at {at}: nothing changes",
        f"'that calls no function' at {at}: nothing is called sundial",
        f"'that calls no method' at {at}: the library has no sundial",
        f"'that no test sees' at {at}: there is no tests/test_sundial.py",
    ]


def test_each_promise_has_bugs_that_would_break_it_and_names_are_unique() -> None:
    assert {mutant.promise for mutant in MUTANTS} == {0, 1, 2, 3, 4, 5, 6}
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
