"""workflow.yaml on the local cloud: one execution a key under 60 starts at once, and what its functions ask of AWS."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from app.transfers import Transfer
from harness.beside import deploy_beside
from harness.caller import Caller, api_url
from harness.cloud import ACCOUNT, REGION
from idempotent_receiver import DynamoDBStore
from idempotent_receiver.dynamodb.statements import attribute_values
from idempotent_receiver.protocol.answers import AlreadyCompleted
from idempotent_receiver.workflow import Running, Start, Started, Workflow, accept, name_of
from tests.e2e.deployed import Aws, Deployed, eventually
from tests.e2e.permissions import Permission, allowed, covers, granted, needed
from tests.e2e.recorder import Call, Recorder, send_by

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from harness.deploy import Stack

FUNCTIONS = ("Start", "Debit", "Credit", "Receipt", "Refund", "Reconcile", "Sweep")
LOGS = "Lambda itself, in the role's name (Lambda Developer Guide, the managed policy AWSLambdaBasicExecutionRole)"
DESTINATION = "Lambda itself, in the role's name (Lambda Developer Guide, destinations of asynchronous invocations)"
NOT_ASKED_BY_A_FUNCTION = {("logs:CreateLogStream", "Log"): LOGS, ("logs:PutLogEvents", "Log"): LOGS}
NOT_ASKED_BY = {"Reconcile": {("sqs:SendMessage", "Unreconciled"): DESTINATION}}
"""Allowed all the same, and why: an action, and the resource that it is allowed on."""
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
        self.recorders: dict[str, Recorder] = {}
        self.workflow = Workflow(
            DynamoDBStore(stack.outputs["WorkflowsTable"], namespace="transfers", client=aws.client("dynamodb")),
            client=aws.client("stepfunctions"),
            state_machine_arn=stack.outputs["MachineArn"],
            timeout_seconds=7200,
        )

    def settled(self, transfer: dict[str, Any], key: str) -> Any:
        """Ask until the answer is final."""
        return eventually(
            lambda: self.caller.post(transfer, key),
            lambda answer: answer.status not in (202, 502, 503, 504),
            what=f"{transfer['transfer_id']} is settled",
            seconds=PATIENCE_SECONDS,
        )

    def lose_the_next_claim(self, function: str) -> None:
        """Let its next PutItem take effect without an answer, and the client's second try too."""
        self.recorders[function].lose("PutItem", 2)

    def start_of(self, kind: str) -> Start:
        """What to start for a transfer of 30 between two new accounts, of which the first holds 100."""
        payer, payee = self.bank.new_account(100), self.bank.new_account(0)
        transfer = Transfer(**self.bank.transfer(payer, payee, 30, kind=kind))
        told = transfer.model_dump(mode="json", exclude={"receipt"})
        return self.workflow.start_of(name_of(uuid4().hex), "f" * 64, told)

    def books_of(self, start: Start) -> tuple[int, int]:
        """What the payer and the payee of a start hold."""
        told = json.loads(start.input)["payload"]
        return self.bank.balance(told["from_account"]), self.bank.balance(told["to_account"])

    def orphaned(self, start: Start, **attributes: Any) -> None:
        """Write the record of a claim whose lease is long over."""
        item = {
            "id": self.workflow.id_of(start.name),
            "status": "INPROGRESS",
            "version": "v1",
            "validation": start.fingerprint,
            "in_progress_expiration": 1000,
            "expiration": 4_000_000_000,
            "attempts": 1,
            "input": start.input,
            **attributes,
        }
        self.aws.client("dynamodb").put_item(
            TableName=self.stack.outputs["WorkflowsTable"],
            Item=dict(zip(item, attribute_values(item.values()), strict=True)),
        )

    def died_after(self, start: Start, *steps: str) -> str:
        """An execution that was aborted when these steps were done, and has written nothing; its ARN."""
        for step in steps:
            self.invoke(step, json.loads(start.input)["payload"])
        arn = self.workflow.arn_of(start.name)
        functions, machines = self.aws.client("lambda"), self.aws.client("stepfunctions")
        debit = self.stack.resources["Debit"]
        functions.put_function_concurrency(FunctionName=debit, ReservedConcurrentExecutions=0)
        machines.start_execution(stateMachineArn=self.workflow.state_machine_arn, name=start.name, input=start.input)
        self.orphaned(start, execution=arn)
        machines.stop_execution(executionArn=arn)
        functions.delete_function_concurrency(FunctionName=debit)
        return arn

    def invoke(self, function: str, event: Any) -> Any:
        """Invoke a function; return its answer."""
        answer = self.aws.client("lambda").invoke(
            FunctionName=self.stack.resources[function], Payload=json.dumps(event)
        )
        return json.loads(answer["Payload"].read())

    def asked(self, function: str) -> set[Permission]:
        """The permissions that a function's calls took."""
        return {permission for call in self.calls[function] for permission in needed(call, ACCOUNT)}

    def resource_at(self, arn: str) -> str:
        """The name in the template of the resource that an ARN is of; the ARN itself where there is none."""
        tails = {id: re.split("[:/]", physical)[-1] for id, physical in self.stack.resources.items()}
        return next((id for id, tail in tails.items() if tail in re.split("[:/]", arn)), arn)

    def statements(self, function: str) -> list[dict[str, Any]]:
        """What the policies of a function's role say."""
        iam = self.aws.client("iam")
        configuration = self.aws.client("lambda").get_function_configuration(
            FunctionName=self.stack.resources[function]
        )
        role = configuration["Role"].rpartition("/")[2]
        names = iam.list_role_policies(RoleName=role)["PolicyNames"]
        documents = [iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"] for name in names]
        for each in iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"]:
            arn = each["PolicyArn"]
            version = iam.get_policy(PolicyArn=arn)["Policy"]["DefaultVersionId"]
            documents.append(iam.get_policy_version(PolicyArn=arn, VersionId=version)["PolicyVersion"]["Document"])
        return [statement for document in documents for statement in document["Statement"]]


@pytest.fixture(scope="module")
def workflows(aws: Aws, build: Path, bank: Deployed) -> Iterator[Workflows]:
    """The workflow beside the bank; each function's requests go by a recorder of its own."""
    if not aws.functions_are_processes:
        pytest.skip("the definition's placeholders and functions in containers were never tried together")
    stack = deploy_beside(aws, bank.stack, "workflow", name=f"workflow-{uuid4().hex[:8]}", code=build)  # type: ignore[arg-type]  # it has the clients
    made = Workflows(aws, bank, stack)
    with ExitStack() as cleanup:
        cleanup.callback(aws.client("cloudformation").delete_stack, StackName=stack.name)
        for name, calls in made.calls.items():
            made.recorders[name] = cleanup.enter_context(Recorder(aws.endpoint_url, calls))
            send_by(made.recorders[name], aws, stack.resources[name])
        yield made


@pytest.mark.slow
def test_sixty_starts_at_once_under_one_key_make_one_execution(workflows: Workflows) -> None:
    """The shipped start on the real store and the real machine, each in a thread of its own."""
    starter, start = workflows.workflow, workflows.start_of("sixty")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(lambda n: accept(starter, start, starter.deadline(60_000), str(n)), range(AT_ONCE)))
    assert sum(isinstance(answer, Started) for answer in answers) == 1
    assert all(isinstance(answer, Started | Running | AlreadyCompleted) for answer in answers)
    eventually(
        lambda: workflows.books_of(start),
        lambda seen: seen == (70, 30),
        what="it was posted, once",
        seconds=PATIENCE_SECONDS,
    )
    machines = workflows.aws.client("stepfunctions")
    executions = machines.list_executions(stateMachineArn=starter.state_machine_arn)["executions"]
    assert [each["name"] for each in executions] == [start.name]


