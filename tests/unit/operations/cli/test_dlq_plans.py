"""`receiver dlq redrive --save-plan` and `--plan`: what was reviewed is what is done."""

from __future__ import annotations

import io
import json
import re
import shlex
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from idempotent_receiver.operations.cli import terminal
from tests.unit.operations.cli.stack import CLOSED, CONFLICT, DONE, FLAKY, Receiver, Stack, examples


@pytest.fixture
def plan(tmp_path: Path) -> str:
    """Where a plan is to be written."""
    return str(tmp_path / "plan.json")


def test_a_plan_is_saved_without_bodies_and_nothing_is_done(receiver: Receiver, stack: Stack, plan: str) -> None:
    ran = receiver("dlq", "redrive", "--stack", "transfers", "--save-plan", plan, "--json")
    counts = {"MOVE": 1, "DONE": 1, "CONFLICT": 1, "PERMANENT": 1}
    assert (ran.code, ran.json) == (0, {"plan": counts, "saved": plan})
    saved = json.loads(Path(plan).read_bytes())
    assert {each["key"]: each["verdict"] for each in saved["letters"]} == {FLAKY: "MOVE", DONE: "DONE"}
    assert {each["body_sha256"] for each in saved["letters"]} == {sha256(b).hexdigest() for b in (b"flaky", b"done")}
    assert (saved["queue"], saved["dead_letter_queue"]) == (stack.arn, stack.dead_arn)
    assert not re.search(r'"(flaky|done)"', Path(plan).read_text()), "the bodies"
    assert stack.keys_in(stack.dead) == {DONE, FLAKY, CONFLICT, CLOSED}


def test_what_is_typed_to_carry_a_plan_out_does_so(receiver: Receiver, stack: Stack, plan: str) -> None:
    """What became a dead letter in the meantime stays."""
    said = receiver("dlq", "redrive", "--stack", "transfers", "--include-permanent", "--save-plan", plan).out
    assert "3 dead letters in " in said
    (line,) = examples(said.replace(" \\\n", ""))
    stack.bury("later", "b")
    ran = receiver(*shlex.split(line)[1:], "--yes", "--json")
    assert (ran.code, ran.json["moved"], ran.json["dropped"]) == (0, 2, 1)
    assert (ran.json["left"], ran.json["missing"]) == ([], [])
    assert stack.keys_in(stack.queue) == {FLAKY, CLOSED}
    assert stack.keys_in(stack.dead) == {CONFLICT, "later"}


def test_the_history_says_from_which_saved_plan_a_dead_letter_was_moved(
    receiver: Receiver, stack: Stack, plan: str
) -> None:
    receiver("dlq", "redrive", "--stack", "transfers", "--save-plan", plan)
    assert stack.dynamodb.scan(TableName="history")["Items"] == [], "nothing was done"

    receiver("dlq", "redrive", "--stack", "transfers", "--plan", plan, "--yes")

    acts = stack.dynamodb.scan(TableName="history")["Items"]
    assert {(each["key"]["S"], each["plan"]["S"]) for each in acts} == {
        (key, json.loads(Path(plan).read_bytes())["id"]) for key in (FLAKY, DONE)
    }


