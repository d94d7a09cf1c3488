"""What each command answers, whole: to people, to scripts, and by its exit code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from idempotent_receiver.operations.dead_letters.history import Verb
from tests.unit.operations.cli.stack import CLOSED, Receiver
from tests.unit.operations.cli.transcripts import played

if TYPE_CHECKING:
    from tests.unit.operations.cli.history import Kept

TRANSCRIPTS = Path(__file__).with_name("transcripts.txt").read_text().strip().split("\n\n")
"""Each begins with a fresh stack."""


@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=lambda each: each.splitlines()[0].removeprefix("$ "))
def test_a_command_answers_people_scripts_and_shells(receiver: Receiver, kept: Kept, transcript: str) -> None:
    kept.done(30, CLOSED, verb=Verb.ARCHIVED, why="account closed")
    kept.begin(20)
    assert played(receiver, transcript) == transcript
