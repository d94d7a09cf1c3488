"""Filters, limits, a rate and saved plans: what is meant is done, and nothing else."""

from __future__ import annotations

import itertools
import json
import threading
from collections import Counter
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver.operations.dead_letters.run import BEYOND_LIMIT
from idempotent_receiver.operations.dead_letters.selection import SavedPlan, Selection
from idempotent_receiver.operations.dead_letters.workers import WORKERS
from idempotent_receiver.sqs.dead_letter import Stamp
from idempotent_receiver.transaction.outbox import STAMP
from tests.unit.operations.dead_letters.bank import (
    ALL_DEAD,
    ONE_BY_ONE,
    Aside,
    Bank,
    both_kinds,
    counted,
    in_balance,
    leftovers,
    planned,
    throttled,
)

if TYPE_CHECKING:
    from pathlib import Path

FLAKY = {"flaky-0", "flaky-1", "flaky-2"}


@pytest.mark.parametrize(
    ("selected", "moved"),
    [
        ({"matching": "connectionerror"}, FLAKY),
        ({"matching": "without a record"}, {"throttled"}),
        ({"matching": "PermanentError"}, {"permanent", "garbage"}),
        ({"matching": "permanent cannot"}, {"permanent"}),
        ({"matching": "no such reason"}, set()),
        ({"error_type": "ConnectionError"}, FLAKY),
        ({"error_type": "connectionerror"}, set()),
        ({"error_type": "Connection"}, set()),
        ({"groups": frozenset([f"ConnectionError@{Bank.__module__}._post", "no-record"])}, {*FLAKY, "throttled"}),
    ],
)
def test_a_filter_moves_those_and_no_others(selected: dict[str, Any], moved: set[str]) -> None:
    bank = leftovers()
    summary = bank.redrive(rules={"include_permanent": True}, selection=Selection(**selected))
    assert (set(bank.bodies(bank.queue)), summary.done["moved"], summary.left) == (moved, len(moved), [])


def test_a_filter_by_key_moves_that_one() -> None:
    bank = leftovers()
    key = next(kept.id for kept in bank.dead.messages if "flaky-1" in kept.sent["MessageBody"])
    bank.redrive(selection=Selection(keys=frozenset([key])))
    assert bank.bodies(bank.queue) == Counter(["flaky-1"])


@both_kinds
def test_a_limit_is_kept_and_said(fifo: bool) -> None:
    bank = throttled(25, fifo=fifo)
    summary = bank.redrive(selection=Selection(limit=12))
    assert (len(bank.queue.messages), len(bank.dead.messages)) == (12, 13)
    assert (summary.done["moved"], len(summary.left) + summary.unseen, summary.beyond_limit) == (12, 13, True)
    assert summary.unseen == (5 if fifo else 0), "of a FIFO group"
    assert {each.why for each in summary.left} == {BEYOND_LIMIT}


@both_kinds
def test_what_is_left_is_released_at_once(fifo: bool) -> None:
    bank = leftovers(fifo=fifo)
    bank.redrive()
    assert all(kept.visible_seconds <= bank.clock.seconds for kept in bank.dead.messages)


@both_kinds
def test_stopped_anywhere_it_gives_back_the_rest_and_can_be_started_again(fifo: bool) -> None:
    for asked in range(12):
        bank = leftovers(fifo=fifo)
        answers = iter([False] * asked)
        summary = bank.redrive(
            rules={"include_permanent": True}, rate=ONE_BY_ONE, stopped=lambda a=answers: next(a, True)
        )
        assert summary.acted + len(summary.left) + summary.unseen == len(ALL_DEAD), "each of them is counted"
        assert all(kept.visible_seconds <= bank.clock.seconds for kept in bank.dead.messages)
        bank.redrive(rules={"include_permanent": True})
        bank.deliver()
        in_balance(bank)


