"""The loop between a transition and a store: how it handles answers that are lost, refused, throttled or invalid."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver import MemoryStore, PermanentError, Transaction
from idempotent_receiver.clock import Deadline
from idempotent_receiver.protocol import transitions
from idempotent_receiver.protocol.exchange import (
    CLAIM_RETRIES,
    MOST_CONFLICTS,
    SETTLE_RETRIES,
    Operation,
    Unavailable,
    Unread,
    ask,
    commit,
)
from idempotent_receiver.protocol.record import Change, Record, attributes
from idempotent_receiver.protocol.store import ActionFailed, Applied, Commit, Conflict, NotApplied, Unknown
from idempotent_receiver.protocol.transitions import (
    AlreadyCompleted,
    Claim,
    Claimable,
    Claimed,
    ClaimLost,
    HeldElsewhere,
    Peek,
    Settled,
    Settlement,
)
from tests.manual_clock import START_MS, ManualClock
from tests.many_operations import run_to_completion

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SECOND = 1000


class Script:
    """A store in memory whose calls follow a script, one entry a call; None is the memory's own answer.

    An entry is an answer for each record of the call, or an exception to raise; `after(entry)` lets the call take
    effect first.
    """

    namespace = None

    def __init__(self, *entries: Any) -> None:
        self.memory = MemoryStore()
        self.entries = list(entries)
        self.calls: list[tuple[str, Any]] = []

    def insert(self, records: Sequence[Record]) -> Any:
        return self._call("insert", records, lambda: self.memory.insert(records))

    def read(self, ids: Sequence[str]) -> Any:
        return self._call("read", ids, lambda: self.memory.read(ids))

    def replace(self, changes: Sequence[Change]) -> Any:
        return self._call("replace", changes, lambda: self.memory.replace(changes))

    def commit(self, commits: Sequence[Commit]) -> Any:
        return self._call("commit", commits, lambda: self.memory.commit(commits))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.calls]

    def _call(self, name: str, argument: Any, act: Callable[[], Any]) -> Any:
        self.calls.append((name, argument))
        entry = self.entries.pop(0) if self.entries else None
        if entry is None:
            return act()
        if isinstance(entry, after):
            act()
            entry = entry.entry
        if isinstance(entry, BaseException):
            raise entry
        return entry


class after:  # noqa: N801  # reads like a word: `after([Unknown("time-out")])`
    """The call takes effect and gets this answer."""

    def __init__(self, entry: Any) -> None:
        self.entry = entry


THROTTLED = NotApplied("throttled", retry=True)
CONTENDED = NotApplied("another transaction was in the way", retry=True, contended=True)
DENIED = NotApplied("access denied", retry=False)
LOST = Unknown("the answer was lost")


def deadline(seconds: float = 30, clock: ManualClock | None = None) -> Deadline:
    return Deadline.after(ManualClock() if clock is None else clock, int(seconds * SECOND))


def claim(id: str = "k") -> Claim:
    return Claim(id=id, fingerprint="ours", owner="me", lease_until_ms=START_MS + 33_000)


def existing(status: str, **changes: Any) -> Record:
    held = {"version": "theirs", "attempts": 1, "expiration": START_MS // 1000 + 60, "owner": "them"} | changes
    return Record(id="k", status=status, **held)


def there(store: Script, seen: Record) -> None:
    store.memory.items[seen.id] = dict(attributes(seen))


def run(requests: Any, store: Script, by: Deadline, **options: Any) -> list[Any]:
    """The answers to transitions that may assume what comes with them."""
    operations = [Operation(transition, assumed) for transition, assumed in requests]
    return run_to_completion(operations, store, by, **options)


def ask_one(store: Script, transition: Any, assumed: Record | Unread | None = None, **options: Any) -> Any:
    return ask(transition, assumed, store, options.pop("by", deadline()), **options)


def claimed(store: Script) -> Claimed:
    answer = ask_one(store, claim())
    assert isinstance(answer, Claimed)
    return answer


# Claims.


def test_a_fresh_claim_is_one_insert() -> None:
    """It takes one round trip."""
    store = Script()

    answer = ask_one(store, claim())

    assert isinstance(answer, Claimed)
    assert store.names == ["insert"]
    assert store.memory.items["k"]["version"] == answer.record.version


def test_many_claims_share_a_request_and_are_answered_each_for_itself() -> None:
    """One key is free, one is completed; the answers are in the order of the claims."""
    store = Script()
    there(store, existing("COMPLETED"))

    answers = run([(claim("a"), None), (claim("k"), None), (claim("b"), None)], store, deadline())

    assert [type(answer) for answer in answers] == [Claimed, AlreadyCompleted, Claimed]
    assert store.names == ["insert"]


def test_a_conflict_that_says_what_is_there_needs_no_read() -> None:
    """A single insert asks for the old item, so one round trip is enough."""
    store = Script()
    there(store, existing("FAILED"))

    answer = ask_one(store, claim())

    assert isinstance(answer, Claimed)
    assert answer.record.attempts == 2
    assert store.names == ["insert", "replace"]


def test_a_conflict_that_does_not_say_is_settled_by_a_read() -> None:
    """The key is neither free nor completed until it has been read."""
    store = Script([Conflict(None)])
    there(store, existing("INPROGRESS", in_progress_expiration=START_MS + 5_000))

    assert ask_one(store, claim()) == HeldElsewhere(START_MS + 5_000)
    assert store.names == ["insert", "read"]


def test_a_claim_whose_answer_was_lost_is_recognised_by_its_own_version() -> None:
    """The write has taken effect, so the claim holds and nothing is written again."""
    store = Script(after([LOST]))

    answer = ask_one(store, claim())

    assert isinstance(answer, Claimed)
    assert answer.record.version == store.calls[0][1][0].version
    assert store.names == ["insert", "read"]


def test_a_claim_that_the_sdk_sent_twice_is_recognised_by_its_own_version() -> None:
    """The first request was applied and its answer lost; the second one meets its effect."""
    store = Script(after([Conflict(None)]))

    assert isinstance(ask_one(store, claim()), Claimed)
    assert store.names == ["insert", "read"]


def test_a_write_that_never_arrived_is_read_and_sent_again() -> None:
    """After a lost answer the result is unknown until a consistent read."""
    store = Script([LOST])

    assert isinstance(ask_one(store, claim()), Claimed)
    assert store.names == ["insert", "read", "insert"]


DEFECTS = [AttributeError("secret"), OSError("secret"), PermanentError("secret"), RecursionError("secret")]


def is_a_defect(answer: Any, error: Exception) -> bool:
    """Whether an answer is final, with the type and the place of what a store raised, but not its text."""
    place = rf"the store raised {type(error).__name__} at {__name__}\._call:\d+"
    return isinstance(answer, Unavailable) and not answer.retry and re.match(place, answer.why) is not None


@pytest.mark.parametrize("error", DEFECTS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("assumed", [None, Unread(), "replace"], ids=["insert", "read", "replace"])
@pytest.mark.parametrize("applied", [False, True])
def test_what_a_store_raises_ends_its_operations_at_once(error: Exception, assumed: Any, applied: bool) -> None:
    """It is a defect, which no retry helps: nothing is read or sent again, and no claim is assumed."""
    clock = ManualClock()
    store = Script(after(error) if applied else error)
    if assumed == "replace":
        assumed = existing("FAILED")
        there(store, assumed)

    answers = run([(claim(), assumed)], store, deadline(clock=clock), max_retries=SETTLE_RETRIES)

    assert all(is_a_defect(answer, error) for answer in answers)
    assert "secret" not in str(answers)
    assert len(store.calls) == 1
    assert clock.sleeps == []


def test_what_a_store_raises_ends_the_operations_of_that_request_and_no_others() -> None:
    """The insert of two keys raises; the read of a third is answered."""
    store = Script([existing("COMPLETED")], ValueError())
    wishes: Any = [(claim("a"), None), (Peek(claim("k")), Unread()), (claim("b"), None)]

    first, looked, second = run(wishes, store, deadline())

    assert is_a_defect(first, ValueError())
    assert is_a_defect(second, ValueError())
    assert isinstance(looked, AlreadyCompleted)
    assert store.names == ["read", "insert"]


@pytest.mark.parametrize("answers", [[], [Applied()], [Applied()] * 3], ids=["none", "too few", "too many"])
@pytest.mark.parametrize("assumed", [None, Unread()], ids=["insert", "read"])
def test_a_wrong_number_of_answers_is_not_believed(answers: list[Any], assumed: Any) -> None:
    """The answers cannot be matched to the requests; a faulty custom store must not end the batch."""
    store = Script(answers)

    told = run([(claim("a"), assumed), (claim("b"), assumed)], store, deadline())

    assert all(isinstance(each, Unavailable) and "the store raised ValueError" in each.why for each in told)
    assert len(store.calls) == 1


@pytest.mark.parametrize("error", DEFECTS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("applied", [False, True])
def test_a_commit_that_raises_ends_at_once(error: Exception, applied: bool) -> None:
    """A defect, or an error in the arguments, would be raised again until the deadline."""
    clock = ManualClock()
    store = Script()
    mine = claimed(store)
    store.entries = [after(error) if applied else error]

    answer = commit(settlement(mine), put().actions, store, deadline(clock=clock))

    assert is_a_defect(answer, error)
    assert store.names == ["insert", "commit"]
    assert clock.sleeps == []


def test_a_version_is_drawn_for_each_write() -> None:
    """A claim that is retried has a new version, so that a late first request can still be refused."""
    store = Script([THROTTLED], [THROTTLED])

    answer = ask_one(store, claim())

    versions = [records[0].version for name, records in store.calls if name == "insert"]
    assert len(set(versions)) == 3
    assert answer.record.version == versions[-1]


def test_only_what_was_throttled_is_sent_again() -> None:
    """The other 24 of the request have their answers."""
    store = Script([Applied()] * 24 + [THROTTLED])

    answers = run([(claim(str(number)), None) for number in range(25)], store, deadline())

    assert all(isinstance(answer, Claimed) for answer in answers)
    assert [len(argument) for _, argument in store.calls] == [25, 1]


def test_what_can_never_be_applied_is_not_retried() -> None:
    """Retrying does not help against denied access, and nothing waits for it."""
    clock = ManualClock()
    store = Script([DENIED])

    answer = ask_one(store, claim(), by=deadline(clock=clock))

    assert answer == Unavailable("access denied", retry=False)
    assert store.names == ["insert"]
    assert clock.sleeps == []


def test_a_key_that_cannot_be_written_does_not_hold_up_the_others() -> None:
    """Each statement has its own outcome."""
    store = Script([Applied(), DENIED, Applied()])

    answers = run([(claim(id), None) for id in "abc"], store, deadline())

    assert [type(answer) for answer in answers] == [Claimed, Unavailable, Claimed]


def test_what_was_not_read_is_neither_free_nor_done() -> None:
    """An unprocessed key is read again; if it is never read, the answer is `Unavailable`."""
    store = Script(*[[LOST]] * 100)

    answer = ask_one(store, claim(), Unread())

    assert answer == Unavailable("the answer was lost")
    assert set(store.names) == {"read"}
    assert "k" not in store.memory.items


def test_a_claim_gives_up_after_a_few_retries() -> None:
    """Nothing has run, so the message is better delivered again."""
    clock = ManualClock()
    store = Script(*[[THROTTLED]] * 100)

    answer = ask_one(store, claim(), by=deadline(900, clock))

    assert answer == Unavailable("throttled")
    assert len(store.calls) == 1 + CLAIM_RETRIES
    assert sum(clock.sleeps) < 1


def test_pauses_grow_and_are_bounded() -> None:
    """Exponential backoff under full jitter, never more than a second."""
    clock = ManualClock(fraction=0.999)
    store = Script(*[[THROTTLED]] * 200)

    ask_one(store, claim(), by=deadline(900, clock), max_retries=SETTLE_RETRIES)

    assert clock.sleeps[0] < clock.sleeps[1] < clock.sleeps[2]
    assert max(clock.sleeps) <= 1.0
    assert len(clock.sleeps) == SETTLE_RETRIES


def test_nothing_pauses_past_the_deadline() -> None:
    """If a pause would not end in time, the answer is given at once."""
    clock = ManualClock()
    store = Script(*[[THROTTLED]] * 200)

    answer = ask_one(store, claim(), by=deadline(2, clock), max_retries=SETTLE_RETRIES)

    assert isinstance(answer, Unavailable)
    assert clock.seconds < 2


def test_endless_contention_ends() -> None:
    """A claim that loses every race gives up instead of retrying for ever."""

    class Rival(Script):
        def replace(self, changes: Sequence[Change]) -> Any:
            self.calls.append(("replace", changes))
            return [Conflict(existing("FAILED", version=f"rival-{len(self.calls)}")) for _ in changes]

    store = Rival()

    answer = ask_one(store, claim(), existing("FAILED"))

    assert isinstance(answer, Unavailable)
    assert len(store.calls) < 50


def test_of_two_workers_that_saw_one_stale_record_one_takes_it_over() -> None:
    """The other's version is gone, and it finds the first one's claim."""
    store = Script()
    stale = existing("INPROGRESS", in_progress_expiration=START_MS - 1)
    there(store, stale)

    first = ask_one(store, claim(), stale)
    second = run(
        [(Claim(id="k", fingerprint="ours", owner="other", lease_until_ms=START_MS + 9), stale)],
        store,
        deadline(),
    )[0]

    assert isinstance(first, Claimed)
    assert second == HeldElsewhere(START_MS + 33_000)
    assert store.memory.items["k"]["owner"] == "me"


def test_a_wrong_guess_costs_a_round_trip_and_does_no_harm() -> None:
    """The record is assumed absent but completed, or assumed failed but deleted."""
    store = Script()
    there(store, existing("COMPLETED"))
    assert isinstance(ask_one(store, claim()), AlreadyCompleted)

    gone = Script()
    assert isinstance(ask_one(gone, claim(), existing("FAILED")), Claimed)
    assert gone.names == ["replace", "read", "insert"]


def test_a_record_that_ttl_deletes_between_conflict_and_read_is_claimed_by_a_new_insert() -> None:
    """It was there for the insert and is not there for the read."""
    store = Script([Conflict(None)], [None])

    assert isinstance(ask_one(store, claim()), Claimed)
    assert store.names == ["insert", "read", "insert"]


def test_a_peek_reads_and_writes_nothing() -> None:
    """It says what a claim would have to replace."""
    store = Script()
    failed = existing("FAILED")
    there(store, failed)

    assert ask_one(store, Peek(claim()), Unread()) == Claimable(failed)
    assert store.names == ["read"]


def test_an_expired_lease_is_judged_by_the_time_of_each_retry() -> None:
    """The other worker's lease may end during a pause."""
    clock = ManualClock(fraction=0.99)
    store = Script([LOST], [LOST])
    there(store, existing("INPROGRESS", in_progress_expiration=START_MS + 40))

    assert isinstance(ask_one(store, claim(), Unread(), by=deadline(clock=clock)), Claimed)


