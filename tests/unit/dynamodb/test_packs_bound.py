"""The bound of a pack's writes: it shrinks under contention, down to one commit, and grows again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver import DynamoDBStore
from idempotent_receiver.clock import Deadline, SystemClock
from idempotent_receiver.dynamodb.packs import PACKS_TO_GROW, Bound
from idempotent_receiver.protocol.answers import Settled
from idempotent_receiver.protocol.exchange import SETTLE_RETRIES, Operation
from idempotent_receiver.protocol.transitions import Claim, complete
from tests.engines.engine import client
from tests.engines.faulty import cancelled, refused
from tests.engines.sample_records import committing, credit
from tests.many_operations import run_to_completion

if TYPE_CHECKING:
    from collections.abc import Callable

    from idempotent_receiver.protocol.store import Commit
    from tests.engines.engine import DynamoDB
    from tests.engines.faulty import Answer, Faults, Sent


_numbers = count()


def fifty(engine: DynamoDB) -> list[Commit]:
    """Fifty more, with a write each."""
    return [committing(engine, next(_numbers)) for _ in range(50)]


def all_conflict(sent: Sent) -> Answer:
    return cancelled(*["TransactionConflict"] * len(sent.items))


def sizes(engine: DynamoDB, faults: Faults) -> list[int]:
    """How many commits each pack of fifty has."""
    faults.sent.clear()
    engine.store.commit(fifty(engine))
    return faults.sizes


@pytest.mark.parametrize("answer", [all_conflict, lambda sent: refused("ThrottlingException")])
def test_packs_shrink_to_one(engine: DynamoDB, faults: Faults, answer: Callable[[Sent], Answer]) -> None:
    """By three quarters with each that met a conflict or was throttled, and they stay so from call to call."""
    faults.answer = answer
    assert [sizes(engine, faults) for _ in range(3)] == [[50], [12, 3, *[1] * 35], [1] * 50]


@pytest.mark.parametrize(("code", "commits"), [("TransactionConflict", 1), ("ConditionalCheckFailed", 50)])
def test_one_alone_and_a_failed_condition_shrink_nothing(
    engine: DynamoDB, faults: Faults, code: str, commits: int
) -> None:
    """One commit cannot be sent in fewer."""
    faults.answer = lambda sent: sent.naming({sent.ids[0]: code})
    for _ in range(10):
        engine.store.commit(fifty(engine)[:commits])
    faults.answer = lambda sent: None
    assert sizes(engine, faults) == [50]


def test_packs_grow_again(engine: DynamoDB, faults: Faults) -> None:
    """With every fourth pack that was cut short and took effect."""
    faults.answer = all_conflict
    for _ in range(2):
        engine.store.commit(fifty(engine))
    faults.answer = lambda sent: None

    grown = [size for _ in range(60) for size in sizes(engine, faults)]

    assert grown[:21] == [1] * 12 + [2] * 8 + [3]
    assert grown.index(50) <= 180
    assert grown[-1] == 50


def test_packs_that_were_not_cut_short_prove_nothing(engine: DynamoDB, faults: Faults) -> None:
    """The bound stays where it is until more is waiting."""
    faults.answer = all_conflict
    engine.store.commit(fifty(engine))
    faults.answer = lambda sent: None
    for _ in range(20):
        engine.store.commit(fifty(engine)[:12])

    assert sizes(engine, faults) == [12, 12, 12, 12, 2]


def test_a_pack_is_cut_short_by_any_that_did_not_fit(engine: DynamoDB, faults: Faults) -> None:
    """Although a later one did."""
    bound = engine.store._packs.bound
    bound.shrink(16)
    for _ in range(4):
        small, large, last = fifty(engine)[:3]
        large = large._replace(actions=[action for name in "abc" for action in credit(engine, name).actions])
        engine.store.commit([small, large, last])

    assert (faults.sizes, bound.writes) == ([2, 1] * 4, 5)


def test_packs_that_were_under_way_together_shrink_the_bound_once() -> None:
    bound = Bound()
    for _ in range(8):
        bound.shrink(100)
    assert bound.writes == 25


def test_the_bound_is_kept_under_threads() -> None:
    """No growth is lost, and it never leaves its limits."""
    bound = Bound()
    bound.shrink(2)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: bound.grow(), range(4 * 14)))
    assert bound.writes == 15
    for _ in range(4 * 18):
        assert bound.writes < 100
        bound.grow()
    assert bound.writes == 100
    for _ in range(4):
        bound.grow()
    assert bound.writes == 100
    bound.shrink(1)
    assert bound.writes == 1


@pytest.mark.parametrize(("accounts", "most"), [(1, 4.0), (10, 1.0)])
def test_hot_items_progress_at_a_bounded_price(engine: DynamoDB, faults: Faults, accounts: int, most: float) -> None:
    """Four workers with 40 messages each on one item, or on ten: every message takes effect once, and costs at most so
    many requests, although whatever is under way at the same time conflicts.
    """
    workers, messages = 4, 40
    faults.seconds_under_way = 0.002

    def work(worker: int) -> list[Any]:
        store = DynamoDBStore(engine.records, client=client(engine.client.meta.endpoint_url))
        operations = []
        for number in range(messages):
            claim = Claim(id=f"{worker}/{number}", fingerprint="f", owner="w", lease_until_ms=2_000_000_000_000)
            settlement = complete(claim.unclaimed(None, 1_800_000_000_000, "v"), "{}")
            actions = credit(engine, f"account-{number % accounts}").actions
            operations.append(Operation(settlement, settlement.standing, actions=actions))
        deadline = Deadline.after(SystemClock(), 60_000)
        answers = run_to_completion(operations, store, deadline, max_retries=SETTLE_RETRIES)
        store.client.close()
        return answers

    with ThreadPoolExecutor(workers) as pool:
        answers = [answer for each in pool.map(work, range(workers)) for answer in each]

    assert all(isinstance(answer, Settled) for answer in answers)
    balances = [engine.account(f"account-{number}") for number in range(accounts)]
    assert sum(item["balance"] for item in balances if item is not None) == 5 * workers * messages
    assert len(faults.sent) <= most * workers * messages


def test_a_conflict_forgets_what_took_effect_before_it() -> None:
    """Or packs would grow at once to where they had just met it."""
    bound = Bound()
    for _ in range(PACKS_TO_GROW - 1):
        bound.grow()
    bound.shrink(100)
    bound.grow()
    assert bound.writes == 25