@pytest.fixture(scope="module")
def worked(workflows: Workflows) -> Workflows:
    """A workflow whose functions have met whatever a transfer may come to, an answer that was lost included."""
    bank = workflows.bank
    payer, payee = bank.new_account(100), bank.new_account(0)
    for step in ("Start", "Debit", "Credit", "Receipt", "Refund"):
        workflows.lose_the_next_claim(step)
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


def test_an_orphan_is_started(worked: Workflows) -> None:
    """A starter that died before its start: a sweep makes up for it."""
    start = worked.start_of("orphan")
    worked.orphaned(start)
    eventually(
        lambda: (worked.invoke("Sweep", {}), worked.books_of(start))[1],
        lambda seen: seen == (70, 30),
        what="the orphan was started, and its money has arrived",
        seconds=PATIENCE_SECONDS,
    )
    event = {"executionArn": worked.workflow.arn_of(start.name), "status": "ABORTED", "input": start.input}
    eventually(
        lambda: worked.invoke("Reconcile", {"detail": event}),
        lambda answer: answer in ("settled", "completed"),
        what="whoever tells of its end again is told that all is settled",
        seconds=PATIENCE_SECONDS,
    )
    assert worked.books_of(start) == (70, 30)


def test_a_record_that_is_gone_is_written_anew_from_its_execution(worked: Workflows) -> None:
    payer, payee = worked.bank.new_account(100), worked.bank.new_account(0)
    transfer = worked.bank.transfer(payer, payee, 30, kind="gone")
    answer = worked.settled(transfer, "gone")
    machines = worked.aws.client("stepfunctions")
    executions = machines.list_executions(stateMachineArn=worked.workflow.state_machine_arn)["executions"]
    (name,) = [
        each["name"]
        for each in executions
        if transfer["transfer_id"] in machines.describe_execution(executionArn=each["executionArn"])["input"]
    ]
    worked.aws.client("dynamodb").delete_item(
        TableName=worked.stack.outputs["WorkflowsTable"], Key={"id": {"S": worked.workflow.id_of(name)}}
    )
    again = worked.caller.post(transfer, "gone")
    assert (again.status, again.body) == (answer.status, answer.body)
    assert (worked.bank.balance(payer), worked.bank.balance(payee)) == (70, 30)


