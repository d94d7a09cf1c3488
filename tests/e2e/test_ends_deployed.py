"""Every end of a dead letter, on a deployed consumer: nothing is lost or runs twice, whatever stops a command."""

from __future__ import annotations

import io
import itertools
import json
import os
import signal
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from harness.cloud import ACCOUNT, REGION
from tests.e2e.conftest import AT_ONCE, FIFO
from tests.e2e.deployed import eventually
from tests.e2e.permissions import Permission, allowed, queue_arn
from tests.e2e.test_redrive_deployed import PROCESSES, dead_now, environment, let_die, receiver, send

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.conftest import Deploy
    from tests.e2e.deployed import Deployed

WRITES = ("BatchWriteItem", "PutObject", "SendMessageBatch", "DeleteMessageBatch", "DeleteObject")
WRITES_OF_AN_ACT = 4
"""It is begun in the history, stored or sent, deleted, and confirmed in the history."""

MOMENTS = [(number, side) for number in range(1, WRITES_OF_AN_ACT + 1) for side in ("before", "after")]
SECRET = "correct-horse-battery-staple"


@pytest.fixture(scope="module", params=[[], [FIFO]], ids=["standard", "fifo"])
def bank(request: pytest.FixtureRequest, deployed: Deploy) -> Deployed:
    """A consumer of a standard queue, and one of a FIFO queue."""
    return deployed("ends", edits=[*request.param, AT_ONCE], api=None)


@pytest.fixture(autouse=True)
def _nothing_left(bank: Deployed) -> Iterator[None]:
    yield
    bank.resume()
    assert (dead_now(bank), archived(bank)) == (0, [])


class Ended(NamedTuple):
    """How a command ended: its exit code, negative if a signal ended it, and what it said."""

    code: int | None
    out: str
    err: str


def command(arguments: list[str], variables: dict[str, str], told: str, stop: Any) -> None:
    """What a child process runs: the command itself. At a write it gets a signal."""
    from botocore.client import BaseClient  # noqa: PLC0415  # in the child

    from idempotent_receiver.operations.cli import receiver  # noqa: PLC0415
    from idempotent_receiver.operations.dead_letters import queue, run  # noqa: PLC0415

    os.environ.update(variables)
    queue.WAIT_SECONDS, run.MAX_A_WAVE = 0, 2
    call, writes = BaseClient._make_api_call, itertools.count(1)  # type: ignore[attr-defined]
    number, side, number_of_signal = stop or (0, "", 0)
    with Path(f"{told}.asked").open("a") as asked:

        def watched(client: Any, operation: str, given: Any) -> Any:
            service = client.meta.service_model.service_name
            asked.write(json.dumps([service, operation, given], default=str) + "\n")
            asked.flush()
            due = operation in WRITES and next(writes) == number
            if due and side == "before":
                os.kill(os.getpid(), number_of_signal)
            answer = call(client, operation, given)
            if due and side == "after":
                os.kill(os.getpid(), number_of_signal)
            return answer

        BaseClient._make_api_call = watched  # type: ignore[attr-defined]
        out, err = io.StringIO(), io.StringIO()
        try:
            with redirect_stdout(out), redirect_stderr(err):
                receiver.main(arguments)
        finally:
            Path(f"{told}.out").write_text(out.getvalue())
            Path(f"{told}.err").write_text(err.getvalue())


def run(bank: Deployed, told: Path, *arguments: str, stop: Any = None) -> Ended:
    """Run a command on a bank in a child process."""
    given = ["dlq", *arguments, "--stack", bank.stack.name, "--json"]
    if arguments[0] not in ("restore", "export"):
        given += ["--hold", "1"]
    if arguments[0] != "export":
        given += ["--yes"]
    for end in ("out", "err"):
        told.with_suffix(f".{end}").write_text("")
    process = PROCESSES.Process(target=command, args=(given, environment(bank), str(told), stop))
    process.start()
    process.join(60)
    assert process.exitcode is not None, "it goes on and on"
    if process.exitcode < 0:
        time.sleep(1.1)  # what it held comes up again
    return Ended(process.exitcode, *(told.with_suffix(f".{end}").read_text() for end in ("out", "err")))


