"""What was done with dead letters, and one key's story: told in order, in full, and without what is secret."""

from __future__ import annotations

import json
import shlex
import signal
import sys
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from idempotent_receiver.clock import SystemClock
from idempotent_receiver.errors import Failure
from idempotent_receiver.operations.cli.deployment import Deployment
from idempotent_receiver.operations.cli.dlq_options import epoch_ms
from idempotent_receiver.operations.cli.terminal import Exit, moment
from idempotent_receiver.operations.dead_letters.history import Act, History, Outcome, Verb
from idempotent_receiver.operations.dead_letters.queue import DeadLetterQueue
from idempotent_receiver.operations.trace import Event, in_order, of_execution, of_record
from idempotent_receiver.protocol.record import Record
from tests.manual_clock import START_MS, ManualClock
from tests.template import COMPONENT, load, rendering
from tests.unit import test_cli
from tests.unit.test_cli import CLOSED, DONE, FLAKY, STUCK, client
from tests.unit.test_history import OPERATOR, act

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.test_cli import Receiver, Stack

stack, receiver = test_cli.stack, test_cli.receiver
ON = ("--stack", "transfers")
SECRET = "4929-1234-5678-9012"
NOW_MS = 1_800_000_000_000
DAY_MS = 24 * 60 * 60 * 1000


