"""Lambda takes its time to change an event source mapping, and the operator may stop waiting."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.stub import Stubber

from idempotent_receiver.operations.mappings import DISABLED, ENABLED, POLL_SECONDS, Mapping, switch
from tests.manual_clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator


ID = "5f2c1d64-0001-4000-8000-00000000e5e5"


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("orders", True),
        ("orders:live", True),
        ("arn:aws:lambda:us-east-1:123456789012:function:orders:live", True),
        ("arn:aws:lambda:us-east-1:123456789012:function:orders", True),
        ("orders:next", False),
        ("order", False),
    ],
)
def test_a_function_is_meant_by_its_name_or_its_arn_with_or_without_its_alias(given: str, meant: bool) -> None:
    assert Mapping(ID, "orders:live", ENABLED).invokes(given) is meant


@contextmanager
def lambda_that(*answers: str | None) -> Iterator[Any]:
    """A client whose mapping is updated (no answer: refused, since it is being changed) and looked at, in turns."""
    functions = boto3.client(
        "lambda", region_name="us-east-1", aws_access_key_id="testing", aws_secret_access_key="testing"
    )
    stubber = Stubber(functions)
    for answer in answers:
        operation, _, state = (answer or "").partition(" ")
        if answer is None:
            stubber.add_client_error("update_event_source_mapping", "ResourceInUseException")
        else:
            stubber.add_response(f"{operation}_event_source_mapping", {"UUID": ID, "State": state})
    with stubber:
        yield functions
        stubber.assert_no_pending_responses()


def switched(functions: Any, state: str = ENABLED, *, seconds: float = 60, stopped: bool = False) -> tuple[str, float]:
    """The last state of the mapping once it is asked to be disabled, and how long that took."""
    clock = ManualClock()
    ended = switch(
        functions,
        [Mapping(ID, "orders", state)],
        state=DISABLED,
        seconds=seconds,
        clock=clock,
        stopped=lambda: stopped,
    )
    return ended[ID], clock.seconds


@pytest.mark.parametrize(
    ("answers", "given", "ended"),
    [
        (["update Disabling", "get Disabling", "get Disabled"], {}, (DISABLED, 2 * POLL_SECONDS)),
        # A deployment is changing it: it is switched afterwards.
        ([None, "get Updating", "get Updating", "get Enabled", "update Disabled"], {}, (DISABLED, 3 * POLL_SECONDS)),
        (["get Enabled", "update Disabled"], {"state": "Enabling"}, (DISABLED, POLL_SECONDS)),
        # It waits no longer than it is told; a Ctrl-C ends the waiting, and not the switching.
        (["update Disabling", "get Disabling", "get Disabling"], {"seconds": 2}, ("Disabling", 2.0)),
        (["update Disabling"], {"seconds": 0}, ("Disabling", 0.0)),
        (["update Disabling"], {"stopped": True}, ("Disabling", 0.0)),
    ],
)
def test_it_waits_until_lambda_has_stopped_polling(answers: list[str | None], given: Any, ended: Any) -> None:
    with lambda_that(*answers) as functions:
        assert switched(functions, **given) == ended
