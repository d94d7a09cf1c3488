"""Whatever SQS, Lambda and the network do, each payment is booked once."""

import json
from pathlib import Path

from idempotent_receiver.testing import explore
from payments.handler import lambda_handler

EVENTS = Path(__file__).parents[1] / "events"


def test_each_payment_is_booked_once():
    messages = json.loads((EVENTS / "orders.json").read_text())
    seen = explore(lambda_handler, messages, tables={"payments": "payment_id", "invoices": "invoice"})
    assert seen.complete
    assert seen.effects["invoices"] == [{"invoice": "2026-0117", "paid": 2000, "payments": 2}]
    assert [each["cents"] for each in seen.effects["payments"]] == [1250, 750]
