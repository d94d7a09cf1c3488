"""`max_attempts` and calls: what a call costs its message, and what the dead letter says of it."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver import RetryLater, Transaction
from idempotent_receiver.batch.calling import _not_called
from idempotent_receiver.errors import Failure
from idempotent_receiver.sqs.dead_letter import stamp_of
from idempotent_receiver.transaction.outbox import STAMP
from tests.pipeline import Pipeline
from tests.unit.batch.at_once import AtOnce
from tests.unit.sqs.test_sends import both_modes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Calling(Pipeline):
    """A queue whose handler calls: `first`, and then what `call` does. `made` has the calls."""

    def __init__(self, call: Callable[[Calling], None], **options: Any) -> None:
        self.made: list[str] = []
        self.call = call

        def first(body: str) -> None:
            self.made.append(f"first {body}")

        def second(body: str) -> None:
            self.made.append(f"second {body}")
            if body == "bad":
                self.call(self)

        self.functions = [first, second]
        super().__init__(lambda body, pipeline: None, calls=self.functions, max_attempts=3, **options)

    def _run(self, body: str, tx: Transaction) -> None:  # type: ignore[override]  # it calls
        super()._run(body)
        for function in self.functions:
            tx.call(function, body=body)


Place = "Callable[..., Calling]"


@pytest.fixture
def place() -> Iterator[Callable[..., Calling]]:
    made: list[Calling] = []

    def new(call: Callable[[Calling], None], **options: Any) -> Calling:
        made.append(Calling(call, **options))
        return made[-1]

    yield new
    for each in made:
        each.close()


def reason_in(place: Calling) -> Any:
    attribute = place.dead_letters.messages[0].sent["MessageAttributes"][STAMP]
    return stamp_of({STAMP: {"stringValue": attribute["StringValue"]}})


def raises(place: Calling) -> None:
    raise ValueError("confidential")


@both_modes
def test_a_call_that_raises_is_charged_to_its_outbox_and_its_dead_letter_names_it(
    place: Callable[..., Calling], effects: str
) -> None:
    at = place(raises, effects=effects, executor=AtOnce)
    at.send("bad", "ok")
    bad = at.kept("bad").id
    at.run()

    assert (at.runs.count("bad"), at.made.count("first bad"), at.made.count("second bad")) == (1, 1, 3)
    assert (at.dead, at.record(bad).status) == (["bad"], "SENDING")
    reason = json.dumps(at.dead_letters.messages[0].sent["MessageAttributes"])
    assert "its effect took place, but calls are left: call 2 (second): ValueError at " in reason
    assert "confidential" not in reason

    at.call = lambda at: None  # the fix is deployed, and the dead letter redriven
    letter = at.dead_letters.messages.pop()
    at.queues.send_message(QueueUrl=at.queue.url, **{k: v for k, v in letter.sent.items() if k.startswith("Message")})
    at.run()
    assert (at.record(bad).status, at.made.count("first bad"), at.made.count("second bad")) == ("COMPLETED", 1, 4)


@both_modes
def test_the_backoff_of_a_call_counts_charged_attempts_not_receives(
    place: Callable[..., Calling], effects: str
) -> None:
    """A message that was received twenty times behind others waits seconds for its call's first failure, too."""
    at = place(raises, effects=effects, executor=AtOnce)
    at.send("bad")
    at.queue.messages[0].receives = 20
    for most_seconds in (4, 8):
        at.poll()
        assert at.kept("bad").visible_seconds - at.clock.seconds <= most_seconds
        at.pass_time(most_seconds)


def test_a_call_that_kills_its_process_is_charged_as_a_crash(place: Callable[..., Calling]) -> None:
    """The first one is charged to nobody; and the dead letter names what was left."""
    at = place(lambda at: at.kill())
    at.send("bad", *"abc")
    bad = at.kept("bad").id
    at.run()

    assert (at.dead, sorted(at.done)) == (["bad"], ["a", "b", "bad", "c"])
    assert at.made.count("second bad") == 4
    assert "call 2 (second)" in json.dumps(at.dead_letters.messages[0].sent["MessageAttributes"])
    assert at.record(bad).status == "SENDING"
    assert {at.record(key).status for key in at.store.items if key != bad} == {"COMPLETED"}


def is_cancelled(place: Calling) -> None:
    raise asyncio.CancelledError


@both_modes
def test_a_cancelled_call_is_charged_to_a_message_that_was_alone(place: Callable[..., Calling], effects: str) -> None:
    """As a cancelled handler is: what shares its event loop may have used up the time."""
    at = place(is_cancelled, effects=effects, executor=AtOnce)
    at.send("bad")
    at.run()
    assert (at.dead, at.made.count("second bad")) == (["bad"], 4)


@pytest.mark.parametrize("names", [("CancelledError", "ValueError"), ("ValueError", "CancelledError")])
def test_a_call_that_raised_decides_beside_one_that_was_cancelled(names: tuple[str, str]) -> None:
    """In either order, so that its message pays at once."""
    not_called = _not_called([(number, "notify", Failure(name)) for number, name in enumerate(names, 1)])
    assert not_called.charged
    assert not_called.failure is not None
    assert not not_called.failure.cancelled


def too_early(place: Calling) -> None:
    raise RetryLater(seconds=60)


def test_a_call_that_asks_for_a_delay_costs_nothing_until_its_message_is_too_old(place: Callable[..., Calling]) -> None:
    at = place(too_early, executor=AtOnce, max_age_seconds=600)
    at.send("bad")
    bad = at.kept("bad").id
    at.run()

    assert 8 <= at.made.count("second bad") <= 11
    assert (at.dead, at.charged(bad), at.record(bad).status) == (["bad"], 0, "SENDING")
