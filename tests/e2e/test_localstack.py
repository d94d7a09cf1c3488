"""`receiver work` and `receiver dlq redrive` on LocalStack's SQS, with AWS's DynamoDB Local beside it.

LocalStack runs without Docker here, so without functions; its own DynamoDB would download a jar.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from harness.cloud import ROOT
from idempotent_receiver.local.server import running
from tests.e2e.test_work_attempts import Limited
from tests.engines import dynamodb_local

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

PYTHON = ROOT / ".tools" / "localstack" / "bin" / "python"
JARS = ROOT / ".tools" / "dynamodb-local"
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
MESSAGES, GROUPS, LONG_SECONDS = 300, 20, 300.0


@dataclass(frozen=True)
class LocalStack:
    """See `local.server.Program`. It keeps its files in `folder`."""

    folder: Path

    def command(self, port: int) -> list[str]:
        return [str(PYTHON), "-m", "localstack.runtime.main"]

    def environment(self, port: int) -> Mapping[str, str]:
        return {
            "GATEWAY_SERVER": "hypercorn",
            "GATEWAY_LISTEN": f"127.0.0.1:{port}",
            "LOCALSTACK_HOST": f"127.0.0.1:{port}",
            "SQS_ENDPOINT_STRATEGY": "path",  # else the queues' addresses need DNS
            "OVERRIDE_IN_DOCKER": "0",  # it takes any container for its own, and writes to /var/lib
            "FILESYSTEM_ROOT": str(self.folder),
            "SKIP_SSL_CERT_DOWNLOAD": "1",
            "DISABLE_EVENTS": "1",
            "EAGER_SERVICE_LOADING": "0",
            "DOCKER_HOST": "unix:///nonexistent.sock",
        }

    def ready(self, port: int) -> bool:
        with suppress(OSError), DIRECT.open(f"http://127.0.0.1:{port}/_localstack/health", timeout=1) as answer:
            return b'"sqs"' in answer.read()
        return False


class Clients:
    """Those of both, as `deployed.Aws` has them."""

    def __init__(self, endpoint_url: str, tables: str) -> None:
        own: Any = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
        self.endpoint_url, self.tables = endpoint_url, tables
        self._clients = {
            "sqs": boto3.client("sqs", endpoint_url=endpoint_url, **own),
            "dynamodb": boto3.client("dynamodb", endpoint_url=tables, **own),
        }

    def client(self, service: str) -> Any:
        return self._clients[service]


@pytest.fixture(scope="module")
def clouds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    if not PYTHON.exists():
        pytest.skip("LocalStack is not installed: make .tools/localstack/.complete, with Python 3.11")
    if why := dynamodb_local.why_unavailable(JARS):
        pytest.skip(why)
    try:
        jars = dynamodb_local.jars(JARS)
    except dynamodb_local.DynamoDBLocalError as error:
        pytest.skip(f"DynamoDB Local: {error}")
    folder = tmp_path_factory.mktemp("localstack")
    with running(LocalStack(folder), folder=folder) as server, dynamodb_local.start(jars) as tables:
        yield Clients(f"http://127.0.0.1:{server.port}", tables)


def is_bad(number: int) -> bool:
    return number % 30 == 7


def group_of(number: int) -> str:
    return f"bad-{number}" if is_bad(number) else str(number % GROUPS)


class Many(Limited):
    """Hundreds of messages, of which each 30th fails until it is redriven; on a FIFO queue in a group of its own."""

    def __init__(self, aws: Any, folder: Path, *, fifo: bool) -> None:
        super().__init__(aws, folder, fifo=fifo)
        sqs = aws.client("sqs")
        dead = sqs.get_queue_attributes(QueueUrl=self.dead_url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        policy = json.dumps({"deadLetterTargetArn": dead, "maxReceiveCount": 50})
        sqs.set_queue_attributes(QueueUrl=self.url, Attributes={"RedrivePolicy": policy})
        self.more["AWS_ENDPOINT_URL_DYNAMODB"] = aws.tables

    def send_all(self) -> None:
        self.sent = [f"{number}-bad" if is_bad(number) else str(number) for number in range(MESSAGES)]
        for first in range(0, MESSAGES, 10):
            entries: Any = [
                {"Id": str(number), "MessageBody": json.dumps({"name": self.sent[number]})}
                | ({"MessageGroupId": group_of(number)} if self.fifo else {})
                for number in range(first, first + 10)
            ]
            answer = self.aws.client("sqs").send_message_batch(QueueUrl=self.url, Entries=entries)
            assert len(answer["Successful"]) == 10

    def redrive(self) -> None:
        where = ["--queue", self.url, "--table", self.records, "--consumer", "worker_handlers:limited"]
        done = subprocess.run(
            [sys.executable, "-m", "idempotent_receiver", "dlq", "redrive", *where, "--yes"],
            cwd=ROOT / "tests" / "e2e",
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def in_order(self) -> bool:
        """Whether those of each group with several messages ended in the order in which they were sent."""
        ended = [run.name for run in self.runs if run.what == "end" and "bad" not in run.name]
        groups = [[int(name) for name in ended if int(name) % GROUPS == group] for group in range(GROUPS)]
        return all(group == sorted(group) for group in groups)


@pytest.mark.parametrize("fifo", [False, True], ids=["standard", "fifo"])
def test_hundreds_of_messages_take_effect_once_and_their_dead_letters_after_a_redrive(
    clouds: Clients, tmp_path: Path, fifo: bool
) -> None:
    """A process of the standard queue is killed meanwhile. On a FIFO queue, nothing goes back from a group whose order
    is checked: LocalStack delivers what is visible of a group while an earlier message is in flight, and AWS does not.
    """
    place = Many(clouds, tmp_path, fifo=fifo)
    place.send_all()
    bad = [name for name in place.sent if "bad" in name]

    with place.worker("--processes", "2", "--concurrency", "4", handler="worker_handlers:limited"):
        place.wait_for(lambda: len(place.runs) > MESSAGES // 2, LONG_SECONDS)
        if not fifo:
            os.kill(place.runs[-1].pid, signal.SIGKILL)
        place.wait_for(place.over, LONG_SECONDS)

    assert place.effects() == {name: 1 for name in place.sent if name not in bad}
    assert place.messages(place.dead_url) == {"0", str(len(bad))}
    assert not fifo or place.in_order()

    place.redrive()
    with place.worker("--concurrency", "4"):
        place.wait_for(place.settled, LONG_SECONDS)

    place.once()
    assert place.messages(place.dead_url) == {"0"}
