"""`receiver trace`: one key's story, in order and without what is secret."""

from __future__ import annotations

import json
import re
import shlex
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from idempotent_receiver import MemoryStore, Message, PermanentError, Transaction
from idempotent_receiver.clock import SystemClock
from idempotent_receiver.errors import Failure
from idempotent_receiver.operations.cli import records
from idempotent_receiver.operations.cli.terminal import Exit, moment
from idempotent_receiver.operations.dead_letters.history import Verb
from idempotent_receiver.operations.dead_letters.queue import DeadLetterQueue
from idempotent_receiver.operations.description import Description
from idempotent_receiver.protocol.record import DEFAULT_RETENTION_SECONDS, from_attributes
from idempotent_receiver.protocol.resend import Resend
from idempotent_receiver.sqs.dead_letter import Stamp
from idempotent_receiver.testing import sqs_event
from idempotent_receiver.transaction.outbox import STAMP
from tests.consumers import controlled
from tests.contexts import Context
from tests.manual_clock import ManualClock
from tests.unit.operations.cli.stack import (
    CLOSED,
    DEAD,
    DONE,
    FLAKY,
    FOR_GOOD,
    LASTING,
    LONG_AGO_MS,
    SECRET,
    STUCK,
    TRANSIENT,
    Receiver,
    Stack,
    answered,
    client,
    denied,
    examples,
)
from tests.unit.operations.dead_letters.acts import OPERATOR

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.operations.cli.history import Kept

TRACE = f"trace {FLAKY}"
ON = "--table records"


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
    assert events[1]["at"] == moment((expiration - 30 * 86_400) * 1000)
    assert events[3]["at"] is None
    assert stack.keys_in(stack.dead) == DEAD, "they are left to others"


CHARGED = '{"version": "v", "attempts": %d, "alone": true}'


@pytest.mark.parametrize(("count", "shown"), [(3, r"3 of 10\b"), (13, r"13(?! of)")])
def test_what_a_message_itself_has_cost_is_shown_of_what_is_allowed(
    receiver: Receiver, stack: Stack, count: int, shown: str
) -> None:
    """A redriven message begins anew, and its record goes on counting."""
    stack.outputs["ConsumerDescription"] = '{"key": "message_id", "payload": {}, "max_attempts": 10}'
    stack.record(FLAKY, "FAILED", "flaky", error=TRANSIENT, attempts=20, charged=CHARGED % count)
    listed = f"dlq list --key {FLAKY}"
    for typed in (TRACE, "stuck --yes", listed):
        assert re.search(rf"\bcharged +{shown}", receiver.on(typed).out), typed
    (letter,) = receiver.on(f"{listed} --json").json["groups"][0]["letters"]
    assert (letter["charged"], letter["max_attempts"]) == (count, 10)
    assert receiver.on(f"{TRACE} --json").json["record"]["charged"] == count
    receiver.on(f"{listed} --out letters.jsonl")
    assert json.loads(Path("letters.jsonl").read_text())["charged"] == count


def test_the_crash_that_the_end_of_a_lease_may_mean_is_counted(receiver: Receiver, stack: Stack) -> None:
    of = {"in_progress_expiration": LONG_AGO_MS, "owner": "w", "charged": CHARGED % 3}
    stack.record(FLAKY, "INPROGRESS", "flaky", **of)
    assert receiver.on(f"{TRACE} --json").json["record"]["charged"] == 4
    stack.record(FLAKY, "INPROGRESS", "flaky", **{**of, "in_progress_expiration": LASTING * 1000})
    assert receiver.on(f"{TRACE} --json").json["record"]["charged"] == 3


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


def test_a_queue_without_a_redrive_policy_has_no_dead_letters_to_tell_of(receiver: Receiver, stack: Stack) -> None:
    """A stack behind a queue that is somebody else's: nothing is left unread, and the command succeeds."""
    del stack.outputs["DeadLetterQueueUrl"]
    stack.sqs.set_queue_attributes(QueueUrl=stack.queue, Attributes={"RedrivePolicy": ""})

    ran = receiver.on(f"{TRACE} --json")

    assert (ran.code, ran.json["unread"]) == (Exit.OK, [])
    assert [each["text"] for each in ran.json["events"] if each["source"] == "dead letters"] == [
        f"none: {stack.queue} has no redrive policy"
    ]


