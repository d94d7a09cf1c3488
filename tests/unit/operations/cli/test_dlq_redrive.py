"""`receiver dlq redrive`: its plan, its question, what it did and what became of it."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from idempotent_receiver.operations.cli import terminal
from idempotent_receiver.operations.dead_letters import following, queue
from idempotent_receiver.operations.dead_letters.queue import DeadLetterQueue
from tests.unit.operations.cli.stack import (
    CLOSED,
    CONFLICT,
    DEAD,
    DONE,
    FLAKY,
    TRANSIENT,
    Receiver,
    Stack,
    answered,
    denied,
)


def test_redrive_tells_its_plan_and_does_it_and_keeps_who_did_what_to_which_and_why(
    receiver: Receiver, stack: Stack
) -> None:
    ran = receiver.on("dlq redrive --yes --json")
    assert ran.json["plan"] == {"MOVE": 1, "DONE": 1, "CONFLICT": 1, "PERMANENT": 1}
    assert (ran.code, ran.json["moved"], ran.json["dropped"]) == (1, 1, 1)
    assert (stack.keys_in(stack.queue), stack.keys_in(stack.dead)) == ({FLAKY}, {CONFLICT, CLOSED})
    assert {(each["key"], each["verb"], each["outcome"], each["why"]) for each in stack.acts} == {
        (DONE, "dropped", "done", "its record is COMPLETED, with the same payload"),
        (FLAKY, "moved", "done", "it failed on attempt 5 and may be tried again"),
    }
    for each in stack.acts:
        assert (each["queue"], each["dead_letter_queue"]) == (stack.arn, stack.dead_arn)
        assert each["operator"].startswith("arn:aws:")
    assert len({each["plan"] for each in stack.acts}) == 1


def test_the_plan_and_the_question_know_the_limit_and_the_rest_is_left(
    receiver: Receiver, stack: Stack, typed: Any
) -> None:
    for number in range(5):
        stack.bury(f"m-{number}")
    line = "dlq redrive --limit 1 --matching 'received too many times without a record'"
    typed("y\n")
    ran = receiver.on(f"{line} --json")
    assert (ran.code, ran.json["plan"]) == (1, {"MOVE": 1, "BEYOND_LIMIT": 4})
    assert (ran.json["moved"], len(ran.json["left"]), ran.json["beyond_limit"]) == (1, 4, True)
    assert receiver.on(f"{line} --yes --json").json["moved"] == 1


@pytest.mark.parametrize("answer", ["n\n", "", "\n"])
def test_redrive_without_a_yes_does_nothing(receiver: Receiver, stack: Stack, answer: str, typed: Any) -> None:
    typed(answer)
    ran = receiver.on("dlq redrive --json")
    assert (ran.code, ran.json["confirmed"], ran.json["moved"]) == (1, False, 0)
    assert {each["key"] for each in ran.json["left"]} == DEAD
    assert stack.untouched()


def test_what_comes_up_behind_is_not_moved_without_a_yes_either(receiver: Receiver, stack: Stack, typed: Any) -> None:
    """On a FIFO queue ten of a group that stay may hide one that would go."""
    _, dead = stack.queues("t", ".fifo")
    for number in range(10):
        stack.bury(f"m-{number}", url=dead, reason="account closed")
    stack.bury("behind", url=dead)
    typed("n\n")
    ran = receiver(f"dlq redrive --queue t.fifo --dlq {dead} --table records --consumer ids.json --json")
    assert "SQS delivers no other messages of their groups" in ran.err
    assert re.search(r"Move or drop (1 dead letter and )?any that appear later\? \[y/N\]", ran.err)
    assert (ran.code, ran.json["moved"]) == (1, 0)


@pytest.mark.parametrize(("unseen", "code"), [(0, terminal.Exit.OK), (1, terminal.Exit.LEFT)])
def test_redrive_has_not_done_it_all_while_there_are_letters_that_it_has_not_seen(
    receiver: Receiver, stack: Stack, monkeypatch: pytest.MonkeyPatch, unseen: int, code: terminal.Exit
) -> None:
    """A script that asks for everything must not take it for done."""
    _, dead = stack.queues("t", ".fifo")
    stack.bury("never-run", url=dead)
    monkeypatch.setattr(DeadLetterQueue, "unseen", lambda self: unseen)
    ran = receiver(f"dlq redrive --queue t.fifo --dlq {dead} --table records --consumer ids.json --yes --json")
    assert (ran.json["moved"], ran.json["unseen"], ran.code) == (1, unseen, code)


@pytest.mark.parametrize(
    ("operation", "options", "dead"),
    [("SendMessageBatch", "", DEAD - {DONE}), ("BatchWriteItem", "", DEAD), (None, "--history missing", DEAD)],
)
def test_redrive_says_so_where_aws_fails_and_that_it_can_be_started_again(
    receiver: Receiver, stack: Stack, operation: str | None, options: str, dead: set[str]
) -> None:
    """What the history does not take is not done."""
    with denied(operation or "none"):
        ran = receiver.on(f"dlq redrive --yes {options}")
    assert ran.code == terminal.Exit.AWS
    assert (stack.keys_in(stack.queue), stack.keys_in(stack.dead)) == (set(), dead)


def test_redrive_names_what_sqs_would_not_delete_and_ends_with_1(receiver: Receiver, stack: Stack) -> None:
    """Of two in one call, the first is refused for good, and the second is throttled and goes at the next try."""
    stack.bury("never-run")
    refused: list[str] = []

    def answer(operation: str, arguments: Any) -> Any:
        if operation != "DeleteMessageBatch" or refused or len(arguments["Entries"]) == 1:
            return None
        refused.append(arguments["Entries"][0]["ReceiptHandle"])
        codes = [{"Code": "ReceiptHandleIsInvalid", "SenderFault": True}, {"Code": "Throttled", "SenderFault": False}]
        return {"Failed": [{"Id": str(place), **code} for place, code in enumerate(codes)]}

    with answered(answer):
        ran = receiver.on(f"dlq redrive --yes --key {FLAKY} --key never-run")
    (left,) = stack.keys_in(stack.dead) & {FLAKY, "never-run"}
    assert next(line for line in ran.out.splitlines() if line.startswith(left)).endswith("MOVE")
    assert "it could not be deleted: SQS refused it: ReceiptHandleIsInvalid; its copy was sent" in ran.out
    assert "2 moved, 0 dropped as done, 0 left in place.\n1 not deleted" in ran.out
    assert ran.code == terminal.Exit.LEFT


def test_of_another_queues_dead_letters_only_what_says_that_it_came_from_ours_is_moved(
    receiver: Receiver, stack: Stack
) -> None:
    """Such as the dead-letter queue that the consumer had before, once another has it."""
    _, other = stack.queues("others")
    stack.bury("ours", url=other)
    stack.sqs.send_message(QueueUrl=other, MessageBody="whose?")
    ran = receiver.on("dlq redrive --dlq others-dead --yes --json")
    assert (ran.code, ran.json["plan"]) == (1, {"MOVE": 1, "FOREIGN": 1})
    assert stack.keys_in(stack.queue) == {"ours"}


# What others hold, and what becomes of what was moved.


@pytest.mark.parametrize("line", ["dlq list", "dlq redrive --yes", "dlq redrive"])
def test_what_a_killed_redrive_holds_is_said_and_has_an_exit_code_of_its_own(
    receiver: Receiver, stack: Stack, line: str
) -> None:
    assert len(stack.received(stack.dead)) == 4
    ran = receiver.on(f"{line} --hold 200 --json")
    assert (ran.code, ran.json["held_elsewhere"]) == (terminal.Exit.HELD, 4)
    said = re.search(r"About 4 of 4 dead letters are held by another session, .* become visible by (\S+),", ran.err)
    assert said is not None
    assert timedelta(seconds=190) < datetime.fromisoformat(said[1]) - datetime.now(UTC) < timedelta(seconds=201)


def test_redrive_waits_for_what_another_session_holds_if_the_operator_says_so(
    receiver: Receiver, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "POLL_SECONDS", 0.1)
    for question in ("offer", "confirm"):
        monkeypatch.setattr(terminal.Terminal, question, lambda *question, **yes: True)
    held = stack.sqs.receive_message(QueueUrl=stack.dead, MaxNumberOfMessages=4, VisibilityTimeout=1)["Messages"]
    ran = receiver.on("dlq redrive --json --hold 5")
    assert (len(held), ran.code, ran.json["held_elsewhere"], ran.json["moved"]) == (4, terminal.Exit.LEFT, 0, 1)
    assert stack.keys_in(stack.queue) == {FLAKY}


@pytest.fixture
def looks(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let something happen before the first look at what was moved; the looks so far."""
    monkeypatch.setattr(following, "POLL_SECONDS", 0.01)
    look, made = following.Following._read_records, []

    def before_the_first(happens: Any) -> list[int]:
        def looked(self: Any) -> None:
            if not made:
                happens()
            made.append(1)
            look(self)

        monkeypatch.setattr(following.Following, "_read_records", looked)
        return made

    return before_the_first


