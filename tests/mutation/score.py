"""`python -m tests.mutation.score`, run in the folder that has the mutants: judges them, and prints the score."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from mutmut.__main__ import collect_source_file_mutation_data

from tests.mutation import equivalents, judges
from tests.mutation.equivalents import change
from tests.mutation.judges import Judges
from tests.mutation.words import SPOKEN, only_words

LEAST = 0.95
VERDICTS, OBSERVED = Path("../verdicts.txt").absolute(), Path("../observed").absolute()


def main(arguments: list[str]) -> int:
    """Judge all mutants, or some. Fail if too few are killed, or if an equivalent one is listed wrongly."""
    parser = argparse.ArgumentParser(prog="mutation", description=__doc__)
    parser.add_argument("words", nargs="*", help="only mutants whose names contain one of these, again")
    parser.add_argument("--sample", type=int, help="so many of them, drawn by the seed")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--tests", nargs="*", help="only these files and folders judge, and nothing is kept")
    parser.add_argument("--base", default="", help="a digest of all that the tests rest on")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    os.chdir("..")  # mutmut's settings and folders are the current one's
    everything = sorted(name for _, name, _ in collect_source_file_mutation_data(mutant_names=[])[0])
    chosen = [name for name in everything if not options.words or any(word in name for word in options.words)]
    if not chosen:
        words = " or ".join(options.words)
        parser.error(f"MUTANTS: no mutant's name contains {words}; decorated functions have none")
    if options.sample is not None:
        chosen = sorted(random.Random(options.seed).sample(chosen, min(options.sample, len(chosen))))

    kept = VERDICTS.read_text() if VERDICTS.exists() and not options.tests and not options.words else ""
    verdicts = dict(line.split("\t") for line in kept.splitlines())

    def work(tests: Judges) -> None:
        tests.get_acquainted(OBSERVED, options.base)
        if tests.unfit:
            print(f"{len(tests.unfit)} tests fail without a mutant and judge nothing:", *tests.unfit, sep="\n  ")
        with VERDICTS.open("a") if not options.tests else contextlib.nullcontext(sys.stdout) as known:
            for name, verdict in tests.verdicts([name for name in chosen if name not in verdicts]):
                verdicts[name] = verdict
                print(name, verdict, sep="\t", file=known, flush=True)

    os.chdir("mutants")
    files = judges.files(options.tests or judges.SELECTION)
    if not files:  # of no files at all pytest would take every test that there is
        parser.error(f"TESTS: none of the tests in {' '.join(options.tests)} may judge")
    quiet = ["-qq", "-s", "--rootdir=.", "-p", "no:cacheprovider"]
    patient = ["-o", "faulthandler_exit_on_timeout=false"]  # the judges have their own
    code = pytest.main([*quiet, *patient, *files], plugins=[Judges(work)])
    if code != 0:
        return int(code)
    os.chdir("..")
    return _report(chosen, everything, verdicts, time.monotonic() - began)


def _report(chosen: list[str], everything: list[str], verdicts: dict[str, str], seconds: float) -> int:
    counts = Counter(verdicts[name] for name in chosen)
    listed = equivalents.entries()
    alive = [name for name in chosen if verdicts[name] == "survived"]
    words = {name for name in chosen if equivalents.function(name).startswith(SPOKEN) and only_words(change(name))}
    survivors = [name for name in alive if change(name) not in listed and name not in words]
    for name in survivors:
        _, was, now = change(name)
        print(
            f"\nsurvived: {name}",
            *(f"- {line}" for line in was.splitlines()),
            *(f"+ {line}" for line in now.splitlines()),
            sep="\n",
        )
    mistakes = equivalents.mistakes(everything, verdicts)
    print("", *(f"equivalents.toml: {each}" for each in mistakes), sep="\n")
    counted = [name for name in chosen if name not in words]
    killed = sum(verdicts[name] != "survived" for name in counted)
    equivalent = len(counted) - killed - len(survivors)
    score = killed / max(killed + len(survivors), 1)
    print(
        f"{score:.1%}: {killed} of {killed + len(survivors)} mutants killed, {counts['killed late']} of them because "
        f"their tests did not end; not counted: {equivalent} equivalent ones, and {len(words)} that change only words "
        f"or looks; {len(everything)} in all; {seconds:.0f} s"
    )
    return 0 if score >= least(len(chosen)) and not mistakes else 1


def least(count: int) -> float:
    """The score to reach: 95 %. A sample of fewer than 400 may be three standard deviations worse, which is chance."""
    return LEAST if count >= 400 else LEAST - 3 * math.sqrt(LEAST * (1 - LEAST) / max(count, 1))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