def test_what_is_not_looked_at_is_said(receiver: Receiver, stack: Stack) -> None:
    for number in range(10):
        stack.bury(f"more-{number}")
    assert "Looked at 10 of about 14 dead letters (see --limit" in receiver.on(f"{TRACE} --limit 1").err


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
    ran = receiver("trace name-1 --table records --json")
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
    ("source", "permission", "code"),
    [
        ("dead letters", "sqs:ReceiveMessage", Exit.LEFT),
        ("history", "dynamodb:Query", Exit.LEFT),
        ("log", "logs:FilterLogEvents", Exit.OK),
        ("record", "dynamodb:BatchGetItem", Exit.AWS),
    ],
)
def test_what_may_not_be_read_is_named_with_its_permission_and_the_rest_is_told(
    receiver: Receiver, stack: Stack, kept: Kept, *, source: str, permission: str, code: Exit
) -> None:
    """A record that could not be read is not absent. The log is a help, and nothing hangs on it."""
    kept.done(20)
    stack.log({"key": FLAKY, "receive_count": 1})
    with denied(permission.partition(":")[2]):
        ran = receiver.on(f"{TRACE} --json")
    (unread,) = ran.json["unread"]
    assert (ran.code, unread["source"], f"allow {permission}" in unread["why"]) == (code, source, True)
    assert {"record", "history", "dead letter", "log"} - set(sources(ran.json)) == {source.removesuffix("s")}
    assert ran.json["status"] == ("NOT_READ" if source == "record" else "FAILED")


def test_what_fails_otherwise_is_told_as_aws_says_it(receiver: Receiver) -> None:
    with denied("ReceiveMessage", code="InternalFailure"):
        (unread,) = receiver.on(f"{TRACE} --json").json["unread"]
    assert "(InternalFailure) when calling the ReceiveMessage operation" in unread["why"]


def test_a_table_alone_is_enough_for_what_has_no_queue(receiver: Receiver, stack: Stack) -> None:
    stack.record("api#alice#1", "COMPLETED", data='{"statusCode": 201}')
    for line in ("trace api#alice#1 --table records", "trace alice#1 --table records --consumer api.json"):
        ran = receiver(f"{line} --json")
        assert (ran.code, ran.json["id"], ran.json["record"]["result"]) == (Exit.OK, "api#alice#1", {"statusCode": 201})
        assert [each["source"] for each in ran.json["unread"]] == ["log"]
    del stack.outputs["HistoryTable"]
    assert receiver.on(TRACE).code == Exit.OK


def test_the_log_tells_what_happened_under_the_key_and_never_a_body(receiver: Receiver, stack: Stack) -> None:
    failed = {"level": "WARNING", "message": "failed, will be retried", "error_type": "E", "at": "app.ledger:7"}
    stack.log(
        {**failed, "key": FLAKY, "message_id": FLAKY, "receive_count": 3, "body": SECRET},
        {"key": FLAKY, "level": "INFO", "message": {"card": SECRET}, "location": "post:12"},
        {"key": f"{FLAKY}-2", "message": "another"},
        {"key": DONE, "message": "of another key"},
    )
    ran = receiver.on(f"{TRACE} --json")
    assert texts(ran.json, "log") == [
        "WARNING failed, will be retried; E; app.ledger:7",
        "INFO a line logged by the function, at post:12",
    ]
    assert SECRET not in ran.out + ran.err


def test_the_log_is_searched_from_an_hour_before_the_earliest_that_is_known(receiver: Receiver, stack: Stack) -> None:
    """The record was written two days ago, and its dead letter has just been sent."""
    days = 2 * 86_400
    written = SystemClock().epoch_ms() // 1000 - days
    stack.record(FLAKY, "FAILED", "flaky", error=TRANSIENT, expiration=written + DEFAULT_RETENTION_SECONDS)
    stack.log({"key": FLAKY, "message": "failed", "receive_count": 1}, ago_seconds=days + 1800)
    assert texts(receiver.on(f"{TRACE} --json").json, "log") == ["failed"]


def test_no_secret_of_a_body_is_told_and_a_result_is_told_whole(receiver: Receiver, stack: Stack) -> None:
    stack.bury("k-1", json.dumps({"card": SECRET}))
    stack.record("k-1", "COMPLETED", data='{"posted": "t-1"}')
    for form in ("", "--json"):
        ran = receiver.on(f"trace k-1 {form}")
        assert (SECRET in ran.out + ran.err, '"posted": "t-1"' in ran.out) == (False, True)


# A letter that was sent again.

NEW, WHY = "7b1d0a2e", "the amount was negative"


