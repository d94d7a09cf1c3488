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
from tests.e2e.permissions import ACTIONS_OF_A_TRANSACTION, Permission, allowed, queue_arn
from tests.e2e.test_redrive_deployed import PROCESSES, dead_now, environment, let_die, receiver, send

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.conftest import Deploy
    from tests.e2e.deployed import Deployed

WRITES = (
    *("BatchWriteItem", "PutObject", "SendMessageBatch", "DeleteMessageBatch", "DeleteObject"),
    *("PutItem", "UpdateItem", "BatchExecuteStatement", "TransactWriteItems"),
)
WRITES_OF_AN_ACT = 4
"""It is begun in the history, stored or sent, deleted, and confirmed in the history."""
WRITES_OF_A_RESEND = 6
"""It is begun in the history and in the record, sent, marked, deleted, and confirmed in the history."""


def moments(writes: int) -> list[tuple[int, str]]:
    """When a command may be killed: before and after each of so many writes."""
    return [(number, side) for number in range(1, writes + 1) for side in ("before", "after")]


MOMENTS = moments(WRITES_OF_AN_ACT)
CLAIMS = ("dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:ConditionCheckItem")
RESTORE = ("redrive", "--from-archive", "--to-dlq")
HOLD_SECONDS = 3
"""Longer than a command takes from its plan to its last write on a machine that is busy."""
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


def command(arguments: list[str], variables: dict[str, str], told: str, stop: Any, denied: str | None) -> None:
    """What a child process runs: the command itself. At a write it gets a signal, and what is denied is refused."""
    from botocore.client import BaseClient  # noqa: PLC0415  # in the child
    from botocore.exceptions import ClientError  # noqa: PLC0415

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
            if denied in {each.action for each in needed(service, operation, given)}:
                raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": denied}}, operation)
            due = operation in WRITES and next(writes) == number
            if due and side == "before":
                os.kill(os.getpid(), number_of_signal)
            try:
                return call(client, operation, given)
            finally:  # a write that was to be refused is one as well
                if due and side == "after":
                    os.kill(os.getpid(), number_of_signal)

        BaseClient._make_api_call = watched  # type: ignore[attr-defined]
        out, err = io.StringIO(), io.StringIO()
        try:
            with redirect_stdout(out), redirect_stderr(err):
                receiver.main(arguments)
        finally:
            Path(f"{told}.out").write_text(out.getvalue())
            Path(f"{told}.err").write_text(err.getvalue())


def run(bank: Deployed, told: Path, *arguments: str, stop: Any = None, denied: str | None = None) -> Ended:
    """Run a command on a bank in a child process."""
    given = ["dlq", *arguments, "--stack", bank.stack.name, "--json", "--hold", str(HOLD_SECONDS)]
    if arguments[0] != "list":
        given += ["--yes"]
    for end in ("out", "err"):
        told.with_suffix(f".{end}").write_text("")
    process = PROCESSES.Process(target=command, args=(given, environment(bank), str(told), stop, denied))
    process.start()
    process.join(60)
    assert process.exitcode is not None, "it goes on and on"
    if process.exitcode < 0:
        time.sleep(HOLD_SECONDS + 0.1)  # what it held becomes visible again
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


def verbs(bank: Deployed, key: str) -> list[tuple[str, str]]:
    """What the history tells of a key."""
    _, found = receiver(bank, "dlq", "history", "--key", key)
    return [(each["verb"], each["outcome"]) for each in found["acts"]]


