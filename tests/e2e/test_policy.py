"""What the deployed function asks of AWS is what its policies allow: nothing is missing, nothing is left over.

What it asks is recorded on its way (recorder.py), in all end-to-end tests that ran before this one. What is allowed is
read from the deployed role. That it must be so is not seen on the local cloud, which allows everything.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.deployed import EVENTS, at, eventually
from tests.e2e.permissions import Permission, allowed, covers, granted, needed
from tests.e2e.recorder import Call

if TYPE_CHECKING:
    from tests.e2e.conftest import Deploy
    from tests.e2e.deployed import Aws, Deployed

POLLER = "Lambda's poller, in the role's name (Lambda Developer Guide, configuring an SQS event source mapping)"
LAMBDA = "Lambda itself, in the role's name (Lambda Developer Guide, the managed policy AWSLambdaBasicExecutionRole)"
NOT_ASKED_BY_A_FUNCTION = {
    "sqs:ReceiveMessage": POLLER,
    "sqs:DeleteMessage": POLLER,
    "sqs:GetQueueAttributes": POLLER,
    "logs:CreateLogStream": LAMBDA,
    "logs:PutLogEvents": LAMBDA,
}
"""Allowed all the same, and why."""

every_function = pytest.mark.parametrize("name", ["Consumer", "Api"])

TABLE = Permission("dynamodb:PutItem", "arn:aws:dynamodb:us-east-1:123456789012:table/records")


@pytest.fixture(scope="module")
def worked(deployed: Deploy, aws: Aws) -> Deployed:
    """A consumer that has met, one and many at a time, whatever a message may come to."""
    if not aws.functions_are_processes:
        pytest.skip("functions in containers cannot be heard: our loopback is not theirs")
    bank = deployed("worked", stubborn=True)
    for account in json.loads((EVENTS / "given" / "accounts.json").read_text()):
        bank.open_account(account["account_id"], account["balance"], account["currency"])
    for event in ("fresh", "redelivered", "permanent-failure", "bad-body", "redriven", "twice-in-one-batch"):
        assert bank.invoke(bank.recorded(event)).failed == []
    for failing in (1, 2):
        transfers = [bank.transfer("alice", "bob", 1, kind="fails1") for _ in range(failing)]
        events = [{"Records": [_record(bank, transfer, receives) for transfer in transfers]} for receives in (1, 2)]
        first, second = (bank.invoke(event).failed for event in events)
        assert (len(first), second) == (failing, [])
    return bank


def _record(bank: Deployed, transfer: dict[str, Any], receives: int) -> dict[str, Any]:
    (record,) = bank.recorded("eventbridge")["Records"]
    attributes = {**record["attributes"], "ApproximateReceiveCount": str(receives)}
    return {**record, "messageId": transfer["transfer_id"], "body": json.dumps(transfer), "attributes": attributes}


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


def statements(aws: Aws, bank: Deployed, name: str = "Consumer") -> list[dict[str, Any]]:
    """What the policies of a deployed function's role say."""
    function = aws.client("lambda").get_function_configuration(FunctionName=bank.stack.resources[name])
    role = function["Role"].rpartition("/")[2]
    iam = aws.client("iam")
    assert iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"] == [], "all of it is written out"
    names = iam.list_role_policies(RoleName=role)["PolicyNames"]
    documents = [iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"] for name in names]
    return [statement for document in documents for statement in document["Statement"]]


def asked(bank: Deployed, name: str = "Consumer") -> set[Permission]:
    """The permissions that a function's calls take."""
    account = bank.stack.outputs["QueueArn"].split(":")[4]
    calls = {"Consumer": bank.calls, "Api": bank.api_calls}[name]
    return {permission for call in calls for permission in needed(call, account)}


@every_function
def test_every_call_of_every_function_is_allowed(aws: Aws, called: Deployed, stacks: list[Deployed], name: str) -> None:
    denied = {
        (bank.stack.name, permission)
        for bank in stacks
        for permission in asked(bank, name)
        if not allowed(permission, statements(aws, bank, name))
    }
    assert denied == set()
    assert asked(called, name), "nothing was recorded: this run proves nothing"


@every_function
def test_every_permission_is_used_or_has_its_reason(aws: Aws, called: Deployed, name: str) -> None:
    used = asked(called, name)
    grants = granted(statements(aws, called, name))
    unused = {grant for grant in grants if not any(covers(grant, permission) for permission in used)}
    pollers = {action for action, reason in NOT_ASKED_BY_A_FUNCTION.items() if reason == POLLER}
    assert {grant.action for grant in unused} == set(NOT_ASKED_BY_A_FUNCTION) - (pollers if name == "Api" else set())


def test_the_api_may_write_no_record_of_a_message(aws: Aws, called: Deployed) -> None:
    writes = {each for each in asked(called, "Api") if each.action == "dynamodb:PutItem" and each.key is not None}
    assert writes
    for each in writes:
        assert each.key is not None
        assert each.key.startswith("transfers#")
        of_a_message = replace(each, key=each.key.removeprefix("transfers#"))
        assert not allowed(of_a_message, statements(aws, called, "Api"))


@every_function
def test_no_permission_reaches_further_than_it_must(aws: Aws, worked: Deployed, name: str) -> None:
    wide = {grant for grant in granted(statements(aws, worked, name)) if "*" in grant.action or "*" in grant.resource}
    # A log stream's name is Lambda's choice.
    assert {(grant.action, grant.resource.rpartition(":")[2]) for grant in wide} == {
        ("logs:CreateLogStream", "*"),
        ("logs:PutLogEvents", "*"),
    }


def test_the_work_covers_every_kind_of_request(worked: Deployed) -> None:
    def kind(call: Call) -> str:
        match call.operation:
            case "BatchExecuteStatement":
                verbs = {statement["Statement"].split()[0] for statement in call.arguments["Statements"]}
                return f"{call.operation} {' '.join(sorted(verbs))}"
            case "TransactWriteItems":
                kinds = {kind for item in call.arguments["TransactItems"] for kind in item}
                return f"{call.operation} {' '.join(sorted(kinds))}"
        return call.operation

    assert {kind(call) for call in worked.calls} == {
        "PutItem",
        "UpdateItem",
        "BatchGetItem",
        "BatchExecuteStatement INSERT",
        "BatchExecuteStatement UPDATE",
        "TransactWriteItems Put Update",
        "SendMessage",
        "ChangeMessageVisibilityBatch",
    }


# The verdict itself, on which all above stands.


@pytest.mark.parametrize(
    ("statement", "verdict"),
    [
        ({"Action": "dynamodb:PutItem", "Resource": TABLE.resource}, True),
        ({"Action": ["dynamodb:GetItem", "dynamodb:putitem"], "Resource": [TABLE.resource]}, True),
        ({"Action": "dynamodb:Put*", "Resource": "*"}, True),
        ({"Action": "dynamodb:PutIte?", "Resource": "arn:aws:dynamodb:*:123456789012:table/records"}, True),
        ({"Action": "dynamodb:UpdateItem", "Resource": TABLE.resource}, False),
        ({"Action": "dynamodb:PutItem", "Resource": TABLE.resource + "/index/x"}, False),
        ({"Action": "dynamodb:PutItem", "Resource": TABLE.resource.replace("records", "Records")}, False),
        ({"Action": "dynamodb:PutItem", "Resource": TABLE.resource.replace("records", "[a-z]*")}, False),
    ],
)
def test_a_statement_allows_its_actions_on_its_resources(statement: dict[str, Any], verdict: bool) -> None:
    assert allowed(TABLE, [{"Effect": "Allow", **statement}]) is verdict


def test_a_denial_outweighs_what_is_allowed() -> None:
    everything = {"Action": "*", "Resource": "*"}
    assert not allowed(TABLE, [{"Effect": "Allow", **everything}, {"Effect": "Deny", **everything}])
    assert not allowed(TABLE, [])


def test_what_the_verdict_does_not_know_it_refuses_to_judge() -> None:
    statement = {
        "Effect": "Allow",
        "Action": "*",
        "Resource": "*",
        "Condition": {"Bool": {"aws:SecureTransport": "true"}},
    }
    with pytest.raises(KeyError, match="Condition"):
        allowed(TABLE, [statement])
    with pytest.raises(KeyError, match="kms:Decrypt"):
        needed(Call("kms", "Decrypt", "us-east-1", {}), "123456789012")


def test_a_transaction_takes_the_permission_of_each_of_its_parts() -> None:
    parts = [{"Put": {"TableName": "a"}}, {"ConditionCheck": {"TableName": "b"}}]
    call = Call("dynamodb", "TransactWriteItems", "us-east-1", {"TransactItems": parts})
    assert needed(call, "123456789012") == {
        Permission("dynamodb:PutItem", "arn:aws:dynamodb:us-east-1:123456789012:table/a"),
        Permission("dynamodb:ConditionCheckItem", "arn:aws:dynamodb:us-east-1:123456789012:table/b"),
    }


def test_a_statement_of_a_batch_takes_the_permission_of_its_verb_on_its_table() -> None:
    statements = ["INSERT INTO \"a\" VALUE {'id': ?}", 'UPDATE "b" SET "c" = ? WHERE "id" = ?', 'SELECT * FROM "d"']
    arguments = {"Statements": [{"Statement": statement} for statement in statements]}
    call = Call("dynamodb", "BatchExecuteStatement", "us-east-1", arguments)
    assert {(each.action, each.resource[-1]) for each in needed(call, "123456789012")} == {
        ("dynamodb:PartiQLInsert", "a"),
        ("dynamodb:PartiQLUpdate", "b"),
        ("dynamodb:PartiQLSelect", "d"),
    }