# Settlements.


def settlement(mine: Claimed) -> Settlement:
    return transitions.complete(mine, "1")


def test_a_settlement_whose_answer_was_lost_is_settled() -> None:
    """Its own new version is there: nothing is written twice."""
    store = Script()
    mine = claimed(store)
    store.entries = [after([LOST])]

    answer = ask_one(store, settlement(mine), mine.record)

    assert isinstance(answer, Settled)
    assert store.names == ["insert", "replace", "read"]


def test_a_settlement_that_the_sdk_sent_twice_is_settled() -> None:
    """The second request meets the version that the first one wrote."""
    store = Script()
    mine = claimed(store)
    store.entries = [after([Conflict(None)])]

    assert isinstance(ask_one(store, settlement(mine), mine.record), Settled)


def test_a_settlement_that_was_throttled_is_sent_again() -> None:
    """Within the deadline, as often as necessary."""
    store = Script()
    mine = claimed(store)
    store.entries = [[THROTTLED]] * 10

    assert isinstance(ask_one(store, settlement(mine), mine.record, max_retries=SETTLE_RETRIES), Settled)


@pytest.mark.parametrize("status", ["INPROGRESS", "COMPLETED", "FAILED"])
def test_a_settlement_whose_claim_was_taken_over_changes_nothing(status: str) -> None:
    """A worker that lost its claim names a version that is gone."""
    store = Script()
    mine = claimed(store)
    there(store, existing(status))

    answer = ask_one(store, settlement(mine), mine.record)

    assert isinstance(answer, ClaimLost)
    assert answer.found == existing(status)
    assert store.memory.items["k"] == attributes(existing(status))


