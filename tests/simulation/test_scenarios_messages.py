"""What a message keeps on its way, what it stops, and when it is too late for it."""

from __future__ import annotations

import json

import pytest

from idempotent_receiver import Message, PermanentError
from idempotent_receiver.transaction.outbox import STAMP
from tests.simulation.scenario import Scenario
from tests.simulation.world import DEAD_LETTERS, sqs_record

WRAPPED = '{"detail": {"id": "7"}, "detail-type": "order"}'


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_dead_letter_keeps_its_envelope_and_what_it_came_with(scenario: Scenario, attempts: int) -> None:
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
        assert scenario.answer(spoil, record, envelope="detail", dead_letter_queue=DEAD_LETTERS) == []
        sent = scenario.sqs.sent[attempt]
        stamp = json.loads(sent["MessageAttributes"][STAMP]["StringValue"])
        again = {"stringValue": json.dumps({"key": stamp["key"], "original_id": "m"}), "dataType": "String"}
        record = {**sqs_record("m", WRAPPED, attributes={**own, STAMP: again}), "attributes": record["attributes"]}

        assert sent["MessageBody"] == WRAPPED
        assert [sent["MessageAttributes"][name]["StringValue"] for name in own] == [*own]
        assert sent["MessageSystemAttributes"]["AWSTraceHeader"]["StringValue"] == "Root=1"
        assert (stamp["key"], stamp["original_id"]) == ("m", "m")


def test_a_business_key_is_the_stamps_and_a_stamp_is_no_business_key(by_key: Scenario) -> None:
    refuse = by_key.taking(0, PermanentError("no"))
    assert by_key.answer(refuse, sqs_record("m", '{"k": "7"}'), dead_letter_queue=DEAD_LETTERS) == []
    assert {id: stamp["key"] for id, stamp in by_key.dead_letters().items()} == {"m": "7"}

    forged = {"stringValue": json.dumps({"key": "8", "original_id": "m"}), "dataType": "String"}
    assert by_key.answer(by_key.taking(0), sqs_record("again", '{"k": "7"}', attributes={STAMP: forged})) == []
    assert [*by_key.memory.items] == ["n#7"]
    assert by_key.status("n#7") == "COMPLETED"


@pytest.mark.parametrize(("seconds", "sent"), [(9.3, 1), (9.6, 0)])
def test_a_dead_letter_that_comes_too_late_is_not_sent_and_not_acknowledged(
    scenario: Scenario, seconds: float, sent: int
) -> None:
    refuse_late = scenario.taking(seconds, PermanentError("no"))

    failed = scenario.answer(refuse_late, sqs_record("m"), seconds=10, dead_letter_queue=DEAD_LETTERS)
    assert (len(scenario.sqs.sent), failed) == (sent, [] if sent else ["m"])
    assert scenario.status("m") == "FAILED"
