"""Whatever SQS, Lambda and the network do, each sign-up is kept once, and confirmed with one reference."""

import json
from pathlib import Path
from types import SimpleNamespace

import boto3
from idempotent_receiver.testing import explore
from signups import handler

EVENTS = Path(__file__).parents[1] / "events"


def send_email(**email):
    """Stands for SES."""


def test_each_signup_is_confirmed(calls, monkeypatch):
    ses = SimpleNamespace(send_email=send_email)
    calls.replace(ses, "send_email", at_least_once="SES takes no key", raises=TimeoutError())
    monkeypatch.setattr(boto3, "client", lambda service: ses)
    messages = json.loads((EVENTS / "order.json").read_text())
    seen = explore(handler.lambda_handler, messages, tables={"signups": "email"})
    assert seen.complete
    assert [each["email"] for each in seen.effects["signups"]] == ["ada@example.com"]
    assert len(seen.effects["calls made"]) == 1
