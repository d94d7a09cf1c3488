"""Lambda Managed Instances: several worker processes in one environment, in which a time-out ends nothing.

The built library runs under Lambda's own runtime client, which forks a process for each invocation that it may run at
once. What it asks for events is a server of ours, which does of Lambda's what matters here: it tells a deadline, and
does nothing about it.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from harness.cloud import ACCOUNT, REGION
from harness.emulator import RUNTIME
from tests.simulation.world import sqs_record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.deployed import Aws

WORKERS = 3
PATIENCE_SECONDS = 30.0

FUNCTION = """
import glob, os, time
from idempotent_receiver import DynamoDBStore, Message, sqs_consumer

idempotent_handler = sqs_consumer(
    DynamoDBStore(os.environ["RECORDS_TABLE"]),
    lease_margin_seconds=1.0,
    stop_margin_seconds=0.2,
    end_process_at_deadline="AWS_LAMBDA_MAX_CONCURRENCY" in os.environ,
)

@idempotent_handler
def lambda_handler(body: str, message: Message) -> None:
    with open(os.environ["JOURNAL"], "a") as journal:
        journal.write(f"{message.id} {os.getpid()} starts {message.attempt}\\n")
    if body == "hangs" and message.attempt == 1:
        time.sleep(60)
    if body == "meets":
        open(os.environ["JOURNAL"] + f".met-{os.getpid()}", "w").close()
        until = time.monotonic() + 20
        while len(glob.glob(os.environ["JOURNAL"] + ".met-*")) < 2:
            if time.monotonic() > until:
                raise TimeoutError("the other worker never came")
            time.sleep(0.01)
    with open(os.environ["JOURNAL"], "a") as journal:
        journal.write(f"{message.id} {os.getpid()} ends\\n")
"""


@dataclass
class Invocation:
    """One event, and what was answered; None while nothing was."""

    event: Any
    seconds: float
    id: str = field(default_factory=lambda: str(uuid4()))
    answered: threading.Event = field(default_factory=threading.Event)
    answer: Any = None
    deadline: float = 0.0

    def failed(self) -> list[str]:
        """The messages that it asks for again."""
        assert self.answered.wait(PATIENCE_SECONDS), "nobody has answered"
        return [failure["itemIdentifier"] for failure in self.answer["batchItemFailures"]]


class RuntimeApi(ThreadingHTTPServer):
    """Where Lambda's runtime client asks for events and says what they came to."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Requests)
        self.waiting: queue.SimpleQueue[Invocation] = queue.SimpleQueue()
        self.invocations: dict[str, Invocation] = {}

    def invoke(self, *records: dict[str, Any], seconds: float = 30.0) -> Invocation:
        """Let whichever worker is free have an event."""
        invocation = Invocation({"Records": list(records)}, seconds)
        self.invocations[invocation.id] = invocation
        self.waiting.put(invocation)
        return invocation


class _Requests(BaseHTTPRequestHandler):
    server: RuntimeApi
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        invocation = self.server.waiting.get()
        invocation.deadline = time.time() + invocation.seconds
        headers = {
            "Lambda-Runtime-Aws-Request-Id": invocation.id,
            "Lambda-Runtime-Deadline-Ms": str(int(invocation.deadline * 1000)),
            "Lambda-Runtime-Invoked-Function-Arn": f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:consumer",
            "Content-Type": "application/json",
        }
        self._reply(200, headers, json.dumps(invocation.event).encode())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        *_, id, kind = self.path.split("/")
        if kind == "response":
            invocation = self.server.invocations[id]
            invocation.answer = json.loads(body)
            invocation.answered.set()
        self._reply(202, {}, b"")

    def _reply(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


@dataclass
class Environment:
    """An execution environment of a managed instance."""

    api: RuntimeApi
    process: subprocess.Popen[str]
    journal: Path

    def lines(self) -> list[list[str]]:
        """What its handlers have written."""
        return [line.split() for line in self.journal.read_text().splitlines()] if self.journal.exists() else []

    def workers(self) -> set[int]:
        """Its processes that live."""
        main = self.process.pid
        children = Path(f"/proc/{main}/task/{main}/children").read_text().split()
        return {int(child) for child in children if _state(child) not in ("Z", "X", None)}

    def await_line(self, *words: str) -> list[str]:
        """The first line that begins so."""
        until = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < until:
            for line in self.lines():
                if line[0] == words[0] and line[2] == words[1]:
                    return line
            assert self.process.poll() is None, "it has ended"
            time.sleep(0.02)
        raise AssertionError(f"{words} never came")


def _state(pid: str) -> str | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return None


@pytest.fixture
def environment(aws: Aws, build: Path, tmp_path: Path) -> Iterator[Environment]:
    if not aws.functions_are_processes or sys.platform != "linux":
        pytest.skip("the function is built for this machine, and the timer is Linux's")
    table = f"managed-{uuid4().hex[:8]}"
    aws.client("dynamodb").create_table(
        TableName=table,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
    )
    (tmp_path / "managed.py").write_text(FUNCTION)
    api = RuntimeApi()
    threading.Thread(target=api.serve_forever, daemon=True).start()
    variables = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(build),
        "AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{api.server_port}",
        "AWS_LAMBDA_MAX_CONCURRENCY": str(WORKERS),
        "AWS_EXECUTION_ENV": "AWS_Lambda_python3.13",
        "AWS_ENDPOINT_URL": aws.endpoint_url,
        "AWS_ACCESS_KEY_ID": ACCOUNT,
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
        "RECORDS_TABLE": table,
        "JOURNAL": str(tmp_path / "journal"),
    }
    command = [str(RUNTIME / "bin" / "python"), "-m", "awslambdaric", "managed.lambda_handler"]
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(
            command, cwd=tmp_path, env=variables, stdout=log, stderr=log, text=True, start_new_session=True
        ) as process,
    ):
        try:
            yield Environment(api, process, tmp_path / "journal")
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            api.shutdown()
            api.server_close()
            aws.client("dynamodb").delete_table(TableName=table)
    sys.stdout.write((tmp_path / "log").read_text())


def test_a_time_out_ends_its_worker_process_and_the_others_serve_on(environment: Environment) -> None:
    """The environment has one process less for good, for nobody starts another; the message is done by another."""
    api = environment.api
    hanging = api.invoke(sqs_record("h", "hangs"), seconds=4.0)
    _, hung, *_ = environment.await_line("h", "starts")
    before = environment.workers()
    assert api.invoke(sqs_record("a", "quick")).failed() == []

    while int(hung) in environment.workers() and time.time() < hanging.deadline + 1.0:
        time.sleep(0.02)
    died = time.time()

    assert int(hung) in before
    assert len(before) == WORKERS
    assert hanging.deadline - 0.1 <= died < hanging.deadline + 1.0, "not dead before its lease was over"
    assert not hanging.answered.is_set()
    again = ["h"]
    while again and time.time() < hanging.deadline + PATIENCE_SECONDS:
        again = api.invoke(sqs_record("h", "hangs", receives=2)).failed()
    assert [line[2:] for line in environment.lines() if line[0] == "h"] == [["starts", "1"], ["starts", "2"], ["ends"]]
    # All that are left are at it at once, and so nobody else is there.
    both = [api.invoke(sqs_record(f"m-{number}", "meets")) for number in range(2)]
    assert [one.failed() for one in both] == [[], []]
    assert environment.workers() == before - {int(hung)}
    assert {int(pid) for id, pid, *_ in environment.lines() if id.startswith("m")} == before - {int(hung)}
