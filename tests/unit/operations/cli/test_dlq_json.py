"""What a script reads of a command that acts: one whole document, however it ends."""

from __future__ import annotations

import json

import pytest

from idempotent_receiver.operations.cli import dlq_act
from idempotent_receiver.operations.cli.terminal import Exit, Terminal
from tests.unit.operations.cli.stack import CLOSED, CONFLICT, DEAD, DONE, FLAKY, Receiver, Stack, client, denied

WHOLE = {
    *("schema", "command", "plan_id", "plan", "about_seconds", "paused", "confirmed", "stopped"),
    *("moved", "dropped", "resent"),
    *("beyond_limit", "unseen", "acted", "left", "missing", "stray", "held_elsewhere", "followed", "error"),
}


def test_it_has_the_plans_id_and_each_dead_letter_with_its_outcome(receiver: Receiver, stack: Stack) -> None:
    ran = receiver.on("dlq redrive --yes --json")
    told = ran.json
    assert (ran.code, set(told)) == (Exit.LEFT, WHOLE)
    assert (told["schema"], told["command"], told["error"]) == (1, "dlq redrive", None)
    assert {each["plan"] for each in stack.acts} == {told["plan_id"]}
    outcomes = {each["key"]: (each["outcome"], each["verb"]) for each in (*told["acted"], *told["left"])}
    assert outcomes == {
        FLAKY: ("done", "moved"),
        DONE: ("done", "dropped"),
        CONFLICT: ("left", None),
        CLOSED: ("left", None),
    }
    assert {each["message_id"] for each in told["acted"]} == {each["message_id"] for each in stack.acts}


@pytest.mark.parametrize(("code", "outcome"), [("AccessDenied", "refused"), ("InternalError", "unconfirmed")])
def test_where_aws_fails_half_way_the_answer_is_whole(
    receiver: Receiver, stack: Stack, code: str, outcome: str
) -> None:
    with denied("SendMessageBatch", code=code):
        ran = receiver.on("dlq redrive --yes --json")
    told = ran.json
    assert (ran.code, set(told), code in told["error"]) == (Exit.AWS, WHOLE, True)
    assert [each["key"] for each in told["acted"]] == [DONE]
    assert {each["key"]: each["outcome"] for each in told["left"]} == {
        **dict.fromkeys((CONFLICT, CLOSED), "left"),
        FLAKY: outcome,
    }
    assert {each["key"]: each["outcome"] for each in stack.acts} == {DONE: "done", FLAKY: outcome}


def test_where_others_hold_all_of_it_the_answer_is_whole(receiver: Receiver, stack: Stack) -> None:
    assert len(stack.received(stack.dead)) == 4
    ran = receiver.on("dlq redrive --yes --json")
    assert (ran.code, set(ran.json), ran.json["held_elsewhere"]) == (Exit.HELD, WHOLE - {"paused"}, 4)


@pytest.mark.parametrize("given", ["--stack ''", "--key ''", "--because ''"])
def test_an_empty_option_is_an_error_in_json_too(receiver: Receiver, given: str) -> None:
    ran = receiver(f"dlq redrive --json {given}")
    assert (ran.code, "is empty" in ran.json["error"]) == (Exit.USAGE, True)


def test_a_defect_is_told_apart_from_every_outcome(
    receiver: Receiver, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dlq_act.Run, "plan", lambda self: 1 // 0)
    ran = receiver.on("dlq redrive --yes --json")
    assert (ran.code, ran.out, "ZeroDivisionError" in ran.err) == (Exit.CRASHED, "", True)
    assert stack.keys_in(stack.dead) == DEAD, "what was held is released"


HOSTILE = "\x1b[2J\u202e\u2066\x9b\u200f\ud800\x00"


@pytest.mark.parametrize("as_json", [True, False])
def test_nothing_that_others_wrote_controls_the_terminal(capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
    """A script reads the same text."""
    terminal = Terminal(as_json=as_json)
    terminal.answer({"reason": HOSTILE, HOSTILE: ["é 漢\n"]}, "")
    terminal.note(HOSTILE)
    out, err = capsys.readouterr()
    assert all(sign.isprintable() or sign == "\n" for sign in out + err)
    if as_json:
        assert json.loads(out) == {"schema": 1, "reason": HOSTILE, HOSTILE: ["é 漢\n"]}
        assert "é 漢" in out


@pytest.mark.parametrize("form", ["", "--json"])
def test_a_poison_letter_is_listed_archived_and_deleted_with_the_rest(
    receiver: Receiver, stack: Stack, form: str
) -> None:
    stack.bury("poison\u202e", reason=f"{HOSTILE} it failed", error_type="\ud800\x1b", at="\u202e:1")
    said = ""
    for line in (
        "list",
        "list --bodies --group error",
        "redrive",
        "archive --save-plan plan.json --matching 'it failed'",
        "archive --plan plan.json --yes",
        "redrive --from-archive --to-dlq --yes",
        "delete --matching 'it failed' --because test --yes",
        "history",
    ):
        ran = receiver.on(f"dlq {line} {form}")
        assert ran.code in (Exit.OK, Exit.LEFT), ran.err
        said += ran.out + ran.err
    assert "it failed" in said
    assert all(sign.isprintable() or sign == "\n" for sign in said)
    assert stack.keys_in(stack.dead) == DEAD


@pytest.mark.parametrize("enabled", [True, False])
def test_a_redrive_to_a_consumer_that_is_paused_says_so(receiver: Receiver, stack: Stack, enabled: bool) -> None:
    functions = client("lambda")
    (mapping,) = functions.list_event_source_mappings()["EventSourceMappings"]
    functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=enabled)
    ran = receiver.on("dlq redrive --json")
    assert ran.json["paused"] is not enabled
    assert "paused" not in receiver.on("dlq archive --json").json
