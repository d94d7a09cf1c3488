"""Bugs that fuzzing has found in the consumer; the tests of each part have the smaller ones."""

from __future__ import annotations

from typing import Any

import pytest

from idempotent_receiver import MemoryStore, body_field
from idempotent_receiver.testing.world import World
from tests.simulation.world import Worker, sqs_record


@pytest.mark.parametrize("receives", [1, 2])
def test_a_payload_between_two_of_another_does_not_make_it_run_twice(receives: int) -> None:
    """One key, payloads A, B, A: A fails, B is a mismatch, and the second A shares the first one's outcome."""
    world, runs = World(), []

    def handle(body: dict[str, Any]) -> None:
        runs.append(body["amount"])
        raise ValueError(body)

    worker = Worker(world, MemoryStore("n"), handle, key=body_field("id"))
    one, other = '{"id": "k", "amount": 1}', '{"id": "k", "amount": 2}'

    worker.deliver(*[sqs_record(str(place), body, receives=receives) for place, body in enumerate([one, other, one])])
    world.run()

    assert runs == [1]
    assert worker.answers == [["0", "1", "2"]]


@pytest.mark.parametrize(
    ("envelope", "body"),
    [("contains(name, id)", '{"name": "1"}'), ("ceil(amount)", '{"amount": 1e400}'), ("to_string(@)", "[" * 900)],
)
def test_an_envelopes_function_that_meets_a_foreign_value_stops_no_batch(envelope: str, body: str) -> None:
    """The body stays as it is, and other messages are handled; JMESPath also raises TypeError and OverflowError."""
    world, bodies = World(), []

    def handle(body: str) -> None:
        bodies.append(body)

    worker = Worker(world, MemoryStore(), handle, envelope=envelope)
    worker.deliver(sqs_record("1", body), sqs_record("2", "plain"))
    world.run()

    assert worker.answers == [[]]
    assert body in bodies
