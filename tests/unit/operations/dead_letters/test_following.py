"""What became of what was moved."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from idempotent_receiver.operations.dead_letters.following import Fate, Following, became
from idempotent_receiver.operations.dead_letters.history import Act, ActOutcome, Verb
from idempotent_receiver.protocol.record import Record
from idempotent_receiver.protocol.store import Unknown
from tests.manual_clock import START_MS
from tests.unit.operations.dead_letters.acts import act
from tests.unit.operations.dead_letters.bank import Bank, both_kinds, throttled


def test_a_message_that_was_moved_is_followed_to_its_end() -> None:
    bank = Bank()
    for name in ("good", "flaky", "garbage", "throttled"):
        bank.send(name)
    bank.kill_by_receives(handle=False)
    with bank.session(include_permanent=True) as session:
        run = bank.run(session)
        run.carry_out(run.plan())
        following = Following(session, session.source, run.returned.values())
        looks = following.looks(600)
        assert following.counts == {Fate.WAITING: 4}
        bank.sqs.send_message(QueueUrl=bank.dead.url, MessageBody='{"name": "never moved"}')

        assert next(looks) == {Fate.WAITING: 4}
        assert all(kept.visible_seconds <= bank.clock.seconds for kept in bank.dead.messages)
        bank.receive_once()
        assert next(looks) == {Fate.COMPLETED: 2, Fate.FAILED: 1, Fate.DEAD: 1}
        assert all(kept.visible_seconds <= bank.clock.seconds for kept in bank.dead.messages), "looked at, and let go"
        bank.mended = True
        bank.deliver()
        assert next(looks) == {Fate.COMPLETED: 3, Fate.DEAD: 1}
        assert list(looks) == [], "nothing is left to wait for"


@both_kinds
def test_what_fails_again_until_sqs_moves_it_is_dead_again(fifo: bool) -> None:
    """Its record tells of the failure before, and the first look does not take that for a new one."""
    bank = Bank(fifo=fifo)
    bank.send("flaky")
    bank.kill_by_receives(handle=True)
    with bank.session() as session:
        run = bank.run(session)
        run.carry_out(run.plan())
        looks = Following(session, session.source, run.returned.values()).looks(600)
        assert next(looks) == {Fate.WAITING: 1}
        bank.kill_by_receives(handle=True)
        assert list(looks) == [{Fate.DEAD: 1}]


def test_the_last_look_finds_what_was_dead_again_before_the_first() -> None:
    """Until then the queue only counts, and it has as many as it had."""
    bank = Bank()
    bank.send("flaky")
    bank.kill_by_receives(handle=True)
    with bank.session() as session:
        run = bank.run(session)
        run.carry_out(run.plan())
        bank.kill_by_receives(handle=True)
        *looks, last = Following(session, session.source, run.returned.values()).looks(30)
    assert (looks[-1], last) == ({Fate.FAILED: 1}, {Fate.DEAD: 1})


@pytest.mark.parametrize(("seconds", "stopped"), [(30, False), (2.5, False), (600, True)])
def test_following_ends_with_its_time_or_when_it_is_stopped_and_tells_what_still_waits(
    seconds: float, stopped: bool
) -> None:
    bank = throttled(3)
    with bank.session() as session:
        run = bank.run(session, rate=1)
        run.carry_out(run.plan())
        begun = bank.clock.seconds
        counts = list(Following(session, session.source, run.returned.values()).looks(seconds, lambda: stopped))
    assert (counts[-1], bank.clock.seconds - begun) == ({Fate.WAITING: 3}, 0 if stopped else seconds)
    assert len(counts) == 1 or not stopped


MOVED = act(id="2027-01-15T08:00:00.500Z-1")
RETENTION = 30 * 86_400


def written(status: str, at_ms: int, **attributes: Any) -> Record:
    """A record that was written then."""
    return Record(id="k", status=status, version="v", **{"expiration": at_ms // 1000 + RETENTION, **attributes})


@pytest.mark.parametrize(
    ("moved", "found", "dead", "fate"),
    [
        (MOVED, written("COMPLETED", START_MS), False, Fate.COMPLETED),
        (MOVED, written("FAILED", START_MS - 1000), False, Fate.WAITING),  # that was the failure before
        (MOVED, written("FAILED", START_MS), False, Fate.FAILED),  # an expiration is in whole seconds
        (MOVED, written("FAILED", START_MS + 86_400_000), False, Fate.WAITING),  # of another retention, so not known
        (MOVED, written("INPROGRESS", START_MS), False, Fate.WAITING),
        (MOVED, written("COMPLETED", START_MS, expiration=START_MS // 1000), False, Fate.WAITING),
        (MOVED, None, False, Fate.WAITING),
        (MOVED, Unknown("throttled"), False, Fate.WAITING),
        (MOVED, written("COMPLETED", START_MS), True, Fate.DEAD),
        (replace(MOVED, outcome=ActOutcome.DONE), None, False, Fate.WAITING),
        (replace(MOVED, outcome=ActOutcome.REFUSED), None, True, None),
        (replace(MOVED, verb=Verb.ARCHIVED), None, True, None),
    ],
)
def test_what_became_of_an_act_in_the_history_is_what_its_record_tells(
    moved: Act, found: Record | Unknown | None, dead: bool, fate: Fate | None
) -> None:
    assert became(moved, found, START_MS + 1000, RETENTION, dead=dead) is fate