class Kept:
    """The history of the stack, into which a test writes at times of its own."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.history = History(client("dynamodb"), "history", self.clock)

    def begin(self, ago_seconds: float, key: str = FLAKY, **changed: Any) -> Act:
        self.clock.stepped_seconds = (SystemClock().epoch_ms() - START_MS) / 1000 - ago_seconds
        (begun,) = self.history.begin([act(key, message_id=key, **changed)])
        return begun

    def done(self, ago_seconds: float, key: str = FLAKY, **changed: Any) -> Act:
        begun = self.begin(ago_seconds, key, **changed)
        self.history.confirm([begun.ended(Outcome.DONE)])
        return begun


@pytest.fixture
def kept(stack: Stack) -> Kept:
    return Kept()


# dlq history.


def test_history_tells_each_act_in_the_order_in_which_they_were_begun(receiver: Receiver, kept: Kept) -> None:
    kept.done(20, CLOSED, verb=Verb.ARCHIVED, why="account closed", plan="p2")
    first = kept.done(60)
    told = receiver("dlq", "history", *ON, "--json")
    assert told.code == Exit.OK
    assert [(each["key"], each["verb"], each["outcome"]) for each in told.json["acts"]] == [
        (FLAKY, "moved", "done"),
        (CLOSED, "archived", "done"),
    ]
    assert told.json["acts"][0] == {
        "at": moment(first.at_ms),
        "verb": "moved",
        "key": FLAKY,
        "id": FLAKY,
        "message_id": FLAKY,
        "outcome": "done",
        "code": None,
        "ended": moment(first.at_ms),
        "may_have_happened": False,
        "operator": OPERATOR,
        "why": first.why,
        "plan": "p1",
        "queue": first.queue,
        "dead_letter_queue": first.dead_letter_queue,
    }
    shown = receiver("dlq", "history", *ON).out
    assert shown.index(FLAKY) < shown.index(CLOSED)
    assert {OPERATOR, "account closed; plan p2"} <= {line.strip() for line in shown.splitlines()}


def test_an_act_that_was_never_confirmed_is_told_as_such_with_what_to_type(receiver: Receiver, kept: Kept) -> None:
    kept.begin(30)
    kept.done(20, CLOSED)
    told = receiver("dlq", "history", *ON, "--json").json
    assert (told["count"], told["not_confirmed"]) == (2, 1)
    assert [(each["outcome"], each["may_have_happened"]) for each in told["acts"]] == [("begun", True), ("done", False)]
    shown = receiver("dlq", "history", *ON).out
    assert "begun, not confirmed: it may have happened" in shown
    assert "Of 1 act nobody knows" in shown
    assert "receiver trace KEY --stack transfers" in shown
    assert "nobody knows" not in receiver("dlq", "history", *ON, "--key", CLOSED).out


def test_what_aws_refused_or_did_not_answer_has_its_code(receiver: Receiver, kept: Kept) -> None:
    refused, open_ = kept.begin(30), kept.begin(20, CLOSED)
    kept.history.confirm([refused.ended(Outcome.REFUSED, "InvalidMessageContents")])
    kept.history.confirm([open_.ended(Outcome.UNCONFIRMED, "ReadTimeoutError")])
    shown = receiver("dlq", "history", *ON).out
    assert "refused (InvalidMessageContents)" in shown
    assert "begun, not confirmed (ReadTimeoutError): it may have happened" in shown


def test_acts_are_chosen_by_key_time_and_verb(receiver: Receiver, kept: Kept) -> None:
    kept.done(7200, FLAKY, verb=Verb.MOVED)
    kept.done(1800, FLAKY, verb=Verb.DROPPED)
    kept.done(600, CLOSED, verb=Verb.DELETED)

    def verbs(*given: str) -> list[str]:
        told = receiver("dlq", "history", *ON, "--json", *given).json
        assert told["count"] == len(told["acts"])
        return [each["verb"] for each in told["acts"]]

    assert verbs() == ["moved", "dropped", "deleted"]
    assert verbs("--key", FLAKY) == ["moved", "dropped"]
    assert verbs("--since", "1h") == ["dropped", "deleted"]
    assert verbs("--until", "1h") == ["moved"]
    assert verbs("--since", "1h", "--key", FLAKY) == ["dropped"]
    assert verbs("--verb", "moved", "--verb", "deleted") == ["moved", "deleted"]
    assert verbs("--key", "nosuch") == []
    assert receiver("dlq", "history", *ON, "--key", "nosuch").out == "The history has no such act.\n"


def test_only_the_latest_are_shown_and_how_many_there_are_is_said(receiver: Receiver, kept: Kept) -> None:
    for ago in (40, 30, 20):
        kept.done(ago, why=f"{ago} seconds ago")
    ran = receiver("dlq", "history", *ON, "--limit", "2", "--json")
    assert [each["why"] for each in ran.json["acts"]] == ["30 seconds ago", "20 seconds ago"]
    assert ran.json["count"] == 3
    assert "These are the latest 2 of 3 acts: --limit shows more." in ran.err


def test_keys_are_told_without_their_namespace_and_found_with_it(receiver: Receiver, kept: Kept) -> None:
    kept.done(20, "bank#o-1")
    for key in ("o-1", "bank#o-1"):
        (told,) = receiver("dlq", "history", *ON, "--namespace", "bank", "--key", key, "--json").json["acts"]
        assert (told["key"], told["id"]) == ("o-1", "bank#o-1")


def test_a_dead_letter_without_a_key_is_found_by_its_message(receiver: Receiver, kept: Kept) -> None:
    kept.done(20, "message-1", verb=Verb.DELETED)
    told = receiver("dlq", "history", *ON, "--namespace", "bank", "--key", "message-1", "--json").json
    assert [each["verb"] for each in told["acts"]] == ["deleted"]


@pytest.mark.parametrize("given", [("--since", "yesterday"), ("--until", "5"), ("--since", "1h", "--until", "2h")])
def test_times_that_mean_nothing_are_refused(receiver: Receiver, given: tuple[str, ...]) -> None:
    ran = receiver("dlq", "history", *ON, *given)
    assert (ran.code, ran.out) == (Exit.USAGE, "")
    assert given[-2] in ran.err


def test_a_time_without_a_zone_is_utc() -> None:
    at = int(datetime(2026, 11, 22, 2, tzinfo=UTC).timestamp() * 1000)
    assert epoch_ms("--since", "2026-11-22T02:00", 0) == epoch_ms("--since", "2026-11-22T03:00+01:00", 0) == at
    assert epoch_ms("--since", "90s", at) == at - 90_000


def test_a_stack_without_a_history_is_told_what_to_give(receiver: Receiver, stack: Stack) -> None:
    del stack.outputs["HistoryTable"]
    ran = receiver("dlq", "history", *ON)
    assert ran.code == Exit.USAGE
    assert "stack transfers has no output HistoryTable: give --history" in ran.err
    assert receiver("dlq", "history", "--history", "history").code == Exit.OK


@pytest.fixture
def denied(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Deny some of AWS's operations: moto allows everything."""
    found = Deployment.client

    def deny(*operations: str) -> None:
        def client_of(self: Deployment, service: str) -> Any:
            made = found(self, service)
            if service != "cloudformation":
                made.meta.events.register("before-call", refuse)
            return made

        def refuse(model: Any, **_: object) -> None:
            if model.name in operations:
                error = {"Code": "AccessDeniedException", "Message": f"User: x may not {model.name}"}
                raise ClientError({"Error": error}, model.name)

        monkeypatch.setattr(Deployment, "client", client_of)

    return deny