@pytest.fixture
def resent(stack: Stack, kept: Kept) -> Callable[[str], None]:
    """The letter of FLAKY is sent again as NEW: the record of the old key has this status, and the act is kept."""
    resend = Resend(new_id=NEW, operator=OPERATOR, why=WHY, message_id="d-1", original_id=FLAKY)

    def written(status: str) -> None:
        stack.record(FLAKY, status, owner="a worker", resent=resend.to_json(), in_progress_expiration=1)
        kept.done(20, verb=Verb.RESENT, why=WHY, other=NEW)

    return written


@pytest.mark.parametrize(("status", "told"), [("SENDING", "RESENDING"), ("COMPLETED", "RESENT")])
def test_a_resent_letter_knows_its_other_key_in_both_directions(
    receiver: Receiver, stack: Stack, resent: Callable[[str], None], status: str, told: str
) -> None:
    resent(status)
    ran = receiver.on(f"{TRACE} --json")
    assert (ran.code, ran.json["status"], ran.json["record"]["was"]) == (Exit.OK, told, status)
    resend = {"old_key": FLAKY, "new_key": NEW, "operator": OPERATOR, "why": WHY, "dead_letter": "d-1"}
    assert ran.json["record"]["resend"] == resend
    assert f"{told} as {NEW}, by {OPERATOR}: {WHY}" in texts(ran.json, "record")
    assert texts(ran.json, "history") == [f"message {FLAKY} resent as {NEW} by {OPERATOR}: {WHY}; done; plan p1"]
    assert re.search(rf"(?m)^status +{told} *\nold key +{FLAKY} *\nnew key +{NEW} *$", receiver.on(TRACE).out)

    ran = receiver.on(f"trace {NEW} --json")
    assert texts(ran.json, "history") == [f"message {FLAKY} resent from {FLAKY} by {OPERATOR}: {WHY}; done; plan p1"]
    assert texts(ran.json, "resend") == [f"{FLAKY} is {told} as {NEW}, by {OPERATOR}: {WHY}"]


def test_a_resend_whose_record_cannot_be_read_is_named_with_the_reason(
    receiver: Receiver, resent: Callable[[str], None]
) -> None:
    resent("COMPLETED")

    def refuse(operation: str, arguments: dict[str, Any]) -> None:
        if operation == "BatchGetItem" and arguments["RequestItems"]["records"]["Keys"] == [{"id": {"S": FLAKY}}]:
            raise ClientError({"Error": {"Code": "AccessDeniedException"}}, operation)

    with answered(refuse):
        ran = receiver.on(f"trace {NEW} --json")
    (unread,) = ran.json["unread"]
    assert (ran.code, unread["source"]) == (Exit.LEFT, "resend")
    assert "allow dynamodb:BatchGetItem" in unread["why"]


def test_without_a_history_the_dead_letter_of_the_new_key_leads_to_the_old_one(
    receiver: Receiver, stack: Stack, resent: Callable[[str], None]
) -> None:
    resent("COMPLETED")
    del stack.outputs["HistoryTable"]
    attribute = {"DataType": "String", "StringValue": Stamp(key=NEW, original_id=FLAKY, queue=stack.arn).to_json()}
    stack.sqs.send_message(QueueUrl=stack.dead, MessageBody="mended", MessageAttributes={STAMP: attribute})
    told = receiver.on(f"trace {NEW} --json").json
    assert texts(told, "resend") == [f"{FLAKY} is RESENT as {NEW}, by {OPERATOR}: {WHY}"]
    assert f", key {NEW}, is a dead letter" in texts(receiver.on(f"{TRACE} --json").json, "dead letter")[-1]


def test_a_key_whose_resend_was_taken_back_is_not_told_as_done(receiver: Receiver, stack: Stack) -> None:
    back = Resend(old_id=FLAKY, new_id=NEW, fingerprint="f", operator=OPERATOR, why=WHY).to_json()
    stack.record(NEW, "COMPLETED", owner=OPERATOR, resent=back)
    told = receiver.on(f"trace {NEW} --json").json
    assert told["status"] == "TAKEN_BACK"
    assert texts(told, "record")[0] == f"TAKEN_BACK by {OPERATOR}: {WHY} (no handler ran; {FLAKY} can run again)"


