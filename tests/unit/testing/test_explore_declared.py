"""What a test can declare to `explore`: that a target knows no key, that a call is a look-up, that a message is handled
at most once, and which state is the user's own.
"""

from __future__ import annotations

import itertools
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver import MemoryStore, Message, PermanentError, Transaction, sqs_consumer
from idempotent_receiver.testing import Calls, explore
from tests.unit.sqs.test_sends import Sqs
from tests.unit.testing import explored, right_handlers, wrong_handlers
from tests.unit.testing.explored import bucket, services
from tests.unit.testing.handlers import ORDER, ORDERS, accounts, debit

if TYPE_CHECKING:
    pass

pytestmark = pytest.mark.filterwarnings("ignore:explore ran")


@pytest.fixture(autouse=True)
def _begin(calls: Calls) -> None:
    explored.begin(calls)


@sqs_consumer(MemoryStore())
def overdrawn(order: dict, tx: Transaction) -> None:
    debit(order, tx, PermanentError("overdrawn"))


@sqs_consumer(MemoryStore())
def stored(order: dict, message: Message) -> None:
    bucket[order["order"]] = "paid"


def test_a_message_that_fails_for_good_is_redriven_once_and_delivered_no_more() -> None:
    """Each further delivery would run the handler just as the redrive does, in more and longer schedules."""
    result = explore(overdrawn, {**ORDER, "cents": 500}, tables=accounts(), workers=1)
    assert result.complete
    assert result.acknowledged == {"message-1": "failed for good"}
    assert result.schedules <= 80


DEAD_LETTERS = "https://sqs.us-east-1.amazonaws.com/123456789012/dead-letters"


def test_a_dead_letter_that_was_not_sent_is_sent_on_another_delivery() -> None:
    """The failure is recorded as permanent before the dead letter is sent, and only sending it acknowledges."""

    @sqs_consumer(MemoryStore(), dead_letter_queue=DEAD_LETTERS, sqs=Sqs())  # type: ignore[arg-type]  # it is not called
    def invalid(order: dict) -> None:
        raise PermanentError("invalid")

    result = explore(invalid, ORDER, workers=1)
    assert result.complete
    assert result.acknowledged == {"message-1": "dead letter"}
    assert "message-1: dead letter:\n  PermanentError: invalid" in str(result)
    assert ("send", "refused") in result.played


def test_a_message_that_is_never_acknowledged_is_no_at_most_once() -> None:
    """It raises an error that is not permanent."""

    @sqs_consumer(MemoryStore())
    def refused(order: dict, message: Message) -> None:
        if message.attempt > 1:
            raise ValueError("it may have been mailed")
        services.mail("paid")

    with pytest.raises(AssertionError, match="message-1 is never acknowledged"):
        explore(refused, ORDER, at_most_once="no mail is better than two")


def test_a_call_before_a_transaction_that_is_refused_for_good_is_told_with_its_story() -> None:
    handler = wrong_handlers.charged_and_overdrawn
    found = explore(handler, wrong_handlers.OVERDRAWN, tables=accounts(), check=False, replay="").violations
    assert len(found) == 1
    violation = found[0]
    assert violation.what.startswith("charge was called for message-1, whose transaction was then refused for good")
    assert "`tx.send`" in violation.remedy
    assert violation.story[4].endswith("completes message-1: refused, because a condition failed")


def test_a_refusal_that_a_retry_may_mend_makes_no_call_in_vain() -> None:
    """The condition fails on the first attempt, and has no `otherwise`."""

    @sqs_consumer(MemoryStore())
    def too_early(order: dict, message: Message, tx: Transaction) -> None:
        services.charge(order["cents"], message.idempotency_key)
        debit({**order, "cents": 500 if message.attempt == 1 else 5}, tx)

    explore(too_early, ORDER, tables=accounts(), replay="")


def test_a_call_that_joins_messages_is_a_call_for_each() -> None:
    result = explore(right_handlers.indexed, ORDERS, replay="")
    assert [(one.name, one.message, one.keys) for one in result.calls] == [
        ("index", "message-1", 1),
        ("index", "message-2", 1),
    ]
    assert "index" in str(result)


@sqs_consumer(MemoryStore())
def mailed_once(order: dict, message: Message, tx: Transaction) -> None:
    if message.attempt > 1:
        raise PermanentError("it may have been mailed")
    services.mail("paid")


