"""Lambda takes its time to change an event source mapping, and the operator may stop waiting."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.stub import Stubber

from idempotent_receiver.operations.mappings import (
    DISABLED,
    ENABLED,
    SWITCH_POLL_SECONDS,
    SWITCHED_SECONDS,
    Backlog,
    Mapping,
    backlog_of,
    mappings_of,
    switch,
)
from tests.manual_clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator


ID = "5f2c1d64-0001-4000-8000-00000000e5e5"
REFUSALS = ("ResourceInUseException", "ResourceConflictException")
QUEUE = "arn:aws:sqs:us-east-1:123456789012:orders"


@pytest.mark.parametrize(
    ("given", "meant", "mapped"),
    [
        ("orders", True, "orders:live"),
        ("orders:live", True, "orders:live"),
        ("arn:aws:lambda:us-east-1:123456789012:function:orders:live", True, "orders:live"),
        ("arn:aws:lambda:us-east-1:123456789012:function:orders", True, "orders:live"),
        ("arn:aws:lambda:us-east-1:123456789012:function:function:live", True, "function:live"),
        ("orders:next", False, "orders:live"),
        ("order", False, "orders:live"),
        ("", False, "orders"),
    ],
)
def test_a_function_is_meant_by_its_name_or_its_arn_with_or_without_its_alias(
    given: str, meant: bool, mapped: str
) -> None:
    assert Mapping(ID, mapped, ENABLED).invokes(given) is meant


def client_of(service: str) -> Any:
    return boto3.client(service, region_name="us-east-1", aws_access_key_id="testing", aws_secret_access_key="testing")


@contextmanager
def lambda_that(*answers: str) -> Iterator[Any]:
    """A client whose mapping is updated (or not, since it is being changed) and looked at, in turns."""
    functions = client_of("lambda")
    stubber = Stubber(functions)
    for answer in answers:
        operation, _, state = answer.partition(" ")
        if answer in REFUSALS:
            stubber.add_client_error("update_event_source_mapping", answer)
        else:
            enabled = {"Enabled": state in ("Enabled", "Enabling")} if operation == "update" else {}
            stubber.add_response(
                f"{operation}_event_source_mapping", {"UUID": ID, "State": state}, {"UUID": ID, **enabled}
            )
    with stubber:
        yield functions
        stubber.assert_no_pending_responses()


def switched(
    functions: Any, state: str = ENABLED, *, wanted: str = DISABLED, seconds: float = 60, stopped: bool = False
) -> tuple[str, float]:
    """The last state of the mapping once it is asked for another, and how long that took."""
    clock = ManualClock()
    ended = switch(
        functions,
        [Mapping(ID, "orders", state)],
        state=wanted,
        seconds=seconds,
        clock=clock,
        stopped=lambda: stopped,
    )
    return ended[ID], clock.seconds


@pytest.mark.parametrize(
    ("answers", "given", "ended"),
    [
        (["update Disabling", "get Disabling", "get Disabled"], {}, (DISABLED, 2 * SWITCH_POLL_SECONDS)),
        (["update Enabling", "get Enabled"], {"state": DISABLED, "wanted": ENABLED}, (ENABLED, SWITCH_POLL_SECONDS)),
        # A deployment is changing it: it is switched afterwards.
        (
            [REFUSALS[0], "get Updating", "get Updating", "get Enabled", "update Disabled"],
            {},
            (DISABLED, 3 * SWITCH_POLL_SECONDS),
        ),
        ([REFUSALS[1], "get Disabled"], {}, (DISABLED, 0.0)),
        (["get Enabled", "update Disabled"], {"state": "Enabling"}, (DISABLED, SWITCH_POLL_SECONDS)),
        # It waits no longer than it is told; a Ctrl-C ends the waiting, and not the switching.
        (["update Disabling", "get Disabling", "get Disabling"], {"seconds": 2}, ("Disabling", 2.0)),
        (["update Disabling"], {"seconds": 0}, ("Disabling", 0.0)),
        (["update Disabling"], {"stopped": True}, ("Disabling", 0.0)),
    ],
)
def test_it_waits_until_lambda_has_stopped_polling(answers: list[str], given: Any, ended: Any) -> None:
    with lambda_that(*answers) as functions:
        assert switched(functions, **given) == ended


def test_by_default_it_outlasts_two_changes_of_two_minutes_each() -> None:
    """A deployment has just begun one: Lambda refuses ours until that is over, and then takes its time for ours."""

    def states(change: str, ended: str) -> list[str]:
        return [f"get {change}"] * round(120 / SWITCH_POLL_SECONDS - 1) + [f"get {ended}"]

    answers = [REFUSALS[0], *states("Updating", "Enabled"), "update Disabling", *states("Disabling", "Disabled")]
    with lambda_that(*answers) as functions:
        assert switched(functions, seconds=SWITCHED_SECONDS)[0] == DISABLED


def test_the_mappings_of_a_queue_are_told_by_their_functions_names() -> None:
    functions, account = client_of("lambda"), "arn:aws:lambda:us-east-1:123456789012:function"
    names = ["orders:live", "audit", "orders:function:1"]
    found = [{"UUID": ID, "FunctionArn": f"{account}:{name}", "State": ENABLED} for name in names]
    with Stubber(functions) as stubber:
        answer = {"EventSourceMappings": found[:1], "NextMarker": "more"}
        stubber.add_response("list_event_source_mappings", answer, {"EventSourceArn": QUEUE})
        answer = {"EventSourceMappings": found[1:]}
        stubber.add_response("list_event_source_mappings", answer, {"EventSourceArn": QUEUE, "Marker": "more"})
        told = mappings_of(functions, QUEUE)
    assert told == [Mapping(ID, name, ENABLED) for name in sorted(names)]


def test_what_is_delayed_waits_too() -> None:
    counts = {"": "3", "Delayed": "4", "NotVisible": "5"}
    attributes = {f"ApproximateNumberOfMessages{name}": count for name, count in counts.items()}
    attributes |= {"VisibilityTimeout": "60", "MessageRetentionPeriod": "7"}
    sqs = client_of("sqs")
    with Stubber(sqs) as stubber:
        asked = {"QueueUrl": "q", "AttributeNames": ["All"]}
        stubber.add_response("get_queue_attributes", {"Attributes": attributes}, asked)
        assert backlog_of(sqs, "q") == Backlog(waiting=7, in_flight=5, visibility_seconds=60, retention_seconds=7)
