"""Random batches, faults and crashes, by seed: the scenario's rules hold, and everything takes effect once.

`SEED=7 pytest tests/simulation/test_scenarios_random.py` runs one seed alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from random import Random
from string import ascii_lowercase

import pytest

from idempotent_receiver import Message, PermanentError, Transaction, body_field
from tests.simulation import faults
from tests.simulation.scenario import Scenario
from tests.simulation.world import DEAD_LETTERS, FIFO, QUEUE, sqs_record

SEEDS = [int(os.environ["SEED"])] if "SEED" in os.environ else range(100)

PASSING = [faults.lost_answer, faults.lost_request, faults.throttled, faults.sent_twice]
"""What the invocation that meets it can mend."""
FAULTS = [
    *PASSING,
    faults.raises,
    faults.raises_late,
    faults.delivered_later(0.5),
    faults.delivered_later(20),
    faults.delivered_again(7),
]
CALLS = ["insert", "read", "replace", "commit"]


def entry_of(scenario: Scenario, id: str) -> int:
    table = scenario.memory.tables.get("Entries")
    return 0 if table is None else table.items.get((id,), {}).get("amount", 0)


def posting(scenario: Scenario, random: Random) -> Callable[..., None]:
    """A handler that adds to an entry, takes some time, and sometimes fails."""

    def handle(body: dict, message: Message, tx: Transaction) -> None:
        tx.update(
            TableName="Entries",
            Key={"id": message.key},
            UpdateExpression="ADD amount :one",
            ExpressionAttributeValues={":one": 1},
        )
        scenario.world.sleep(random.choice([0, 0, 0.1, 1, 3]))
        if random.random() < 0.2:
            raise RuntimeError

    return handle


def faultless(scenario: Scenario) -> Callable[..., None]:
    return posting(scenario, type("Calm", (Random,), {"random": lambda self: 1.0, "choice": lambda self, of: of[0]})())


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happens_every_message_takes_effect_once(seed: int) -> None:
    random = Random(seed)
    scenario = Scenario(seed=seed)
    queue = random.choice([QUEUE, FIFO])
    count = random.choice([1, 3, 10, 40])
    receives = dict.fromkeys(map(str, range(count)), 0)

    def records() -> list[dict[str, object]]:
        for id in receives:
            receives[id] += 1
        return [sqs_record(id, receives=times, queue=queue, group=f"g{int(id) % 3}") for id, times in receives.items()]

    for number in range(random.randint(1, 6)):
        options = {"dead_letter_queue": DEAD_LETTERS} if queue == QUEUE else {"queue_client": True}
        worker = scenario.worker(posting(scenario, random), concurrency=random.choice([1, 1, 4]), **options)
        seconds, after = random.choice([3, 6, 15]), number * random.choice([1, 5])
        worker.deliver(*random.sample(records(), count) if queue == QUEUE else records(), seconds=seconds, after=after)
        scenario.world.spawn(partial(scenario.dead.add, worker.name), after=after + seconds)
        if random.random() < 0.4:
            scenario.world.spawn(partial(scenario.kill, worker), after=after + random.random() * seconds)
    for _ in range(random.randint(0, 12)):
        scenario.store.next(random.choice(CALLS), random.choice(FAULTS))

    scenario.run()
    scenario.store._faults.clear()
    calm = scenario.worker(faultless(scenario))
    calm.deliver(*records(), after=30)

    assert scenario.answers_of(calm) == [[]]
    assert scenario.sqs.sent == []
    assert {id: entry_of(scenario, id) for id in receives} == dict.fromkeys(receives, 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_groups_and_keys_that_cross_at_random_keep_their_order_and_lock_nobody(seed: int) -> None:
    random = Random(seed)
    scenario = Scenario(namespace="n", seed=seed)
    count, keys = random.choice([2, 5, 10, 70]), random.choice(["ab", "abcdef", ascii_lowercase])
    scenario.keys_of = {str(place): tuple(f"n#{key}" for key in keys) for place in range(count)}
    places = {place: (random.choice("gh"), random.choice(keys), random.choice([1, 1, 1, 2])) for place in range(count)}
    receives = random.choice([1, 2])
    started: list[int] = []

    def handle(body: dict, message: Message) -> None:
        started.append(int(message.id))
        scenario.world.sleep(random.choice([0, 0.01]))
        if random.random() < 0.15:
            raise random.choice([RuntimeError, PermanentError])

    options = {"dead_letter_queue": DEAD_LETTERS + ".fifo"} if random.random() < 0.5 else {}
    worker = scenario.worker(handle, key=body_field("k"), concurrency=random.choice([1, 3]), **options)
    for name in random.choices(CALLS[:3], k=random.choice([0, 0, 2])):
        scenario.store.next(name, random.choice(PASSING))
    records = [
        sqs_record(str(place), json.dumps({"k": key, "v": value}), receives=receives, queue=FIFO, group=group)
        for place, (group, key, value) in places.items()
    ]
    worker.deliver(*records, seconds=60)
    scenario.run()

    (failed,) = worker.answers
    assert scenario.world.now < 30
    assert scenario.live_claims() == []
    for group in "gh":
        line = [place for place in places if places[place][0] == group]
        ran = [place for place in started if place in line]
        assert ran == sorted(ran)
        first = next((place for place in line if str(place) in failed), count)
        assert all(place <= first for place in ran)
