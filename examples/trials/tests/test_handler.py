"""Whatever EventBridge, SQS, Lambda and the network do, each account has one trial."""

import json
from pathlib import Path

from idempotent_receiver.testing import explore
from trials.handler import lambda_handler

EVENTS = Path(__file__).parents[1] / "events"


def test_each_account_has_one_trial():
    messages = json.loads((EVENTS / "orders.json").read_text())
    seen = explore(lambda_handler, messages, tables={"trials": "account"})
    assert seen.complete
    assert seen.effects["trials"] == [
        {"account": "acme", "ends_at": "2027-01-29T08:00:00+00:00"},
        {"account": "globex", "ends_at": "2027-01-30T09:30:00+00:00"},
    ]
