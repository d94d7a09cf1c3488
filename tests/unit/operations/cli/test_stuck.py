"""`receiver stuck`: what nobody settled, what fails, and what to type."""

from __future__ import annotations

import io
import json
import re
import shlex
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from idempotent_receiver.clock import SystemClock
from idempotent_receiver.errors import Failure
from idempotent_receiver.operations.cli import dlq_report, documentation, records, terminal
from idempotent_receiver.operations.cli.deployment import Deployment, Options
from idempotent_receiver.operations.dead_letters.triage import Verdict
from idempotent_receiver.operations.scan import pages as pages_of
from idempotent_receiver.sqs.dead_letter import STAMP, stamp_of
from tests.manual_clock import ManualClock
from tests.unit.operations.cli.stack import (
    CLOSED,
    CONFLICT,
    DONE,
    FLAKY,
    LASTING,
    LONG_AGO_MS,
    REGION,
    STUCK,
    Receiver,
    Stack,
    advised,
    section_of,
)


def test_stuck_tells_its_cost_first_and_names_the_worst(receiver: Receiver) -> None:
    ran = receiver("stuck", "--stack", "transfers", "--yes", "--json")
    assert re.match("A scan of records reads about 5 items, .* MB: 1 read unit, in ", ran.err)
    assert (ran.code, ran.json["scanned"], ran.json["complete"]) == (0, 5, True)
    assert [each["id"] for each in ran.json["unsettled"]] == [STUCK]
    assert [each["id"] for each in ran.json["failing"]] == [FLAKY, STUCK]
    assert [each["id"] for each in ran.json["permanent"]] == [CLOSED]


def test_stuck_names_what_failed_for_good_apart_the_latest_first(receiver: Receiver, stack: Stack) -> None:
    """Else those that are tried again, with their many attempts, would push it out of the list."""
    closed = Failure(type="PermanentError", text="account closed", permanent=True).to_json()
    for number in range(3):
        stack.record(f"flaky-{number}", "FAILED", "b", error=Failure(type="E").to_json(), attempts=9)
        stack.record(f"closed-{number}", "FAILED", "b", error=closed, expiration=LASTING + number)
    told = receiver("stuck", "--table", "records", "--yes", "--json", "--top", "2").json
    assert (told["failing_count"], told["permanent_count"]) == (5, 4)
    assert [each["id"] for each in told["permanent"]] == ["closed-2", "closed-1"]
    assert all(each["id"].startswith("flaky-") for each in told["failing"])


