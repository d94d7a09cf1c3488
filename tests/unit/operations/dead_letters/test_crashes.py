"""No crash, refusal or throttle on the way loses or repeats anything."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from idempotent_receiver.operations.dead_letters.history import NotKept
from idempotent_receiver.operations.dead_letters.triage import Verdict
from tests.queues import DEDUPLICATION_SECONDS, Crash
from tests.unit.operations.dead_letters.bank import (
    ALL_DEAD,
    FIXABLE,
    HOLD_SECONDS,
    ONE_BY_ONE,
    Aside,
    Bank,
    both_kinds,
    in_balance,
    leftovers,
    settle,
    throttled,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def requests(fifo: bool, archive: bool) -> int:
    """How many requests a whole run makes."""
    bank = leftovers(fifo=fifo)
    before = len(bank.sqs.calls)
    killable(bank, Aside(bank), archive=archive)()
    return len(bank.sqs.calls) - before


def killable(bank: Bank, aside: Aside, *, archive: bool) -> Callable[[], None]:
    """A run that redrives or archives everything, one by one, and keeps a history of it."""
    options = {"dispositions": aside.archive()} if archive else {}
    session = bank.session(include_permanent=True)
    run = bank.run(session, rate=ONE_BY_ONE, journal=aside.journal(), **options)

    def go() -> None:
        run.carry_out(run.plan())
        session.source.release()

    return go


def crashed(bank: Bank, aside: Aside, number: int, side: str, *, archive: bool) -> None:
    """Run something that dies at this request; nothing of it runs afterwards."""
    bank.sqs.crash_at = (len(bank.sqs.calls) + number, side)
    with pytest.raises(Crash):
        killable(bank, aside, archive=archive)()
    bank.sqs.crash_at = None


def points_of(fifo: bool, *, archive: bool = False) -> list[tuple[int, str]]:
    """Before and after each receive, send, delete, change of visibility and write."""
    points = [(number, side) for number in range(requests(fifo, archive)) for side in ("before", "after")]
    assert len(points) >= 4 * len(FIXABLE | {"garbage"}), "each is begun, sent or stored, deleted, and confirmed"
    return points


@both_kinds
@pytest.mark.parametrize("meanwhile", [False, True], ids=["redriven again", "handled, then redriven again"])
def test_no_crash_at_any_request_loses_or_repeats_anything(fifo: bool, meanwhile: bool) -> None:
    for number, side in points_of(fifo):
        bank = leftovers(fifo=fifo)
        aside = Aside(bank)
        begun = bank.clock.seconds
        ids = {each.id for each in bank.dead.messages}
        crashed(bank, aside, number, side, archive=False)
        assert set(bank.bodies(bank.dead) + bank.bodies(bank.queue)) >= ALL_DEAD - {"done"}, (number, side)
        gone = ids - {each.id for each in bank.dead.messages}
        assert aside.told("done") <= gone <= aside.told("done", None), (number, side)
        assert len(aside.told("done", None) - gone) <= 1, "begun, and perhaps done"
        if meanwhile:
            bank.deliver()
        assert bank.clock.seconds - begun + HOLD_SECONDS < DEDUPLICATION_SECONDS, "twice within five minutes"
        settle(bank)
        in_balance(bank)


@both_kinds
def test_no_crash_at_any_request_deletes_what_is_not_stored(fifo: bool) -> None:
    """Whatever an end does before the deletion is done before the deletion."""
    for number, side in points_of(fifo, archive=True):
        bank = leftovers(fifo=fifo)
        aside = Aside(bank)
        ids = {each.id for each in bank.dead.messages}
        crashed(bank, aside, number, side, archive=True)
        gone = ids - {each.id for each in bank.dead.messages}
        assert aside.stored >= gone, (number, side)
        assert aside.told("done") <= aside.stored <= aside.told("done", None), (number, side)
        bank.clock.sleep(HOLD_SECONDS + 1)
        assert bank.redrive(dispositions=aside.archive()).left == []
        assert (aside.stored, bank.dead.messages, bank.queue.messages) == (ids, [], [])


def test_what_could_not_be_noted_in_the_history_is_not_done() -> None:
    bank = leftovers()
    bank.sqs.broken.add("batch_write_item")
    with pytest.raises(NotKept, match="dynamodb:BatchWriteItem"):
        killable(bank, Aside(bank), archive=False)()
    assert (set(bank.bodies(bank.dead)), bank.queue.messages) == (ALL_DEAD, [])


def test_where_one_of_several_requests_fails_the_others_are_deleted_and_confirmed_and_the_rest_is_counted() -> None:
    bank = throttled(45)
    aside = Aside(bank)
    send = bank.sqs.send_message_batch
    answers = itertools.count(1)

    def second_fails(**asked: Any) -> Any:
        if next(answers) == 2:
            raise ClientError({"Error": {"Code": "ServiceUnavailable"}}, "SendMessageBatch")
        return send(**asked)

    bank.sqs.send_message_batch = second_fails  # type: ignore[method-assign]
    session = bank.session()
    run = bank.run(session, rate=120, journal=aside.journal())
    with pytest.raises(ClientError):
        run.carry_out(run.plan())

    assert (len(bank.queue.messages), len(bank.dead.messages)) == (20, 25)
    assert [len(aside.told(outcome)) for outcome in ("done", "unconfirmed", None)] == [20, 10, 0]
    assert run.summary.done == {"moved": 20, "dropped": 0}
    whys = Counter(each.why for each in run.summary.left)
    assert whys == {"SQS did not confirm it: ServiceUnavailable": 10, "the run ended first": 15}


@pytest.mark.scenario("S68", mutant="the second return within five minutes is swallowed")
@both_kinds
def test_what_dies_again_within_five_minutes_can_come_back_again(fifo: bool) -> None:
    """Each death has a messageId of its own, so no deduplication swallows the second return."""
    bank = leftovers(fifo=fifo)
    bank.mended = False
    begun = bank.clock.seconds
    bank.redrive(rules={"include_permanent": True})
    bank.kill_by_receives(handle=True)
    assert bank.clock.seconds - begun < DEDUPLICATION_SECONDS
    bank.mended = True

    settle(bank)

    in_balance(bank)


@both_kinds
def test_where_no_delete_succeeds_nothing_is_lost_and_nothing_runs_twice(fifo: bool) -> None:
    bank = leftovers(fifo=fifo)
    bank.sqs.undeletable.add(bank.dead.url)

    summary = bank.redrive(rules={"include_permanent": True})

    assert {each.verdict for each in summary.undeleted} == {Verdict.MOVE}
    assert [each.outcome for each in summary.left if each.verdict == Verdict.DONE] == ["refused"]
    assert summary.done["dropped"] == 0
    bank.sqs.undeletable.clear()
    bank.deliver()
    settle(bank)
    in_balance(bank)


@pytest.mark.parametrize("done", [False, True], ids=["whose copy was sent", "which was done"])
def test_a_dead_letter_whose_deletion_is_refused_for_good_is_named_though_its_neighbours_succeeds_at_a_second_try(
    done: bool,
) -> None:
    bank = Bank()
    bank.mended = done
    bank.send("flaky-refused")
    bank.send("flaky-throttled")
    bank.kill_by_receives(handle=True)
    bank.mended = True
    refused, neighbour = (json.dumps({"name": f"flaky-{name}"}) for name in ("refused", "throttled"))
    bank.sqs.undeletable.add(refused)
    bank.sqs.throttled.add(neighbour)

    summary = bank.redrive()

    deletes = [len(asked["Entries"]) for name, asked in bank.sqs.calls if name == "delete_message_batch"]
    assert deletes[-2:] == [2, 1], "the neighbour alone is tried again"
    assert (summary.done["moved"], summary.done["dropped"]) == ((0, 1) if done else (2, 0))
    (left,) = summary.left if done else summary.undeleted
    (kept,) = bank.dead.messages
    assert (left.message_id, kept.sent["MessageBody"]) == (kept.id, refused)
    assert "ReceiptHandleIsInvalid" in left.why
    assert ("its copy was sent" in left.why) is not done
    # The record protects: where its copy was sent it is there twice by now, and it runs once.
    bank.sqs.undeletable.clear()
    settle(bank)
    assert bank.done == Counter(["flaky-refused", "flaky-throttled"])
