"""What the flags of `receiver dlq redrive` allow, each by itself, and which queue holds dead letters."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from idempotent_receiver.clock import SystemClock
from idempotent_receiver.operations.cli import terminal
from idempotent_receiver.protocol.record import DEFAULT_RETENTION_SECONDS
from tests.unit.operations.cli.stack import ACTING, ARN, FLAKY, Receiver, Stack, answered, denied

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


@pytest.mark.parametrize(
    "line", ["dlq list", *(each for each in ACTING if "from-archive" not in each), f"trace {FLAKY}"]
)
def test_a_dead_letter_queue_that_sqs_empties_by_itself_is_not_even_read(
    receiver: Receiver, stack: Stack, line: str
) -> None:
    """To look at a letter counts as a receive, and with a redrive policy SQS moves it away for that."""
    (third, _) = stack.queues("third")
    policy = json.dumps({"deadLetterTargetArn": f"{ARN}:third", "maxReceiveCount": 1})
    stack.sqs.set_queue_attributes(QueueUrl=stack.dead, Attributes={"RedrivePolicy": policy})
    received: list[str] = []
    with answered(lambda operation, arguments: received.append(operation) if operation == "ReceiveMessage" else None):
        ran = receiver.on(line)
    assert (ran.code, received) == (terminal.Exit.LEFT if "trace" in line else terminal.Exit.USAGE, [])
    assert f"{stack.dead_arn} has a redrive policy of its own" in ran.said
    assert f"received too often to {ARN}:third. Remove that policy first" in ran.said
    assert stack.received(third) == []
