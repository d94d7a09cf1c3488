"""Random batches, faults and crashes, by seed: the scenario's rules hold, and everything takes effect once.

`SEED=7 pytest tests/simulation/test_scenarios_random.py` runs one seed alone.
"""

from __future__ import annotations

import json
import os
from random import Random
from string import ascii_lowercase

import pytest

from idempotent_receiver import Message, PermanentError, body_field
from tests.simulation import faults
from tests.simulation.scenario import Scenario
from tests.simulation.world import DEAD_LETTERS, FIFO, sqs_record

SEEDS = [int(os.environ["SEED"])] if "SEED" in os.environ else range(100)

PASSING = [faults.lost_answer, faults.lost_request, faults.throttled, faults.sent_twice]
"""What the invocation that meets it can mend."""
CALLS = ["insert", "read", "replace", "commit"]


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
