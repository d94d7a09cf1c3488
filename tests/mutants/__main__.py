"""`python -m tests.mutants [word …]`: plants the bugs, two at a time, and ends with 0 only if every one was killed: by
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
from tests.mutants.mutant import Mutant
from tests.mutants.planting import Gone, Killed, Survived, judge
from tests.mutants.scenarios import Told, told, witnesses

AT_ONCE = 2


def main(words: list[str]) -> int:
    """Plant those whose names, or whose scenarios' numbers, hold one of the words; all, where there is none."""
    began, marks, console = time.monotonic(), told(), Console()
    chosen = [mutant for mutant in MUTANTS if not words or any(word in about(mutant, marks) for word in words)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        judging = track(
            pool.map(partial(judged, marks), chosen), "planting", len(chosen), console=console, transient=True
        )
        verdicts = [said(console, mutant, verdict) for mutant, verdict in zip(chosen, judging, strict=True)]
    console.print(table_of(chosen, verdicts, marks))
    killed = sum(isinstance(verdict, Killed) for verdict in verdicts)
    pairs = sum(len(witnesses(mutant.name, marks)) for mutant in chosen)
    console.print(
        f"{killed} of {len(chosen)} planted bugs were killed; scenarios' tests name them {pairs} times; "
        f"{time.monotonic() - began:.0f} s"
    )
    return 0 if chosen and killed == len(chosen) else 1


def judged(marks: list[Told], mutant: Mutant) -> Killed | Survived:
    """A mutant whose text is gone counts as one that survived: either way somebody has to look."""
    try:
        return judge(mutant, witnesses(mutant.name, marks))
    except Gone as gone:
        return Survived(str(gone))


def said(console: Console, mutant: Mutant, verdict: Killed | Survived) -> Killed | Survived:
    """Say at once what has survived: the table comes at the end, minutes later."""
    if isinstance(verdict, Survived):
        console.print(f"[bold red]SURVIVED[/] {mutant.name}: {escape(verdict.why)}", highlight=False)
    return verdict


def numbers(mutant: Mutant, marks: list[Told]) -> str:
    """The scenarios whose tests name this bug."""
    return " ".join(sorted({each.scenario for each in marks if each.mutant == mutant.name}))


def about(mutant: Mutant, marks: list[Told]) -> str:
    """What a word is looked for in."""
    return f"{mutant.name} {numbers(mutant, marks)}"


def table_of(mutants: list[Mutant], verdicts: list[Killed | Survived], marks: list[Told]) -> Table:
    """Which promise each bug breaks, which scenarios name it, and the test that saw it."""
    table = Table("promise", "planted bug", "scenarios", "killed by")
    for mutant, verdict in zip(mutants, verdicts, strict=True):
        seen = escape(verdict.test) if isinstance(verdict, Killed) else f"[bold red]SURVIVED[/] {escape(verdict.why)}"
        table.add_row(str(mutant.promise or ""), mutant.name, numbers(mutant, marks), seen)
    return table


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