@pytest.fixture
def told(tmp_path: Path) -> Path:
    """Where a child process leaves what it said."""
    return tmp_path / "told"


def archived(bank: Deployed) -> list[dict[str, Any]]:
    """What is in the archive."""
    s3, bucket = bank.aws.client("s3"), bank.stack.outputs["ArchiveBucket"]
    names = [each["Key"] for each in s3.list_objects_v2(Bucket=bucket).get("Contents", [])]
    return [json.loads(s3.get_object(Bucket=bucket, Key=name)["Body"].read()) for name in names]


def unhandled(bank: Deployed, payer: str, payee: str, count: int) -> list[str]:
    """So many transfers of 1 that died before a handler saw them; their messageIds. The consumer does not run then."""
    bank.pause()
    bodies = [json.dumps(bank.transfer(payer, payee, 1)) for _ in range(count)]
    ids = send(bank, bodies)
    let_die(bank)
    return ids


def refused(bank: Deployed, count: int) -> list[str]:
    """So many messages whose bodies are no transfers; their messageIds, which are their keys. The consumer runs."""
    bank.resume()
    before = dead_now(bank)
    ids = send(bank, [json.dumps({"note": SECRET, "number": number}) for number in range(count)])
    eventually(lambda: dead_now(bank), lambda found: found == before + count, what="all are dead letters")
    return ids


def letters(bank: Deployed) -> list[str]:
    """The messageIds of the dead letters."""
    _, found = receiver(bank, "dlq", "list")
    return [each["message_id"] for group in found["groups"] for each in group["letters"]]


def verbs(bank: Deployed, key: str) -> list[tuple[str, str]]:
    """What the history tells of a key."""
    _, found = receiver(bank, "dlq", "history", "--key", key)
    return [(each["verb"], each["outcome"]) for each in found["acts"]]


def test_what_is_archived_is_restored_redriven_and_done_once(bank: Deployed, told: Path) -> None:
    payer, payee = bank.new_account(100), bank.new_account(0)
    ids = unhandled(bank, payer, payee, 12)
    assert run(bank, told, "archive", "--reason", "INC-7").code == 0
    assert (dead_now(bank), len(archived(bank))) == (0, 12)
    assert {(each["archived_for"], each["verdict"]) for each in archived(bank)} == {("INC-7", "MOVE")}

    assert run(bank, told, "restore").code == 0
    assert (dead_now(bank), archived(bank)) == (12, [])
    bank.resume()
    assert receiver(bank, "dlq", "redrive", "--yes")[1]["moved"] == 12

    assert [bank.settled(id)["attempts"] for id in ids] == [1] * 12
    bank.drained()
    assert (bank.balance(payer), bank.balance(payee)) == (88, 12)
    assert verbs(bank, ids[0]) == [("archived", "done"), ("restored", "done"), ("moved", "done")]


def test_no_kill_of_an_archiving_or_a_restoration_loses_or_repeats_anything(bank: Deployed, told: Path) -> None:
    """Kill -9 before and after each write of either."""
    payer, payee = bank.new_account(100), bank.new_account(0)
    ids = unhandled(bank, payer, payee, len(MOMENTS) + 1)
    for name in ("archive", "restore"):
        for moment in MOMENTS:
            ended = run(bank, told, name, "--limit", "1", stop=(*moment, signal.SIGKILL))
            assert ended.code == -signal.SIGKILL, (moment, ended)
            assert dead_now(bank) + len(archived(bank)) >= len(ids)
        assert run(bank, told, name).code == 0
        assert (dead_now(bank) == 0, archived(bank) == []) == (name == "archive", name == "restore")
    bank.resume()
    eventually(
        lambda: receiver(bank, "dlq", "redrive", "--yes"), lambda _: dead_now(bank) == 0, what="all have come back"
    )

    assert [bank.settled(id)["attempts"] for id in ids] == [1] * len(ids)
    bank.drained()
    assert (bank.balance(payer), bank.balance(payee)) == (100 - len(ids), len(ids))


