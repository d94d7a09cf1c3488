"""`receiver trace`: one key's story, in order and without what is secret."""

from __future__ import annotations

import json
import shlex
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver.clock import SystemClock
from idempotent_receiver.errors import Failure
from idempotent_receiver.operations.cli.terminal import Exit, moment
from idempotent_receiver.operations.dead_letters.queue import DeadLetterQueue
from idempotent_receiver.sqs.dead_letter import STAMP
from tests.unit.operations.cli.stack import (
    CLOSED,
    DEAD,
    DONE,
    FLAKY,
    SECRET,
    STUCK,
    TRANSIENT,
    Receiver,
    Stack,
    client,
    denied,
    examples,
)
from tests.unit.operations.dead_letters.acts import OPERATOR

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.operations.cli.history import Kept

TRACE = f"trace {FLAKY}"


def sources(told: dict[str, Any]) -> list[str]:
    return [each["source"] for each in told["events"]]


def texts(told: dict[str, Any], source: str) -> list[str]:
    return [each["text"] for each in told["events"] if each["source"] == source]


def test_a_trace_tells_record_dead_letter_and_history_in_order(receiver: Receiver, stack: Stack, kept: Kept) -> None:
    moved = kept.done(60)
    expiration = SystemClock().epoch_ms() // 1000 + 30 * 86_400 - 30
    stack.record(FLAKY, "FAILED", "flaky", error=TRANSIENT, attempts=6, expiration=expiration)
    told = receiver.on(f"{TRACE} --json")
    assert told.code == Exit.OK
    events = told.json["events"]
    assert sources(told.json) == ["history", "record", "message", "dead letter", "record"]
    assert events[0]["at"] == moment(moved.at_ms)
    assert events[0]["text"] == f"message {FLAKY} moved by {OPERATOR}: {moved.why}; done; plan p1"
    assert events[1]["text"] == "FAILED at attempt 6, and may be tried again: ConnectionError at app.ledger:7"
    assert events[1]["at"] == moment((expiration - 30 * 86_400) * 1000)
    assert (events[3]["at"], events[3]["text"].rpartition(": ")[2]) == (None, "ConnectionError at app.ledger:7")
    assert events[4]["text"] == "end of the record: from then on, the key is free"
    shown = receiver.on(TRACE)
    assert [each["text"] in shown.out for each in events] == [True] * 5
    assert "Looked at" not in shown.err
    assert stack.keys_in(stack.dead) == DEAD, "they are left to others"