def test_what_is_archived_is_restored_redriven_and_done_once(bank: Deployed, told: Path) -> None:
    payer, payee = bank.new_account(100), bank.new_account(0)
    ids = unhandled(bank, payer, payee, 12)
    assert run(bank, told, "archive", "--because", "INC-7").code == 0
    assert (dead_now(bank), len(archived(bank))) == (0, 12)
    assert {(each["archived_for"], each["verdict"]) for each in archived(bank)} == {("INC-7", "MOVE")}

    assert run(bank, told, *RESTORE).code == 0
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
    for given in (("archive",), RESTORE):
        for moment in MOMENTS:
            ended = run(bank, told, *given, "--limit", "1", stop=(*moment, signal.SIGKILL))
            assert ended.code == -signal.SIGKILL, (moment, ended)
            assert dead_now(bank) + len(archived(bank)) >= len(ids)
        assert run(bank, told, *given).code == 0
        assert (dead_now(bank) == 0, archived(bank) == []) == (given != RESTORE, given == RESTORE)
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
    when = moments(WRITES_OF_A_RESEND)
    ids = refused(bank, len(when))
    body = tmp_path / "body.json"
    completed = when.index((4, "after"))
    for id, moment in zip(ids, when, strict=True):
        body.write_text(json.dumps(bank.transfer(payer, payee, 1)))
        given = ("resend", "--key", id, "--body", str(body))
        assert run(bank, told, *given, stop=(*moment, signal.SIGKILL)).code == -signal.SIGKILL, moment
        again = run(bank, told, *given)
        assert json.loads(again.out)["resent"] == (1 if when.index(moment) < completed else 0), (moment, again)

    bank.drained()
    assert receiver(bank, "dlq", "redrive", "--yes")[1]["plan"] == {"RESENT": 2}
    assert (bank.balance(payer), bank.balance(payee)) == (100 - len(ids), len(ids))
    assert dead_now(bank) == 0


def test_the_operators_policy_allows_all_that_the_ends_ask_for(bank: Deployed, told: Path, tmp_path: Path) -> None:
    payer, payee = bank.new_account(100), bank.new_account(0)
    (first,), (second,) = unhandled(bank, payer, payee, 1), refused(bank, 1)
    file, body = tmp_path / "letters.jsonl", tmp_path / "body.json"
    body.write_text(json.dumps(bank.transfer(payer, payee, 1)))
    for given in (
        ("list", "--bodies", "--out", str(file)),
        ("archive",),
        RESTORE,
        ("resend", "--key", first, "--body", str(body)),
        ("delete", "--all", "--because", "a test"),
    ):
        ended = run(bank, told, *given)
        assert ended.code == 0, (given, ended)

    bank.drained()
    assert (bank.balance(payer), bank.balance(payee)) == (99, 1)
    assert verbs(bank, second)[-1] == ("deleted", "done")
    assert SECRET in file.read_text()
    assert not_allowed(bank, told) == set()


@pytest.mark.parametrize("denied", CLAIMS)
def test_without_a_permission_on_the_records_a_resend_refuses_before_it_acts(
    bank: Deployed, told: Path, tmp_path: Path, denied: str
) -> None:
    """Its outbox is a new record or an update, with a check of the new key."""
    payer, payee = bank.new_account(100), bank.new_account(0)
    (id,) = unhandled(bank, payer, payee, 1) if denied == "dynamodb:PutItem" else refused(bank, 1)
    before = bank.record(id)
    body = tmp_path / "body.json"
    body.write_text(json.dumps(bank.transfer(payer, payee, 10)))
    given = ("resend", "--key", id, "--body", str(body))

    ended = run(bank, told, *given, denied=denied)
    assert ended.code not in (0, 70), ended
    assert "SendMessageBatch" not in told.with_suffix(".asked").read_text()
    assert (dead_now(bank), bank.record(id)) == (1, before)

    bank.resume()
    assert run(bank, told, *given).code == 0
    bank.drained()
    assert (bank.balance(payer), bank.balance(payee)) == (90, 10)


def not_allowed(bank: Deployed, told: Path) -> set[Permission]:
    """What the commands asked AWS for, and the operators' policy does not allow."""
    asked = {
        permission
        for line in told.with_suffix(".asked").read_text().splitlines()
        for permission in needed(*json.loads(line))
    }
    assert {"s3:PutObject", "s3:ListBucket", "sqs:SendMessage", "dynamodb:BatchWriteItem", *CLAIMS} <= {
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
        case "dynamodb" if operation == "TransactWriteItems":
            parts = [part for item in given["TransactItems"] for part in item.items()]
            return {
                Permission(
                    f"dynamodb:{ACTIONS_OF_A_TRANSACTION[kind]}",
                    f"arn:aws:dynamodb:{region}:{account}:table/{asked['TableName']}",
                )
                for kind, asked in parts
            }
        case "dynamodb":
            tables = [given["TableName"]] if "TableName" in given else list(given["RequestItems"])
            return {Permission(action, f"arn:aws:dynamodb:{region}:{account}:table/{each}") for each in tables}
        case "lambda":
            return {Permission(action, "*")}
    assert service in ("sts", "cloudformation"), service
    return set()
