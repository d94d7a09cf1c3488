"""`receiver dlq history`: each act in order, and what was never confirmed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from botocore.client import BaseClient

from idempotent_receiver.operations.cli.dlq_options import epoch_ms
from idempotent_receiver.operations.cli.history import AGAIN
from idempotent_receiver.operations.cli.terminal import Exit, moment
from idempotent_receiver.operations.dead_letters.history import ActOutcome, Verb
from tests.manual_clock import START_MS
from tests.template import text_of
from tests.unit.operations.cli.stack import CLOSED, FLAKY, Receiver, Stack
from tests.unit.operations.dead_letters.acts import act
from tests.unit.templates.variants import listed, operators

if TYPE_CHECKING:
    from tests.unit.operations.cli.history import Kept


@pytest.mark.parametrize("verb", Verb)
def test_what_is_safe_is_advised_by_what_was_begun_and_nothing_once_it_was_done(
    receiver: Receiver, kept: Kept, verb: Verb
) -> None:
    kept.begin(30, verb=verb)
    shown = receiver.on("dlq history").out
    assert f"{verb}: {AGAIN[verb]}" in shown
    assert sum(advice in shown for advice in set(AGAIN.values())) == 1
    kept.done(20, verb=verb)
    ran = receiver.on("dlq history --until 25s")
    settled = "repeated later"
    assert ("is unknown" in ran.out, settled in ran.out) == (False, True)
    told = receiver.on("dlq history --json").json
    assert (told["not_confirmed"], [each["may_have_happened"] for each in told["acts"]]) == (0, [False, False])


def test_what_another_letter_with_its_key_went_through_is_no_repetition(receiver: Receiver, kept: Kept) -> None:
    """The first one may still be there."""
    one, other = ({"message_id": name, "verb": Verb.DELETED} for name in ("m-1", "m-2"))
    kept.begin(30, **one)
    kept.done(20, **other)
    ran = receiver.on("dlq history")
    assert ("repeated later" in ran.out, "The result of 1 action is unknown" in ran.out) == (False, True)
    assert "repeated later" not in receiver.on(f"trace {FLAKY}").said


def test_a_resend_is_found_by_either_key_with_the_other_one(receiver: Receiver, stack: Stack, kept: Kept) -> None:
    del stack.outputs["ConsumerDescription"]
    kept.done(20, "bank#old", verb=Verb.RESENT, other="bank#new")
    for given, links in (("--key old", (None, "new")), ("--key new", ("old", None)), ("", (None, "new"))):
        told = receiver.on(f"dlq history --consumer bank.json --json {given}").json
        assert [(each["resent_from"], each["resent_as"]) for each in told["acts"]] == [links]


def test_foreign_items_are_left_out_and_counted(receiver: Receiver, stack: Stack, kept: Kept) -> None:
    kept.done(20)
    stack.dynamodb.put_item(TableName="history", Item={"key": {"S": FLAKY}, "act": {"S": "session-1"}})
    for given in ("", f"--key {FLAKY}"):
        ran = receiver.on(f"dlq history --json {given}")
        assert (ran.json["count"], ran.json["foreign"]) == (1, 1)
        assert "Left out: 1 item of history" in ran.err
    assert "Left out: 1 item of history" in receiver.on(f"trace {FLAKY}").err
    assert "Left out: 1 item of history" in receiver.on("dlq list --out page.html").err


def test_what_aws_refused_or_did_not_answer_has_its_code(receiver: Receiver, kept: Kept) -> None:
    refused, open_ = kept.begin(30), kept.begin(20, CLOSED)
    kept.history.confirm([refused.ended(ActOutcome.REFUSED, "InvalidMessageContents")])
    kept.history.confirm([open_.ended(ActOutcome.UNCONFIRMED, "ReadTimeoutError")])
    shown = receiver.on("dlq history").out
    assert "refused (InvalidMessageContents)" in shown
    assert "begun, not confirmed (ReadTimeoutError): it may have happened" in shown


@pytest.mark.parametrize(
    ("given", "verbs"),
    [
        ("", ["moved", "dropped", "deleted"]),
        (f"--key {FLAKY}", ["moved", "dropped"]),
        ("--since 1h", ["dropped", "deleted"]),
        ("--until 1h", ["moved"]),
        (f"--since 1h --key {FLAKY}", ["dropped"]),
        ("--verb moved --verb deleted", ["moved", "deleted"]),
        ("--key nosuch", []),
    ],
)
def test_acts_are_chosen_by_key_time_and_verb(receiver: Receiver, kept: Kept, given: str, verbs: list[str]) -> None:
    kept.done(7200, FLAKY, verb=Verb.MOVED)
    kept.done(1800, FLAKY, verb=Verb.DROPPED)
    kept.done(600, CLOSED, verb=Verb.DELETED)
    told = receiver.on(f"dlq history --json {given}").json
    assert ([each["verb"] for each in told["acts"]], told["count"]) == (verbs, len(verbs))


def test_an_act_at_the_bounds_is_between_them(receiver: Receiver, kept: Kept) -> None:
    kept.history.begin([act(FLAKY)])
    at = moment(START_MS)
    for given in ("", f"--key {FLAKY}"):
        assert receiver.on(f"dlq history --since {at} --until {at} --json {given}").json["count"] == 1


def test_only_the_latest_are_shown_and_how_many_there_are_is_said(receiver: Receiver, kept: Kept) -> None:
    for ago in (40, 30, 20):
        kept.done(ago, why=f"{ago} seconds ago")
    told = receiver.on("dlq history --limit 2 --json").json
    assert ([each["why"] for each in told["acts"]], told["count"]) == (["30 seconds ago", "20 seconds ago"], 3)


def test_keys_are_told_without_their_namespace_and_found_with_it_or_by_their_message(
    receiver: Receiver, stack: Stack, kept: Kept
) -> None:
    del stack.outputs["ConsumerDescription"]
    kept.done(20, "bank#o-1")
    kept.done(20, "message-1", verb=Verb.DELETED)
    for key, verb, told_as in (("o-1", "moved", "o-1"), ("bank#o-1", "moved", "o-1"), ("message-1", "deleted", None)):
        (told,) = receiver.on(f"dlq history --consumer bank.json --key {key} --json").json["acts"]
        assert told["verb"] == verb
        assert told_as is None or (told["key"], told["id"]) == ("o-1", "bank#o-1")


def test_a_time_without_a_zone_is_utc() -> None:
    at = int(datetime(2026, 11, 22, 2, tzinfo=UTC).timestamp() * 1000)
    assert epoch_ms("--since", "2026-11-22T02:00", 0) == epoch_ms("--since", "2026-11-22T03:00+01:00", 0) == at
    assert epoch_ms("--since", "90s", at) == at - 90_000


@pytest.mark.parametrize("line", [f"trace {FLAKY}", "dlq history", f"dlq history --key {FLAKY}"])
def test_the_operators_policy_is_enough(
    receiver: Receiver, kept: Kept, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    kept.done(20)
    tables = {"records": "table/Records", "history": "History.Arn"}
    asked: set[tuple[str, str | None]] = set()
    call = BaseClient._make_api_call

    def note(self: Any, operation: str, arguments: dict[str, Any]) -> Any:
        service = self.meta.service_model.service_name
        action = f"{service}:{operation.removesuffix('Batch')}"
        names = {arguments.get("TableName"), *arguments.get("RequestItems", {})} & tables.keys()
        asked.update((action, tables[name]) for name in names)
        if service == "sqs":
            asked.add((action, None))
        return call(self, operation, arguments)

    monkeypatch.setattr(BaseClient, "_make_api_call", note)
    assert receiver.on(line).code == Exit.OK
    allowed = {
        (action, next((table for table in tables.values() if text_of(each["Resource"]).endswith(table)), None))
        for each in operators("standard").values()
        for action in listed(each["Action"])
    }
    assert asked
    assert asked <= allowed
