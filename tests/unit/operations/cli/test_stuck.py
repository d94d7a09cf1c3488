"""`receiver stuck`: what nobody settled, what fails, and what to type."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from botocore.client import BaseClient

from harness.cloud import ROOT
from idempotent_receiver.clock import SystemClock
from idempotent_receiver.errors import Failure
from idempotent_receiver.operations.cli import dlq_report, documentation, records, terminal
from idempotent_receiver.operations.cli.common_options import Options
from idempotent_receiver.operations.cli.deployment import Deployment
from idempotent_receiver.operations.dead_letters.triage import Verdict
from idempotent_receiver.operations.scan import pages
from idempotent_receiver.protocol.record import idempotency_key
from idempotent_receiver.protocol.resend import Resend
from idempotent_receiver.sqs.dead_letter import stamp_of
from idempotent_receiver.transaction.outbox import STAMP, Outgoing, to_text
from tests.manual_clock import ManualClock
from tests.unit.operations.cli.stack import (
    CLOSED,
    CONFLICT,
    DONE,
    FLAKY,
    FOR_GOOD,
    LASTING,
    LONG_AGO_MS,
    REGION,
    STUCK,
    Receiver,
    Stack,
    advised,
    answered,
    client,
    denied,
    section_of,
)

SCAN = "stuck --table records --yes"
LAPSED: dict[str, Any] = {"in_progress_expiration": LONG_AGO_MS, "owner": "w"}
ERROR = Failure(type="E").to_json()


def ids(told: Any, kind: str) -> list[str]:
    return [each["id"] for each in told[kind]]


def test_stuck_names_what_failed_for_good_apart_the_latest_first(receiver: Receiver, stack: Stack) -> None:
    """Else those that are tried again, with their many attempts, would push it out of the list."""
    for number in range(3):
        stack.record(f"flaky-{number}", "FAILED", error=ERROR, attempts=9)
        stack.record(f"closed-{number}", "FAILED", error=FOR_GOOD, expiration=LASTING + number)
    told = receiver(f"{SCAN} --json --top 2").json
    assert (told["failing_count"], told["permanent_count"]) == (5, 4)
    assert ids(told, "permanent") == ["closed-2", "closed-1"]
    assert all(id.startswith("flaky-") for id in ids(told, "failing"))


@pytest.mark.parametrize(
    "given",
    [
        "--stack transfers",
        f"--stack transfers --region {REGION} --consumer '30 days.json' --dlq transfers-dead",
        "--queue transfers --table records --consumer bank.json",
        "--table records",
    ],
)
def test_what_stuck_advises_means_the_same_consumer_and_runs_as_it_stands(
    receiver: Receiver, stack: Stack, given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    stack.record("bank#closed", "FAILED", error=Failure(type="E", permanent=True).to_json())
    commands = advised(receiver(f"stuck --yes {given}").out)
    assert commands
    for command in commands:
        assert set(shlex.split(given)) <= set(command)
        unsaid = {"QUEUE": "transfers", "CONSUMER": "ids.json", "KEY": "nosuch"}
        ran = receiver(*(unsaid.get(each, each) for each in command[1:]), "--yes")
        assert (ran.code, "no visible dead letters with the key nosuch" in ran.out) == (terminal.Exit.LEFT, True), (
            ran.err
        )


QUEUED = "sent-1"
BODIES = ['{"order":1}', "to nobody else"]


def unsent(stack: Stack, key: str = QUEUED, **attributes: Any) -> list[str]:
    """A record of a worker that died before it had sent its messages; returns their queue."""
    (queue, _) = stack.queues("shipments")
    outbox = to_text([Outgoing(queue, {"MessageBody": body}) for body in BODIES])
    stack.record(key, **{"status": "SENDING", "outbox": outbox, **LAPSED, **attributes})
    return [queue]


def test_stuck_lists_what_waits_to_be_sent_without_showing_it(receiver: Receiver, stack: Stack) -> None:
    unsent(stack)
    unsent(stack, "later", in_progress_expiration=LONG_AGO_MS + 10**13)
    told = receiver(f"{SCAN} --json")
    assert (told.json["unsent_count"], ids(told.json, "unsent")) == (1, [QUEUED])
    shown = receiver(SCAN).out
    assert not any(body in text for body in BODIES for text in (shown, told.out))


def test_no_file_of_dead_letters_and_no_archive_has_what_waits_to_be_sent(receiver: Receiver, stack: Stack) -> None:
    unsent(stack)
    stack.bury(QUEUED)
    for name in ("letters.jsonl", "letters.html"):
        assert receiver.on(f"dlq list --out {name} --bodies").code == terminal.Exit.OK
    assert receiver.on(f"dlq archive --key {QUEUED} --yes").code == terminal.Exit.OK
    (kept,) = client("s3").list_objects_v2(Bucket="archive")["Contents"]
    archived = client("s3").get_object(Bucket="archive", Key=kept["Key"])["Body"].read().decode()
    for text in (Path("letters.jsonl").read_text("utf-8"), Path("letters.html").read_text("utf-8"), archived):
        assert QUEUED in text
        assert BODIES[1] not in text


def test_stuck_sends_from_the_record_of_a_message_that_is_gone(receiver: Receiver, stack: Stack) -> None:
    (queue,) = unsent(stack)
    asked = f"stuck --table records --send {QUEUED}"
    assert receiver(f"{asked} --yes --json").json == {
        "schema": 1, "confirmed": True, "key": QUEUED, "sent": True, "why": None
    }  # fmt: skip
    given = {"MaxNumberOfMessages": 10, "MessageAttributeNames": ["All"]}
    received = stack.sqs.receive_message(QueueUrl=queue, **given)["Messages"]
    keys = [stamp_of({STAMP: {"stringValue": one["MessageAttributes"][STAMP]["StringValue"]}}) for one in received]
    assert sorted(one["Body"] for one in received) == sorted(BODIES)
    assert {key and key.key for key in keys} == {f"{idempotency_key(QUEUED)}-{number}" for number in (1, 2)}
    assert receiver(f"{asked} --yes").code == terminal.Exit.LEFT


def test_stuck_sends_nothing_that_a_worker_may_be_sending(receiver: Receiver, stack: Stack) -> None:
    (queue,) = unsent(stack, in_progress_expiration=LONG_AGO_MS + 10**13)
    ran = receiver(f"stuck --table records --send {QUEUED} --yes")
    assert (ran.code, stack.received(queue)) == (terminal.Exit.LEFT, [])
    assert "a worker holds its claim until" in ran.out, "else one would take it for done"


def test_stuck_sends_what_stands_behind_a_message_that_sqs_calls_invalid(receiver: Receiver, stack: Stack) -> None:
    (queue,) = unsent(stack)

    def refuse_the_first(operation: str, arguments: dict[str, Any]) -> Any:
        if operation == "SendMessageBatch" and arguments["Entries"][0]["MessageBody"] == BODIES[0]:
            return {"Failed": [{"Id": "0", "Code": "InvalidMessageContents", "SenderFault": True}]}
        return None

    with answered(refuse_the_first):
        ran = receiver(f"stuck --table records --send {QUEUED} --yes")
    assert ran.code == 1
    assert ran.out.startswith("Not done: all else is done, but message 1: SQS answered InvalidMessageContents on")
    assert [one["Body"] for one in stack.received(queue)] == BODIES[1:]
    assert receiver(f"{SCAN} --json").json["unsent_count"] == 1


def test_stuck_takes_the_mark_of_another_who_sent_them_meanwhile_for_its_own(receiver: Receiver, stack: Stack) -> None:
    unsent(stack)

    def mark_first(operation: str, arguments: dict[str, Any]) -> None:
        if operation == "SendMessageBatch":
            stack.record(QUEUED, "COMPLETED", version="theirs")

    with answered(mark_first):
        ran = receiver(f"stuck --table records --send {QUEUED} --yes")
    assert (ran.code, ran.out) == (0, f"Sent the messages for {QUEUED}.\n")


def test_stuck_sends_nothing_if_it_may_not_take_the_record_over(receiver: Receiver, stack: Stack) -> None:
    (queue,) = unsent(stack)
    with denied("UpdateItem"):
        ran = receiver(f"stuck --table records --send {QUEUED} --yes")
    assert (ran.code, stack.received(queue)) == (terminal.Exit.LEFT, [])


def test_what_is_advised_is_for_the_same_account_too() -> None:
    endpoint = "https://an-endpoint.example.com:4566"
    options = Deployment(Options(table="records", region=REGION, profile="two words", endpoint_url=endpoint)).typed
    (command,) = advised(f"{records.advice(records.TAKEN_OVER, options)}\n")
    asked = ["--region", REGION, "--profile", "two words", "--endpoint-url", endpoint]
    assert command[-8:] == [*asked, "--key", "KEY"]


@contextmanager
def answered_scan(units: float) -> Iterator[None]:
    """Each page of a scan costs so many units."""
    call = BaseClient._make_api_call

    def costly(self: Any, operation: str, arguments: Any) -> Any:
        answer = call(self, operation, arguments)
        if operation == "Scan":
            assert arguments["ReturnConsumedCapacity"] == "TOTAL"
            answer["ConsumedCapacity"] = {"CapacityUnits": units}
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BaseClient, "_make_api_call", costly)
        yield


def test_stuck_goes_page_by_page_at_its_rate(receiver: Receiver, stack: Stack) -> None:
    for number in range(30):
        stack.record(f"more-{number}", "INPROGRESS", in_progress_expiration=LONG_AGO_MS + number, owner="w")
    clock = ManualClock()
    with answered_scan(3.0):
        scanned = list(pages(stack.dynamodb, "records", clock, units_a_second=2, page_items=7))
    assert ([len(page) for page in scanned], clock.sleeps) == ([7, 7, 7, 7, 7], [1.5] * 4)
    told = receiver(f"{SCAN} --json --top 3").json
    assert (told["unsettled_count"], len(told["unsettled"])) == (31, 3)


def test_stuck_leaves_other_namespaces_and_what_was_only_released(receiver: Receiver, stack: Stack) -> None:
    stack.record("bank#a", "INPROGRESS", **LAPSED)
    stack.record("bank#b", "INPROGRESS", in_progress_expiration=LONG_AGO_MS)
    stack.record("bank#c", "INPROGRESS", **LAPSED, expiration=1_700_000_000)
    told = receiver(f"{SCAN} --consumer bank.json --json").json
    assert (ids(told, "unsettled"), told["released_count"], told["failing_count"]) == (["bank#a"], 1, 0)


def test_stuck_says_how_many_records_are_in_the_namespace_and_fails_where_none_is(
    receiver: Receiver, stack: Stack
) -> None:
    """A namespace that is misspelt would read as all clear."""
    stack.record("bank#a", "FAILED", error=ERROR)
    ran = receiver(f"{SCAN} --consumer wrong.json --json")
    assert (ran.code, ran.json["scanned"], ran.json["own"]) == (terminal.Exit.LEFT, 6, 0)
    ran = receiver(f"{SCAN} --consumer bank.json --json")
    assert (ran.code, ran.json["scanned"], ran.json["own"]) == (terminal.Exit.OK, 6, 1)
    stack.forget(DONE, FLAKY, CLOSED, CONFLICT, STUCK, "bank#a")
    assert receiver(f"{SCAN} --consumer bank.json").code == terminal.Exit.OK, "nothing is wrong with an empty table"


def test_stuck_says_of_a_workflows_records_that_they_are_and_advises_no_redrive(
    receiver: Receiver, stack: Stack
) -> None:
    """There are no deliveries that try them again, and one that runs at its second start fails of nothing."""
    stack.forget(FLAKY, CLOSED, STUCK)
    of = {"execution": "arn:aws:states:us-east-1:123456789012:execution:transfers:e-1", "attempts": 2, "owner": "w"}
    error = '{"type": "Refused", "text": "overdrawn", "permanent": true, "status": 422}'
    stack.record("runs", "INPROGRESS", in_progress_expiration=SystemClock().epoch_ms() + 3_600_000, **of)
    stack.record("overdue", "INPROGRESS", in_progress_expiration=LONG_AGO_MS, **of)
    stack.record("refused", "FAILED", error=error, expiration=LASTING + 1, **of)
    stack.record("done", "COMPLETED", **of)
    told = receiver(f"{SCAN} --json").json
    assert ids(told, "workflow") == ["refused", "overdue"]
    assert (told["workflow_count"], told["unsettled"], told["failing"], told["permanent"]) == (2, [], [], [])
    assert "dlq redrive" not in receiver(SCAN).out


def test_stuck_tells_what_is_being_resent_and_what_was_from_what_is_done(receiver: Receiver, stack: Stack) -> None:
    stack.forget(FLAKY, CLOSED, STUCK)
    for key, status in (("old-1", "SENDING"), ("old-2", "COMPLETED")):
        resend = Resend(new_id=f"new-{key}", operator="alice", why="mended", message_id="m", original_id="m").to_json()
        claim = {"attempts": 5, "in_progress_expiration": LONG_AGO_MS, "owner": "alice", "outbox": "[]"}
        stack.record(key, status, resent=resend, expiration=SystemClock().epoch_ms() // 1000 + 86_400, **claim)
    told = receiver(f"{SCAN} --json").json
    assert (told["resending_count"], told["resent_count"], told["failing_count"]) == (1, 1, 0)
    (one,) = told["resending"]
    assert (one["key"], one["status"], one["resend"]["new_key"]) == ("old-1", "RESENDING", "new-old-1")
    same = ["--queue", "QUEUE", "--consumer", "CONSUMER", "--table", "records"]
    assert [command[1:] for command in advised(receiver(SCAN).out)] == [
        ["dlq", "redrive", *same, "--key", "KEY"],
        ["stuck", *same, "--send", "KEY"],
    ]


def test_stuck_counts_and_names_the_records_that_it_cannot_understand(receiver: Receiver, stack: Stack) -> None:
    """A record that no version of ours would write blocks its key as long as it is there, whatever its expiration."""
    stack.record("paused", "PAUSED")
    stack.record("endless", "INPROGRESS")
    stack.dynamodb.update_item(TableName="records", Key={"id": {"S": "endless"}}, UpdateExpression="REMOVE expiration")
    stack.dynamodb.put_item(TableName="records", Item={"id": {"S": "foreign"}, "expiration": {"N": "1700000000"}})
    wrong_type = {"id": {"S": "typed"}, "status": {"S": "FAILED"}, "attempts": {"S": "two"}}
    stack.dynamodb.put_item(TableName="records", Item=wrong_type)
    told = receiver(f"{SCAN} --json").json
    assert told["unreadable_count"] == 4
    assert {each["key"]: each["unreadable"] for each in told["unreadable"]} == {
        "paused": "unknown status 'PAUSED'",
        "endless": "INPROGRESS with neither a lease nor an expiration",
        "foreign": "no status",
        "typed": "unexpected type of attempts",
    }
    assert (told["unsettled_count"], told["failing_count"], told["permanent_count"]) == (1, 2, 1), "as without them"


def test_a_text_that_sends_its_reader_to_a_page_sends_him_to_one_that_he_has(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installed package has no pages beside it."""
    assert 'docs/operating.md, "Orphans"' in receiver(SCAN).out
    about = EmailMessage()
    about["Project-URL"] = "Repository, https://code.example.com"
    about["Project-URL"] = "Documentation, https://docs.example.com/receiver"
    monkeypatch.setattr(documentation, "metadata", lambda name: about)
    assert '"Orphans" on the page "operating" of https://docs.example.com/receiver' in receiver(SCAN).said
    monkeypatch.undo()
    for _, then in records.KIND_TEXTS.values():
        for page, title in re.findall(r'see\s+docs/(\w+)\.md, "([^"]+)"', records.advice(then, ()), re.IGNORECASE):
            assert f"# {title}\n" in (ROOT / f"docs/{page}.md").read_text()