@pytest.mark.parametrize(
    "handler",
    [
        wrong_handlers.published_at_first,
        wrong_handlers.indexed_attempt,
        wrong_handlers.streamed_at_first,
        wrong_handlers.debited_and_looked,
        right_handlers.published,
        right_handlers.looked_up,
        right_handlers.mailed_at_most_once,
    ],
)
def test_what_is_declared_is_judged_as_in_its_row(handler: Any) -> None:
    """Each kind of declaration, on both sides."""
    (row,) = (row for row in (*explored.WRONG, *explored.RIGHT) if row.handler is handler)
    options = {"most_schedules": 60, **row.options}
    verdict = str(explore(row.handler, row.messages, tables=explored.tables, check=False, **options))
    assert ("violation" in verdict) == (row.told is not None)
    assert (row.told or "") in verdict


def test_without_the_declaration_at_most_once_is_a_violation() -> None:
    with pytest.raises(AssertionError, match="message-1 is failed for good, but completed in the fault-free run"):
        explore(mailed_once, ORDER)
    assert explore(mailed_once, ORDER, at_most_once="no mail is better than two").complete


def test_own_state_is_reset_before_each_run_and_at_the_end_and_is_told_with_the_effects() -> None:
    resets = itertools.count()

    def reset() -> None:
        next(resets)
        bucket.clear()
        bucket["old"] = "1"

    result = explore(stored, ORDERS, state={"bucket": (reset, lambda: bucket)}, most_schedules=60)
    assert result.effects["bucket"] == [{"old": "1"}, {"o-1": "paid"}, {"o-2": "paid"}]
    assert bucket == {"old": "1"}
    assert next(resets) > result.schedules


def test_own_rows_are_compared_in_any_order_and_without_what_varies() -> None:
    """As tables are."""
    rows: list[Any] = []
    ticks = itertools.count()

    @sqs_consumer(MemoryStore())
    def inserted(order: dict, message: Message) -> None:
        rows[:] = [row for row in rows if row[0] != order["order"]]
        rows.append((order["order"], order["cents"], next(ticks)))

    result = explore(inserted, ORDERS, state={"paid": (rows.clear, lambda: rows)}, most_schedules=60)
    assert result.unstable == ["paid.2"]


def test_the_rows_of_a_database_are_compared_by_their_columns() -> None:
    database = sqlite3.connect(":memory:", check_same_thread=False)
    database.row_factory = sqlite3.Row
    database.execute("CREATE TABLE paid (name TEXT, cents INTEGER)")

    @sqs_consumer(MemoryStore())
    def inserted(order: dict) -> None:
        database.execute("INSERT INTO paid VALUES (?, ?)", (order["order"], order["cents"]))

    def rows() -> Any:
        return database.execute("SELECT * FROM paid").fetchall()

    paid = (lambda: database.execute("DELETE FROM paid"), rows)
    told = "paid holds {'name': 'o-1', 'cents': 5}"
    with pytest.raises(AssertionError, match=told):
        explore(inserted, ORDER, state={"paid": paid})
    database.close()


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"at_least_once": True}, "at_least_once must be a reason"),
        ({"at_least_once": " "}, "at_least_once must be a reason"),
        ({"no_effects": ""}, "no_effects must be a reason"),
        ({"no_effects": "it reads", "key": "id"}, "rate cannot have no_effects with key"),
        ({"no_effects": "it reads", "raises": OSError}, "rate cannot have no_effects with key"),
        ({"no_effects": "it reads", "at_least_once": "why"}, "rate cannot have no_effects with key"),
    ],
)
def test_a_fake_with_a_wrong_declaration_is_refused(how: dict[str, Any], told: str) -> None:
    with pytest.raises(TypeError, match=told):
        Calls().fake("rate", **how)


def test_a_look_up_is_recorded_where_nothing_is_explored() -> None:
    calls = Calls()
    assert calls.fake("rate", returns=2, no_effects="it reads")("EUR") == 2
    assert [str(one) for one in calls.made] == ["rate('EUR')"]


def unreadable() -> str:
    return "rows"


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"at_most_once": True}, TypeError, "at_most_once must be a reason"),
        ({"state": {"bucket": (bucket.clear,)}}, TypeError, "a pair of functions, .reset, snapshot.; bucket is"),
        ({"state": {"bucket": (bucket.clear, bucket)}}, TypeError, "a pair of functions, .reset, snapshot."),
        ({"state": {"accounts": {}}}, ValueError, "accounts is the name of a table and of a state"),
        ({"state": {"bucket": (bucket.clear, unreadable)}}, TypeError, "the snapshot of state bucket must be a list"),
    ],
)
def test_a_wrong_declaration_is_refused(options: dict[str, Any], error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        explore(stored, ORDER, tables=accounts(), **options)
