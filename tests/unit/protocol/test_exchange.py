"""The loop between a transition and a store: how it handles answers that are lost, refused, throttled or invalid."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver import PermanentError, Transaction
from idempotent_receiver.protocol import transitions
from idempotent_receiver.protocol.answers import AlreadyCompleted, ClaimLost, HeldElsewhere, Settled
from idempotent_receiver.protocol.exchange import CLAIM_RETRIES, MOST_CONFLICTS, SETTLE_RETRIES, Operation, commit
from idempotent_receiver.protocol.peek import Peek
from idempotent_receiver.protocol.record import Change, Record, Unread, attributes
from idempotent_receiver.protocol.store import ActionFailed, Applied, Conflict, NotApplied, Unknown
from idempotent_receiver.protocol.transitions import Claimed
from tests.manual_clock import START_MS, ManualClock
from tests.many_operations import run_to_completion
from tests.unit.protocol import script
from tests.unit.protocol.script import (
    CONTENDED,
    DENIED,
    LOST,
    THROTTLED,
    Script,
    after,
    ask_many,
    ask_one,
    claim,
    claimed,
    deadline,
    existing,
    there,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from idempotent_receiver.clock import Deadline

FAILED, COMPLETED = existing("FAILED"), existing("COMPLETED")
LEASED = existing("INPROGRESS", in_progress_expiration=START_MS + 5_000)

# Claims.


@pytest.mark.parametrize(
    ("seen", "assumed", "entries", "answer", "calls"),
    [
        pytest.param(None, None, [], Claimed, "insert", id="fresh: one round trip"),
        pytest.param(FAILED, None, [], Claimed, "insert replace", id="the conflict says what is there"),
        pytest.param(LEASED, None, [[Conflict(None)]], HeldElsewhere, "insert read", id="it does not say"),
        pytest.param(None, None, [after([LOST])], Claimed, "insert read", id="the answer was lost"),
        pytest.param(None, None, [after([Conflict(None)])], Claimed, "insert read", id="the SDK sent it twice"),
        pytest.param(None, None, [[LOST]], Claimed, "insert read insert", id="it never arrived"),
        pytest.param(COMPLETED, None, [], AlreadyCompleted, "insert", id="wrongly assumed absent"),
        pytest.param(None, FAILED, [], Claimed, "replace read insert", id="wrongly assumed failed"),
        pytest.param(None, None, [[Conflict(None)], [None]], Claimed, "insert read insert", id="deleted by TTL"),
        pytest.param(None, None, [[THROTTLED]] * 2, Claimed, "insert insert insert", id="throttled"),
    ],
)
def test_a_claim(seen: Record | None, assumed: Record | None, entries: list[Any], answer: type, calls: str) -> None:
    """Each write has a fresh version, so that a late request can still be refused, and is recognised by it."""
    store = Script(*entries)
    there(store, seen)

    told = ask_one(store, claim(), assumed)

    assert (type(told), store.names) == (answer, calls.split())
    writes = [argument[0] for name, argument in store.calls if name != "read"]
    versions = [write.new.version if isinstance(write, Change) else write.version for write in writes]
    assert len(set(versions)) == len(versions)
    if isinstance(told, Claimed):
        assert store.memory.items["k"]["version"] == told.record.version == versions[-1]
        assert told.record.attempts == (1 if seen is None else 2)


REFUSED = Unknown("access denied", retry=False)


@pytest.mark.parametrize(
    ("assumed", "entry", "answer", "calls"),
    [
        pytest.param(None, DENIED, REFUSED, 1, id="no retry helps"),
        pytest.param(Unread(), Unknown("access denied", retry=False), REFUSED, 1, id="nor where it cannot be read"),
        pytest.param(None, THROTTLED, Unknown("throttled"), 1 + CLAIM_RETRIES, id="throttled"),
        pytest.param(Unread(), LOST, Unknown("the answer was lost"), 1 + CLAIM_RETRIES, id="neither free nor done"),
    ],
)
def test_a_claim_gives_up_soon(assumed: Unread | None, entry: Any, answer: Unknown, calls: int) -> None:
    """Nothing has run, so the message is better delivered again."""
    clock, store = ManualClock(), Script(*[[entry]] * 100)
    assert ask_one(store, claim(), assumed, by=deadline(900, clock)) == answer
    assert store.names == ["insert" if assumed is None else "read"] * calls
    assert len(clock.sleeps) == calls - 1
    assert sum(clock.sleeps) < 1
    assert store.memory.items == {}


def scripted(*entries: Any) -> tuple[Script, Claimed]:
    """A store in which a key is claimed, and what it does then."""
    store = Script()
    mine = claimed(store)
    store.entries = [*entries]
    return store, mine


def told(answer: object) -> str:
    """An answer's type, or why it is unknown, without the line at which a store raised, and whether that is final."""
    if not isinstance(answer, Unknown):
        return type(answer).__name__
    return re.sub(r":\d+$", "", answer.why) + ("" if answer.retry else "!")


LOSING = [[LOST]] * 10
RAISED = f"the store raised ValueError at {script.__name__}._call!"


