"""Whatever SQS, Lambda and the network do, each request is booked once. On SQLite, in a database of the test's own."""

import json
from datetime import date
from pathlib import Path

from bookings.handler import lambda_handler
from idempotent_receiver.testing import explore

EVENTS = Path(__file__).parents[1] / "events"


def test_each_request_is_booked_once():
    messages = json.loads((EVENTS / "orders.json").read_text())
    seen = explore(lambda_handler, messages)
    assert seen.complete
    booked = {(each["room"], each["day"]): each["guest"] for each in seen.effects["bookings"]}
    assert booked == {("sea", date(2027, 7, 1)): "ada", ("garden", date(2027, 7, 1)): "grace"}, str(seen)