def test_a_trace_that_is_stopped_tells_what_it_has_and_leaves_the_dead_letters_to_others(
    receiver: Receiver, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = DeadLetterQueue.take

    def interrupted(self: DeadLetterQueue, most: int, stopped: Any) -> Any:
        taken = take(self, most, stopped)
        signal.raise_signal(signal.SIGINT)
        return taken

    monkeypatch.setattr(DeadLetterQueue, "take", interrupted)
    ran = receiver.on(f"{TRACE} --json")
    assert (ran.code, {"record", "dead letter"} <= set(sources(ran.json))) == (Exit.STOPPED, True)
    assert stack.keys_in(stack.dead) == DEAD


def test_what_is_not_looked_at_is_said(receiver: Receiver, stack: Stack) -> None:
    for number in range(10):
        stack.bury(f"more-{number}")
    assert "Looked at 10 of about 14 dead letters (see --limit" in receiver.on(f"{TRACE} --limit 1").err


def test_a_key_of_which_nothing_is_known_exits_with_1(receiver: Receiver) -> None:
    ran = receiver.on("trace nosuch --json")
    assert ran.code == Exit.LEFT
    assert [each["text"] for each in ran.json["events"]] == ["there is none with the id nosuch in records"]
    assert "Nothing is known of nosuch: check it, and --consumer." in ran.err


def test_no_attempt_is_told_of_a_message_whose_handler_never_started(receiver: Receiver, stack: Stack) -> None:
    """As of one whose body does not validate: `show` and `stuck` say 0 attempts."""
    invalid = Failure(type="InvalidBody", text="amount: missing", permanent=True).to_json()
    stack.record(CLOSED, "FAILED", "closed", error=invalid, attempts=0)
    told = texts(receiver.on(f"trace {CLOSED} --json").json, "record")
    assert "FAILED before its handler started, for good: amount: missing" in told


def test_a_trace_begins_with_its_request_if_that_is_named(receiver: Receiver, stack: Stack) -> None:
    stack.record("transfers#alice#1", "COMPLETED", "request", data='{"statusCode": 202}', expiration=1_900_000_000)
    told = receiver.on(f"{TRACE} --request transfers#alice#1 --json").json
    assert texts(told, "request")[0] == "COMPLETED at attempt 1"
    told = receiver.on(f"{TRACE} --request transfers#alice#2 --json").json
    assert texts(told, "request") == ["there is none with the id transfers#alice#2 in records"]


@pytest.fixture
def execution(stack: Stack) -> str:
    """A workflow's execution that has the key of a record; its ARN."""
    machines = client("stepfunctions")
    definition = {"StartAt": "Done", "States": {"Done": {"Type": "Succeed"}}}
    role = "arn:aws:iam::123456789012:role/transfers"
    machine = machines.create_state_machine(name="transfers", definition=json.dumps(definition), roleArn=role)
    arn = machines.start_execution(
        stateMachineArn=machine["stateMachineArn"], name="name-1", input=json.dumps({"card": SECRET})
    )["executionArn"]
    lasts = SystemClock().epoch_ms() + 86_400_000
    stack.record("name-1", "INPROGRESS", "request", execution=arn, in_progress_expiration=lasts)
    return str(arn)


def test_a_workflows_execution_is_told_of(receiver: Receiver, execution: str) -> None:
    for line in ("trace name-1", f"{TRACE} --request name-1"):
        ran = receiver.on(f"{line} --json")
        assert (ran.code, texts(ran.json, "execution")) == (Exit.OK, ["name-1 started", "name-1 RUNNING"])
        assert SECRET not in ran.out
    with denied("DescribeExecution"):
        ran = receiver.on("trace name-1 --json")
    why = f"AccessDeniedException: allow states:DescribeExecution on {execution}"
    assert (ran.code, ran.json["unread"]) == (Exit.LEFT, [{"source": "execution", "why": why}])


HOOK = "ledger_hook:entries"


def with_hook(receiver: Receiver, folder: Path, monkeypatch: pytest.MonkeyPatch, *lines: str) -> Any:
    """A trace with a hook of these lines."""
    text = "\n    ".join(("def entries(key, record):", *lines))
    (folder / "ledger_hook.py").write_text(f"from datetime import datetime\n{text}\n")
    monkeypatch.delitem(sys.modules, "ledger_hook", raising=False)
    return receiver.on(f"trace {DONE} --hook {HOOK} --json")


def test_a_hook_adds_what_the_application_knows(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ('yield datetime(2020, 1, 1), f"booked {key} {record.status}"', 'yield None, "balanced"')
    events = with_hook(receiver, tmp_path, monkeypatch, *lines).json["events"]
    assert events[0] == {"at": "2020-01-01T00:00:00Z", "source": HOOK, "text": f"booked {DONE} COMPLETED"}
    assert {"at": None, "source": HOOK, "text": "balanced"} in events
    assert "record" in {each["source"] for each in events}


def test_a_hook_that_fails_leaves_the_rest_of_the_story(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = with_hook(receiver, tmp_path, monkeypatch, "raise LookupError('no ledger')")
    assert (ran.code, "record" in sources(ran.json)) == (Exit.LEFT, True)
    assert ran.json["unread"] == [{"source": HOOK, "why": "LookupError: no ledger"}]
    assert f"Not read: {HOOK}: LookupError: no ledger" in ran.err


@pytest.mark.parametrize(
    ("source", "permission"),
    [("dead letters", "sqs:ReceiveMessage"), ("history", "dynamodb:Query"), ("record", "dynamodb:BatchGetItem")],
)
def test_what_may_not_be_read_is_named_with_its_permission_and_the_rest_is_told(
    receiver: Receiver, kept: Kept, source: str, permission: str
) -> None:
    kept.done(20)
    with denied(permission.partition(":")[2]):
        ran = receiver.on(f"{TRACE} --json")
    (unread,) = ran.json["unread"]
    assert (ran.code, unread["source"], f"allow {permission}" in unread["why"]) == (Exit.LEFT, source, True)
    assert len({"record", "history", "dead letter"} & set(sources(ran.json))) == 2


def test_what_fails_otherwise_is_told_as_aws_says_it(receiver: Receiver) -> None:
    with denied("ReceiveMessage", code="InternalFailure"):
        (unread,) = receiver.on(f"{TRACE} --json").json["unread"]
    assert "(InternalFailure) when calling the ReceiveMessage operation" in unread["why"]


def test_without_a_history_or_a_queue_the_rest_is_told(receiver: Receiver, stack: Stack) -> None:
    del stack.outputs["HistoryTable"]
    ran = receiver.on(TRACE)
    assert (ran.code, "No history is kept" in ran.err) == (Exit.OK, True)
    ran = receiver(f"{TRACE} --table records --json")
    assert (ran.code, [each["source"] for each in ran.json["unread"]]) == (Exit.LEFT, ["dead letters"])
    assert "--queue" in ran.json["unread"][0]["why"]


def test_no_secret_of_a_body_or_a_result_is_told(receiver: Receiver, stack: Stack) -> None:
    body = json.dumps({"card": SECRET})
    stack.bury("k-1", body)
    stack.record("k-1", "COMPLETED", body, data=body)
    for form in ("", "--json"):
        ran = receiver.on(f"trace k-1 {form}")
        assert ("k-1" in ran.out, SECRET in ran.out + ran.err) == (True, False)


def test_the_stuck_worker_of_the_stack_is_named(receiver: Receiver) -> None:
    told = receiver.on(f"trace {STUCK}").out
    assert "INPROGRESS: claimed for attempt 2 by request-1" in told
    assert "end of its lease, and nobody settled it" in told


def test_the_new_key_of_what_is_resent_is_told_and_kept_in_the_history(receiver: Receiver, stack: Stack) -> None:
    ran = receiver.on(f"dlq resend --key {FLAKY} --body body.json --yes --json")
    (sent,) = stack.received(stack.queue)
    key = json.loads(sent["MessageAttributes"][STAMP]["StringValue"])["key"]
    assert (ran.json["new_key"], key != FLAKY) == (key, True)
    (line,) = examples(ran.err.replace("\\\n", " "))
    assert shlex.split(line) == ["receiver", "trace", key, "--stack", "transfers"]
    (act,) = receiver.on(f"dlq history --key {FLAKY} --json").json["acts"]
    assert act["why"].startswith(f"its new key is {key}; ")
    assert key in receiver.on(TRACE).out
