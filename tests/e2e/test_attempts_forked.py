"""`max_attempts` with a process for each invocation, which a message may really end."""

from __future__ import annotations

import pytest

from tests.pipeline import Pipeline


def killer_kills(body: str, pipeline: Pipeline) -> None:
    if "killer" in body:
        pipeline.kill()


@pytest.mark.parametrize("concurrency", [1, 10])
@pytest.mark.parametrize("batch", [10, 100])
@pytest.mark.parametrize("fifo", [False, True], ids=["standard", "fifo"])
def test_a_message_that_ends_its_process_is_charged_alone(fifo: bool, batch: int, concurrency: int) -> None:
    place = Pipeline(killer_kills, fifo=fifo, batch=batch, concurrency=concurrency, max_attempts=3, forks=True)
    names = [f"ok-{number}" for number in range(batch - 1)]
    place.send(*names[: batch // 2], "killer", *names[batch // 2 :])
    place.run()

    assert place.dead == ["killer"]
    assert {*place.done} == {*names}
    assert [*place.most_charged.values()] == [3], "nobody else was charged"
    assert place.runs.count("killer") == 4, "the first death is charged to nobody"
