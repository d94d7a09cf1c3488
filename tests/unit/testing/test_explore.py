"""`explore`: right handlers pass, wrong ones fail with their story, and nothing that it says it plays is left out."""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import replace
from functools import wraps
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from moto import mock_aws

from idempotent_receiver import (
    DynamoDBStore,
    MemoryStore,
    Message,
    Transaction,
    event_id,
    http_endpoint,
    powertools_key,
    sqs_consumer,
)
from idempotent_receiver.process_end import lifetime
from idempotent_receiver.protocol.store import Applied, Commit
from idempotent_receiver.testing import Table, baseline, explore, lambda_context, schedule, sqs_event, stuck
from tests.unit.testing import handlers
from tests.unit.testing.handlers import ORDER, ORDERS, accounts, balances, debit, seen, services

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from idempotent_receiver.protocol.record import Change
    from idempotent_receiver.testing import Calls, Exploration

pytestmark = pytest.mark.filterwarnings("ignore:explore ran")
"""Most tests need no more schedules than they play."""

ROOT = Path(__file__).resolve().parents[3]
DEAD_LETTERS = "https://sqs.us-east-1.amazonaws.com/123456789012/dead-letters"


@pytest.fixture
def charge(calls: Calls) -> None:
    calls.replace(services, "charge", key="key")


@pytest.fixture
def notify(calls: Calls) -> None:
    calls.replace(services, "notify", key="key")


@pytest.fixture(autouse=True)
def _fresh() -> None:
    balances.clear()
    balances["alice"] = 100
    seen.clear()


def at(result: Exploration, what: str) -> set[str]:
    """Where something was played."""
    return {kind for kind, played in result.played if played == what}


# Right handlers.


def test_a_transaction_survives_everything() -> None:
    """And what was played is told: a crash before and after every call of the store, and all else that may happen."""
    result = explore(handlers.transactional, ORDER, tables=accounts())

    assert result.violations == []
    assert result.complete
    assert result.schedules == 164
    assert result.effects == {"accounts": [{"account": "alice", "balance": 95}]}
    assert result.acknowledged == {"message-1": "completed"}
    assert result.calls == []
    calls = {"insert", "read", "commit"}
    assert at(result, "crash-before") == at(result, "timeout") == calls
    for what in set(schedule.WRITE) - {"crash-before", "timeout"}:
        assert at(result, what) == calls - {"read"}, what
    assert at(result, "raises") == at(result, "fails") == {"handler"}
    assert at(result, schedule.SLOW) >= calls


def test_a_handler_may_choose_to_run_later() -> None:
    """That is a failure which the next delivery mends, whatever else goes wrong."""
    result = explore(handlers.too_early_at_first, ORDER, tables=accounts())
    assert result.violations == []
    assert result.effects == {"accounts": [{"account": "alice", "balance": 95}]}
    assert result.acknowledged == {"message-1": "completed"}


@pytest.mark.usefixtures("charge")
def test_a_call_with_the_messages_key_may_be_made_again() -> None:
    result = explore(handlers.keyed, ORDER, tables=accounts())
    assert [(one.name, one.message, one.times, one.keys) for one in result.calls] == [("charge", "message-1", 5, 1)]
    assert "charge for message-1: at least once, at most 5 times, same key" in str(result)
    assert ("call charge", "crash-after") in result.played
    assert ("before charge", schedule.SLOW) in result.played


def test_a_handler_may_swallow_an_error(calls: Calls) -> None:
    calls.replace(services, "charge", key="key", raises=ConnectionError("reset"))
    result = explore(handlers.swallowing, ORDER, tables=accounts())
    assert ("call charge", "lost") in result.played


@pytest.mark.parametrize("refuses", [ValueError, ValueError("declined")])
def test_a_call_is_refused_once_and_each_time_and_takes_no_effect(calls: Calls, refuses: Any) -> None:
    """The story says so, whether a class of errors is given or one of them."""
    taken = lambda cents, key: balances.update(bob=cents)  # noqa: E731  # what a fake does
    calls.replace(services, "charge", key="key", refuses=refuses, returns=taken)
    result = explore(handlers.ignoring, ORDER, state={"balances": balances}, check=False)
    assert ("call charge", "refused") in result.played
    assert ("call charge", "refused-each-time") in result.played
    (violation,) = result.violations
    assert violation.remedy.startswith("do not catch the error of a refused call")
    assert "which refuses: ValueError" in violation.story[3]
    assert violation.what == "charge was refused for message-1, which ends as if the call had succeeded"


@pytest.mark.nightly
@pytest.mark.usefixtures("notify")
@pytest.mark.parametrize("fifo", [False, True])
def test_a_coroutine_may_await_what_asyncio_offers(fifo: bool) -> None:
    """Two at once, in order where the queue keeps it, with a key of their own."""
    result = explore(handlers.concurrent, sqs_event(*ORDERS, fifo=fifo), tables=accounts())
    assert result.effects["accounts"][0]["balance"] == 88
    assert {one.message: one.keys for one in result.calls} == {"o-1": 1, "o-2": 1}
    assert ("delivery", schedule.DEALT) in result.played or fifo


