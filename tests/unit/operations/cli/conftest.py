"""The stack that the examples in the help name, and the command."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from botocore.client import BaseClient
from botocore.exceptions import ClientError
from moto import mock_aws

from idempotent_receiver.errors import Failure
from idempotent_receiver.operations import account
from idempotent_receiver.operations.cli import dlq
from idempotent_receiver.operations.cli.deployment import Deployment
from idempotent_receiver.operations.dead_letters import queue
from tests.unit.operations.cli.history import Kept
from tests.unit.operations.cli.stack import (
    CLOSED,
    CONFLICT,
    DONE,
    FLAKY,
    LONG_AGO_MS,
    REGION,
    STUCK,
    CloudFormation,
    Receiver,
    Stack,
    session,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    """The stack that the examples in the help speak of, with a dead letter of each kind and something stuck."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.setenv("COLUMNS", "200")  # sentences in one piece, whatever terminal the tests run in
    monkeypatch.setattr(queue, "WAIT_SECONDS", 0)
    monkeypatch.setattr(dlq, "FOLLOW_SECONDS", 0)
    with mock_aws(config={"lambda": {"use_docker": False}}):
        made = Stack()
        found = Deployment.client
        monkeypatch.setattr(account, "boto3", SimpleNamespace(Session=session))
        monkeypatch.setattr(
            Deployment,
            "client",
            lambda self, service: (
                CloudFormation(made.outputs, made.nested) if service == "cloudformation" else found(self, service)
            ),
        )
        flaky = Failure(type="ConnectionError", at="app.ledger:7").to_json()
        closed = Failure(type="PermanentError", text="account closed", permanent=True).to_json()
        made.record(DONE, "COMPLETED", "done", data='{"posted": "t-1"}')
        made.record(FLAKY, "FAILED", "flaky", error=flaky, attempts=5)
        made.record(CLOSED, "FAILED", "closed", error=closed)
        made.record(CONFLICT, "COMPLETED", "something else")
        made.record(STUCK, "INPROGRESS", "stuck", in_progress_expiration=LONG_AGO_MS, owner="request-1", attempts=2)
        for key, body in ((DONE, "done"), (FLAKY, "flaky"), (CONFLICT, "conflict")):
            made.bury(key, body)
        made.bury(CLOSED, "closed", reason="account closed", error_type="PermanentError")
        yield made


@pytest.fixture
def receiver(
    stack: Stack, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Receiver:
    monkeypatch.chdir(tmp_path)
    Path("body.json").write_text('{"transfer_id": "edited"}', "utf-8")
    return Receiver(capsys)


@pytest.fixture
def unsaid(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> Receiver:
    """Where SQS does not say whose dead-letter queue it is."""

    def refuse(self: Any, operation: str, arguments: Any, found: Any = BaseClient._make_api_call) -> Any:
        if operation == "ListDeadLetterSourceQueues":
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": "not allowed"}}, operation)
        return found(self, operation, arguments)

    monkeypatch.setattr(BaseClient, "_make_api_call", refuse)
    return receiver


@pytest.fixture
def kept(stack: Stack) -> Kept:
    return Kept()


@pytest.fixture
def denied(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Deny some of AWS's operations: moto allows everything."""
    found = Deployment.client

    def deny(*operations: str) -> None:
        def client_of(self: Deployment, service: str) -> Any:
            made = found(self, service)
            if service != "cloudformation":
                made.meta.events.register("before-call", refuse)
            return made

        def refuse(model: Any, **_: object) -> None:
            if model.name in operations:
                error = {"Code": "AccessDeniedException", "Message": f"User: x may not {model.name}"}
                raise ClientError({"Error": error}, model.name)

        monkeypatch.setattr(Deployment, "client", client_of)

    return deny