def test_stuck_says_what_becomes_of_each_kind_and_what_to_type(
    receiver: Receiver, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _, unsettled, failing, permanent = receiver("stuck", "--table", "records", "--yes").out.split("\n\n")
    assert STUCK in unsettled
    options = ["--queue QUEUE", "--key-strategy KEY_STRATEGY", "--table records"]
    texts = (records.TAKEN_OVER, records.TRIED_AGAIN, records.FIXED_FIRST)
    then = [records.advice(each, options) for each in texts]
    assert unsettled.rstrip().endswith(then[0]), "in lines that are not broken"
    assert FLAKY in failing
    assert failing.rstrip().endswith(then[1])
    assert CLOSED in permanent
    assert permanent.rstrip().endswith(then[2])
    stack.dynamodb.delete_item(TableName="records", Key={"id": {"S": STUCK}})
    assert then[0] not in receiver("stuck", "--table", "records", "--yes").out


@pytest.mark.parametrize(
    "given",
    [
        ("--stack", "transfers"),
        ("--stack", "transfers", "--region", REGION, "--retention-days", "7.5", "--dlq", "transfers-dead"),
        ("--queue", "transfers", "--table", "records", "--key-strategy", "message_id", "--namespace", "it's mine"),
        ("--table", "records"),
    ],
    ids=" ".join,
)
def test_what_stuck_advises_means_the_same_consumer_and_runs_as_it_stands(
    receiver: Receiver, stack: Stack, given: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    stack.record("it's mine#closed", "FAILED", "b", error=Failure(type="E", permanent=True).to_json())
    commands = advised(receiver("stuck", "--yes", *given).out)
    assert commands
    for command in commands:
        assert set(given) <= set(command)
        unsaid = {"QUEUE": "transfers", "KEY_STRATEGY": "message_id", "KEY": "nosuch"}
        ran = receiver(*(unsaid.get(each, each) for each in command[1:]), "--yes")
        assert (ran.code, "no visible dead letters of the key nosuch" in ran.out) == (terminal.Exit.LEFT, True), ran.err


def test_what_is_advised_is_for_the_same_account_too() -> None:
    endpoint = "https://an-endpoint.example.com:4566"
    options = Deployment(Options(table="records", region=REGION, profile="two words", endpoint_url=endpoint)).typed
    (command,) = advised(f"{records.advice(records.TAKEN_OVER, options)}\n")
    asked = ["--region", REGION, "--profile", "two words", "--endpoint-url", endpoint]
    assert command[-8:] == [*asked, "--key", "KEY"]


def test_what_is_typed_for_an_orphan_counts_under_its_key() -> None:
    section = section_of("Orphans")
    assert f"--key {stamp_typed_in(section)}\n" in section


CONFLICTS = section_of("Conflicts")


def test_what_is_typed_for_a_conflict_sends_it_under_another_key_or_deletes_it(
    receiver: Receiver, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    (key,) = set(re.findall(r"--message-id (\S+)", CONFLICTS))
    (letter,) = (each for each in dead_letters(stack) if each["Body"] == "conflict")
    meant = {"idempotent-receiver": "transfers", key: letter["MessageId"]}
    lines = map(shlex.split, re.findall(r"(?m)^receiver dlq .*$", CONFLICTS))
    typed = {line[2]: [meant.get(part, part) for part in line] for line in lines}

    assert receiver(*typed["export"][1:]).code == terminal.Exit.OK
    body = json.loads(Path("letter.jsonl").read_text())["message"]["body"]
    Path("body.json").write_text(body)
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert "Delete for good 1 dead letter?" in receiver(*typed["delete"][1:]).err
    assert receiver(*typed["resend"][1:], "--yes").code == terminal.Exit.OK

    (sent,) = stack.sqs.receive_message(QueueUrl=stack.queue, MessageAttributeNames=["All"])["Messages"]
    stamp = json.loads(sent["MessageAttributes"][STAMP]["StringValue"])
    assert sent["Body"] == "conflict"
    assert stamp["key"] not in (CONFLICT, letter["MessageId"])
    assert stamp["original_id"] == CONFLICT


def dead_letters(stack: Stack) -> list[Any]:
    found: list[Any] = stack.sqs.receive_message(QueueUrl=stack.dead, MaxNumberOfMessages=10)["Messages"]
    for each in found:
        stack.sqs.change_message_visibility(
            QueueUrl=stack.dead, ReceiptHandle=each["ReceiptHandle"], VisibilityTimeout=0
        )
    return found


def stamp_typed_in(section: str) -> str:
    """The key that the one message sent in a section counts under."""
    (attributes,) = re.findall(r"(?s)--message-attributes '(.*?)'\n", section)
    ((name, held),) = json.loads(attributes).items()
    found = stamp_of({name: {"stringValue": held["StringValue"]}})
    assert found is not None
    return found.key


def test_each_verdict_has_its_meaning_and_its_remedy_in_the_documentation() -> None:
    rows = re.findall(r"(?m)^\| `([A-Z_]+)` \| (.+) \| (.+) \|$", section_of("Verdicts"))
    explained = {verdict for verdict, _, _ in rows}
    assert explained == {*Verdict, dlq_report.BEYOND, dlq_report.CHANGED} == {Verdict.MOVE, *dlq_report.STAYS}
    assert len(rows) == len(explained)
    anchors = re.findall(r"\(#(\w+)\)", str(rows))
    assert [each for each in anchors if not section_of(each.capitalize())] == []


@pytest.mark.parametrize(
    "command", [("list", "--key", CONFLICT, "--key", CLOSED), ("redrive", "--yes")], ids=["list", "redrive"]
)
def test_a_dead_letter_that_stays_says_where_its_remedy_stands(
    receiver: Receiver, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    told = f"What each verdict means, and what to do: see {documentation.section('operating', 'Verdicts')}."
    assert receiver("dlq", *command, "--stack", "transfers").out.count(told) == 1
    assert told not in receiver("dlq", "list", "--stack", "transfers", "--key", FLAKY).out, "it does not stay"


def test_stuck_asks_before_it_scans(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    ran = receiver("stuck", "--table", "records")
    assert (ran.code, ran.out) == (1, "Nothing was scanned.\n")
    assert "Scan? [y/N]" in ran.err


def test_stuck_tells_scripts_whether_it_was_confirmed(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert receiver("stuck", "--table", "records", "--json").json == {"confirmed": False}
    assert receiver("stuck", "--table", "records", "--json", "--yes").json["confirmed"] is True


def test_stuck_goes_page_by_page_at_its_rate(receiver: Receiver, stack: Stack) -> None:
    for number in range(30):
        stack.record(f"more-{number}", "INPROGRESS", "b", in_progress_expiration=LONG_AGO_MS + number, owner="w")
    clock = ManualClock()
    pages = list(pages_of(stack.dynamodb, "records", clock, units_a_second=2, page_items=7))
    assert [len(page) for page in pages] == [7, 7, 7, 7, 7]
    assert len(clock.sleeps) == 4
    told = receiver("stuck", "--table", "records", "--yes", "--json", "--top", "3").json
    assert told["unsettled_count"] == 31
    assert [each["id"] for each in told["unsettled"]] == [STUCK, "more-0", "more-1"] or len(told["unsettled"]) == 3


def test_stuck_leaves_other_namespaces_and_what_was_only_released(receiver: Receiver, stack: Stack) -> None:
    stack.record("bank#a", "INPROGRESS", "b", in_progress_expiration=LONG_AGO_MS, owner="w")
    stack.record("bank#b", "INPROGRESS", "b", in_progress_expiration=LONG_AGO_MS)
    stack.record("bank#c", "INPROGRESS", "b", in_progress_expiration=LONG_AGO_MS, owner="w", expiration=1_700_000_000)
    told = receiver("stuck", "--table", "records", "--namespace", "bank", "--yes", "--json").json
    assert [each["id"] for each in told["unsettled"]] == ["bank#a"]
    assert (told["given_back_count"], told["failing_count"]) == (1, 0)


def test_stuck_says_how_many_records_are_in_the_namespace_and_fails_where_none_is(
    receiver: Receiver, stack: Stack
) -> None:
    """A namespace that is misspelt would read as all clear."""
    stack.record("bank#a", "FAILED", "b", error=Failure(type="E").to_json())
    flags = ("stuck", "--stack", "transfers", "--yes", "--namespace")
    ran = receiver(*flags, "wrong")
    assert (ran.code, "0 of 6 records are in the namespace wrong: 0 claims" in ran.out) == (terminal.Exit.LEFT, True)
    assert "check --namespace" in ran.err
    told = receiver(*flags, "wrong", "--json").json
    assert (told["scanned"], told["namespace"], told["own"]) == (6, "wrong", 0)
    ran = receiver(*flags, "bank")
    assert (ran.code, "1 of 6 records is in the namespace bank: 0 claims" in ran.out) == (terminal.Exit.OK, True)


def test_stuck_finds_nothing_wrong_with_an_empty_table(receiver: Receiver, stack: Stack) -> None:
    for key in (DONE, FLAKY, CLOSED, CONFLICT, STUCK):
        stack.dynamodb.delete_item(TableName="records", Key={"id": {"S": key}})
    ran = receiver("stuck", "--table", "records", "--yes", "--namespace", "bank")
    assert (ran.code, "0 of 0 records are in the namespace bank" in ran.out) == (terminal.Exit.OK, True)


ARN = "arn:aws:states:us-east-1:123456789012:execution:transfers:e-1"


def test_stuck_says_of_a_workflows_records_that_they_are_and_advises_no_redrive(
    receiver: Receiver, stack: Stack
) -> None:
    """There are no deliveries that try them again, and one that runs at its second start fails of nothing."""
    for key in (FLAKY, CLOSED, STUCK):
        stack.dynamodb.delete_item(TableName="records", Key={"id": {"S": key}})
    now_ms = SystemClock().epoch_ms()
    of = {"execution": ARN, "attempts": 2, "owner": "w"}
    error = '{"type": "Refused", "text": "overdrawn", "permanent": true, "status": 422}'
    stack.record("runs", "INPROGRESS", "b", in_progress_expiration=now_ms + 3_600_000, **of)
    stack.record("overdue", "INPROGRESS", "b", in_progress_expiration=LONG_AGO_MS, **of)
    stack.record("refused", "FAILED", "b", error=error, expiration=LASTING + 1, **of)
    stack.record("done", "COMPLETED", "b", **of)
    told = receiver("stuck", "--table", "records", "--yes", "--json").json
    assert [each["id"] for each in told["workflow"]] == ["refused", "overdue"]
    assert (told["workflow_count"], told["unsettled"], told["failing"], told["permanent"]) == (2, [], [], [])
    shown = receiver("stuck", "--table", "records", "--yes").out
    assert ", 2 workflow executions failed or overdue." in shown
    told = records.advice(records.ANSWERED, ())
    assert shown.rstrip().endswith(told)
    assert "dlq redrive" not in shown
    assert max(map(len, told.splitlines())) < 80


def test_stuck_counts_and_names_the_records_that_it_cannot_understand(receiver: Receiver, stack: Stack) -> None:
    """A record that no version of ours would write blocks its key as long as it is there, whatever its expiration."""
    stack.record("paused", "PAUSED", "b")
    stack.record("endless", "INPROGRESS", "b")
    stack.dynamodb.update_item(TableName="records", Key={"id": {"S": "endless"}}, UpdateExpression="REMOVE expiration")
    stack.dynamodb.put_item(TableName="records", Item={"id": {"S": "foreign"}, "expiration": {"N": "1700000000"}})
    wrong_type = {"id": {"S": "typed"}, "status": {"S": "FAILED"}, "attempts": {"S": "two"}}
    stack.dynamodb.put_item(TableName="records", Item=wrong_type)
    told = receiver("stuck", "--table", "records", "--yes", "--json").json
    assert told["unreadable_count"] == 4
    assert {each["key"]: each["unreadable"] for each in told["unreadable"]} == {
        "paused": "unknown status 'PAUSED'",
        "endless": "INPROGRESS with neither a lease nor an expiration",
        "foreign": "no status",
        "typed": "unexpected type of attempts",
    }
    assert (told["unsettled_count"], told["failing_count"], told["permanent_count"]) == (1, 2, 1), "as without them"
    shown = receiver("stuck", "--table", "records", "--yes").out
    assert ", 4 records unreadable." in shown
    assert "unknown status 'PAUSED'" in shown
    assert shown.rstrip().endswith(records.advice(records.NOT_UNDERSTOOD, ()))


def test_a_text_that_sends_its_reader_to_a_page_sends_him_to_one_that_he_has(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installed package has no pages beside it."""
    assert 'docs/operating.md, "Orphans"' in receiver("stuck", "--table", "records", "--yes").out
    about = EmailMessage()
    about["Project-URL"] = "Repository, https://code.example.com"
    about["Project-URL"] = "Documentation, https://docs.example.com/receiver"
    monkeypatch.setattr(documentation, "metadata", lambda name: about)
    said = '"Orphans" on the page "operating" of https://docs.example.com/receiver'
    assert said in " ".join(receiver("stuck", "--table", "records", "--yes").out.split())
