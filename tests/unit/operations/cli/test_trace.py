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
from tests.unit.operations.cli.history import DAY_MS, SECRET, Kept
from tests.unit.operations.cli.stack import CLOSED, CONFLICT, DONE, FLAKY, STUCK, client, examples
from tests.unit.operations.cli.test_dlq_history import ON
from tests.unit.operations.dead_letters.acts import OPERATOR

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.operations.cli.stack import Receiver, Stack


def sources(told: dict[str, Any]) -> list[str]:
    return [each["source"] for each in told["events"]]


def test_a_trace_tells_record_dead_letter_and_history_in_order(receiver: Receiver, stack: Stack, kept: Kept) -> None:
    moved = kept.done(60)
    expiration = SystemClock().epoch_ms() // 1000 + 30 * 86_400 - 30
    failure = Failure(type="ConnectionError", at="app.ledger:7").to_json()
    stack.record(FLAKY, "FAILED", "flaky", error=failure, attempts=6, expiration=expiration)
    told = receiver("trace", FLAKY, *ON, "--json")
    assert told.code == Exit.OK
    events = told.json["events"]
    assert sources(told.json) == ["history", "record", "message", "dead letter", "record"]
    assert events[0]["at"] == moment(moved.at_ms)
    assert events[0]["text"] == f"message {FLAKY} moved by {OPERATOR}: {moved.why}; done; plan p1"
    assert events[1]["text"] == "FAILED at attempt 6, and may be tried again: ConnectionError at app.ledger:7"
    assert events[1]["at"] == moment((expiration - 30 * 86_400) * 1000)
    assert (events[3]["at"], events[3]["text"].rpartition(": ")[2]) == (None, "ConnectionError at app.ledger:7")
    assert events[4]["text"] == "end of the record: from then on, the key is free"
    shown = receiver("trace", FLAKY, *ON).out
    assert [each["text"] in shown for each in events] == [True] * 5


def test_a_trace_leaves_the_dead_letters_to_others(receiver: Receiver, stack: Stack) -> None:
    receiver("trace", FLAKY, *ON)
    assert stack.keys_in(stack.dead) == {DONE, FLAKY, CLOSED, CONFLICT}