# What the handbook says to type.


def test_what_is_typed_for_an_orphan_counts_under_its_key() -> None:
    section = section_of("Orphans")
    (attributes,) = re.findall(r"(?s)--message-attributes '(.*?)'\n", section)
    ((name, held),) = json.loads(attributes).items()
    stamp = stamp_of({name: {"stringValue": held["StringValue"]}})
    assert stamp is not None
    assert f"--key {stamp.key}\n" in section


def test_what_is_typed_for_a_conflict_sends_it_under_another_key_or_deletes_it(
    receiver: Receiver, stack: Stack, typed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECEIVER_STACK", "transfers")
    section = section_of("Conflicts")
    (key,) = set(re.findall(r"--message-id (\S+)", section))
    (letter,) = (each for each in stack.looked_at() if each["Body"] == "conflict")
    meant = {key: letter["MessageId"]}
    lines = map(shlex.split, re.findall(r"(?m)^receiver dlq .*$", section))
    typing = {line[2]: [meant.get(part, part) for part in line[1:]] for line in lines}

    assert receiver(*typing["list"]).code == terminal.Exit.OK
    Path("body.json").write_text(json.loads(Path("letter.jsonl").read_text())["message"]["body"])
    typed("n\n")
    assert "Permanently delete 1 dead letter?" in receiver(*typing["delete"]).err
    assert receiver(*typing["resend"], "--yes").code == terminal.Exit.OK

    (sent,) = stack.received(stack.queue)
    stamp = json.loads(sent["MessageAttributes"][STAMP]["StringValue"])
    assert (sent["Body"], stamp["original_id"]) == ("conflict", CONFLICT)
    assert stamp["key"] not in (CONFLICT, letter["MessageId"])


def test_each_verdict_has_its_meaning_and_its_remedy_in_the_documentation(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a dead letter that stays says where that stands."""
    rows = re.findall(r"(?m)^\| `([A-Z_]+)` \| (.+) \| (.+) \|$", section_of("Verdicts"))
    explained = {verdict for verdict, _, _ in rows}
    assert explained == {*Verdict, dlq_report.BEYOND, dlq_report.CHANGED} == {Verdict.MOVE, *dlq_report.STAYS}
    assert len(rows) == len(explained)
    anchors = re.findall(r"\(#(\w+)\)", str(rows))
    assert [each for each in anchors if not section_of(each.capitalize())] == []

    monkeypatch.setenv("COLUMNS", "1000")
    told = f"see {documentation.section('operating', 'Verdicts')}."
    for line in (f"list --key {CONFLICT} --key {CLOSED}", "redrive --yes"):
        assert receiver.on(f"dlq {line}").out.count(told) == 1
    assert told not in receiver.on(f"dlq list --key {FLAKY}").out, "it does not stay"
