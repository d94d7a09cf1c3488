"""Whatever SQS, Lambda and the network do, each order counts once, and so does its refund."""

import json
from pathlib import Path

from idempotent_receiver.testing import explore
from orders import handler, refunds

EVENTS = Path(__file__).parents[1] / "events"


def test_each_order_is_counted_and_refunded_once():
    messages = json.loads((EVENTS / "order.json").read_text())
    seen = explore(handler.lambda_handler, messages, tables={"totals": "customer"})
    assert seen.complete
    assert seen.effects["totals"] == [{"customer": "alice", "cents": 1250}]
    assert [json.loads(each["MessageBody"]) for each in seen.effects["messages sent"]] == [
        {"customer": "alice", "cents": 125}
    ]


def test_each_refund_counts_once():
    seen = explore(refunds.lambda_handler, [{"customer": "alice", "cents": 125}], tables={"totals": "customer"})
    assert seen.complete
    assert seen.effects["totals"] == [{"customer": "alice", "cents": -125}]
