"""Which alarm fires, and when, for each thing that breaks: on the local cloud, by a model of CloudWatch.

The alarms are the deployed templates' own. One is not deployed: the local cloud refuses metric math, so the alarm on
arrivals is taken from the template.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from harness.beside import deploy_beside
from harness.caller import Caller, api_url
from harness.cloud import REGION, ROOT
from idempotent_receiver.dynamodb.statements import attribute_values
from idempotent_receiver.local.deployment import describe_function
from tests.cloudwatch import BEYOND
from tests.e2e.deployed import at, eventually
from tests.e2e.observed import NAMESPACE, Observed
from tests.e2e.test_moved_by_sqs import RECEIVES
from tests.template import load, rendering

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from idempotent_receiver.local.deployment import Stack
    from tests.e2e.conftest import Deploy
    from tests.e2e.deployed import Aws, Deployed

ARRIVALS = "DeadLetterArrivalAlarm"
LATER = 15 + BEYOND
"""Minutes until everything that is fixed is green again, even without a message: three periods of five, or fifteen."""


@pytest.fixture(scope="module")
def bank(deployed: Deploy, aws: Aws) -> Deployed:
    """A stack of its own, so that no other test's messages trigger an alarm."""
    if not aws.functions_are_processes:
        pytest.skip("LocalStack knows metrics and alarms of its own")
    return deployed("alarms")


@pytest.fixture
def observed(aws: Aws, bank: Deployed) -> Observed:
    return observe(aws, bank)


def observe(aws: Aws, bank: Deployed) -> Observed:
    """Watch the stack, once it is at rest and its dead letters are gone."""
    bank.drained(seconds=60)
    aws.client("sqs").purge_queue(QueueUrl=bank.stack.outputs["DeadLetterQueueUrl"])
    logs = [bank.stack.outputs[name] for name in ("ConsumerLogGroup", "ApiLogGroup")]
    return Observed(aws, bank.stack, logs, {ARRIVALS: arrival_alarm(bank)})


def arrival_alarm(bank: Deployed) -> Any:
    """The template's own, with what the deployed nested stack was given."""
    given = dict(describe_function(bank.aws, bank.stack.resources["Watch"]).parameters)
    watch = rendering(load(ROOT / "watch.yaml"), **given | {"DeadLetterArrivals": "true"})
    return watch.rendered()["Resources"][ARRIVALS]["Properties"]


@contextmanager
def gone(aws: Aws, table: str) -> Iterator[None]:
    """Without this table, which comes back empty."""
    dynamodb = aws.client("dynamodb")
    was = dynamodb.describe_table(TableName=table)["Table"]
    dynamodb.delete_table(TableName=table)
    yield
    same = {name: was[name] for name in ("AttributeDefinitions", "KeySchema", "TableName")}
    dynamodb.create_table(**same, BillingMode="PAY_PER_REQUEST")


def transfer(bank: Deployed) -> dict[str, Any]:
    return bank.transfer(bank.new_account(10), bank.new_account(0), 1)


def let_one_die(bank: Deployed, observed: Observed, letters: int) -> None:
    """A message that no retry can help, until there are so many dead letters, and the last failure has been printed."""
    failed = failures(bank)
    bank.send(bank.transfer(bank.new_account(1), "nobody", 1))
    name = bank.stack.outputs["DeadLetterQueueUrl"]
    eventually(
        lambda: bank.aws.client("sqs").get_queue_attributes(QueueUrl=name, AttributeNames=["All"])["Attributes"],
        lambda seen: int(seen["ApproximateNumberOfMessages"]) == letters,
        what=f"there are {letters} dead letters",
        seconds=50,
    )
    eventually(lambda: failures(bank), lambda seen: seen == failed + RECEIVES, what="each receive has failed")
    observed.pass_minutes()


def failures(bank: Deployed) -> float:
    """How many failures the consumer has printed."""
    return sum(sum(line["Failed"]) for line in bank.log_lines() if "_aws" in line)


