"""`python -m tests.mutants [word …]`: plants the bugs, two at a time, and exits with 0 only if every one was killed: by
the tests that it names, and by each scenario's test that names it.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import DoesNotApply, Mutant
from tests.mutants.planting import Killed, Survived, run_mutant
from tests.mutants.scenarios import ScenarioMark, scenario_marks, scenario_tests

WORKERS = 2

Result = Killed | Survived


def main(words: list[str]) -> int:
    """Plant those whose names, or whose scenarios' numbers, contain one of the words; all, if there are no words."""
    began, marks, console = time.monotonic(), scenario_marks(), Console()
    chosen = [mutant for mutant in MUTANTS if not words or any(word in _searched(mutant, marks) for word in words)]
    if not chosen:
        console.print(f"BUGS: no planted bug's name or scenario contains {escape(' or '.join(words))}")
        return 2
    with ThreadPoolExecutor(WORKERS) as pool:
        running = pool.map(partial(_run, marks), chosen)
        tracked = track(running, "planting", len(chosen), console=console, transient=True)
        results = [_reported(console, mutant, result) for mutant, result in zip(chosen, tracked, strict=True)]
    console.print(_table(chosen, results, marks))
    killed = sum(isinstance(result, Killed) for result in results)
    pairs = sum(len(scenario_tests(mutant.name, marks)) for mutant in chosen)
    console.print(
        f"{killed} of {len(chosen)} planted bugs were killed; scenarios' tests name them {pairs} times; "
        f"{time.monotonic() - began:.0f} s"
    )
    return 0 if killed == len(chosen) else 1


def _run(marks: list[ScenarioMark], mutant: Mutant) -> Result:
    """A mutant that does not apply counts as one that survived: somebody has to look at either."""
    try:
        return run_mutant(mutant, scenario_tests(mutant.name, marks))
    except DoesNotApply as error:
        return Survived(str(error))


def _reported(console: Console, mutant: Mutant, result: Result) -> Result:
    """Report a survivor at once: the table comes at the end, minutes later."""
    if isinstance(result, Survived):
        console.print(f"[bold red]SURVIVED[/] {mutant.name}: {escape(result.why)}", highlight=False)
    return result


def _numbers(mutant: Mutant, marks: list[ScenarioMark]) -> str:
    """The scenarios whose tests name this bug."""
    return " ".join(sorted({each.scenario for each in marks if each.mutant == mutant.name}))


def _searched(mutant: Mutant, marks: list[ScenarioMark]) -> str:
    return f"{mutant.name} {_numbers(mutant, marks)}"


def _table(mutants: list[Mutant], results: list[Result], marks: list[ScenarioMark]) -> Table:
    """Which promise each bug breaks, which scenarios name it, and the test that failed."""
    table = Table("promise", "planted bug", "scenarios", "killed by")
    for mutant, result in zip(mutants, results, strict=True):
        by = escape(result.test) if isinstance(result, Killed) else f"[bold red]SURVIVED[/] {escape(result.why)}"
        table.add_row(str(mutant.promise or ""), mutant.name, _numbers(mutant, marks), by)
    return table


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