def test_a_record_that_has_vanished_is_not_resurrected() -> None:
    """A settlement never inserts."""
    store = Script()
    mine = claimed(store)
    store.memory.items.clear()

    assert ask_one(store, settlement(mine), mine.record) == ClaimLost(None)
    assert store.memory.items == {}


# Commits.


def put() -> Transaction:
    made = Transaction()
    made.put(TableName="T", Item={"id": "1", "amount": 5})
    return made


def test_a_commit_writes_the_handlers_items_and_the_completion_together() -> None:
    """One request."""
    store = Script()
    mine = claimed(store)

    answer = commit(settlement(mine), put().actions, store, deadline())

    assert isinstance(answer, Settled)
    assert store.memory.items["k"]["status"] == "COMPLETED"
    assert list(store.memory.tables["T"].items.values()) == [{"id": "1", "amount": 5}]


@pytest.mark.parametrize("trouble", [[LOST], [THROTTLED], [CONTENDED]])
def test_a_commit_is_sent_again_as_the_very_same_change(trouble: Any) -> None:
    """The same version, the same expiration: a transaction's token allows one content."""
    store = Script()
    mine = claimed(store)
    store.entries = [trouble, None]

    answer = commit(settlement(mine), put().actions, store, deadline())

    changes = [argument[0].change for name, argument in store.calls if name == "commit"]
    assert isinstance(answer, Settled)
    assert len(changes) == 2
    assert changes[0] is changes[1]


