"""A hundred dead letters of 1 MiB: no command that goes over them holds more than a few at a time."""

from __future__ import annotations

import json
import resource
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from idempotent_receiver.operations.cli import receiver
from idempotent_receiver.sqs.dead_letter import MOST_BYTES, Stamp
from idempotent_receiver.transaction.outbox import STAMP
from tests.e2e.test_redrive_deployed import PROCESSES, environment

if TYPE_CHECKING:
    from tests.e2e.conftest import Deploy
    from tests.e2e.deployed import Deployed

LETTERS = 100
BODY_BYTES = MOST_BYTES - 1024
"""With room for the stamp."""
MOST_MB = 300
SECONDS = 240


@pytest.fixture(scope="module")
def bank(deployed: Deploy) -> Deployed:
    """A consumer that is paused: what comes back waits in its queue."""
    bank = deployed("large", api=None)
    bank.pause()
    return bank


def let_die(bank: Deployed) -> None:
    """Add a large dead letter."""
    id, url = str(uuid4()), bank.stack.outputs["DeadLetterQueueUrl"]
    stamp = Stamp(key=id, original_id=id, queue=bank.stack.outputs["QueueArn"]).to_json()
    attributes = {STAMP: {"DataType": "String", "StringValue": stamp}}
    body = json.dumps({"id": id}).ljust(BODY_BYTES)
    bank.aws.client("sqs").send_message(QueueUrl=url, MessageBody=body, MessageAttributes=attributes)


def command(arguments: list[str], variables: dict[str, str], told: str) -> None:
    """What a child process runs: the command, and then how much memory it took at most."""
    import os  # noqa: PLC0415  # in the child

    os.environ.update(variables)
    try:
        with Path(f"{told}.out").open("w") as out, redirect_stdout(out):
            receiver.main(arguments)
    finally:
        Path(f"{told}.kb").write_text(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))


def megabytes(bank: Deployed, told: Path, *arguments: str) -> float:
    """Run a command in a child process to its end; the most memory that it took."""
    given = ["dlq", *arguments, "--stack", bank.stack.name, "--json"]
    process = PROCESSES.Process(target=command, args=(given, environment(bank), str(told)))
    process.start()
    process.join(SECONDS)
    process.kill()
    assert process.exitcode == 0, told.with_suffix(".out").read_text()[:1000]
    return int(told.with_suffix(".kb").read_text()) / 1024


def test_a_hundred_letters_of_1_mib_are_written_and_redriven_in_300_mb(bank: Deployed, tmp_path: Path) -> None:
    for _ in range(LETTERS):
        let_die(bank)
    file = tmp_path / "letters.jsonl"

    listed = megabytes(bank, tmp_path / "told", "list", "--bodies", "--out", str(file))
    assert file.stat().st_size > LETTERS * BODY_BYTES
    redriven = megabytes(bank, tmp_path / "told", "redrive", "--yes")
    assert json.loads((tmp_path / "told.out").read_text())["moved"] == LETTERS

    print(f"\n{LETTERS} dead letters of 1 MiB: list --bodies took {listed:.0f} MB, redrive {redriven:.0f} MB")
    assert max(listed, redriven) < MOST_MB
