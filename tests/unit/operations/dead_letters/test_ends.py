"""Every end of a dead letter: archived, restored, deleted, resent. No crash on the way loses or repeats anything."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from idempotent_receiver.operations.dead_letters.ends import (
    archive_ends,
    delete_ends,
    redrive_ends,
    resend_ends,
    restore_ends,
)

from idempotent_receiver import body_field
from idempotent_receiver.operations.dead_letters import archive as archives
from idempotent_receiver.operations.dead_letters.history import Verb
from idempotent_receiver.operations.dead_letters.run import Run
from idempotent_receiver.operations.dead_letters.triage import Verdict
from idempotent_receiver.sqs.dead_letter import STAMP, Stamp
from tests.queues import Crash
from tests.unit.operations.dead_letters.bank import (
    ALL_DEAD,
    HOLD_SECONDS,
    Bank,
    both_kinds,
    in_balance,
    leftovers,
    settle,
    throttled,
)
from tests.unit.operations.dead_letters.bucket import Bucket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from idempotent_receiver.operations.dead_letters.selection import Selection

BY = {"operator": "arn:aws:iam::123456789012:user/operator", "reason": "why", "at": "2027-01-15T09:00:00Z"}
EDITED = json.dumps({"name": "edited"})


def archived_leftovers(*, fifo: bool = False) -> tuple[Bank, Bucket]:
    """Everything that was dead, in the archive."""
    bank = leftovers(fifo=fifo)
    bucket = Bucket(bank)
    archived(bank, bucket)
    return bank, bucket


def archived(bank: Bank, bucket: Bucket) -> Run:
    return gone_through(bank, archive_ends(bucket.archive(), **BY))


def restored(bank: Bank, bucket: Bucket) -> Run:
    run = Run(replace(bank.session(), queue=bucket.archive()), restore_ends(bank.sqs, bank.dead.url), rate=1.0)  # type: ignore[arg-type]
    run.carry_out(run.plan())
    return run


def gone_through(bank: Bank, ends: Any, selection: Selection | None = None) -> Run:
    with bank.session() as session:
        run = Run(session, ends, rate=1.0, **({} if selection is None else {"selection": selection}))
        run.carry_out(run.plan())
    return run


def crashing(bank: Bank, act: Callable[[], object], number: int, side: str) -> bool:
    """Whether it died at this request, so that nothing of it ran afterwards."""
    bank.sqs.crash_at = (len(bank.sqs.calls) + number, side)
    try:
        act()
    except Crash:
        return True
    finally:
        bank.sqs.crash_at = None
    return False


def each_crash(make: Callable[[], tuple[Bank, Callable[[], object]]]) -> Iterator[Bank]:
    """The bank after a crash before and after each request of an act, until the act goes through."""
    for number in range(1000):
        for side in ("before", "after"):
            bank, act = make()
            if not crashing(bank, act, number, side):
                assert number > len(ALL_DEAD), "it asks more than once for each"
                return
            bank.clock.sleep(HOLD_SECONDS + 1)
            yield bank


@both_kinds
def test_what_is_archived_and_restored_comes_back_as_it_was(fifo: bool) -> None:
    bank = leftovers(fifo=fifo)
    bucket = Bucket(bank)
    before = [(each.verdict, each.reason, each.dead_letter.key, each.dead_letter.since_ms) for each in taken(bank)]

    assert archived(bank, bucket).summary.done == {"archived": 8}
    assert (bank.dead.messages, len(bucket.objects)) == ([], 8)
    assert restored(bank, bucket).summary.done == {"restored": 8}
    assert bucket.objects == {}

    assert Counter(before) == Counter(
        (each.verdict, each.reason, each.dead_letter.key, each.dead_letter.since_ms) for each in taken(bank)
    )
    settle(bank)
    in_balance(bank)


def taken(bank: Bank) -> list[Any]:
    with bank.session() as session:
        return session.take()


def test_each_end_says_what_it_is_and_whether_the_consumer_gets_the_message_again() -> None:
    bank = Bank()
    sqs, archive = bank.sqs, Bucket(bank).archive()
    every = [redrive_ends(sqs, "q"), archive_ends(archive, **BY), delete_ends()]  # type: ignore[arg-type]
    every += [restore_ends(sqs, "q"), resend_ends(sqs, "q", lambda letter: letter)]  # type: ignore[arg-type]
    ends = {end for each in every for end in each.values()}
    returning = {Verb.MOVED: True, Verb.RESTORED: True, Verb.RESENT: True}
    assert {each.verb: each.returns for each in ends} == {**dict.fromkeys(Verb, False), **returning}
    assert [each for each in ends if not (each.becomes and each.undeleted and each.refused)] == []


@both_kinds
def test_no_crash_of_an_archiving_loses_anything(fifo: bool) -> None:
    def make() -> tuple[Bank, Callable[[], object]]:
        bank = leftovers(fifo=fifo)
        buckets.append(Bucket(bank))
        return bank, lambda: archived(bank, buckets[-1])

    buckets: list[Bucket] = []
    for bank in each_crash(make):
        stored = {json.loads(each["message"]["body"])["name"] for each in buckets[-1].documents()}
        assert stored | set(bank.bodies(bank.dead)) == ALL_DEAD
        archived(bank, buckets[-1])
        assert (len(buckets[-1].objects), bank.dead.messages) == (8, [])


@both_kinds
def test_no_crash_of_a_restoration_loses_or_repeats_anything(fifo: bool) -> None:
    def make() -> tuple[Bank, Callable[[], object]]:
        bank, bucket = archived_leftovers(fifo=fifo)
        buckets.append(bucket)
        return bank, lambda: restored(bank, buckets[-1])

    buckets: list[Bucket] = []
    for bank in each_crash(make):
        stored = {json.loads(each["message"]["body"])["name"] for each in buckets[-1].documents()}
        assert stored | set(bank.bodies(bank.dead)) == ALL_DEAD
        restored(bank, buckets[-1])
        assert buckets[-1].objects == {}
        settle(bank)
        in_balance(bank)


def test_what_was_redriven_after_a_crash_of_its_archiving_and_is_restored_later_runs_once() -> None:
    bank = leftovers()
    bucket = Bucket(bank)
    bank.sqs.undeletable.add(bank.dead.url)
    assert {"archiving it again replaces it" in each.why for each in archived(bank, bucket).summary.undeleted} == {True}
    bank.sqs.undeletable.clear()
    settle(bank)

    restored(bank, bucket)
    settle(bank)

    in_balance(bank)


def test_what_has_no_room_for_its_stamp_stays_in_the_archive() -> None:
    bank = Bank(at_once=False)
    full = {f"attribute-{number}": {"DataType": "String", "StringValue": "x"} for number in range(10)}
    bank.send("flaky-full", attributes=full)
    bank.send("flaky")
    bank.deliver()
    bucket = Bucket(bank)
    archived(bank, bucket)

    summary = restored(bank, bucket).summary

    assert [each.why for each in summary.left] == ["SQS refused its copy: NoRoom"]
    assert (bank.bodies(bank.dead), len(bucket.objects)) == (Counter(["flaky"]), 1)


def test_to_count_what_was_not_taken_yet_takes_nothing_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_BYTES_A_ROUND", 1)
    _, bucket = archived_leftovers()
    archive = bucket.archive()
    assert len(archive.take()) == 4
    assert archive.unseen() == 4
    assert len(archive.take()) == 4
    assert (archive.unseen(), archive.take()) == (0, [])


def test_what_is_restored_stays_within_a_mebibyte_a_request() -> None:
    bank = throttled(6, attributes={"a": {"DataType": "String", "StringValue": "x" * 400_000}})
    bucket = Bucket(bank)
    archived(bank, bucket)
    with replace(bank.session(), queue=bucket.archive()) as session:  # type: ignore[arg-type]
        run = Run(session, restore_ends(bank.sqs, bank.dead.url))  # type: ignore[arg-type]
        run.carry_out(run.plan())
    assert (run.summary.done, len(bank.dead.messages)) == ({"restored": 6}, 6)


def test_a_restored_group_keeps_its_order() -> None:
    bank = Bank(fifo=True, at_once=False)
    for number in range(12):
        bank.send(f"flaky-{number}", group="one")
        bank.deliver()
    before = [each.sent["MessageBody"] for each in bank.dead.messages]
    bucket = Bucket(bank)
    archived(bank, bucket)
    assert len(bucket.objects) == 12

    restored(bank, bucket)

    assert [each.sent["MessageBody"] for each in bank.dead.messages] == before


@both_kinds
def test_what_is_deleted_is_gone_and_what_may_be_anothers_stays(fifo: bool) -> None:
    bank = leftovers(fifo=fifo)
    group = {"MessageGroupId": "g", "MessageDeduplicationId": "d"} if fifo else {}
    bank.sqs.send_message(QueueUrl=bank.dead.url, MessageBody=json.dumps({"name": "stray"}), **group)

    summary = gone_through(bank, delete_ends()).summary

    assert (summary.done, [each.verdict for each in summary.left]) == ({"deleted": 8}, [Verdict.FOREIGN])
    assert bank.bodies(bank.dead) == Counter(["stray"])


def resent(bank: Bank, body: str = EDITED) -> Run:
    """Send the one dead letter that is there edited."""
    with bank.session() as session:
        decision, *_ = session.take()
        reader = session.reader
        ends = resend_ends(bank.sqs, bank.queue.url, lambda letter: reader.read(letter.edited(body), 0))  # type: ignore[arg-type]
        run = Run(session, ends, rate=1.0)  # type: ignore[arg-type]
        run.carry_out(run.selection.plan([decision], 0, run.ends))
    return run


@pytest.mark.parametrize("by_body", [False, True], ids=["messageId", "a key of the business"])
@both_kinds
def test_no_crash_of_a_resend_runs_it_twice_or_loses_it(fifo: bool, by_body: bool) -> None:
    def make() -> tuple[Bank, Callable[[], object]]:
        bank = Bank(fifo=fifo, **({"key": body_field("name")} if by_body else {}))
        bank.send("permanent")
        bank.deliver()
        return bank, lambda: resent(bank)

    for meanwhile in (False, True):
        crashes = 0
        for number, side in [(number, side) for number in range(12) for side in ("before", "after")]:
            bank, act = make()
            if not crashing(bank, act, number, side):
                break
            crashes += 1
            bank.clock.sleep(HOLD_SECONDS + 1)
            if meanwhile:
                bank.deliver()
            if bank.dead.messages:
                resent(bank)
            bank.deliver()
            assert (bank.done, bank.dead.messages) == (Counter(["edited"]), []), (number, side)
        assert crashes >= 6


@both_kinds
@pytest.mark.parametrize("way", ["archived and restored", "redriven", "restored twice"])
def test_what_was_sent_edited_and_not_deleted_runs_once_whatever_became_of_the_dead_letter(
    fifo: bool, way: str
) -> None:
    """It has another messageId then, and is the same dead letter."""
    bank = Bank(fifo=fifo)
    bank.send("permanent")
    bank.deliver()
    bank.sqs.undeletable.add(bank.dead.url)
    resent(bank)
    bank.sqs.undeletable.clear()
    bank.deliver()
    assert bank.done == Counter(["edited"])
    bank.clock.sleep(HOLD_SECONDS + 1)

    if way == "redriven":
        bank.redrive(rules={"include_permanent": True})
        bank.deliver()
    else:
        bucket = Bucket(bank)
        archived(bank, bucket)
        kept = dict(bucket.objects)
        restored(bank, bucket)
        if way == "restored twice":
            bucket.objects |= kept
            bank.clock.sleep(400)  # longer than SQS remembers a deduplication id
            restored(bank, bucket)
    assert bank.dead.messages
    while bank.dead.messages:
        resent(bank)
        bank.deliver()

    assert bank.done == Counter(["edited"])


def test_another_body_makes_another_key_and_the_same_body_the_same() -> None:
    bank = Bank()
    tenant = {"tenant": {"DataType": "String", "StringValue": "t"}}
    id = bank.send("permanent", attributes=tenant)
    bank.deliver()
    (decision,) = taken(bank)
    letter = decision.dead_letter

    def key(body: str) -> str:
        return str(bank.session().reader.read(letter.edited(body), 0).key)

    assert key("a") == key("a")
    assert len({key("a"), key("b"), key("\ud800"), letter.key}) == 4
    stamp = Stamp(key=key("a"), original_id=id, queue=bank.queue.arn).to_json()
    attributes = {**tenant, STAMP: {"DataType": "String", "StringValue": stamp}}
    assert letter.edited("a") == {**letter.raw, "Body": "a", "MessageAttributes": attributes}
    end = resend_ends(bank.sqs, "q", lambda each: bank.session().reader.read(each.edited("a"), 0))[Verdict.MOVE]  # type: ignore[arg-type]
    assert end.detail is not None
    assert end.detail(decision) == f"its new key is {key('a')}"
