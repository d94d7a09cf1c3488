"""`receiver dlq redrive --save-plan` and `--plan`: what was reviewed is what is done."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from idempotent_receiver.operations.cli import terminal
from tests.unit.operations.cli.stack import ARN, CLOSED, CONFLICT, DEAD, DONE, FLAKY, Receiver, Stack, examples

SAVE = "dlq redrive --save-plan plan.json"
CARRY_OUT = "dlq redrive --plan plan.json --yes"


def saved() -> Any:
    return json.loads(Path("plan.json").read_bytes())


def test_a_plan_is_saved_without_bodies_and_nothing_is_done(receiver: Receiver, stack: Stack) -> None:
    ran = receiver.on(f"{SAVE} --json")
    counts = {"MOVE": 1, "DONE": 1, "CONFLICT": 1, "PERMANENT": 1}
    plan = saved()
    told = {"schema": 1, "command": "dlq redrive", "plan_id": plan["id"], "plan": counts}
    assert (ran.code, ran.json) == (0, {**told, "about_seconds": 0, "paused": True, "saved": "plan.json"})
    assert {each["key"]: each["verdict"] for each in plan["letters"]} == {FLAKY: "MOVE", DONE: "DONE"}
    assert {each["body_sha256"] for each in plan["letters"]} == {sha256(b).hexdigest() for b in (b"flaky", b"done")}
    assert (plan["queue"], plan["dead_letter_queue"]) == (stack.arn, stack.dead_arn)
    assert not re.search(r'"(flaky|done)"', Path("plan.json").read_text()), "the bodies"
    assert stack.untouched()


def test_what_is_typed_to_carry_a_plan_out_does_so_and_the_history_names_the_plan(
    receiver: Receiver, stack: Stack
) -> None:
    """What became a dead letter in the meantime stays."""
    said = receiver.on(f"{SAVE} --include-permanent").out
    (line,) = examples(said.replace(" \\\n", ""))
    stack.bury("later")
    ran = receiver(line.removeprefix("receiver "), "--yes", "--json")
    assert (ran.code, ran.json["moved"], ran.json["dropped"]) == (0, 2, 1)
    assert (ran.json["left"], ran.json["missing"]) == ([], [])
    assert (stack.keys_in(stack.queue), stack.keys_in(stack.dead)) == ({FLAKY, CLOSED}, {CONFLICT, "later"})
    assert {(each["key"], each["plan"]) for each in stack.acts} == {(k, saved()["id"]) for k in (FLAKY, CLOSED, DONE)}


def test_what_has_another_key_than_was_planned_stays(receiver: Receiver, stack: Stack) -> None:
    """The same message by the rules of another consumer: its verdict is for another record."""
    stack.sqs.purge_queue(QueueUrl=stack.dead)
    stack.bury("stamped", '{"id": "o-1", "transfer_id": "t-1"}')
    given = "--queue transfers --table records --history history --consumer"
    assert receiver(f"{SAVE} {given} transfers.json").code == terminal.Exit.OK
    ran = receiver(f"{CARRY_OUT} {given} orders.json --json")
    assert (ran.code, ran.json["plan"], ran.json["moved"]) == (terminal.Exit.LEFT, {"CHANGED": 1}, 0)
    (left,) = ran.json["left"]
    assert left["why"] == "its key was t-1 in the plan and is o-1 now: compare --consumer"
    assert stack.keys_in(stack.dead) == {"stamped"}


def test_what_has_changed_since_or_is_gone_is_listed_and_the_rest_is_carried_out(
    receiver: Receiver, stack: Stack
) -> None:
    stack.bury("goes")
    stack.bury("stays")
    receiver.on(SAVE)
    stack.record("stays", "COMPLETED", "something else")
    receiver.on(f"dlq redrive --key {FLAKY} --yes")
    (gone,) = [each["message_id"] for each in saved()["letters"] if each["key"] == FLAKY]

    ran = receiver.on(f"{CARRY_OUT} --json")

    assert (ran.code, ran.json["plan"]) == (terminal.Exit.LEFT, {"MOVE": 1, "DONE": 1, "CHANGED": 1})
    assert (ran.json["moved"], ran.json["dropped"], ran.json["missing"]) == (1, 1, [gone])
    assert stack.keys_in(stack.dead) == {"stays", CONFLICT, CLOSED}


def test_an_empty_plan_is_not_saved(receiver: Receiver) -> None:
    ran = receiver.on(f"{SAVE} --key {CONFLICT} --json")
    assert (ran.code, ran.json["plan"], ran.json["saved"]) == (terminal.Exit.LEFT, {"CONFLICT": 1}, None)
    assert not Path("plan.json").exists()


def test_a_plan_is_carried_out_only_once_that_is_confirmed(receiver: Receiver, stack: Stack) -> None:
    receiver.on(SAVE)
    assert receiver.on("dlq redrive --plan plan.json").code == terminal.Exit.LEFT
    assert stack.untouched()


def test_a_plan_is_never_replaced(receiver: Receiver) -> None:
    Path("plan.json").write_text("reviewed")
    assert receiver.on(SAVE).code == terminal.Exit.USAGE
    assert Path("plan.json").read_text() == "reviewed"


UNREADABLE = "is not a plan that this version can read"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"queue": f"{ARN}:refunds"}, f"is for dead letters of {ARN}:refunds"),
        ({"command": "delete"}, "was made by dlq delete: it cannot be used for dlq redrive"),
        ({"letters": [{"message_id": "m"}]}, f"{UNREADABLE}: letters.0.key"),
        ({"rate": 7}, f"{UNREADABLE}: rate"),
        ({"letters": None}, f"{UNREADABLE}: letters"),
        *((text, UNREADABLE) for text in ("", "[]", "no JSON", '{"command": "redrive"', "\x00")),
    ],
)
def test_a_plan_for_something_else_or_none_is_refused(
    receiver: Receiver, stack: Stack, changes: dict[str, Any] | str, says: str
) -> None:
    receiver.on(SAVE)
    Path("plan.json").write_text(changes if isinstance(changes, str) else json.dumps(saved() | changes))
    ran = receiver.on(CARRY_OUT)
    assert (ran.code, ran.out) == (terminal.Exit.USAGE, "")
    assert says in ran.said
    assert "Traceback" not in ran.err
    assert stack.keys_in(stack.dead) == DEAD


def test_a_plan_to_archive_deletes_nothing(receiver: Receiver, stack: Stack) -> None:
    assert receiver.on("dlq archive --save-plan plan.json").code == terminal.Exit.OK
    ran = receiver.on("dlq delete --plan plan.json --because test --yes")
    assert (ran.code, ran.out, stack.untouched()) == (terminal.Exit.USAGE, "", True)


@pytest.mark.parametrize(
    ("carry_out", "says"),
    [
        ("--body body.json", None),
        ("--body another", "was made for a different body than another"),
        ("", "was made for a different body than None"),
        (f"--body body.json --key {FLAKY}", "omit --key"),
        ("--force", "omit --force"),
    ],
)
def test_a_plan_of_a_resend_wants_the_same_body_again(
    receiver: Receiver, stack: Stack, carry_out: str, says: str | None
) -> None:
    """The plan holds no body: of the one that was reviewed it has the hash."""
    Path("another").write_text("{}", "utf-8")
    assert receiver.on(f"dlq resend --key {FLAKY} --body body.json --save-plan plan.json").code == terminal.Exit.OK
    assert saved()["new_body_sha256"] == sha256(Path("body.json").read_bytes()).hexdigest()
    ran = receiver.on(f"dlq resend --plan plan.json --yes {carry_out}")
    assert (ran.code, says is None or says in ran.said) == (terminal.Exit.USAGE if says else terminal.Exit.OK, True)
    assert stack.untouched() if says else stack.keys_in(stack.dead) == DEAD - {FLAKY}


def test_a_plan_keeps_the_options_that_it_was_made_with(receiver: Receiver, stack: Stack) -> None:
    assert receiver.on("dlq archive --yes").code == terminal.Exit.OK
    receiver.on(f"{SAVE} --from-archive --include-permanent")
    given = {"include_permanent": True, "force": False, "from_archive": True, "to_dlq": False}
    assert (saved()["options"], saved()["dead_letter_queue"]) == (given, "s3://archive/transfers-dead/")
    ran = receiver.on(f"{CARRY_OUT} --json")
    assert (ran.code, ran.json["moved"], ran.json["dropped"]) == (terminal.Exit.OK, 2, 1)
    assert (stack.keys_in(stack.queue), stack.keys_in(stack.dead)) == ({FLAKY, CLOSED}, set())