def test_a_sound_consumer_rings_nothing(bank: Deployed, observed: Observed) -> None:
    caller = at(bank)
    for minute in range(3):
        message, request = transfer(bank), {**transfer(bank), "transfer_id": None}
        del request["transfer_id"]
        bank.settled(*bank.send(message))
        keys = [f"sound-{minute}"] * 2
        assert [observed.request(caller.post(request, key)).status for key in keys] == [202, 202]
        assert observed.request(caller.post({**request, "amount": 2}, keys[0])).status == 422
        bank.drained()
        observed.pass_minutes()

    assert observed.rung == {}


def test_a_table_that_is_gone_rings_at_once_for_the_consumer_and_at_the_second_minute_for_the_api(
    aws: Aws, bank: Deployed, observed: Observed
) -> None:
    """The client's retry fixes a single 5XX."""
    caller, request = at(bank), transfer(bank)
    del request["transfer_id"]
    bank.pause()
    sent = bank.send(transfer(bank))
    with gone(aws, bank.stack.resources["Records"]):
        bank.resume()
        for minute in (1, 2):
            assert observed.request(caller.post(request, f"away-{minute}")).status == 503
            if minute == 1:
                observed.wait_for((NAMESPACE, "ClaimFailures", "service", bank.stack.name))
            observed.pass_minutes()
    bank.settled(*sent, seconds=50)

    assert observed.rung == {"ClaimFailuresAlarm": [1], "ApiServerErrorsAlarm": [2]}
    observed.pass_minutes(LATER)
    assert observed.red == set()


def test_a_dead_letter_rings_while_others_lie_there(bank: Deployed, observed: Observed) -> None:
    let_one_die(bank, observed, 1)
    observed.pass_minutes(3)
    let_one_die(bank, observed, 2)
    observed.pass_minutes(2)

    assert observed.rung == {"DeadLetterAlarm": [1], ARRIVALS: [5]}
    assert observed.red == {"DeadLetterAlarm"}, "ready for the next"


def test_reading_dead_letters_rings_nothing(aws: Aws, bank: Deployed, observed: Observed) -> None:
    """They are not visible for a while, and then come back."""
    let_one_die(bank, observed, 1)
    url = bank.stack.outputs["DeadLetterQueueUrl"]
    (read,) = aws.client("sqs").receive_message(QueueUrl=url, VisibilityTimeout=600)["Messages"]
    observed.pass_minutes(3)
    aws.client("sqs").change_message_visibility(QueueUrl=url, ReceiptHandle=read["ReceiptHandle"], VisibilityTimeout=0)
    observed.pass_minutes()

    assert observed.rung == {"DeadLetterAlarm": [1]}


def test_dead_letters_ring_before_sqs_deletes_them(bank: Deployed, observed: Observed) -> None:
    """The queue keeps a message for 4 days and the dead-letter queue for 14, of which it may have spent those."""
    let_one_die(bank, observed, 1)
    days = 24 * 60
    observed.pass_minutes(7 * days + 2)

    (rung,) = observed.rung["DeadLetterAgeAlarm"]
    assert rung < (14 - 4) * days, "in time"
    assert rung == 7 * days + 1


def test_a_worker_that_stands_still_rings_two_minutes_after_the_age_that_is_too_old(
    bank: Deployed, observed: Observed
) -> None:
    bank.pause()
    bank.send(transfer(bank))
    observed.pass_minutes(20)
    bank.resume()
    bank.drained()

    too_old = 900 // 60 + 1
    assert observed.rung == {"OldestMessageAlarm": [too_old + 1]}
    observed.pass_minutes(LATER)
    assert observed.red == set()


def test_messages_that_keep_failing_ring_in_their_third_minute_and_their_age_does_not(
    aws: Aws, bank: Deployed, observed: Observed
) -> None:
    """SQS leaves out what it has delivered three times."""
    bank.pause()
    hopeless = bank.transfer(bank.new_account(1), "nobody", 1)
    bank.send(hopeless)
    for receives in range(1, 5):
        assert observed.invoke("Consumer", {"Records": [bank.delivered(hopeless, receives)]})["batchItemFailures"]
        observed.wait_for((NAMESPACE, "Failed", "service", bank.stack.name))
        observed.pass_minutes()
    observed.pass_minutes(20)
    aws.client("sqs").purge_queue(QueueUrl=bank.stack.outputs["QueueUrl"])
    bank.resume()

    assert observed.rung == {"FailuresAlarm": [3]}
    observed.pass_minutes(LATER)
    assert observed.red == set()