def test_what_has_changed_since_or_is_gone_is_listed_and_the_rest_is_carried_out(
    receiver: Receiver, stack: Stack, plan: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    stack.bury("goes", "b")
    stack.bury("stays", "b")
    receiver("dlq", "redrive", "--stack", "transfers", "--save-plan", plan)
    stack.record("stays", "COMPLETED", "something else")
    receiver("dlq", "redrive", "--stack", "transfers", "--key", FLAKY, "--yes")
    gone = [each["message_id"] for each in json.loads(Path(plan).read_bytes())["letters"] if each["key"] == FLAKY]

    ran = receiver("dlq", "redrive", "--stack", "transfers", "--plan", plan, "--yes")

    assert ran.code == terminal.Exit.LEFT
    assert re.search(r"(?m)^ +1 +CHANGED +stays: it is no longer as planned", ran.out)
    assert "its verdict was MOVE in the plan and is CONFLICT now" in " ".join(ran.out.split())
    assert "1 moved, 1 dropped as done, 1 left in place." in ran.out
    assert "Not given out, 1 of the plan" in ran.out
    assert re.search(rf"(?m)^{FLAKY} +MOVE\n +message {gone[0]}", ran.out)
    assert max(map(len, ran.out.splitlines())) <= 80
    assert stack.keys_in(stack.dead) == {"stays", CONFLICT, CLOSED}


def test_a_plan_is_carried_out_only_once_that_is_confirmed(
    receiver: Receiver, stack: Stack, plan: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver("dlq", "redrive", "--stack", "transfers", "--save-plan", plan)
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    ran = receiver("dlq", "redrive", "--stack", "transfers", "--plan", plan)
    assert (ran.code, "Move or drop 2 dead letters? [y/N]" in ran.err) == (terminal.Exit.LEFT, True)
    assert len(stack.keys_in(stack.dead)) == 4


def test_where_there_is_nothing_to_do_no_plan_is_written(receiver: Receiver, plan: str) -> None:
    ran = receiver("dlq", "redrive", "--stack", "transfers", "--group", "PermanentError", "--save-plan", plan)
    assert (ran.code, "There is nothing to do, so " in ran.out) == (terminal.Exit.LEFT, True)
    assert not Path(plan).exists()


def test_a_plan_is_never_replaced(receiver: Receiver, plan: str) -> None:
    Path(plan).write_text("reviewed")
    ran = receiver("dlq", "redrive", "--stack", "transfers", "--save-plan", plan)
    assert (ran.code, "exists, and a plan is never replaced: give another name" in ran.err) == (2, True)
    assert Path(plan).read_text() == "reviewed"


def test_a_plan_that_cannot_be_written_is_named(receiver: Receiver, tmp_path: Path) -> None:
    ran = receiver("dlq", "redrive", "--stack", "transfers", "--save-plan", str(tmp_path / "no" / "plan.json"))
    assert (ran.code, "plan.json: No such file or directory" in ran.err) == (2, True)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"queue": "arn:aws:sqs:us-east-1:123456789012:refunds"}, "is for dead letters of arn:aws:sqs:us-east-1:12345"),
        ({"dead_letter_queue": "arn:aws:sqs:us-east-1:1:transfers-dead"}, "is for dead letters of"),
        ({"command": "delete"}, "was made by dlq delete: it is no plan for dlq redrive"),
        ({"letters": [{"message_id": "m"}]}, "holds no plan that this version reads: letters.0.key Field required"),
        ({"rate": 7}, "holds no plan that this version reads: rate Unexpected keyword argument"),
        ({"letters": None}, "holds no plan that this version reads: letters Input should be a valid array"),
    ],
)
def test_a_plan_for_something_else_is_refused(
    receiver: Receiver, stack: Stack, plan: str, changes: dict[str, Any], says: str
) -> None:
    receiver("dlq", "redrive", "--stack", "transfers", "--save-plan", plan)
    Path(plan).write_text(json.dumps(json.loads(Path(plan).read_bytes()) | changes))
    ran = receiver("dlq", "redrive", "--stack", "transfers", "--plan", plan, "--yes")
    assert (ran.code, ran.out) == (terminal.Exit.USAGE, "")
    assert says in ran.err
    assert "Traceback" not in ran.err
    assert len(stack.keys_in(stack.dead)) == 4


@pytest.mark.parametrize("text", ["", "[]", "no JSON", '{"command": "redrive"', "\x00"])
def test_a_file_without_a_plan_is_refused(receiver: Receiver, plan: str, text: str) -> None:
    Path(plan).write_text(text)
    ran = receiver("dlq", "redrive", "--stack", "transfers", "--plan", plan, "--yes")
    assert (ran.code, "holds no plan that this version reads" in ran.err) == (terminal.Exit.USAGE, True)
    missing = receiver("dlq", "redrive", "--stack", "transfers", "--plan", f"{plan}.nowhere", "--yes")
    assert (missing.code, "nowhere: No such file or directory" in missing.err) == (terminal.Exit.USAGE, True)


@pytest.mark.parametrize(
    "given",
    [
        ("--group", "g"),
        ("--limit", "1"),
        ("--include-permanent",),
        ("--force",),
        ("--since", "2h"),
        ("--save-plan", "x"),
    ],
    ids=" ".join,
)
def test_a_plan_says_what_is_meant_and_nothing_else_does(
    receiver: Receiver, stack: Stack, plan: str, given: tuple[str, ...]
) -> None:
    ran = receiver("dlq", "redrive", "--stack", "transfers", "--plan", plan, *given, "--yes")
    assert (ran.code, f"--plan says what is meant: it takes no {given[0]}" in ran.err) == (terminal.Exit.USAGE, True)