def test_a_commit_whose_answer_was_lost_is_recognised() -> None:
    """By its version in place: the items are not written twice."""
    store = Script()
    mine = claimed(store)
    store.entries = [after([LOST])]

    answer = commit(settlement(mine), put().actions, store, deadline())

    assert isinstance(answer, Settled)
    assert store.names == ["insert", "commit", "read"]


def test_a_commit_after_a_lost_claim_writes_nothing_of_the_handlers() -> None:
    """Both are written, or neither."""
    store = Script()
    mine = claimed(store)
    there(store, existing("INPROGRESS"))

    answer = commit(settlement(mine), put().actions, store, deadline())

    assert isinstance(answer, ClaimLost)
    assert store.memory.tables.get("T") is None or not store.memory.tables["T"].items


def test_a_failed_condition_is_the_answer_and_is_not_retried() -> None:
    """It names the action whose condition did not hold."""
    store = Script()
    mine = claimed(store)
    made = put()
    made.check(TableName="T", Key={"id": "2"}, ConditionExpression="attribute_exists(id)")

    answer = commit(settlement(mine), made.actions, store, deadline())

    assert answer == ActionFailed(1)
    assert store.memory.items["k"]["status"] == "INPROGRESS"
    assert store.names == ["insert", "commit"]


def test_a_commit_that_keeps_failing_is_unavailable_and_nothing_of_it_is_visible() -> None:
    """Within the deadline."""
    clock = ManualClock()
    store = Script()
    mine = claimed(store)
    store.entries = [[THROTTLED]] * 300

    answer = commit(settlement(mine), put().actions, store, deadline(5, clock))

    assert answer == Unavailable("throttled")
    assert clock.seconds < 5
    assert store.memory.tables == {}


