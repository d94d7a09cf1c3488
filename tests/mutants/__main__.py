"""`python -m tests.mutants [word …]`: plants the bugs, two at a time, and ends with 0 only if every one was killed."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from rich.console import Console
from rich.progress import track
from rich.table import Table

from tests.mutants.catalogue import MUTANTS, Mutant
from tests.mutants.planting import Gone, Killed, Survived, judge

AT_ONCE = 2


def main(words: list[str]) -> int:
    """Plant those whose names hold one of the words; all, where there is none."""
    chosen = [mutant for mutant in MUTANTS if not words or any(word in mutant.name for word in words)]
    console = Console()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        verdicts = list(
            track(pool.map(judged, chosen), total=len(chosen), description="planting", console=console, transient=True)
        )
    console.print(table_of(chosen, verdicts))
    killed = sum(isinstance(verdict, Killed) for verdict in verdicts)
    console.print(f"{killed} of {len(chosen)} planted bugs were killed")
    return 0 if chosen and killed == len(chosen) else 1


def judged(mutant: Mutant) -> Killed | Survived:
    """A mutant whose text is gone counts as one that survived: either way somebody has to look."""
    try:
        return judge(mutant)
    except Gone as gone:
        return Survived(str(gone))


def table_of(mutants: list[Mutant], verdicts: list[Killed | Survived]) -> Table:
    """Which promise each bug breaks, and the test that saw it."""
    table = Table("promise", "planted bug", "killed by")
    for mutant, verdict in zip(mutants, verdicts, strict=True):
        seen = verdict.test if isinstance(verdict, Killed) else f"[bold red]SURVIVED[/] {verdict.why}"
        table.add_row(str(mutant.promise or ""), mutant.name, seen)
    return table


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