def test_no_kill_of_a_resend_loses_it_or_runs_it_twice(bank: Deployed, told: Path, tmp_path: Path) -> None:
    """Kill -9 before and after each write, while the consumer works; each is started again until it is through."""
    payer, payee = bank.new_account(100), bank.new_account(0)
    ids = refused(bank, len(MOMENTS))
    body = tmp_path / "body.json"
    for id, moment in zip(ids, MOMENTS, strict=True):
        body.write_text(json.dumps(bank.transfer(payer, payee, 1)))
        given = ("resend", "--key", id, "--body", str(body))
        assert run(bank, told, *given, stop=(*moment, signal.SIGKILL)).code == -signal.SIGKILL, moment
        deleted = moment in (MOMENTS[-3], MOMENTS[-2], MOMENTS[-1])
        again = run(bank, told, *given)
        assert json.loads(again.out)["resent"] == (0 if deleted else 1), (moment, again)

    bank.drained()
    assert (bank.balance(payer), bank.balance(payee)) == (100 - len(ids), len(ids))
    assert dead_now(bank) == 0


def test_the_operators_policy_allows_all_that_the_ends_ask_for(bank: Deployed, told: Path, tmp_path: Path) -> None:
    payer, payee = bank.new_account(100), bank.new_account(0)
    first, second = refused(bank, 2)
    file, body = tmp_path / "letters.jsonl", tmp_path / "body.json"
    body.write_text(json.dumps(bank.transfer(payer, payee, 1)))
    for given in (
        ("export", str(file)),
        ("archive",),
        ("restore",),
        ("resend", "--key", first, "--body", str(body)),
        ("delete", "--all", "--reason", "a test"),
    ):
        ended = run(bank, told, *given)
        assert ended.code == 0, (given, ended)

    bank.drained()
    assert (bank.balance(payer), bank.balance(payee)) == (99, 1)
    assert verbs(bank, second)[-1] == ("deleted", "done")
    assert SECRET in file.read_text()
    assert not_allowed(bank, told) == set()


def not_allowed(bank: Deployed, told: Path) -> set[Permission]:
    """What the commands asked AWS for, and the operators' policy does not allow."""
    asked = {
        permission
        for line in told.with_suffix(".asked").read_text().splitlines()
        for permission in needed(*json.loads(line))
    }
    assert {"s3:PutObject", "s3:ListBucket", "sqs:SendMessage", "dynamodb:BatchWriteItem"} <= {
        each.action for each in asked
    }
    statements = [each for each in bank.operators_statements() if "Condition" not in each]
    return {each for each in asked if not allowed(each, statements)}


def needed(service: str, operation: str, given: dict[str, Any]) -> set[Permission]:
    """The permissions that a call of an operator takes; AWS asks for none to tell callers who they are."""
    region, account = REGION, ACCOUNT
    action = f"{service}:{operation.removesuffix('Batch')}"
    match service:
        case "s3":
            on = f"arn:aws:s3:::{given['Bucket']}"
            if operation == "ListObjectsV2":
                return {Permission("s3:ListBucket", on)}
            return {Permission(action, f"{on}/{given['Key']}")}
        case "sqs":
            return {Permission(action, queue_arn(given["QueueUrl"], region))}
        case "dynamodb":
            tables = [given["TableName"]] if "TableName" in given else list(given["RequestItems"])
            return {Permission(action, f"arn:aws:dynamodb:{region}:{account}:table/{each}") for each in tables}
    assert service in ("sts", "cloudformation"), service
    return set()
