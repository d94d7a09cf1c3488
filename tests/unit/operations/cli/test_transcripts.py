"""What each command answers, whole: to people, to scripts, and by its exit code.

`make transcripts` writes the files anew. Read what has changed in them before you commit it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from idempotent_receiver.operations.dead_letters.history import Verb
from tests.unit.operations.cli.stack import CLOSED, DEAD, Receiver, Stack
from tests.unit.operations.cli.transcript import played

if TYPE_CHECKING:
    from tests.unit.operations.cli.history import Kept

FILES = {
    file: file.read_text().strip().split("\n\n") for file in sorted(Path(__file__).parent.glob("transcripts/*.txt"))
}
"""A file for each command; each of its parts begins with a fresh stack."""
PARTS = [(file, place) for file, parts in FILES.items() for place in range(len(parts))]


@pytest.mark.parametrize(("file", "place"), PARTS, ids=[f"{file.stem}-{place}" for file, place in PARTS])
def test_a_command_answers_people_scripts_and_shells(
    receiver: Receiver, stack: Stack, kept: Kept, file: Path, place: int
) -> None:
    """And where each is refused, nothing is done."""
    kept.done(30, CLOSED, verb=Verb.ARCHIVED, why="account closed")
    kept.begin(20)
    before = (stack.acts, sorted(Path().iterdir()))
    answered = played(receiver, stack, FILES[file][place])
    if "UPDATE" in os.environ:
        FILES[file][place] = answered
        file.write_text("\n\n".join(FILES[file]) + "\n")
    assert answered == FILES[file][place]
    assert "Traceback" not in answered
    if set(re.findall(r"(?m)^= (\d+)$", answered)) == {"2"}:
        assert not re.search(r"(?m)^\|", answered)
        assert (stack.acts, sorted(Path().iterdir())) == before
        assert (stack.keys_in(stack.queue), stack.keys_in(stack.dead)) == (set(), DEAD)
