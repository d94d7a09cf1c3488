"""Batches, faults and crashes as a seed has them; the scene's rules hold, and in the end everything took effect once.

`SEED=7 pytest tests/simulation/test_scenarios_random.py` plays one seed alone.
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
from tests.simulation.scene import DEAD_LETTERS, Scene
from tests.simulation.world import FIFO, QUEUE, sqs_record

SEEDS = [int(os.environ["SEED"])] if "SEED" in os.environ else range(100)

PASSING = [
    faults.lost_answer,
    faults.lost_request,
    faults.throttled,
    faults.sent_twice,
]
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


def entry_of(scene: Scene, id: str) -> int:
    table = scene.memory.tables.get("Entries")
    return 0 if table is None else table.items.get((id,), {}).get("amount", 0)


def posting(scene: Scene, random: Random) -> Callable[..., None]:
    """A handler that adds to an entry, takes its time, and fails at times."""

    def handle(body: dict, message: Message, tx: Transaction) -> None:
        tx.update(
            TableName="Entries",
            Key={"id": message.key},
            UpdateExpression="ADD amount :one",
            ExpressionAttributeValues={":one": 1},
        )
        scene.world.sleep(random.choice([0, 0, 0.1, 1, 3]))
        if random.random() < 0.2:
            raise RuntimeError

    return handle


def faultless(scene: Scene) -> Callable[..., None]:
    return posting(scene, type("Calm", (Random,), {"random": lambda self: 1.0, "choice": lambda self, of: of[0]})())


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happens_every_message_takes_effect_once(seed: int) -> None:
    """After the faults and one lease, one delivery without faults acknowledges everything."""
    random = Random(seed)
    scene = Scene(seed=seed)
    queue = random.choice([QUEUE, FIFO])
    count = random.choice([1, 3, 10, 40])
    receives = dict.fromkeys(map(str, range(count)), 0)

    def records() -> list[dict[str, object]]:
        for id in receives:
            receives[id] += 1
        return [sqs_record(id, receives=times, queue=queue, group=f"g{int(id) % 3}") for id, times in receives.items()]

    for number in range(random.randint(1, 6)):
        options = {"dead_letter_queue": DEAD_LETTERS} if queue == QUEUE else {"queue_client": True}
        worker = scene.worker(posting(scene, random), concurrency=random.choice([1, 1, 4]), **options)
        seconds, after = random.choice([3, 6, 15]), number * random.choice([1, 5])
        worker.deliver(*random.sample(records(), count) if queue == QUEUE else records(), seconds=seconds, after=after)
        scene.world.spawn(partial(scene.dead.add, worker.name), after=after + seconds)
        if random.random() < 0.4:
            scene.world.spawn(partial(scene.kill, worker), after=after + random.random() * seconds)
    for _ in range(random.randint(0, 12)):
        scene.store.next(random.choice(CALLS), random.choice(FAULTS))

    scene.run()
    scene.store._faults.clear()
    calm = scene.worker(faultless(scene))
    calm.deliver(*records(), after=30)
    scene.run()

    assert calm.answers == [[]]
    assert scene.sqs.sent == []
    assert {id: entry_of(scene, id) for id in receives} == dict.fromkeys(receives, 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_groups_and_keys_that_cross_at_random_keep_their_order_and_lock_nobody(seed: int) -> None:
    """Few groups, few keys, few bodies, handlers that fail at times: answered at once, each group up to its failure."""
    random = Random(seed)
    scene = Scene(namespace="n", seed=seed)
    count, keys = random.choice([2, 5, 10, 70]), random.choice(["ab", "abcdef", ascii_lowercase])
    scene.keys_of = {str(place): tuple(f"n#{key}" for key in keys) for place in range(count)}
    places = {place: (random.choice("gh"), random.choice(keys), random.choice([1, 1, 1, 2])) for place in range(count)}
    receives = random.choice([1, 2])
    started: list[int] = []

    def handle(body: dict, message: Message) -> None:
        started.append(int(message.id))
        scene.world.sleep(random.choice([0, 0.01]))
        if random.random() < 0.15:
            raise random.choice([RuntimeError, PermanentError])

    options = {"dead_letter_queue": DEAD_LETTERS + ".fifo"} if random.random() < 0.5 else {}
    worker = scene.worker(handle, key=body_field("k"), concurrency=random.choice([1, 3]), **options)
    for name in random.choices(CALLS[:3], k=random.choice([0, 0, 2])):
        scene.store.next(name, random.choice(PASSING))
    records = [
        sqs_record(str(place), json.dumps({"k": key, "v": value}), receives=receives, queue=FIFO, group=group)
        for place, (group, key, value) in places.items()
    ]
    worker.deliver(*records, seconds=60)
    scene.run()

    (failed,) = worker.answers
    assert scene.world.now < 30
    assert scene.live_claims() == []
    for group in "gh":
        line = [place for place in places if places[place][0] == group]
        ran = [place for place in started if place in line]
        assert ran == sorted(ran)
        first = next((place for place in line if str(place) in failed), count)
        assert all(place <= first for place in ran)