@pytest.mark.nightly
@pytest.mark.usefixtures("charge")
def test_a_running_loop_is_left_alone() -> None:
    """`explore` may be called where asyncio runs, and its loops know nothing of each other's generators."""

    async def main() -> Exploration:
        async def numbers() -> AsyncIterator[int]:
            yield 1
            yield 2

        ours = numbers()
        assert await anext(ours) == 1
        result = explore(handlers.generating, ORDERS)
        assert await anext(ours) == 2
        await asyncio.sleep(0)
        return result

    assert asyncio.run(main()).violations == []


@pytest.mark.parametrize("handler", [handlers.stubborn, handlers.stubborn_coroutine])
def test_a_handler_may_catch_whatever_is_raised_until_its_call_succeeds(handler: Any, calls: Calls) -> None:
    """The end of its worker, too, as long as it is there to try: it is left where it stands then."""
    calls.replace(services, "charge", key="key", raises=TimeoutError())
    calls.replace(services, "notify", key="key", raises=TimeoutError())
    handlers.turns.clear()
    explore(handler, ORDER)
    assert 1 < max(handlers.turns) < handlers.MOST_TURNS - 1


@pytest.mark.nightly
@pytest.mark.usefixtures("notify")
def test_a_handler_may_run_a_loop_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which takes no real time, and the other worker goes first where a call in it is slow."""
    told: list[float] = []
    sleep = asyncio.sleep

    async def slept(seconds: float) -> None:
        told.append(seconds)
        await sleep(0)

    monkeypatch.setattr("idempotent_receiver.testing.calls.asyncio", SimpleNamespace(sleep=slept))
    result = explore(handlers.running_a_loop, ORDERS, tables=accounts())
    assert ("before notify", schedule.SLOW) in result.played
    assert set(told) == {0.0}


@pytest.mark.usefixtures("charge")
def test_two_threads_may_explore() -> None:
    """One after the other: the fakes are the process's."""
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda _: explore(handlers.keyed, ORDER, tables=accounts(), most_schedules=40), range(2))
        assert [one.violations for one in found] == [[], []]


@pytest.mark.usefixtures("charge")
def test_a_thread_is_left_as_it_was() -> None:
    """Without the hooks of a loop that is no more."""
    explore(handlers.generating, ORDERS, most_schedules=100)
    assert tuple(sys.get_asyncgen_hooks()) == (None, None)
    with pytest.raises(RuntimeError, match="no running event loop"):
        asyncio.get_running_loop()


@pytest.mark.usefixtures("charge")
def test_a_function_that_is_called_once_for_each_key_may_be_nested() -> None:
    result = explore(handlers.nesting, ORDER, tables=accounts(), state={"inner": handlers.inner})
    assert {(one.name, one.message, one.keys) for one in result.calls} == {("charge", "o-1", 1)}
    assert handlers.inner.items == {}


@pytest.mark.nightly
def test_what_a_transaction_refuses_for_good_is_a_dead_letter_every_time() -> None:
    """It is redriven in between, and sent by whoever comes to that."""
    sqs = boto3.client("sqs", region_name="us-east-1")
    consumer = handlers.transactional
    options = replace(consumer.options, sqs=sqs, dead_letter_queue=DEAD_LETTERS)
    consumer = consumer.with_options(options, _overdrawn)
    result = explore(consumer, {**ORDER, "cents": 500}, tables=accounts())
    assert result.acknowledged == {"message-1": "dead letter"}
    assert result.effects["accounts"][0]["balance"] == 100
    assert {what for kind, what in result.played if kind == "send"} == {*schedule.SEND, schedule.SLOW}


@pytest.mark.parametrize("max_attempts", [3, 5])
def test_a_message_that_fails_each_time_uses_up_its_attempts_whatever_crashes(max_attempts: int) -> None:
    """A redrive gives it all of them again, and a crash on the way takes a receive."""
    sqs = boto3.client("sqs", region_name="us-east-1")

    @sqs_consumer(DynamoDBStore("records"), sqs=sqs, dead_letter_queue=DEAD_LETTERS, max_attempts=max_attempts)
    def fail(order: dict, tx: Transaction) -> None:
        raise KeyError(order["order"])

    result = explore(fail, ORDER, workers=1)
    assert result.acknowledged == {"message-1": "dead letter"}
    assert "message-1: dead letter:\n  KeyError" in str(result)


def _overdrawn(order: dict, tx: Transaction) -> None:
    handlers.debit(order, tx, handlers.PermanentError("overdrawn"))


def test_what_the_clock_says_is_not_compared() -> None:
    @sqs_consumer(MemoryStore())
    def dated(order: dict, tx: Transaction) -> None:
        tx.put(TableName="orders", Item={"order": order["order"], "at": str(handlers.uuid4())})

    result = explore(dated, ORDER)
    assert result.unstable == ["orders.at"]
    assert "varies between runs: orders.at" in str(result)