def test_a_commit_that_keeps_losing_to_other_transactions_is_not_an_error_but_has_its_bound() -> None:
    """However few errors are borne: it loses rounds, as to any other progress of others, with a pause after each."""
    clock = ManualClock()
    store = Script()
    mine = claimed(store)
    operation = Operation(settlement(mine), mine.record, actions=put().actions)
    store.entries = [[CONTENDED]] * 300
    store.calls.clear()

    run_to_completion([operation], store, deadline(600, clock), max_retries=CLAIM_RETRIES)

    assert operation.answer == Unavailable("another transaction was in the way")
    assert operation.contended
    assert store.names == ["commit"] * (MOST_CONFLICTS + CLAIM_RETRIES + 1)
    assert len(clock.sleeps) == MOST_CONFLICTS + CLAIM_RETRIES


def test_many_commits_are_one_request_and_each_has_its_answer() -> None:
    """Beside what is inserted and replaced in the same round."""
    store = Script()
    first, second = (ask_one(store, claim(id), None) for id in ("a", "b"))
    assert isinstance(first, Claimed)
    assert isinstance(second, Claimed)
    refused = Transaction()
    refused.check(TableName="T", Key={"id": "none"}, ConditionExpression="attribute_exists(id)")
    store.calls.clear()
    operations: list[Operation[Any]] = [
        Operation(transitions.complete(first, "1"), first.record, actions=put().actions),
        Operation(transitions.complete(second, "2"), second.record, actions=refused.actions),
        Operation(claim("c"), None),
    ]

    answers = run_to_completion(operations, store, deadline())

    assert isinstance(answers[0], Settled)
    assert answers[1] == ActionFailed(0)
    assert isinstance(answers[2], Claimed)
    assert store.names == ["insert", "commit"]


def test_a_read_that_is_refused_for_good_is_not_retried() -> None:
    """Waiting does not help against a missing permission, so the answer comes at once."""
    store, clock = Script([Unknown("access denied", retry=False)]), ManualClock()

    answer = ask_one(store, Peek(claim()), Unread(), by=deadline(clock=clock))

    assert answer == Unavailable("access denied", retry=False)
    assert (store.names, clock.sleeps) == (["read"], [])
