"""docs/effects.md: what an accepted order does happens once, and a refused one does nothing."""

from __future__ import annotations

import json
import socketserver
import threading
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from moto import mock_aws

from idempotent_receiver import MemoryStore
from idempotent_receiver.testing import lambda_context, sqs_event
from tests.test_docs import ROOT, examples

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["examples"]

page = pytest.mark.parametrize("examples", [ROOT / "docs/effects.md"], indirect=True)


@contextmanager
def serving(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Payments(BaseHTTPRequestHandler):
    """Answers 503 at first. Remembers the key of each request."""

    keys: list[str]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.keys.append(self.headers["Idempotency-Key"])
        self.send_response(503 if len(self.keys) == 1 else 201)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Not on the screen."""


class Smtp(socketserver.StreamRequestHandler):
    """Takes mails, as far as `smtplib` asks for it."""

    mails: list[str]

    def handle(self) -> None:
        self.say("220 example.com")
        while line := self.rfile.readline().decode().strip():
            if line.upper() == "DATA":
                self.say("354 go on")
                text = []
                while (part := self.rfile.readline().decode().rstrip("\r\n")) != ".":
                    text.append(part)
                self.mails.append("\n".join(text))
            self.say("221 bye" if line.upper() == "QUIT" else "250 fine")

    def say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())


@pytest.fixture
def payments(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    Payments.keys = []
    server = HTTPServer(("127.0.0.1", 0), Payments)
    monkeypatch.setenv("PAYMENTS_URL", f"http://127.0.0.1:{server.server_port}/")
    with serving(server):
        yield Payments.keys


@pytest.fixture
def mails(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    Smtp.mails = []
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Smtp)
    monkeypatch.setenv("SMTP_HOST", "127.0.0.1")
    monkeypatch.setenv("SMTP_PORT", str(server.server_address[1]))
    with serving(server):
        yield Smtp.mails


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "example")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        yield


def subscribed(names: dict[str, Any]) -> tuple[Any, str]:
    """A queue that the topic and the event bus send to, and the state machine."""
    sqs = boto3.client("sqs")
    url = sqs.create_queue(QueueName="subscriber")["QueueUrl"]
    arn = "arn:aws:sqs:us-east-1:123456789012:subscriber"
    boto3.client("sns").create_topic(Name="orders")
    boto3.client("sns").subscribe(TopicArn=names["TOPIC"], Protocol="sqs", Endpoint=arn)
    events = boto3.client("events")
    events.put_rule(Name="shop", EventPattern='{"source": ["shop"]}')
    events.put_targets(Rule="shop", Targets=[{"Id": "1", "Arn": arn}])
    role = "arn:aws:iam::123456789012:role/any"
    steps = boto3.client("stepfunctions")
    steps.create_state_machine(
        name="ship", roleArn=role, definition='{"StartAt": "a", "States": {"a": {"Type": "Succeed"}}}'
    )
    return sqs, url


def received(sqs: Any, url: str) -> list[dict[str, Any]]:
    found = []
    while messages := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
        found += [json.loads(each["Body"]) for each in messages]
    return found


def using(store: MemoryStore, handler: Any) -> Any:
    return handler.with_options(replace(handler.options, store=store))


@page
def test_what_is_called_happens_once_for_an_accepted_order_and_never_for_a_refused_one(
    examples: dict[str, Any], payments: list[str], mails: list[str]
) -> None:
    """Whatever the payments service answers."""
    sqs, url = subscribed(examples)
    store = MemoryStore(tables={"stock": "article"})
    store.tables["stock"].items["pear",] = {"article": "pear", "pieces": 1}
    handler = using(store, examples["accept"])
    orders = [{"id": f"o-{number}", "article": "pear", "email": "a@example.com"} for number in (1, 2)]
    event = sqs_event(*orders)

    first, second, third = (handler(event, lambda_context()) for _ in range(3))

    failed = [[each["itemIdentifier"] for each in answer["batchItemFailures"]] for answer in (first, second, third)]
    assert failed == [["message-1", "message-2"], ["message-2"], ["message-2"]]
    assert store.tables["stock"].items["pear",]["pieces"] == 0
    assert (len(payments), len(set(payments))) == (2, 1), "the one that failed is repeated, under its key"
    assert [mail.splitlines()[0] for mail in mails] == ["Subject: We have your order o-1"]
    notified, announced = sorted(received(sqs, url), key=lambda body: "detail" in body)
    assert notified["Message"] == announced["detail"]["order"] == "o-1"
    (execution,) = boto3.client("stepfunctions").list_executions(stateMachineArn=examples["MACHINE"])["executions"]
    keys = [
        notified["MessageAttributes"]["idempotency-key"]["Value"],
        announced["detail"]["idempotency_key"],
        execution["name"],
        payments[0],
    ]
    assert len(set(keys)) == 4, "each call has a key of its own"


@page
def test_an_execution_that_was_started_is_not_started_again(examples: dict[str, Any]) -> None:
    subscribed(examples)
    for _ in range(2):
        examples["start"](order="o-1", idempotency_key="k")
    listed = boto3.client("stepfunctions").list_executions(stateMachineArn=examples["MACHINE"])["executions"]
    assert [each["name"] for each in listed] == ["k"]


@page
def test_a_reminder_is_mailed_once_at_most(examples: dict[str, Any], mails: list[str]) -> None:
    send = examples["mail"]

    def dies_afterwards(order: str, email: str) -> None:
        send(order, email)
        raise ConnectionError

    examples["mail"] = dies_afterwards
    handler, event = using(MemoryStore(), examples["remind"]), sqs_event({"id": "o-1", "email": "a@example.com"})
    failures = [len(handler(event, lambda_context())["batchItemFailures"]) for _ in range(2)]
    assert (failures, len(mails)) == ([1, 0], 1)


@page
def test_a_hundred_and_one_documents_take_six_requests_and_an_error_is_that_of_all_in_one(
    examples: dict[str, Any],
) -> None:
    handler = using(MemoryStore(), examples["index"])
    event = sqs_event(*({"id": number} for number in range(101)))
    assert handler(event, lambda_context()) == {"batchItemFailures": []}
    sent = examples["sent"]
    assert (len(sent), sorted(each["id"] for documents in sent for each in documents)) == (6, list(range(101)))
