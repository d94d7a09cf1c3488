"""The stack that the examples in the help name, and the command."""

from __future__ import annotations

import io
import json
import os
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from moto import mock_aws

from idempotent_receiver.operations import account
from idempotent_receiver.operations.cli import dlq
from idempotent_receiver.operations.cli.deployment import Deployment
from idempotent_receiver.operations.cli.terminal import Terminal
from idempotent_receiver.operations.dead_letters import queue
from tests.unit.operations.cli.history import Kept
from tests.unit.operations.cli.stack import CONSUMERS, REGION, CloudFormation, Receiver, Stack, session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.setenv("COLUMNS", "200")  # sentences in one piece, whatever terminal the tests run in
    monkeypatch.setattr(queue, "WAIT_SECONDS", 0)
    monkeypatch.setattr(dlq, "FOLLOW_SECONDS", 1)
    with mock_aws(config={"lambda": {"use_docker": False}}):
        made = Stack()
        found = Deployment.client

        def client(self: Deployment, service: str) -> Any:
            return CloudFormation(made.outputs) if service == "cloudformation" else found(self, service)

        monkeypatch.setattr(account, "boto3", SimpleNamespace(Session=session))
        monkeypatch.setattr(Deployment, "client", client)
        yield made


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Type an answer, once or several times."""
    return lambda text: monkeypatch.setattr("sys.stdin", io.StringIO(text))


@pytest.fixture
def receiver(
    stack: Stack, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Receiver:
    """Nobody answers what it asks."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    Path("body.json").write_text('{"transfer_id": "edited"}', "utf-8")
    for name, document in CONSUMERS.items():
        Path(name).write_text(json.dumps(document), "utf-8")
    return Receiver(capsys)


@pytest.fixture
def bars(monkeypatch: pytest.MonkeyPatch) -> list[list[Any]]:
    """The progress bars that nobody sees here: what each is of, of how much, and what it was told."""
    made: list[list[Any]] = []

    @contextmanager
    def progress(terminal: Terminal, what: str, total: int | None) -> Iterator[Callable[..., None]]:
        made.append([what, total])
        yield lambda *told: made[-1].append(told)

    monkeypatch.setattr(Terminal, "progress", progress)
    return made


@pytest.fixture
def kept(stack: Stack) -> Kept:
    return Kept()
