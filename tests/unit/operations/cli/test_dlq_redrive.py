"""`receiver dlq redrive`: its plan, its question, what it did and what became of it."""

from __future__ import annotations

import io
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.client import BaseClient
from botocore.exceptions import ClientError

from idempotent_receiver.errors import Failure
from idempotent_receiver.operations.cli import terminal
from idempotent_receiver.operations.dead_letters import following, queue
from tests.unit.operations.cli.stack import ARGUMENTS, CLOSED, COMMANDS, CONFLICT, DONE, FLAKY, Receiver, Stack


def test_redrive_tells_its_plan_and_does_it(receiver: Receiver, stack: Stack) -> None:
    ran = receiver("dlq", "redrive", "--stack", "transfers", "--yes", "--json")
    assert ran.json["plan"] == {"MOVE": 1, "DONE": 1, "CONFLICT": 1, "PERMANENT": 1}
    assert (ran.code, ran.json["moved"], ran.json["dropped"]) == (1, 1, 1)
    assert stack.keys_in(stack.queue) == {FLAKY}
    assert stack.keys_in(stack.dead) == {CONFLICT, CLOSED}


def test_the_plan_says_of_each_dead_letter_that_failed_for_good_of_what(receiver: Receiver, stack: Stack) -> None:
    suspended = Failure(type="PermanentError", text="payee suspended", permanent=True).to_json()
    stack.record("s", "FAILED", "the body of s", error=suspended)
    stack.bury("s", "the body of s")
    shown = receiver("dlq", "redrive", "--stack", "transfers", "--yes").out
    for reason in ("account closed", "payee suspended"):
        assert f"it failed for good: {reason}; --include-permanent once the cause is fixed" in shown
    assert "the body of s" not in shown


def test_redrive_with_nothing_left_ends_well(receiver: Receiver, stack: Stack) -> None:
    ran = receiver("dlq", "redrive", "--stack", "transfers", "--yes", "--reason", "connection")
    assert (ran.code, "1 moved, 0 dropped as done, 0 left" in ran.out) == (0, True)
    assert stack.keys_in(stack.queue) == {FLAKY}


