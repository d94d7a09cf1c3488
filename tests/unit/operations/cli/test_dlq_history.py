"""`receiver dlq history`: each act in order, and what was never confirmed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver.operations.cli.deployment import Deployment
from idempotent_receiver.operations.cli.dlq_options import epoch_ms
from idempotent_receiver.operations.cli.terminal import Exit, moment
from idempotent_receiver.operations.dead_letters.history import Outcome, Verb
from tests.template import COMPONENT, load, rendering
from tests.unit.operations.cli.history import Kept
from tests.unit.operations.cli.stack import CLOSED, FLAKY
from tests.unit.operations.dead_letters.acts import OPERATOR

if TYPE_CHECKING:
    from tests.unit.operations.cli.stack import Receiver, Stack

ON = ("--stack", "transfers")


def test_history_tells_each_act_in_the_order_in_which_they_were_begun(receiver: Receiver, kept: Kept) -> None:
    kept.done(20, CLOSED, verb=Verb.ARCHIVED, why="account closed", plan="p2")
    first = kept.done(60)
    told = receiver("dlq", "history", *ON, "--json")
    assert told.code == Exit.OK
    assert [(each["key"], each["verb"], each["outcome"]) for each in told.json["acts"]] == [
        (FLAKY, "moved", "done"),
        (CLOSED, "archived", "done"),
    ]
    assert told.json["acts"][0] == {
        "at": moment(first.at_ms),
        "verb": "moved",
        "key": FLAKY,
        "id": FLAKY,
        "message_id": FLAKY,
        "outcome": "done",
        "code": None,
        "ended": moment(first.at_ms),
        "may_have_happened": False,
        "operator": OPERATOR,
        "why": first.why,
        "plan": "p1",
        "queue": first.queue,
        "dead_letter_queue": first.dead_letter_queue,
    }
    shown = receiver("dlq", "history", *ON).out
    assert shown.index(FLAKY) < shown.index(CLOSED)
    assert {OPERATOR, "account closed; plan p2"} <= {line.strip() for line in shown.splitlines()}


def test_an_act_that_was_never_confirmed_is_told_as_such_with_what_to_type(receiver: Receiver, kept: Kept) -> None:
    kept.begin(30)
    kept.done(20, CLOSED)
    told = receiver("dlq", "history", *ON, "--json").json
    assert (told["count"], told["not_confirmed"]) == (2, 1)
    assert [(each["outcome"], each["may_have_happened"]) for each in told["acts"]] == [("begun", True), ("done", False)]
    shown = receiver("dlq", "history", *ON).out
    assert "begun, not confirmed: it may have happened" in shown
    assert "Of 1 act nobody knows" in shown
    assert "receiver trace KEY --stack transfers" in shown
    assert "nobody knows" not in receiver("dlq", "history", *ON, "--key", CLOSED).out


def test_what_aws_refused_or_did_not_answer_has_its_code(receiver: Receiver, kept: Kept) -> None:
    refused, open_ = kept.begin(30), kept.begin(20, CLOSED)
    kept.history.confirm([refused.ended(Outcome.REFUSED, "InvalidMessageContents")])
    kept.history.confirm([open_.ended(Outcome.UNCONFIRMED, "ReadTimeoutError")])
    shown = receiver("dlq", "history", *ON).out
    assert "refused (InvalidMessageContents)" in shown
    assert "begun, not confirmed (ReadTimeoutError): it may have happened" in shown


def test_acts_are_chosen_by_key_time_and_verb(receiver: Receiver, kept: Kept) -> None:
    kept.done(7200, FLAKY, verb=Verb.MOVED)
    kept.done(1800, FLAKY, verb=Verb.DROPPED)
    kept.done(600, CLOSED, verb=Verb.DELETED)

    def verbs(*given: str) -> list[str]:
        told = receiver("dlq", "history", *ON, "--json", *given).json
        assert told["count"] == len(told["acts"])
        return [each["verb"] for each in told["acts"]]

    assert verbs() == ["moved", "dropped", "deleted"]
    assert verbs("--key", FLAKY) == ["moved", "dropped"]
    assert verbs("--since", "1h") == ["dropped", "deleted"]
    assert verbs("--until", "1h") == ["moved"]
    assert verbs("--since", "1h", "--key", FLAKY) == ["dropped"]
    assert verbs("--verb", "moved", "--verb", "deleted") == ["moved", "deleted"]
    assert verbs("--key", "nosuch") == []
    assert receiver("dlq", "history", *ON, "--key", "nosuch").out == "The history has no such act.\n"


def test_only_the_latest_are_shown_and_how_many_there_are_is_said(receiver: Receiver, kept: Kept) -> None:
    for ago in (40, 30, 20):
        kept.done(ago, why=f"{ago} seconds ago")
    ran = receiver("dlq", "history", *ON, "--limit", "2", "--json")
    assert [each["why"] for each in ran.json["acts"]] == ["30 seconds ago", "20 seconds ago"]
    assert ran.json["count"] == 3
    assert "These are the latest 2 of 3 acts: --limit shows more." in ran.err


def test_keys_are_told_without_their_namespace_and_found_with_it(receiver: Receiver, kept: Kept) -> None:
    kept.done(20, "bank#o-1")
    for key in ("o-1", "bank#o-1"):
        (told,) = receiver("dlq", "history", *ON, "--namespace", "bank", "--key", key, "--json").json["acts"]
        assert (told["key"], told["id"]) == ("o-1", "bank#o-1")


def test_a_dead_letter_without_a_key_is_found_by_its_message(receiver: Receiver, kept: Kept) -> None:
    kept.done(20, "message-1", verb=Verb.DELETED)
    told = receiver("dlq", "history", *ON, "--namespace", "bank", "--key", "message-1", "--json").json
    assert [each["verb"] for each in told["acts"]] == ["deleted"]


@pytest.mark.parametrize("given", [("--since", "yesterday"), ("--until", "5"), ("--since", "1h", "--until", "2h")])
def test_times_that_mean_nothing_are_refused(receiver: Receiver, given: tuple[str, ...]) -> None:
    ran = receiver("dlq", "history", *ON, *given)
    assert (ran.code, ran.out) == (Exit.USAGE, "")
    assert given[-2] in ran.err


def test_a_time_without_a_zone_is_utc() -> None:
    at = int(datetime(2026, 11, 22, 2, tzinfo=UTC).timestamp() * 1000)
    assert epoch_ms("--since", "2026-11-22T02:00", 0) == epoch_ms("--since", "2026-11-22T03:00+01:00", 0) == at
    assert epoch_ms("--since", "90s", at) == at - 90_000


def test_a_stack_without_a_history_is_told_what_to_give(receiver: Receiver, stack: Stack) -> None:
    del stack.outputs["HistoryTable"]
    ran = receiver("dlq", "history", *ON)
    assert ran.code == Exit.USAGE
    assert "stack transfers has no output HistoryTable: give --history" in ran.err
    assert receiver("dlq", "history", "--history", "history").code == Exit.OK


@pytest.mark.parametrize(("given", "operation"), [((), "Scan"), (("--key", FLAKY), "Query")])
def test_a_denied_history_says_which_permission_is_missing(
    receiver: Receiver, denied: Any, given: tuple[str, ...], operation: str
) -> None:
    denied(operation)
    ran = receiver("dlq", "history", *ON, *given)
    assert (ran.code, ran.out) == (Exit.AWS, "")
    assert f"table history does not let this role do that: allow dynamodb:{operation} on it" in ran.err


@pytest.mark.parametrize(
    "given", [("trace", FLAKY), ("dlq", "history"), ("dlq", "history", "--key", FLAKY)], ids=" ".join
)
def test_the_operators_policy_is_enough(
    receiver: Receiver, kept: Kept, monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...]
) -> None:
    kept.done(20)
    tables = {"records": ["Records", "Arn"], "history": ["History", "Arn"]}
    asked: set[tuple[str, Any]] = set()

    def note(model: Any, params: dict[str, Any], **_: object) -> None:
        action = f"{model.service_model.endpoint_prefix}:{model.name.removesuffix('Batch')}"
        body = str(params["body"])
        asked.update((action, tuple(arn)) for name, arn in tables.items() if f'"{name}"' in body)
        if action.startswith("sqs"):
            asked.add((action, None))

    found = Deployment.client

    def client_of(self: Deployment, service: str) -> Any:
        made = found(self, service)
        if service != "cloudformation":
            made.meta.events.register("before-call", note, unique_id="note")
        return made

    monkeypatch.setattr(Deployment, "client", client_of)
    assert receiver(*given, *ON).code == Exit.OK
    policy = rendering(
        load(COMPONENT),
        StackId="arn:aws:cloudformation:us-east-1:123456789012:stack/transfers/1",
        FunctionName="transfers",
    ).rendered()["Resources"]
    statements = policy["OperatorPolicy"]["Properties"]["PolicyDocument"]["Statement"]
    allowed = {
        (action, tuple(arn) if arn in tables.values() else None)
        for each in statements
        for action in (each["Action"] if isinstance(each["Action"], list) else [each["Action"]])
        for arn in [each["Resource"].get("Fn::GetAtt") if isinstance(each["Resource"], dict) else None]
    }
    assert asked
    assert asked <= allowed
