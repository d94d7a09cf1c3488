"""When transactions leave, which of them share a request, and what waits for what; with claims and without."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver import Message, Transaction
from idempotent_receiver.batch.settlements import LINGER_SECONDS
from idempotent_receiver.batch.turns import MOST_UNCOMMITTED
from tests.simulation.faults import FaultyStore, lost_answer, throttled
from tests.simulation.scenario import Scenario
from tests.simulation.world import Worker, sqs_record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from idempotent_receiver.protocol.store import Commit

EFFECTS = ["any", "transaction"]


class Watched(FaultyStore):
    """A store that notes when each commit was sent and answered, and what it was of."""

    def __init__(self, scenario: Scenario, round_trip_seconds: float) -> None:
        super().__init__(scenario.memory, scenario.world, round_trip_seconds)
        self.sent: list[tuple[float, list[str]]] = []
        self.under_way: Counter[str] = Counter()
        self.most_on_one_item = 0

    def commit(self, commits: Sequence[Commit]) -> Any:
        self.sent.append((self.world.now, [change.new.id for change, _ in commits]))
        items = [action.arguments["Key"]["id"] for commit in commits for action in commit.actions]
        self.under_way.update(items)
        self.most_on_one_item = max(self.most_on_one_item, *self.under_way.values())
        try:
            return super().commit(commits)
        finally:
            self.under_way.subtract(items)


class Commits:
    """A scenario with one worker, whose commits are watched."""

    def __init__(
        self,
        effects: str,
        item_of: Callable[[int], str],
        seconds: Callable[[int], float] = lambda number: 0.0,
        *,
        concurrency: int = 1,
        round_trip_seconds: float = 0.005,
    ) -> None:
        self.scenario = scenario = Scenario()
        self.store = Watched(scenario, round_trip_seconds)
        self.ended: dict[str, float] = {}

        def handle(body: dict, message: Message, tx: Transaction) -> None:
            number = int(message.id)
            tx.update(
                TableName="Accounts",
                Key={"id": item_of(number)},
                UpdateExpression="ADD balance :one",
                ExpressionAttributeValues={":one": 1},
            )
            scenario.world.sleep(seconds(number))
            self.ended[message.id] = scenario.world.now

        self.worker: Worker = scenario.worker(handle, effects=effects, concurrency=concurrency, store=self.store)

    def run(self, count: int, seconds: float = 60.0) -> None:
        self.worker.deliver(*[sqs_record(str(number)) for number in range(count)], seconds=seconds)
        self.scenario.run()

    @property
    def sizes(self) -> list[int]:
        return [len(ids) for _, ids in self.store.sent]

    @property
    def balances(self) -> dict[str, int]:
        items = self.scenario.memory.tables["Accounts"].items.values()
        return {item["id"]: int(item["balance"]) for item in items}


def own(number: int) -> str:
    return str(number)


def hot(number: int) -> str:
    return "hot"


@pytest.mark.parametrize("effects", EFFECTS)
@pytest.mark.parametrize(("item_of", "sizes"), [(own, [20, 50, 50]), (hot, [1] * 120)])
def test_a_request_leaves_at_a_hundred_writes_or_with_one_of_a_hot_item(
    effects: str, item_of: Callable[[int], str], sizes: list[int]
) -> None:
    commits = Commits(effects, item_of)

    commits.run(120)

    assert commits.worker.answers == [[]]
    assert sorted(commits.sizes) == sizes
    assert sum(commits.balances.values()) == 120


@pytest.mark.parametrize("effects", EFFECTS)
def test_a_commit_leaves_at_once_if_nothing_else_can_run(effects: str) -> None:
    commits = Commits(effects, own, lambda number: 0.5)

    commits.run(1)

    assert commits.store.sent == [(commits.ended["0"], ["0"])]


@pytest.mark.parametrize("effects", EFFECTS)
def test_a_commit_waits_two_milliseconds_for_one_that_still_runs(effects: str) -> None:
    commits = Commits(effects, own, lambda number: [0.5, 0.501, 0.6][number], concurrency=3)

    commits.run(3)

    (first, together), (last, alone) = commits.store.sent
    assert (together, alone) == (["0", "1"], ["2"])
    assert first - commits.ended["0"] == pytest.approx(LINGER_SECONDS)
    assert last == commits.ended["2"]


@pytest.mark.parametrize("effects", EFFECTS)
@pytest.mark.parametrize("fault", [None, lost_answer, throttled])
def test_transactions_on_one_item_take_turns_and_do_not_hold_up_others(effects: str, fault: Any) -> None:
    commits = Commits(effects, lambda number: "hot" if number % 2 else str(number), concurrency=4)
    if fault is not None:
        commits.store.next("commit", fault)

    commits.run(20)

    assert commits.worker.answers == [[]]
    assert commits.store.most_on_one_item == 1
    assert commits.balances == {"hot": 10, **{str(number): 1 for number in range(0, 20, 2)}}
    others = [number for number, (_, ids) in enumerate(commits.store.sent) if any(int(id) % 2 == 0 for id in ids)]
    assert max(others) <= 2
    assert all(sum(int(id) % 2 for id in ids) <= 1 for _, ids in commits.store.sent)


@pytest.mark.parametrize("effects", EFFECTS)
@pytest.mark.parametrize("item_of", [hot, own])
def test_so_many_runs_at_most_are_not_committed(effects: str, item_of: Callable[[int], str]) -> None:
    commits = Commits(effects, item_of, round_trip_seconds=1.0)
    most = 0

    def watch() -> None:
        nonlocal most
        while commits.worker.answers == []:
            done = sum(item["status"] == "COMPLETED" for item in commits.scenario.memory.items.values())
            most = max(most, len(commits.ended) - done)
            commits.scenario.world.sleep(0.05)

    commits.scenario.world.spawn(watch)

    commits.run(900, seconds=30)

    assert most == MOST_UNCOMMITTED
    assert sum(commits.balances.values()) - 1 <= 900 - len(commits.worker.answers[0]) <= sum(commits.balances.values())


@pytest.mark.parametrize("effects", EFFECTS)
def test_a_deadline_ends_the_turns_and_nothing_is_acknowledged_that_has_not_had_one(effects: str) -> None:
    commits = Commits(effects, hot, round_trip_seconds=1.0)

    commits.run(30, seconds=10)
    (first,) = commits.worker.answers
    commits.worker.deliver(*[sqs_record(id, receives=2) for id in first], seconds=90, after=60)
    commits.scenario.run()

    assert 0 < len(first) < 30
    assert commits.worker.answers[1] == []
    assert commits.balances == {"hot": 30}