def test_a_trace_that_is_stopped_tells_what_it_has_and_leaves_the_dead_letters_to_others(
    receiver: Receiver, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = DeadLetterQueue.take

    def interrupted(self: DeadLetterQueue, most: int, stopped: Any) -> Any:
        taken = take(self, most, stopped)
        signal.raise_signal(signal.SIGINT)
        return taken

    monkeypatch.setattr(DeadLetterQueue, "take", interrupted)
    ran = receiver("trace", FLAKY, *ON, "--json")
    assert ran.code == Exit.STOPPED
    assert {"record", "dead letter"} <= set(sources(ran.json))
    assert stack.keys_in(stack.dead) == {DONE, FLAKY, CLOSED, CONFLICT}


def test_what_is_not_looked_at_is_said(receiver: Receiver, stack: Stack) -> None:
    assert "Looked at" not in receiver("trace", FLAKY, *ON).err
    for number in range(10):
        stack.bury(f"more-{number}", "more")
    ran = receiver("trace", FLAKY, *ON, "--limit", "1")
    assert "Looked at 10 of about 14 dead letters (see --limit; what others hold is not seen)." in ran.err


def test_a_key_of_which_nothing_is_known_exits_with_1(receiver: Receiver) -> None:
    ran = receiver("trace", "nosuch", *ON, "--json")
    assert ran.code == Exit.LEFT
    assert [each["text"] for each in ran.json["events"]] == ["there is none with the id nosuch in records"]
    assert "Nothing is known of nosuch: check it, and --namespace." in ran.err


def test_no_attempt_is_told_of_a_message_whose_handler_never_started(receiver: Receiver, stack: Stack) -> None:
    """As of one whose body does not validate: `show` and `stuck` say 0 attempts."""
    invalid = Failure(type="InvalidBody", text="amount: missing", permanent=True).to_json()
    stack.record(CLOSED, "FAILED", "closed", error=invalid, attempts=0)
    told = [each["text"] for each in receiver("trace", CLOSED, *ON, "--json").json["events"]]
    assert "FAILED before its handler started, for good: amount: missing" in told


def test_a_trace_without_a_key_is_refused(receiver: Receiver) -> None:
    ran = receiver("trace", "", *ON)
    assert (ran.code, "KEY is empty" in ran.err) == (Exit.USAGE, True)


def test_a_trace_begins_with_its_request_if_that_is_named(receiver: Receiver, stack: Stack) -> None:
    stack.record(
        "transfers#alice#order-1", "COMPLETED", "request", data='{"statusCode": 202}', expiration=1_900_000_000
    )
    told = receiver("trace", FLAKY, *ON, "--request", "transfers#alice#order-1", "--json").json
    (request,) = [
        each["text"] for each in told["events"] if each["source"] == "request" and "end of" not in each["text"]
    ]
    assert request == "COMPLETED at attempt 1"
    told = receiver("trace", FLAKY, *ON, "--request", "transfers#alice#order-2", "--json").json
    assert {
        "at": None,
        "source": "request",
        "text": "there is none with the id transfers#alice#order-2 in records",
    } in (told["events"])


def test_a_request_in_another_table_is_found_there(receiver: Receiver) -> None:
    ran = receiver("trace", FLAKY, *ON, "--request", "x#1", "--request-table", "nosuch")
    assert (ran.code, "there is no table nosuch" in ran.err) == (Exit.USAGE, True)
    ran = receiver("trace", FLAKY, *ON, "--request-table", "nosuch")
    assert (ran.code, "--request-table needs --request" in ran.err) == (Exit.USAGE, True)


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
    lasts = SystemClock().epoch_ms() + DAY_MS
    stack.record("name-1", "INPROGRESS", "request", execution=arn, in_progress_expiration=lasts)
    return str(arn)


def test_a_workflows_execution_is_told_of(receiver: Receiver, execution: str) -> None:
    for key, *more in (["name-1"], [FLAKY, "--request", "name-1"]):
        ran = receiver("trace", key, *ON, *more, "--json")
        assert ran.code == Exit.OK
        told = [each["text"] for each in ran.json["events"] if each["source"] == "execution"]
        assert told == ["name-1 started", "name-1 RUNNING"]
        assert SECRET not in ran.out


def test_an_execution_that_may_not_be_described_is_named_with_the_permission(
    receiver: Receiver, execution: str, denied: Any
) -> None:
    denied("DescribeExecution")
    ran = receiver("trace", "name-1", *ON, "--json")
    why = f"AccessDeniedException: allow states:DescribeExecution on {execution}"
    assert (ran.code, ran.json["unread"]) == (Exit.LEFT, [{"source": "execution", "why": why}])


def hook_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    (tmp_path / "ledger_hook.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "ledger_hook", raising=False)


def test_a_hook_adds_what_the_application_knows(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook_module(
        tmp_path,
        monkeypatch,
        """
from datetime import datetime
def entries(key, record):
    yield datetime(2020, 1, 1), f"booked {key} {record.status}"
    yield None, "balanced"
""",
    )
    events = receiver("trace", DONE, *ON, "--hook", "ledger_hook:entries", "--json").json["events"]
    name = "ledger_hook:entries"
    assert events[0] == {"at": "2020-01-01T00:00:00Z", "source": name, "text": f"booked {DONE} COMPLETED"}
    assert {"at": None, "source": name, "text": "balanced"} in events


def test_a_hook_that_fails_leaves_the_rest_of_the_story(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook_module(tmp_path, monkeypatch, "def entries(key, record):\n    raise LookupError('no ledger')\n")
    ran = receiver("trace", DONE, *ON, "--hook", "ledger_hook:entries", "--json")
    assert (ran.code, "record" in sources(ran.json)) == (Exit.LEFT, True)
    assert ran.json["unread"] == [{"source": "ledger_hook:entries", "why": "LookupError: no ledger"}]
    assert "Not read: ledger_hook:entries: LookupError: no ledger" in ran.err


@pytest.mark.parametrize("hook", ["nosuch:entries", "json:nosuch", "json", "json:decoder", ":", ""])
def test_a_hook_that_is_no_function_is_refused(receiver: Receiver, hook: str) -> None:
    ran = receiver("trace", DONE, *ON, "--hook", hook)
    assert (ran.code, ran.out, f"--hook {hook}" in ran.err) == (Exit.USAGE, "", True)


@pytest.mark.parametrize(
    ("source", "permission"),
    [
        ("dead letters", "sqs:ReceiveMessage"),
        ("history", "dynamodb:Query"),
        ("record", "dynamodb:BatchGetItem"),
    ],
)
def test_what_may_not_be_read_is_named_with_its_permission_and_the_rest_is_told(
    receiver: Receiver, kept: Kept, denied: Any, source: str, permission: str
) -> None:
    kept.done(20)
    denied(permission.partition(":")[2])
    ran = receiver("trace", FLAKY, *ON, "--json")
    assert ran.code == Exit.LEFT
    (unread,) = ran.json["unread"]
    assert unread["source"] == source
    assert f"allow {permission}" in unread["why"]
    assert len({"record", "history", "dead letter"} & set(sources(ran.json))) == 2


def test_a_stack_without_a_history_is_traced_all_the_same(receiver: Receiver, stack: Stack) -> None:
    del stack.outputs["HistoryTable"]
    ran = receiver("trace", FLAKY, *ON)
    assert (ran.code, "No history is kept" in ran.err) == (Exit.OK, True)


def test_without_a_queue_the_dead_letters_are_what_is_not_read(receiver: Receiver) -> None:
    ran = receiver("trace", FLAKY, "--table", "records", "--json")
    assert (ran.code, [each["source"] for each in ran.json["unread"]]) == (Exit.LEFT, ["dead letters"])
    assert "--queue" in ran.json["unread"][0]["why"]


def test_no_secret_of_a_body_or_a_result_is_told(receiver: Receiver, stack: Stack) -> None:
    body = json.dumps({"card": SECRET})
    stack.bury("5f2c1d64-0009-4000-8000-000000000001", body)
    key = "5f2c1d64-0009-4000-8000-000000000001"
    stack.record(key, "COMPLETED", body, data=json.dumps({"card": SECRET}))
    for given in ((), ("--json",)):
        ran = receiver("trace", key, *ON, *given)
        assert key in ran.out
        assert SECRET not in ran.out + ran.err


def test_the_stuck_worker_of_the_stack_is_named(receiver: Receiver) -> None:
    told = receiver("trace", STUCK, *ON).out
    assert "INPROGRESS: claimed for attempt 2 by request-1" in told
    assert "end of its lease, and nobody settled it" in told


def test_the_new_key_of_what_is_resent_is_told_and_kept_in_the_history(receiver: Receiver, stack: Stack) -> None:
    ran = receiver("dlq", "resend", "--key", FLAKY, "--body", "body.json", *ON, "--yes", "--json")

    (sent,) = client("sqs").receive_message(QueueUrl=stack.queue, MessageAttributeNames=["All"])["Messages"]
    key = json.loads(sent["MessageAttributes"]["idempotent-receiver"]["StringValue"])["key"]
    assert (ran.json["new_key"], key != FLAKY) == (key, True)
    (typed,) = examples(ran.err.replace("\\\n", " "))
    assert shlex.split(typed) == ["receiver", "trace", key, "--stack", "transfers"]
    (act,) = receiver("dlq", "history", "--key", FLAKY, *ON, "--json").json["acts"]
    assert act["why"].startswith(f"its new key is {key}; ")
    assert key in receiver("trace", FLAKY, *ON).out