def test_a_request_carries_ten_dead_letters_and_a_read_a_hundred(monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls are counted exactly: 1,005 dead letters are 101 tens, and 11 hundreds of records."""
    bank = throttled(1005)
    bank.workers = WORKERS
    reads: list[int] = []
    read = bank.store.read
    monkeypatch.setattr(bank.store, "read", lambda ids: [reads.append(len(ids)), read(ids)][1])
    before = counted(bank)

    summary = bank.redrive(rate=400, journal=Aside(bank).journal())

    made = counted(bank) - before
    assert (summary.done["moved"], len(bank.queue.messages), bank.dead.messages) == (1005, 1005, [])
    assert (made["send_message_batch"], made["delete_message_batch"]) == (101, 101)
    assert 101 < made["receive_message"] <= 101 + WORKERS, "and a few, at once, that find no more"
    assert made["batch_write_item"] == 2 * 41, "25 at a time, before and after"
    assert sorted(reads) == [5, *[100] * 10]
    assert made.keys() == {"receive_message", "send_message_batch", "delete_message_batch", "batch_write_item"}


@pytest.mark.parametrize("request_name", ["receive_message", "send_message_batch", "delete_message_batch"])
def test_several_requests_are_under_way_at_a_time(request_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bank = throttled(200)
    bank.workers = 2
    together, running, most = threading.Barrier(2), [], []
    request, numbers = getattr(bank.sqs, request_name), itertools.count(1)

    def meets_another(**asked: Any) -> Any:
        # The first receive is alone: whether there is more is known only then.
        if request_name != "receive_message" or 1 < next(numbers) < 10:
            together.wait(timeout=10)
        running.append(request_name)
        most.append(len(running))
        try:
            return request(**asked)
        finally:
            running.pop()

    monkeypatch.setattr(bank.sqs, request_name, meets_another)
    assert bank.redrive(rate=80).done["moved"] == 200
    assert max(most) <= bank.workers


@pytest.mark.parametrize(("count", "rate", "seconds"), [(1000, 400, (1000 - 100) / 400), (50, 5, 9.5)])
def test_what_is_paced_is_paced_by_the_rate_alone(count: int, rate: float, seconds: float) -> None:
    """The time of the clock is that of all waves together: at 400 a second, 100,000 take less than five minutes."""
    bank = throttled(count)
    begun = bank.clock.seconds
    bank.redrive(rate=rate)
    assert bank.clock.seconds - begun == pytest.approx(seconds, abs=0.5)


@pytest.mark.parametrize("fraction", [0, 0.5])
@pytest.mark.parametrize(
    ("since", "until", "moved"),
    [
        (None, None, {"a", "b", "c"}),
        (60, None, {"b", "c"}),
        (61, None, {"c"}),
        (None, 60, {"a", "b"}),
        (None, 59, {"a"}),
        (60, 60, {"b"}),
        (60.9, 60.1, {"b"}),
        (121, None, set()),
    ],
)
def test_a_filter_by_time_includes_the_seconds_it_names(
    since: float | None, until: float | None, moved: set[str], fraction: float
) -> None:
    """Times are listed without fractions of a second, and what was copied from there has to be found."""
    bank = Bank()
    begun = bank.clock.epoch_ms() // 1000 * 1000
    bank.clock.sleep(fraction)
    for name in ("a", "b", "c"):
        stamp = Stamp(key=name, original_id=name, queue=bank.queue.arn).to_json()
        attributes = {STAMP: {"DataType": "String", "StringValue": stamp}}
        bank.sqs.send_message(
            QueueUrl=bank.dead.url, MessageBody=json.dumps({"name": name}), MessageAttributes=attributes
        )
        bank.clock.sleep(60)

    def at(seconds: float | None) -> int | None:
        return None if seconds is None else begun + int(seconds * 1000)

    bank.redrive(selection=Selection(since_ms=at(since), until_ms=at(until)))

    assert set(bank.bodies(bank.queue)) == moved


@both_kinds
def test_a_saved_plan_is_carried_out_exactly(fifo: bool) -> None:
    """What has become a dead letter since stays, and nobody is told that it is left."""
    bank = leftovers(fifo=fifo)
    letters = planned(bank)
    bank.send("throttled-later")
    bank.kill_by_receives(handle=False)

    summary = bank.redrive(selection=Selection.of_plan(letters))

    assert (summary.done["moved"], summary.done["dropped"], summary.left, summary.unseen) == (4, 1, [], 0)
    assert bank.bodies(bank.dead) == Counter(["garbage", "conflict", "permanent", "throttled-later"])


def test_a_saved_plan_is_read_as_it_was_written_and_never_replaced(tmp_path: Path) -> None:
    bank = Bank()
    bank.sqs.send_message(QueueUrl=bank.queue.url, MessageBody="\ud800")
    bank.kill_by_receives(handle=False)
    letters = planned(bank)
    body_sha256 = sha256(b"\xed\xa0\x80").hexdigest()
    assert [each.body_sha256 for each in letters] == [body_sha256]
    to = {"queue": bank.queue.arn, "dead_letter_queue": bank.dead.arn}
    plan = SavedPlan(id="p", command="c", made_at="2027", options={"force": True}, letters=letters, **to)
    file = tmp_path / "plan.json"
    plan.write(file)
    assert SavedPlan.read(file) == plan
    assert file.read_text() == json.dumps(json.loads(file.read_text()), indent=2) + "\n"
    with pytest.raises(FileExistsError):
        plan.write(file)


def test_what_was_taken_out_of_a_plan_stays() -> None:
    bank = throttled(3)
    first, *_ = letters = planned(bank)
    assert len(letters) == 3
    bank.redrive(selection=Selection.of_plan([first]))
    assert [kept.id for kept in bank.dead.messages] == [each.message_id for each in letters[1:]]


def test_a_plan_of_nothing_moves_nothing() -> None:
    bank = throttled(3)
    assert bank.redrive(selection=Selection.of_plan([])).acted == 0
    assert len(bank.dead.messages) == 3


def test_a_dead_letter_whose_verdict_is_no_longer_as_planned_stays_and_is_listed() -> None:
    bank = Bank()
    bank.send("flaky")
    bank.kill_by_receives(handle=True)
    letters = planned(bank)
    bank.mended = True
    # Meanwhile somebody else sends a copy, which completes, and cannot delete the dead letter.
    bank.sqs.undeletable.add(bank.dead.url)
    bank.redrive()
    bank.deliver()
    bank.sqs.undeletable.clear()

    summary = bank.redrive(selection=Selection.of_plan(letters))

    assert summary.acted == 0
    assert [each.why for each in summary.left] == [
        "its verdict was MOVE in the plan and is DONE now: its record is COMPLETED, with the same payload"
    ]
    assert bank.bodies(bank.dead) == Counter(["flaky"])


def test_a_dead_letter_whose_body_is_no_longer_as_planned_stays_and_is_listed() -> None:
    bank = throttled(2)
    letters = [replace(planned(bank)[0], body_sha256="another"), planned(bank)[1]]
    summary = bank.redrive(selection=Selection.of_plan(letters))
    assert summary.done["moved"] == 1
    assert [(each.message_id, each.why) for each in summary.left] == [
        (letters[0].message_id, "its body differs from the planned one")
    ]


def test_a_plan_names_what_is_gone() -> None:
    bank = throttled(2)
    selection = Selection.of_plan(planned(bank))
    gone = bank.dead.messages.pop()
    with bank.session() as session:
        run = bank.run(session, selection=selection)
        run.carry_out(run.plan())
        assert [each.message_id for each in selection.missing(session.source.seen)] == [gone.id]
    assert run.summary.done["moved"] == 1