def test_a_second_that_begins_meanwhile_is_no_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that counts seconds is the same for a while, and then is not: a second look shows that."""
    runs = itertools.count()
    ahead: list[float] = []

    @sqs_consumer(MemoryStore())
    def dated(order: dict, tx: Transaction) -> None:
        tx.put(TableName="orders", Item={"order": order["order"], "at": next(runs) // 20 + len(ahead)})

    class Waited:
        def sleep(self, seconds: float) -> None:
            ahead.append(seconds)

    monkeypatch.setattr(baseline, "SystemClock", Waited)
    assert explore(dated, ORDER).unstable == ["orders.at"]
    assert min(ahead) > 1


# Wrong handlers.

WRONG = [
    (handlers.unkeyed, {}, "charge was called 2 times for message-1, without an idempotency key"),
    (handlers.freshly_keyed, {}, "charge was called again for message-1 with a different key"),
    (handlers.keyed_by_attempt, {}, "charge was called again for message-1 with a different key"),
    (handlers.keyed_by_receipt, {}, "charge was called again for message-1 with a different key"),
    (
        handlers.retrying,
        {"workers": 1},
        r"with a different key(?s:.*)does not get the answer: ConnectionError\('reset'\)",
    ),
    (handlers.leaving_early, {}, "never called for message-1, which ended(?s:.*)A crashes before the answer arrives"),
    (handlers.forgetting_freight, {}, "charge was called too few times for message-1, which ended"),
    (handlers.leaving_a_task, {}, "notify was called for message-1 and had not been awaited when the handler returned"),
    (handlers.outside, {"state": {"balances": balances}}, "balances is {'alice': 90} at the end, and {'alice': 95}"),
    (handlers.remembering, {"state": {"seen": seen}}, r"the table accounts holds {.*100} instead of {.*95}"),
    (handlers.remembering, {}, "accounts.balance is correct only the first time"),
    (handlers.remembering_items, {}, "the table accounts holds 2 items after one run, 1 after the next"),
    (handlers.never_ready, {}, "message-1 is never acknowledged, even in the fault-free run:\n  closed"),
    (handlers.failing, {}, "message-1 is never acknowledged, even in the fault-free run:\n  ValueError: always"),
    (handlers.keyed_at_random, {}, "the key of message-1 changes with each delivery"),
    (handlers.keyed_by_delivery, {}, "the key of message-1 changes with each delivery"),
    # The strategy `message_id` knows that a redriven message has another messageId; a callable of one's own may not.
    (handlers.keyed_by_new_id, {}, r"holds {.*90} instead of {.*95}(?s:.*)runs the handler for message-1-redriven"),
]


@pytest.mark.usefixtures("notify")
@pytest.mark.parametrize(("handler", "options", "told"), WRONG, ids=lambda one: getattr(one, "__name__", ""))
def test_a_planted_mistake_is_found(handler: Any, options: dict[str, Any], told: str, calls: Calls) -> None:
    calls.replace(services, "charge", key="key", raises=ConnectionError("reset"))
    with pytest.raises(AssertionError, match=told):
        explore(handler, ORDER, tables=accounts(), **options)


def test_of_a_handler_that_always_fails_the_first_failure_is_told() -> None:
    """The other five attempts are the same."""
    (violation,) = explore(handlers.failing, ORDER, check=False).violations
    assert violation.story == (
        "worker A receives message-1",
        "A claims message-1",
        "A runs the handler for message-1",
        "A's handler raises ValueError('always')",
        "A records the failure of message-1",
        "A leaves message-1 for redelivery",
    )


@pytest.mark.usefixtures("charge")
def test_two_messages_at_once_race_for_what_is_outside_the_transaction() -> None:
    """Nothing fails: they only run at once, while the undisturbed course is one after the other."""
    with pytest.raises(AssertionError, match=r"at the end, and {'alice': 88} in the fault-free run") as failed:
        explore(handlers.racing, ORDERS, state={"balances": balances}, workers=1, faults=0)
    assert 'replay=""' in str(failed.value)


@pytest.mark.nightly
def test_messages_that_depend_on_their_order_are_found() -> None:
    """On a standard queue either may come first; on a FIFO queue they may not."""
    both = [{**ORDER, "cents": 70}, {**ORDER, "cents": 60}]
    with pytest.raises(AssertionError, match="message-1 is failed for good, but completed in the fault-free run"):
        explore(handlers.overdrawing, both, tables=accounts(), most_schedules=300)
    explore(handlers.overdrawing, sqs_event(*both, fifo=True), tables=accounts(), most_schedules=300)


@pytest.mark.usefixtures("charge")
def test_so_do_two_workers_with_a_message_each() -> None:
    consumer = handlers.racing.with_options(replace(handlers.racing.options, concurrency=1))
    with pytest.raises(AssertionError, match=r"at the end, and {'alice': 88} in the fault-free run") as failed:
        explore(consumer, ORDERS, state={"balances": balances}, faults=0)
    story = str(failed.value)
    assert (
        story.index("A waits before it calls charge, so others go first")
        < story.index("B calls charge")
        < story.index("A calls charge")
    )


@pytest.mark.usefixtures("charge")
def test_a_messages_second_id_after_a_redrive_is_no_key() -> None:
    """It is redriven where its handler has failed for as long as SQS delivers it."""
    with pytest.raises(AssertionError, match="with a different key: 'message-1', 'message-1-redriven'") as failed:
        explore(handlers.keyed_by_message_id, ORDER)
    story = str(failed.value)
    assert story.index("raises each time") < story.index("B's handler does its work, then")
    assert story.index("raises again") < story.index("is redriven under its key") < story.index("completes message-1")


def test_what_a_transaction_is_refused_for_is_told() -> None:
    """In the first line, and where it happens: a table's name, for example, that is misspelt."""
    with pytest.raises(AssertionError, match=r"even in the fault-free run:\n.*no table") as failed:
        explore(handlers.transactional, ORDER, tables={"acounts": "account"})
    told = (
        r"completes message-1: the transaction was refused: action 1 \(\w+ on accounts\): there is no table 'accounts'"
    )
    assert re.search(told, str(failed.value))