@pytest.mark.parametrize(("given", "operation"), [((), "Scan"), (("--key", FLAKY), "Query")])
def test_a_denied_history_says_which_permission_is_missing(
    receiver: Receiver, denied: Any, given: tuple[str, ...], operation: str
) -> None:
    denied(operation)
    ran = receiver("dlq", "history", *ON, *given)
    assert (ran.code, ran.out) == (Exit.AWS, "")
    assert f"table history does not let this role do that: allow dynamodb:{operation} on it" in ran.err


@pytest.mark.parametrize(
    "given", [("trace", FLAKY), ("dlq", "history"), ("dlq", "history", "--key", FLAKY)], ids=" ".join
)
def test_the_operators_policy_is_enough(
    receiver: Receiver, kept: Kept, monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...]
) -> None:
    kept.done(20)
    tables = {"records": ["Records", "Arn"], "history": ["History", "Arn"]}
    asked: set[tuple[str, Any]] = set()

    def note(model: Any, params: dict[str, Any], **_: object) -> None:
        action = f"{model.service_model.endpoint_prefix}:{model.name.removesuffix('Batch')}"
        body = str(params["body"])
        asked.update((action, tuple(arn)) for name, arn in tables.items() if f'"{name}"' in body)
        if action.startswith("sqs"):
            asked.add((action, None))

    found = Deployment.client

    def client_of(self: Deployment, service: str) -> Any:
        made = found(self, service)
        if service != "cloudformation":
            made.meta.events.register("before-call", note, unique_id="note")
        return made

    monkeypatch.setattr(Deployment, "client", client_of)
    assert receiver(*given, *ON).code == Exit.OK
    policy = rendering(
        load(COMPONENT),
        StackId="arn:aws:cloudformation:us-east-1:123456789012:stack/transfers/1",
        FunctionName="transfers",
    ).rendered()["Resources"]
    statements = policy["OperatorPolicy"]["Properties"]["PolicyDocument"]["Statement"]
    allowed = {
        (action, tuple(arn) if arn in tables.values() else None)
        for each in statements
        for action in (each["Action"] if isinstance(each["Action"], list) else [each["Action"]])
        for arn in [each["Resource"].get("Fn::GetAtt") if isinstance(each["Resource"], dict) else None]
    }
    assert asked
    assert asked <= allowed


# trace.


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
    assert stack.keys_in(stack.dead) == {DONE, FLAKY, CLOSED, test_cli.CONFLICT}


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
    assert stack.keys_in(stack.dead) == {DONE, FLAKY, CLOSED, test_cli.CONFLICT}


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


# The events themselves.


def texts(record: Record, now_ms: int = NOW_MS) -> list[tuple[int | None, str]]:
    return [(each.at_ms, each.text) for each in of_record("record", record, now_ms, 30 * 86_400)]


