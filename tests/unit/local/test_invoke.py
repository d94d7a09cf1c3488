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