def test_an_unkeyed_letter_keeps_its_story_when_its_messageid_changes(
    receiver: Receiver, stack: Stack, kept: Kept
) -> None:
    """Its acts are kept under the id that it had then; its stamp remembers its first."""
    del stack.outputs["ConsumerDescription"]
    attribute = {"DataType": "String", "StringValue": Stamp(key="m-1", original_id="m-1", queue=stack.arn).to_json()}
    sent = stack.sqs.send_message(QueueUrl=stack.dead, MessageBody="no key", MessageAttributes={STAMP: attribute})
    kept.done(20, "m-1", verb=Verb.ARCHIVED)
    for key in ("m-1", sent["MessageId"]):
        told = receiver.on(f"trace {key} --consumer orders.json --json").json
        assert [each.partition(" by ")[0] for each in texts(told, "history")] == ["message m-1 archived"]
        assert len(texts(told, "dead letter")) == 1


def test_what_was_done_later_leaves_no_doubt(receiver: Receiver, kept: Kept) -> None:
    kept.begin(30)
    assert "it may have happened" in texts(receiver.on(f"{TRACE} --json").json, "history")[0]
    kept.done(20)
    assert "not confirmed; repeated later" in texts(receiver.on(f"{TRACE} --json").json, "history")[0]


# What the record says.


def test_how_much_of_a_lease_is_left_is_told(receiver: Receiver, stack: Stack) -> None:
    until = SystemClock().epoch_ms() + 90_000
    stack.record("held", "INPROGRESS", in_progress_expiration=until, owner="request-2")
    assert 80 <= receiver(f"trace held {ON} --json").json["record"]["lease_left_seconds"] <= 90
    assert re.search(r"(?m)^lease +0:01:\d\d left, until ", receiver(f"trace held {ON}").out)
    over = receiver(f"trace {STUCK} {ON}").out
    assert re.search(r"(?m)^lease +ended at 2023-11-14T22:13:20Z *$", over)
    assert "left" not in over


def test_when_a_record_was_written_is_not_said_to_be_in_the_future(receiver: Receiver, stack: Stack) -> None:
    """Where records last longer than is known, their end says nothing of their beginning."""
    written = SystemClock().epoch_ms() // 1000 - 86_400
    stack.forget(FLAKY, STUCK)
    for days, known in ((90, False), (30, True)):
        stack.record(CLOSED, "FAILED", error=FOR_GOOD, expiration=written + days * 86_400)
        for line in (f"trace {CLOSED} --stack transfers", "stuck --yes --stack transfers"):
            shown = receiver(line).out
            assert (records.UNDATED in shown, moment(written * 1000) in shown) == (not known, known)