@pytest.mark.parametrize(
    ("asked", "entries", "answers", "calls"),
    [
        ("a k b", [], "Claimed, AlreadyCompleted, Claimed", ["insert a k b"]),
        # Only what was throttled is sent again.
        ("a b c", [[Applied(), DENIED, THROTTLED]], "Claimed, access denied!, Claimed", ["insert a b c", "insert c"]),
        # What cannot be read keeps nothing else unread.
        ("a? k?", [[LOST, COMPLETED], *LOSING], "the answer was lost, AlreadyCompleted", ["read a k", *["read a"] * 3]),
        # What a store raises ends the operations of that request and no others.
        ("a k? b", [[COMPLETED], ValueError()], f"{RAISED}, AlreadyCompleted, {RAISED}", ["read k", "insert a b"]),
    ],
)
def test_many_operations_share_requests_and_are_answered_each_for_itself(
    asked: str, entries: list[Any], answers: str, calls: list[str]
) -> None:
    """Claims of these keys, of which `k` is completed, and peeks at those with a question mark."""
    store = Script(*entries)
    there(store, COMPLETED)
    wanted = [(Peek(claim(id[0])), Unread()) if "?" in id else (claim(id), None) for id in asked.split()]

    assert ", ".join(map(told, ask_many(store, *wanted))) == answers
    assert [" ".join([name, *(getattr(one, "id", one) for one in argument)]) for name, argument in store.calls] == calls


# What a store raises.

DEFECTS = [AttributeError("secret"), OSError("secret"), PermanentError("secret"), RecursionError("secret")]