def test_the_plan_and_the_question_know_the_limit_and_the_rest_is_left(
    receiver: Receiver, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        stack.bury(f"m-{number}", "b")
    flags = ("--stack", "transfers", "--limit", "1", "--reason", "received too often, and never")
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    ran = receiver("dlq", "redrive", *flags, "--json")
    assert "Move or drop 1 dead letter? [y/N]" in ran.err
    assert re.search(r"\b4 +BEYOND_LIMIT +stays for now", ran.err)
    assert (ran.code, ran.json["plan"]) == (1, {"MOVE": 1, "BEYOND_LIMIT": 4})
    assert (ran.json["moved"], len(ran.json["left"]), ran.json["beyond_limit"]) == (1, 4, True)
    assert {each["why"] for each in ran.json["left"]} == {"more than --limit allows: run again for it"}
    told = receiver("dlq", "redrive", *flags, "--yes").out
    assert "1 moved, 0 dropped as done, 3 left in place." in told


@pytest.mark.parametrize("answer", ["n\n", "", "\n"])
def test_redrive_without_a_yes_does_nothing(
    receiver: Receiver, stack: Stack, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    ran = receiver("dlq", "redrive", "--stack", "transfers", "--json")
    assert (ran.code, ran.json["confirmed"], ran.json["moved"]) == (1, False, 0)
    assert "Move or drop 2 dead letters? [y/N]" in ran.err
    assert stack.keys_in(stack.queue) == set()
    assert len(stack.keys_in(stack.dead)) == 4


@pytest.mark.parametrize(
    ("option", "says"),
    [("--key", "of the key nosuch."), ("--reason", 'with "nosuch" in their reason or error type.')],
)
def test_redrive_of_what_is_not_there_names_it_and_is_not_found(receiver: Receiver, option: str, says: str) -> None:
    ran = receiver("dlq", "redrive", "--stack", "transfers", "--yes", option, "nosuch")
    assert (ran.code, f"There are no visible dead letters {says}" in ran.out) == (terminal.Exit.LEFT, True)


def test_one_is_not_spoken_of_as_many(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert (
        "Nothing was done: 1 dead letter left in place."
        in receiver("dlq", "redrive", "--stack", "transfers", "--key", FLAKY).out
    )
    shown = receiver("stuck", "--stack", "transfers", "--yes").out
    assert shown.startswith("5 records: 1 claim that nobody settled, 0 released and waiting, 2 keys failing, 1 failed")


def test_what_was_not_confirmed_is_said_to_stay(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("n\nn\n"))
    ran = receiver("dlq", "redrive", "--stack", "transfers")
    assert (ran.code, "Nothing was done: 4 dead letters left in place." in ran.out) == (1, True)
    told = receiver("dlq", "redrive", "--stack", "transfers", "--json").json
    assert {each["key"] for each in told["left"]} == {DONE, FLAKY, CONFLICT, CLOSED}
    assert {each["key"] for each in told["left"] if each["why"] == "it was not confirmed"} == {DONE, FLAKY}


def test_what_comes_up_behind_is_not_moved_without_a_yes_either(
    receiver: Receiver, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a FIFO queue ten of a group that stay may hide one that would go."""
    dead = stack.fifo()
    for number in range(10):
        stack.bury(f"m-{number}", "b", url=dead, reason="account closed")
    stack.bury("behind", "b", url=dead)
    flags = ("--queue", "t.fifo", "--dlq", dead, "--table", "records", "--key-strategy", "message_id", "--json")
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    ran = receiver("dlq", "redrive", *flags)
    assert "While dead letters are held, SQS gives out nothing more of their groups" in ran.err
    assert re.search(r"Move or drop (1 dead letter and )?what comes up behind\? \[y/N\]", ran.err)
    assert (ran.code, ran.json["moved"]) == (1, 0)


def test_redrive_says_so_where_aws_fails_and_that_it_can_be_started_again(
    receiver: Receiver, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Any, operation: str, arguments: Any, found: Any = BaseClient._make_api_call) -> Any:
        if operation == "SendMessageBatch":
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": "not allowed"}}, operation)
        return found(self, operation, arguments)

    monkeypatch.setattr(BaseClient, "_make_api_call", refuse)
    ran = receiver("dlq", "redrive", "--stack", "transfers", "--yes")
    assert ran.code == terminal.Exit.AWS
    assert "It is safe to start again." in ran.err
    assert "AccessDenied" in ran.err.splitlines()[-1] or "not allowed" in ran.err
    assert "Traceback" not in ran.err
    assert len(stack.keys_in(stack.dead)) == 3, "what was done was dropped, and the rest was given back"


def test_redrive_names_what_sqs_would_not_delete_and_ends_with_1(
    receiver: Receiver, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two in one call, the first is refused for good, and the second is throttled and goes at the next try."""
    stack.bury("never-run", "b")
    refused: list[str] = []

    def answer(self: Any, operation: str, arguments: Any, found: Any = BaseClient._make_api_call) -> Any:
        if operation != "DeleteMessageBatch" or refused or len(arguments["Entries"]) == 1:
            return found(self, operation, arguments)
        refused.append(arguments["Entries"][0]["ReceiptHandle"])
        codes = [{"Code": "ReceiptHandleIsInvalid", "SenderFault": True}, {"Code": "Throttled", "SenderFault": False}]
        return {"Failed": [{"Id": str(place), **code} for place, code in enumerate(codes)]}

    monkeypatch.setattr(BaseClient, "_make_api_call", answer)
    ran = receiver("dlq", "redrive", "--stack", "transfers", "--yes", "--key", FLAKY, "--key", "never-run")
    (left,) = stack.keys_in(stack.dead) & {FLAKY, "never-run"}
    named = next(line for line in ran.out.splitlines() if line.startswith(left))
    assert named.endswith("MOVE")
    assert "it could not be deleted: ReceiptHandleIsInvalid; its copy was sent" in ran.out
    assert "2 moved, 0 dropped as done, 0 left in place.\n1 not deleted" in ran.out
    assert ran.code == terminal.Exit.LEFT


@pytest.mark.parametrize("command", [("list",), ("redrive", "--yes")], ids=" ".join)
@pytest.mark.parametrize("denied", [False, True], ids=["", "though SQS does not say whose any queue is"])
def test_a_queue_that_is_no_dead_letter_queue_is_refused_and_keeps_its_messages(
    receiver: Receiver, stack: Stack, command: tuple[str, ...], denied: bool, request: pytest.FixtureRequest
) -> None:
    if denied:
        request.getfixturevalue("unsaid")
    live = stack.sqs.create_queue(QueueName="orders")["QueueUrl"]
    stack.sqs.send_message(QueueUrl=live, MessageBody="live")
    ran = receiver("dlq", *command, "--stack", "transfers", "--dlq", "orders")
    assert (ran.code, "orders is no dead-letter queue that SQS knows of" in ran.err) == (2, True)
    assert f"(it has {stack.dead_arn})" in ran.err
    assert ran.err.rstrip().endswith("correct --dlq")
    ran = receiver("dlq", *command, "--stack", "transfers", "--dlq", stack.arn)
    assert (ran.code, "is the consumer's queue itself: correct --dlq" in ran.err) == (2, True)
    (message,) = stack.sqs.receive_message(QueueUrl=live, AttributeNames=["All"])["Messages"]
    assert message["Attributes"]["ApproximateReceiveCount"] == "1", "nobody has received it before"


def test_of_another_queues_dead_letters_only_what_says_that_it_came_from_ours_is_moved(
    receiver: Receiver, stack: Stack
) -> None:
    """Such as the dead-letter queue that the consumer had before, once another has it."""
    other = stack.sqs.create_queue(QueueName="others-dead")["QueueUrl"]
    policy = json.dumps({"deadLetterTargetArn": stack.dead_arn.replace("transfers", "others"), "maxReceiveCount": 5})
    stack.sqs.create_queue(QueueName="others", Attributes={"RedrivePolicy": policy})
    stack.bury("ours", "b", url=other)
    stack.sqs.send_message(QueueUrl=other, MessageBody="whose?")
    ran = receiver("dlq", "redrive", "--stack", "transfers", "--dlq", "others-dead", "--yes", "--json")
    assert (ran.code, ran.json["plan"]) == (1, {"MOVE": 1, "FOREIGN": 1})
    assert stack.keys_in(stack.queue) == {"ours"}


def held_by_another(stack: Stack, count: int, seconds: int) -> None:
    got = stack.sqs.receive_message(QueueUrl=stack.dead, MaxNumberOfMessages=count, VisibilityTimeout=seconds)
    assert len(got["Messages"]) == count


@pytest.mark.parametrize("command", [("list",), ("redrive", "--yes"), ("redrive",)], ids=" ".join)
def test_what_a_killed_redrive_holds_is_said_and_has_an_exit_code_of_its_own(
    receiver: Receiver, stack: Stack, command: tuple[str, ...]
) -> None:
    held_by_another(stack, 4, 300)
    ran = receiver("dlq", *command, "--stack", "transfers", "--hold", "200", "--json")
    assert (ran.code, ran.json["held_elsewhere"]) == (terminal.Exit.HELD, 4)
    said = re.search(r"About 4 of 4 dead letters are held by another session, .* come up by (\S+) at", ran.err)
    assert said is not None
    until = datetime.fromisoformat(said[1])
    assert timedelta(seconds=190) < until - datetime.now(UTC) < timedelta(seconds=201)


def test_redrive_waits_for_what_another_session_holds_if_it_is_told_to(
    receiver: Receiver, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "POLL_SECONDS", 0.1)
    held_by_another(stack, 4, 1)
    ran = receiver("dlq", "redrive", "--stack", "transfers", "--yes", "--json", "--wait-held", "--hold", "5")
    assert (ran.code, ran.json["held_elsewhere"], ran.json["moved"]) == (terminal.Exit.LEFT, 0, 1)
    assert stack.keys_in(stack.queue) == {FLAKY}


def test_the_plan_says_how_long_it_takes(receiver: Receiver, stack: Stack, tmp_path: Path) -> None:
    for number in range(29):
        stack.bury(f"m-{number}", "b")
    to_file = ("--save-plan", str(tmp_path / "plan.json"))
    ran = receiver("dlq", "redrive", "--stack", "transfers", "--rate", "10", *to_file, "--json")
    assert "At 10 messages a second, this takes about 3 s (see --rate)." in ran.err


def test_a_redrive_keeps_who_did_what_to_which_and_why(receiver: Receiver, stack: Stack) -> None:
    receiver("dlq", "redrive", "--stack", "transfers", "--yes")
    acts = [
        {name: next(iter(held.values())) for name, held in each.items()}
        for each in stack.dynamodb.scan(TableName="history")["Items"]
    ]
    assert {(each["key"], each["verb"], each["outcome"]) for each in acts} == {
        (DONE, "dropped", "done"),
        (FLAKY, "moved", "done"),
    }
    for each in acts:
        assert (each["queue"], each["dead_letter_queue"]) == (stack.arn, stack.dead_arn)
        assert each["operator"].startswith("arn:aws:")
    assert {each["why"] for each in acts} == {
        "its record is COMPLETED, with the same payload",
        "it failed at attempt 5 and may be tried again",
    }
    assert len({each["plan"] for each in acts}) == 1


def test_what_the_history_does_not_take_is_not_done(receiver: Receiver, stack: Stack) -> None:
    ran = receiver("dlq", "redrive", "--stack", "transfers", "--yes", "--history", "missing")
    assert (ran.code, "It is safe to start again." in ran.err) == (terminal.Exit.AWS, True)
    assert "missing" in ran.err.splitlines()[-1]
    assert "0 moved, 0 dropped as done, 4 left in place." in ran.out
    assert (stack.keys_in(stack.queue), len(stack.keys_in(stack.dead))) == (set(), 4)


def test_wait_tells_what_became_of_what_was_moved(
    receiver: Receiver, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One completes, one fails again, one is dead again, and nobody has handled the fourth."""
    monkeypatch.setattr(following, "POLL_SECONDS", 0.01)
    for key in ("completes", "dies", "waits"):
        stack.bury(key, key)
    flags = ("--stack", "transfers", "--yes", *(f"--key={key}" for key in (FLAKY, "completes", "dies", "waits")))
    looks: list[str] = []
    look = following.Following._read_records

    def handled(self: Any) -> None:
        if not looks:
            again = Failure(type="ConnectionError").to_json()
            stack.record("completes", "COMPLETED", "completes")
            stack.record(FLAKY, "FAILED", "flaky", error=again, version="v2")
            stack.bury("dies", "dies")
        looks.append("one")
        look(self)

    monkeypatch.setattr(following.Following, "_read_records", handled)
    ran = receiver("dlq", "redrive", *flags, "--wait-seconds", "1", "--json")
    assert ran.code == terminal.Exit.LEFT
    told = ran.json["followed"]
    not_completed = {each["key"]: each["fate"] for each in told.pop("not_completed")}
    assert told == {"completed": 1, "dead": 1, "failed": 1, "waiting": 1}
    assert not_completed == {FLAKY: "failed again", "dies": "dead again", "waits": "waiting"}
    assert len(looks) > 1


def test_of_what_is_dead_again_the_command_is_named_that_says_why(
    receiver: Receiver, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = following.Following._read_records

    def buried(self: Any) -> None:
        stack.bury(FLAKY, "flaky")
        look(self)

    monkeypatch.setattr(following.Following, "_read_records", buried)
    ran = receiver("dlq", "redrive", "--stack", "transfers", "--yes", "--key", FLAKY, "--wait-seconds", "1")
    assert (ran.code, "in the dead-letter queue once more: `dlq list` says why" in ran.out) == (
        terminal.Exit.LEFT,
        True,
    )


def test_wait_ends_well_once_all_is_completed(
    receiver: Receiver, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = following.Following._read_records

    def handled(self: Any) -> None:
        stack.record(FLAKY, "COMPLETED", "flaky")
        look(self)

    monkeypatch.setattr(following.Following, "_read_records", handled)
    ran = receiver("dlq", "redrive", "--stack", "transfers", "--yes", "--key", FLAKY, "--wait")
    assert (ran.code, "1  completed  handled" in ran.out) == (terminal.Exit.OK, True)


@pytest.mark.parametrize("command", [each for each in COMMANDS if each != ("trace",)], ids=" ".join)
def test_without_any_permission_a_command_says_what_aws_refused_and_nothing_is_changed(
    receiver: Receiver, stack: Stack, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trace tells the rest of the story, and has tests of its own."""

    def refuse(self: Any, operation: str, arguments: Any, found: Any = BaseClient._make_api_call) -> Any:
        if operation in ("DescribeStacks", "DescribeStackResources"):
            return found(self, operation, arguments)
        raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "not allowed"}}, operation)

    with monkeypatch.context() as denying:
        denying.setattr(BaseClient, "_make_api_call", refuse)
        ran = receiver(*command, *ARGUMENTS.get(command[-1], ["--yes"]), "--stack", "transfers")
    assert (ran.code, ran.out) == (terminal.Exit.AWS, "")
    assert "AccessDenied" in ran.err
    assert "Traceback" not in ran.err
    assert not list(Path().glob("letters*"))
    assert len(stack.keys_in(stack.dead)) == 4