@pytest.mark.parametrize(
    ("key", "given"),
    [("o-1", ON), ("o-1", f"{ON} --consumer ids.json"), ("orders#o-1", f"{ON} --consumer '30 days.json'")],
    ids=["no consumer", "a consumer that does not say", "another namespace"],
)
def test_a_record_whose_retention_is_not_known_is_not_dated(
    receiver: Receiver, stack: Stack, key: str, given: str
) -> None:
    """One that lasts for ten seconds was written just now, not a month ago."""
    stack.record(key, "FAILED", error=FOR_GOOD, expiration=SystemClock().epoch_ms() // 1000 + 10)
    told = receiver(f"trace {key} {given} --json").json
    assert (told["record"]["written_about"], told["events"][0]["at"]) == (None, None)
    (stuck,) = (each for each in receiver(f"stuck --yes {given} --json").json["permanent"] if each["id"] == key)
    assert stuck["written_about"] is None


def test_the_log_is_searched_for_two_weeks_if_it_is_not_known_when_a_record_was_written(
    receiver: Receiver, stack: Stack, kept: Kept
) -> None:
    """The act of an operator is later than what the record tells of."""
    stack.outputs["ConsumerDescription"] = '{"key":"message_id"}'
    stack.record("k-1", "FAILED", error=FOR_GOOD)
    kept.done(20, "k-1")
    stack.log({"key": "k-1", "message": "failed", "receive_count": 1}, ago_seconds=2 * 86_400)
    assert texts(receiver.on("trace k-1 --json").json, "log") == ["failed"]


def test_a_key_of_the_namespace_comes_first_and_a_whole_id_is_taken_as_well(receiver: Receiver, stack: Stack) -> None:
    bank = f"{ON} --consumer bank.json --json"
    stack.record("bank#o-1", "COMPLETED")
    for given in ("o-1", "bank#o-1"):
        told = receiver(f"trace {given} {bank}").json
        assert (told["id"], told["key"]) == ("bank#o-1", "o-1")
    stack.record("bank#bank#o-1", "COMPLETED")
    told = receiver(f"trace bank#o-1 {bank}").json
    assert (told["id"], told["key"]) == ("bank#bank#o-1", "bank#o-1")


@pytest.mark.parametrize("namespace", ["", "--consumer bank.json"], ids=["all", "one"])
def test_it_takes_what_stuck_and_list_print(receiver: Receiver, stack: Stack, namespace: str) -> None:
    del stack.outputs["ConsumerDescription"]
    body = '{"id": "o-1"}'
    stack.record("bank#o-1", "FAILED", body, error=Failure(type="E").to_json())
    stack.bury("whatever", body)
    stuck = receiver(f"stuck {ON} --yes --json {namespace}").json
    (printed,) = [each["key"] for each in stuck["failing"] if each["id"] == "bank#o-1"]
    assert printed in receiver(f"stuck {ON} --yes {namespace}").out.split()
    assert receiver(f"trace {printed} {ON} {namespace} --json").json["id"] == "bank#o-1"

    business = "--consumer orders.json --json"
    listed = receiver.on(f"dlq list {business}").json
    (printed,) = [each["key"] for group in listed["groups"] for each in group["letters"] if each["key"]]
    assert receiver.on(f"trace {printed} {business}").json["id"] == "bank#o-1"


def test_nothing_that_others_wrote_reaches_the_terminal_as_a_command(receiver: Receiver, stack: Stack) -> None:
    """An error's text may hold control sequences, and look like rich's own markup."""
    text = "\x1b]0;owned\x07 [red]not markup[/red] \x9b2J"
    stack.record("evil", "FAILED", error=Failure(type="E", text=text).to_json())
    shown = receiver(f"trace evil {ON}").out
    assert "[red]not markup[/red]" in shown
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", shown)


def test_a_record_that_nobody_claimed_says_what_one_says_that_was_claimed() -> None:
    """It has no lease, and the attempt of a worker that claimed it and died counts."""
    shown = records_left("transaction")
    assert shown == records_left("any")
    assert {id: (each["status"], each["attempts"], each["lease_until"]) for id, each in shown.items()} == {
        "good": ("COMPLETED", 1, None),
        "flaky": ("FAILED", 1, None),
        "closed": ("FAILED", 1, None),
        "orphaned": ("COMPLETED", 2, None),
    }


def records_left(effects: str) -> dict[str, dict[str, Any]]:
    """What is said of the records of four messages, handled at one moment by one invocation."""
    clock, store = ManualClock(), MemoryStore(tables={"done": "id"})
    orphan = {"id": "orphaned", "status": "INPROGRESS", "version": "v", "attempts": 1, "owner": "dead"}
    store.items["orphaned"] = orphan | {"expiration": LASTING, "in_progress_expiration": clock.epoch_ms() - 1}

    @controlled(store, effects=effects, clock=clock)
    def handle(body: dict, message: Message, tx: Transaction) -> str:
        tx.put(TableName="done", Item={"id": message.id})
        match message.id:
            case "flaky":
                raise ConnectionError
            case "closed":
                raise PermanentError("account closed")
        return message.id

    fresh = sqs_event({}, {}, {}, ids=["good", "flaky", "closed"])["Records"]
    again = sqs_event({}, ids=["orphaned"], receive_count=2)["Records"]
    handle({"Records": fresh + again}, Context(clock))
    known: Any = {"known_retention": lambda of: DEFAULT_RETENTION_SECONDS, "description": Description()}
    deployment: Any = SimpleNamespace(key_of=str, **known)
    return {
        id: records.record_values(from_attributes(item), deployment, clock.epoch_ms())
        for id, item in store.items.items()
    }


def test_the_new_key_of_what_is_resent_is_told_and_kept_in_the_history(receiver: Receiver, stack: Stack) -> None:
    ran = receiver.on(f"dlq resend --key {FLAKY} --body body.json --yes --json")
    (sent,) = stack.received(stack.queue)
    key = json.loads(sent["MessageAttributes"][STAMP]["StringValue"])["key"]
    assert (ran.json["new_key"], key != FLAKY) == (key, True)
    (line,) = examples(ran.err.replace("\\\n", " "))
    assert shlex.split(line) == ["receiver", "trace", key, "--stack", "transfers"]
    (act,) = receiver.on(f"dlq history --key {FLAKY} --json").json["acts"]
    assert act["resent_as"] == key
    assert key in receiver.on(TRACE).out
