"""The stand-in remembers what its callers cannot: how often it was called, and what had been posted by then."""

from __future__ import annotations

import http.client
import json
import threading
import time
from typing import Any

import pytest

from local.standin import LEASE_MARGIN_MS, Call, Delivery, Server, Standin, Start
from local.story import Kind

KINDS = {
    "t-good": Kind.GOOD,
    "t-flaky": Kind.FLAKY,
    "t-before": Kind.KILLED_BEFORE,
    "t-after": Kind.KILLED_AFTER,
    "t-at-once": Kind.AT_ONCE,
}


class Ledger:
    """What is posted."""

    def __init__(self) -> None:
        self.posted: set[str] = set()

    def __call__(self, names: Any) -> frozenset[str]:
        return frozenset(names) & self.posted


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


@pytest.fixture
def standin(ledger: Ledger) -> Standin:
    standin = Standin(KINDS)
    standin.attach(ledger)
    return standin


def deliver(standin: Standin, *names: str, invocation: str = "i1") -> None:
    records = [{"messageId": f"m-{name}", "body": json.dumps({"transfer_id": name})} for name in names]
    standin.answer("/deliveries", {"invocation": invocation, "deadline_ms": 5000, "records": records})


def start(standin: Standin, name: str) -> Any:
    return standin.answer("/starts", {"invocation": "i1", "name": name})["die"]


def call(standin: Standin, name: str) -> Any:
    return standin.answer("/calls", {"name": name, "key": "k"})["accepted"]


def test_a_flaky_transfer_is_refused_twice_and_then_accepted(standin: Standin) -> None:
    assert [call(standin, "t-flaky") for _ in range(4)] == [False, False, True, True]
    assert call(standin, "t-good") is True


@pytest.mark.parametrize(("name", "moment"), [("t-before", "before"), ("t-after", "after"), ("t-good", None)])
def test_a_worker_is_told_to_die_at_the_first_start_only(standin: Standin, name: str, moment: str | None) -> None:
    deliver(standin, name)
    assert [start(standin, name), start(standin, name)] == [moment, None]


def test_a_lease_lasts_until_the_deadline_and_the_margin(standin: Standin) -> None:
    deliver(standin, "t-good")
    start(standin, "t-good")
    (line,) = [line for line in standin.lines() if isinstance(line, Start)]
    assert line.lease_until_ms == 5000 + LEASE_MARGIN_MS


def test_what_was_posted_by_then_stands_beside_each_line(standin: Standin, ledger: Ledger) -> None:
    deliver(standin, "t-good")
    call(standin, "t-good")
    ledger.posted.add("t-good")
    deliver(standin, "t-good")
    call(standin, "t-good")
    assert [(type(line), line.done) for line in standin.lines() if isinstance(line, Delivery | Call)] == [
        (Delivery, False),
        (Call, False),
        (Delivery, True),
        (Call, True),
    ]


def test_a_body_that_cannot_be_read_is_still_a_delivery(standin: Standin) -> None:
    records = [{"messageId": "m", "body": body} for body in ("{", "[1]", '{"transfer_id": 7}')]
    standin.answer("/deliveries", {"invocation": "i", "deadline_ms": 0, "records": records})
    assert [line.name for line in standin.lines() if isinstance(line, Delivery)] == [None, None, None]


def test_the_first_handler_is_held_until_it_is_let_go(standin: Standin) -> None:
    deliver(standin, "t-at-once")
    holding = threading.Thread(target=start, args=(standin, "t-at-once"))
    holding.start()
    while "t-at-once" not in standin.started:
        time.sleep(0.001)
    start(standin, "t-at-once")  # a second one is not held
    assert holding.is_alive()
    standin.let_go("t-at-once")
    holding.join(2)
    assert not holding.is_alive()


def test_it_answers_over_http_and_keeps_what_it_could_not_answer(standin: Standin) -> None:
    with Server(standin) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
        connection.request("POST", "/calls", json.dumps({"name": "t-good", "key": "k"}))
        assert json.loads(connection.getresponse().read()) == {"accepted": True}
        assert standin.trouble is None
        connection.request("POST", "/nowhere", "{}")
        response = connection.getresponse()
        response.read()
        connection.close()
    assert response.status == 500
    assert isinstance(standin.trouble, ValueError)
