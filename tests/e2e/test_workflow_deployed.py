"""workflow.yaml on the local cloud: one execution a key under 60 starts at once, and what its functions ask of AWS."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from app.transfers import Transfer
from idempotent_receiver import DynamoDBStore
from idempotent_receiver.executions import Running, Started, Workflow, name_of
from idempotent_receiver.record import AlreadyCompleted
from local.caller import Caller, api_url
from local.cloud import ACCOUNT, REGION
from local.workflow_stack import deploy_workflow
from tests.e2e.deployed import Aws, Deployed, eventually
from tests.e2e.permissions import Permission, allowed, needed
from tests.e2e.recorder import Call, Recorder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from local.deploy import Stack

FUNCTIONS = ("Start", "Debit", "Credit", "Receipt", "Refund", "Reconcile", "Sweep")
AT_ONCE = 60
PATIENCE_SECONDS = 180.0


class Workflows:
    """The deployed workflow, and what each of its functions asked of AWS."""

    def __init__(self, aws: Aws, bank: Deployed, stack: Stack) -> None:
        url = api_url(stack, aws.endpoint_url)
        assert url is not None
        self.aws = aws
        self.bank = bank
        self.stack = stack
        credentials = aws.client("sqs")._request_signer._credentials
        self.caller = Caller(url=f"{url}/workflows", credentials=credentials, region=REGION)
        self.calls: dict[str, list[Call]] = {name: [] for name in FUNCTIONS}

    def settled(self, transfer: dict[str, Any], key: str) -> Any:
        """Ask until the answer is the last one."""
        return eventually(
            lambda: self.caller.post(transfer, key),
            lambda answer: answer.status not in (202, 502, 503, 504),
            what=f"{transfer['transfer_id']} is settled",
            seconds=PATIENCE_SECONDS,
        )

    def invoke(self, function: str, event: Any) -> Any:
        """Invoke a function; return its answer."""
        answer = self.aws.client("lambda").invoke(
            FunctionName=self.stack.resources[function], Payload=json.dumps(event)
        )
        return json.loads(answer["Payload"].read())

    def statements(self, function: str) -> list[dict[str, Any]]:
        """What the policies of a function's role say."""
        iam = self.aws.client("iam")
        configuration = self.aws.client("lambda").get_function_configuration(
            FunctionName=self.stack.resources[function]
        )
        role = configuration["Role"].rpartition("/")[2]
        names = iam.list_role_policies(RoleName=role)["PolicyNames"]
        documents = [iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"] for name in names]
        return [statement for document in documents for statement in document["Statement"]]


@pytest.fixture(scope="module")
def workflows(aws: Aws, build: Path, bank: Deployed) -> Iterator[Workflows]:
    """The workflow beside the bank; each function's requests go by a recorder of its own."""
    if not aws.functions_are_processes:
        pytest.skip("the definition's placeholders and functions in containers were never tried together")
    stack = deploy_workflow(aws, bank.stack, name=f"workflow-{uuid4().hex[:8]}", code=build)  # type: ignore[arg-type]  # it has the clients
    made = Workflows(aws, bank, stack)
    with ExitStack() as cleanup:
        cleanup.callback(aws.client("cloudformation").delete_stack, StackName=stack.name)
        for name, calls in made.calls.items():
            recorder = cleanup.enter_context(Recorder(aws.endpoint_url, calls))
            _send_by(recorder, aws, stack.resources[name])
        yield made


def _send_by(recorder: Recorder, aws: Aws, function: str) -> None:
    client = aws.client("lambda")
    variables = client.get_function_configuration(FunctionName=function)["Environment"]["Variables"]
    client.update_function_configuration(
        FunctionName=function, Environment={"Variables": {**variables, "AWS_ENDPOINT_URL": recorder.endpoint_url}}
    )
    client.get_waiter("function_updated_v2").wait(FunctionName=function)


def test_sixty_starts_at_once_under_one_key_make_one_execution(workflows: Workflows) -> None:
    """The shipped start on the real store and the real machine, each in a thread of its own."""
    payer, payee = workflows.bank.new_account(100), workflows.bank.new_account(0)
    transfer = workflows.bank.transfer(payer, payee, 30, kind="sixty")
    starter = Workflow(
        DynamoDBStore(
            workflows.stack.outputs["WorkflowsTable"], namespace="transfers", client=workflows.aws.client("dynamodb")
        ),
        client=workflows.aws.client("stepfunctions"),
        state_machine_arn=workflows.stack.outputs["MachineArn"],
        timeout_seconds=7200,
    )
    name = name_of(uuid4().hex)
    start = starter.start_of(name, "f" * 64, Transfer(**transfer).model_dump(mode="json", exclude={"receipt"}))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(lambda n: starter.accept(start, starter.deadline(60_000), str(n)), range(AT_ONCE)))
    assert sum(isinstance(answer, Started) for answer in answers) == 1
    assert all(isinstance(answer, Started | Running | AlreadyCompleted) for answer in answers)
    eventually(
        lambda: workflows.bank.balance(payee), lambda seen: seen == 30, what="it was posted", seconds=PATIENCE_SECONDS
    )
    assert workflows.bank.balance(payer) == 70
    executions = workflows.aws.client("stepfunctions").list_executions(
        stateMachineArn=workflows.stack.outputs["MachineArn"]
    )["executions"]
    assert [each["name"] for each in executions if each["name"] == name] == [name]
    assert len(executions) == 1


