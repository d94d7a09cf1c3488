"""HTTP: a web framework behind an adapter, which writes its responses for the front that asks."""

from __future__ import annotations

import json
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from fastapi import FastAPI, Response
from mangum import Mangum

from idempotent_receiver import MemoryStore, http_endpoint
from tests.contexts import Context
from tests.current_loop import current_loop
from tests.manual_clock import ManualClock
from tests.unit.http.front_model import FRONTS, Seen, event_of, seen_through

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def loop() -> Iterator[None]:
    with current_loop():
        yield


class Shop:
    """A FastAPI application in a handler, whose first `failures` requests raise."""

    def __init__(self, failures: int = 0, **options: Any) -> None:
        self.runs = 0
        app = FastAPI()

        @app.post("/transfers")
        def transfer(payment: dict[str, int], response: Response) -> dict[str, int]:
            self.runs += 1
            if self.runs <= failures:
                raise ConnectionError("secret")
            response.set_cookie("session", "1", secure=True)
            response.set_cookie("seen", "2", path="/shop")
            response.headers.append("link", "</a>")
            response.headers.append("link", "</b>")
            return {"paid": payment["amount"]}

        self.clock = ManualClock()
        wrap = http_endpoint(MemoryStore("shop"), clock=self.clock, **options)
        self.handler = wrap(Mangum(app, lifespan="off"))

    def __call__(self, front: str) -> Any:
        event = event_of(front, headers={"Content-Type": "application/json"})
        where = {**event["requestContext"], "identity": {"sourceIp": "192.0.2.1"}}
        if "http" in where:
            where["http"]["sourceIp"] = "192.0.2.1"
        return self.handler({"resource": "/transfers", **event, "requestContext": where}, Context(self.clock))


@pytest.mark.parametrize(("first", "second"), list(product(FRONTS, FRONTS)))
def test_what_mangum_writes_for_one_front_is_replayed_through_any(first: str, second: str) -> None:
    """Both cookies and both links, as the front that asks takes them."""
    shop = Shop()
    once, again = seen_through(first, shop(first)), seen_through(second, shop(second))

    assert isinstance(again, Seen)
    assert (again.status, json.loads(again.body), shop.runs) == (200, {"paid": 5}, 1)
    assert [cookie.partition(";")[0] for cookie in again.cookies] == ["session=1", "seen=2"]
    assert [link.strip() for link in again.headers["link"]] == ["</a>", "</b>"]
    assert again.replayed
    again.replayed = False
    assert again == once


@pytest.mark.parametrize(
    ("options", "statuses"),
    [({}, [500, 500]), ({"is_final": lambda status: status not in (401, 403, 408, 429, 500, 503)}, [500, 200, 200])],
)
def test_an_exception_in_a_framework_is_a_response_with_a_status(options: dict[str, Any], statuses: list[int]) -> None:
    """Nothing is raised to the library, so `is_final` alone says that the next request runs again."""
    shop = Shop(failures=1, **options)

    assert [shop("http")["statusCode"] for _ in statuses] == statuses
    assert shop.runs == (1 if options == {} else 2)