def written(status: str, **attributes: Any) -> Record:
    """A record that was written at NOW_MS."""
    return Record(id="k", status=status, version="v", expiration=NOW_MS // 1000 + 30 * 86_400, **attributes)


END = (NOW_MS + 30 * DAY_MS, "end of the record: from then on, the key is free")


def test_a_claim_is_told_with_its_owner_and_the_end_of_its_lease() -> None:
    claimed = written("INPROGRESS", owner="request-1", attempts=2, in_progress_expiration=NOW_MS + 5)
    assert texts(claimed) == [
        (NOW_MS, "INPROGRESS: claimed for attempt 2 by request-1"),
        (NOW_MS + 5, "end of its lease"),
        END,
    ]
    assert texts(claimed, NOW_MS + 5)[1] == (NOW_MS + 5, "end of its lease, and nobody settled it")


def test_what_was_released_has_no_lease_to_end() -> None:
    released = written("INPROGRESS", in_progress_expiration=NOW_MS - 1)
    assert texts(released) == [(NOW_MS, "INPROGRESS: released before its handler started"), END]


def test_an_end_is_told_with_its_attempt_and_its_reason() -> None:
    failure = Failure(type="PermanentError", text="account closed", permanent=True).to_json()
    assert texts(written("FAILED", error=failure, attempts=3))[0][1] == "FAILED at attempt 3, for good: account closed"
    assert texts(written("FAILED"))[0][1] == "FAILED at attempt 1, and may be tried again: no reason was recorded"
    assert texts(written("COMPLETED"))[0] == (NOW_MS, "COMPLETED at attempt 1")
    unreadable = written("COMPLETED")._replace(unreadable="unexpected type of data")
    assert texts(unreadable)[0][1] == "this version cannot read it: unexpected type of data"


def test_a_record_of_another_retention_is_not_dated() -> None:
    later = written("COMPLETED")._replace(expiration=NOW_MS // 1000 + 90 * 86_400)
    assert texts(later)[0] == (None, "COMPLETED at attempt 1")


def test_an_execution_is_told_from_start_to_end_without_its_input() -> None:
    arn = "arn:aws:states:us-east-1:123456789012:execution:transfers:name-1"
    at = datetime(2026, 11, 22, 2, tzinfo=UTC)
    handed_over = written("INPROGRESS", execution=arn, in_progress_expiration=NOW_MS + 5)
    assert texts(handed_over)[0][1] == "INPROGRESS: handed over to the execution name-1"
    described = {"executionArn": arn, "startDate": at, "status": "RUNNING", "input": SECRET}
    start = Event(int(at.timestamp() * 1000), "execution", "name-1 started")
    assert list(of_execution(described)) == [start, Event(None, "execution", "name-1 RUNNING")]
    ended = {**described, "status": "FAILED", "error": "States.Timeout", "cause": SECRET, "stopDate": at}
    assert list(of_execution(ended))[1] == replace(start, text="name-1 FAILED: States.Timeout")


def test_what_is_so_now_stands_between_what_was_and_what_will_be() -> None:
    events = [Event(4, "d", "later"), Event(None, "a", "now"), Event(2, "b", "second"), Event(1, "c", "first")]
    assert [each.text for each in in_order(events, 3)] == ["first", "second", "now", "later"]


def test_the_stuck_worker_of_the_stack_is_named(receiver: Receiver) -> None:
    told = receiver("trace", STUCK, *ON).out
    assert "INPROGRESS: claimed for attempt 2 by request-1" in told
    assert "end of its lease, and nobody settled it" in told


def test_the_new_key_of_what_is_resent_is_told_and_kept_in_the_history(receiver: Receiver, stack: Stack) -> None:
    ran = receiver("dlq", "resend", "--key", FLAKY, "--body", "body.json", *ON, "--yes", "--json")

    (sent,) = client("sqs").receive_message(QueueUrl=stack.queue, MessageAttributeNames=["All"])["Messages"]
    key = json.loads(sent["MessageAttributes"]["idempotent-receiver"]["StringValue"])["key"]
    assert (ran.json["new_key"], key != FLAKY) == (key, True)
    (typed,) = test_cli.examples(ran.err.replace("\\\n", " "))
    assert shlex.split(typed) == ["receiver", "trace", key, "--stack", "transfers"]
    (act,) = receiver("dlq", "history", "--key", FLAKY, *ON, "--json").json["acts"]
    assert act["why"].startswith(f"its new key is {key}; ")
    assert key in receiver("trace", FLAKY, *ON).out