@pytest.fixture(scope="module")
def worked(workflows: Workflows) -> Workflows:
    """A workflow whose functions have met whatever a transfer may come to."""
    bank = workflows.bank
    payer, payee = bank.new_account(100), bank.new_account(0)
    good = bank.transfer(payer, payee, 30, kind="good")
    assert workflows.settled(good, "good").body["transfer_id"] == good["transfer_id"]
    refused = bank.transfer(payer, "nobody", 10, kind="refused")
    assert workflows.settled(refused, "refused").status == 500  # one name for all errors here, so no refusal's own
    assert (bank.balance(payer), bank.balance(payee)) == (70, 30)
    eventually(
        lambda: bank.get("Entries", {"entry_id": f"{good['transfer_id']}##receipt"}),
        what="the consumer has entered the receipt",
        seconds=PATIENCE_SECONDS,
    )
    return workflows


def test_a_transfer_goes_from_the_api_to_the_consumer(worked: Workflows) -> None:
    """The story in one: what came of it is in the fixture."""
    started = worked.calls["Start"]
    assert "StartExecution" in {call.operation for call in started}


def test_orphans_and_dead_machines_are_put_right(worked: Workflows) -> None:
    """A starter that died before its start, and a machine that nobody heard of: a sweep goes on with both."""
    bank, machines = worked.bank, worked.aws.client("stepfunctions")
    payer, payee = bank.new_account(100), bank.new_account(0)
    transfer = Transfer(**bank.transfer(payer, payee, 30, kind="orphan"))
    told = transfer.model_dump(mode="json", exclude={"receipt"})
    name = name_of(uuid4().hex)
    table = worked.stack.outputs["WorkflowsTable"]
    workflow = Workflow(
        DynamoDBStore(table, namespace="transfers", client=worked.aws.client("dynamodb")),
        client=machines,
        state_machine_arn=worked.stack.outputs["MachineArn"],
        timeout_seconds=7200,
    )
    start = workflow.start_of(name, "f" * 64, told)
    worked.aws.client("dynamodb").put_item(
        TableName=table,
        Item={
            "id": {"S": workflow.id_of(name)},
            "status": {"S": "INPROGRESS"},
            "version": {"S": "v1"},
            "validation": {"S": "f" * 64},
            "in_progress_expiration": {"N": "1000"},
            "expiration": {"N": "4000000000"},
            "attempts": {"N": "1"},
            "input": {"S": start.input},
        },
    )
    eventually(
        lambda: (worked.invoke("Sweep", {}), bank.balance(payee))[1],
        lambda seen: seen == 30,
        what="the orphan was started, and its money has arrived",
        seconds=PATIENCE_SECONDS,
    )
    arn = workflow.arn_of(name)
    event = {"executionArn": arn, "status": "ABORTED", "input": start.input}
    eventually(
        lambda: worked.invoke("Reconcile", {"detail": event}),
        lambda answer: answer in ("settled", "completed"),
        what="whoever tells of its end again is told that all is settled",
        seconds=PATIENCE_SECONDS,
    )
    assert (bank.balance(payer), bank.balance(payee)) == (70, 30)


def test_every_call_of_every_function_is_allowed(worked: Workflows) -> None:
    denied: set[tuple[str, Permission]] = set()
    for name in FUNCTIONS:
        asked = {permission for call in worked.calls[name] for permission in needed(call, ACCOUNT)}
        assert asked, f"{name} was never called: this run proves nothing of it"
        statements = worked.statements(name)
        denied |= {(name, permission) for permission in asked if not allowed(permission, statements)}
    assert denied == set()
