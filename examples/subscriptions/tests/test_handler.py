"""Whatever SQS, Lambda and the network do, each change counts once, in the order of its group."""

import json
from pathlib import Path

from idempotent_receiver.testing import explore
from subscriptions.handler import lambda_handler

EVENTS = Path(__file__).parents[1] / "events"


def test_changes_are_applied_once_and_in_order():
    messages = json.loads((EVENTS / "orders.json").read_text())
    seen = explore(lambda_handler, messages, tables={"subscriptions": "subscription"})
    assert seen.complete
    assert seen.effects["subscriptions"] == [
        {"subscription": "sub-1042", "status": "past_due", "changes": 2},
        {"subscription": "sub-1043", "status": "active", "changes": 1},
    ]