def test_throttles_ring_in_their_second_minute_and_a_single_one_does_not(
    aws: Aws, bank: Deployed, observed: Observed
) -> None:
    functions, name = aws.client("lambda"), bank.stack.resources["Consumer"]
    functions.put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=0)
    for _ in range(2):
        assert observed.invoke("Consumer", bank.recorded("fresh")) is None
        observed.pass_minutes()
    functions.delete_function_concurrency(FunctionName=name)

    assert observed.rung == {"ThrottlesAlarm": [2]}


@pytest.mark.parametrize(("function", "alarm"), [("Consumer", "ErrorsAlarm"), ("Api", "ApiErrorsAlarm")])
def test_an_invocation_that_fails_as_a_whole_rings_at_once(observed: Observed, function: str, alarm: str) -> None:
    assert "errorType" in observed.invoke(function, {"neither": "a batch nor a request"})
    observed.pass_minutes()

    assert observed.rung == {alarm: [1]}


# The workflow.


@pytest.fixture(scope="module")
def workflow(aws: Aws, bank: Deployed, build: Path) -> Iterator[Stack]:
    """The workflow beside the bank, swept by the tests alone."""
    stack = deploy_beside(aws, bank.stack, "workflow", name=f"alarmed-{uuid4().hex[:8]}", code=build)  # type: ignore[arg-type]  # it has the clients
    aws.client("events").disable_rule(Name=stack.resources["EveryMinute"])
    yield stack
    aws.client("cloudformation").delete_stack(StackName=stack.name)


@pytest.fixture
def swept(aws: Aws, workflow: Stack) -> Observed:
    return Observed(aws, workflow, [workflow.outputs["LogGroup"]])


def sweep(swept: Observed, minutes: int = 1) -> None:
    """Let minutes pass, each with its sweep."""
    for _ in range(minutes):
        swept.invoke("Sweep", {})
        swept.pass_minutes()


def orphan(aws: Aws, bank: Deployed, workflow: Stack) -> None:
    """The record of a start whose starter has died."""
    item = {
        "id": f"transfers#{uuid4().hex}",
        "status": "INPROGRESS",
        "version": "v1",
        "validation": "f" * 64,
        "in_progress_expiration": 1000,
        "expiration": 4_000_000_000,
        "attempts": 1,
        "input": json.dumps({"payload": transfer(bank)}),
    }
    aws.client("dynamodb").put_item(
        TableName=workflow.resources["Workflows"], Item=dict(zip(item, attribute_values(item.values()), strict=True))
    )


def test_a_workflow_at_rest_rings_nothing(swept: Observed) -> None:
    sweep(swept, 5)
    assert swept.rung == {}


def test_sweeps_that_stop_ring(swept: Observed) -> None:
    """Missing data is filled in as late as possible, so this takes two minutes more than three."""
    sweep(swept, 2)
    swept.pass_minutes(6)
    assert swept.rung == {"SweepSilentAlarm": [7]}


def test_starts_that_are_refused_ring_by_their_orphan_and_their_clients(
    aws: Aws, bank: Deployed, workflow: Stack, swept: Observed
) -> None:
    """The machine is gone: nothing can be started, by a request or by a sweep."""
    url = api_url(workflow, aws.endpoint_url)
    assert url is not None
    caller = Caller(url=f"{url}/workflows", credentials=at(bank).credentials, region=REGION)
    aws.client("stepfunctions").delete_state_machine(stateMachineArn=workflow.resources["Machine"])
    for minute in (1, 2):
        orphan(aws, bank, workflow)  # a sweep holds each for longer than a minute
        assert swept.request(caller.post(transfer(bank), f"refused-{minute}")).status == 503
        sweep(swept)

    assert swept.rung == {"ServerErrorsAlarm": [2], "SweepFailuresAlarm": [2]}
