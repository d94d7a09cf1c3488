"""Dead letters of a deployed consumer: what can succeed comes back once, kill or no kill."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from harness.cloud import ACCOUNT, REGION
from idempotent_receiver.operations.cli.terminal import Exit
from tests.e2e.conftest import AT_ONCE, FIFO
from tests.e2e.deployed import eventually

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.synchronize import Event

    from tests.e2e.conftest import Deploy
    from tests.e2e.deployed import Deployed

KILLS = int(os.environ.get("KILLS", "10"))
"""How many on each kind of queue: twenty together."""
LETTERS, FEWEST = 120, 20
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["idempotent_receiver.operations.cli.receiver"])
SEED = int(os.environ.get("SEED", "20"))


@pytest.fixture(scope="module")
def banks(deployed: Deploy) -> list[Deployed]:
    """A consumer of a standard queue and one of a FIFO queue, whose ledger fails as a transfer's id says."""
    kinds = {"standard": [AT_ONCE], "fifo": [FIFO, AT_ONCE]}
    return [deployed(f"redrive-{kind}", edits=edits, stubborn=True, api=None) for kind, edits in kinds.items()]


@pytest.fixture(params=[0, 1], ids=["standard", "fifo"])
def bank(request: pytest.FixtureRequest, banks: list[Deployed]) -> Deployed:
    return banks[request.param]


