"""A dead letter resent with another body: the old one never runs, the new one does once, and each letter ends."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver import MemoryStore, body_field
from idempotent_receiver.operations.dead_letters.history import ActOutcome
from idempotent_receiver.operations.dead_letters.resend import MOST_RECORD_BYTES, NotResent
from idempotent_receiver.operations.dead_letters.run import Run
from idempotent_receiver.operations.dead_letters.triage import Verdict
from idempotent_receiver.operations.dead_letters.verbs import redrive_dispositions, resend_dispositions
from idempotent_receiver.operations.unsent import give_up, send_from
from idempotent_receiver.payload import EVERYTHING, Document
from idempotent_receiver.protocol.record import DEFAULT_RETENTION_SECONDS, Record, attributes, from_attributes
from idempotent_receiver.protocol.resend import Resend, resend_of
from idempotent_receiver.protocol.store import NotApplied, Unknown, Written
from idempotent_receiver.sqs.dead_letter import MOST_BYTES
from idempotent_receiver.transaction.outbox import STAMP, GivenUp, from_text
from tests.queues import Crash
from tests.unit.operations.dead_letters.bank import HOLD_SECONDS, ONE_BY_ONE, Bank, both_kinds, leftovers, throttled
from tests.unit.operations.dead_letters.bucket import Bucket, archived, from_archive
from tests.unit.operations.dead_letters.resends import OperatorsStore, resending

if TYPE_CHECKING:
    from collections.abc import Sequence

    from idempotent_receiver.operations.dead_letters.run import DeadLetterResult
    from idempotent_receiver.operations.dead_letters.triage import Decision
    from idempotent_receiver.protocol.record import Change


DENIED = NotApplied("AccessDeniedException", retry=False)
LOST = Unknown("no answer")
BY_NAME = {"key": body_field("name")}
by_message_or_body = pytest.mark.parametrize("by", [{}, BY_NAME], ids=["messageId", "a key of the body"])


def body(name: str) -> str:
    return json.dumps({"name": name})


def gone_through(bank: Bank, dispositions: Any, **rules: Any) -> Run:
    bank.clock.sleep(HOLD_SECONDS + 1)
    with bank.session(**rules) as session:
        run = bank.run(session, dispositions=dispositions(session), rate=ONE_BY_ONE)
        run.carry_out(run.plan())
    return run


def resend(bank: Bank, name: str | None, store: MemoryStore | None = None, **more: Any) -> DeadLetterResult:
    """What became of the one dead letter that is there."""
    return resend_text(bank, None if name is None else body(name), store=store, **more)


def resend_text(bank: Bank, text: str | None, **more: Any) -> DeadLetterResult:
    run = gone_through(bank, lambda session: resend_dispositions(resending(session, bank, text, **more)))
    (letter,) = run.summary.letters
    return letter


def redrive(bank: Bank, **rules: Any) -> list[DeadLetterResult]:
    run = gone_through(
        bank, lambda session: redrive_dispositions(bank.queue.url, resending(session, bank, None)), **rules
    )
    return run.summary.letters


def dead(*names: str, **kind: Any) -> Bank:
    bank = Bank(a_batch=1, **kind)
    bank.store.send_messages = None  # type: ignore[assignment,method-assign]  # it sends with its client, to these queues
    for name in names or ("permanent",):
        bank.send(name, group="g")
    bank.deliver()
    return bank


def killed(bank: Bank, name: str, *, after: str = "") -> Bank:
    """The same bank, after a resend that was killed before or after its send."""

    def send(*, QueueUrl: str, Entries: Any, own: Any = bank.sqs.send_message_batch) -> Any:  # noqa: N803
        if after:
            own(QueueUrl=QueueUrl, Entries=Entries)
        raise Crash

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bank.sqs, "send_message_batch", send)
        with pytest.raises(Crash):
            resend(bank, name)
    assert taken(bank).verdict is Verdict.UNSENT
    return bank


def taken(bank: Bank) -> Decision:
    bank.clock.sleep(HOLD_SECONDS + 1)
    with bank.session() as session:
        (decision,) = session.take()
    return decision


def record_of(bank: Bank, id: str | None = None) -> Record:
    found = bank.store.items[id or taken(bank).dead_letter.record_id]
    return from_attributes(found)


def put(bank: Bank, record: Record) -> None:
    bank.store.items[record.id] = attributes(record)


def ended(bank: Bank, **done: int) -> None:
    """Every message was handled, these took effect, and no letter is left."""
    bank.deliver()
    assert (bank.done, bank.dead.messages) == (Counter(done), [])


# The new body takes effect, and once.


@both_kinds
@by_message_or_body
def test_the_record_becomes_an_outbox_of_the_new_body_before_it_is_sent(fifo: bool, by: dict[str, Any]) -> None:
    bank = dead(fifo=fifo, **by)
    letter = taken(bank).dead_letter
    before = record_of(bank)
    killed(bank, "fixed")

    record, now_ms = record_of(bank), bank.clock.epoch_ms()

    (message,) = from_text(record.outbox).values()
    assert (message.queue_url, message.arguments["MessageBody"]) == (bank.queue.url, body("fixed"))
    assert (record.status, record.validation, record.attempts) == ("SENDING", letter.fingerprint, before.attempts)
    assert record.lease_until_ms is not None
    assert record.lease_until_ms <= now_ms, "anybody may finish it at once"
    told = resend_of(record._replace(owner="another worker"))
    assert told is not None, "whose it is does not rest on the owner"
    assert (told.operator, told.why, told.message_id, told.original_id) == (
        *("alice", "a typo", letter.id),
        letter.staying.original_id,
    )
    redrive(bank)
    record = record_of(bank, letter.record_id)
    assert (record.status, record.outbox) == ("COMPLETED", None)
    ended(bank, fixed=1)


@both_kinds
def test_a_fix_that_failed_may_be_fixed_again_within_five_minutes_and_takes_effect_once(fifo: bool) -> None:
    bank = dead(fifo=fifo)
    for name in ("permanent-1", "permanent-2", "fixed"):
        assert resend(bank, name).outcome is ActOutcome.DONE
        bank.deliver()
    ended(bank, fixed=1)


@both_kinds
@by_message_or_body
def test_the_same_command_finishes_what_was_sent_but_not_marked(fifo: bool, by: dict[str, Any]) -> None:
    bank = dead(fifo=fifo, **by)
    first = resend(bank, "fixed", OperatorsStore(bank, COMPLETED=LOST))
    assert (first.outcome, first.deleted) == (ActOutcome.UNCONFIRMED, False)
    assert "its record was not completed: no answer; run the command again" in first.why

    assert resend(bank, "fixed").deleted

    assert len(bank.queue.messages) == (1 if fifo else 2), "SQS swallows the second: it is the same message"
    ended(bank, fixed=1)


# Who finishes it.


@pytest.mark.parametrize("after", ["", "the send"])
@pytest.mark.parametrize("finish", ["same body", "no body", "redrive", "stuck --send", "a copy in the queue"])
@both_kinds
@by_message_or_body
def test_each_way_to_finish_a_resend_sends_marks_and_ends_the_letter(
    fifo: bool, by: dict[str, Any], finish: str, after: str
) -> None:
    bank = dead(fifo=fifo, **by)
    id = taken(bank).dead_letter.record_id
    killed(bank, "fixed", after=after)
    match finish:
        case "redrive":
            assert [each.verb for each in redrive(bank)] == ["resent"]
        case "stuck --send":
            assert send_from(bank.store, bank.sqs, id, bank.clock, DEFAULT_RETENTION_SECONDS) is None  # type: ignore[arg-type]
        case "a copy in the queue":
            copy = taken(bank).dead_letter.copy()
            bank.sqs.send_message(QueueUrl=bank.queue.url, **copy)
            bank.deliver()
        case _:
            assert resend(bank, "fixed" if finish == "same body" else None).deleted
    if bank.dead.messages:
        assert taken(bank).verdict is Verdict.RESENT
        redrive(bank)
    ended(bank, fixed=1)


def test_what_a_redrive_follows_is_the_message_under_the_new_key() -> None:
    bank = killed(dead(**BY_NAME), "fixed")
    run = gone_through(bank, lambda session: redrive_dispositions(bank.queue.url, resending(session, bank, None)))
    assert [tuple(each) for each in run.returned.values()] == [("bank#fixed", "fixed", None)]


def test_a_copy_of_the_old_body_waits_where_the_consumer_cannot_send() -> None:
    bank = killed(dead(), "fixed")
    bank.sqs.broken.add("send_message_batch")
    bank.sqs.send_message(QueueUrl=bank.queue.url, **taken(bank).dead_letter.copy())
    bank.receive_once()
    assert len(bank.queue.messages) == 1, "it failed, and comes back"
    bank.sqs.broken.clear()
    redrive(bank)
    ended(bank, fixed=1)


@pytest.mark.parametrize("hides", ["PERMANENT", "TOO_OLD", "NO_ROOM"])
def test_a_redrive_finishes_what_else_would_stay(hides: str) -> None:
    crowd = {f"a{n}": {"DataType": "String", "StringValue": "x" * 100} for n in range(9)}
    bank = Bank()
    bank.send("permanent", attributes=crowd if hides == "NO_ROOM" else None)
    bank.deliver()
    killed(bank, "fixed")
    if hides == "NO_ROOM":
        del bank.dead.messages[0].sent["MessageAttributes"]["a0"]
        bank.dead.messages[0].sent["MessageBody"] = bank.dead.messages[0].sent["MessageBody"]
    rules = {"retention_seconds": 1} if hides == "TOO_OLD" else {}
    assert [each.verdict for each in redrive(bank, **rules)] == [Verdict.UNSENT]
    ended(bank, fixed=1)


def given_up(bank: Bank) -> None:
    reason = GivenUp(bank.queue.url, "alice", "nobody wants it")
    id = next(id for id, item in bank.store.items.items() if item["status"] == "SENDING")
    give_up(bank.store, id, 1, reason, clock=bank.clock, retention_seconds=DEFAULT_RETENTION_SECONDS)


@by_message_or_body
def test_a_letter_whose_resend_was_given_up_stays_until_another_body_is_sent(by: dict[str, Any]) -> None:
    """Neither of its bodies ran, so a redrive of everything must not drop it."""
    bank = killed(dead(**by), "fixed")
    given_up(bank)
    (letter,) = redrive(bank)
    assert (letter.verdict, letter.deleted) == (Verdict.CONFLICT, False)
    assert "was given up, so neither body runs" in letter.why
    assert resend(bank, "fixed").deleted
    ended(bank, fixed=1)


def test_whoever_planned_to_finish_a_resend_that_was_given_up_meanwhile_keeps_the_letter() -> None:
    bank = killed(dead(), "fixed")
    bank.clock.sleep(HOLD_SECONDS + 1)
    with bank.session() as session:
        dispositions = redrive_dispositions(bank.queue.url, resending(session, bank, None))
        run = bank.run(session, dispositions=dispositions, rate=ONE_BY_ONE)
        plan = run.plan()
        given_up(bank)
        run.carry_out(plan)
    assert not run.summary.letters[0].deleted
    assert taken(bank).verdict is Verdict.CONFLICT


def test_a_body_that_differs_is_refused_with_what_is_going_out() -> None:
    """Whether it is another one or gained a newline; without a body the resend is finished."""
    bank = killed(dead(), "fixed")
    for other in (body("other"), body("fixed") + "\n"):
        letter = resend_text(bank, other)
        assert letter.outcome is ActOutcome.REFUSED
        assert f"another body, of {len(body('fixed'))} characters, is going out as" in letter.why
        assert "alice began its resend (a typo). Finish it without --body" in letter.why
    assert resend(bank, None).deleted
    ended(bank, fixed=1)


def test_without_a_body_nothing_is_begun() -> None:
    bank = dead()
    before = dict(bank.store.items)
    letter = resend(bank, None)
    assert "give --body FILE with the complete new body" in letter.why
    assert (bank.store.items, bank.queue.messages, len(bank.dead.messages)) == (before, [], 1)


@by_message_or_body
def test_a_body_is_replaced_only_once_its_queue_is_gone(by: dict[str, Any]) -> None:
    bank = killed(dead(**by), "fixed")
    assert "is going out as" in resend(bank, "replaced").why
    gone = bank.queue
    del bank.sqs.queues[gone.url]
    assert "NonExistentQueue" in redrive(bank)[0].why
    bank.queue = bank.sqs.create("transfers-2", bank.dead)
    for kept in bank.dead.messages:
        attribute = kept.sent["MessageAttributes"]["idempotent-receiver"]
        attribute["StringValue"] = attribute["StringValue"].replace(gone.arn, bank.queue.arn)
    assert resend(bank, "replaced").deleted
    ended(bank, replaced=1)


def test_a_body_is_replaced_only_once_its_queue_takes_none_so_long() -> None:
    bank = killed(dead(), "x" * 2000)
    assert "is going out as" in resend(bank, "fixed").why
    bank.queue.most_bytes = 1024
    assert "MessageTooLong" in redrive(bank)[0].why
    assert resend(bank, "fixed").deleted
    ended(bank, fixed=1)


def test_a_queues_limit_is_read_before_the_record_is_written() -> None:
    bank = dead()
    bank.queue.most_bytes = 1024
    before = dict(bank.store.items)
    letter = resend(bank, "x" * 2000)
    assert f"and {bank.queue.url} takes 1024" in letter.why
    assert (bank.store.items, bank.queue.messages) == (before, [])


# Two at once.


def test_a_live_lease_is_a_verdict_of_its_own_before_all_others() -> None:
    bank = killed(dead(), "fixed")
    record = record_of(bank)
    put(bank, record._replace(version="w", owner="worker", in_progress_expiration=bank.clock.epoch_ms() + 10_000_000))
    decision = taken(bank)
    assert decision.verdict is Verdict.RESENDING
    assert "worker is sending it until" in decision.why
    assert [each.outcome for each in redrive(bank, retention_seconds=1)] == [None], "it stays"
    with bank.session() as session, pytest.raises(NotResent, match="worker is sending its new body, until"):
        resending(session, bank, body("fixed")).carry_out(decision)


@pytest.mark.parametrize("then", ["completed", "taken over"])
def test_a_mark_that_is_refused_looks_again(then: str) -> None:
    bank = dead()
    id = taken(bank).dead_letter.record_id

    class Meanwhile(OperatorsStore):
        def replace(self, changes: Sequence[Change]) -> Sequence[Written]:
            record = record_of(bank, id)
            over = {"version": "w", "owner": "worker-7"}
            put(
                bank,
                record._replace(**over, status="COMPLETED", outbox=None)
                if then == "completed"
                else record._replace(**over, in_progress_expiration=bank.clock.epoch_ms() + 1000),
            )
            return super().replace(changes)

    letter = resend(bank, "fixed", Meanwhile(bank))

    if then == "completed":
        assert letter.deleted, "another sender has marked it as the same message"
    else:
        assert (letter.outcome, letter.deleted) == (ActOutcome.UNCONFIRMED, False)
        assert "its resend is being finished by worker-7: run the command again" in letter.why
        redrive(bank)
    ended(bank, fixed=1)


def test_of_two_commands_at_once_one_body_goes_out() -> None:
    bank = dead()
    other = OperatorsStore(bank, meanwhile=lambda: killed(bank, "fixed"))
    assert "has just changed: run the command again" in resend(bank, "other", other).why
    redrive(bank)
    ended(bank, fixed=1)


@both_kinds
def test_a_finished_resend_is_deleted_by_whoever_planned_to_finish_it(fifo: bool) -> None:
    bank = killed(dead(fifo=fifo), "fixed")
    decision = taken(bank)
    send_from(bank.store, bank.sqs, decision.dead_letter.record_id, bank.clock, 1000)  # type: ignore[arg-type]
    with bank.session() as session:
        resending(session, bank, None).carry_out(decision)
    redrive(bank)
    ended(bank, fixed=1)


# The new key: each story to its effects.


def test_the_producers_own_message_under_the_new_key_takes_effect_however_the_resend_was_killed() -> None:
    """Nothing is written under the new key: neither is it a duplicate, nor is its dead letter dropped as done."""
    bank = killed(dead(**BY_NAME), "17")
    assert "bank#17" not in bank.store.items
    bank.send("17")
    bank.kill_by_receives(handle=False)
    bank.clock.sleep(HOLD_SECONDS + 1)
    with bank.session() as session:
        assert sorted(each.verdict for each in session.take()) == [Verdict.MOVE, Verdict.UNSENT]
    redrive(bank)
    ended(bank, **{"17": 1})


@by_message_or_body
def test_a_resend_ends_whose_new_body_failed_and_was_itself_resent(by: dict[str, Any]) -> None:
    bank = killed(dead(**by), "permanent-2", after="the send")
    first = bank.dead.messages.pop()
    bank.deliver()
    assert resend(bank, "fixed").deleted
    bank.dead.messages.append(first)
    first.visible_seconds = 0
    redrive(bank)
    ended(bank, fixed=1)


def test_a_resend_ends_whose_new_key_the_producer_used_meanwhile() -> None:
    bank = killed(dead(**BY_NAME), "17")
    bank.send("17")
    bank.deliver()
    redrive(bank)
    ended(bank, **{"17": 1})


def test_a_circle_of_resends_is_refused() -> None:
    """A is resent as B, B fails, and B is to be resent as A: nothing would have any effect."""
    bank = dead("permanent-a", **BY_NAME)
    assert resend(bank, "permanent-b").deleted
    bank.deliver()
    letter = resend(bank, "permanent-a")
    assert "the new body's key permanent-a was itself resent, as bank#permanent-b" in letter.why
    assert letter.outcome is ActOutcome.REFUSED
    assert resend(bank, "fixed").deleted
    ended(bank, fixed=1)


@pytest.mark.parametrize("at_once", [False, True], ids=["in turn", "at once"])
@both_kinds
def test_of_two_crossed_letters_the_second_is_refused(fifo: bool, at_once: bool) -> None:
    """A is resent as B and B as A: both would be acknowledged with no effect."""
    bank = dead("permanent-a", "permanent-b", fifo=fifo, **BY_NAME)
    bank.clock.sleep(HOLD_SECONDS + 1)
    with bank.session() as session:
        a, b = sorted(session.take(), key=lambda each: each.dead_letter.key)
        first = resending(session, bank, body("permanent-b"))
        if at_once:  # the second has looked at everything before the first writes
            store = OperatorsStore(bank, meanwhile=lambda: first.carry_out(a))
            second = resending(session, bank, body("permanent-a"), store)
        else:
            first.carry_out(a)
            second = resending(session, bank, body("permanent-a"))
        with pytest.raises(NotResent, match=r"has just changed" if at_once else "was itself resent, as"):
            second.carry_out(b)
    bank.mended = True
    redrive(bank, include_permanent=True)
    ended(bank, **{"permanent-b": 1})


def test_the_letters_own_key_is_refused_whether_or_not_its_record_has_a_fingerprint() -> None:
    bank = Bank(a_batch=1, **BY_NAME)
    bank.send("permanent")
    bank.kill_by_receives(handle=False)  # it never ran, so it has no record
    before = dict(bank.store.items)
    text = '{"name": "permanent", "amount": 2}'
    letter = resend_text(bank, text)
    assert "the new body has the same key, permanent" in letter.why
    assert (bank.store.items, bank.queue.messages) == (before, [])
    bank.mended = True
    redrive(bank)
    ended(bank, permanent=1)


def test_a_new_key_that_is_done_or_was_used_for_another_payload_is_refused() -> None:
    bank = dead(**BY_NAME)
    fingerprint = EVERYTHING.fingerprint(Document.of_text(body("17")))
    done = Record(id="bank#17", status="COMPLETED", version="v", validation=fingerprint, expiration=9_999_999_999)
    for record, why in (
        (done, "a message with this body has completed under the key 17"),
        (done._replace(status="SENDING", in_progress_expiration=1), "a message with this body has completed"),
        (done._replace(validation="another"), "the new body's key 17 was used for another payload"),
    ):
        put(bank, record)
        assert why in resend(bank, "17").why
    assert len(bank.dead.messages) == 1


def test_a_letter_without_a_fingerprint_needs_the_consumers_payload() -> None:
    bank = throttled(1)
    assert "the consumer's payload= is not known: give --consumer" in resend(bank, "fixed", payload_known=False).why
    assert resend(bank, "fixed").deleted
    bank.deliver()
    assert bank.done == Counter(["fixed"])


# What has no record of its own.


@both_kinds
@pytest.mark.parametrize("verdict", [Verdict.CONFLICT, Verdict.UNKEYED])
def test_what_has_no_record_of_its_own_is_resent_and_anothers_record_stays(fifo: bool, verdict: Verdict) -> None:
    if verdict is Verdict.CONFLICT:
        bank = leftovers(fifo=fifo)
        bank.dead.messages = [each for each in bank.dead.messages if "conflict" in each.sent["MessageBody"]]
    else:
        bank = dead("x" * 3000, fifo=fifo, **BY_NAME)
    assert taken(bank).verdict is verdict
    before = dict(bank.store.items)

    assert resend(bank, "fixed").deleted

    assert bank.store.items == before
    bank.deliver()
    assert bank.done["fixed"] == 1


def conflicting() -> Bank:
    """A bank on FIFO queues with keys of the body, and a letter whose key another payload has."""
    bank = dead(fifo=True, **BY_NAME)
    put(bank, record_of(bank)._replace(validation="another payload", status="COMPLETED"))
    assert taken(bank).verdict is Verdict.CONFLICT
    return bank


def test_on_fifo_a_second_body_is_not_swallowed_for_the_first() -> None:
    bank = conflicting()
    bank.sqs.undeletable.add(bank.dead.url)
    for text in ('{"name": "new", "amount": 1}', '{"name": "new", "amount": 2}'):
        resend_text(bank, text)
    assert len(bank.queue.messages) == 2


def test_a_conflicting_letter_is_not_resent_under_a_key_that_is_its_own_or_done() -> None:
    bank = conflicting()
    assert "the new body has the same key, permanent" in resend(bank, "permanent").why
    bank.send("17")
    bank.deliver()
    assert "has completed under the key 17" in resend(bank, "17").why
    assert len(bank.dead.messages) == 1


def test_a_derived_key_is_made_of_the_key_the_first_id_and_the_body() -> None:
    bank = dead()

    def key(text: str = "a") -> str:
        return str(json.loads(taken(bank).dead_letter.derived(text)[STAMP]["StringValue"])["key"])

    first = key()
    assert len({first, key("b"), key("\ud800"), taken(bank).dead_letter.key}) == 4
    bucket = Bucket(bank)
    archived(bank, bucket)
    from_archive(bank, bucket)
    assert key() == first, "it has another messageId, and is the same dead letter"


# Limits.


def test_what_fits_is_the_record_with_the_text_of_the_outbox_less_a_kilobyte() -> None:
    bank = dead()
    for size in (300_000, MOST_RECORD_BYTES - 3000):
        assert "its record would have" not in resend(bank, "y" * size, OperatorsStore(bank, SENDING=LOST)).why
    letter = resend(bank, "y" * MOST_RECORD_BYTES)
    assert f"and {MOST_RECORD_BYTES} fit: have the producer send the corrected message" in letter.why
    quoted = resend_text(bank, json.dumps({"name": '"' * 110_000}))
    assert "its record would have" in quoted.why, "JSON in JSON grows"


def test_a_body_that_sqs_takes_nowhere_is_refused_before_anything_is_written() -> None:
    bank = dead()
    before = dict(bank.store.items)
    letter = resend(bank, "x" * (MOST_BYTES - 50))
    assert "SQS would refuse its new message" in letter.why
    assert bank.store.items == before


def test_without_permission_to_write_the_record_nothing_is_sent_and_nothing_deleted() -> None:
    bank = throttled(1)
    before = dict(bank.store.items)
    letter = resend(bank, "fixed", OperatorsStore(bank, SENDING=DENIED))
    assert letter.outcome is ActOutcome.REFUSED
    assert "AccessDeniedException" in letter.why
    assert (bank.queue.messages, len(bank.dead.messages), bank.store.items) == ([], 1, before)


# What a version before left.


def claimed(bank: Bank, name: str) -> Bank:
    """The same bank, whose letter a version before has claimed to resend it with this body."""
    letter, before = taken(bank).dead_letter, record_of(bank)
    with bank.session() as session:
        new = resending(session, bank, body(name))._edited(letter, own=False)
    old = Resend(
        old_id=letter.record_id,
        new_id=new.record_id,
        fingerprint=new.fingerprint,
        operator="bob",
        why="before",
    )
    until_ms = bank.clock.epoch_ms() + DEFAULT_RETENTION_SECONDS * 1000
    put(
        bank,
        before._replace(status="INPROGRESS", owner="bob", resent=old.to_json(), in_progress_expiration=until_ms),
    )
    return bank


@pytest.mark.parametrize("sent", [False, True], ids=["claimed", "claimed and sent"])
@both_kinds
@by_message_or_body
def test_what_a_version_before_claimed_is_sent_under_its_own_key(fifo: bool, by: dict[str, Any], sent: bool) -> None:
    bank = claimed(dead(fifo=fifo, **by), "fixed")
    if sent:
        with bank.session() as session:
            copy = resending(session, bank, body("fixed"))._edited(taken(bank).dead_letter, own=False).resent()
        bank.sqs.send_message(QueueUrl=bank.queue.url, **copy)
        bank.deliver()
        bank.clock.sleep(301)
    assert taken(bank).verdict is Verdict.UNSENT
    (left,) = redrive(bank)
    assert "bob began it as" in left.why
    assert "with a version before: give --body FILE" in left.why
    assert "bob began to send it with another body" in resend(bank, "other").why

    assert resend(bank, "fixed").deleted

    ended(bank, fixed=1)


def test_what_a_version_before_took_back_is_never_done() -> None:
    """It has closed the key of a genuine message, under which nothing ever ran."""
    bank = throttled(1)
    letter = taken(bank).dead_letter
    back = Resend(old_id="another", new_id=letter.record_id, fingerprint="f", operator="bob", why="before")
    put(
        bank,
        Record(
            id=letter.record_id,
            status="COMPLETED",
            version="v",
            validation=letter.fingerprint,
            owner="bob",
            resent=back.to_json(),
            expiration=9_999_999_999,
        ),
    )
    assert taken(bank).verdict is Verdict.CONFLICT
    assert [each.outcome for each in redrive(bank)] == [None]
    assert resend(bank, "fixed").deleted
    ended(bank, fixed=1)
