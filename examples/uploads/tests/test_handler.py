"""Whatever SQS, Lambda and the network do, a document's newest version is the one that is kept."""

import json
from pathlib import Path

from idempotent_receiver.testing import explore
from uploads.handler import lambda_handler

EVENTS = Path(__file__).parents[1] / "events"


def test_the_newest_version_wins():
    messages = json.loads((EVENTS / "orders.json").read_text())
    seen = explore(lambda_handler, messages, tables={"documents": "name"})
    assert seen.complete
    (document,) = seen.effects["documents"]
    assert (document["name"], document["octets"]) == ("contracts/lease 2026.pdf", 20480)
