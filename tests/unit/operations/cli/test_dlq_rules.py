"""What the flags of `receiver dlq redrive` allow, each by itself, and which queue holds dead letters."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from idempotent_receiver.clock import SystemClock
from idempotent_receiver.protocol.record import DEFAULT_RETENTION_SECONDS
from tests.unit.operations.cli.stack import Receiver, Stack, denied

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("flags", "verdicts"),
    [
        ((), {"TOO_OLD": 1, "PERMANENT": 1}),
        (("--include-permanent",), {"TOO_OLD": 2}),
        (("--force",), {"MOVE": 1, "PERMANENT": 1}),
        (("--include-permanent", "--force"), {"MOVE": 2}),
    ],
)
def test_what_failed_for_good_and_what_is_too_old_are_allowed_apart(
    receiver: Receiver,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    flags: tuple[str, ...],
    verdicts: dict[str, int],
) -> None:
    """In the plan as well, which is carried out by the flags with which it was made."""
    saved = tmp_path / "plan.json"
    late_ms = SystemClock().epoch_ms() + 1000 * DEFAULT_RETENTION_SECONDS + 60_000
    monkeypatch.setattr(SystemClock, "epoch_ms", lambda clock: late_ms)

    ran = receiver.on("dlq redrive --json --save-plan", str(saved), *flags)

    assert ran.json["plan"] == {"DONE": 1, "CONFLICT": 1, **verdicts}
    kept = json.loads(saved.read_text())["options"]
    assert [kept["include_permanent"], kept["force"]] == [flag in flags for flag in ("--include-permanent", "--force")]


@pytest.mark.parametrize("refused", [(), ("ListDeadLetterSourceQueues",)])
def test_a_consumer_without_a_redrive_policy_makes_no_queue_a_dead_letter_queue(
    receiver: Receiver, stack: Stack, refused: tuple[str, ...]
) -> None:
    """Whether or not SQS tells whose dead-letter queue it is: it may hold live messages."""
    alone, live = (stack.sqs.create_queue(QueueName=name)["QueueUrl"] for name in ("alone", "live"))
    line = f"dlq list --queue {alone} --dlq {live} --table records --consumer ids.json"

    with denied(*refused or ("none",)):
        ran = receiver(line)

    assert (ran.code, "SQS lists no queue that uses it as a dead-letter queue" in ran.err) == (2, True)
