"""The fake service remembers what its callers cannot: how often it was called, and what had been posted by then."""

from __future__ import annotations

import http.client
import json
import threading
import time
from typing import Any

import pytest

from local.serving import serving
from local.workload.evidence import Call, Delivery, Kill, Start, Write
from local.workload.fake_service import LEASE_MARGIN_MS, FakeService

GOOD, FLAKY, AT_ONCE = "1-good-1", "1-flaky-1", "1-at_once-1"


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
def service(ledger: Ledger) -> FakeService:
    return FakeService(ledger)


def deliver(service: FakeService, *names: str, worker: str = "i1") -> None:
    records = [{"messageId": f"m-{name}", "body": json.dumps({"transfer_id": name})} for name in names]
    service.answer("/deliveries", {"worker": worker, "deadline_ms": 5000, "records": records})


def start(service: FakeService, name: str) -> Any:
    return service.answer("/starts", {"worker": "i1", "name": name})["die"]


def reach(service: FakeService, name: str, place: str) -> Any:
    return service.answer("/places", {"name": name, "place": place})["die"]


def call(service: FakeService, name: str) -> Any:
    return service.answer("/calls", {"name": name})["accepted"]


def test_a_flaky_transfer_is_refused_twice_and_then_accepted(service: FakeService) -> None:
    assert [call(service, FLAKY) for _ in range(4)] == [False, False, True, True]
    assert call(service, GOOD) is True


@pytest.mark.parametrize(
    ("kind", "place", "elsewhere"),
    [
        ("killed_before", "post.before", "post.after"),
        ("killed_after", "post.after", "post.before"),
        ("refund_after", "refund.after", "debit.after"),
        ("start_before_again", "start.before", "start.after"),
    ],
)
def test_a_worker_is_told_to_die_at_one_place_and_once(
    service: FakeService, kind: str, place: str, elsewhere: str
) -> None:
    name = f"1-{kind}-1"
    deliver(service, name, GOOD)
    assert [start(service, name), reach(service, name, elsewhere), reach(service, GOOD, place)] == [False] * 3
    assert [reach(service, name, place), reach(service, name, place)] == [True, False]
    assert service.deaths == 1


def test_a_lease_lasts_until_the_deadline_and_the_margin(service: FakeService) -> None:
    deliver(service, GOOD)
    start(service, GOOD)
    (line,) = [line for line in service.lines() if isinstance(line, Start)]
    assert line.lease_until_ms == 5000 + LEASE_MARGIN_MS


def test_what_was_posted_by_then_stands_beside_each_line(service: FakeService, ledger: Ledger) -> None:
    deliver(service, GOOD)
    call(service, GOOD)
    ledger.posted.add(GOOD)
    deliver(service, GOOD)
    call(service, GOOD)
    assert [(type(line), line.done) for line in service.lines() if isinstance(line, Delivery | Call)] == [
        (Delivery, False),
        (Call, False),
        (Delivery, True),
        (Call, True),
    ]


def test_a_body_that_cannot_be_read_is_still_a_delivery(service: FakeService) -> None:
    records = [{"messageId": "m", "body": body} for body in ("{", "[1]", '{"transfer_id": 7}')]
    service.answer("/deliveries", {"worker": "i", "deadline_ms": 0, "records": records})
    assert [line.name for line in service.lines() if isinstance(line, Delivery)] == [None, None, None]


def test_a_delivery_says_what_its_record_says(service: FakeService) -> None:
    attributes = {"SentTimestamp": "1700", "ApproximateReceiveCount": "3"}
    records = [{"messageId": "m-1", "body": "{", "attributes": attributes}]
    service.answer("/deliveries", {"worker": "i", "deadline_ms": 0, "records": records})
    (line,) = service.lines()
    assert isinstance(line, Delivery)
    assert (line.key, line.sent_ms, line.receives) == ("m-1", 1700, 3)


def test_a_write_is_known_by_its_transfer_and_a_kill_by_its_worker(service: FakeService) -> None:
    """A record is named by its message's key, of which only a delivery says what transfer it is."""
    killed = "1-killed_before-1"
    deliver(service, killed)
    writes = [
        {"name": name, "move": "claim", "attempt": 2, "over": "i0", "step": ""} for name in (f"m-{killed}", "m-?")
    ]
    service.answer("/writes", {"worker": "i1", "at_ms": 9, "writes": writes})
    service.answer("/places", {"name": killed, "place": "post.before", "worker": "i1"})
    _, claim, stranger, kill = service.lines()
    assert isinstance(claim, Write)
    assert isinstance(stranger, Write)
    assert (claim.name, claim.worker, claim.at_ms, claim.over) == (killed, "i1", 9, "i0")
    assert stranger.name == "m-?"
    assert isinstance(kill, Kill)
    assert (kill.worker, kill.name, kill.place) == ("i1", killed, "post.before")


def test_the_first_handler_is_held_until_it_is_let_go(service: FakeService) -> None:
    deliver(service, AT_ONCE)
    holding = threading.Thread(target=start, args=(service, AT_ONCE))
    holding.start()
    while not service.reached(AT_ONCE, "handler"):
        time.sleep(0.001)
    start(service, AT_ONCE)  # a second one is not held
    assert holding.is_alive()
    service.let_go(AT_ONCE)
    holding.join(2)
    assert not holding.is_alive()


def test_it_answers_over_http_and_keeps_what_it_could_not_answer(service: FakeService) -> None:
    with serving(service.respond) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
        connection.request("POST", "/calls", json.dumps({"name": GOOD}))
        assert json.loads(connection.getresponse().read()) == {"accepted": True}
        assert service.failure is None
        connection.request("POST", "/nowhere", "{}")
        response = connection.getresponse()
        response.read()
        connection.close()
    assert response.status == 500
    assert isinstance(service.failure, ValueError)


def test_a_transfer_is_done_though_the_worker_died_that_posted_it(service: FakeService, ledger: Ledger) -> None:
    """It never says that it has ended: the next delivery finds it posted."""
    deliver(service, GOOD)
    start(service, GOOD)
    ledger.posted.add(GOOD)
    assert not service.is_done(GOOD)

    deliver(service, GOOD, worker="i2")

    assert service.is_done(GOOD)