@pytest.mark.parametrize("error", DEFECTS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("name", ["insert", "read", "replace", "commit"])
@pytest.mark.parametrize("applied", [False, True])
def test_what_a_store_raises_ends_its_operations_at_once(error: Exception, name: str, applied: bool) -> None:
    """It is a defect, told without its text, which no retry helps: nothing is sent again, and no claim is assumed."""
    clock, (store, mine) = ManualClock(), scripted(after(error) if applied else error)

    if name in ("insert", "read"):
        assumed = None if name == "insert" else Unread()
        answer = ask_one(store, claim(), assumed, by=deadline(clock=clock), max_retries=SETTLE_RETRIES)
    else:
        answer = settle(store, mine, name == "commit", deadline(clock=clock))

    assert told(answer) == RAISED.replace("ValueError", type(error).__name__)
    assert (store.names, clock.sleeps) == ([name], [])


@pytest.mark.parametrize("answers", [[], [Applied()], [Applied()] * 3], ids=["none", "too few", "too many"])
@pytest.mark.parametrize("assumed", [None, Unread()], ids=["insert", "read"])
def test_a_wrong_number_of_answers_is_not_believed(answers: list[Any], assumed: Any) -> None:
    """The answers cannot be matched to the requests; a faulty custom store must not end the batch."""
    store = Script(answers)
    (first, second) = ask_many(store, (claim("a"), assumed), (claim("b"), assumed))
    assert first == second
    assert told(first).startswith("the store raised ValueError")
    assert len(store.calls) == 1


# Time, and contention.


def test_pauses_grow_and_are_bounded() -> None:
    """Exponential backoff under full jitter, never more than a second."""
    clock = ManualClock(fraction=0.999)
    ask_one(Script(*[[THROTTLED]] * 200), claim(), by=deadline(900, clock), max_retries=SETTLE_RETRIES)
    assert clock.sleeps == [min(1.0, 0.025 * 2**rounds) * 0.999 for rounds in range(1, SETTLE_RETRIES + 1)]


def test_endless_contention_ends() -> None:
    """A claim that loses every race gives up instead of retrying for ever."""

    class Rival(Script):
        def replace(self, changes: Sequence[Change]) -> Any:
            self.calls.append(("replace", changes))
            return [Conflict(existing("FAILED", version=f"rival-{len(self.calls)}")) for _ in changes]

    store = Rival()
    assert isinstance(ask_one(store, claim(), FAILED), Unknown)
    assert len(store.calls) < 50


def test_an_expired_lease_is_judged_by_the_time_of_each_retry() -> None:
    """The other worker's lease may end during a pause."""
    clock, store = ManualClock(fraction=0.99), Script([LOST], [LOST])
    there(store, existing("INPROGRESS", in_progress_expiration=START_MS + 40))
    assert isinstance(ask_one(store, claim(), Unread(), by=deadline(clock=clock)), Claimed)


# Settlements, alone and with a handler's own writes.


def put() -> Transaction:
    made = Transaction()
    made.put(TableName="T", Item={"id": "1", "amount": 5})
    return made


def settling(mine: Claimed, tx: Transaction) -> Operation[Any]:
    return Operation(transitions.complete(mine, "1"), mine.record, actions=tx.actions)


def settle(store: Script, mine: Claimed, committing: bool, by: Deadline | None = None) -> Any:
    settlement, by = transitions.complete(mine, "1"), by or deadline()
    if committing:
        return commit(settlement, put().actions, store, by)
    return ask_one(store, settlement, mine.record, by=by, max_retries=SETTLE_RETRIES)


def left(store: Script) -> tuple[Any, list[Any]]:
    """The status of the record, and what is there of the handler's."""
    tables = store.memory.tables
    return store.memory.items.get("k", {}).get("status"), [*tables["T"].items.values()] if "T" in tables else []


both_ways = pytest.mark.parametrize("committing", [False, True], ids=["alone", "committing"])


@both_ways
@pytest.mark.parametrize(
    ("entries", "calls"),
    [
        pytest.param([], "write", id="at once"),
        pytest.param([after([LOST])], "write read", id="the answer was lost"),
        pytest.param([after([Conflict(None)])], "write read", id="the SDK sent it twice"),
        pytest.param([[LOST]], "write read write", id="it never arrived"),
        pytest.param([[THROTTLED]] * 10, "write " * 11, id="throttled"),
        pytest.param([[CONTENDED]], "write write", id="contended"),
    ],
)
def test_a_settlement_takes_effect_once(committing: bool, entries: list[Any], calls: str) -> None:
    """Its own version in place tells it so. A commit is sent again as the very same: its token allows one content."""
    store, mine = scripted(*entries)

    assert isinstance(settle(store, mine, committing), Settled)
    assert store.names == calls.replace("write", "commit" if committing else "replace").split()
    assert left(store) == ("COMPLETED", [{"id": "1", "amount": 5}] if committing else [])
    if committing:
        assert len({id(argument[0].change) for name, argument in store.calls if name == "commit"}) == 1


@both_ways
@pytest.mark.parametrize("status", ["INPROGRESS", "COMPLETED", "FAILED", None])
def test_a_settlement_whose_claim_is_gone_changes_nothing(committing: bool, status: str | None) -> None:
    """A worker that lost its claim names a version that is gone; what has vanished is not resurrected."""
    store, mine = scripted()
    store.memory.items.clear()
    found = None if status is None else existing(status)
    there(store, found)

    assert settle(store, mine, committing) == ClaimLost(found)
    assert store.memory.items == ({} if found is None else {"k": attributes(found)})
    assert left(store) == (status, [])


@both_ways
def test_a_settlement_that_keeps_failing_is_unavailable_before_the_deadline(committing: bool) -> None:
    """A pause that would not end in time is not made, and nothing of it is visible."""
    clock, (store, mine) = ManualClock(), scripted(*[[THROTTLED]] * 300)

    assert settle(store, mine, committing, deadline(5, clock)) == Unknown("throttled")
    assert clock.seconds < 5
    assert left(store) == ("INPROGRESS", [])


@pytest.mark.parametrize(
    ("entry", "own", "most"),
    [
        (CONTENDED, False, MOST_CONFLICTS + CLAIM_RETRIES),
        # A handler's own throttled item is an error, and no contention.
        (NotApplied("throttled", retry=True, own=True), True, CLAIM_RETRIES),
    ],
)
def test_a_commit_that_keeps_losing_to_other_transactions_is_not_an_error_but_has_its_bound(
    entry: NotApplied, own: bool, most: int
) -> None:
    """However few errors are borne: it loses rounds, as to any other progress of others, with a pause after each."""
    clock, (store, mine) = ManualClock(), scripted(*[[entry]] * 300)
    operation = settling(mine, put())

    run_to_completion([operation], store, deadline(600, clock), max_retries=CLAIM_RETRIES)

    assert (operation.answer, operation.contended, operation.own) == (Unknown(entry.why), not own, own)
    assert store.names == ["commit"] * (most + 1)
    assert len(clock.sleeps) == most


def test_many_commits_are_one_request_and_each_has_its_answer() -> None:
    """Beside what is inserted in the same round. A failed condition is the action's answer, and is not retried."""
    store = Script()
    refused = put()
    refused.check(TableName="T", Key={"id": "none"}, ConditionExpression="attribute_exists(id)")
    settlements = [settling(claimed(store, "a"), put()), settling(claimed(store, "b"), refused)]

    done, failed, fresh = run_to_completion([*settlements, Operation(claim("c"), None)], store, deadline())

    assert (type(done), failed, type(fresh)) == (Settled, ActionFailed(1), Claimed)
    assert store.names == ["insert", "commit"]
    assert store.memory.items["b"]["status"] == "INPROGRESS"


IN_DOUBT = Unknown("data that was read has changed, and an earlier answer was lost", retry=False)


@pytest.mark.parametrize(("entries", "answer"), [([], ActionFailed(0, stale=True)), ([[LOST]], IN_DOUBT)])
def test_a_stale_read_is_told_only_if_no_earlier_answer_is_missing(entries: list[Any], answer: Any) -> None:
    """An earlier copy may still take effect, so nothing may run again."""
    store, mine = scripted(*entries)
    tx = Transaction(lambda table, key: {"id": "1", "amount": 5})
    tx.get(TableName="T", Key={"id": "1"}, attributes=["amount"])

    assert commit(transitions.complete(mine, "1"), tx.seal(), store, deadline()) == answer
    assert left(store) == ("INPROGRESS", [])
