"""What a message keeps on its way, what it stops, and when it is too late for it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from idempotent_receiver import Message, PermanentError, body_field
from idempotent_receiver.sqs.dead_letter import STAMP
from tests.simulation.scenario import Scenario
from tests.simulation.world import DEAD_LETTERS, FIFO, sqs_record

WRAPPED = '{"detail": {"id": "7"}, "detail-type": "order"}'


def accept(body: dict) -> None: ...


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_dead_letter_keeps_its_envelope_and_what_it_came_with(scenario: Scenario, attempts: int) -> None:
    """Whatever the handler did to its copy, and however often it was redriven."""

    def spoil(body: dict, message: Message) -> None:
        body.clear()
        message.attributes.clear()
        message.message_attributes["tenant"]["stringValue"] = "another"
        del message.message_attributes["kind"]
        raise PermanentError("no")

    own = {name: {"stringValue": name, "dataType": "String"} for name in ("tenant", "kind")}
    record = sqs_record("m", WRAPPED, attributes=own)
    record["attributes"]["AWSTraceHeader"] = "Root=1"
    for attempt in range(attempts):
        scenario.worker(spoil, envelope="detail", dead_letter_queue=DEAD_LETTERS).deliver(record)
        scenario.run()
        sent = scenario.sqs.sent[attempt]
        stamp = json.loads(sent["MessageAttributes"][STAMP]["StringValue"])
        again = {"stringValue": json.dumps({"key": stamp["key"], "original_id": "m"}), "dataType": "String"}
        record = {**sqs_record("m", WRAPPED, attributes={**own, STAMP: again}), "attributes": record["attributes"]}

        assert sent["MessageBody"] == WRAPPED
        assert {name: sent["MessageAttributes"][name]["StringValue"] for name in own} == {
            "tenant": "tenant",
            "kind": "kind",
        }
        assert sent["MessageSystemAttributes"]["AWSTraceHeader"]["StringValue"] == "Root=1"
        assert (stamp["key"], stamp["original_id"]) == ("m", "m")


def test_a_business_key_is_the_stamps_and_a_stamp_is_no_business_key() -> None:
    """A dead letter tells the key that the body has; a redriven one has that key by its body again."""
    scenario, mended = Scenario(namespace="orders"), []

    def refuse_at_first(body: dict) -> None:
        if not mended:
            raise PermanentError("no")

    worker = scenario.deliver(
        refuse_at_first, sqs_record("m", '{"id": "7"}'), key=body_field("id"), dead_letter_queue=DEAD_LETTERS
    )
    scenario.run()
    assert {id: stamp["key"] for id, stamp in scenario.dead_letters().items()} == {"m": "7"}

    forged = {"stringValue": json.dumps({"key": "8", "original_id": "m"}), "dataType": "String"}
    scenario.keys_of["again"] = ("orders#7",)
    mended.append(True)
    worker.deliver(sqs_record("again", '{"id": "7"}', attributes={STAMP: forged}))
    scenario.run()
    assert [*scenario.memory.items] == ["orders#7"]
    assert scenario.status("orders#7") == "COMPLETED"


@pytest.mark.parametrize("dead_letter_queue", [None, f"{DEAD_LETTERS}.fifo"])
def test_an_unusable_key_stops_its_group_until_its_dead_letter_is_confirmed(dead_letter_queue: str | None) -> None:
    scenario = Scenario(namespace="orders")
    options: dict[str, Any] = {} if dead_letter_queue is None else {"dead_letter_queue": dead_letter_queue}
    scenario.keys_of = {id: (f"orders#{id}",) for id in "134"}
    worker = scenario.deliver(
        accept,
        *[
            sqs_record(n, f'{{"id": "{n}"}}' if n != "2" else "{}", queue=FIFO, group="h" if n == "4" else "g")
            for n in "1234"
        ],
        key=body_field("id"),
        **options,
    )
    scenario.run()

    done = {"1", "4"} if dead_letter_queue is None else {"1", "3", "4"}
    assert set(scenario.keys_run) == done
    assert set(worker.answers[0]) == {"1", "2", "3", "4"} - done - set(scenario.dead_letters())


@pytest.mark.parametrize("concurrency", [1, 2])
def test_no_coroutine_starts_that_the_longest_so_far_says_would_overrun(scenario: Scenario, concurrency: int) -> None:
    """As no plain handler does: each round takes four seconds, and after two there are three left."""

    async def handle(body: dict) -> None:
        await asyncio.sleep(4)

    assert (
        len(
            scenario.answer(
                handle, *[sqs_record(str(n)) for n in range(3 * concurrency)], seconds=11, concurrency=concurrency
            )
        )
        == concurrency
    )
    assert len(scenario.runs) == 2 * concurrency
    assert scenario.live_claims() == []


@pytest.mark.parametrize(("seconds", "sent"), [(9.3, 1), (9.6, 0)])
def test_a_dead_letter_that_comes_too_late_is_not_sent_and_not_acknowledged(seconds: float, sent: int) -> None:
    """In the last half of the stop margin its confirmation might come after the answer."""
    scenario = Scenario()

    def refuse_late(body: dict) -> None:
        scenario.world.sleep(seconds)
        raise PermanentError("no")

    assert scenario.answer(refuse_late, sqs_record("m"), seconds=10, dead_letter_queue=DEAD_LETTERS) == (
        [] if sent else ["m"]
    )
    assert len(scenario.sqs.sent) == sent
    assert scenario.status("m") == "FAILED"
