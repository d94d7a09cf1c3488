"""`python -m tests.mutation …`: writes the mutants into `.build/mutation`, and there runs `tests.mutation.score`.

Verdicts are kept until the source or a test changes, so a run that was interrupted goes on where it was.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".build" / "mutation"
JUDGED_BY = ["src", "tests", "pyproject.toml", "uv.lock"]


def main(arguments: list[str]) -> int:
    """Prepare the folder, and score what is in it."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for entry in ROOT.iterdir():
        link = FOLDER / entry.name
        if not entry.name.startswith(".") and not link.is_symlink():
            link.symlink_to(entry)
    source = _digest(file for name in JUDGED_BY for file in _files(name) if not file.name.startswith("test_"))
    everything = _digest(file for name in JUDGED_BY for file in _files(name))
    if not (stamp := FOLDER / "digest").exists() or stamp.read_text() != everything:
        (FOLDER / "verdicts.txt").unlink(missing_ok=True)
        generate()
        stamp.write_text(everything)
    (FOLDER / "observed").mkdir(exist_ok=True)
    environment = os.environ | {"PYTHONPATH": str(FOLDER / "mutants" / "src"), "TMPDIR": str(FOLDER / "tmp")}
    environment.pop("SEED", None)  # make exports it, and to a judge it would mean one world of a hundred
    shutil.rmtree(FOLDER / "tmp", ignore_errors=True)
    (FOLDER / "tmp").mkdir()
    command = [sys.executable, "-m", "tests.mutation.score", "--base", source, *arguments]
    return subprocess.run(command, cwd=FOLDER / "mutants", env=environment, check=False).returncode


def generate() -> None:
    """Write all mutants into one copy of the source, in which the environment says which of them is active."""
    os.chdir(FOLDER)  # mutmut's settings and folders are the current one's
    from mutmut import __main__ as mutmut  # noqa: PLC0415

    (FOLDER / "mutants").mkdir(exist_ok=True)
    shutil.rmtree(FOLDER / "mutants" / "tests", ignore_errors=True)  # mutmut deletes nothing
    for file in (FOLDER / "mutants" / "src").rglob("*.py"):
        if not (ROOT / file.relative_to(FOLDER / "mutants")).exists():
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