def test_wait_tells_what_became_of_what_was_moved(
    receiver: Receiver, stack: Stack, looks: Any, bars: list[Any]
) -> None:
    """One completes, one fails again, one is dead again, and nobody has handled the fourth."""
    for key in ("completes", "dies", "waits"):
        stack.bury(key, key)

    def handled() -> None:
        stack.record("completes", "COMPLETED", "completes")
        stack.record(FLAKY, "FAILED", "flaky", error=TRANSIENT, version="v2")
        stack.bury("dies", "dies")

    made = looks(handled)
    keys = " ".join(f"--key {key}" for key in (FLAKY, "completes", "dies", "waits"))
    ran = receiver.on(f"dlq redrive --yes {keys} --wait=1 --json")
    told = ran.json["followed"]
    not_completed = {each["key"]: each["fate"] for each in told.pop("not_completed")}
    assert (ran.code, told) == (terminal.Exit.LEFT, {"completed": 1, "dead": 1, "failed": 1, "waiting": 1})
    assert not_completed == {FLAKY: "failed again", "dies": "dead again", "waits": "waiting"}
    assert len(made) > 1
    assert [[*bar[:2], bar[-1]] for bar in bars] == [["moving", 4, (4, 4)], ["completed", 4, (1, 4)]]


@pytest.mark.parametrize("dies", [True, False])
def test_wait_names_the_command_that_says_why_or_ends_well(
    receiver: Receiver, stack: Stack, looks: Any, dies: bool
) -> None:
    looks(lambda: stack.bury(FLAKY, "flaky") if dies else stack.record(FLAKY, "COMPLETED", "flaky"))
    ran = receiver.on(f"dlq redrive --yes --key {FLAKY}", "--wait=1" if dies else "--wait")
    assert ran.code == (terminal.Exit.LEFT if dies else terminal.Exit.OK)
    assert ("`dlq list` shows the cause" if dies else "1  completed  handled") in ran.out
    assert (FLAKY in ran.out) is dies, "what is not completed is named"
