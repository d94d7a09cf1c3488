"""A secret that is sent to the deployed function is in its dead letter's body, and nowhere else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.e2e.deployed import eventually

if TYPE_CHECKING:
    from tests.e2e.deployed import Deployed

pytestmark = pytest.mark.slow

SECRET = "correct-horse-battery-staple"


def test_a_secret_is_told_to_nobody(at_once: Deployed) -> None:
    bank = at_once
    (good,) = bank.recorded("eventbridge")["Records"]
    transfer = {"transfer_id": "t-1", "from_account": "alice", "to_account": "bob", "currency": "USD"}
    bodies = {"secret-1": SECRET, "secret-2": json.dumps({**transfer, "amount": SECRET})}
    attribute = {"dataType": "String", "stringValue": SECRET}
    records = [
        {**good, "messageId": id, "body": body, "messageAttributes": {"token": attribute}}
        for id, body in bodies.items()
    ]
    answer = bank.invoke({"Records": records})
    assert answer.failed == []
    log = logged(bank)
    for id in bodies:
        letter, record = bank.dead_letter(id), bank.record(id)
        assert SECRET in letter.message["Body"]
        assert SECRET not in json.dumps(letter.stamp)
        assert letter.stamp["error_type"] == "InvalidBody"
        assert SECRET not in str(record)
        assert id in log
    assert SECRET not in log + answer.log


def logged(bank: Deployed) -> str:
    return eventually(
        lambda: json.dumps(bank.log_lines()),
        lambda text: "secret-2" in text and "BatchDuration" in text,
        what="the log is there",
    )
