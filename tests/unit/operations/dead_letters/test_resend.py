"""A dead letter sent again with another body: one of the two takes effect, once, and what is begun can be undone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, MutableMapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest
from botocore.exceptions import ClientError

from idempotent_receiver import MemoryStore, body_field
from idempotent_receiver.operations.dead_letters.history import ActOutcome
from idempotent_receiver.operations.dead_letters.resend import NewBody, NotResent, Records, TakingBack
from idempotent_receiver.operations.dead_letters.triage import Verdict
from idempotent_receiver.operations.dead_letters.verbs import resend_dispositions, take_back_dispositions
from idempotent_receiver.protocol.record import DEFAULT_RETENTION_SECONDS
from idempotent_receiver.protocol.store import ActionFailed, Commit, NotApplied, Unknown, Written
from idempotent_receiver.sqs.dead_letter import MOST_BYTES
from idempotent_receiver.testing.memory import Table, TableItem, TableKey
from tests.queues import DEDUPLICATION_SECONDS
from tests.unit.operations.dead_letters.bank import HOLD_SECONDS, ONE_BY_ONE, Bank, both_kinds, leftovers, throttled
from tests.unit.operations.dead_letters.bucket import Bucket, archived, from_archive

if TYPE_CHECKING:
    from collections.abc import Sequence

    from idempotent_receiver.dynamodb.store import DynamoDBStore
    from idempotent_receiver.operations.dead_letters.dead_letter import DeadLetter
    from idempotent_receiver.operations.dead_letters.run import DeadLetterResult, Run
    from idempotent_receiver.operations.dead_letters.session import Session
    from idempotent_receiver.operations.dead_letters.triage import Decision
    from idempotent_receiver.protocol.record import Change


class ByKey(MutableMapping[TableKey, TableItem]):
    """The records' items, as a transaction's table has them."""

    def __init__(self, items: dict[str, TableItem]) -> None:
        self._items = items

    def __getitem__(self, key: TableKey) -> TableItem:
        return self._items[str(key[0])]

    def __setitem__(self, key: TableKey, item: TableItem) -> None:
        self._items[str(key[0])] = item

    def __delitem__(self, key: TableKey) -> None:
        del self._items[str(key[0])]

    def __iter__(self) -> Iterator[TableKey]:
        return ((id,) for id in self._items)

    def __len__(self) -> int:
        return len(self._items)


class OperatorsStore(MemoryStore):
    """A bank's records in the operator's hands: a transaction may write records too. `answers` are those to writes of
    records with a status; `denied` what no permission is for.
    """

    table_name = "records"

    def __init__(self, bank: Bank, *denied: str, **answers: Written) -> None:
        vars(self).update(vars(bank.store))
        self.tables = {"records": Table("id")}
        self.tables["records"].items = ByKey(self.items)  # type: ignore[assignment]
        self._denied, self._answers = denied, answers

    def commit(self, commits: Sequence[Commit]) -> Sequence[Written | ActionFailed]:
        if "PutItem" in self._denied and any(each.change.seen is None for each in commits):
            return [DENIED] * len(commits)
        return super().commit(commits)

    def replace(self, changes: Sequence[Change]) -> Sequence[Written]:
        if "UpdateItem" in self._denied:
            return [DENIED] * len(changes)
        own = [self._answers[each.new.status] for each in changes if each.new.status in self._answers]
        return own or super().replace(changes)


DENIED = NotApplied("AccessDeniedException", retry=False)
LOST = Unknown("no answer")


def records(bank: Bank, *denied: str, **answers: Written) -> Records:
    return Records(
        store=cast("DynamoDBStore", OperatorsStore(bank, *denied, **answers)),
        clock=bank.clock,
        operator="alice",
        why="a typo",
        retention_seconds=DEFAULT_RETENTION_SECONDS,
    )


def body(name: str) -> str:
    return json.dumps({"name": name})


def edited(session: Session, letter: DeadLetter, text: str) -> DeadLetter:
    return session.reader.read(letter.edited(text), session.source.clock.epoch_ms())


def gone_through(bank: Bank, writes: Records, text: str | None) -> Run:
    with bank.session() as session:
        new_body = NewBody(records=writes, edited=lambda letter: edited(session, letter, text or ""))
        taking_back = TakingBack(records=writes)
        dispositions = (
            take_back_dispositions(taking_back)
            if text is None
            else resend_dispositions(bank.queue.url, new_body, new_body.edited)
        )
        run = bank.run(session, dispositions=dispositions, rate=ONE_BY_ONE)
        run.carry_out(run.plan())
    return run


def resend(bank: Bank, name: str, writes: Records | None = None) -> DeadLetterResult:
    """What became of the one dead letter that is there."""
    (letter,) = gone_through(bank, writes or records(bank), body(name)).summary.letters
    return letter


def take_back(bank: Bank) -> DeadLetterResult:
    (letter,) = gone_through(bank, records(bank), None).summary.letters
    return letter


def dead(name: str = "permanent", **kind: Any) -> Bank:
    bank = Bank(**kind)
    bank.send(name)
    bank.deliver()
    return bank


def begun(name: str = "fixed", **kind: Any) -> Bank:
    """A bank whose dead letter is claimed for a resend: SQS refused to take the message."""
    bank = dead(**kind)
    bank.sqs.broken.add("send_message_batch")
    with pytest.raises(ClientError):
        resend(bank, name)
    bank.sqs.broken.clear()
    assert taken(bank).verdict is Verdict.RESENDING
    return bank


def taken(bank: Bank) -> Decision:
    with bank.session() as session:
        (decision,) = session.take()
    return decision


# The new body takes effect, and once.


@both_kinds
def test_a_fix_that_failed_may_be_sent_again_within_five_minutes_and_takes_effect_once(fifo: bool) -> None:
    bank = dead(fifo=fifo)
    for name in ("permanent-1", "permanent-2"):
        assert resend(bank, name).outcome is ActOutcome.DONE
        bank.deliver()
    bank.mended = True
    assert resend(bank, "permanent-1").deleted
    assert bank.clock.seconds < DEDUPLICATION_SECONDS

    bank.deliver()

    assert (bank.done, bank.dead.messages) == (Counter(["permanent-1"]), [])


@both_kinds
@pytest.mark.parametrize("by_body", [False, True], ids=["messageId", "a key of the business"])
def test_a_resend_that_was_repeated_takes_effect_once(fifo: bool, by_body: bool) -> None:
    """The first was sent, and nobody knows whether its record was completed."""
    bank = dead(fifo=fifo, **({"key": body_field("name")} if by_body else {}))
    first = resend(bank, "fixed", records(bank, COMPLETED=LOST))
    assert (first.outcome, first.deleted) == (ActOutcome.UNCONFIRMED, False)
    assert "resend it with the same body" in first.why

    assert resend(bank, "fixed").deleted

    assert len(bank.queue.messages) == (1 if fifo else 2), "SQS swallows the second of one act"
    bank.deliver()
    assert (bank.done, bank.dead.messages) == (Counter(["fixed"]), [])


def test_sqs_knows_one_act_again_by_the_dead_letter_and_its_new_key() -> None:
    bank = dead(fifo=True)
    letter = taken(bank).dead_letter

    def deduplication_id(message_id: str, text: str) -> object:
        session = bank.session()
        one = session.reader.read({**letter.raw, "MessageId": message_id}, 0)
        return edited(session, one, text).resent()["MessageDeduplicationId"]

    acts = [("1", "a"), ("1", "b"), ("2", "a")]
    assert len({deduplication_id(*each) for each in acts}) == 3
    assert [deduplication_id(*each) for each in acts] == [deduplication_id(*each) for each in acts]


def test_a_new_key_is_made_of_the_key_the_first_id_and_the_body() -> None:
    bank = dead()

    def key(text: str = "a") -> str:
        return edited(bank.session(), taken(bank).dead_letter, text).key

    first = key()
    assert len({first, key("b"), key("\ud800"), taken(bank).dead_letter.key}) == 4
    bucket = Bucket(bank)
    archived(bank, bucket)
    from_archive(bank, bucket)
    assert key() == first, "it has another messageId, and is the same dead letter"
    bank.clock.sleep(HOLD_SECONDS + 1)
    seen = {first}
    for name in ("permanent-1", "permanent-2"):
        resend(bank, name)
        bank.deliver()
        assert key() not in seen, "a fix of a fix"
        seen.add(key())


@both_kinds
@pytest.mark.parametrize("verdict", [Verdict.CONFLICT, Verdict.UNKEYED])
def test_what_has_no_record_of_its_own_is_resent_and_anothers_record_stays(fifo: bool, verdict: Verdict) -> None:
    if verdict is Verdict.CONFLICT:
        bank = leftovers(fifo=fifo)
        bank.dead.messages = [each for each in bank.dead.messages if "conflict" in each.sent["MessageBody"]]
    else:
        bank = dead("x" * 3000, fifo=fifo, key=body_field("name"))
    assert taken(bank).verdict is verdict
    before = dict(bank.store.items)

    assert resend(bank, "fixed").deleted

    assert bank.store.items == before
    bank.deliver()
    assert bank.done["fixed"] == 1


def test_what_has_no_room_with_its_new_body_is_planned_as_staying_and_claims_nothing() -> None:
    bank = dead()
    before = dict(bank.store.items)
    letter = resend(bank, "x" * (MOST_BYTES - 50))
    assert (letter.outcome, letter.verdict, bank.store.items) == (None, Verdict.NO_ROOM, before)


# What it needs.


@pytest.mark.parametrize("denied", ["UpdateItem", "PutItem"])
def test_without_permission_to_write_records_nothing_is_sent_and_nothing_deleted(denied: str) -> None:
    """What has no record could be claimed by PutItem alone, and never completed."""
    bank = throttled(1)
    before = dict(bank.store.items)
    letter = resend(bank, "fixed", records(bank, denied))
    assert letter.outcome is ActOutcome.REFUSED
    assert "AccessDeniedException" in letter.why
    assert (bank.queue.messages, len(bank.dead.messages), bank.store.items) == ([], 1, before)


def test_another_body_is_refused_while_one_is_begun() -> None:
    bank = begun()
    letter = resend(bank, "another")
    assert "alice began to send it with another body" in letter.why
    assert "use --take-back first" in letter.why
    assert (bank.queue.messages, len(bank.dead.messages)) == ([], 1)


# Taking it back.


@pytest.mark.parametrize("make", [begun, lambda: throttled(1)], ids=["failed for good", "never run"])
def test_a_resend_that_was_taken_back_leaves_the_record_as_it_was_and_never_runs(make: Any) -> None:
    bank = make()
    if not bank.store.items:
        bank.sqs.broken.add("send_message_batch")
        with pytest.raises(ClientError):
            resend(bank, "fixed")
        bank.sqs.broken.clear()

    letter = take_back(bank)

    assert (letter.outcome, letter.verb, len(bank.dead.messages)) == (ActOutcome.DONE, "taken-back", 1)
    barred = resend(bank, "fixed")
    assert "was taken back: change the body, if only by one space" in barred.why
    bank.mended = True
    bank.redrive(rules={"include_permanent": True})
    bank.deliver()
    assert (bank.done.total(), bank.done["fixed"], bank.dead.messages) == (1, 0, [])


def test_another_body_may_be_sent_once_the_first_is_taken_back() -> None:
    bank = begun()
    take_back(bank)
    assert resend(bank, "another").deleted
    bank.deliver()
    assert bank.done == Counter(["another"])


def test_what_the_consumer_has_got_is_not_taken_back_and_the_same_body_ends_it() -> None:
    bank = dead()
    resend(bank, "fixed", records(bank, COMPLETED=LOST))
    bank.deliver()

    letter = take_back(bank)

    assert (letter.outcome, "its new body has reached the consumer" in letter.why) == (ActOutcome.REFUSED, True)
    assert resend(bank, "fixed").deleted
    bank.deliver()
    assert bank.done == Counter(["fixed"])


def test_what_has_gone_on_meanwhile_or_never_began_is_not_taken_back() -> None:
    bank = begun()
    decision = taken(bank)
    assert resend(bank, "fixed").deleted
    with pytest.raises(NotResent, match="its resend has progressed meanwhile"):
        TakingBack(records=records(bank)).before(decision)
    assert take_back(dead()).outcome is None, "there is nothing to take back"
    bank.deliver()
    assert bank.done == Counter(["fixed"])


@pytest.mark.parametrize("then", [None, "mended"])
def test_a_resend_that_was_taken_back_while_it_was_sent_keeps_its_dead_letter(then: str | None) -> None:
    """Also if another body has been sent since: what was sent first never runs."""
    bank = begun()
    writes = records(bank)
    decision = taken(bank)
    with bank.session() as session:
        again = NewBody(records=writes, edited=lambda letter: edited(session, letter, body("fixed")))
        again.before(decision)
        TakingBack(records=writes).before(decision)
        if then is not None:
            assert resend(bank, then).verb == "resent"
        with pytest.raises(NotResent, match="its resend was taken back meanwhile"):
            again.after(decision)


def test_a_resend_that_another_of_the_same_body_completed_meanwhile_is_complete() -> None:
    bank = begun()
    decision = taken(bank)
    with bank.session() as session:
        again = NewBody(records=records(bank), edited=lambda letter: edited(session, letter, body("fixed")))
        again.before(decision)
        assert resend(bank, "fixed").verb == "resent"
        again.after(decision)
    bank.deliver()
    assert bank.done == Counter(["fixed"])


def test_what_is_taken_back_between_the_look_and_the_claim_is_claimed_by_nobody() -> None:
    bank = begun()
    decision = taken(bank)

    class Meanwhile(OperatorsStore):
        def replace(self, changes: Sequence[Change]) -> Sequence[Written]:
            if not changes[0].new.status:  # the question whether it may write
                TakingBack(records=records(bank)).before(decision)
            return super().replace(changes)

    letter = resend(bank, "fixed", replace(records(bank), store=cast("DynamoDBStore", Meanwhile(bank))))

    assert "has just changed" in letter.why
    assert (bank.queue.messages, taken(bank).verdict) == ([], Verdict.PERMANENT)
