"""What became of a message is told by its record and its dead letter: the answer alone does not say."""

from __future__ import annotations

import json

import pytest

from local.invoke import ending, summary
from local.workload.evidence import DeadLetter

LETTER = DeadLetter(message_id="m-1", reason="account alice is unknown", receipt_handle="r")
PERMANENT = {
    "status": "FAILED",
    "error": json.dumps({"type": "PermanentError", "text": "overdrawn", "permanent": True}),
}
FOR_NOW = {"status": "FAILED", "error": json.dumps({"type": "TimeoutError", "at": "app.ledger.post:7"})}
DONE = {"status": "COMPLETED"}


@pytest.mark.parametrize(
    ("acknowledged", "record", "letter", "told"),
    [
        (True, DONE, None, ["1 acknowledged: 1 completed."]),
        (
            True,
            PERMANENT,
            LETTER,
            ["1 acknowledged: 1 dead-lettered.", "  m-1 dead-lettered: account alice is unknown"],
        ),
        (False, PERMANENT, None, ["1 to come again: 1 failed for good.", "  m-1 failed for good: overdrawn"]),
        (False, FOR_NOW, None, ["1 to come again: 1 to be tried again.", "  m-1 to be tried again: TimeoutError"]),
        (False, {}, None, ["1 to come again: 1 to be tried again.", "  m-1 to be tried again: it was not run"]),
        (True, {}, None, ["1 acknowledged: 1 unknown.", "  m-1 unknown: its record is under a key of another kind"]),
    ],
)
def test_a_message_ended_as_answer_record_and_dead_letter_say(
    acknowledged: bool, record: dict[str, str], letter: DeadLetter | None, told: list[str]
) -> None:
    assert list(summary([ending("m-1", acknowledged, record, letter)])) == told


def test_messages_are_counted_by_how_they_ended() -> None:
    found = [ending(f"m-{place}", True, DONE, None) for place in range(2)]
    found += [ending("m-2", True, PERMANENT, LETTER), ending("m-3", False, FOR_NOW, None)]
    first, *_ = summary(found)
    assert first == "3 acknowledged: 2 completed, 1 dead-lettered; 1 to come again: 1 to be tried again."


def test_of_a_batch_without_messages_that_is_said() -> None:
    assert list(summary([])) == ["no messages."]
