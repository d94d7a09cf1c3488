"""What Sentry hears of failures, by the example in docs/operating.md and its own SDK."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "operating.md"

# Sentry patches the whole process, so that it gets one of its own.
BEFORE = """
import functools, json, sys, types
import sentry_sdk
from sentry_sdk.transport import Transport

heard = []

class Recorder(Transport):
    def capture_envelope(self, envelope):
        heard.append(envelope.get_event())

sentry_sdk.init = functools.partial(sentry_sdk.init, dsn="http://key@127.0.0.1:9/1", transport=Recorder)
"""
AFTER = """
from idempotent_receiver import MemoryStore, PermanentError, sqs_consumer

def charge(order):
    raise ConnectionError("card 4111")

def handle(order: dict):
    match order["kind"]:
        case "down":
            charge(order)
        case "refused":
            raise PermanentError("overdrawn")
        case "early":
            raise RetryLater(seconds=3)

with_texts = sys.argv[1] == "with texts"
handler = sqs_consumer(MemoryStore(), error_texts=with_texts)(handle if with_texts else tracked(handle))
bodies = [json.dumps({"kind": kind}) for kind in ("fine", "down", "down", "refused", "early")] + ["[]", "{"]
context = types.SimpleNamespace(get_remaining_time_in_millis=lambda: 60_000, aws_request_id="1", function_name="docs")
answer = handler({"Records": [{"messageId": str(n), "body": body} for n, body in enumerate(bodies)]}, context)
print("\\nHEARD", json.dumps([len(answer["batchItemFailures"]), heard]))
"""


def heard(how: str) -> tuple[int, list[dict[str, Any]]]:
    """How many messages failed, and Sentry's events."""
    (example,) = re.findall(r"(?ms)^```py\n(.*?)^```$", PAGE.read_text())
    ran = subprocess.run(
        [sys.executable, "-c", BEFORE + example + AFTER, how], capture_output=True, text=True, check=False, timeout=60
    )
    assert "HEARD" in ran.stdout, ran.stderr
    failed, events = json.loads(ran.stdout.rpartition("HEARD")[2])
    return failed, events


@pytest.mark.slow
@pytest.mark.parametrize("how", ["without texts", "with texts"])
def test_sentry_hears_each_failure_once_grouped_by_its_place(how: str) -> None:
    """What the handler raised with its stack, whose last frame is its place; what it never saw by the error's type."""
    failed, events = heard(how)
    raised = [event for event in events if "exception" in event]
    places = [event["exception"]["values"][-1] for event in raised]
    assert failed == 6, "one of them is only too early"
    assert sorted((each["type"], each["stacktrace"]["frames"][-1]["function"]) for each in places) == [
        ("ConnectionError", "charge"),
        ("ConnectionError", "charge"),
        ("PermanentError", "handle"),
    ]
    others = [event for event in events if event not in raised]
    assert [event["fingerprint"] for event in others] == [["InvalidBody"], ["InvalidBody"]]
