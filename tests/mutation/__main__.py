"""`python -m tests.mutation …`: writes the mutants into `.build/mutation`, and there runs `tests.mutation.score`.

Verdicts are kept until the source or a test changes, so a run that was interrupted goes on where it was. With
`--commit` only the mutants of the rooms that it touches are written, into `.build/rooms`, and nothing is kept.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.mutation import rooms

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).resolve().parents[2]
JUDGED_BY = ["src", "tests", "pyproject.toml", "uv.lock"]


def main(arguments: list[str]) -> int:
    """Prepare the folder, and score what is in it."""
    parser = argparse.ArgumentParser(prog="mutation", description=__doc__)
    parser.add_argument("--commit", help="only of the rooms that it touches, judged by the tests of these rooms")
    parser.add_argument("--seed", default="1")
    options, others = parser.parse_known_args(arguments)
    drawn = rooms.drawn(rooms.changed(options.commit), options.seed) if options.commit else []
    folder = ROOT / ".build" / ("rooms" if drawn else "mutation")
    if drawn:
        print("drawn from", *drawn, flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        others += ["--tests", *rooms.tests(drawn)]
    folder.mkdir(parents=True, exist_ok=True)
    for entry in ROOT.iterdir():
        link = folder / entry.name
        if not entry.name.startswith(".") and not link.is_symlink():
            link.symlink_to(entry)
    source = _digest(file for name in JUDGED_BY for file in _files(name) if not file.name.startswith("test_"))
    everything = _digest(file for name in JUDGED_BY for file in _files(name))
    if not (stamp := folder / "digest").exists() or stamp.read_text() != everything:
        (folder / "verdicts.txt").unlink(missing_ok=True)
        generate(folder, [file for file in rooms.files() if rooms.room_of(file) in drawn])
        stamp.write_text(everything)
    (folder / "observed").mkdir(exist_ok=True)
    environment = os.environ | {"PYTHONPATH": str(folder / "mutants" / "src"), "TMPDIR": str(folder / "tmp")}
    environment.pop("SEED", None)  # make exports it, and to a judge it would mean one world of a hundred
    shutil.rmtree(folder / "tmp", ignore_errors=True)
    (folder / "tmp").mkdir()
    command = [sys.executable, "-m", "tests.mutation.score", "--base", source, "--seed", options.seed, *others]
    return subprocess.run(command, cwd=folder / "mutants", env=environment, check=False).returncode


def generate(folder: Path, only: list[str]) -> None:
    """Write all mutants into one copy of the source, in which the environment says which of them is active."""
    os.chdir(folder)  # mutmut's settings and folders are the current one's
    from mutmut import __main__ as mutmut  # noqa: PLC0415

    mutmut.config().only_mutate = only or mutmut.config().only_mutate
    (folder / "mutants").mkdir(exist_ok=True)
    shutil.rmtree(folder / "mutants" / "tests", ignore_errors=True)  # mutmut deletes nothing
    for file in (folder / "mutants" / "src").rglob("*.py"):
        if not (ROOT / file.relative_to(folder / "mutants")).exists():
            file.unlink()
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        mutmut.copy_src_dir()
        mutmut.copy_also_copy_files()
        mutmut.create_mutants(max_children=2)


def _files(name: str) -> list[Path]:
    return [
        file for file in [ROOT / name, *sorted((ROOT / name).rglob("*"))] if file.is_file() and file.suffix != ".pyc"
    ]


def _digest(files: Iterable[Path]) -> str:
    return hashlib.sha256(b"".join(str(file).encode() + file.read_bytes() for file in files)).hexdigest()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
