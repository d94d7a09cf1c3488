"""A bank on moto: its tables, its queue, the shipped steps, and the machine that calls them."""

from __future__ import annotations

import json
import threading
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from moto import mock_aws
from moto.stepfunctions.parser.asl.parse.asl_parser import AmazonStateLanguageParser

from harness.cloud import ROOT
from idempotent_receiver.clock import SystemClock
from tests.template import load
from tests.workflow.machine import ROLE, Execution, Functions, definition, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

REGION = "us-east-1"
TABLES = {"steps": "id", "accounts": "account_id", "entries": "entry_id"}
STEPS = ("debit", "credit", "receipt", "refund")
FINGERPRINT = "f" * 64
UNMOVED = {"alice": 100, "bob": 0}
MOVED = {"alice": 70, "bob": 30}
_turn = threading.Event()
TRANSFER = {"transfer_id": "t1", "from_account": "alice", "to_account": "bob", "amount": 30, "currency": "USD"}


parsed = cache(AmazonStateLanguageParser.parse)
"""moto reads a definition when it is created and again for each execution. What comes of it is only read from then on:
an execution keeps what it knows in its own environment.
"""


@cache
def session() -> boto3.session.Session:
    """One session, for the services' descriptions to be read once. Clients ask the environment anew."""
    return boto3.session.Session()


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """moto, whose engine runs state machines; nothing of the caller's own AWS."""
    for name, value in {
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ACCESS_KEY_ID": "1",
        "AWS_SECRET_ACCESS_KEY": "1",
        "STATE_MACHINE_ARN": "arn:aws:states:us-east-1:123456789012:stateMachine:transfers",
        "ORPHANS_INDEX": "orphans",
        "STEPS_TABLE": "steps",
        "WORKFLOWS_TABLE": "workflows",
        "ACCOUNTS_TABLE": "accounts",
        "ENTRIES_TABLE": "entries",
        "QUEUE_URL": "https://sqs.us-east-1.amazonaws.com/123456789012/transfers",
        "POWERTOOLS_SERVICE_NAME": "workflow",
        "POWERTOOLS_METRICS_NAMESPACE": "Example",
    }.items():
        monkeypatch.setenv(name, value)
    with mock_aws(config={"stepfunctions": {"execute_state_machine": True}}), monkeypatch.context() as patched:
        patched.setattr("boto3.DEFAULT_SESSION", session())
        patched.setattr(AmazonStateLanguageParser, "parse", parsed)
        yield


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds of the engine's pauses before it tries again. The functions' clock goes by them; nobody waits."""
    slept: list[float] = []
    monkeypatch.setattr("moto.stepfunctions.parser.asl.component.common.retry.retrier_decl.time.sleep", slept.append)
    epoch_ms = SystemClock.epoch_ms
    monkeypatch.setattr(SystemClock, "epoch_ms", lambda self: epoch_ms(self) + int(1000 * sum(slept)))
    return slept


class Bank:
    """What a transfer touches, and the machine."""

    def __init__(self, handlers: dict[str, Callable[[Any, Any], Any]], functions: Functions) -> None:
        self.handlers = handlers
        self.functions = functions
        self.dynamodb = boto3.resource("dynamodb")
        self.machines = boto3.client("stepfunctions")
        self._entered: set[str] = set()

    # The books.

    def open_account(self, account: str, balance: int) -> None:
        self.table("accounts").put_item(Item={"account_id": account, "balance": balance, "currency": "USD"})

    def balances(self) -> dict[str, int]:
        return {item["account_id"]: int(item["balance"]) for item in self.table("accounts").scan()["Items"]}

    def entries(self) -> dict[str, tuple[str, int]]:
        found = self.table("entries").scan()["Items"]
        return {item["entry_id"]: (item["account_id"], int(item["amount"])) for item in found}

    def table(self, name: str) -> Any:
        return self.dynamodb.Table(name)

    # The record.

    def hand_over(self, arn: str | None = None, **attributes: Any) -> None:
        """Write the record that a start leaves behind."""
        item = {
            "id": "workflow#1",
            "status": "INPROGRESS",
            "version": "v1",
            "validation": FINGERPRINT,
            "expiration": 2_000_000_000,
            "in_progress_expiration": 1_900_000_000_000,
            "attempts": 1,
            "owner": "starter",
            "execution": arn,
        }
        merged = {name: value for name, value in (item | attributes).items() if value is not None}
        self.table("workflows").put_item(Item=merged)

    def record(self, id: str = "workflow#1") -> dict[str, Any]:
        return dict(self.table("workflows").get_item(Key={"id": id}, ConsistentRead=True)["Item"])

    def failure(self, id: str = "workflow#1") -> dict[str, Any]:
        """What the record says of the failure."""
        record = self.record(id)
        assert record["status"] == "FAILED"
        return dict(json.loads(record["error"]))

    # The machine.

    def create(self, **changes: Any) -> str:
        """The machine of the shipped definition, with `changes` to its top level."""
        names = {"Debit": "debit", "Credit": "credit", "Receipt": "receipt", "Refund": "refund"}
        text = json.dumps({**definition(Workflows="workflows", **names), **changes})
        made = self.machines.create_state_machine(name="transfers", definition=text, roleArn=ROLE)
        return str(made["stateMachineArn"])

    def start(self, machine: str, transfer: Mapping[str, Any] = TRANSFER, name: str = "1") -> str:
        told = {"record": "workflow#1", "fingerprint": FINGERPRINT, "payload": transfer}
        started = self.machines.start_execution(stateMachineArn=machine, name=name, input=json.dumps(told))
        return str(started["executionArn"])

    def ended(self, arn: str) -> Execution:
        """Wait for an execution's end."""
        for _ in range(2000):
            if self.machines.describe_execution(executionArn=arn)["status"] != "RUNNING":
                return Execution.of(self.machines, arn)
            _turn.wait(0.01)
        raise AssertionError(f"{arn} is still running")

    def run(self, transfer: Mapping[str, Any] = TRANSFER) -> Execution:
        """Play one transfer, whose record waits for it."""
        machine = self.create()
        self.hand_over(machine.replace(":stateMachine:", ":execution:") + ":1")
        return self.ended(self.start(machine, transfer))

    def messages(self) -> list[dict[str, Any]]:
        sqs = boto3.client("sqs")
        url = sqs.get_queue_url(QueueName="transfers")["QueueUrl"]
        found = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"])
        return list(found.get("Messages", []))


@pytest.fixture
def bank(aws: None, sleeps: list[float], monkeypatch: pytest.MonkeyPatch) -> Iterator[Bank]:
    """A bank in which alice has 100, and bob nothing. `bank.handlers[step]` may be replaced by a test."""
    dynamodb = boto3.client("dynamodb")
    for name, key in TABLES.items():
        dynamodb.create_table(
            TableName=name,
            KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
    made = load(ROOT / "deploy" / "workflow.yaml")["Resources"]["Workflows"]["Properties"]
    names = ("KeySchema", "AttributeDefinitions", "BillingMode", "GlobalSecondaryIndexes")
    dynamodb.create_table(TableName="workflows", **{name: made[name] for name in names})
    boto3.client("sqs").create_queue(QueueName="transfers")
    handlers: dict[str, Callable[[Any, Any], Any]] = {
        step: import_module(f"app.steps.{step}").lambda_handler for step in STEPS
    }
    functions = Functions(handlers)
    with serving(functions) as endpoint_url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", endpoint_url)
        made = Bank(handlers, functions)
        made.open_account("alice", 100)
        made.open_account("bob", 0)
        yield made
