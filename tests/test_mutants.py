"""Every planted bug fits the code; `make mutants` plants them all."""

from __future__ import annotations

import contextlib
import os
import random
import re
import subprocess
import sys
from functools import cache
from typing import TYPE_CHECKING

import pytest
from greenlet import greenlet
from mutmut.state import state

from idempotent_receiver.protocol.exchange import Operation
from idempotent_receiver.protocol.record import Record
from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import LIBRARY, ROOT, DoesNotApply, Mutant
from tests.mutants.swapping import observed, swap_of

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


EXPIRED = Mutant("nothing expires", "protocol.record:Record.expired", [("self.expiration * 1000 <= now_ms", "False")])
RECORD = Record("k", "COMPLETED", expiration=1)


def test_a_bug_is_planted_in_an_imported_function_and_taken_out_again() -> None:
    swap = swap_of(EXPIRED)
    assert swap.changed == {"protocol.record:Record.expired"}

    swap.do()
    planted = RECORD.expired(2000)
    swap.undo()

    assert (planted, RECORD.expired(2000)) == (False, True)


def test_a_bug_is_planted_where_pytest_has_rewritten_an_assertion() -> None:
    """It does so in plugins, and the library is one."""
    (bug,) = (each for each in MUTANTS if each.name == "a failure that was not read is replaced")
    assert Operation.advance in [function for function, *_ in swap_of(bug).functions]


def test_a_bug_that_needs_other_variables_of_a_closure_is_not_planted_at_all() -> None:
    (bug,) = (each for each in MUTANTS if each.name == "a name that was not read gives None")
    swap = swap_of(bug)

    with pytest.raises(ValueError, match="free vars"):
        swap.do()

    assert [function.__qualname__ for function, own, _ in swap.functions if function.__code__ is not own] == []


def test_a_bug_outside_of_a_functions_body_is_not_planted_there() -> None:
    with pytest.raises(DoesNotApply, match="no function's body changes"):
        swap_of(Mutant("no unknown status", "protocol.record:Record.unreadable", [("None = None", "None = ''")]))


def test_a_function_tells_that_it_is_called_within_a_greenlet_too() -> None:
    (swap,) = observed({"protocol.record:Record.expired"})
    swap.do()
    greenlet(RECORD.expired).switch(2000)
    swap.undo()
    RECORD.differs(None)

    assert state()._stats == {"protocol.record:Record.expired"}
    state()._stats.clear()


JUDGED = """
import pytest
from idempotent_receiver.protocol.exchange import Operation
from idempotent_receiver.protocol.record import Record

expired = Record("k", "COMPLETED", expiration=1).expired

@pytest.mark.parametrize("now_ms", [0, 2000])
def test_kills(now_ms):
    assert expired(now_ms) == (now_ms > 0)

def test_raises():
    if not expired(2000):
        raise ValueError

def test_hangs():
    while not expired(2000):
        pass

def test_reaches_nothing():
    pass
"""
JUDGES = """
from pathlib import Path
import pytest
from tests.mutants import by_function
from tests.mutants.mutant import Mutant

by_function.HANGS_SECONDS = 1.0
bug = Mutant("nothing expires", "protocol.record:Record.expired", [("self.expiration * 1000 <= now_ms", "False")])
pytest.main(["-qq", "-s", "--rootdir=."], plugins=[by_function.Judge([bug], Path.cwd())])
"""


def test_of_those_that_reach_a_bug_a_function_whose_assertion_fails_kills_it(tmp_path: Path) -> None:
    """An error and a hang are no kills."""
    (tmp_path / "test_judged.py").write_text(JUDGED)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", JUDGES], cwd=tmp_path, env=environment, check=True, capture_output=True)

    head, *functions = (tmp_path / "functions.txt").read_text().splitlines()[:5]
    assert head == "first for bugs, kills, tests, function"
    assert [line.split()[:3] for line in functions] == [["0", "0", "1"]] * 3 + [["1", "1", "2"]]
    assert functions[-1].endswith("test_kills")