def environment(bank: Deployed) -> dict[str, str]:
    """What the command finds in its environment."""
    return {
        "AWS_ENDPOINT_URL": bank.aws.endpoint_url,
        "AWS_ACCESS_KEY_ID": ACCOUNT,
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def receiver(bank: Deployed, *arguments: str) -> tuple[int, Any]:
    """Run the command as a program of its own; its exit code and its answer."""
    command = [sys.executable, "-m", "idempotent_receiver", *arguments, "--stack", bank.stack.name, "--json"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    ran = subprocess.run(command, env=kept | environment(bank), capture_output=True, text=True, check=False)
    assert ran.returncode in (Exit.OK, Exit.LEFT, Exit.HELD), ran.stderr  # a killed session's holds may not have ended
    return ran.returncode, json.loads(ran.stdout)


# Dead letters, made as in production.


def send(bank: Deployed, bodies: Sequence[str]) -> list[str]:
    """Send messages; on a FIFO queue, to twelve groups. Their messageIds."""
    ids: list[str] = []
    fifo = bank.stack.outputs["QueueUrl"].endswith(".fifo")
    for start in range(0, len(bodies), 10):
        entries = [
            {"Id": str(place), "MessageBody": body}
            | ({"MessageGroupId": f"group-{place % 12}", "MessageDeduplicationId": f"{uuid4()}"} if fifo else {})
            for place, body in enumerate(bodies[start : start + 10], start)
        ]
        sqs = bank.aws.client("sqs")
        sent = sqs.send_message_batch(QueueUrl=bank.stack.outputs["QueueUrl"], Entries=entries)
        ids += [one["MessageId"] for one in sorted(sent["Successful"], key=lambda one: int(one["Id"]))]
    return ids


def let_die(bank: Deployed) -> None:
    """Receive all that the queue has until SQS itself moves it to the dead-letter queue; nobody handles it."""
    sqs, queue = bank.aws.client("sqs"), bank.stack.outputs["QueueUrl"]

    for _ in range(1000):
        received = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10).get("Messages", [])
        if not received:
            return
        entries = [
            {"Id": str(place), "ReceiptHandle": each["ReceiptHandle"], "VisibilityTimeout": 0}
            for place, each in enumerate(received)
        ]
        sqs.change_message_visibility_batch(QueueUrl=queue, Entries=entries)
    pytest.fail("the queue did not become empty")


def dead_now(bank: Deployed) -> int:
    names = [f"ApproximateNumberOfMessages{which}" for which in ("", "NotVisible", "Delayed")]
    found = bank.aws.client("sqs").get_queue_attributes(
        QueueUrl=bank.stack.outputs["DeadLetterQueueUrl"], AttributeNames=names
    )
    return sum(int(each) for each in found["Attributes"].values())


def test_a_message_comes_back_twice_within_five_minutes_and_is_handled_once(bank: Deployed) -> None:
    payer, payee = bank.new_account(100), bank.new_account(0)
    transfer = bank.transfer(payer, payee, 7)
    bank.pause()
    (id,) = send(bank, [json.dumps(transfer)])
    for _ in range(2):
        let_die(bank)
        assert receiver(bank, "dlq", "redrive", "--yes")[1]["moved"] == 1

    bank.resume()

    assert bank.settled(id)["attempts"] == 1
    bank.drained()
    assert (bank.balance(payer), dead_now(bank)) == (93, 0)


def command(arguments: Sequence[str], variables: dict[str, str], began: Event) -> None:
    """What the killed process runs: the command itself. It does not linger in a long poll, so that kills meet work."""
    from idempotent_receiver.operations.cli import dlq_act, receiver  # noqa: PLC0415  # in the process that is to be killed
    from idempotent_receiver.operations.dead_letters import queue  # noqa: PLC0415

    class Watched(queue.DeadLetterQueue):
        def take(self, *given: Any) -> Any:
            began.set()
            return super().take(*given)

    os.environ.update(variables)
    queue.WAIT_SECONDS = 0
    dlq_act.DeadLetterQueue = Watched  # type: ignore[misc]
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        receiver.main(arguments)


class Customers:
    """Ten payers and a payee, and the messages of theirs that have died unhandled."""

    def __init__(self, bank: Deployed) -> None:
        self.bank = bank
        self.payers, self.payee = [bank.new_account(1000) for _ in range(10)], bank.new_account(0)
        self.ids: list[str] = []
        self.left: list[int] = []
        self.held_until = 0.0

    def die(self, count: int) -> None:
        """So many more dead letters that no handler ever saw."""
        transfers = [self.bank.transfer(self.payers[number % 10], self.payee, 1) for number in range(count)]
        self.bank.pause()
        self.ids += send(self.bank, [json.dumps(each) for each in transfers])
        let_die(self.bank)
        self.bank.resume()

    def kill_a_redriver(self, seconds: float) -> bool:
        """Run the command, and kill it this long after it has begun to take dead letters; whether it was working."""
        if dead_now(self.bank) < FEWEST:
            self.die(LETTERS)
        time.sleep(max(0.0, self.held_until - time.monotonic()))
        flags = ["dlq", "redrive", "--stack", self.bank.stack.name, "--hold", "1", "--rate", "25", "--yes"]
        began = PROCESSES.Event()
        # Started like any program, from a server that has done the imports.
        process = PROCESSES.Process(target=command, args=(flags, environment(self.bank), began))
        process.start()
        assert began.wait(20), "it never came to take anything"
        process.join(seconds)
        process.kill()
        process.join()
        self.held_until = time.monotonic() + 1.0
        self.left.append(dead_now(self.bank))
        return process.exitcode == -signal.SIGKILL

    def settle(self) -> None:
        """Redrive what is left, undisturbed, and wait for the consumer."""
        eventually(
            lambda: receiver(self.bank, "dlq", "redrive", "--yes", "--hold", "5"),
            lambda _: dead_now(self.bank) == 0,
            what="everything has come back",
        )
        self.bank.drained(seconds=60)

    def check(self) -> None:
        """Check the books against what was sent."""
        records = [self.bank.record(id) or {} for id in self.ids]
        assert Counter(record.get("status") for record in records) == {"COMPLETED": len(self.ids)}
        assert Counter(record["attempts"] for record in records) == {1: len(self.ids)}
        assert self.bank.balance(self.payee) == len(self.ids)
        assert sum(self.bank.balance(payer) for payer in self.payers) == 10 * 1000 - len(self.ids)
        assert dead_now(self.bank) == 0
        _, told = receiver(self.bank, "dlq", "history", "--limit", "100000")
        kept = {each["key"] for each in told["acts"] if each["verb"] in ("moved", "dropped")}
        assert set(self.ids) <= kept, "what came back, and nobody can say by whom"
        assert {each["outcome"] for each in told["acts"]} <= {"done", "begun"}


def test_kill_9_at_twenty_random_moments_loses_nothing_and_repeats_nothing(banks: list[Deployed]) -> None:
    """Half of them on each kind of queue, in turn: while one's letters are still held, the other's redriver is killed.

    The consumer works meanwhile. No letter was claimed before, so that a second run would be counted.
    """
    chance, both = random.Random(SEED), [Customers(bank) for bank in banks]
    kills = [0, 0]
    for _ in range(2 * KILLS):
        for place, customers in enumerate(both):
            if kills[place] < KILLS:
                # On a busy machine less is done in a second.
                kills[place] += customers.kill_a_redriver(chance.uniform(0.0, 2.0))
    assert kills == [KILLS, KILLS]
    for customers in both:
        assert len(set(customers.left)) > KILLS / 2, f"the kills met no work: {customers.left}"
        customers.settle()
        customers.check()
