"""`receiver work` with `max_attempts`: what ends its process, and what fails, pays for itself alone."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from idempotent_receiver.dynamodb.statements import record_in
from idempotent_receiver.protocol.charges import charged_of
from tests.e2e.test_work import Place

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.deployed import Aws

LONG_SECONDS = 240.0


class Limited(Place):
    """A queue with a dead-letter queue of the consumer's own, and no redrive policy: receives are free."""

    def __init__(self, aws: Aws, folder: Path, *, fifo: bool = False) -> None:
        super().__init__(aws, folder, fifo=fifo)
        fifo_attributes = {"FifoQueue": "true"} if fifo else {}
        name = self.url.rpartition("/")[2].removesuffix(".fifo")
        self.dead_url = aws.client("sqs").create_queue(QueueName=f"{name}-dead{self.fifo}", Attributes=fifo_attributes)[
            "QueueUrl"
        ]
        self.more["DEAD"] = self.dead_url

    def over(self) -> bool:
        """Whether the queue is empty."""
        return self.messages(self.url) == {"0"}

    def dead(self) -> list[str]:
        """The names of the dead letters."""
        found = []
        while (
            got := self.aws.client("sqs")
            .receive_message(QueueUrl=self.dead_url, MaxNumberOfMessages=10)
            .get("Messages")
        ):
            found += [json.loads(one["Body"])["name"] for one in got]
        return sorted(found)

    def charged(self) -> list[int]:
        """What the messages have been charged, but for those that were charged nothing."""
        items = self.aws.client("dynamodb").scan(TableName=self.records, ConsistentRead=True)["Items"]
        return [count for item in items if (count := charged_of(record_in(item)).attempts)]


@pytest.mark.parametrize("fifo", [False, True], ids=["standard", "fifo"])
@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_message_that_kills_its_process_is_the_one_dead_letter(
    aws: Aws, tmp_path: Path, fifo: bool, concurrency: int
) -> None:
    place = Limited(aws, tmp_path, fifo=fifo)
    names = [f"ok-{number}" for number in range(12)]
    for name in [*names[:4], "killer", *names[4:]]:
        place.send(name)

    with place.worker("--concurrency", str(concurrency), handler="worker_handlers:limited"):
        place.wait_for(place.over, LONG_SECONDS)

    assert place.dead() == ["killer"]
    assert place.effects() == dict.fromkeys(names, 1)
    assert place.charged() == [3], "nobody else was charged"
    assert len(place.of("killer")) == 4, "the first death is charged to nobody"


def test_what_fails_in_a_fifo_group_costs_those_behind_it_nothing(aws: Aws, tmp_path: Path) -> None:
    place = Limited(aws, tmp_path, fifo=True)
    names = [f"{number}{'-bad' if number in (0, 5, 6) else ''}" for number in range(20)]
    for name in names:
        place.send(name)

    with place.worker(handler="worker_handlers:limited"):
        place.wait_for(place.over, LONG_SECONDS)

    bad = ["0-bad", "5-bad", "6-bad"]
    assert place.dead() == bad
    assert place.effects() == {name: 1 for name in names if name not in bad}
    runs = [run.name for run in place.runs if run.what == "start"]
    assert Counter(runs) == {name: 3 if name in bad else 1 for name in names}
    done = [int(name) for name in runs if name not in bad]
    assert done == sorted(done), "the order is kept"
