"""What the deployed function asks of AWS is what its policies allow: nothing is missing, nothing is left over.

What it asks is recorded on its way (recorder.py), and what is allowed is read from the deployed role: a local cloud
allows everything. The calls of all other end-to-end tests are judged too, where their stacks are made (conftest.py).
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver.operations.doctor.roles import ON_RECORDS
from tests.e2e.conftest import AT_ONCE
from tests.e2e.deployed import EVENTS, at, eventually
from tests.e2e.permissions import Permission, allowed, covers, granted
from tests.e2e.recorder import Call

if TYPE_CHECKING:
    from tests.e2e.conftest import Deploy
    from tests.e2e.deployed import Aws, Deployed

pytestmark = pytest.mark.slow

POLLER = "Lambda's poller, in the role's name (Lambda Developer Guide, configuring an SQS event source mapping)"
LAMBDA = "Lambda itself, in the role's name (Lambda Developer Guide, the managed policy AWSLambdaBasicExecutionRole)"
TRACER = "Lambda itself, with Tracing=Active (X-Ray Developer Guide, X-Ray and Lambda); X-Ray knows no resources"
NOT_ASKED_BY_A_FUNCTION = {
    "Consumer": {
        "sqs:ReceiveMessage": POLLER,
        "sqs:DeleteMessage": POLLER,
        "sqs:GetQueueAttributes": POLLER,
        "logs:CreateLogStream": LAMBDA,
        "logs:PutLogEvents": LAMBDA,
        "xray:PutTraceSegments": TRACER,
        "xray:PutTelemetryRecords": TRACER,
    },
    "Api": {"logs:CreateLogStream": LAMBDA, "logs:PutLogEvents": LAMBDA},
}
"""Allowed all the same, and why."""

every_function = pytest.mark.parametrize("name", ["Consumer", "Api"])


@pytest.fixture(scope="module")
def worked(deployed: Deploy, aws: Aws) -> Deployed:
    """A consumer that has seen every outcome of a message, one and many at a time."""
    return _worked(deployed, aws, "worked")


@pytest.fixture(scope="module")
def without_claims(deployed: Deploy, aws: Aws) -> Deployed:
    """The same, which claims nothing."""
    return _worked(deployed, aws, "without-claims", api=None, Effects="transaction")


def _worked(deployed: Deploy, aws: Aws, name: str, **given: Any) -> Deployed:
    if not aws.functions_are_processes:
        pytest.skip("functions in containers cannot be heard: our loopback is not theirs")
    bank = deployed(name, edits=[AT_ONCE], stubborn=True, **given)
    for account in json.loads((EVENTS / "given" / "accounts.json").read_text()):
        bank.open_account(account["account_id"], account["balance"], account["currency"])
    for event in ("fresh", "redelivered", "permanent-failure", "bad-body", "redriven", "duplicate"):
        assert bank.invoke(bank.recorded(event)).failed == []
    receipt = bank.transfer("alice", "bob", 1, kind="receipt") | {"receipt": True}  # whose account is read
    assert bank.invoke({"Records": [bank.delivered(receipt)]}).failed == []
    for failing in (1, 2):
        transfers = [bank.transfer("alice", "bob", 1, kind="fails2") for _ in range(failing)]
        events = [{"Records": [bank.delivered(transfer, receives) for transfer in transfers]} for receives in (1, 2, 3)]
        assert [len(bank.invoke(event).failed) for event in events] == [failing, failing, 0]
    return bank


@pytest.fixture(scope="module")
def called(worked: Deployed) -> Deployed:
    """The same, with an API that has been asked: for a transfer, once more, with another key; and for its state, before
    and after its first delivery.
    """
    caller = at(worked)
    asked = {"from_account": "alice", "to_account": "bob", "amount": 1, "currency": "USD"}
    worked.pause()
    first, again = (caller.post(asked, "policy-1") for _ in range(2))
    assert (first.status, again.status, again.replayed) == (202, 202, True), (first.body, again.body)
    id = first.body["transfer_id"]
    assert caller.get(id).body["state"] == "accepted"
    worked.resume()
    eventually(lambda: caller.get(id).body["state"], lambda state: state == "posted", what="it is posted")
    return worked


@every_function
def test_every_permission_is_used_or_has_its_reason(called: Deployed, name: str) -> None:
    assert {grant.action for grant in _unused(called, name)} == set(NOT_ASKED_BY_A_FUNCTION[name])


def _unused(bank: Deployed, name: str) -> set[Permission]:
    used = bank.asked(name)
    return {grant for grant in granted(bank.statements(name)) if not any(covers(grant, each) for each in used)}


def test_without_claims_every_permission_is_needed_and_no_other(without_claims: Deployed) -> None:
    """The record is put in the transaction, or updated there where one was read."""
    assert without_claims.denied() == set()
    assert {grant.action for grant in _unused(without_claims, "Consumer")} == set(NOT_ASKED_BY_A_FUNCTION["Consumer"])
    assert {"TransactWriteItems Put Update"} < {kind(call) for call in without_claims.calls}
    assert {permission.action for permission in _on_records(without_claims)} == {
        f"dynamodb:{action}" for action in ON_RECORDS
    }


def _on_records(bank: Deployed) -> set[Permission]:
    table = bank.stack.resources["Records"]
    return {each for each in bank.asked() if each.resource.endswith(f"table/{table}")}


def test_the_api_may_write_no_record_of_a_message(called: Deployed) -> None:
    writes = {each for each in called.asked("Api") if each.action == "dynamodb:PutItem" and each.keys}
    assert writes
    for each in writes:
        (key,) = each.keys
        assert key.startswith("transfers#")
        of_a_message = replace(each, keys=(key.removeprefix("transfers#"),))
        assert not allowed(of_a_message, called.statements("Api"))


@every_function
def test_no_permission_reaches_further_than_it_must(worked: Deployed, name: str) -> None:
    wide = {grant for grant in granted(worked.statements(name)) if "*" in grant.action or "*" in grant.resource}
    # A log stream's name is Lambda's choice.
    allowed_wide = [action for action, why in NOT_ASKED_BY_A_FUNCTION[name].items() if why in (LAMBDA, TRACER)]
    assert {(grant.action, grant.resource.rpartition(":")[2]) for grant in wide} == {
        (each, "*") for each in allowed_wide
    }


def kind(call: Call) -> str:
    """What a request asks for, with the kinds of its parts."""
    match call.operation:
        case "BatchExecuteStatement":
            verbs = {statement["Statement"].split()[0] for statement in call.arguments["Statements"]}
            return f"{call.operation} {' '.join(sorted(verbs))}"
        case "TransactWriteItems":
            kinds = {kind for item in call.arguments["TransactItems"] for kind in item}
            return f"{call.operation} {' '.join(sorted(kinds))}"
    return call.operation


def test_the_work_covers_every_kind_of_request(worked: Deployed) -> None:
    assert {kind(call) for call in worked.calls} == {
        "PutItem",
        "UpdateItem",
        "BatchGetItem",
        "GetItem",
        "TransactWriteItems ConditionCheck Put Update",
        "BatchExecuteStatement INSERT",
        "BatchExecuteStatement UPDATE",
        "TransactWriteItems Put Update",
        "SendMessage",
        "ChangeMessageVisibilityBatch",
    }