@pytest.mark.parametrize("messages", ["not JSON", None, [[ORDER]]])
def test_a_body_that_never_comes_to_the_handler_tests_nothing(messages: Any) -> None:
    """It fails for good in the same way every time, which alone would be no violation."""
    with pytest.raises(AssertionError, match="the handler never runs for message-1:\n  InvalidBody: the body is not"):
        explore(handlers.transactional, messages, tables=accounts())
    assert explore(handlers.transactional, [ORDER, "not JSON"], tables=accounts(), most_schedules=50).acknowledged == {
        "message-1": "completed",
        "message-2": "failed for good",
    }


def test_messages_are_bodies_however_they_are_given() -> None:
    """One or several, in a list or from a generator; a body within a list may be a list."""
    for messages in (ORDER, [ORDER], (ORDER,), (one for one in [ORDER]), json.dumps(ORDER).encode()):
        assert explore(handlers.transactional, messages, tables=accounts(), most_schedules=1).acknowledged == {
            "message-1": "completed"
        }

    @sqs_consumer(MemoryStore())
    def listed(body: list[int]) -> None: ...

    assert len(explore(listed, [[1, 2]], most_schedules=1, no_effects="it is only read").acknowledged) == 1


ONE_KEY = [
    (handlers.keyed_once_for_both, ORDER, r"charge\(5, .*\), charge\(3, .*\)"),
    (handlers.keyed_by_account, ORDERS, r"charge\(5, 'alice'\), charge\(7, 'alice'\)"),
    (handlers.charging_more_each_time, ORDER, r"charge\(5, .*\), charge\(10, .*\)"),
]


@pytest.mark.nightly
@pytest.mark.usefixtures("charge")
@pytest.mark.parametrize(("handler", "messages", "told"), ONE_KEY)
def test_one_key_is_for_one_call(handler: Any, messages: Any, told: str) -> None:
    """Of whichever message or attempt: the other side ignores or refuses the second."""
    with pytest.raises(AssertionError, match=rf"charge received the same key for different calls: {told}"):
        explore(handler, messages)


@pytest.mark.nightly
@pytest.mark.usefixtures("charge")
def test_the_same_call_may_have_the_same_key() -> None:
    """Made for a message that was sent twice, or with what the handler changes only afterwards."""
    explore(handlers.keyed_by_order, [ORDER, ORDER])
    explore(handlers.keyed_and_changed, ORDER)


@pytest.mark.usefixtures("charge")
def test_arguments_that_are_never_the_same_are_not_compared() -> None:
    """Such as the time, which is told."""
    result = explore(handlers.keyed_and_dated, ORDER)
    assert result.unstable == ["charge(cents)"]
    assert "varies between runs: charge(cents)" in str(result)


@pytest.mark.usefixtures("charge")
def test_a_key_made_of_the_time_is_found_however_fast_the_schedules_are() -> None:
    """A second later, in each of the handler's fakes, and in a replay, too. On a busy machine a second may pass between
    two runs of one schedule, which is found first.
    """
    found = "charge was called again for message-1 with a different key|the same schedule gives different results"
    with pytest.raises(AssertionError, match=found) as failed:
        explore(handlers.keyed_by_the_second, ORDER)
    replay = re.search(r'replay="(.*)"', str(failed.value))
    assert replay is not None
    with pytest.raises(AssertionError, match=found):
        explore(handlers.keyed_by_the_second, ORDER, replay=replay[1])


class WithoutFence(MemoryStore):
    """A store that replaces a record whatever has become of it."""

    def _stands(self, change: Change) -> bool:
        return change.seen is not None or super()._stands(change)


def test_without_the_fence_a_late_write_takes_effect_beside_the_one_that_took_over() -> None:
    """So `explore` would see it if the library lost its fence."""
    with pytest.raises(AssertionError, match=r"'balance': 90} instead of .*'balance': 95}") as failed:
        explore(handlers.transactional, ORDER, tables=accounts(), store=WithoutFence)
    assert "A's late request arrives and commits its transaction" in str(failed.value)


def test_a_request_that_is_late_arrives_in_the_end() -> None:
    """If so many others did not come before it."""
    with pytest.raises(AssertionError, match=r"'balance': 90} instead of .*'balance': 95}") as failed:
        explore(
            handlers.transactional, ORDER, tables=accounts(), store=WithoutFence, workers=1, replay="2:crash-late-4"
        )
    story = str(failed.value)
    assert story.index("B acknowledges message-1") < story.index("late request")


class Forgetful(MemoryStore):
    """A store that answers that it has written, and has not."""

    def commit(self, commits: list[Commit]) -> Any:
        return [Applied()] * len(commits)


@handlers.consumer
def _interrupted(order: dict) -> None:
    raise KeyboardInterrupt


