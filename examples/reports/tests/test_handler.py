"""Whatever SQS, the container and the network do, each report is one object."""

import json
from pathlib import Path

from idempotent_receiver.testing import explore
from reports import handler

EVENTS = Path(__file__).parents[1] / "events"


def test_each_report_is_one_object(calls):
    calls.replace(handler, "orders_of", no_effects="a query", returns=[("o-1", "1250")])
    calls.replace(handler, "upload", key="name", raises=TimeoutError(), refuses=ConnectionError())
    messages = json.loads((EVENTS / "order.json").read_text())
    seen = explore(handler.lambda_handler, messages, tables={"reports": "report"})
    assert seen.complete
    assert [each["report"] for each in seen.effects["reports"]] == ["2026-q4"]