@pytest.fixture(scope="module")
def unwatched(worked: Workflows) -> Workflows:
    """The workflow without the rules that would be faster than a test."""
    for rule in ("MachineDied", "EveryMinute"):
        worked.aws.client("events").disable_rule(Name=worked.stack.resources[rule])
    return worked


DEATHS = pytest.mark.parametrize(
    ("steps", "came_of_it", "books"),
    [((), "returned", (100, 0)), (("Debit",), "returned", (100, 0)), (("Debit", "Credit"), "completed", (70, 30))],
    ids=["before the debit", "after the debit", "after the credit"],
)


@DEATHS
def test_a_dead_machine_is_reconciled(
    unwatched: Workflows, steps: tuple[str, ...], came_of_it: str, books: tuple[int, int]
) -> None:
    """By the event that tells of its end, in which a long input is left out; a second one changes nothing."""
    start = unwatched.start_of("dead")
    event = {"detail": {"executionArn": unwatched.died_after(start, *steps), "status": "ABORTED"}}
    unwatched.lose_the_next_claim("Reconcile")
    assert unwatched.invoke("Reconcile", event) == came_of_it
    assert unwatched.books_of(start) == books
    assert unwatched.invoke("Reconcile", event) == "settled"
    assert unwatched.books_of(start) == books


@DEATHS
def test_a_dead_machine_of_which_nobody_heard_is_swept(
    unwatched: Workflows, steps: tuple[str, ...], came_of_it: str, books: tuple[int, int]
) -> None:
    """By the sweep that finds its lease over."""
    start = unwatched.start_of("unheard")
    unwatched.died_after(start, *steps)
    unwatched.lose_the_next_claim("Sweep")
    assert unwatched.invoke("Sweep", {}).get(came_of_it) == 1
    assert unwatched.books_of(start) == books


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_call_of_every_function_is_allowed(worked: Workflows, name: str) -> None:
    asked = worked.asked(name)
    assert asked, f"{name} was never called: this run proves nothing of it"
    statements = worked.statements(name)
    assert {permission for permission in asked if not allowed(permission, statements)} == set()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_permission_is_used_or_has_its_reason(worked: Workflows, name: str) -> None:
    asked = worked.asked(name)
    unused = {grant for grant in granted(worked.statements(name)) if not any(covers(grant, each) for each in asked)}
    expected = NOT_ASKED_BY_A_FUNCTION | NOT_ASKED_BY.get(name, {})
    assert {(grant.action, worked.resource_at(grant.resource)) for grant in unused} == set(expected)
