"""The history: an act is kept before it is done, and what became of it after."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.exceptions import ClientError, ReadTimeoutError
from moto import mock_aws

from idempotent_receiver import message_attribute, message_id
from idempotent_receiver.operations.dead_letters.history import (
    A_REQUEST,
    MAX_WRITE_TRIES,
    MOST_WHY,
    Act,
    ActOutcome,
    History,
    NotKept,
    Verb,
    in_doubt,
)
from idempotent_receiver.operations.dead_letters.journal import Journal, key_of
from idempotent_receiver.operations.dead_letters.steps import ActFailure
from idempotent_receiver.operations.dead_letters.triage import Verdict, triage
from idempotent_receiver.operations.dead_letters.verbs import delete_dispositions
from tests.manual_clock import START_MS, ManualClock
from tests.unit.operations.dead_letters.acts import act, create
from tests.unit.operations.dead_letters.test_triage import NOW_MS, RULES, dead_letter

if TYPE_CHECKING:
    from collections.abc import Iterator


class Counting:
    """DynamoDB, and how many acts each BatchWriteItem held. It leaves `unprocessed` puts undone, again and again."""

    def __init__(self, dynamodb: Any) -> None:
        self._dynamodb = dynamodb
        self.sizes: list[int] = []
        self.unprocessed = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dynamodb, name)

    def batch_write_item(self, *, RequestItems: dict[str, list[Any]]) -> Any:  # noqa: N803  # boto3's name
        ((table, puts),) = RequestItems.items()
        self.sizes.append(len(puts))
        later = puts[len(puts) - self.unprocessed :] if self.unprocessed else []
        now = puts[: len(puts) - len(later)]
        if now:
            self._dynamodb.batch_write_item(RequestItems={table: now})
        return {"UnprocessedItems": {table: later} if later else {}}


@pytest.fixture
def dynamodb() -> Iterator[Counting]:
    with mock_aws():
        client = boto3.client("dynamodb", "us-east-1", aws_access_key_id="testing", aws_secret_access_key="testing")
        create(client)
        yield Counting(client)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def history(dynamodb: Counting, clock: ManualClock) -> History:
    return History(dynamodb, "history", clock)  # type: ignore[arg-type]  # a client around a client


@pytest.mark.usefixtures("elsewhere")
def test_an_act_is_in_the_table_before_it_is_done_and_has_no_outcome_yet(history: History) -> None:
    (begun,) = history.begin([act()])
    (kept,) = history.of_key("bank#k1")
    assert kept == begun == act(id=begun.id)
    assert (kept.at_ms, kept.outcome, kept.ended_ms) == (START_MS, None, None)


@pytest.mark.parametrize("outcome", ActOutcome)
def test_a_confirmed_act_says_what_became_of_it_when_and_all_that_it_said_before(
    history: History, clock: ManualClock, outcome: ActOutcome
) -> None:
    (begun,) = history.begin([act()])
    clock.sleep(1.25)
    history.confirm([begun.ended(outcome, "InternalError")])
    assert history.of_key("bank#k1") == [
        replace(begun, outcome=outcome, code="InternalError", ended_ms=START_MS + 1250)
    ]


def test_acts_on_one_key_are_told_in_the_order_in_which_they_began(
    history: History, dynamodb: Counting, clock: ManualClock
) -> None:
    asked: list[Any] = []
    dynamodb.meta.events.register("provide-client-params.dynamodb.Query", lambda params, **_: asked.append(params))
    for verb in (Verb.MOVED, Verb.RESENT, Verb.ARCHIVED):
        history.begin([act(verb=verb), act("bank#other", verb=verb)])
        clock.sleep(0.001)
    assert [each.verb for each in history.of_key("bank#k1")] == [Verb.MOVED, Verb.RESENT, Verb.ARCHIVED]
    assert [each["ConsistentRead"] for each in asked] == [True]


def test_two_acts_on_one_key_in_the_same_millisecond_are_both_kept(history: History) -> None:
    history.begin([act()])
    history.begin([act()])
    assert len(history.of_key("bank#k1")) == 2


def test_acts_are_found_by_time_and_the_end_is_excluded(history: History, clock: ManualClock) -> None:
    for key in ("a", "b", "c"):
        history.begin([act(key)])
        clock.sleep(1)
    found = {each.key for each in history.between(START_MS + 1000, START_MS + 2000)}
    assert found == {"b"}


def test_many_acts_go_by_25_and_come_back_in_their_order(history: History, dynamodb: Counting) -> None:
    begun = history.begin([act(f"k{number}") for number in range(60)])
    assert sorted(dynamodb.sizes) == [10, A_REQUEST, A_REQUEST]
    assert [each.key for each in begun] == [f"k{number}" for number in range(60)]
    assert {each.key for each in history.between(0, START_MS + 1)} == {each.key for each in begun}


def test_what_dynamodb_left_is_sent_again_and_nothing_else(
    history: History, dynamodb: Counting, clock: ManualClock
) -> None:
    dynamodb.unprocessed = 3
    with pytest.raises(NotKept, match="table history is being throttled: try again later"):
        history.begin([act(f"k{number}") for number in range(5)])
    assert dynamodb.sizes == [5] + [3] * (MAX_WRITE_TRIES - 1)
    assert clock.sleeps == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 2.5, 2.5, 2.5, 2.5])


def test_a_throttled_table_that_recovers_keeps_all(history: History, dynamodb: Counting, clock: ManualClock) -> None:
    dynamodb.unprocessed = 3
    clock.sleep = lambda seconds: setattr(dynamodb, "unprocessed", 0)  # type: ignore[method-assign]
    history.begin([act(f"k{number}") for number in range(5)])
    assert dynamodb.sizes == [5, 3]
    assert len(list(history.between(0, START_MS + 1))) == 5


def test_a_refusal_names_the_table_and_the_permission(history: History, dynamodb: Counting) -> None:
    def denied(**_: object) -> None:
        error = {"Code": "AccessDeniedException", "Message": "User: x is not authorized to perform"}
        raise ClientError({"Error": error}, "BatchWriteItem")

    dynamodb.batch_write_item = denied  # type: ignore[method-assign, assignment]
    with pytest.raises(NotKept, match=r"table history .*allow dynamodb:BatchWriteItem on it"):
        history.begin([act()])


def test_a_refused_part_of_many_fails_the_whole(history: History, dynamodb: Counting) -> None:
    """What was begun with it must not be done either."""
    put = dynamodb.batch_write_item

    def second_denied(**asked: Any) -> Any:
        if len(dynamodb.sizes) == 1:
            dynamodb.sizes.append(0)
            raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": ""}}, "BatchWriteItem")
        return put(**asked)

    dynamodb.batch_write_item = second_denied  # type: ignore[method-assign]
    with pytest.raises(NotKept):
        history.begin([act(f"k{number}") for number in range(60)])


def test_a_table_that_is_no_history_is_named(dynamodb: Counting, clock: ManualClock) -> None:
    create(dynamodb, "records", "id", "version")
    history = History(dynamodb, "records", clock)  # type: ignore[arg-type]
    with pytest.raises(
        NotKept, match="table records is not a history table, which has the string keys `key` and `act`"
    ):
        history.begin([act()])
    with pytest.raises(NotKept, match="table records is not a history"):
        history.of_key("k")


def test_a_missing_table_is_named(dynamodb: Counting, clock: ManualClock) -> None:
    history = History(dynamodb, "none", clock)  # type: ignore[arg-type]
    asked = {
        "BatchWriteItem": lambda: history.begin([act()]),
        "Query": lambda: history.of_key("k"),
        "Scan": lambda: list(history.between(0, 1)),
    }
    for operation, ask in asked.items():
        with pytest.raises(NotKept, match=f"from {operation}: table none does not exist in this account and region"):
            ask()


def test_without_a_table_nothing_is_kept_and_nothing_fails(clock: ManualClock) -> None:
    history = History(None, None, clock)  # type: ignore[arg-type]  # nothing is asked of it
    begun = history.begin([act()])
    history.confirm([begun[0].ended(ActOutcome.DONE)])
    assert [each.key for each in begun] == ["bank#k1"]
    assert (history.of_key("bank#k1"), list(history.between(0, START_MS))) == ([], [])


@pytest.mark.parametrize("unfit", [act(id="begun"), act(outcome=ActOutcome.DONE)])
def test_what_was_not_begun_or_has_not_ended_cannot_be_confirmed(history: History, unfit: Act) -> None:
    with pytest.raises(AssertionError):
        history.confirm([unfit])


@pytest.mark.parametrize("why", ["given", None])
def test_a_run_tells_the_history_of_each_act_and_of_its_end(why: str | None) -> None:
    kept: list[list[Act]] = []
    history: Any = SimpleNamespace(begin=lambda acts: acts, confirm=kept.append)
    to = {"queue": "q", "dead_letter_queue": "d", "operator": "o", "plan": "p", "why": why}
    journal = Journal(history=history, **to)  # type: ignore[arg-type]
    decisions = [triage(dead_letter(key=key), None, NOW_MS, RULES) for key in (message_id, message_attribute("none"))]

    resent: Any = SimpleNamespace(verb=Verb.RESENT, resend=SimpleNamespace(other_id=lambda each: f"new-{each.verdict}"))
    begun = journal.begin(resent, decisions)
    again = [replace(begun[0], message_id=id) for id in ("refused", "lost", "done")]
    timed_out = ActFailure.of(ReadTimeoutError(endpoint_url="x"))
    journal.confirm(again, {"refused": (ActOutcome.REFUSED, "Busy"), "lost": (timed_out.outcome, timed_out.code)})

    whys = [why or each.why for each in decisions]
    told = {**to, "verb": Verb.RESENT, "message_id": "m-1", "key": "m-1"}
    assert begun == [
        Act(**{**told, "why": of, "other": other})  # type: ignore[arg-type]
        for other, of in zip(("new-MOVE", "new-UNKEYED"), whys, strict=True)
    ]
    deleted = delete_dispositions()[Verdict.MOVE]
    assert [act.why for act in journal.begin(deleted, decisions)] == whys
    assert [(act.outcome, act.code) for act in kept[0]] == [
        (ActOutcome.REFUSED, "Busy"),
        (ActOutcome.UNCONFIRMED, "ReadTimeoutError"),
        (ActOutcome.DONE, None),
    ]


def test_a_long_reason_is_cut(history: History) -> None:
    history.begin([act(why="x" * (MOST_WHY + 1))])
    assert [len(each.why) for each in history.of_key("bank#k1")] == [MOST_WHY]


def test_a_resent_letters_act_is_under_both_of_its_keys_and_counts_once(history: History) -> None:
    (begun,) = history.begin([act("old", verb=Verb.RESENT, other="new")])
    history.confirm([begun.ended(ActOutcome.DONE)])
    (old,), (new,) = history.of_key("old"), history.of_key("new")
    assert (old.other, old.mirror, old.outcome) == ("new", False, ActOutcome.DONE)
    assert new == replace(old, key="new", other="old", mirror=True)
    assert list(history.between(0, START_MS + 1)) == [old]


FOREIGN: dict[str, dict[str, Any]] = {
    "of another application": {"act": {"S": "session-1"}, "verb": {"S": "moved"}},
    "without a verb": {"act": {"S": "2027-01-15T08:00:00.000Z-1"}},
    "without a time": {"act": {"S": "2027"}, "verb": {"S": "moved"}},
    "with an absurd time": {"act": {"S": "99999-01-15T08:00:00.000Z-1"}, "verb": {"S": "moved"}},
    "with an absurd end": {"ended": {"N": "9" * 30}},
    "with an end in the year 10,000": {"ended": {"N": "253402300800000"}},
    "with an end that is no number": {"ended": {"S": "soon"}},
    "with a number for a text": {"why": {"N": "1"}},
    "with a lone surrogate": {"operator": {"S": "\ud800"}},
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_foreign_item_stops_nothing_and_is_counted(history: History, dynamodb: Counting, kind: str) -> None:
    (begun,) = history.begin([act("k")])
    item = {"key": {"S": "k"}, "act": {"S": f"{begun.id}-2"}, "verb": {"S": "moved"}, **FOREIGN[kind]}
    if kind == "without a verb":
        del item["verb"]
    pages = [{"Items": [item, _kept(dynamodb)]}]
    dynamodb.get_paginator = lambda method: SimpleNamespace(paginate=lambda **asked: pages)  # type: ignore[attr-defined]
    assert (history.of_key("k"), history.foreign) == ([begun], 1)
    assert (list(history.between(0, START_MS + 1)), history.foreign) == ([begun], 2)


def _kept(dynamodb: Counting) -> Any:
    (item,) = dynamodb.scan(TableName="history")["Items"]
    return item


def test_a_scan_by_time_gives_out_foreign_items_of_any_time_too(history: History, dynamodb: Counting) -> None:
    """They are read and paid for; that they are there has to be said."""
    for number, sort in enumerate(("session-1", "#1", "2030-01-01T00:00:00.000Z-1")):
        dynamodb.put_item(TableName="history", Item={"key": {"S": f"k{number}"}, "act": {"S": sort}})
    assert (list(history.between(START_MS, START_MS + 1)), history.foreign) == ([], 3)


DOUBT = act("k", id="2027-01-15T08:00:01.000Z-1", message_id="m", verb=Verb.DELETED)
DONE = replace(DOUBT, id="2027-01-15T08:00:02.000Z-1", outcome=ActOutcome.DONE)


@pytest.mark.parametrize(
    ("later", "open_"),
    [
        (DONE, False),
        (replace(DONE, key="k-2"), False),
        (replace(DONE, message_id="m-2"), True),
        (replace(DONE, verb=Verb.MOVED), True),
        (replace(DONE, outcome=ActOutcome.REFUSED), True),
        (replace(DONE, id="2027-01-15T08:00:00.000Z-1"), True),
    ],
)
def test_a_later_success_with_the_same_letter_leaves_no_doubt(later: Act, open_: bool) -> None:
    """Another letter with its key is another letter."""
    for doubt in (DOUBT, replace(DOUBT, outcome=ActOutcome.UNCONFIRMED)):
        assert in_doubt([doubt, later]) == in_doubt([later, doubt]) == ({doubt} if open_ else set())
    pauses = [replace(each, message_id="", key=each.id) for each in (DOUBT, DONE)]
    assert in_doubt(pauses) == {pauses[0]}, "no messageId is no letter"


@pytest.mark.parametrize(
    ("changed", "open_"),
    [
        ({}, False),
        ({"message_id": "m-2"}, False),
        ({"other": "new-2"}, True),
        ({"key": "k-2"}, True),
        ({"verb": Verb.MOVED}, True),
    ],
)
def test_a_resend_is_repeated_by_the_same_body_alone(changed: dict[str, Any], open_: bool) -> None:
    """Under either of its keys. It has the same two, whatever the messageId is by then."""
    doubt, done = (replace(each, verb=Verb.RESENT, other="new") for each in (DOUBT, DONE))
    later = replace(done, **changed)
    assert in_doubt([doubt, later]) == ({doubt} if open_ else set())
    doubt, later = (replace(each, key=each.other, other=each.key, mirror=True) for each in (doubt, later))
    assert in_doubt([doubt, later]) == ({doubt} if open_ else set())


def test_of_several_successes_the_latest_leaves_no_doubt_in_whatever_order_they_are_read() -> None:
    earlier = replace(DONE, id="2027-01-15T08:00:00.000Z-1")
    for acts in permutations((earlier, DOUBT, DONE)):
        assert in_doubt(acts) == set()


def test_what_a_later_version_wrote_is_still_told(history: History, dynamodb: Counting) -> None:
    item = {"key": {"S": "k"}, "act": {"S": "2030-01-01T00:00:00.000Z-1"}, "verb": {"S": "mended"}}
    dynamodb.put_item(TableName="history", Item={**item, "outcome": {"S": "half"}, "new": {"N": "1"}})
    (found,) = history.of_key("k")
    assert (found.verb, found.outcome, found.plan) == ("mended", "half", "")


@pytest.mark.parametrize(("unkeyed", "key"), [(None, "bank#order-1"), ("its body has no order", "m-1")])
def test_an_act_on_a_dead_letter_without_a_key_is_kept_under_its_message_id(unkeyed: str | None, key: str) -> None:
    """All such dead letters would share one entry."""
    of: Any = SimpleNamespace(id="m-1", record_id="bank#order-1", unkeyed=unkeyed)
    assert key_of(of) == key