def test_an_interrupt_ends_all_of_it() -> None:
    """It is meant for the test, not for the handler."""
    with pytest.raises(KeyboardInterrupt):
        explore(_interrupted, ORDER)


def test_a_lock_that_another_attempt_holds_ends_with_its_story(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would hang otherwise. Afterwards the lock is free, and no alarm rings."""
    monkeypatch.setattr(stuck, "MOST_SECONDS", 0.3)
    calls.replace(services, "charge", key="key")
    lock = Lock()

    @handlers.consumer
    def locking(order: dict, message: Message) -> None:
        with lock:
            services.charge(order["cents"], message.idempotency_key)

    with pytest.raises(AssertionError, match=r"made no progress for 0\.3 seconds and was stopped") as caught:
        explore(locking, ORDER)
    assert "  12. C's handler makes no progress\n  Remedy: " in str(caught.value)
    assert not lock.locked()
    assert (signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)) == (signal.SIG_DFL, (0.0, 0.0))


def test_a_lock_of_asyncios_that_a_crash_has_left_is_told_as_such(calls: Calls) -> None:
    """It belongs to the loop of a worker that is no more."""
    calls.replace(services, "notify", key="key")
    lock = asyncio.Lock()

    @handlers.consumer
    async def locking(order: dict, message: Message) -> None:
        async with lock:
            await services.notify("sold", message.idempotency_key)

    with pytest.raises(AssertionError, match=r"never acknowledged(?s:.*)Remedy: hold no lock while calling a fake"):
        explore(locking, ORDER)


def test_a_key_that_a_redrive_changes_is_named() -> None:
    """Powertools' usual key is the messageId, which the redriven message has anew."""

    @sqs_consumer(DynamoDBStore("records", namespace="shop"), key=powertools_key("messageId"))
    def ported(order: dict) -> None: ...

    with pytest.raises(AssertionError, match=r"not COMPLETED(?s:.*)Remedy: use `key=message_id`"):
        explore(ported, ORDER, no_effects="it only filters")


def test_a_store_that_lies_acknowledges_what_is_not_completed() -> None:
    result = explore(handlers.transactional, ORDER, tables=accounts(), store=Forgetful, check=False)
    assert "message-1 was acknowledged although its record is not COMPLETED" in str(result.violations[0])


# The story, and how to play it again.


@pytest.mark.usefixtures("charge")
def test_a_violation_tells_its_story_and_how_to_play_it_again() -> None:
    result = explore(handlers.unkeyed, ORDER, tables=accounts(), check=False)
    (violation,) = result.violations
    assert violation.story == (
        "worker A receives message-1",
        "A claims message-1",
        "A runs the handler for message-1",
        "A calls charge(5)",
        "A's handler does its work, then raises",
        "A records the failure of message-1",
        "A leaves message-1 for redelivery",
        "worker B receives message-1",
        "B takes over message-1",
        "B runs the handler for message-1, attempt 2",
        "B calls charge(5)",
        "B commits its transaction and completes message-1",
        "B acknowledges message-1",
    )
    assert f'explore(..., replay="{violation.replay}")' in str(result)
    assert max(map(len, str(result).splitlines())) <= 80
    assert "  Remedy: pass message.idempotency_key to it, in the parameter that its fake's" in str(result)

    again = explore(handlers.unkeyed, ORDER, tables=accounts(), replay=violation.replay, check=False)
    assert again.schedules == 1
    assert again.violations == [violation]
    with pytest.raises(AssertionError, match="without an idempotency key"):
        again.check()


PROGRAM = """
from idempotent_receiver.testing import Calls, explore
from tests.unit.testing import handlers
handlers.services.notify = Calls().fake(handlers.notify)
result = explore(handlers.concurrent, handlers.ORDERS, tables=handlers.accounts(), check=False, most_schedules=200)
print(result, sorted(result.played.items()))
"""


@pytest.mark.nightly
def test_the_same_input_has_the_same_result_in_every_process() -> None:
    """To the last line, although sets of strings have another order in each."""
    results = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert results[0] == results[1]
    assert "notify was called 2 times for o-1, without an idempotency key" in results[0]


def test_the_shortest_story_comes_first_and_the_search_is_bounded() -> None:
    """What is cut off has more faults than what was played, and is told."""
    result = explore(handlers.transactional, ORDER, tables=accounts(), most_schedules=20)
    assert (result.schedules, result.complete) == (20, False)
    assert "20 schedules, but not all" in str(result)


def test_a_search_that_was_cut_short_says_so() -> None:
    """By a warning, as it may have missed something; and `complete` can be asserted."""
    with pytest.warns(UserWarning, match="ran 500 schedules, but not all: raise most_schedules"):
        assert not explore(handlers.transactional, ORDER, tables=accounts(), faults=2, most_schedules=500).complete


def test_a_replay_is_not_complete() -> None:
    """So a test in which one was forgotten fails, if it asserts that."""
    assert not explore(handlers.transactional, ORDER, tables=accounts(), replay="").complete


def test_tables_and_state_are_as_they_were_afterwards() -> None:
    """Also where a violation was found."""
    tables = accounts()
    explore(handlers.outside, ORDER, tables=tables, state={"balances": balances}, check=False)
    explore(handlers.transactional, ORDER, tables=tables)
    assert balances == {"alice": 100}
    assert tables["accounts"].items == accounts()["accounts"].items


def test_what_is_inside_of_tables_and_state_is_as_it_was_afterwards(calls: Calls) -> None:
    """A fake may change it in place."""
    tables = {"accounts": Table("account", {"account": "alice", "balance": 100, "log": []})}
    kept: dict[str, list[int]] = {"log": []}

    def note(cents: int, key: str) -> None:
        for log in (tables["accounts"].items["alice",]["log"], kept["log"]):
            log.append(cents)

    calls.replace(services, "charge", key="key", returns=note)
    explore(handlers.keyed, ORDER, tables=tables, state={"kept": kept}, check=False)
    assert (tables["accounts"].items["alice",]["log"], kept) == ([], {"log": []})


def test_a_fake_may_read_a_table(calls: Calls) -> None:
    tables = accounts()
    found: list[int] = []
    calls.replace(services, "charge", key="key", returns=lambda cents, key: found.append(_balance(tables)))
    explore(handlers.keyed, ORDER, tables=tables)
    assert set(found) == {100}
    assert calls.made == []


def _balance(tables: dict[str, Table]) -> int:
    return int(tables["accounts"].items["alice",]["balance"])


# What cannot be explored.


def plain(order: dict) -> None:
    """Not decorated."""


REFUSED = [
    ((plain, ORDER), {}, TypeError, "plain is not decorated with @sqs_consumer, which explore needs: decorate it"),
    ((http_endpoint(MemoryStore("h"))(lambda event, context: {}), ORDER), {}, TypeError, "cannot be explored"),
    ((handlers.transactional, []), {}, ValueError, "needs at least one message"),
    ((handlers.transactional, [object()]), {}, TypeError, "can be written as JSON"),
    ((handlers.transactional, {"Records": [{"messageId": "m"}]}), {}, ValueError, "create the event with sqs_event"),
    ((handlers.transactional, ORDER), {"workers": 0}, ValueError, "workers must be a whole number from 1 to 4"),
    ((handlers.transactional, ORDER), {"workers": 2.0}, ValueError, "workers"),
    ((handlers.transactional, ORDER), {"faults": -1}, ValueError, "faults must be a whole number from 0 to 3"),
    ((handlers.transactional, ORDER), {"faults": True}, ValueError, "faults"),
    ((handlers.transactional, ORDER), {"most_schedules": 0}, ValueError, "most_schedules"),
    ((handlers.transactional, ORDER), {"tables": {"accounts": 5}}, TypeError, "tables must map each name to a key"),
    ((handlers.transactional, ORDER), {"state": {"n": 5}}, TypeError, "n is 5"),
    ((handlers.transactional, ORDER), {"state": {"n": handlers.services}}, TypeError, "or a pair of functions"),
    ((handlers.transactional, ORDER), {"state": {"n": {"lock": Lock()}}}, TypeError, "state n cannot be restored"),
    ((handlers.transactional, ORDER), {"network": True}, TypeError, "network must be a reason, a str"),
    ((handlers.transactional, ORDER), {"no_effects": " "}, TypeError, "no_effects must be a reason, a str"),
    ((handlers.transactional, ORDER), {"replay": "crash"}, ValueError, "replay must be copied from a finding"),
    ((handlers.transactional, ORDER), {"replay": 2}, ValueError, "replay must be copied from a finding"),
    ((handlers.transactional, ORDER), {"tables": ["accounts"]}, TypeError, "tables must be a dict"),
    ((handlers.transactional, ORDER), {"state": [balances]}, TypeError, "state must be a dict"),
    ((handlers.transactional, ORDER), {"store": MemoryStore()}, TypeError, "store must be MemoryStore or a subclass"),
    ((handlers.transactional, ORDER), {"store": DynamoDBStore}, TypeError, "store must be MemoryStore or a subclass"),
]


@pytest.mark.parametrize(("arguments", "options", "error", "told"), REFUSED)
def test_what_cannot_be_explored_is_refused(
    arguments: tuple[Any, Any], options: dict[str, Any], error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        explore(*arguments, **options)


@pytest.mark.parametrize("suppressed", [True, False])
def test_a_write_by_a_client_of_ones_own_is_refused_and_told(suppressed: bool) -> None:
    """Nothing takes it back after a crash, and a developer's own tables would get it."""
    client = boto3.client("dynamodb", region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test")
    key = {"account": {"S": "alice"}}

    @sqs_consumer(MemoryStore())
    def handler(order: dict[str, Any], tx: Transaction) -> None:
        handlers.debit(order, tx)
        try:
            client.delete_item(TableName="accounts", Key=key)
        except RuntimeError:
            if not suppressed:
                raise

    with pytest.raises(AssertionError, match=r"(?s)the handler sends DynamoDB\.DeleteItem with its own client"):
        explore(handler, ORDER, tables=accounts())


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """Something that listens on this machine."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(5)
        yield listening


def requesting(server: socket.socket, connected: socket.socket | None = None) -> Any:
    """A handler that writes a request to a server, which it connects to unless it is connected."""

    @sqs_consumer(MemoryStore())
    def handler(order: dict[str, Any], tx: Transaction) -> None:
        handlers.debit(order, tx)
        if connected is not None:
            connected.sendall(b"charge 5")
        else:
            with socket.create_connection(server.getsockname(), timeout=5) as client:
                client.sendall(b"charge 5")

    return handler


def test_nothing_connects_to_anything_until_it_is_over(server: socket.socket) -> None:
    host, port = server.getsockname()
    with pytest.raises(AssertionError, match=f"the handler connects to {host}:{port} with its own client"):
        explore(requesting(server), ORDER, tables=accounts())
    server.setblocking(False)
    with pytest.raises(BlockingIOError):
        server.accept()
    with socket.create_connection((host, port)):
        server.accept()[0].close()


def test_what_is_connected_before_sends_nothing(server: socket.socket) -> None:
    """A connection that is kept by a client, for example."""
    with socket.create_connection(server.getsockname()) as client, server.accept()[0] as accepted:
        with pytest.raises(AssertionError, match=r"the handler sends to 127\.0\.0\.1:\d+ with its own client"):
            explore(requesting(server, client), ORDER, tables=accounts())
        client.sendall(b"after")
        assert accepted.recv(100) == b"after"


def test_a_connection_for_which_there_is_a_reason_is_made(server: socket.socket) -> None:
    """To an emulator on the same machine, for example."""
    explore(requesting(server), ORDER, tables=accounts(), workers=1, faults=0, network="a local emulator")
    with server.accept()[0] as accepted:
        assert accepted.recv(100) == b"charge 5"


def test_what_asyncio_would_connect_or_start_says_what_helps(server: socket.socket) -> None:
    """Also where a connection is allowed: the loop is in virtual time, and waits for nothing outside."""

    @sqs_consumer(MemoryStore())
    async def connecting(order: dict, tx: Transaction) -> None:
        await asyncio.open_connection(*server.getsockname())

    @sqs_consumer(MemoryStore())
    async def starting(order: dict, tx: Transaction) -> None:
        await asyncio.create_subprocess_exec("true")

    told = "asyncio opens no sockets and starts no programs in explore: replace the client"
    for handler in (connecting, starting):
        with pytest.raises(AssertionError, match=told):
            explore(handler, ORDER, network="a server of the test")


def test_a_datagram_is_lost_without_a_word() -> None:
    """As any may be: so are most metrics sent."""
    with socket.socket(type=socket.SOCK_DGRAM) as receiving, socket.socket(type=socket.SOCK_DGRAM) as sending:
        receiving.bind(("127.0.0.1", 0))
        receiving.setblocking(False)

        @sqs_consumer(MemoryStore())
        def metered(order: dict[str, Any], tx: Transaction) -> None:
            handlers.debit(order, tx)
            sending.sendto(b"orders:1|c", receiving.getsockname())

        explore(metered, ORDER, tables=accounts(), workers=1)
        with pytest.raises(BlockingIOError):
            receiving.recv(100)


@mock_aws
def test_a_client_under_moto_is_refused_too() -> None:
    """What moto keeps is not put back before each schedule."""
    client = boto3.client("s3", region_name="us-east-1")

    @sqs_consumer(MemoryStore())
    def uploading(order: dict[str, Any], tx: Transaction) -> None:
        handlers.debit(order, tx)
        client.create_bucket(Bucket="receipts")

    with pytest.raises(AssertionError, match=r"the handler sends S3\.CreateBucket with its own client") as failed:
        explore(uploading, ORDER, tables=accounts())
    assert "replace the client with a fake" in " ".join(str(failed.value).split())
    assert client.list_buckets()["Buckets"] == []


def test_a_handler_of_which_nothing_can_be_seen_tests_nothing() -> None:
    """Unless it is said why it does nothing."""

    @sqs_consumer(MemoryStore())
    def filtering(order: dict[str, Any]) -> str:
        return "Nothing to do" if order["cents"] else "free"

    with pytest.raises(AssertionError, match="has no visible effect: it touches no table, no state and no"):
        explore(filtering, ORDER, tables=accounts(), state={"balances": balances})
    assert explore(filtering, ORDER, no_effects="it only looks").complete


def test_an_exploration_reaches_nothing_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    timers: list[bool] = []
    asked: list[Any] = []

    def never(**arguments: Any) -> Any:
        timers.append(arguments["end_process_at_deadline"])
        return lifetime(end_process_at_deadline=False)

    class Unreachable:
        meta = boto3.client("sqs", region_name="us-east-1").meta

        def __getattr__(self, name: str) -> Any:
            return self.refuse

        def refuse(self, *arguments: Any, **named: Any) -> None:
            asked.append((arguments, named))
            raise AssertionError("it is outside")

    outside = Unreachable()
    monkeypatch.setattr("idempotent_receiver.sqs.options.lifetime", never)
    options = replace(
        handlers.large.options,
        logger=outside,
        metrics=outside,
        sqs=outside,
        end_process_at_deadline=True,
    )
    consumer = handlers.large.with_options(options)
    timers.clear()
    assert explore(consumer, ORDER, tables=accounts()).acknowledged == {"message-1": "completed"}
    assert timers
    assert not any(timers)
    assert asked == []


@pytest.mark.parametrize("replay", ["90:crash-after", "0:raises"])
def test_a_replay_of_another_handler_says_so(replay: str) -> None:
    """The points of a schedule are those of one handler, and so is what may happen there."""
    with pytest.raises(AssertionError, match="different calls from run to run"):
        explore(handlers.transactional, ORDER, tables=accounts(), replay=replay)


def test_a_look_up_that_is_cached_is_no_call_of_each_attempt(calls: Calls) -> None:
    """The remedy is a plain function in its place."""
    calls.replace(services, "charge")

    @functools.cache
    def rate() -> None:
        services.charge(0)

    @sqs_consumer(MemoryStore())
    def handle(order: dict) -> None:
        rate()

    with pytest.raises(AssertionError, match=r"(?s)one run calls charge; the next calls nothing.*plain\s+function"):
        explore(handle, ORDER)


def test_what_is_not_found_again_is_told_as_such(calls: Calls) -> None:
    """By the same schedule: chance may look like any mistake."""
    calls.replace(services, "charge", key="key")
    runs = itertools.count()

    @sqs_consumer(MemoryStore())
    def handle(order: dict, message: Message, tx: Transaction) -> None:
        debit(order, tx)
        if next(runs) == 20:
            services.charge(1, f"{message.idempotency_key}-sample")

    with pytest.raises(AssertionError, match="the same schedule gives different results") as caught:
        explore(handle, ORDER, tables=accounts())
    assert "but not in the fault-free run" not in str(caught.value)


tenant: ContextVar[str] = ContextVar("tenant")


def test_a_handler_sees_the_context_of_its_test() -> None:
    """As a job on a thread does."""

    @sqs_consumer(MemoryStore())
    def handle(order: dict, tx: Transaction) -> None:
        tx.put(TableName="orders", Item={"order": order["order"], "tenant": tenant.get()})

    token = tenant.set("t-1")
    try:
        result = explore(handle, ORDER, most_schedules=1)
    finally:
        tenant.reset(token)
    assert result.effects == {"orders": [{"order": "o-1", "tenant": "t-1"}]}


def test_what_decorates_a_consumer_is_played_as_it_is_deployed() -> None:
    """Each worker's own consumer is within, and the user's is what it was afterwards."""
    traced: list[str] = []

    @wraps(handlers.transactional)
    def decorated(event: Any, context: Any) -> Any:
        traced.append(context.aws_request_id)
        return handlers.transactional(event, context)

    result = explore(decorated, ORDER, tables=accounts())
    assert result.schedules == 164
    assert result.effects == {"accounts": [{"account": "alice", "balance": 95}]}
    assert set(traced) >= {"A", "B", "C"}
    response = handlers.transactional(sqs_event(ORDER, ids=["left-as-it-was"]), lambda_context())
    assert response["batchItemFailures"] == [{"itemIdentifier": "left-as-it-was"}]


RESPONSES = [
    (None, True),
    ({}, True),
    ({"batchItemFailures": None}, True),
    ({"batchItemFailures": []}, True),
    ({"statusCode": 200}, True),
    ({"batchItemFailures": [{"itemIdentifier": "another"}]}, False),
    ({"batchItemFailures": [{"id": "message-1"}]}, False),
]


@pytest.mark.parametrize(("response", "acknowledges"), RESPONSES)
def test_a_decorators_response_is_read_as_lambda_reads_it(response: Any, acknowledges: bool) -> None:
    """No answer acknowledges everything, whatever became of it; an answer that makes no sense, nothing."""

    @wraps(handlers.transactional)
    def decorated(event: Any, context: Any) -> Any:
        handlers.transactional(event, context)
        return response

    result = explore(decorated, ORDER, tables=accounts(), faults=1, check=False, most_schedules=40)
    told = "was acknowledged although its record" if acknowledges else "is never acknowledged, even in"
    assert told in str(result.violations[0])
    if acknowledges:
        assert result.violations[0].remedy.startswith("decorators around the consumer must pass on")


def test_what_a_consumer_decorates_is_explored(calls: Calls) -> None:
    runs: list[dict[str, Any]] = []

    @sqs_consumer(MemoryStore())
    @recorded_in(runs)
    def handle(order: dict, tx: Transaction) -> None:
        handlers.debit(order, tx)

    explore(handle, ORDER, tables=accounts())
    assert runs


def recorded_in(runs: list[dict[str, Any]]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def recorded(order: dict[str, Any], *more: Any) -> Any:
            runs.append(order)
            return function(order, *more)

        return recorded

    return wrap


def test_without_the_extra_explore_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['greenlet'] = None\n"
        "from idempotent_receiver import MemoryStore\n"
        "from idempotent_receiver.testing import Calls, sqs_event\n"
        "try:\n"
        "    from idempotent_receiver.testing import explore\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "explore needs the [testing] extra: pip install 'idempotent-receiver[testing]'\n"


def test_s3s_test_event_is_completed_among_others() -> None:
    """It is no event, so its key is its messageId: the record that `explore` looks for is that one."""

    @sqs_consumer(DynamoDBStore("records", namespace="uploads"), key=event_id)
    def index(event: dict, tx: Transaction) -> None:
        tx.put(TableName="files", Item={"id": event["id"]})

    test_event = {"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "uploads"}
    upload = {"id": "1", "detail-type": "Object Created"}
    result = explore(index, [test_event, upload], tables={"files": "id"})
    assert result.complete
    assert result.acknowledged == {"message-1": "completed", "message-2": "completed"}
